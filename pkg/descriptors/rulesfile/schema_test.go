package rulesfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const root = "../../../"

// schema returns the published schema.
func schema(t *testing.T) []byte {
	t.Helper()
	text := must.Read(t, root+"docs/rules.schema.json")
	return text
}

// The schema accepts every text that Parse accepts without a warning. The texts are the rules files
// of the repository and the examples of this package's tests.
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
			return nil // another test changes this folder now
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
	must.Succeed(t, err)
	return all
}

// Rows without an error are accepted by the parser too.
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
		{limit(day + ", penalty: {after: 20, within: 1m}"), "missing property 'for'"},
		{limit(day + ", penalty: {after: 20, within: 1.5ms, for: 1h}"), ""},
		{limit(day + ", penalty: {after: 20, within: 1m, for: 10}"), ", want string"},
		{limit(day + ", penalty: {after: 20, within: 1m, for: soon}"), "does not match"},
		{limit(day + ", penalty: {after: 20, within: 1m, for: '10'}"), "does not match"},
		{limit(day + ", penalty: {after: 20, within: 1m, for: 10m, fro: 1m}"), "additional properties 'fro' not allowed"},
		{limit(day + ", penalty: ~"), ", want object"},
		{limit("unlimited: true, penalty: {after: 20, within: 1m, for: 10m}"), "/penalty': false schema"},
		{descriptor("value: 1, metadata: {a: [1]}"), ""},
		{descriptor("value: 'a*', share_threshold: on"), ""},
		{descriptor("value: a, share_threshold: off"), ""},
		{"domain: d\ndescriptors: [{key: 'k-*', value: a, share_threshold: true}]", ""},
		{descriptor("value: a, share_threshold: true"), "'anyOf' failed"},
		{descriptor("value: 1, share_threshold: on"), "'anyOf' failed"},
		{descriptor("share_threshold: yes"), "'anyOf' failed"},
		{descriptor("descriptors: [{key: x, rate_limits: [{" + day + "}]}]"), ""},

		{descriptor("values: [a, 1, true]"), ""},
		{descriptor("cidr: [10.0.0.0/8, 2001:db8::/32, '::/0'], share_threshold: true"), ""},
		{descriptor("values: []"), "minItems: got 0"},
		{descriptor("values: a"), ", want array"},
		{descriptor("values: ['']"), "minLength: got 0"},
		{descriptor("values: ['a*']"), "does not match"},
		{descriptor("values: [a, b, a]"), "are equal"},
		{descriptor("values: [1.5]"), ", want "},
		{descriptor("cidr: [10.0.0.1]"), "does not match"},
		{descriptor("cidr: [10]"), ", want string"},
		{descriptor("value: a, values: [b]"), "'not' failed"},
		{descriptor("value: a, cidr: [10.0.0.0/8]"), "'not' failed"},
		{descriptor("values: [a], cidr: [10.0.0.0/8]"), "'not' failed"},
		{"descriptors: []", "missing property 'domain'"},
		{"domain: ''", "minLength: got 0"},
		{"domain: d\nx-y: 1", "additional properties 'x-y' not allowed"},
		{"domain: d\ndescriptors: [{value: v}]", "missing property 'key'"},
		{"domain: d\ndescriptors: {key: v}", ", want null or array"},
		{descriptor("value: 1.5"), ", want "},
		{descriptor("unit: day"), "additional properties 'unit' not allowed"},
		{descriptor("rate_limits: []"), "minItems: got 0"},
		{descriptor("rate_limits: [{unlimited: true}]"), "additional properties 'unlimited' not allowed"},
		{descriptor("rate_limit: {" + day + "}, rate_limits: [{" + day + "}]"), "'not' failed"},
		{descriptor("metadata: 5"), ", want "},
		{descriptor("on_store_error: deny"), "additional properties 'on_store_error' not allowed"},
		{"domain: d\non_store_error: retry\n", "on_store_error"},
		{limit("requests_per_unit: 5"), "missing property 'unit'"},
		{limit("unit: days"), "must be one of 'second'"},
		{limit("unlimited: true, unit: day"), "/unit': false schema"},
		{limit("unlimited: true, algorithm: funnel"), "/algorithm': false schema"},
		{limit(day + ", algorithm: x"), "must be one of 'fixed_window'"},
		{limit(day + ", capacity: 1"), "missing property 'algorithm'"},
		{limit(day + ", algorithm: sliding_log, window_start: clock"), "must be 'fixed_window'"},
		{limit("unit: day, requests_per_unit: -1"), "minimum: got -1"},
		{limit("unit: day, requests_per_unit: 4503599627370496"), "maximum: got"},
		{limit(day + ", replaces: [{}]"), "missing property 'name'"},
		{limit(day + ", count_denied: yes"), ", want boolean"},
	} {
		err := validate(t, tt.text)
		switch {
		case tt.want != "":
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("schema, %s\ngot  %v\nwant %s", tt.text, err, tt.want)
			}
		case err != nil:
			t.Errorf("schema, %s\ngot  %v\nwant no error", tt.text, err)
		default:
			if _, err := rulesfile.Parse(rulesfile.File{Data: []byte(tt.text)}); err != nil {
				t.Errorf("parser, %s\ngot  %v\nwant no error, because the schema accepts it", tt.text, err)
			}
		}
	}
}

func validate(t *testing.T, text string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema(t)))
	must.Succeed(t, err)
	compiler := jsonschema.NewCompiler()
	must.Succeed(t, compiler.AddResource("rules.schema.json", document))
	compiled, err := compiler.Compile("rules.schema.json")
	must.Succeed(t, err)
	var value any
	must.Succeed(t, yaml.Unmarshal([]byte(text), &value))
	return compiled.Validate(value)
}
