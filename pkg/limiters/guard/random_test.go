package guard_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// With one replica, a store with a cache decides exactly as the store by itself. The calls are random: hits, peeks, refunds and
// groups, under limits that change as in a reload. Once the debts are sent, the usage of the keys is the same too. The retry
// time of a denial is never too short, except for hits charged after the denial was cached.
func TestDenyCacheChangesNoDecision(t *testing.T) { changesNoDecision(t, limiterstest.NewGenerator) }

// With penalties, no offence is hidden: every penalty begins with the same request.
func TestDenyCacheHidesNoOffence(t *testing.T) {
	changesNoDecision(t, limiterstest.NewPenaltyGenerator)
}

func changesNoDecision(t *testing.T, generator func(algorithm string, seed uint64) *limiterstest.Generator) {
	t.Helper()
	answered, denied := int64(0), 0
	for _, name := range limiterstest.Windowed() {
		for seed := range limiterstest.Seeds(400) {
			synctest.Test(t, func(t *testing.T) {
				bare := memstore.New(memstore.Options{})
				g := generator(name, seed)
				last, first := g.Next()
				window := first[0][0].Limit.Spec().Window
				// Denials of long windows are kept longer, so that the cache does not wake each second of a year.
				o := guard.DenyCacheOptions{MaxAge: max(time.Second, window/10), MaxBytes: 64 << 10}
				c := cached(t, memstore.New(memstore.Options{}), o)
				start, held := time.Now(), map[string]limiters.Hit{}
				charged := map[string]time.Time{}
				for range 150 {
					now, groups := g.Next()
					hits := slices.Concat(groups...)
					if slices.ContainsFunc(hits, func(h limiters.Hit) bool {
						return h.Limit.Spec().Params.Penalty != first[0][0].Limit.Spec().Params.Penalty
					}) {
						continue // a lower max ends penalties, which caches see after MaxAge
					}
					if d := min(now.Sub(last), 3*window); d > 0 && time.Since(start) < 100*365*24*time.Hour { // beyond that clocks overflow
						time.Sleep(d)
					}
					last = now
					want, got := make([]limiters.Verdict, len(hits)), make([]limiters.Verdict, len(hits))
					if err := bare.Take(context.Background(), time.Time{}, groups, want); err != nil {
						t.Fatal(err)
					}
					if err := c.Take(context.Background(), time.Time{}, groups, got); err != nil {
						t.Fatal(err)
					}
					for i, h := range hits {
						held[h.Key] = h
						if !want[i].Allowed {
							denied++
						}
						if h.N > 0 && got[i].Allowed {
							charged[h.Key] = time.Now()
						}
						never := want[i].RetryAfter < 0
						want[i].Order, got[i].Order = 0, 0 // two stores
						switch {
						case got[i].By != limiters.ByCache && got[i] != want[i]:
						case got[i].Allowed != want[i].Allowed || never != (got[i].RetryAfter < 0):
						case got[i].By == limiters.ByCache && !never && time.Since(charged[h.Key]) >= o.MaxAge && got[i].RetryAfter < want[i].RetryAfter:
						case got[i].By == limiters.ByCache && h.Limit.Spec().CountDenied && !h.Limit.HasPenalty() && got[i].ResetAfter != want[i].ResetAfter:
						default:
							continue
						}
						t.Fatalf("seed %d of %s: hit %d of %+v under %+v:\n got %s\nwant %s", seed, name, i, hits, h.Limit.Spec(), describe(got[i]), describe(want[i]))
					}
					g.Observe(want)
				}
				if err := c.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
				for _, h := range held {
					h.N = 0
					want, got := take(t, bare, h)[0], take(t, c, h)[0]
					want.Order, got.Order = 0, 0 // two stores
					if got.By != limiters.ByCache && got != want {
						t.Fatalf("seed %d of %s: %q in the end:\n got %s\nwant %s", seed, name, h.Key, describe(got), describe(want))
					}
				}
				answered += c.Stats().Answered
			})
		}
	}
	t.Logf("%d denied, of which %d from memory", denied, answered)
	if answered < int64(denied)/20 {
		t.Error("too few to be a test")
	}
}
