package guard_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// With one replica, a store with a cache decides exactly as the store by itself. The calls are
// random: charges, peeks, refunds and groups, under limits that change as in a reload. Once the
// debts are sent, the usage of the keys is the same too. The retry time of a denial is never too
// short, except for hits charged after the denial was cached.
func TestDenyCacheChangesNoDecision(t *testing.T) { changesNoDecision(t, limiterstest.NewGenerator) }

// With penalties, no offense is hidden: every penalty begins with the same request.
func TestDenyCacheHidesNoOffense(t *testing.T) {
	changesNoDecision(t, limiterstest.NewPenaltyGenerator)
}

func changesNoDecision(t *testing.T, generator func(algorithm string, seed uint64) *limiterstest.Generator) {
	t.Helper()
	answered, denied := int64(0), 0
	for _, name := range limiterstest.WindowedAlgorithms() {
		for seed := range limiterstest.Seeds(400) {
			synctest.Test(t, func(t *testing.T) {
				c := newComparison(t, generator(name, seed))
				for range 150 {
					c.step(t)
				}
				c.compareUsage(t)
				answered, denied = answered+c.cached.Stats().Answered, denied+c.denied
			})
		}
	}
	t.Logf("%d denied, of which %d from memory", denied, answered)
	if answered < int64(denied)/20 {
		t.Error("too few to be a test")
	}
}

// A comparison makes the same random calls to a store by itself and to a store with a cache.
type comparison struct {
	calls  *limiterstest.Generator
	bare   limiters.Store
	cached *guard.DenyCache
	maxAge time.Duration

	window  time.Duration
	penalty limiters.PenaltySpec
	start   time.Time
	last    time.Time // the generator's time at the last call

	ops     map[string]limiters.Op // the last operation on each key
	charged map[string]time.Time   // the last charge of each key
	denied  int
}

func newComparison(t *testing.T, calls *limiterstest.Generator) *comparison {
	t.Helper()
	last, groups := calls.Next()
	first := groups[0][0].Limit.Spec()
	// Denials of long windows are kept longer, so that the cache does not wake each second of a
	// year.
	maxAge := max(time.Second, first.Window/10)
	return &comparison{
		calls: calls, bare: memstore.New(memstore.Options{}), maxAge: maxAge,
		cached: cached(t, memstore.New(memstore.Options{}), guard.DenyCacheOptions{MaxAge: maxAge, MaxBytes: 64 << 10}),
		window: first.Window, penalty: first.Params.Penalty, start: time.Now(), last: last,
		ops: map[string]limiters.Op{}, charged: map[string]time.Time{},
	}
}

// step makes the next call to both stores and compares their verdicts.
func (c *comparison) step(t *testing.T) {
	t.Helper()
	now, groups := c.calls.Next()
	ops := slices.Concat(groups...)
	if slices.ContainsFunc(ops, func(op limiters.Op) bool { return op.Limit.Spec().Params.Penalty != c.penalty }) {
		return // a lower max ends penalties, which caches see after MaxAge
	}
	const clockRange = 100 * 365 * 24 * time.Hour // beyond it clocks overflow
	if d := min(now.Sub(c.last), 3*c.window); d > 0 && time.Since(c.start) < clockRange {
		time.Sleep(d)
	}
	c.last = now
	want, got := make([]limiters.Verdict, len(ops)), make([]limiters.Verdict, len(ops))
	must.Succeed(t, c.bare.Take(context.Background(), groups, want))
	must.Succeed(t, c.cached.Take(context.Background(), groups, got))
	for i, op := range ops {
		c.ops[op.Key] = op
		if !want[i].Allowed {
			c.denied++
		}
		if op.Hits > 0 && got[i].Allowed {
			c.charged[op.Key] = time.Now()
		}
		if reason := contradiction(got[i], want[i], op, time.Since(c.charged[op.Key]) < c.maxAge); reason != "" {
			t.Fatalf("%s: operation %d of %+v under %+v: %s:\n got %s\nwant %s",
				c.calls.Name, i, ops, op.Limit.Spec(), reason, describe(got[i]), describe(want[i]))
		}
	}
	c.calls.Observe(want)
}

// contradiction returns how got contradicts want, or "". The store with a cache decided got, and
// the store by itself decided want. chargedLater reports whether the key may have been charged
// after its denial was cached.
func contradiction(got, want limiters.Verdict, op limiters.Op, chargedLater bool) string {
	got.Order, want.Order = 0, 0 // two stores
	if got == want {
		return ""
	}
	if got.By != limiters.ByCache {
		return "the verdict of the store differs"
	}
	if got.Allowed != want.Allowed {
		return "the cache changes the decision"
	}
	never := want.RetryAfter < 0
	if never != (got.RetryAfter < 0) {
		return "only one of the verdicts denies forever"
	}
	if !never && !chargedLater && got.RetryAfter < want.RetryAfter {
		return "the retry time of the cache is too short"
	}
	if op.Limit.Spec().CountDenied && !op.Limit.HasPenalty() && got.ResetAfter != want.ResetAfter {
		return "the reset time of the cache differs although the limit counts denied hits"
	}
	return ""
}

// compareUsage sends the debts, and then compares the usage of each key.
func (c *comparison) compareUsage(t *testing.T) {
	t.Helper()
	must.Succeed(t, c.cached.Close(context.Background()))
	for _, op := range c.ops {
		op.Hits = 0
		want, got := take(t, c.bare, op)[0], take(t, c.cached, op)[0]
		want.Order, got.Order = 0, 0 // two stores
		if got.By != limiters.ByCache && got != want {
			t.Fatalf("%s: %q in the end:\n got %s\nwant %s", c.calls.Name, op.Key, describe(got), describe(want))
		}
	}
}
