package telemetry

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/decisionstream"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

func TestPenaltiesAreCountedByLimit(t *testing.T) {
	m, rules := NewMetrics("test"), loaded(t, twoLimits)
	began, during := limiters.Verdict{Penalized: true, PenaltyBegan: true}, limiters.Verdict{Penalized: true}
	m.Observe(observed(rules, 1, true, limiters.Verdict{}, limiters.Verdict{Allowed: true})) // an offence
	m.Observe(observed(rules, 1, true, began, limiters.Verdict{Allowed: true}))
	m.Observe(observed(rules, 1, true, during, limiters.Verdict{Allowed: true}))
	m.Observe(observed(rules, 0, true, during, limiters.Verdict{Allowed: true}))
	expectSeries(t, m.penalties, "d burst user 1")
	expectSeries(t, m.byPenalty, "d burst user 3")
	expectSeries(t, m.peeks, "d burst user 1")
	expectDenials(t, m, `weir_denials_total{domain="d",enforced="true",limit="burst",rule="user"} 4`)

	m.Loaded(loaded(t, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]"), time.Now(), nil)
	for _, family := range []*counterMap{m.penalties, m.byPenalty, m.peeks, m.denials, m.hits.deniedByLimit} {
		if len(family.counts) > 0 {
			t.Errorf("%v outlives its limit", family.desc)
		}
	}
}

// A clock may not advance during a decision. The histogram has each decoded request, and no other.
func TestDurationsAreThoseOfDecodedRequests(t *testing.T) {
	m := NewMetrics("")
	m.Observe(&rls.Observation{})
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Undecodable: true})
	m.Observe(&rls.Observation{Code: codes.Canceled, ContextEnded: true})
	var read dto.Metric
	must.Succeed(t, m.requestTime.Write(&read))
	if n := read.GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("the histogram has %d requests, want 1", n)
	}
}

func TestUndecodableRequestsAreCounted(t *testing.T) {
	m := NewMetrics("test")
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Undecodable: true, GRPC: true})
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, Undecodable: true})
	m.Observe(&rls.Observation{Code: codes.ResourceExhausted, Undecodable: true, GRPC: true})
	m.Observe(&rls.Observation{Code: codes.InvalidArgument, GRPC: true}) // decoded, and without a domain
	if grpc, json := testutil.ToFloat64(m.undecodable.grpc), testutil.ToFloat64(m.undecodable.json); grpc != 2 || json != 1 {
		t.Errorf("%v by gRPC and %v by JSON, want 2 and 1", grpc, json)
	}
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

func TestDenialLogLineHasEveryField(t *testing.T) {
	var out bytes.Buffer
	log := DenialLog(NewLog(&out, zapcore.InfoLevel, "json"))
	log(&decisionstream.Denial{
		Domain: "shop", Rule: "user_id.action=login", Limit: "burst", Algorithm: "funnel", KeyHash: "0123456789abcdef", Enforced: true, Used: 6,
		RetryAfter: 1500 * time.Millisecond, Replica: "weir-0", RulesVersion: "6f1ed002ab559585", Suppressed: 7,
	})
	log(&decisionstream.Denial{RetryAfter: -1})
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		must.Succeed(t, json.Unmarshal([]byte(line), &fields))
		delete(fields, "@timestamp")
		lines = append(lines, fields)
	}
	want := map[string]any{
		"level": "info", "@message": "request denied", "domain": "shop", "rule": "user_id.action=login", "limit": "burst", "algorithm": "funnel",
		"key_hash": "0123456789abcdef", "enforced": true, "penalized": false, "used": 6.0, "retry_after_seconds": 1.5, "replica": "weir-0",
		"rules_version": "6f1ed002ab559585", "suppressed": 7.0,
	}
	if len(lines) != 2 || !maps.Equal(lines[0], want) {
		t.Errorf("%v, want %v", lines, want)
	}
	for _, name := range []string{"retry_after_seconds", "suppressed"} {
		if slices.Contains(slices.Collect(maps.Keys(lines[1])), name) {
			t.Errorf("%s is in the line of hits that never fit: %v", name, lines[1])
		}
	}
}
