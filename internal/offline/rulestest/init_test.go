package rulestest_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulestest"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const root = "../../../"

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
					if !strings.HasPrefix(m[0], "```yaml warns") { // limits in docs/lint.md that cannot be reached
						add(fmt.Sprintf("%s example %d", path, i+1), m[1])
					}
				}
				return err
			}
			return nil
		})
		must.Succeed(t, err)
	}
	return all
}

// unreachable are the limits of examples that --init cannot make deny a request, with the reason.
var unreachable = map[string]string{
	"user_id.action=login weekly": "docs/responses.md shows two limits; at 1 a day, its 10 a week never deny",
}

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
	must.Write(t, rules, text)
	out, err := rulestest.Init(rulestest.InitOptions{Rules: rules}, tests)
	must.Succeed(t, err)
	must.Write(t, tests, string(out))
	suite, err := rulestest.Load(tests)
	if err != nil {
		t.Fatalf("load the tests that Init wrote: %v\n%s", err, out)
	}
	coverage = &rulestest.Coverage{}
	results, err := suite.Run(t.Context(), rulestest.Options{Coverage: coverage})
	must.Succeed(t, err)
	for i := range results {
		if !results[i].Passed() {
			t.Errorf("test %s failed:\n%s", results[i].Name, results[i].FailureText())
		}
	}
	return string(out), coverage
}

// Rules of every kind, with the limits that no test can cover and the reason.
func TestInitOfUnusualRules(t *testing.T) {
	for _, c := range []struct{ name, rules, uncovered, why string }{
		{"texts that YAML reads as others", `
  - {key: 'true', value: 'null', rate_limit: {unit: day, requests_per_unit: 1, name: 'yes'}}
  - {key: '1', value: '2024-01-01', rate_limit: {unit: day, requests_per_unit: 1, name: '0x1'}}
  - {key: "tab\tand 'quote'", value: "snow ☃, = \\ # {}[]&*!|>%@", rate_limit: {unit: day, requests_per_unit: 1, name: '{a, b: c}'}}`, "", ""},
		{"siblings that take the plain values", `
  - {key: a, value: example, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, value: '1', rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: a, value: 'x*', rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: a, rate_limit: {unit: day, requests_per_unit: 4}}`, "", ""},
		{"wildcards in keys and values", `
  - {key: 'x-*', value: '/api/*/v1*', rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: 'y-*', rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: z, value: '*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}`, "", ""},
		{"a wildcard that another hides", `
  - {key: a, value: '/*', rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, value: '/api/*', rate_limit: {unit: day, requests_per_unit: 2}}`, "a=/api/* 0", "every request that it matches goes to another rule"},
		{"prefixes within prefixes", `
  - {key: ip, cidr: [10.0.0.0/8], rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: ip, cidr: [10.0.0.0/24, '2001:db8::/32'], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: ip, cidr: [192.0.2.1/32], rate_limit: {unit: day, requests_per_unit: 3}}`, "", ""},
		{"lists", `
  - {key: plan, values: [free, trial], rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, values: [pro, team], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}`, "", ""},
		{"limits side by side", `
  - key: a
    rate_limits:
      - {algorithm: sliding_log, unit: second, requests_per_unit: 10}
      - {algorithm: sliding_log, unit: minute, requests_per_unit: 95}
      - {algorithm: fixed_window, unit: hour, requests_per_unit: 1000}
      - {algorithm: funnel, unit: day, requests_per_unit: 2000, capacity: 1500}`, "", ""},
		{"a limit that another always denies before", `
  - key: a
    rate_limits:
      - {unit: minute, requests_per_unit: 1}
      - {unit: minute, unit_multiplier: 2, requests_per_unit: 5}`, "a 1", "the smaller limits of the rule deny first"},
		{"a zero beside a limit", `
  - key: a
    rate_limits:
      - {unit: minute, requests_per_unit: 0}
      - {unit: hour, requests_per_unit: 100}`, "a 1", "another limit of the rule denies every request"},
		{"a comment with a control character", `
  - key: "a\x1bb"
    rate_limits:
      - {unit: minute, requests_per_unit: 0}
      - {unit: hour, requests_per_unit: 100}`, "a\x1bb 1", `Not tested: "a\eb 100 per hour" (`},
		{"a value with the number of the request", `
  - {key: a, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: path, value: '/users/{n}', rate_limit: {unit: day, requests_per_unit: 3}}`, "path=/users/{n} 0", "a value contains {n}, which a test replaces"},
		{"a key with a space at its end", `
  - {key: 'user id', rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: 'user ', rate_limit: {unit: day, requests_per_unit: 3}}`, "user  0", "a key begins or ends with a space, which a test leaves out"},
		{"a key that begins with a line break", `
  - {key: "a\n[", value: "\nb", rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: "\n[", value: b, rate_limit: {unit: day, requests_per_unit: 3}}`, "\n[=b 0", "a key begins or ends with a space, which a test leaves out"},
		{"numbers at the edges", `
  - {key: a, rate_limit: {unit: year, requests_per_unit: 4503599627370495}}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: c, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: d, rate_limit: {algorithm: sliding_log, unit: day, requests_per_unit: 100000}}
  - {key: e, rate_limit: {algorithm: funnel, unit: day, requests_per_unit: 7, capacity: 3}}`, "", ""},
		{"windows", `
  - {key: a, rate_limit: {unit: week, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: month, unit_multiplier: 2, requests_per_unit: 3}}
  - {key: c, rate_limit: {unit: day, requests_per_unit: 3, window_start: first_hit}}
  - {key: d, rate_limit: {unit: month, requests_per_unit: 3, window_start: calendar, time_zone: America/Havana}}
  - {key: e, rate_limit: {unit: year, requests_per_unit: 3, window_start: calendar}}
  - {key: f, rate_limit: {unit: week, unit_multiplier: 3, requests_per_unit: 3, window_start: calendar, time_zone: Asia/Kolkata}}`, "", ""},
		{"leases and reservations", `
  - key: user
    descriptors:
      - {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 3, lease_ttl: 10m}}
      - {key: budget, rate_limit: {algorithm: sliding_log, unit: day, requests_per_unit: 1000, reserve: {ttl: 60s, unsettled: release}}}
      - key: both
        rate_limits:
          - {algorithm: concurrency, concurrent_requests: 3, lease_ttl: 10s}
          - {unit: hour, requests_per_unit: 30}`, "", ""},
		{"modes and penalties", `
  - {key: a, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 3, penalty: {after: 1, within: 1m, for: 1h, factor: 2}}}
  - {key: d, rate_limit: {unlimited: true}}
  - {key: e, rate_limit: {unit: day, requests_per_unit: 3, count_denied: true, peek: over}}`, "", ""},
		{"rules of equal names", `
  - {key: a.b, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			written, coverage := initAndRun(t, "domain: d\ndescriptors:"+c.rules+"\n")
			uncovered := ""
			for _, l := range coverage.Limits() {
				if !l.Covered() {
					uncovered += l.Rule + " " + l.Limit
				}
			}
			if uncovered != c.uncovered || !strings.Contains(written, c.why) {
				t.Errorf("not covered: %q, want %q because %q\n%s", uncovered, c.uncovered, c.why, written)
			}
		})
	}
}

func TestInitKeepsOverlayOptionsAndDomains(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, "rules", "a.yaml"), "domain: a\ndescriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 3}}]\n")
	must.Write(t, filepath.Join(dir, "rules", "b.yaml"), "domain: b\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 3}}]\n")
	must.Write(t, filepath.Join(dir, "overlay.yaml"), "domain: b\ndescriptors: [{key: k, rate_limit: {algorithm: funnel}}]\n")
	t.Chdir(dir)
	out, err := rulestest.Init(rulestest.InitOptions{Rules: "rules", Overlay: "overlay.yaml", CalendarMonths: true, MergeDomains: true}, "tests/t.yaml")
	must.Succeed(t, err)
	for _, want := range []string{
		"\nrules: ../rules\noverlay: ../overlay.yaml\noptions: {use_calendar_month_rate_limit: true, merge_domain_config: true}\n",
		"'a: k: 3 per month'\n    domain: a\n", "'b: k: 3 per minute'\n    domain: b\n", "retry_after: 744h0m0s", "retry_after: 20s",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	must.Write(t, "tests/t.yaml", string(out))
	suite, err := rulestest.Load("tests/t.yaml")
	must.Succeed(t, err)
	for _, r := range runAll(t, suite, rulestest.Options{}) {
		if !r.Passed() {
			t.Error(r.FailureText())
		}
	}
}

func TestInitOfRulesWithoutLimits(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	for text, want := range map[string]string{
		"domain: d\n": "the rules have no limits, so there is nothing to test",
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: fortnight}}]\n": "rules.yaml:2:43: invalid rate limit unit 'fortnight'",
	} {
		must.Write(t, rules, text)
		if _, err := rulestest.Init(rulestest.InitOptions{Rules: rules}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
