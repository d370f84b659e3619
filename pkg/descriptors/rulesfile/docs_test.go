package rulesfile_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Every example of docs/rules.md parses, and every key of the grammar is in a table and in an
// example.
func TestRulesPageCoversEveryKey(t *testing.T) {
	text := must.Read(t, root+"docs/rules.md")
	var examples strings.Builder
	for _, m := range regexp.MustCompile("(?ms)^```yaml([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		example := rulesfile.File{Name: "example", Data: []byte(m[2])}
		examples.WriteString(m[2])
		if strings.TrimSpace(m[1]) == "overlay" {
			if _, err := rulesfile.ParseOverlay(example); err != nil {
				t.Errorf("an overlay of the page: got error %v, want none, for\n%s", err, m[2])
			}
			continue
		}
		_, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, example)
		if err != nil || len(warnings) > 0 {
			t.Errorf("an example of the page: got error %v, warnings %v, want none, for\n%s", err, warnings, m[2])
		}
		if err := validate(t, m[2]); err != nil {
			t.Errorf("%s\nagainst the schema: %v", m[2], err)
		}
	}
	for _, key := range keys(t) {
		if !strings.Contains(string(text), "| `"+key+"` |") {
			t.Errorf("%s is in no table of docs/rules.md", key)
		}
		if !regexp.MustCompile(`(?m)(^|[ {])` + key + `:( |$)`).MatchString(examples.String()) {
			t.Errorf("%s is in no example of docs/rules.md", key)
		}
	}
}

// keys are those of the grammar.
func keys(t *testing.T) []string {
	t.Helper()
	var parsed struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	must.Succeed(t, json.Unmarshal(schema(t), &parsed))
	var all []string
	for _, def := range parsed.Defs {
		for key := range def.Properties {
			all = append(all, key)
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d keys", len(all))
	}
	return all
}
