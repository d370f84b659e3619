package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// The denied hits that a cache has not sent belong to the state before a reset: sent after it, they
// would use up the key again.
func TestResetDropsDeniedHitsOfTheDenyCache(t *testing.T) {
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 2, Window: time.Hour, CountDenied: true, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}})
	reset := map[string]func(*guard.DenyCache, limiters.Store) error{
		"by this replica": func(c *guard.DenyCache, _ limiters.Store) error {
			_, err := c.Reset(context.Background(), []limiters.StateName{limit.StateName("k")})
			return err
		},
		"by another": func(c *guard.DenyCache, inner limiters.Store) error {
			_, err := inner.Reset(context.Background(), []limiters.StateName{limit.StateName("k")})
			c.ForgetKeys([]limiters.StateName{limit.StateName("k")})
			return err
		},
		"of matching keys": func(c *guard.DenyCache, _ limiters.Store) error {
			_, err := c.ResetMatching(context.Background(), func(key string) bool { return key == "k" }, "")
			return err
		},
		"of matching keys by another": func(c *guard.DenyCache, inner limiters.Store) error {
			match := func(key string) bool { return key == "k" }
			_, err := inner.ResetMatching(context.Background(), match, "")
			c.ForgetMatching(match)
			return err
		},
	}
	for name, reset := range reset {
		inner := memstore.New(memstore.Options{})
		cache := guard.NewDenyCache(inner, guard.DenyCacheOptions{MaxAge: time.Hour})
		charge := func(key string) limiters.Verdict {
			return take(t, cache, limiters.Op{Key: key, Limit: limit, Hits: 1})[0]
		}
		for range 10 {
			charge("k")
			charge("other")
		}
		if v := charge("k"); v.By != limiters.ByCache || v.Allowed {
			t.Fatalf("%s: %+v, want a denial by the cache", name, v)
		}
		if err := reset(cache, inner); err != nil {
			t.Fatal(name, err)
		}
		if v := charge("k"); !v.Allowed || v.Used != 1 {
			t.Errorf("%s: after the reset: %+v", name, v)
		}
		if v := charge("other"); v.Allowed || v.By != limiters.ByCache {
			t.Errorf("%s: another key: %+v", name, v)
		}
		must.Succeed(t, cache.Close(context.Background()))
		if v := take(t, inner, limiters.Op{Key: "k", Limit: limit})[0]; v.Used != 1 {
			t.Errorf("%s: the store has %+v, want only the hit after the reset", name, v)
		}
	}
}

// A resetless store fails every reset.
type resetless struct{ limiters.Store }

func (resetless) Reset(context.Context, []limiters.StateName) ([]bool, error) {
	return nil, errUnreachable
}

func (resetless) ResetMatching(context.Context, func(string) bool, string) (limiters.Progress, error) {
	return limiters.Progress{}, errUnreachable
}

// An operator resets a key during an outage, and the local counters decide then.
func TestResetDuringAnOutageResetsLocalCounters(t *testing.T) {
	for name, reset := range map[string]func(*guard.Fallback) error{
		"a key": func(f *guard.Fallback) error {
			_, err := f.Reset(t.Context(), []limiters.StateName{hourly.StateName("k")})
			return err
		},
		"matching keys": func(f *guard.Fallback) error {
			_, err := f.ResetMatching(t.Context(), func(key string) bool { return key == "k" }, "")
			return err
		},
	} {
		local := memory()
		f := guard.NewFallback(resetless{memory()}, guard.FallbackOptions{Local: local})
		take(t, local, op("k"))
		if err := reset(f); err == nil {
			t.Errorf("%s: no error, and the store is unreachable", name)
		}
		if v := take(t, local, op("k"))[0]; v.Used != 1 {
			t.Errorf("%s: the local counter was not reset: %+v", name, v)
		}
	}
}

// A reset that fails because the store is unreachable ends no lease. The slots of requests that
// ended meanwhile are free soon after the store is back.
func TestFailedResetLosesNoEnds(t *testing.T) {
	limit := lease("a").Limit
	for name, reset := range map[string]func(*guard.EndRetrier) error{
		"a key": func(r *guard.EndRetrier) error {
			_, err := r.Reset(t.Context(), []limiters.StateName{limit.StateName("k")})
			return err
		},
		"matching keys": func(r *guard.EndRetrier) error {
			_, err := r.ResetMatching(t.Context(), func(string) bool { return true }, "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				r := guard.NewEndRetrier(resetless{f.store})
				f.Cleanup(func() { _ = r.Close(context.Background()) })
				f.mustTake(r, []limiters.Op{lease("a")}, "ok used=1 remaining=1 reset=10s")
				f.store.set(0, 0, errUnreachable)
				f.endFails(r, "a")
				if err := reset(r); err == nil {
					t.Error("no error, and the store is unreachable")
				}
				f.store.set(0, 0, nil)
				time.Sleep(time.Second)
				if got := r.Stats(); got != (guard.EndRetrierStats{Retried: 1}) || f.usage() != 0 {
					t.Errorf("%+v and %d slots held, want the end repeated", got, f.usage())
				}
			})
		})
	}
}
