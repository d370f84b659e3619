package rulestest_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/rulestest"
)

const root = "../../"

var fenced = regexp.MustCompile("(?ms)^```yaml[^\n]*\n(.*?)^```$")

// examples returns the rules of the repository: of every YAML file, and of every example in a page.
func examples(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name, text string) {
		rules, err := rulesfile.Parse(rulesfile.File{Name: name, Data: []byte(text)})
		if err != nil {
			return // an overlay, a configuration of Envoy, or faulty on purpose
		}
		if _, n := rules.Counts(); n > 0 {
			all[name] = text
		}
	}
	for _, dir := range []string{"docs", "envoy", "deploy", "e2e", "README.md", "pkg/decide/testdata"} {
		err := filepath.WalkDir(root+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			switch filepath.Ext(path) {
			case ".yaml":
				text, err := os.ReadFile(path)
				add(path, string(text))
				return err
			case ".md":
				text, err := os.ReadFile(path)
				for i, m := range fenced.FindAllStringSubmatch(string(text), -1) {
					add(fmt.Sprintf("%s example %d", path, i+1), m[1])
				}
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// unreachable are the limits of examples that --init cannot make deny a request, with the reason.
var unreachable = map[string]string{}

// weir test --init writes a file for every example, and the file passes and covers every limit.
func TestInitWritesTestsThatPassForEveryExample(t *testing.T) {
	all := examples(t)
	if len(all) < 40 {
		t.Fatalf("only %d examples found", len(all))
	}
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			written, coverage := initAndRun(t, text)
			for _, l := range coverage.Limits() {
				if why := unreachable[l.Rule+" "+l.Limit]; !l.Covered() && why == "" {
					t.Errorf("%s: the limit %s of the rule %s is not covered", l.Source, l.Limit, l.Rule)
				}
			}
			if t.Failed() {
				t.Log(written)
			}
		})
	}
}

// initAndRun writes the tests of rules, runs them, and reports failures.
func initAndRun(t *testing.T, text string) (written string, coverage *rulestest.Coverage) {
	t.Helper()
	dir := t.TempDir()
	rules, tests := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "sub", "rules_test.yaml")
	write(t, rules, text)
	out, err := rulestest.Init(rulestest.Source{Rules: []string{rules}}, tests)
	if err != nil {
		t.Fatal(err)
	}
	write(t, tests, string(out))
	suite, err := rulestest.Load(tests)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	coverage = &rulestest.Coverage{}
	results, err := suite.Run(t.Context(), rulestest.Options{Coverage: coverage})
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		if !results[i].Passed() {
			t.Errorf("%s\n%s", results[i].Name, results[i].FailureText())
		}
	}
	return string(out), coverage
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
