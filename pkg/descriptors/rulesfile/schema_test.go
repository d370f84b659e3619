package rulesfile_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

var update = flag.Bool("update", false, "write docs/rules.schema.json")

const root = "../../../"

func TestSchemaInDocsIsCurrent(t *testing.T) {
	const path = root + "docs/rules.schema.json"
	if *update {
		if err := os.WriteFile(path, rulesfile.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(rulesfile.Schema()) {
		t.Errorf("%s is not what the code says (%v): go test ./pkg/descriptors/rulesfile -run Schema -update", path, err)
	}
}

// The schema accepts every text that Parse accepts without a warning. The texts are the rules files of the repository and the
// examples of this package's tests.
func TestSchemaAcceptsEveryRulesFile(t *testing.T) {
	n := 0
	for name, text := range rulesFiles(t) {
		_, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: name, Data: []byte(text)})
		if err != nil || len(warnings) > 0 {
			continue // an overlay, or a file that is wrong on purpose
		}
		n++
		if err := validate(t, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 5 {
		t.Errorf("only %d files of rules found", n)
	}
}

const modifiers = `domain: d
descriptors:
- {key: k, value: v, value_to_metric: true, rate_limit: &l {unit: day, requests_per_unit: 1}}
- {key: w, value: 'c*', share_threshold: true, value_to_metric: true, detailed_metric: true, rate_limit: *l}
- key: 'x-*'
  rate_limit: *l
  descriptors:
  - {key: a, value: b, rate_limit: *l}
`

func rulesFiles(t *testing.T) map[string]string {
	all := map[string]string{
		"design": design, "modifiers": modifiers, "arriving": arriving,
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // others write here too
		}
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && strings.HasPrefix(name, ".") && path != root, name == "envoygateway": // exports, which nobody edits
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".yaml" && filepath.Ext(name) != ".yml":
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "\ndescriptors:") || strings.HasPrefix(string(text), "domain:") {
			all[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSchemaRejectsInvalidRules(t *testing.T) {
	const day = "unit: day, requests_per_unit: 1"
	limit := func(s string) string { return "domain: d\ndescriptors: [{key: k, rate_limit: {" + s + "}}]" }
	descriptor := func(s string) string { return "domain: d\ndescriptors: [{key: k, " + s + "}]" }
	for _, tt := range []struct{ text, want string }{
		{"domain: d", ""},
		{"domain: 5\ndescriptors:", ""},
		{limit(day), ""},
		{limit("unit: Day"), ""},
		{limit("unlimited: true"), ""},
		{limit("unlimited: yes"), ""},
		{limit("unlimited: false, " + day), ""},
		{limit(day + ", algorithm: funnel, capacity: 1"), ""},
		{limit(day + ", window_start: first_hit"), ""},
		{limit(day + ", replaces: [{name: x}]"), ""},
		{limit(day + ", penalty: {after: 20, within: 1m, for: 1h30m, factor: 2}"), ""},
		{limit(day + ", penalty: {after: 20, within: 1m}"), "for is missing"},
		{limit(day + ", penalty: {after: 20, within: 1m, for: 10}"), "is not of type string"},
		{limit(day + ", penalty: {after: 20, within: 1m, for: 10m, fro: 1m}"), "fro is unknown"},
		{limit(day + ", penalty: ~"), "is not of type object"},
		{limit("unlimited: true, penalty: {after: 20, within: 1m, for: 10m}"), "penalty is not allowed"},
		{descriptor("value: 1, metadata: {a: [1]}, share_threshold: on"), ""},
		{descriptor("descriptors: [{key: x, rate_limits: [{" + day + "}]}]"), ""},

		{descriptor("values: [a, 1, true]"), ""},
		{descriptor("cidr: [10.0.0.0/8, 2001:db8::/32, '::/0'], share_threshold: true"), ""},
		{descriptor("values: []"), "fewer than 1"},
		{descriptor("values: a"), "is not of type array"},
		{descriptor("values: ['']"), "shorter than 1"},
		{descriptor("values: ['a*']"), "does not match"},
		{descriptor("values: [a, b, a]"), "twice"},
		{descriptor("values: [1.5]"), "is not of type"},
		{descriptor("cidr: [10.0.0.1]"), "does not match"},
		{descriptor("cidr: [10]"), "is not of type string"},
		{descriptor("value: a, values: [b]"), "it must not"},
		{descriptor("value: a, cidr: [10.0.0.0/8]"), "it must not"},
		{descriptor("values: [a], cidr: [10.0.0.0/8]"), "it must not"},
		{"descriptors: []", "domain is missing"},
		{"domain: ''", "shorter than 1"},
		{"domain: d\nx-y: 1", "x-y is unknown"},
		{"domain: d\ndescriptors: [{value: v}]", "key is missing"},
		{"domain: d\ndescriptors: {key: v}", "is not of type [array null]"},
		{descriptor("value: 1.5"), "is not of type"},
		{descriptor("unit: day"), "unit is unknown"},
		{descriptor("rate_limits: []"), "fewer than 1"},
		{descriptor("rate_limits: [{unlimited: true}]"), "unlimited is unknown"},
		{descriptor("rate_limit: {" + day + "}, rate_limits: [{" + day + "}]"), "it must not"},
		{descriptor("metadata: 5"), "is not of type"},
		{descriptor("on_store_error: deny"), "on_store_error is unknown"},
		{"domain: d\non_store_error: retry\n", "on_store_error"},
		{limit("requests_per_unit: 5"), "unit is missing"},
		{limit("unit: days"), "none of"},
		{limit("unlimited: true, unit: day"), "unit is not allowed"},
		{limit("unlimited: true, algorithm: funnel"), "algorithm is not allowed"},
		{limit(day + ", algorithm: x"), "not one of"},
		{limit(day + ", capacity: 1"), "algorithm is missing"},
		{limit(day + ", algorithm: sliding_log, window_start: clock"), "is not fixed_window"},
		{limit("unit: day, requests_per_unit: -1"), "below 0"},
		{limit("unit: day, requests_per_unit: 4503599627370496"), "above 4503599627370495"},
		{limit(day + ", replaces: [{}]"), "name is missing"},
		{limit(day + ", count_denied: yes"), "is not of type boolean"},
	} {
		err := validate(t, tt.text)
		if tt.want == "" && err == nil {
			continue
		}
		if tt.want == "" || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
		if _, parsed := rulesfile.Parse(rulesfile.File{Data: []byte(tt.text)}); tt.want == "" && parsed != nil {
			t.Errorf("%s\n%v", tt.text, parsed)
		}
	}
}

func validate(t *testing.T, text string) error {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(rulesfile.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return (&validator{t, schema}).check(schema, value, "")
}

// A validator knows as much of JSON Schema as the schema says. A word that it does not know fails the test.
type validator struct {
	t    *testing.T
	root map[string]any
}

func (v *validator) check(schema any, value any, at string) error {
	if schema == false {
		return fmt.Errorf("%s is not allowed", at)
	}
	s := schema.(map[string]any)
	for _, word := range slices.Sorted(maps.Keys(s)) {
		if err := v.word(word, s, value, at); err != nil {
			return err
		}
	}
	return nil
}

func (v *validator) word(word string, s map[string]any, value any, at string) error {
	arg := s[word]
	object, _ := value.(map[string]any)
	list, _ := value.([]any)
	switch word {
	case "$schema", "title", "description", "$defs", "then", "else":
	case "$ref":
		name := strings.TrimPrefix(arg.(string), "#/$defs/")
		return v.check(v.root["$defs"].(map[string]any)[name], value, at)
	case "type":
		if types := fmt.Sprint(arg); !slices.Contains(strings.Fields(strings.Trim(types, "[]")), kind(value)) {
			return fmt.Errorf("%s: %v is not of type %s", at, value, types)
		}
	case "enum":
		if !slices.Contains(arg.([]any), value) {
			return fmt.Errorf("%s: %v is not one of %v", at, value, arg)
		}
	case "const":
		if !reflect.DeepEqual(arg, value) {
			return fmt.Errorf("%s: %v is not %v", at, value, arg)
		}
	case "minLength":
		if text, ok := value.(string); ok && float64(len(text)) < arg.(float64) {
			return fmt.Errorf("%s: %q is shorter than %v", at, text, arg)
		}
	case "maxLength":
		if text, ok := value.(string); ok && float64(len(text)) > arg.(float64) {
			return fmt.Errorf("%s: a text of %d bytes is longer than %v", at, len(text), arg)
		}
	case "minProperties", "maxProperties":
		if n := float64(len(object)); object != nil && (n < arg.(float64)) == (word == "minProperties") && n != arg.(float64) {
			return fmt.Errorf("%s: %v keys, %s is %v", at, n, word, arg)
		}
	case "propertyNames":
		for key := range object {
			if err := v.check(arg, key, at); err != nil {
				return err
			}
		}
	case "pattern":
		if text, ok := value.(string); ok && !regexp.MustCompile(arg.(string)).MatchString(text) {
			return fmt.Errorf("%s: %q does not match %v", at, text, arg)
		}
	case "minimum":
		if n := number(value); n < arg.(float64) {
			return fmt.Errorf("%s: %v is below %v", at, value, arg)
		}
	case "maximum":
		if n := number(value); n > arg.(float64) {
			return fmt.Errorf("%s: %v is above %.0f", at, value, arg)
		}
	case "minItems":
		if list != nil && float64(len(list)) < arg.(float64) {
			return fmt.Errorf("%s: fewer than %v items", at, arg)
		}
	case "uniqueItems":
		for i, item := range list {
			if slices.ContainsFunc(list[:i], func(other any) bool { return reflect.DeepEqual(item, other) }) {
				return fmt.Errorf("%s: %v is there twice", at, item)
			}
		}
	case "items":
		for i, item := range list {
			if err := v.check(arg, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "required":
		for _, key := range arg.([]any) {
			if _, there := object[key.(string)]; object != nil && !there {
				return fmt.Errorf("%s: %s is missing", at, key)
			}
		}
	case "additionalProperties":
		known, _ := s["properties"].(map[string]any)
		for key, value := range object {
			if known[key] != nil {
				continue
			}
			if arg == false {
				return fmt.Errorf("%s: %s is unknown", at, key)
			}
			if err := v.check(arg, value, at+"."+key); err != nil {
				return err
			}
		}
	case "properties":
		for key, schema := range arg.(map[string]any) {
			if value, there := object[key]; there {
				if err := v.check(schema, value, at+"."+key); err != nil {
					return err
				}
			}
		}
	case "allOf":
		for _, schema := range arg.([]any) {
			if err := v.check(schema, value, at); err != nil {
				return err
			}
		}
	case "anyOf":
		var first error
		for i, schema := range arg.([]any) {
			err := v.check(schema, value, at)
			if err == nil {
				return nil
			}
			// For a map, return its first error. For another value, report that no alternative matches.
			if first = fmt.Errorf("%s: %v is none of %v", at, value, arg); object != nil && i == 0 {
				return err
			}
		}
		return first
	case "not":
		if v.check(arg, value, at) == nil {
			return fmt.Errorf("%s: it must not be as %v", at, arg)
		}
	case "if":
		branch := "then"
		if v.check(arg, value, at) != nil {
			branch = "else"
		}
		if s[branch] != nil {
			return v.check(s[branch], value, at)
		}
	default:
		v.t.Fatalf("the validator does not know %q: teach it", word)
	}
	return nil
}

func kind(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case int, int64, uint64:
		return "integer"
	case float64:
		if value == math.Trunc(value) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "string"
}

// number returns NaN for a value that is not a number, so that no comparison holds.
func number(value any) float64 {
	switch value := value.(type) {
	case int:
		return float64(value)
	case float64:
		return value
	}
	return math.NaN()
}
