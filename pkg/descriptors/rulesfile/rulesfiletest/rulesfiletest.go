// Package rulesfiletest parses the rules of tests.
package rulesfiletest

import (
	"os"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// ParseFile parses the text of the file at path as [Parse] does.
func ParseFile(t testing.TB, path string) *descriptors.Rules {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(t, string(text))
}

// Parse parses the text of a file named rules.yaml. A fault fails t.
func Parse(t testing.TB, text string) *descriptors.Rules {
	t.Helper()
	rules, err := rulesfile.Parse(rulesfile.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return rules
}
