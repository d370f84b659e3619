package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// logTypes are the types of logs.md, by the constructor or encoder method of a field.
var logTypes = map[string]string{
	"String": "string", "Stringer": "string", "ByteString": "string", "NamedError": "string", "Any": "string",
	"Int": "number", "Int64": "number", "Bool": "boolean", "Duration": "seconds", "Time": "time",
	"Strings": "list", "Stringers": "list", "Objects": "list",
}

var (
	logField = regexp.MustCompile(`(?:zap\.|enc\.Add)(\w+)\("([^"]*)"`)
	logRow   = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z ]+) \\|")
	snake    = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
)

// logs.md lists the fields of log lines. Fields of one name share a type, and the name of a
// duration ends in _seconds.
func TestLogFieldsMatchTheCode(t *testing.T) {
	page := must.Read(t, "logs.md")
	listed, used := map[string]string{}, map[string]string{"error": "string"} // zap.Error takes no name
	for _, row := range logRow.FindAllStringSubmatch(string(page), -1) {
		listed[row[1]] = row[2]
	}
	for _, folder := range []string{"cmd", "internal", "pkg"} {
		for name, kind := range logFields(t, filepath.Join(root, folder)) {
			used[name] = kind
		}
	}
	for name, kind := range used {
		if listed[name] != kind {
			t.Errorf("logs.md has %q as %q, the code as %q", name, listed[name], kind)
		}
		if !snake.MatchString(name) || strings.HasSuffix(name, "_seconds") != (kind == "seconds") {
			t.Errorf("%q: want snake_case, with the suffix _seconds for a duration and for nothing else", name)
		}
	}
	for name := range listed {
		if used[name] == "" {
			t.Errorf("logs.md lists %q, which no code logs", name)
		}
	}
}

// logFields returns the types of the fields that the code of a folder logs.
func logFields(t *testing.T, folder string) map[string]string {
	t.Helper()
	used := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, found := range logField.FindAllStringSubmatch(string(code), -1) {
			kind, name := logTypes[found[1]], found[2]
			if before, ok := used[name]; kind == "" || ok && before != kind {
				t.Errorf("%s: zap.%s(%q): want one type of logTypes, as in other code: %q", path, found[1], name, before)
			}
			used[name] = kind
		}
		return err
	})
	must.Succeed(t, err)
	return used
}
