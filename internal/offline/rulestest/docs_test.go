package rulestest_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulestest"
)

// The files of docs/test.md load, and all but the wrong one pass.
func TestExamplesOfTheTestPagePass(t *testing.T) {
	text := must.Read(t, root+"docs/test.md")
	dir := t.TempDir()
	named := regexp.MustCompile("(?ms)^```yaml (\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	for _, m := range named {
		must.Write(t, filepath.Join(dir, m[1]), m[2])
	}
	ran := 0
	for _, m := range named {
		if !strings.HasSuffix(m[1], "_test.yaml") {
			continue
		}
		if err := validate(t, m[2]); err != nil {
			t.Errorf("the schema rejects %s: %v", m[1], err)
		}
		suite, err := rulestest.Load(filepath.Join(dir, m[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, r := range runAll(t, suite, rulestest.Options{}) {
			ran++
			if wrong := m[1] == "wrong_test.yaml"; r.Passed() == wrong {
				t.Errorf("%s: %s: passed: %t\n%s", m[1], r.Name, r.Passed(), r.FailureText())
			}
		}
	}
	if ran < 5 {
		t.Errorf("only %d tests found", ran)
	}
}

// Every key of the grammar and every reason is in a table of docs/test.md.
func TestTestPageCoversEveryKey(t *testing.T) {
	text := must.Read(t, root+"docs/test.md")
	var parsed struct {
		Properties map[string]any `json:"properties"`
		Defs       map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	must.Succeed(t, json.Unmarshal(schema(t), &parsed))
	keys := parsed.Properties
	for id, def := range parsed.Defs {
		for key := range def.Properties {
			if id != "limit" {
				keys[key] = nil
			}
		}
	}
	if len(keys) < 30 {
		t.Errorf("only %d keys", len(keys))
	}
	for key := range keys {
		if !strings.Contains(string(text), "| `"+key+"` |") {
			t.Errorf("%s is in no table of docs/test.md", key)
		}
	}
	enum := parsed.Defs["decision"].Properties["reason"].(map[string]any)["enum"].([]any)
	for _, reason := range enum {
		if !strings.Contains(string(text), "`"+reason.(string)+"`") {
			t.Errorf("the reason %s is not in docs/test.md", reason)
		}
	}
}
