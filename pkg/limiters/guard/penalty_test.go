package guard_test

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// twoAPenalty allows two hits a minute. The third offense begins a penalty of 90 s.
var twoAPenalty = limiterstest.MustLimit(limiters.Spec{
	Algorithm: "fixed_window", Max: 2, Window: time.Minute, CountDenied: true,
	Params: limiters.Params{Penalty: limiters.PenaltySpec{After: 3, Within: time.Hour, For: 90 * time.Second}},
})

// Each offense reaches the store. During the penalty the cache answers, until MaxAge or the
// penalty's end.
func TestOffensesAreForwardedAndPenaltiesRemembered(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		a.mustTake("k", twoAPenalty, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", twoAPenalty, 1, "denied used=3 remaining=0 retry=60s reset=60s")
		a.mustTake("k", twoAPenalty, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		b.mustTake("k", twoAPenalty, 1, "penalized used=5 remaining=0 retry=90s reset=90s")
		a.mustTake("k", twoAPenalty, 2, "penalized used=5 remaining=0 retry=90s reset=90s")
		time.Sleep(400 * time.Millisecond)
		a.mustTake("k", twoAPenalty, 2, "cached: penalized used=5 remaining=0 retry=1m29.6s reset=1m29.6s")
		time.Sleep(89*time.Second + 100*time.Millisecond)
		a.mustTake("k", twoAPenalty, 1, "penalized used=0 remaining=0 retry=500ms reset=30.5s")
		time.Sleep(500*time.Millisecond - time.Microsecond - 1)
		a.mustTake("k", twoAPenalty, 1, "cached: penalized used=0 remaining=0 retry=2µs reset=30.000002s")
		time.Sleep(2 * time.Microsecond)
		a.mustTake("k", twoAPenalty, 1, "ok used=1 remaining=1 reset=30s")
	})
}

// The goroutine renews no penalty: a peek that arrives after its end could be denied, and would be
// an offense.
func TestPenaltyIsNotRenewed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", twoAPenalty, 2, "ok used=2 remaining=0 reset=60s")
		for range 3 {
			take(f, a, limiters.Op{Key: "k", Limit: twoAPenalty, Hits: 1})
		}
		calls := a.link.calls.Load()
		for range 9 {
			if v := take(f, a, limiters.Op{Key: "k", Limit: twoAPenalty, Hits: 1})[0]; !v.Penalized || v.By != limiters.ByCache {
				t.Errorf("%s: want a penalty from memory", describe(v))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := a.link.calls.Load(); got != calls {
			t.Errorf("%d calls of the store, want none", got-calls)
		}
	})
}

// A cached penalty ends at the same time for several hits as for one, unless the limit itself
// denies them for longer.
func TestCachedPenaltyEndsAtOneTimeForAnyHits(t *testing.T) {
	limit := limiterstest.MustLimit(limiters.Spec{
		Algorithm: "fixed_window", Max: 10, Window: time.Hour,
		Params: limiters.Params{WindowStart: limiters.StartByFirstHit, Penalty: limiters.PenaltySpec{After: 1, Within: time.Minute, For: 90 * time.Second}},
	})
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", limit, 3, "ok used=3 remaining=7 reset=3600s")
		a.mustTake("k", limit, 8, "denied used=3 remaining=0 retry=3600s reset=3600s")
		a.mustTake("k", limit, 1, "penalized used=3 remaining=0 retry=90s reset=3600s")
		a.mustTake("k", limit, 7, "cached: penalized used=3 remaining=0 retry=90s reset=3600s")
		a.mustTake("k", limit, 8, "cached: denied used=3 remaining=0 retry=3600s reset=3600s")
		a.mustTake("k", limit, 11, "cached: denied used=3 remaining=0 retry=never reset=3600s")
	})
}
