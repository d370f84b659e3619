package telemetry

import (
	"context"
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

// A scriptedStore answers each Take with the next list of verdicts.
type scriptedStore struct {
	limiters.Store
	calls [][]limiters.Verdict
}

func (s *scriptedStore) Take(_ context.Context, _ []limiters.Group, out []limiters.Verdict) error {
	copy(out, s.calls[0])
	s.calls = s.calls[1:]
	return nil
}

func TestLeaseEndsAreCountedApartFromHits(t *testing.T) {
	m := NewMetrics("test")
	rules := loaded(t, `
domain: d
descriptors:
  - {key: full, rate_limit: {unit: day, requests_per_unit: 0}}
  - key: user
    descriptors:
      - {key: lease, rate_limit: {unit: day, requests_per_unit: 100, algorithm: fixed_window, reserve: {ttl: 1m}}}
`)
	m.Loaded(rules, time.Now(), nil)
	store := &scriptedStore{}
	decider := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
	observe := func(hits int64, texts string, calls ...[]limiters.Verdict) {
		t.Helper()
		request := decide.Request{Domain: "d"}
		for text := range strings.FieldsSeq(texts) {
			entries, err := descriptors.ParseEntries(text)
			must.Succeed(t, err)
			request.Descriptors = append(request.Descriptors, decide.Descriptor{Entries: entries, Hits: hits})
		}
		store.calls = calls
		var o rls.Observation
		_ = decider.Decide(t.Context(), &request, &o.Result) // an undecided request counts too
		m.Observe(&o)
		if len(store.calls) > 0 {
			t.Errorf("%s: the store was not called for %v", texts, store.calls)
		}
	}
	allowed, failed := limiters.Verdict{Allowed: true}, limiters.Verdict{Err: errors.New("the store failed")}
	one := func(v limiters.Verdict) []limiters.Verdict { return []limiters.Verdict{v} }
	observe(1, "user=alice,lease=1", one(allowed))
	observe(1, "user=alice,lease=2", one(limiters.Verdict{TooManyLeases: true}))
	observe(1, "user=alice,lease=")
	observe(0, "user=alice,lease=,release=")
	observe(0, "user=alice,lease=1,release=", one(allowed))
	observe(7, "user=alice,lease=1,settle=", one(allowed))
	observe(0, "user=alice,lease=1,release=", one(failed))
	observe(0, "user=alice,lease=1,release=", one(limiters.Verdict{Allowed: true, By: limiters.ByPolicy}))
	observe(1, "user=alice,lease=3 user=bob,lease=3 full=1", []limiters.Verdict{allowed, allowed, {}}, []limiters.Verdict{allowed, allowed})
	observe(1, "user=alice,lease=4 full=1", []limiters.Verdict{allowed, {}}, one(failed))
	expectSeries(t, m.hits, "d full denied 2", "d user.lease allowed 4", "d user.lease denied 1")
	expectSeries(t, m.leases.tooMany, "d user.lease 1")
	expectSeries(t, m.leases.ends, "d error user.lease 2", "d ok user.lease 2")
	expectSeries(t, m.leases.badIDs, "d user.lease 2")
	expectGathered(t, m.Registry, "weir_leases_given_up_total", "error 1", "ok 2")

	m.Loaded(loaded(t, twoLimits), time.Now(), nil)
	if n := testutil.CollectAndCount(m.leases.ends) + testutil.CollectAndCount(m.leases.badIDs) + testutil.CollectAndCount(m.leases.tooMany); n != 0 {
		t.Errorf("%d series of rules that no longer exist", n)
	}
}
