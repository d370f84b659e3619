package rulestest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulestest"
)

const someRules = `domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - key: action
        value: login
        rate_limit: {unit: minute, requests_per_unit: 5, name: logins}
      - key: action
        value: reply
        rate_limits:
          - {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 3}
          - {unit: day, requests_per_unit: 100}
      - key: lease
        rate_limit: {algorithm: concurrency, concurrent_requests: 2, lease_ttl: 60s}
      - key: budget
        rate_limit: {algorithm: fixed_window, unit: day, requests_per_unit: 100, reserve: {ttl: 60s, unsettled: charge}}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: never
    rate_limit: {unit: minute, requests_per_unit: 0}
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 1, penalty: {after: 1, within: 1m, for: 1h}}
  - key: friend
    rate_limit: {unlimited: true}
  - key: two_limits
    descriptors:
      - key: lease
        rate_limits:
          - {algorithm: funnel, unit: second, requests_per_unit: 100}
          - {algorithm: concurrency, concurrent_requests: 2}
`

// load writes rules and tests, and loads them. The text of the tests follows "rules: rules.yaml".
func load(t testing.TB, tests string) (*rulestest.Suite, error) {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, "rules.yaml"), someRules)
	must.Write(t, filepath.Join(dir, "test.yaml"), "rules: rules.yaml\n"+tests)
	return rulestest.Load(filepath.Join(dir, "test.yaml"))
}

func mustLoad(t testing.TB, tests string) *rulestest.Suite {
	t.Helper()
	suite, err := load(t, tests)
	must.Succeed(t, err)
	return suite
}

func runAll(t testing.TB, s *rulestest.Suite, o rulestest.Options) []*rulestest.Result {
	t.Helper()
	results, err := s.Run(context.Background(), o)
	must.Succeed(t, err)
	return results
}

// everything has each key of the grammar, and passes.
const everything = `
tests:
  - name: a user may log in five times a minute
    start: 2026-11-22T10:00:00Z
    steps:
      - at: 0s
        request: user_id=42,action=login
        repeat: 5
        expect: {verdict: allowed, remaining: 0, used: 5, reset_after: 60s, rule: user_id.action=login, limit: logins}
      - after: 10s
        request: user_id=42,action=login
        expect: {verdict: denied, retry_after: 50s, remaining: 0, reason: over_limit}
      - request: user_id=43,action=login
        expect: allowed
      - at: 60s
        request: user_id=42,action=login
        expect: {verdict: allowed, remaining: 4}
      - at: 2026-11-22T10:02:00Z
        request: {descriptors: "user_id=42,action=login", hits: 5}
        expect: allowed
  - name: a steady stream is spread
    steps:
      - request: user_id=42,action=reply
        repeat: 30
        every: 100ms
        expect: {allowed: 5, denied: 25, retry_after: 100ms, limit: 0}
  - name: each user has a counter
    steps:
      - request: user_id={n},action=login
        repeat: 100
        expect: {verdict: allowed, remaining: 4}
      - request: user_id=7,action=login
        expect: {remaining: 3}
  - name: a peek charges nothing, and a refund gives back
    steps:
      - request: {descriptors: "user_id=1,action=login", hits: 0}
        expect: {verdict: allowed, used: 0}
      - request: {descriptors: "user_id=1,action=login", hits: 4}
        expect: {verdict: allowed, used: 4}
      - request: {descriptors: "user_id=1,action=login", hits: 3, is_negative_hits: true}
        expect: {verdict: allowed, used: 1}
      - request: {descriptors: "user_id=1,action=login", hits: 6}
        expect: {verdict: denied, reason: never_fits, retry_after: never}
  - name: a lease is held until its release
    steps:
      - request: user_id=1,lease={n}
        repeat: 2
        expect: allowed
      - request: user_id=1,lease=3
        expect: {verdict: denied, used: 2}
      - request: {descriptors: "user_id=1,lease=1", is_negative_hits: true}
        expect: {verdict: allowed, reason: released}
      - request: user_id=1,lease=2,release=1
        expect: {reason: released}
      - request: {descriptors: "user_id=1,lease=3", hits: 2}
        expect: {verdict: allowed, used: 2}
  - name: the limit of a release has its number in the rule
    steps:
      - request: two_limits=1,lease=1,release=1
        expect: {reason: released, limit: 1}
  - name: 10,000 reservations of a key may be open
    steps:
      - request: {descriptors: "user_id=2,budget={n}", hits: 0}
        repeat: 10000
        expect: allowed
      - request: user_id=2,budget=more
        expect: {verdict: denied, reason: too_many_leases, retry_after: 1s}
      - request: user_id=2,budget=
        expect: {verdict: denied, reason: bad_lease_id}
  - name: a reservation is settled
    steps:
      - request: {descriptors: "user_id=1,budget=a", hits: 80}
        expect: {verdict: allowed, remaining: 20}
      - request: {descriptors: "user_id=1,budget=a,settle=1", hits: 30}
        expect: {reason: settled}
      - request: {descriptors: "user_id=1,budget=b", hits: 70}
        expect: {verdict: allowed, remaining: 0}
  - name: several descriptors
    steps:
      - request:
          - user_id=1,action=login
          - entries: user_id=2,action=login
            hits: 5
        expect:
          verdict: allowed
          remaining: 0
          descriptors:
            - {verdict: allowed, remaining: 4}
            - {verdict: allowed, remaining: 0}
      - request: ["user_id=1,action=login", "user_id=2,action=login", nobody=1]
        expect:
          verdict: denied
          descriptors: [allowed, denied, {verdict: allowed, reason: no_rule, rule: ""}]
  - name: a request may bring its own limit
    steps:
      - request: [{entries: "user_id=1,action=login", limit: {requests_per_unit: 2, unit: hour, unit_multiplier: 2}}]
        repeat: 3
        expect: {allowed: 2, denied: 1, retry_after: 2h}
  - name: shadow mode reports and allows
    steps:
      - request: tried=1
        expect: allowed
      - request: tried=1
        expect: {verdict: allowed, reason: over_limit, retry_after: 60s}
  - name: a penalty lasts an hour
    steps:
      - request: banned=1
        expect: {verdict: allowed, penalized: false}
      - request: banned=1
        expect: {verdict: denied, penalized: true, retry_after: 1h}
  - name: a zero limit, an exemption and another domain
    domain: elsewhere
    steps:
      - request: {domain: ugc, descriptors: never=1}
        expect: {verdict: denied, retry_after: never}
      - request: {domain: ugc, descriptors: friend=1}
        repeat: 1000
        expect: {verdict: allowed, reason: unlimited}
      - request: friend=1
        expect: {verdict: allowed, reason: unknown_domain}
`

func TestStepsGetTheVerdictsOfAServer(t *testing.T) {
	results := runAll(t, mustLoad(t, everything), rulestest.Options{})
	if len(results) != 13 {
		t.Errorf("%d tests ran, want 13", len(results))
	}
	for i := range results {
		if !results[i].Passed() {
			t.Errorf("test %s failed:\n%s", results[i].Name, results[i].FailureText())
		}
	}
}

// The answer names the denied descriptor with the longest wait. If none is denied, it names the one
// with the least remaining.
func TestDeniedDescriptorWithLongestWaitExplainsAnswer(t *testing.T) {
	suite := mustLoad(t, `
tests:
  - name: least remaining
    steps:
      - request: [nobody=1, "user_id=1,action=login", "user_id=1,action=reply", tried=1, friend=1]
        expect: {verdict: allowed, rule: tried, remaining: 0}
  - name: longest wait
    steps:
      - {request: "user_id=1,action=reply", repeat: 3, expect: allowed}
      - {request: {descriptors: "user_id=1,action=login", hits: 5}, expect: allowed}
      - request: [tried=1, "user_id=1,action=reply", "user_id=1,action=login"]
        expect: {verdict: denied, rule: user_id.action=login, retry_after: 60s}
      - request: ["user_id=1,action=login", "user_id=1,action=reply"]
        expect: {verdict: denied, rule: user_id.action=login, retry_after: 60s}
      - request: ["user_id=1,action=login", never=1, "user_id=2,action=login"]
        expect: {verdict: denied, rule: never, reason: never_fits}
`)
	for _, r := range runAll(t, suite, rulestest.Options{}) {
		if !r.Passed() {
			t.Errorf("test %s failed:\n%s", r.Name, r.FailureText())
		}
	}
}

// Quotas that deny a request together explain it by the first of them that is free again. A quota
// beside a free one explains no denial.
func TestDecidingQuotaResetsFirst(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, "rules.yaml"), `domain: ugc
descriptors:
  - {key: five, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: hourly, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: daily, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	must.Write(t, filepath.Join(dir, "test.yaml"), `rules: rules.yaml
tests:
  - name: quotas deny together until the first of them is free
    steps:
      - {request: [daily=1, hourly=1], expect: allowed}
      - {request: [daily=1, hourly=1], expect: {verdict: denied, rule: hourly, retry_after: 1h}}
  - name: a quota beside a free one denies nothing
    steps:
      - {request: daily=1, expect: allowed}
      - {request: {descriptors: five=1, hits: 5}, expect: allowed}
      - request: [daily=1, hourly=1, five=1]
        expect: {verdict: denied, rule: five, retry_after: 60s}
      - {request: [hourly=2, daily=1], expect: {verdict: allowed, rule: daily, reason: over_limit}}
`)
	suite, err := rulestest.Load(filepath.Join(dir, "test.yaml"))
	must.Succeed(t, err)
	for _, r := range runAll(t, suite, rulestest.Options{}) {
		if !r.Passed() {
			t.Errorf("test %s failed:\n%s", r.Name, r.FailureText())
		}
	}
}

func TestOptionsMatchTheServer(t *testing.T) {
	const group = `
tests:
  - name: the other limit is not charged
    steps:
      - request: [never=1, "user_id=1,action=login"]
        expect: denied
      - request: user_id=1,action=login
        expect: {used: 1}
`
	if got := runAll(t, mustLoad(t, "options: {stop_cache_key_increment_when_overlimit: true}"+group), rulestest.Options{}); !got[0].Passed() {
		t.Error(got[0].FailureText())
	}
	if got := runAll(t, mustLoad(t, group), rulestest.Options{}); got[0].Passed() {
		t.Error("without the option, the other limit is charged too")
	}
	const shadow = "options: {shadow_mode: true}\ntests: [{name: a, steps: [{request: never=1, expect: {verdict: allowed, retry_after: never}}]}]\n"
	if got := runAll(t, mustLoad(t, shadow), rulestest.Options{}); !got[0].Passed() {
		t.Error(got[0].FailureText())
	}
}

// Each expectation that does not hold is a problem with the expected and the actual value.
func TestFailureShowsExpectedAndActual(t *testing.T) {
	for expect, want := range map[string]string{
		"denied":                     "verdict: want denied, got allowed",
		"{verdict: denied}":          "verdict: want denied, got allowed",
		"{remaining: 3}":             "remaining: want 3, got 4",
		"{used: 2}":                  "used: want 2, got 1",
		"{rule: user_id.action}":     "rule: want user_id.action, got user_id.action=login",
		"{rule: ''}":                 "rule: want none, got user_id.action=login",
		"{limit: other}":             "limit: want other, got logins",
		"{limit: 1}":                 "limit: want 1, got logins",
		"{reason: over_limit}":       "reason: want over_limit, got within_limit",
		"{retry_after: 1s}":          "retry_after: want 1s, got none, because the request is within its limits",
		"{reset_after: 59s}":         "reset_after: want 59s, got 1m0s",
		"{penalized: true}":          "penalized: want true, got false",
		"{denied: 1}":                "denied: want 1, got 0",
		"{allowed: 0}":               "allowed: want 0, got 1",
		"{descriptors: [denied]}":    "verdict: want denied, got allowed",
		"{descriptors: [{used: 9}]}": "used: want 9, got 1",
	} {
		suite := mustLoad(t, "tests: [{name: a, steps: [{request: 'user_id=42,action=login', expect: "+expect+"}]}]\n")
		got := runAll(t, suite, rulestest.Options{})[0]
		if len(got.Failures) != 1 {
			t.Errorf("%s: the test passed", expect)
			continue
		}
		f := got.Failures[0]
		if len(f.Problems) != 1 || f.Problems[0].String() != want {
			t.Errorf("%s: %v, want %s", expect, f.Problems, want)
		}
		for _, want := range []string{"test.yaml:2: step 1, at 0s: user_id=42,action=login\n", "rules.yaml:5", "logins"} {
			if text := got.FailureText(); !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", expect, want, text)
			}
		}
	}
}

// A step fails once, at its first request that fails, and the steps after it run all the same.
func TestAStepFailsOnce(t *testing.T) {
	got := runAll(t, mustLoad(t, `
tests:
  - name: a
    start: 2026-11-22T10:00:00Z
    steps:
      - {request: 'user_id=1,action=login', repeat: 10, every: 1s, expect: allowed}
      - {after: 1s, request: 'user_id=1,action=login', expect: allowed}
      - {after: 1m, request: 'user_id=1,action=login', expect: allowed}
`), rulestest.Options{})[0]
	if len(got.Failures) != 2 || got.Requests != 12 {
		t.Fatalf("%d failures of %d requests, want 2 of 12", len(got.Failures), got.Requests)
	}
	for i, want := range []string{"test.yaml:7: step 1, request 6, at 5s: ", "test.yaml:8: step 2, at 10s: "} {
		if text := got.FailureText(); !strings.Contains(text, want) {
			t.Errorf("failure %d: no %q in\n%s", i, want, text)
		}
	}
}

// The times of failures are from the start of the test, as 'at' is.
func TestFailureTimesAreFromTheStart(t *testing.T) {
	got := runAll(t, mustLoad(t, `
tests:
  - name: a
    steps:
      - {at: 30s, request: friend=1, expect: allowed}
      - {at: 1m, request: friend=1, expect: denied}
`), rulestest.Options{})[0]
	if text := got.FailureText(); !strings.Contains(text, "step 2, at 1m0s: ") {
		t.Errorf("no time of 1m0s in\n%s", text)
	}
}

func TestRunSelectsTestsByName(t *testing.T) {
	suite := mustLoad(t, everything)
	got := runAll(t, suite, rulestest.Options{Only: regexp.MustCompile("^a lease|settled$")})
	if len(got) != 2 {
		t.Errorf("%d tests ran, want 2", len(got))
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	suite := mustLoad(t, "tests: [{name: a, steps: [{request: friend=1, repeat: 1000000, expect: allowed}]}]\n")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := suite.Run(ctx, rulestest.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestCoverageCountsReachedAndDeniedRules(t *testing.T) {
	suite := mustLoad(t, `
tests:
  - name: a
    steps:
      - {request: 'user_id=1,action=login', repeat: 7, expect: {allowed: 5, denied: 2}}
      - {request: 'user_id=1,action=reply', expect: allowed}
      - {request: tried=1, repeat: 2, expect: allowed}
      - {request: friend=1, expect: allowed}
      - {request: [{entries: never=1, limit: {requests_per_unit: 0, unit: day}}], expect: denied}
`)
	var coverage rulestest.Coverage
	runAll(t, suite, rulestest.Options{Coverage: &coverage})
	// The same rules again, as from another file of tests.
	runAll(t, suite, rulestest.Options{Coverage: &coverage, Only: regexp.MustCompile("none")})
	var got []string
	for _, l := range coverage.Limits() {
		if l.Reached > 0 {
			got = append(got, strings.Join([]string{l.Source[strings.LastIndex(l.Source, "/")+1:], l.Rule, l.Limit, l.Algorithm}, " "))
		}
		switch l.Rule {
		case "user_id.action=login":
			if l.Reached != 7 || l.Denied != 2 {
				t.Errorf("%+v, want 7 reached, 2 denied", l)
			}
		case "tried":
			if !l.Covered() || l.Denied != 1 {
				t.Errorf("%+v, want a denial in shadow mode", l)
			}
		}
	}
	want := []string{
		"rules.yaml:5 user_id.action=login logins fixed_window", "rules.yaml:8 user_id.action=reply 0 funnel",
		"rules.yaml:8 user_id.action=reply 1 fixed_window", "rules.yaml:17 tried 0 fixed_window", "rules.yaml:24 friend  ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("reached %q, want %q", got, want)
	}
	if covered, all := coverage.Counts(); covered != 3 || all != 11 || int(coverage.Percent()) != 27 {
		t.Errorf("%d of %d limits are covered, %v %%, want 3 of 11", covered, all, coverage.Percent())
	}
}

// Rules of two folders are different rules, even if their files have the same names and lines.
func TestCoverageDistinguishesFolders(t *testing.T) {
	var coverage rulestest.Coverage
	for folder, test := range map[string]string{
		"staging": "{request: a=1, repeat: 2, expect: {allowed: 1, denied: 1}}", "prod": "{request: a=1, expect: allowed}",
	} {
		dir := filepath.Join(t.TempDir(), folder)
		must.Succeed(t, os.MkdirAll(filepath.Join(dir, "rules"), 0o755))
		must.Write(t, filepath.Join(dir, "rules", "shop.yaml"), "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n")
		must.Write(t, filepath.Join(dir, "test.yaml"), "rules: rules\ntests: [{name: a, steps: ["+test+"]}]\n")
		suite, err := rulestest.Load(filepath.Join(dir, "test.yaml"))
		must.Succeed(t, err)
		runAll(t, suite, rulestest.Options{Coverage: &coverage})
	}
	if covered, all := coverage.Counts(); covered != 1 || all != 2 {
		t.Errorf("%d of %d limits are covered, want 1 of 2", covered, all)
	}
}

// A request without a limit is allowed, so a test with a misspelled request passes. A step that
// expects the reason no_rule has no warning.
func TestStepThatNoRuleMatchesIsAWarning(t *testing.T) {
	suite := mustLoad(t, `tests:
  - name: misspelled
    steps:
      - {request: "user_idd=42,action=login", expect: allowed}
      - {request: "user_id={n},actoin=login", repeat: 2, expect: {allowed: 2}}
      - {request: {domain: ugx, descriptors: "user_id=42,action=login"}, expect: {verdict: allowed}}
  - name: intended
    steps:
      - {request: "user_id=42,action=login", expect: allowed}
      - {request: "user_id=42", expect: {verdict: allowed, reason: no_rule}}
      - {request: "user_id=42", expect: {verdict: allowed, rule: ''}}
      - {request: [user_id=42, "friend=1"], expect: allowed}
      - {request: [{entries: "a=1", limit: {requests_per_unit: 1, unit: hour}}], expect: allowed}
`)
	results := runAll(t, suite, rulestest.Options{})
	var got []string
	for _, r := range results {
		if !r.Passed() {
			t.Errorf("test %s failed: %s", r.Name, r.FailureText())
		}
		for _, w := range r.Warnings {
			got = append(got, w.Reason)
		}
	}
	for i, want := range []string{"user_id", "action", "ugc"} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("warnings %q: number %d does not suggest %s", got, i, want)
		}
	}
	if len(got) != 3 || len(results[0].Warnings) != 3 {
		t.Errorf("warnings %q, want 3, all of the first test", got)
	}
}

func TestRulesInPlaceOfTestsNameTheirCommand(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	must.Write(t, name, someRules)
	if _, err := rulestest.Load(name); err == nil || !strings.Contains(err.Error(), "weir check") {
		t.Errorf("%v, want the command for rules", err)
	}
}
