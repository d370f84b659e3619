package explain_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/explain"
)

// plural matches a type whose name takes an s.
var plural = regexp.MustCompile("list of (object|string|number|boolean)")

// table returns the fields of a type as rows of Markdown.
func table(t *testing.T, object reflect.Type, path string) string {
	t.Helper()
	var rows strings.Builder
	for i := range object.NumField() {
		field := object.Field(i)
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		doc := field.Tag.Get("doc")
		if name == "" || doc == "" && field.Name != "Limit" {
			t.Errorf("%s.%s has no name or no doc", object.Name(), field.Name)
		}
		inner, kind := field.Type, ""
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			if inner.Kind() == reflect.Slice {
				kind += "list of "
			}
			inner = inner.Elem()
		}
		switch {
		case inner == reflect.TypeFor[explain.Entry]():
			kind += "`[key, value]`"
		case inner.Kind() == reflect.Struct, inner.Kind() == reflect.Map:
			kind += "object"
		case inner.Kind() == reflect.Bool:
			kind += "boolean"
		case inner.Kind() == reflect.String:
			kind += "string"
		default:
			kind += "number"
		}
		if words := field.Tag.Get("enum"); words != "" && len(words) < 60 {
			doc += " One of `" + strings.ReplaceAll(words, ",", "`, `") + "`."
		}
		fmt.Fprintf(&rows, "| `%s%s` | %s | %s |\n", path, name, plural.ReplaceAllString(kind, "${0}s"), doc)
		if inner.Kind() == reflect.Struct {
			suffix := "."
			if field.Type.Kind() == reflect.Slice {
				suffix = "[]."
			}
			rows.WriteString(table(t, inner, path+name+suffix))
		}
	}
	return rows.String()
}

// The page documents every field of the JSON. The flag -update writes its table.
func TestPageDocumentsJSON(t *testing.T) {
	const page = root + "docs/explain.md"
	text := must.Read(t, page)
	rows := regexp.MustCompile(`(?m)(^\| field \| type \| meaning \|\n\|---\|---\|---\|\n)((?:\|.*\n)*)`)
	want := rows.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(table(t, reflect.TypeFor[explain.Explanation](), ""), "$", "$$"))
	if *update {
		must.Write(t, page, want)
		return
	}
	if want != string(text) {
		t.Errorf("the table of %s differs from the code: go test ./pkg/explain -update writes it", page)
	}
	for _, result := range []string{
		"limited", "unlimited", "replaced", "no_rule", "no_entries", "unknown_domain", "bad_lease_id", "released", "settled",
	} {
		if !strings.Contains(string(text), "| `"+result+"` |") {
			t.Errorf("the page does not explain the result %s", result)
		}
	}
}

// The names of the fields are a contract. Fields may be added, and none is renamed.
func TestJSONKeepsItsFields(t *testing.T) {
	got := table(t, reflect.TypeFor[explain.Explanation](), "")
	for field, kind := range map[string]string{
		"domain": "string", "domain_known": "boolean", "rules_version": "string", "descriptors": "list of objects",
		"descriptors[].entries": "list of `[key, value]`", "descriptors[].matched": "boolean", "descriptors[].unlimited": "boolean",
		"descriptors[].reason": "string", "descriptors[].limits": "list of objects", "descriptors[].limits[].algorithm": "string",
		"descriptors[].limits[].requests_per_unit": "number", "descriptors[].limits[].window": "string", "descriptors[].limits[].name": "string",
		"descriptors[].limits[].source": "string", "descriptors[].limits[].mode": "string", "descriptors[].limits[].key": "string",
		"descriptors[].limits[].hash": "string", "descriptors[].walk": "list of objects", "descriptors[].walk[].level": "number",
		"descriptors[].walk[].entry": "`[key, value]`", "descriptors[].walk[].result": "string", "descriptors[].walk[].reason": "string",
		"descriptors[].walk[].source": "string",
	} {
		if !strings.Contains(got, "| `"+field+"` | "+kind+" | ") {
			t.Errorf("%s is not a %s", field, kind)
		}
	}
}
