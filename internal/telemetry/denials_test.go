package telemetry

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

const twoLimits = `
domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 1}
      - {unit: day, requests_per_unit: 1}
`

// observed returns the observation of one descriptor under the rule "user", with the verdicts of
// its limits.
func observed(rules *descriptors.Rules, hits int64, denied bool, verdicts ...limiters.Verdict) *rls.Observation {
	rule := rules.Match("d", []descriptors.Entry{{Key: "user", Value: "alice"}})
	d := decide.Decision{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: hits, Limits: rule.Limits}, Verdicts: verdicts, Outcome: decide.Allowed}
	if i := slices.IndexFunc(verdicts, func(v limiters.Verdict) bool { return v.Denied() }); i >= 0 {
		d.Outcome, d.DecidingLimitIndex = decide.Denied, i
	}
	return &rls.Observation{Result: decide.Result{PlannedRequest: decide.PlannedRequest{Domain: "d"}, Denied: denied, Decisions: []decide.Decision{d}}}
}

func expectDenials(t *testing.T, m *Metrics, lines ...string) {
	t.Helper()
	want := "# HELP weir_denials_total " + denialsHelp + "\n# TYPE weir_denials_total counter\n" + strings.Join(lines, "\n") + "\n"
	if len(lines) == 0 {
		want = ""
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), "weir_denials_total"); err != nil {
		t.Error(err)
	}
}

// A peek charges nothing, so weir_hits_total does not count it, but its response is a 429 like any
// other.
func TestDeniedPeeksAreCounted(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	for range 3 {
		m.Observe(observed(rules, 0, true, limiters.Verdict{Allowed: true}, limiters.Verdict{}))
	}
	expectDenials(t, m, `weir_denials_total{domain="d",enforced="true",limit="1",rule="user"} 3`)
	if n := testutil.CollectAndCount(m.hits); n != 0 {
		t.Errorf("peeks are in %d series of weir_hits_total, want 0", n)
	}
	expectSeries(t, m.denials.peeks, "d 1 user 3")
}

func TestDenialsNameTheLimit(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	allowed, denied := limiters.Verdict{Allowed: true}, limiters.Verdict{}
	m.Observe(observed(rules, 1, true, denied, allowed))
	m.Observe(observed(rules, 1, true, denied, denied))
	m.Observe(observed(rules, 1, false, allowed, allowed))
	m.Observe(observed(rules, 1, false, limiters.Verdict{Err: http.ErrAbortHandler}, allowed))
	override := observed(rules, 1, true, denied)
	override.Decisions[0].HasOverride = true
	m.Observe(override)
	expectDenials(t, m,
		`weir_denials_total{domain="d",enforced="true",limit="1",rule="user"} 1`,
		`weir_denials_total{domain="d",enforced="true",limit="burst",rule="user"} 2`,
		`weir_denials_total{domain="d",enforced="true",limit="override",rule="user"} 1`)
}

func TestLongNamesOfLimitsStayDifferent(t *testing.T) {
	m, long := NewMetrics("test"), strings.Repeat("long", 50) // 200 bytes
	text := strings.Replace(twoLimits, "name: burst, ", "name: "+long+"-1, ", 1)
	text = strings.Replace(text, "{unit: day, ", "{unit: day, name: "+long+"-2, ", 1)
	m.Observe(observed(loaded(t, text), 1, true, limiters.Verdict{}, limiters.Verdict{}))
	if n := testutil.CollectAndCount(m.denials.all); n != 2 {
		t.Errorf("%d series, want one for each of two limits", n)
	}
	for l := range m.denials.all.counts {
		if len(l.limit) > maxLimitNameBytes || !strings.HasPrefix(l.limit, long[:180]) {
			t.Errorf("label %q, want a prefix of the name in at most %d bytes", l.limit, maxLimitNameBytes)
		}
	}
}

func TestDenialsInShadowModeAreNotEnforced(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	m.Observe(observed(rules, 1, false, limiters.Verdict{}, limiters.Verdict{Allowed: true})) // SHADOW_MODE
	shadow := observed(rules, 1, true, limiters.Verdict{}, limiters.Verdict{Allowed: true})   // denied by another rule
	shadow.Decisions[0].ShadowMode, shadow.Decisions[0].Outcome = true, decide.Allowed
	m.Observe(shadow)
	expectDenials(t, m, `weir_denials_total{domain="d",enforced="false",limit="burst",rule="user"} 2`)
}

// Series of domains, rules and limits that a reload has removed are dropped, and the others stay.
func TestReloadDropsSeriesOfRemovedLimitsAndDomains(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	m.Observe(observed(rules, 1, true, limiters.Verdict{}, limiters.Verdict{}))
	unmatched := &rls.Observation{Result: decide.Result{PlannedRequest: decide.PlannedRequest{Domain: "d"}, Decisions: []decide.Decision{{Plan: &decide.Plan{Domain: "d"}, Reason: decide.NoRule}}}}
	m.Observe(unmatched)

	m.Loaded(loaded(t, strings.Replace(twoLimits, "name: burst, ", "", 1)), time.Now(), nil)
	expectDenials(t, m, `weir_denials_total{domain="d",enforced="true",limit="1",rule="user"} 1`)
	if n := testutil.CollectAndCount(m.unmatched); n != 1 {
		t.Errorf("%d series of unmatched descriptors, want that of d", n)
	}
	m.Loaded(loaded(t, "domain: other"), time.Now(), nil)
	expectDenials(t, m)
	if n := testutil.CollectAndCount(m.unmatched); n != 0 {
		t.Errorf("%d series of unmatched descriptors of a domain without rules, want 0", n)
	}
}

// A key may contain a dot, so a rule below another may have the name of a rule at the top.
func TestReloadKeepsSeriesOfRulesThatShareAName(t *testing.T) {
	m := NewMetrics("test")
	rules := loaded(t, `
domain: d
descriptors:
  - {key: user, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1, name: open}}]}
  - {key: user.lease, rate_limit: {unit: day, requests_per_unit: 1, name: daily}}
`)
	for _, entries := range [][]descriptors.Entry{{{Key: "user"}, {Key: "lease"}}, {{Key: "user.lease"}}} {
		rule := rules.Match("d", entries)
		m.Observe(&rls.Observation{Result: decide.Result{Denied: true, Decisions: []decide.Decision{
			{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: 1, Limits: rule.Limits}, Verdicts: []limiters.Verdict{{}}, Outcome: decide.Denied},
			{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: 1}, Outcome: decide.Denied, Reason: decide.BadLeaseID},
		}}})
	}
	for range 2 {
		expectSeries(t, m.denials.all, "d true daily user.lease 1", "d true open user.lease 1")
		expectSeries(t, m.leases.badIDs, "d user.lease 2")
		m.Loaded(rules, time.Now(), nil)
	}
}

func TestPenaltiesAreCountedByLimit(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	began, during := limiters.Verdict{Penalized: true, PenaltyBegan: true}, limiters.Verdict{Penalized: true}
	m.Observe(observed(rules, 1, true, limiters.Verdict{}, limiters.Verdict{Allowed: true})) // an offense
	m.Observe(observed(rules, 1, true, began, limiters.Verdict{Allowed: true}))
	m.Observe(observed(rules, 1, true, during, limiters.Verdict{Allowed: true}))
	m.Observe(observed(rules, 0, true, during, limiters.Verdict{Allowed: true}))
	expectSeries(t, m.denials.penalties, "d burst user 1")
	expectSeries(t, m.denials.byPenalty, "d burst user 3")
	expectSeries(t, m.denials.peeks, "d burst user 1")
	expectDenials(t, m, `weir_denials_total{domain="d",enforced="true",limit="burst",rule="user"} 4`)

	m.Loaded(loaded(t, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]"), time.Now(), nil)
	for _, family := range []*counterMap{m.denials.penalties, m.denials.byPenalty, m.denials.peeks, m.denials.all, m.hits.deniedByLimit} {
		if len(family.counts) > 0 {
			t.Errorf("%v outlives its limit", family.desc)
		}
	}
}

func TestCountingADenialAllocatesNothing(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	o := observed(rules, 1, true, limiters.Verdict{}, limiters.Verdict{})
	if n := testing.AllocsPerRun(100, func() { m.Observe(o) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserveDenied(b *testing.B) {
	m, rules := NewMetrics("test"), loaded(b, twoLimits)
	o := observed(rules, 1, true, limiters.Verdict{}, limiters.Verdict{Allowed: true})
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(o)
	}
}

// A blocked collector keeps the scrape that called it under way.
type blocked struct{ entered, release chan struct{} }

func (blocked) Describe(chan<- *prometheus.Desc) {}

func (b blocked) Collect(chan<- prometheus.Metric) {
	b.entered <- struct{}{}
	<-b.release
}

func TestScrapesAreBounded(t *testing.T) {
	m := NewMetrics("test")
	b := blocked{make(chan struct{}), make(chan struct{})}
	m.Registry.MustRegister(b)
	scrape := func() int {
		w := httptest.NewRecorder()
		m.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	var under sync.WaitGroup
	for range maxScrapes {
		under.Go(func() {
			if code := scrape(); code != http.StatusOK {
				t.Errorf("a scrape within the bound: %d, want %d", code, http.StatusOK)
			}
		})
		<-b.entered
	}
	if code := scrape(); code != http.StatusServiceUnavailable {
		t.Errorf("a scrape beyond the bound: %d, want 503", code)
	}
	close(b.release)
	under.Wait()
}

// A hit under several limits counts once. Otherwise a rule that denies everything by one of two
// limits would seem to deny half.
func TestHitsUnderSeveralLimitsCountOnce(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	allowed, denied, failed := limiters.Verdict{Allowed: true}, limiters.Verdict{}, limiters.Verdict{Err: http.ErrAbortHandler}
	m.Observe(observed(rules, 1, false, allowed, allowed))
	m.Observe(observed(rules, 2, true, allowed, denied))
	m.Observe(observed(rules, 4, true, denied, failed))
	m.Observe(observed(rules, 8, true, failed, denied))
	m.Observe(observed(rules, 16, false, failed, allowed))
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP weir_hits_total `+hitsHelp+`
# TYPE weir_hits_total counter
weir_hits_total{domain="d",rule="user",verdict="allowed"} 1
weir_hits_total{domain="d",limit="1",rule="user",verdict="denied"} 10
weir_hits_total{domain="d",limit="burst",rule="user",verdict="denied"} 4
weir_hits_total{domain="d",rule="user",verdict="error"} 16
`), "weir_hits_total"); err != nil {
		t.Error(err)
	}
}
