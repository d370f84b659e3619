package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/must"
)

const testedRules = `domain: ugc
descriptors:
  - key: user_id
    rate_limit: {unit: minute, requests_per_unit: 2, name: calls}
  - key: other
    rate_limit: {unit: minute, requests_per_unit: 2}
`

const passing = `rules: rules.yaml
tests:
  - name: two calls a minute
    steps:
      - {request: user_id=1, repeat: 3, expect: {allowed: 2, denied: 1, retry_after: 1m}}
  - name: a peek is allowed
    steps:
      - {request: {descriptors: user_id=1, hits: 0}, expect: allowed}
`

// folder returns a folder with the rules and these files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["rules.yaml"] = testedRules
	for name, text := range files {
		must.Write(t, filepath.Join(dir, name), text)
	}
	return dir
}

// runTest runs the command and returns its exit code.
func runTest(t *testing.T, command cli.Test) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if command.Output == "" {
		command.Output = "text"
	}
	must.Succeed(t, command.Validate())
	code = cli.ExitCode(command.Run(context.Background(), cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e}), &e)
	return code, o.String(), e.String()
}

func TestTestCommandExitCodes(t *testing.T) {
	dir := folder(t, map[string]string{
		"pass.yaml": passing, "fail.yaml": strings.ReplaceAll(passing, "retry_after: 1m", "retry_after: 2m"), "faulty.yaml": passing + "test: 1\n",
	})
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	for _, c := range []struct {
		name      string
		command   cli.Test
		code      int
		out, errs []string
	}{
		{"passes", cli.Test{Files: in("pass.yaml")}, 0, []string{"ok: tests 2, failed 0, requests 4, coverage 50% (1 of 2 limits)\n"}, nil},
		{"fails", cli.Test{Files: in("pass.yaml", "fail.yaml")}, 1, []string{
			"FAIL " + dir + "/fail.yaml:3: two calls a minute\n", dir + "/fail.yaml:5: step 1, request 3, at 0s: user_id=1\n",
			"    retry_after: want 2m0s, got 1m0s\n", dir + "/rules.yaml:3", "FAIL: tests 4, failed 1, requests 8",
		}, nil},
		{"faulty", cli.Test{Files: in("fail.yaml", "faulty.yaml")}, 2, nil, []string{dir + "/faulty.yaml:9:1: unknown key 'test' in the test file: did you mean 'tests'?"}},
		{"missing", cli.Test{Files: in("none.yaml")}, 2, nil, []string{"weir: read " + dir + "/none.yaml: no such file or directory: correct the path\n"}},
		{"selected", cli.Test{Files: in("fail.yaml"), Only: "peek"}, 0, []string{"ok: tests 1, failed 0"}, nil},
		{"none selected", cli.Test{Files: in("pass.yaml"), Only: "nothing"}, 2, nil, []string{`no test has a name that matches "nothing"`}},
		{"coverage", cli.Test{Files: in("pass.yaml"), Coverage: true, MinCoverage: 50}, 0, []string{
			"SOURCE", dir + "/rules.yaml:3  ugc     user_id  calls  4        1\n", dir + "/rules.yaml:5  ugc     other    0      0        0       not covered",
		}, nil},
		{"low coverage", cli.Test{Files: in("pass.yaml"), MinCoverage: 51}, 1, nil, []string{"the coverage is 50.0%, less than 51%: weir test --coverage lists the limits\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := runTest(t, c.command)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.out {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, want := range c.errs {
				if !strings.Contains(errs, want) {
					t.Errorf("no %q in the errors\n%s", want, errs)
				}
			}
		})
	}
}

func TestTestCommandFormats(t *testing.T) {
	dir := folder(t, map[string]string{"test.yaml": strings.ReplaceAll(passing, "denied: 1", "denied: 1, remaining: 9")})
	files, junit := []string{filepath.Join(dir, "test.yaml")}, filepath.Join(dir, "junit.xml")
	code, out, _ := runTest(t, cli.Test{Files: files, Output: "json", JUnit: junit})
	var parsed struct{ Passed, Failed int }
	if err := json.Unmarshal([]byte(out), &parsed); err != nil || code != 1 || parsed.Passed != 1 || parsed.Failed != 1 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	written, err := os.ReadFile(junit)
	if err != nil || !strings.Contains(string(written), `<failure message="remaining: want 9, got 0"`) {
		t.Errorf("JUnit file: error %v, got %s, want the failure: remaining: want 9, got 0", err, written)
	}
	if code, out, _ := runTest(t, cli.Test{Files: files, Output: "junit"}); code != 1 || !strings.HasPrefix(out, "<?xml") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestTestInitWritesAFileThatPasses(t *testing.T) {
	dir := folder(t, map[string]string{})
	rules, file := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "rules_test.yaml")
	code, out, errs := runTest(t, cli.Test{Init: rules, Files: []string{file}})
	if code != 0 || out != "" || !strings.Contains(errs, "run weir test "+file) {
		t.Fatalf("exit code %d, %q, %q", code, out, errs)
	}
	if code, out, errs := runTest(t, cli.Test{Files: []string{file}, MinCoverage: 100}); code != 0 {
		t.Errorf("exit code %d: %s%s, want 0", code, out, errs)
	}
	before, _ := os.ReadFile(file)
	if code, _, errs := runTest(t, cli.Test{Init: rules, Files: []string{file}}); code != 2 || !strings.Contains(errs, file+" exists: remove it, or choose another name") {
		t.Errorf("a file that exists: exit code %d, %s", code, errs)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the file that existed has changed")
	}
	if code, out, _ := runTest(t, cli.Test{Init: rules}); code != 0 || out == "" {
		t.Errorf("to standard output: exit code %d, %q", code, out)
	}
	if code, _, errs := runTest(t, cli.Test{Init: filepath.Join(dir, "none.yaml")}); code != 2 || !strings.Contains(errs, "no such file") {
		t.Errorf("no rules: exit code %d, %q", code, errs)
	}
}

func TestTestCommandRejectsInvalidArguments(t *testing.T) {
	const percent = "--min-coverage must be from 0 to 100"
	for _, c := range []struct {
		want    string
		command cli.Test
	}{
		{"needs a test file", cli.Test{}},
		{"need --init", cli.Test{Files: []string{"a"}, Overlay: "b"}},
		{"--init writes one file", cli.Test{Init: "a", Files: []string{"b", "c"}}},
		{percent, cli.Test{Files: []string{"a"}, MinCoverage: 101}},
		{percent, cli.Test{Files: []string{"a"}, MinCoverage: -1}},
		{percent, cli.Test{Files: []string{"a"}, MinCoverage: math.NaN()}},
		{`--run: "(" is not a regular expression: missing closing )`, cli.Test{Files: []string{"a"}, Only: "("}},
	} {
		if err := c.command.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.command, err, c.want)
		}
	}
}

// The commands of docs/test.md print what the page shows, except for the explanations, whose lines
// begin with a bar.
func TestTestPageShowsTheOutput(t *testing.T) {
	page := must.Read(t, "../../docs/test.md")
	t.Chdir(t.TempDir())
	for _, m := range regexp.MustCompile("(?ms)^```yaml (\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		must.Write(t, m[1], m[2])
	}
	shown := regexp.MustCompile("(?ms)^```sh\nweir test (.*?)\n```\n```text\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(shown) < 2 {
		t.Fatalf("%d commands found", len(shown))
	}
	withoutBars := regexp.MustCompile(`(?m)^ *\|.*\n`)
	for _, m := range shown {
		words := strings.Fields(m[1])
		coverage := words[0] == "--coverage"
		_, out, errs := runTest(t, cli.Test{Coverage: coverage, Files: words[len(words)-1:]})
		if got, want := withoutBars.ReplaceAllString(out, ""), withoutBars.ReplaceAllString(m[2], ""); got != want || errs != "" {
			t.Errorf("weir test %s printed\n%s%s\nthe page shows\n%s", m[1], got, errs, want)
		}
		if strings.Contains(m[2], "|") && !withoutBars.MatchString(out) {
			t.Errorf("weir test %s explains nothing", m[1])
		}
	}
}
