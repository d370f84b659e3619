package ratelimitstats

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

func limitOf(t testing.TB, spec limiters.Spec) descriptors.RateLimit {
	t.Helper()
	if spec.Window == 0 {
		spec.Window = time.Minute
	}
	l, err := limiters.NewLimit(spec)
	must.Succeed(t, err)
	return descriptors.RateLimit{Unit: descriptors.Minute, UnitMultiplier: 1, RequestsPerUnit: spec.Max, Limit: l}
}

func fixed(max int64) limiters.Spec {
	return limiters.Spec{Algorithm: "fixed_window", Max: max, CountDenied: true}
}

func TestTallyMatchesEnvoyRatelimit(t *testing.T) {
	notCounted := fixed(10)
	notCounted.CountDenied = false
	funnel := limiters.Spec{Algorithm: "funnel", Max: 100, Params: limiters.Params{Capacity: 10}}
	log := limiters.Spec{Algorithm: "sliding_log", Max: 10}
	logged := limiters.Spec{Algorithm: "sliding_log", Max: 10, CountDenied: true}
	for _, c := range []struct {
		name     string
		spec     limiters.Spec
		ratio    float32
		n, used  int64
		allowed  bool
		shadowed bool
		want     tally
	}{
		{"far below", fixed(10), .8, 1, 1, true, false, tally{totalHits: 1, withinLimit: 1}},
		{"up to the near limit", fixed(10), .8, 8, 8, true, false, tally{totalHits: 8, withinLimit: 8}},
		{"across the near limit", fixed(10), .8, 5, 9, true, false, tally{totalHits: 5, withinLimit: 5, nearLimit: 1}},
		{"first above the near limit", fixed(10), .8, 1, 9, true, false, tally{totalHits: 1, withinLimit: 1, nearLimit: 1}},
		{"up to the limit", fixed(10), .8, 1, 10, true, false, tally{totalHits: 1, withinLimit: 1, nearLimit: 1}},
		{"all of the near part", fixed(10), .8, 2, 10, true, false, tally{totalHits: 2, withinLimit: 2, nearLimit: 2}},
		{"across everything", fixed(10), .8, 15, 15, false, false, tally{totalHits: 15, overLimit: 5, nearLimit: 2}},
		{"across the limit", fixed(10), .8, 3, 12, false, false, tally{totalHits: 3, overLimit: 2, nearLimit: 1}},
		{"from the limit on", fixed(10), .8, 3, 13, false, false, tally{totalHits: 3, overLimit: 3}},
		{"far above", fixed(10), .8, 3, 1000, false, false, tally{totalHits: 3, overLimit: 3}},
		{"a limit of 0", fixed(0), .8, 3, 0, false, false, tally{totalHits: 3, overLimit: 3}},
		{"a limit of one", fixed(1), .8, 1, 1, true, false, tally{totalHits: 1, withinLimit: 1, nearLimit: 1}},
		{"a ratio of 1", fixed(10), 1, 1, 10, true, false, tally{totalHits: 1, withinLimit: 1}},
		{"a ratio of 1, across", fixed(10), 1, 3, 12, false, false, tally{totalHits: 3, overLimit: 2}},
		{"a ratio of 0", fixed(10), 0, 4, 4, true, false, tally{totalHits: 4, withinLimit: 4, nearLimit: 4}},
		{"a ratio above 1", fixed(10), 5, 3, 12, false, false, tally{totalHits: 3, overLimit: 2}},
		// 100 * 0.29 is 28.999999999999996 in 64 bits, and 29 in the 32 bits of
		// envoyproxy/ratelimit.
		{"32 bits", fixed(100), .29, 30, 30, true, false, tally{totalHits: 30, withinLimit: 30, nearLimit: 1}},
		{"the largest limit", fixed(limiters.LargestMax), 1, 1, limiters.LargestMax, true, false,
			tally{totalHits: 1, withinLimit: 1}},
		{"more than MaxHits", fixed(10), .8, limiters.MaxHits, limiters.MaxHits, false, false,
			tally{totalHits: limiters.MaxHits, overLimit: limiters.MaxHits - 10, nearLimit: 2}},
		{"shadow", fixed(10), .8, 3, 12, false, true, tally{totalHits: 3, overLimit: 2, nearLimit: 1, shadowMode: 2}},
		{"shadow, all above", fixed(10), .8, 3, 15, false, true, tally{totalHits: 3, overLimit: 3, shadowMode: 3}},
		{"shadow, all below", fixed(10), .8, 3, 9, true, true, tally{totalHits: 3, withinLimit: 3, nearLimit: 1}},
		{"a peek", fixed(10), .8, 0, 12, false, false, tally{}},
		{"a refund", fixed(10), .8, -4, 6, true, false, tally{totalNegativeHits: 4}},
		{"denied and not counted", notCounted, .8, 3, 9, false, false, tally{totalHits: 3, overLimit: 3}},
		{"denied, not counted, and above a lowered limit", notCounted, .8, 3, 11, false, false, tally{totalHits: 3, overLimit: 3}},
		{"a funnel fills", funnel, .8, 3, 10, true, false, tally{totalHits: 3, withinLimit: 3, nearLimit: 2}},
		{"a funnel is full", funnel, .8, 3, 9, false, false, tally{totalHits: 3, overLimit: 3}},
		{"a log fills", log, .8, 1, 9, true, false, tally{totalHits: 1, withinLimit: 1, nearLimit: 1}},
		{"a log is full", log, .8, 1, 10, false, false, tally{totalHits: 1, overLimit: 1}},
		{"a log that counts, across", logged, .8, 3, 12, false, false, tally{totalHits: 3, overLimit: 2, nearLimit: 1}},
		{"a log full of denied hits", logged, .8, 3, 20, false, false, tally{totalHits: 3, overLimit: 3}},
		{"from the deny cache", fixed(10), .8, 3, 14, false, false, tally{totalHits: 3, overLimit: 3, overLimitWithLocalCache: 3}},
		{"from the deny cache, not counted", notCounted, .8, 3, 9, false, false,
			tally{totalHits: 3, overLimit: 3, overLimitWithLocalCache: 3}},
		{"from the deny cache, in shadow", fixed(10), .8, 3, 14, false, true,
			tally{totalHits: 3, overLimit: 3, overLimitWithLocalCache: 3, shadowMode: 3}},
		{"a peek, from the deny cache", fixed(10), .8, 0, 14, false, false, tally{}},
		{"denied by its group", fixed(10), .8, 3, 5, false, false, tally{totalHits: 3, overLimit: 3}},
		{"denied by its group at the limit", fixed(10), .8, 3, 10, false, false, tally{totalHits: 3, overLimit: 3}},
	} {
		by := limiters.ByStore
		if strings.Contains(c.name, "from the deny cache") {
			by = limiters.ByCache
		}
		d := &decide.Decision{Plan: &decide.Plan{Hits: c.n, Limits: []descriptors.RateLimit{limitOf(t, c.spec)}, ShadowMode: c.shadowed}, Verdicts: []limiters.Verdict{{Used: c.used, Allowed: c.allowed, By: by}}}
		if got := tallyOf(d, 0, c.ratio); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestUndecidedHitsCountAsTotalHitsOnly(t *testing.T) {
	d := &decide.Decision{Plan: &decide.Plan{Hits: 3, Limits: []descriptors.RateLimit{limitOf(t, fixed(10))}, ShadowMode: true}, Verdicts: []limiters.Verdict{{Err: errors.New("broken")}}}
	if got := tallyOf(d, 0, .8); got != (tally{totalHits: 3}) {
		t.Errorf("tally %v, want 3 total hits", got)
	}
}

// No verdict of a store may make a counter underflow.
func TestTallyNeverUnderflows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	specs := []limiters.Spec{fixed(0), fixed(1), fixed(10), {Algorithm: "funnel", Max: 3, Params: limiters.Params{Capacity: 7}},
		{Algorithm: "sliding_log", Max: 5, CountDenied: true}}
	for range 200_000 {
		d := &decide.Decision{Plan: &decide.Plan{Hits: r.Int64N(30), Limits: []descriptors.RateLimit{limitOf(t, specs[r.IntN(len(specs))])}, ShadowMode: r.IntN(2) == 0}, Verdicts: []limiters.Verdict{{Used: r.Int64N(30), Allowed: r.IntN(2) == 0}}}
		got := tallyOf(d, 0, r.Float32()*1.5)
		n := uint64(d.Hits)
		if got[totalHits] != n || got[overLimit]+got[withinLimit] > n || got[nearLimit] > n {
			t.Fatalf("%+v: got %v, want %d in total, and no more over, within or near the limit", d, got, n)
		}
	}
}

// Over one window the tallies add up: each hit is within_limit or over_limit, except the part of
// the crossing hit that fitted.
func TestEveryHitIsTalliedWithinOrOverLimit(t *testing.T) {
	limit := limitOf(t, fixed(100))
	states := []*limiters.State{{}}
	var sum tally
	for range 50 {
		d := &decide.Decision{Plan: &decide.Plan{Hits: 3, Limits: []descriptors.RateLimit{limit}}}
		out := make([]limiters.Verdict, 1)
		limiters.Decide(1_700_000_000_000_000, []limiters.Group{{{Key: "k", Limit: limit.Limit, Hits: 3}}},
			states, out, nil)
		d.Verdicts = out
		for i, n := range tallyOf(d, 0, .8) {
			sum[i] += n
		}
	}
	if want := (tally{totalHits: 150, overLimit: 50, nearLimit: 20, withinLimit: 99}); sum != want {
		t.Errorf("%v, want %v", sum, want)
	}
}

func TestLimitsOfOneDescriptorCountOnce(t *testing.T) {
	entries := []descriptors.Entry{{Key: "user", Value: "alice"}}
	rule := &descriptors.Rule{Domain: "d", Name: "user"}
	decision := func(limits []descriptors.RateLimit, verdicts ...limiters.Verdict) decide.Decision {
		return decide.Decision{Plan: &decide.Plan{Domain: "d", Rule: rule, Entries: entries, Hits: 2, Limits: limits}, Verdicts: verdicts}
	}
	// One of the two hits is over the second limit.
	d := decision([]descriptors.RateLimit{limitOf(t, fixed(100)), limitOf(t, fixed(5)), limitOf(t, fixed(10))},
		limiters.Verdict{Used: 4, Allowed: true}, limiters.Verdict{Used: 6}, limiters.Verdict{Used: 9, Allowed: true})
	// One of the two hits is near the second limit.
	other := decision([]descriptors.RateLimit{limitOf(t, fixed(100)), limitOf(t, fixed(10)), limitOf(t, fixed(100))},
		limiters.Verdict{Used: 4, Allowed: true}, limiters.Verdict{Used: 9, Allowed: true}, limiters.Verdict{Used: 4, Allowed: true})
	m := newStats(Options{})
	m.Observe(&rls.Observation{Result: decide.Result{Decisions: []decide.Decision{d, other}}})
	all := m.byDescriptor.all()
	if len(all) != 1 {
		t.Fatalf("%d series, want 1", len(all))
	}
	want := tally{totalHits: 4, overLimit: 1, nearLimit: 2, withinLimit: 2}
	if got := all[0].load(); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
