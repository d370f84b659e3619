package telemetry

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/rls"
)

func loaded(t *testing.T, text string) *descriptors.Rules {
	t.Helper()
	rules, err := descriptors.Parse(descriptors.File{Name: "f", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestMetricsAreWellFormed(t *testing.T) {
	m := NewMetrics("test")
	m.Memory(func() memstore.Stats { return memstore.Stats{} })
	m.Answered(&rls.Answer{Decisions: []rls.Decision{{Domain: "d", Rule: "r", Hits: 1}}})
	problems, err := testutil.GatherAndLint(m.Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "weir_") {
			t.Errorf("%s: %s", p.Metric, promlint.Problem(p).Text)
		}
	}
}

func TestHitsAreCountedByRuleAndVerdict(t *testing.T) {
	m := NewMetrics("test")
	m.Answered(&rls.Answer{Code: codes.OK, Denied: true, Decisions: []rls.Decision{
		{Domain: "d", Rule: "a", Hits: 3, Verdict: limiters.Verdict{Allowed: true}},
		{Domain: "d", Rule: "a", Hits: 2},
		{Domain: "d", Rule: "a", Hits: 5, Verdict: limiters.Verdict{Err: errors.New("broken")}},
		{Domain: "d", Rule: "a", Hits: 0},
		{Domain: "d", Rule: "a", Hits: -4, Verdict: limiters.Verdict{Allowed: true}},
	}})
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP weir_hits_total Hits by rule and verdict: allowed, denied, or error where the store could not decide. Looks and refunds are no hits.
# TYPE weir_hits_total counter
weir_hits_total{domain="d",rule="a",verdict="allowed"} 3
weir_hits_total{domain="d",rule="a",verdict="denied"} 2
weir_hits_total{domain="d",rule="a",verdict="error"} 5
# HELP weir_requests_total Requests answered, by gRPC code; those of OK by overall code.
# TYPE weir_requests_total counter
weir_requests_total{code="OK",overall="over_limit"} 1
`), "weir_hits_total", "weir_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestSeriesOfRulesThatAreGoneAreDropped(t *testing.T) {
	m := NewMetrics("test")
	hit := func(rule string) {
		m.Answered(&rls.Answer{Decisions: []rls.Decision{{Domain: "d", Rule: rule, Hits: 1}}})
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
		t.Errorf("after rule a went %d series, want those of b and of overrides", n)
	}
	m.Loaded(loaded(t, "domain: other"), time.Now(), nil)
	if n := testutil.CollectAndCount(m.hits); n != 0 {
		t.Errorf("after the domain went %d series, want none", n)
	}
}

func TestAStoreThatIsGoneDoesNotDrownTheLog(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out, zapcore.InfoLevel, "json")
	for range 1000 {
		LogAnswer(log, &rls.Answer{Code: codes.Unavailable, Err: errors.New("no redis")})
		LogAnswer(log, &rls.Answer{})
	}
	lines := strings.Count(out.String(), "\n")
	// The test may run across the end of a second.
	if lines < 5 || lines > 20 {
		t.Errorf("%d lines for 1000 equal failures, want 5 a second", lines)
	}
	for _, want := range []string{`"@timestamp":`, `"@message":"request not decided"`, `"code":"Unavailable"`, `"error":"no redis"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s: %.200s", want, &out)
		}
	}
}
