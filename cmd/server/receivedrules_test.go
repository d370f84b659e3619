package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// The file holds the rules that were saved last. A file that cannot be read or written costs a warning and no rules.
func TestReceivedRulesAreSavedAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	core, logged := observer.New(zap.InfoLevel)
	kept := func() *receivedRules { return &receivedRules{path: path, log: zap.New(core)} }
	if files := kept().read(); files != nil || logged.Len() > 0 {
		t.Errorf("without a file: %v, %v", files, logged.All())
	}
	first := []rulesfile.File{{Name: "a", Data: []byte("domain: a\n"), Generated: true}, {Name: "b", Data: []byte("domain: b\n"), Generated: true}}
	for _, files := range [][]rulesfile.File{first, {}} {
		kept().save(files)
		if got := kept().read(); got == nil || rulesfile.Fingerprint(got) != rulesfile.Fingerprint(files) || slices.ContainsFunc(got, func(f rulesfile.File) bool { return !f.Generated }) {
			t.Errorf("read %v, want %v", got, files)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	for _, text := range []string{`{"files": [{"name": "a", "rules": "dom`, `{}`, `null`, `{"files": null}`, ""} {
		write(t, path, text)
		files := kept().read()
		warnings := logged.TakeAll()
		want := path + ` is not {"files": [...]} as Weir writes it: remove it, and Weir writes a new one when the control plane sends rules`
		if files != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, "saved xDS rules not read") || warnings[0].ContextMap()["error"] != want {
			t.Errorf("%q: read %v, %v, want %s", text, files, warnings, want)
		}
	}
	path = filepath.Join(t.TempDir(), "missing", "rules.json")
	kept().save(first)
	if logged.FilterMessageSnippet("received rules not saved").Len() != 1 {
		t.Errorf("a missing folder: %v", logged.All())
	}
}

// Weir starts with the rules of the file while the control plane is unreachable, and is ready. A file with faults is not used.
func TestStartWithReceivedRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	(&receivedRules{path: path, log: zap.NewNop()}).save([]rulesfile.File{{Name: "ugc", Data: []byte(rules)}})
	environment := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1", "CONFIG_GRPC_XDS_RULES_FILE=" + path}
	s := startServer(t, environment...)
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
	s.log.await(t, 0, "saved xDS rules are in force")

	(&receivedRules{path: path, log: zap.NewNop()}).save([]rulesfile.File{{Name: "ugc", Data: []byte(strings.Replace(rules, "second", "fortnight", 1) + "limits: 3\n")}})
	s = startServer(t, append(environment, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")...)
	s.log.await(t, 0, "rules not loaded")
	if _, err := s.call("alice"); err == nil {
		t.Error("rules with faults are in force")
	}
}
