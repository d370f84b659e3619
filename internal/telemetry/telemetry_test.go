package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/rls"
)

var loaded = rulesfiletest.Parse

func TestMetricsAreWellFormed(t *testing.T) {
	m := NewMetrics("test")
	m.RegisterMemory(func() MemoryStats { return MemoryStats{} })
	m.RegisterSnapshot(func() SnapshotStats { return SnapshotStats{} })
	m.RegisterDenyCache(func() guard.DenyCacheStats { return guard.DenyCacheStats{} })
	m.Observe(&rls.Observation{Result: decide.Result{Decisions: []decide.Decision{
		{Plan: &decide.Plan{Domain: "d", Rule: &descriptors.Rule{Domain: "d", Name: "r"}, Limits: []descriptors.RateLimit{tenADay}, Hits: 1}, Verdicts: []limiters.Verdict{{}}},
	}}})
	problems, err := testutil.GatherAndLint(m.Registry)
	must.Succeed(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "weir_") {
			t.Errorf("metric %s: lint: %s", p.Metric, p.Text)
		}
	}
}

// Reading the counts of the deny cache locks each of its shards.
func TestScrapeReadsStatsOnce(t *testing.T) {
	m, reads := NewMetrics("test"), 0
	m.RegisterDenyCache(func() guard.DenyCacheStats { reads++; return guard.DenyCacheStats{Entries: 3} })
	families, err := m.Registry.Gather()
	must.Succeed(t, err)
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "weir_deny_cache_entries" })
	if i < 0 || families[i].GetMetric()[0].GetGauge().GetValue() != 3 || reads != 1 {
		t.Errorf("%d reads, want one with 3 entries: %v", reads, families)
	}
}

// decision returns the decision about hits under a limit of a rule in the domain d.
func decision(rule string, hits int64, v limiters.Verdict) decide.Decision {
	plan := decide.Plan{Domain: "d", Rule: &descriptors.Rule{Domain: "d", Name: rule}, Limits: []descriptors.RateLimit{tenADay}, Hits: hits}
	return decide.Decision{Plan: &plan, Verdicts: []limiters.Verdict{v}}
}

func TestHitsAreCountedByRuleAndVerdict(t *testing.T) {
	m := NewMetrics("test")
	m.Observe(&rls.Observation{Code: codes.OK, Result: decide.Result{Denied: true, Decisions: []decide.Decision{
		decision("a", 3, limiters.Verdict{Allowed: true}),
		decision("a", 2, limiters.Verdict{}),
		decision("a", 5, limiters.Verdict{Err: errors.New("broken")}),
		decision("a", 0, limiters.Verdict{}),
		decision("a", -4, limiters.Verdict{Allowed: true}),
	}}})
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP weir_hits_total `+hitsHelp+`
# TYPE weir_hits_total counter
weir_hits_total{domain="d",rule="a",verdict="allowed"} 3
weir_hits_total{domain="d",rule="a",verdict="denied"} 2
weir_hits_total{domain="d",rule="a",verdict="error"} 5
# HELP weir_requests_total Number of requests that Weir answered, by gRPC code. If the code is OK, the label overall is ok or over_limit. Requests that Weir sheds, rejects during shutdown, or fails because of a bug are not counted here.
# TYPE weir_requests_total counter
weir_requests_total{code="OK",overall="ok"} 0
weir_requests_total{code="OK",overall="over_limit"} 1
`), "weir_hits_total", "weir_requests_total"); err != nil {
		t.Error(err)
	}
}

// An alert on the count of failed loads would end while the rules still have faults.
func TestGaugeIsZeroWhileTheLastLoadHasFailed(t *testing.T) {
	m := NewMetrics("test")
	expect := func(when string, want float64) {
		t.Helper()
		if got := testutil.ToFloat64(m.lastLoad); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("before the first load", 1)
	m.Loaded(nil, time.Now(), errors.New("a bad file"))
	expect("after a bad file", 0)
	m.Loaded(loaded(t, "domain: d"), time.Now(), nil)
	expect("after a good file", 1)
	m.Loaded(nil, time.Now(), errors.New("a bad file"))
	m.Loaded(nil, time.Now(), errors.New("a bad file"))
	expect("after two bad files", 0)
}

func TestSeriesOfRemovedRulesAreDropped(t *testing.T) {
	m := NewMetrics("test")
	hit := func(rule string) {
		m.Observe(&rls.Observation{Result: decide.Result{Decisions: []decide.Decision{
			decision(rule, 1, limiters.Verdict{}),
		}}})
	}
	const limit = `, rate_limit: {unit: day, requests_per_unit: 1}}`
	m.Loaded(loaded(t, "domain: d\ndescriptors: [{key: a"+limit+", {key: b"+limit+"]"), time.Now(), nil)
	hit("a")
	hit("b")
	hit("")
	m.Loaded(nil, time.Now(), errors.New("a bad file"))
	if n := testutil.CollectAndCount(m.hits); n != 3 {
		t.Errorf("after a bad file %d series, want 3", n)
	}
	m.Loaded(loaded(t, "domain: d\ndescriptors: [{key: b"+limit+"]"), time.Now(), nil)
	if n := testutil.CollectAndCount(m.hits); n != 2 {
		t.Errorf("without rule a %d series, want those of b and of overrides", n)
	}
	m.Loaded(loaded(t, "domain: d"), time.Now(), nil)
	if n := testutil.CollectAndCount(m.hits); n != 1 {
		t.Errorf("without rules %d series, want that of overrides", n)
	}
	m.Loaded(loaded(t, "domain: other"), time.Now(), nil)
	if n := testutil.CollectAndCount(m.hits); n != 0 {
		t.Errorf("without the domain %d series", n)
	}
}

// Hits that are counted during a reload are kept for rules that stay.
func TestReloadLosesNoHits(t *testing.T) {
	const names, each = 3 * 1024, 5
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range names {
		fmt.Fprintf(&text, "- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	h, rules := newHitMetrics(prometheus.NewRegistry()), loaded(t, text.String())
	ended := make(chan struct{})
	var counting, loading sync.WaitGroup
	loading.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				h.removeStale(rules.ByID())
			}
		}
	})
	for from := range 4 {
		counting.Go(func() {
			for i := range names * each {
				h.countersOf(descriptors.RuleID{Domain: "d", Name: fmt.Sprintf("k%d", (i+from*names/4)%names)}).counts[hitAllowed].Add(1)
			}
		})
	}
	counting.Wait()
	close(ended)
	loading.Wait()
	for i := range names {
		if n := h.countersOf(descriptors.RuleID{Domain: "d", Name: fmt.Sprintf("k%d", i)}).counts[hitAllowed].Load(); n != 4*each {
			t.Fatalf("%d hits of k%d, want %d", n, i, 4*each)
		}
	}
}

var tenADay = descriptors.RateLimit{
	Unit: descriptors.Day, UnitMultiplier: 1, RequestsPerUnit: 10,
	Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 10, Window: 24 * time.Hour, CountDenied: true}),
}

func TestDomainModeFollowsStoreOutage(t *testing.T) {
	rules, err := rulesfile.Parse(rulesfile.File{Name: "d", Data: []byte("domain: d\non_store_error: local\ndescriptors:\n" +
		"- {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: l, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: deny}}\n")},
		rulesfile.File{Name: "e", Data: []byte("domain: e\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n")},
		rulesfile.File{Name: "f", Data: []byte("domain: nothing\n")})
	must.Succeed(t, err)
	var stats guard.FallbackStats
	m := NewMetrics("test")
	m.RegisterFallback(func() guard.FallbackStats { return stats }, func() *descriptors.Rules { return rules })
	collected := func() string {
		var b strings.Builder
		families, err := m.Registry.Gather()
		must.Succeed(t, err)
		for _, f := range families {
			if f.GetName() != "weir_domain_mode" && f.GetName() != "weir_fallback_hits_total" {
				continue
			}
			for _, one := range f.GetMetric() {
				for _, l := range one.GetLabel() {
					b.WriteString(l.GetValue() + " ")
				}
				fmt.Fprint(&b, one.GetGauge().GetValue()+one.GetCounter().GetValue(), "; ")
			}
		}
		return b.String()
	}
	if got, want := collected(), "d deny 0; d local 0; d store 1; e error 0; e store 1; allow 0; deny 0; error 0; local 0; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	stats.Down, stats.Ops[limiters.OnStoreErrorLocal] = true, 7
	if got, want := collected(), "d deny 1; d local 1; d store 0; e error 1; e store 0; allow 0; deny 0; error 0; local 7; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestUnmatchedDescriptorsAreCountedAndLogged(t *testing.T) {
	var out bytes.Buffer
	m, logRequest := NewMetrics("test"), RequestLog(NewLog(&out, zapcore.DebugLevel, "text"))
	for _, r := range []decide.Result{
		{PlannedRequest: decide.PlannedRequest{Domain: "d"}, Decisions: []decide.Decision{
			{Plan: &decide.Plan{}, Reason: decide.Unlimited},
			{Plan: &decide.Plan{Entries: []descriptors.Entry{{Key: "user", Value: "alice"}, {Key: "action"}}}, Reason: decide.NoRule},
		}},
		{PlannedRequest: decide.PlannedRequest{Domain: "typo", UnknownDomain: true}, Decisions: []decide.Decision{{Plan: &decide.Plan{}, Reason: decide.UnknownDomain}}},
	} {
		a := &rls.Observation{Result: r}
		m.Observe(a)
		logRequest(a)
	}
	if got := testutil.ToFloat64(m.unmatched); got != 1 || testutil.CollectAndCount(m.unmatched) != 1 {
		t.Errorf("%v descriptors, want 1 of d alone", got)
	}
	for _, want := range []string{"user", "action", "typo"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s: %s", want, &out)
		}
	}
	if strings.Contains(out.String(), "alice") {
		t.Errorf("the log shows what a user sent: %s", &out)
	}
}

// A clock may not advance during a decision. The histogram has each decoded request, and no other.
func TestDurationsMeasureDecodedRequests(t *testing.T) {
	m := NewMetrics("")
	m.Observe(&rls.Observation{})
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Undecoded: true})
	m.Observe(&rls.Observation{Code: codes.Canceled, Undecoded: true})
	var read dto.Metric
	must.Succeed(t, m.requestTime.Write(&read))
	if n := read.GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("the histogram has %d requests, want 1", n)
	}
}

func TestUndecodableRequestsAreCounted(t *testing.T) {
	m := NewMetrics("test")
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Undecoded: true, Protocol: rls.GRPC})
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Undecoded: true, Protocol: rls.JSON})
	m.Observe(&rls.Observation{Code: codes.ResourceExhausted, Undecoded: true, Protocol: rls.GRPC})
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Protocol: rls.GRPC}) // decoded, and without a domain
	expectSeries(t, m.undecodable, "grpc 2", "json 1")
}

func TestRulesInfoHasTheVersionInForce(t *testing.T) {
	m := NewMetrics("test")
	for _, text := range []string{twoLimits, "domain: other"} {
		rules := loaded(t, text)
		m.Loaded(rules, time.Now(), nil)
		m.Loaded(nil, time.Now(), strings.NewReader("").UnreadByte()) // a failed load changes nothing
		if n := testutil.CollectAndCount(m.rulesInfo); n != 1 || testutil.ToFloat64(m.rulesInfo.WithLabelValues(rules.Version())) != 1 {
			t.Errorf("%d series, want one of version %s", n, rules.Version())
		}
	}
}
