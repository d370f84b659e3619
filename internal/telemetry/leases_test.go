package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/rls"
)

// expectSeries compares the series of a collector with lines, without their help.
func expectSeries(t *testing.T, c prometheus.Collector, lines ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	expectGathered(t, registry, "", lines...)
}

// expectGathered is expectSeries for the metric with a name in a registry, or for all of them.
func expectGathered(t *testing.T, from prometheus.Gatherer, name string, lines ...string) {
	t.Helper()
	families, err := from.Gather()
	must.Succeed(t, err)
	var got []string
	for _, f := range families {
		if name != "" && f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got = append(got, fmt.Sprint(strings.Join(labels, " "), " ", m.GetCounter().GetValue()))
		}
	}
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("got %q, want %q", got, lines)
	}
}

func leaseRules(t *testing.T) *descriptors.Rules {
	t.Helper()
	l := limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 2})
	b := descriptors.NewBuilder()
	user := b.Domain("d").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "user"}})
	user.Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "lease"}}).SetRule(descriptors.Rule{Limits: []descriptors.RateLimit{{Limit: l}}})
	return b.Build()
}

func TestLeaseEndsAreCountedApartFromHits(t *testing.T) {
	m, rules := NewMetrics("test"), leaseRules(t)
	m.Loaded(rules, time.Now(), nil)
	rule := rules.Match("d", []descriptors.Entry{{Key: "user", Value: "alice"}, {Key: "lease", Value: "1"}})
	errStore := errors.New("the store failed")
	allowed := []limiters.Verdict{{Allowed: true}}
	m.Observe(&rls.Observation{Result: decide.Result{PlannedRequest: decide.PlannedRequest{Domain: "d"}, GivenUpLeases: 2, Decisions: []decide.Decision{
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: 1, Limits: rule.Limits}, Verdicts: allowed, Reason: decide.WithinLimit},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Kind: decide.EndLease, Limits: rule.Limits}, Verdicts: allowed, Reason: decide.Released},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: 7, Kind: decide.EndLease, Limits: rule.Limits}, Verdicts: allowed, Reason: decide.Settled},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Kind: decide.EndLease, Limits: rule.Limits}, Verdicts: []limiters.Verdict{{Err: errStore}}, Reason: decide.StoreError},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Kind: decide.EndLease, Limits: rule.Limits}, Verdicts: allowed, Reason: decide.StorePolicy},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Kind: decide.EndLease}, Reason: decide.BadLeaseID},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: 1}, Reason: decide.BadLeaseID, Outcome: decide.Denied},
		{Plan: &decide.Plan{Domain: "d", Rule: rule, Hits: 1, Limits: rule.Limits}, Reason: decide.TooManyLeases, Outcome: decide.Denied, Verdicts: []limiters.Verdict{{TooManyLeases: true}}},
	}}})
	m.Observe(&rls.Observation{Result: decide.Result{GivenUpLeases: 1, EndErr: errStore}})
	expectSeries(t, m.hits, "d user.lease allowed 1", "d user.lease denied 1")
	expectSeries(t, m.leases.tooMany, "d user.lease 1")
	expectSeries(t, m.leases.ends, "d error user.lease 2", "d ok user.lease 2")
	expectSeries(t, m.leases.badIDs, "d user.lease 2")
	expectGathered(t, m.Registry, "weir_leases_given_up_total", "error 1", "ok 2")

	m.Loaded(loaded(t, twoLimits), time.Now(), nil)
	if n := testutil.CollectAndCount(m.leases.ends) + testutil.CollectAndCount(m.leases.badIDs) + testutil.CollectAndCount(m.leases.tooMany); n != 0 {
		t.Errorf("%d series of rules that no longer exist", n)
	}
}
