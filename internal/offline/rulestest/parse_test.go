package rulestest_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulestest"
)

// step returns a file whose only step has these keys.
func step(keys string) string {
	return "tests:\n  - name: a\n    steps:\n      - {request: friend=1, expect: allowed, " + keys + "}\n"
}

// Every fault has a line, a message and a remedy. Line 1 names the rules.
func TestFaultsOfATestFile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "test.yaml:1:1: there are no tests: add 'tests:'"},
		{"tests: []\n", "test.yaml:2:8: 'tests' is empty: add a test"},
		{"tests:\n", "test.yaml:2:7: 'tests' is empty, not a list: begin each item with '- '"},
		{"tests: {a: b}\n", "test.yaml:2:8: 'tests' is a map, not a list"},
		{"tests: [a]\n", "test.yaml:2:9: a test is the text 'a', not a map: want a map with the keys name, start, domain, steps"},
		{"test: []\n", "test.yaml:2:1: unknown key 'test' in the test file: did you mean 'tests'?"},
		{"options: {all_or_nothing: true}\n", "unknown key 'all_or_nothing' in options: write 'stop_cache_key_increment_when_overlimit', as the setting"},
		{"options: {shadow_mode: maybe}\n", "test.yaml:2:24: 'shadow_mode' is the text 'maybe': want true or false"},
		{"tests: [{steps: [{request: a=b, expect: allowed}]}]\n", "test.yaml:2:9: the test has no name: add 'name:'"},
		{"tests: [{name: a}]\n", "test.yaml:2:9: there are no steps: add 'steps:'"},
		{"tests: [{name: a, steps: []}]\n", "test.yaml:2:26: 'steps' is empty: add a step"},
		{"tests: [{name: a, steps: [{}]}]\n", "the step has no request: add 'request: key=value'"},
		{"tests: [{name: a, steps: [{request: a=b}]}]\n", "the step expects nothing: add 'expect: allowed' or 'expect: denied'"},
		{"tests:\n  - &a {name: a, steps: [{request: friend=1, expect: allowed}]}\n  - *a\n", "the test at line 3 has the name 'a' too: rename one"},
		{"tests: [{name: a, start: soon, steps: []}]\n", "test.yaml:2:26: 'start' is the text 'soon': want a time such as 2026-11-22T10:00:00Z, from 1980 to 2179"},
		{"tests: [{name: a, start: 1970-01-01, steps: []}]\n", "want a time such as 2026-11-22T10:00:00Z, from 1980 to 2179"},
		{step("wait: 5s"), "test.yaml:5:46: unknown key 'wait' in a step: write 'after'"},
		{step("repaet: 5"), "unknown key 'repaet' in a step: did you mean 'repeat'?"},
		{step("at: 5"), "test.yaml:5:50: 'at' is 5: write a unit, such as 5s"},
		{step("at: 1.2.3"), "'at' is the text '1.2.3': want a duration from 0s"},
		{step("at: 999999999999"), "'at' is 999999999999: want a duration from 0s"},
		{step("at: soon"), "'at' is the text 'soon': want a duration from 0s to 87600h, such as 90s or 1h30m"},
		{step("after: -1s"), "'after' is the text '-1s': want a duration"},
		{step("after: 1ns"), "'after' is the text '1ns': want a duration"},
		{step("at: 1s, after: 1s"), "a step has 'at' or 'after', and both are given: remove one of them"},
		{step("every: 1s"), "'every' has no meaning without 'repeat': add 'repeat:'"},
		{step("repeat: 0"), "'repeat' is 0: want a whole number from 1 to 1000000"},
		{step("repeat: 1000000000"), "'repeat' is 1000000000: want a whole number from 1 to 1000000"},
		{step("repeat: 1000000, every: 1h"), "the last request of the step is more than 87600h after the start of the test: repeat less often"},
		{"tests:\n  - name: a\n    steps:\n      - {at: 80000h, request: friend=1, expect: allowed}\n      - {after: 80000h, request: friend=1, expect: allowed}\n",
			"test.yaml:6:9: the step is more than 87600h after the start of the test: correct its time"},
		{"tests:\n  - name: a\n    steps:\n      - {at: 2s, request: friend=1, expect: allowed}\n      - {at: 1s, request: friend=1, expect: allowed}\n",
			"test.yaml:6:14: the step is 1s earlier than the one before: put the steps in the order of their times"},
		{"tests: [{name: a, steps: [{request: user_id, expect: allowed}]}]\n", `entry 1, "user_id", has no '=': want key=value (a comma in a value is '\,')`},
		{"tests: [{name: a, steps: [{request: =b, expect: allowed}]}]\n", `entry 1, "=b", has no key: want key=value`},
		{"tests: [{name: a, steps: [{request: '', expect: allowed}]}]\n", "the request is empty: want key=value"},
		{"tests: [{name: a, steps: [{request: [], expect: allowed}]}]\n", "request has 0 descriptors: want 1 to 100 descriptors"},
		{"tests: [{name: a, steps: [{request: {hits: 1}, expect: allowed}]}]\n", "the request has no descriptors"},
		{"tests: [{name: a, steps: [{request: [{hits: 1}], expect: allowed}]}]\n", "the descriptor has no entries: add 'entries: key=value'"},
		{"tests: [{name: a, steps: [{request: {descriptors: a=b, hits: -1}, expect: allowed}]}]\n", "'hits' is -1: want a whole number from 0"},
		{"tests: [{name: a, steps: [{request: {descriptors: a=b, cost: 1}, expect: allowed}]}]\n", "unknown key 'cost' in a request: write 'hits'"},
		{"tests: [{name: a, steps: [{request: [{entries: a=b, limit: {unit: fortnight}}], expect: allowed}]}]\n", "the limit has no requests_per_unit: add it"},
		{"tests: [{name: a, steps: [{request: a=b, expect: maybe}]}]\n", "a verdict is the text 'maybe': want allowed, denied, or a map such as {verdict: denied, retry_after: 60s}"},
		{"tests: [{name: a, steps: [{request: a=b, expect: allowd}]}]\n", "test.yaml:2:50: a verdict is the text 'allowd': did you mean 'allowed'?"},
		{"tests: [{name: a, steps: [{request: a=b, expects: allowed}]}]\n", "test.yaml:2:42: unknown key 'expects' in a step: did you mean 'expect'?"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {verdict: alowed}}]}]\n", "test.yaml:2:60: unknown verdict 'alowed': did you mean 'allowed'?"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {remainig: 1}}]}]\n", "test.yaml:2:51: unknown key 'remainig' in expect: did you mean 'remaining'?"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {reason: overlimit}}]}]\n", "test.yaml:2:59: unknown reason 'overlimit': did you mean 'over_limit'?"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {}}]}]\n", "test.yaml:2:50: 'expect' is empty, so every outcome passes: want allowed, denied, or a map"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {verdict: deny}}]}]\n", "unknown verdict 'deny': want one of allowed, denied"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {reason: over}}]}]\n", "unknown reason 'over'"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {retry_after: soon}}]}]\n", "'retry_after' is the text 'soon': want a duration"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {retry_after: 60}}]}]\n", "'retry_after' is 60: write a unit, such as 60s"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {descriptors: [allowed, allowed]}}]}]\n",
			"2 descriptors are expected, and the request has 1: write one for each descriptor of the request"},
		{"tests: [{name: a, steps: [{request: a=b, repeat: 3, expect: {allowed: 1, denied: 1}}]}]\n", "1 allowed and 1 denied are not 3 requests"},
		{"tests: [{name: a, steps: [{request: a=b, expect: {verdict: allowed, denied: 1}}]}]\n", "a verdict is for every request"},
		{"overlay: none.yaml\n" + step("repeat: 1"), "test.yaml:2:10: cannot read the overlay: "},
		{"tests: [\n", "'[' is not closed: add ']'"},
		{step("repeat: 1") + "---\na: b\n", "only the first YAML document of a file is read"},
	} {
		_, err := load(t, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestFaultsOfFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	in := func(name, text string) string {
		must.Write(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	in("two.yaml", "domain: a\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	in("other.yaml", "domain: b\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	in("faulty.yaml", "domain: a\ndescriptors: [{key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}]\n")
	one := "tests: [{name: a, steps: [{request: a=b, expect: allowed}]}]\n"
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"):        "open " + filepath.Join(dir, "none.yaml") + ": no such file",
		dir:                                    "read " + dir + ": is a directory",
		in("empty_test.yaml", ""):              "empty_test.yaml:1:1: the file is empty: see the examples in docs/test.md",
		in("comment_test.yaml", "# nothing\n"): "comment_test.yaml:1:1: the file is empty",
		in("text_test.yaml", "hello\n"):        "the test file is the text 'hello', not a map",
		in("norules_test.yaml", one):           "norules_test.yaml:1:1: the file names no rules: write 'rules: rules.yaml'",
		in("missing_test.yaml", "rules: [two.yaml, absent.yaml]\n"+one): "missing_test.yaml:1:19: cannot read the rules: ",
		in("faulty_test.yaml", "rules: faulty.yaml\n"+one):              "faulty.yaml:2:43: invalid rate limit unit 'fortnight'",
		in("both_test.yaml", "rules: [two.yaml, other.yaml]\n"+one):     "both_test.yaml:2:1: the request has no domain, and the rules have 2: a, b: add 'domain:'",
		in("large_test.yaml", strings.Repeat("#", 17<<20)):              "is larger than 16777216 bytes, the maximum for a test file: split it",
	} {
		if _, err := rulestest.Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// A file of 10 MB loads. One with billions of nodes behind aliases, or with too many requests, is
// refused.
func TestLargeFilesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on one goroutine for long: not with -short")
	}
	var many strings.Builder
	many.WriteString("tests:\n")
	long := strings.Repeat("a long name ", 100)
	for i := 0; many.Len() < 10<<20; i++ {
		fmt.Fprintf(&many, "  - {name: %s%d, steps: [{request: 'user_id=1,action=login', expect: allowed}]}\n", long, i)
	}
	suite, err := load(t, many.String())
	if err != nil {
		t.Fatalf("10 MB of tests: %.200v", err)
	}
	if got := runAll(t, suite, rulestest.Options{Only: regexp.MustCompile("7777$")}); len(got) != 1 || !got[0].Passed() {
		t.Errorf("%d tests ran, want 1", len(got))
	}
	aliases := "tests:\n  - {name: a, steps: &s [" + strings.Repeat("{request: friend=1, expect: allowed}, ", 1000) + "]}\n"
	for i := range 1000 {
		aliases += fmt.Sprintf("  - {name: b%d, steps: *s}\n", i)
	}
	if _, err := load(t, aliases); err == nil || !strings.Contains(err.Error(), "the file is too large: it has more than 1000000 nodes") {
		t.Errorf("aliases: %.200v", err)
	}
	heavy := "tests:\n  - name: a\n    steps:\n"
	heavy += strings.Repeat("      - {request: friend=1, repeat: 1000000, expect: allowed}\n", 11)
	if _, err := load(t, heavy); err == nil || !strings.Contains(err.Error(), "test.yaml:15:9: the steps of the file have more than 10000000 requests") {
		t.Errorf("11,000,000 requests: %v", err)
	}
}

// Escapes let every text be a key or a value.
func TestEntriesWithCommasAndEqualsSigns(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, "rules.yaml"), `domain: d
descriptors:
  - {key: 'a,b=c\', value: 'x,y=z\', rate_limit: {unit: day, requests_per_unit: 1}}
`)
	must.Write(t, filepath.Join(dir, "test.yaml"), `rules: rules.yaml
tests:
  - name: escapes
    steps:
      - {request: 'a\,b\=c\\=x\,y=z\\', expect: {verdict: allowed, reason: within_limit}}
`)
	suite, err := rulestest.Load(filepath.Join(dir, "test.yaml"))
	must.Succeed(t, err)
	if got := runAll(t, suite, rulestest.Options{}); !got[0].Passed() {
		t.Error(got[0].FailureText())
	}
}

// No file makes the reader fail in another manner than by an error, and a file without faults runs.
func FuzzTestFile(f *testing.F) {
	f.Add(everything)
	f.Add(step("repeat: 3, every: 1s"))
	f.Add("tests: [{name: a, steps: [{request: [{entries: 'a=b', limit: {unit: day, requests_per_unit: 1}}], expect: {denied: 0}}]}]\n")
	f.Add("tests: &a [*a]\n")
	dir := f.TempDir()
	must.Write(f, filepath.Join(dir, "rules.yaml"), someRules)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "test.yaml")
		text = "rules: " + filepath.Join(dir, "rules.yaml") + "\n" + text
		if strings.Contains(text, "..") || strings.Contains(text, "overlay") || strings.Count(text, "rules:") > 1 {
			return // reads no other files
		}
		must.Write(t, path, text)
		suite, err := rulestest.Load(path)
		if err != nil {
			return
		}
		n := 0
		for i := range suite.Tests {
			for j := range suite.Tests[i].Steps {
				n += suite.Tests[i].Steps[j].Repeat
			}
		}
		if n > 10_000 {
			return
		}
		for _, result := range runAll(t, suite, rulestest.Options{Coverage: &rulestest.Coverage{}}) {
			_ = result.FailureText()
		}
	})
}
