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
	m.Answered(&rls.Answer{Decisions: []rls.Decision{{Domain: "d", Rule: &descriptors.Rule{Name: "r"}, Hits: 1}}})
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
		{Domain: "d", Rule: &descriptors.Rule{Name: "a"}, Hits: 3, Verdict: limiters.Verdict{Allowed: true}},
		{Domain: "d", Rule: &descriptors.Rule{Name: "a"}, Hits: 2},
		{Domain: "d", Rule: &descriptors.Rule{Name: "a"}, Hits: 5, Verdict: limiters.Verdict{Err: errors.New("broken")}},
		{Domain: "d", Rule: &descriptors.Rule{Name: "a"}, Hits: 0},
		{Domain: "d", Rule: &descriptors.Rule{Name: "a"}, Hits: -4, Verdict: limiters.Verdict{Allowed: true}},
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
		m.Answered(&rls.Answer{Decisions: []rls.Decision{{Domain: "d", Rule: &descriptors.Rule{Name: rule}, Hits: 1}}})
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
	answered := AnswerLog(log)
	for range 1000 {
		answered(&rls.Answer{Code: codes.InvalidArgument, Err: errors.New("bad client")})
	}
	for range 1000 {
		answered(&rls.Answer{Code: codes.Unavailable, Err: errors.New("no redis")})
		answered(&rls.Answer{})
	}
	// The test may run across the end of a second.
	if lines := strings.Count(out.String(), `"error":"no redis"`); lines < 5 || lines > 20 {
		t.Errorf("%d lines for 1000 equal failures, want 5 a second, whatever else fails", lines)
	}
	for _, want := range []string{`"@timestamp":`, `"@message":"not decided: Unavailable"`, `"@message":"not decided: InvalidArgument"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s: %.200s", want, &out)
		}
	}
	out.Reset()
	for range 100 {
		log.Warn("suspicious rule")
	}
	if lines := strings.Count(out.String(), "\n"); lines != 100 {
		t.Errorf("%d lines of 100 warnings that are not of answers", lines)
	}
}

type keyError struct{ error }

func (keyError) StoreKey() string { return "w1{alice}" }

func TestAKeyIsLoggedForThoseAloneWhoLookForIt(t *testing.T) {
	for level, shown := range map[zapcore.Level]bool{zapcore.InfoLevel: false, zapcore.DebugLevel: true} {
		var out bytes.Buffer
		AnswerLog(NewLog(&out, level, "text"))(&rls.Answer{Err: keyError{errors.New("WRONGTYPE")}})
		if got := strings.Contains(out.String(), "alice"); got != shown || !strings.Contains(out.String(), "WRONGTYPE") {
			t.Errorf("at level %v: %s", level, &out)
		}
	}
}
