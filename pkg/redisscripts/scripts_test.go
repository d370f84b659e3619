package redisscripts

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

func TestScriptHasEveryFile(t *testing.T) {
	entries, err := files.ReadDir(".")
	must.Succeed(t, err)
	script := Source()
	for _, entry := range entries {
		if !strings.Contains(script, source(strings.TrimSuffix(entry.Name(), ".lua"))) {
			t.Errorf("the script lacks %s", entry.Name())
		}
	}
}

// The header of each algorithm describes its interface.
func TestLuaHeadersDescribeTheInterface(t *testing.T) {
	for _, name := range limiters.Algorithms() {
		header, _, _ := strings.Cut(source(name), "\nlocal ")
		for _, want := range []string{"-- " + name + ": ", "KEYS", "ARGV", "units"} {
			if !strings.Contains(header, want) {
				t.Errorf("%s: the header lacks %q", name, want)
			}
		}
	}
}

// Source panics at an unknown name. A name without its $ is a global, which fails a call only when
// its line runs.
func TestFilesUseTheConstantsOfSource(t *testing.T) {
	entries, err := files.ReadDir(".")
	must.Succeed(t, err)
	comment, used := regexp.MustCompile(`--.*`), map[string]bool{}
	bare := regexp.MustCompile(`[^$'\w]([A-Z][A-Z_]+)\b`)
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		must.Succeed(t, err)
		code := comment.ReplaceAllString(string(text), "")
		for _, name := range bare.FindAllStringSubmatch(code, -1) {
			if !slices.Contains([]string{"KEYS", "ARGV", "NONE"}, name[1]) { // of Redis, and a local
				t.Errorf("%s uses %s without a $", entry.Name(), name[1])
			}
		}
		os.Expand(code, func(name string) string {
			used[name] = true
			if constants[name] == nil {
				t.Errorf("%s uses $%s, which Source does not know", entry.Name(), name)
			}
			return ""
		})
	}
	literal := regexp.MustCompile(`^(\d{1,16}|'[^']*')$`) // others may not be exact
	for name, value := range constants {
		if !used[name] {
			t.Errorf("no file uses $%s", name)
		}
		if !literal.MatchString(fmt.Sprint(value)) {
			t.Errorf("$%s is %v, want digits or a text", name, value)
		}
	}
}

// Lua writes 1763683200000001 as 1.7636832e+15 by default. Only the driver may read a clock.
func TestLuaKeepsDigitsAndReadsNoClock(t *testing.T) {
	loses := regexp.MustCompile(`tostring\(|cjson|[^.]\.\.[^.]`)
	harmless := map[string][]string{ // texts, which have no digits to lose, and the driver's clock
		"batch.lua":       {"call('TIME')", "'>' .. string.sub(format"},
		"failures.lua":    {"tostring(problem)"},
		"leases_hash.lua": {"id .. 'e'"},
	}
	entries, err := files.ReadDir(".")
	must.Succeed(t, err)
	for _, entry := range entries {
		name := entry.Name()
		for i, line := range strings.Split(source(strings.TrimSuffix(name, ".lua")), "\n") {
			code, _, _ := strings.Cut(line, "--")
			if loses.MatchString(code) || strings.Contains(code, "'TIME'") {
				if !slices.ContainsFunc(harmless[name], func(text string) bool { return strings.Contains(code, text) }) {
					t.Errorf("%s:%d: a number may lose digits as text, or the script reads a clock: %s", name, i+1, line)
				}
			}
		}
	}
}
