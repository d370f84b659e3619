package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// block matches a block of code of docs/admin.md with its kind.
var block = regexp.MustCompile("(?ms)^```\\w+ (\\S+)\n(.*?)^```$")

// Every command of docs/admin.md works, and its response has what the page shows.
func TestAdminPageExamplesWork(t *testing.T) {
	t.Parallel()
	page := must.Read(t, "../../docs/admin.md")
	blocks := block.FindAllStringSubmatch(string(page), -1)
	find := func(kind string) string {
		i := slices.IndexFunc(blocks, func(b []string) bool { return b[1] == kind })
		if i < 0 {
			t.Fatalf("docs/admin.md has no block %q", kind)
		}
		return blocks[i][2]
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "rules.yaml"), find("rules.yaml"))
	// The folder of commands has weir, which is this test binary as a server or as a command.
	binary, err := filepath.Abs(os.Args[0])
	must.Succeed(t, err)
	script(t, folder, "setup", find("setup"), "")
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "weir"), []byte("#!/bin/sh\nWEIR_TEST_AS_SERVER=1 exec "+binary+" \"$@\"\n"), 0o700))
	s := startServer(t, "CONFIG_PATH="+filepath.Join(folder, "rules.yaml"), "ADMIN_ADDR=127.0.0.1:0", "ADMIN_TOKEN_FILE="+filepath.Join(folder, "token"))
	use := func() {
		for range 7 {
			if code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json",
				`{"domain":"shop","descriptors":[{"entries":[{"key":"user_id","value":"42"}]}]}`); code != 200 && code != 429 {
				t.Fatal(code, body)
			}
		}
	}
	out, calls := "", 0
	for _, b := range blocks {
		switch b[1] {
		case "call":
			script(t, folder, "reset", `./weir reset --server http://127.0.0.1:6071 --token-file token user_id=42 || true`, s.address("admin"))
			if !strings.Contains(b[2], "/v1/top") {
				use()
			}
			out = script(t, folder, "call", b[2], s.address("admin"))
			calls++
		case "stream":
			out = script(t, folder, "stream", "timeout 5 "+strings.TrimSpace(b[2])+" & \n sleep 1; wait || true", s.address("admin"))
		case "answer":
			var want, got any
			if err := json.Unmarshal([]byte(b[2]), &want); err != nil {
				t.Fatalf("the answer on the page is no JSON: %v: %s", err, b[2])
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("the answer of the server is no JSON: %v: %s", err, out)
			}
			if difference := missing("", want, got); difference != "" {
				t.Errorf("the page shows %s\nthe server answers %s\n%s", b[2], out, difference)
			}
		}
	}
	if calls < 8 {
		t.Errorf("the page has %d commands", calls)
	}
}

// script runs commands of the page in a folder, and returns what they print.
func script(t *testing.T, folder, kind, text, admin string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if admin != "" {
		text = strings.ReplaceAll(text, "127.0.0.1:6071", admin)
	}
	command := exec.CommandContext(ctx, "bash", "-euc", text)
	command.Dir = folder
	command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := command.Output()
	if err != nil {
		t.Fatalf("run the script of %s: %v\n%s\n%s", kind, err, text, out)
	}
	return string(out)
}

// missing returns the first part of want that got does not have: its fields, items and values.
func missing(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		for name, value := range want {
			if !ok || fields[name] == nil {
				return fmt.Sprintf("%s.%s is missing", at, name)
			}
			if m := missing(at+"."+name, value, fields[name]); m != "" {
				return m
			}
		}
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) < len(want) {
			return fmt.Sprintf("%s has too few items", at)
		}
		for i := range want {
			if m := missing(fmt.Sprintf("%s[%d]", at, i), want[i], items[i]); m != "" {
				return m
			}
		}
	default:
		if strings.HasSuffix(at, ".source") { // the folder is that of the test
			want, got = filepath.Base(fmt.Sprint(want)), filepath.Base(fmt.Sprint(got))
		}
		if want != got {
			return fmt.Sprintf("%s is %v, want %v", at, got, want)
		}
	}
	return ""
}
