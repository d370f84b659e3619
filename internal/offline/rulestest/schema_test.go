package rulestest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/must"
)

// schema returns the published schema.
func schema(t *testing.T) []byte {
	t.Helper()
	text := must.Read(t, root+"docs/test.schema.json")
	return text
}

// validate checks a file of tests against the schema.
func validate(t *testing.T, text string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema(t)))
	must.Succeed(t, err)
	compiler := jsonschema.NewCompiler()
	must.Succeed(t, compiler.AddResource("test.schema.json", document))
	compiled, err := compiler.Compile("test.schema.json")
	must.Succeed(t, err)
	var value any
	must.Succeed(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "2026-11-22T10:02:00Z", "'2026-11-22T10:02:00Z'")), &value))
	asJSON, err := json.Marshal(value) // times become texts, as editors read them
	must.Succeed(t, err)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	must.Succeed(t, err)
	return compiled.Validate(instance)
}

func TestSchemaAcceptsEveryKeyAndRejectsMistakes(t *testing.T) {
	if err := validate(t, "rules: rules.yaml\noverlay: [a.yaml]\noptions: {shadow_mode: true}\n"+everything); err != nil {
		t.Error(err)
	}
	for _, mistake := range []string{
		"", "tests: []\n", "tests: [{name: a}]\n", step("wait: 5s"), step("at: 5"), step("repeat: 0"), step("repeat: 1000000000"),
		"options: {all_or_nothing: true}\n" + step("repeat: 1"), strings.Replace(step("repeat: 1"), "expect: allowed", "expect: maybe", 1),
		strings.Replace(step("repeat: 1"), "expect: allowed", "expect: {retry_after: 60}", 1),
		strings.Replace(step("repeat: 1"), "request: friend=1", "request: {hits: 1}", 1),
	} {
		if validate(t, "rules: rules.yaml\n"+mistake) == nil {
			t.Errorf("the schema accepts\n%s", mistake)
		}
		if _, err := load(t, mistake); err == nil {
			t.Errorf("the reader accepts\n%s", mistake)
		}
	}
}
