package guard_test

import (
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

// The store answers an inspection, after the hits that the cache has denied.
func TestInspectionsReadTheStore(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		two := limit(limiters.Spec{Max: 2, CountDenied: true})
		inspection := []limiters.Op{{Key: "k", Limit: two, Kind: limiters.OpInspect}}
		a.mustTake("k", two, 2, "ok used=2 remaining=0 reset=60s")
		f.mustTake(a, inspection, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("k", two, 0, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", two, 1, "denied used=3 remaining=0 retry=60s reset=60s")
		a.mustTake("k", two, 1, "cached: denied used=4 remaining=0 retry=60s reset=60s")
		f.mustTake(a, inspection, "denied used=4 remaining=0 retry=60s reset=60s")
		// The N of an inspection means nothing, so its denial says nothing about charges of that
		// size.
		funnel := limit(limiters.Spec{Algorithm: "funnel", Max: 6})
		a.mustTake("f", funnel, 6, "ok used=6 remaining=0 reset=60s")
		f.mustTake(a, []limiters.Op{{Key: "f", Limit: funnel, Hits: 3, Kind: limiters.OpInspect}}, "denied used=6 remaining=0 retry=10s reset=60s")
		a.mustTake("f", funnel, 3, "denied used=6 remaining=0 retry=30s reset=60s")
		if got, want := a.Stats().Lookups, int64(6); got != want {
			t.Errorf("%d lookups: want %d, because an inspection does not look up", got, want)
		}
	})
}
