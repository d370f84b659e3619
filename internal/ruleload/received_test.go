package ruleload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// The file holds the rules that were saved last. A file that cannot be read or written costs a
// warning and no rules.
func TestReceivedRulesAreSavedAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	core, logged := observer.New(zap.InfoLevel)
	kept := func() *receivedRules { return &receivedRules{path: path, log: zap.New(core)} }
	if files := kept().read(); files != nil || logged.Len() > 0 {
		t.Errorf("without a file: %v, %v", files, logged.All())
	}
	first := []rulesfile.File{
		{Name: "a", Data: []byte("domain: a\n"), Generated: true},
		{Name: "b", Data: []byte("domain: b\n"), Generated: true},
	}
	for _, files := range [][]rulesfile.File{first, {}} {
		kept().save(files)
		got := kept().read()
		if got == nil || rulesfile.Fingerprint(got) != rulesfile.Fingerprint(files) {
			t.Errorf("read %v, want %v", got, files)
		}
		if slices.ContainsFunc(got, func(f rulesfile.File) bool { return !f.Generated }) {
			t.Errorf("%v: not all files are marked as generated", got)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, error %v, want 0600", info.Mode(), err)
	}

	for _, text := range []string{`{"files": [{"name": "a", "rules": "dom`, `{}`, `null`, `{"files": null}`, ""} {
		must.Write(t, path, text)
		files := kept().read()
		warnings := logged.TakeAll()
		want := path + ` is not {"files": [...]} as Weir writes it: remove it, and Weir writes a new one when the control plane sends rules`
		if files != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, "saved xDS rules not read") ||
			warnings[0].ContextMap()["error"] != want {
			t.Errorf("%q: read %v, %v, want %s", text, files, warnings, want)
		}
	}
	path = filepath.Join(t.TempDir(), "missing", "rules.json")
	kept().save(first)
	if logged.FilterMessageSnippet("received rules not saved").Len() != 1 {
		t.Errorf("a missing folder: %v", logged.All())
	}
	path = ""
	kept().save(first)
	if logged.Len() != 1 {
		t.Errorf("without a path: %v", logged.All())
	}
}
