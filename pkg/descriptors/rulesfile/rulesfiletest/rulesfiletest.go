// Package rulesfiletest parses the rules and the descriptors of tests.
package rulesfiletest

import (
	"os"
	"strings"
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

// Entries parses the entries of a descriptor, such as "user_id=42 action=login".
func Entries(text string) (entries []descriptors.Entry) {
	for entry := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(entry, "=")
		entries = append(entries, descriptors.Entry{Key: key, Value: value})
	}
	return entries
}
