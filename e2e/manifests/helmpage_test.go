package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"
	"mvdan.cc/sh/v3/syntax"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

// A valueSchema is a JSON Schema of values.
type valueSchema struct {
	Description          string
	Type                 any
	Enum                 []string
	AdditionalProperties any
	Properties           map[string]valueSchema
}

func valuesSchema(t *testing.T) valueSchema {
	t.Helper()
	var s valueSchema
	must.Succeed(t, json.Unmarshal([]byte(readFile(t, helmChart+"/values.schema.json")), &s))
	return s
}

// leaves calls yield for each value that a user sets, by path. default is nil if values.yaml has
// none.
func (s valueSchema) leaves(path string, defaults any, yield func(path string, s valueSchema, otherwise any)) {
	if len(s.Properties) == 0 {
		yield(path, s, defaults)
		return
	}
	values, _ := defaults.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Properties[name].leaves(strings.TrimPrefix(path+"."+name, "."), values[name], yield)
	}
}

// The table of values in the chart's page comes from the schema and the defaults.
func TestHelmPageListsAllValues(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n\n| value | default | meaning |\n|---|---|---|\n")
	defaults := valuesOf(t, readFile(t, helmChart+"/values.yaml"))
	valuesSchema(t).leaves("", defaults, func(path string, s valueSchema, otherwise any) {
		text, err := json.Marshal(otherwise)
		must.Succeed(t, err)
		cell := "`" + string(text) + "`"
		if slices.Contains([]string{"null", `""`, "{}", "[]"}, string(text)) {
			cell = "none"
		}
		meaning := s.Description
		if len(s.Enum) > 0 {
			meaning += " One of `" + strings.Join(s.Enum, "`, `") + "`."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, cell, strings.ReplaceAll(meaning, "|", "\\|"))
	})
	const path = root + "/docs/deploy/helm.md"
	page := readFile(t, path)
	head, rest, found := strings.Cut(page, " -update in e2e/manifests -->")
	_, tail, ended := strings.Cut(rest, "\n<!-- end -->")
	if !found || !ended {
		t.Fatalf("%s has no section for the values", path)
	}
	want := head + " -update in e2e/manifests -->" + b.String() + "\n<!-- end -->" + tail
	if *update {
		must.Write(t, path, want)
		page = want
	}
	if page != want {
		t.Errorf("%s is out of date: go test -run Values -update", path)
	}
}

// Every map of the schema that holds named values rejects others, every value has a description,
// and values.yaml and the schema have the same values.
func TestValuesSchemaIsClosed(t *testing.T) {
	var closed func(path string, s valueSchema)
	closed = func(path string, s valueSchema) {
		if len(s.Properties) > 0 && s.AdditionalProperties != false {
			t.Errorf("%s allows unknown values", path)
		}
		if len(s.Properties) == 0 && s.Description == "" {
			t.Errorf("%s has no description", path)
		}
		for name, property := range s.Properties {
			closed(path+"."+name, property)
		}
	}
	schema := valuesSchema(t)
	closed("", schema)
	delete(schema.Properties, "global") // Helm adds it
	defaults := valuesOf(t, readFile(t, helmChart+"/values.yaml"))
	schema.leaves("", defaults, func(path string, s valueSchema, otherwise any) {
		if at, name := filepath.Split(strings.ReplaceAll(path, ".", "/")); otherwise == nil && name != "replicaCount" {
			t.Errorf("values.yaml has no %s in %s", name, at)
		}
	})
}

// helmValues returns the values of a helm command, and the namespace.
func helmValues(t *testing.T, where string, args []string) (map[string]any, string) {
	t.Helper()
	values, namespace := map[string]any{}, "default"
	for i, arg := range args[:len(args)-1] {
		switch next := args[i+1]; arg {
		case "--namespace", "-n":
			namespace = next
		case "-f":
			text := blocks(t, "yaml values")[0].text
			if next != "values.yaml" {
				text = readFile(t, filepath.Join(root, next))
			}
			values = chartutil.CoalesceTables(valuesOf(t, text), values)
		case "--set":
			if err := strvals.ParseInto(next, values); err != nil {
				t.Errorf("%s: --set %s: %v", where, next, err)
			}
		case "--create-namespace", "--install", "--reuse-values":
		default:
			if strings.HasPrefix(arg, "-") {
				t.Errorf("%s: no test checks the flag %s", where, arg)
			}
		}
	}
	return values, namespace
}

// The chart renders with the arguments of every helm command in the guides.
func TestHelmCommandsRender(t *testing.T) {
	c, n := loadChart(t), 0
	for _, b := range blocks(t, "sh helm") {
		file, err := syntax.NewParser().Parse(strings.NewReader(b.text), b.page)
		must.Succeed(t, err)
		syntax.Walk(file, func(node syntax.Node) bool {
			call, is := node.(*syntax.CallExpr)
			if !is {
				return true
			}
			var words []string
			for _, w := range call.Args {
				words = append(words, word(w))
			}
			if len(words) < 4 || words[0] != "helm" || !slices.Contains(words, "deploy/helm/weir") {
				t.Errorf("%s: %v is not a command on the chart", b.page, words)
				return false
			}
			values, namespace := helmValues(t, b.page, words)
			if _, _, err := renderText(c, "weir", namespace, values); err != nil {
				t.Errorf("%s: %v: %v", b.page, words, err)
			}
			n++
			return false
		})
	}
	if n < 5 {
		t.Errorf("%d commands: this test checks too little", n)
	}
	values, err := strvals.Parse("store.type=memory,replicaCount=3")
	must.Succeed(t, err)
	if _, _, err := renderText(c, "weir", "weir", values); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(blocks(t, "text helm-error")[0].text)) {
		t.Errorf("%v", err)
	}
}

// The rules in the values of the page have no fault.
func TestHelmPageRulesHaveNoFaults(t *testing.T) {
	files := valuesOf(t, blocks(t, "yaml values")[0].text)["config"].(map[string]any)["rules"].(map[string]any)
	dir := t.TempDir()
	for name, rules := range files {
		text, err := yaml.Marshal(rules)
		must.Succeed(t, err)
		must.Write(t, filepath.Join(dir, name), string(text))
	}
	if out, err := weirCommand(t, "check", "--strict", dir); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		t.Errorf("no rules: %v", err)
	}
}
