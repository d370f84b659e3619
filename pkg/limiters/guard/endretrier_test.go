package guard_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func (f *fixture) endRetrier() *guard.EndRetrier {
	r := guard.NewEndRetrier(f.store)
	f.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// endFails sends the ends of ids, and checks that each fails.
func (f *fixture) endFails(r *guard.EndRetrier, ids ...string) {
	f.Helper()
	for _, id := range ids {
		out := make([]limiters.Verdict, 1)
		if err := r.Take(context.Background(), limiters.Singles(lease(id, end)), out); err == nil && out[0].Err == nil {
			f.Errorf("the end of %s did not fail: %+v", id, out[0])
		}
	}
}

// usage returns the slots held in the store itself.
func (f *fixture) usage() int64 {
	return takeGroups(f, f.store.Store, limiters.Group{lease("z", peek)})[0].Used
}

func TestEndRetrierPassesTheSuite(t *testing.T) {
	limiterstest.Run(t, func(t *testing.T) limiterstest.TimedStore {
		r := guard.NewEndRetrier(memory())
		t.Cleanup(func() { _ = r.Close(context.Background()) })
		return limiterstest.Decorated(r)
	})
}

// A stream ends while the store is down. Its slot is free soon after the store is back, long before
// its TTL.
func TestFailedEndIsRepeatedUntilTheStoreIsBack(t *testing.T) {
	for _, c := range []struct {
		name            string
		fails, recovers func(f *fixture)
	}{
		{"unreachable", func(f *fixture) { f.store.set(0, 0, errUnreachable) }, func(f *fixture) { f.store.set(0, 0, nil) }},
		{"lost reply", func(f *fixture) { f.store.setReplyErr(errUnreachable) }, func(f *fixture) { f.store.setReplyErr(nil) }},
		{"one key", func(f *fixture) { f.store.setBadKey("k") }, func(f *fixture) { f.store.setBadKey("") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				r := f.endRetrier()
				f.mustTake(r, []limiters.Op{lease("a"), lease("b")}, "ok used=1 remaining=1 reset=10s", "ok used=2 remaining=0 reset=10s")
				c.fails(f)
				f.endFails(r, "a")
				time.Sleep(3 * time.Second)
				if got := r.Stats(); got != (guard.EndRetrierStats{Pending: 1}) {
					t.Errorf("during the failure: %+v, want one pending", got)
				}
				c.recovers(f)
				time.Sleep(time.Second)
				if got := r.Stats(); got != (guard.EndRetrierStats{Retried: 1}) || f.usage() != 1 {
					t.Errorf("after the failure: %+v and %d slots held, want one repeated and one slot of the other", got, f.usage())
				}
				calls := f.store.calls.Load()
				time.Sleep(time.Minute)
				if got := f.store.calls.Load(); got != calls {
					t.Errorf("%d calls without a pending end", got-calls)
				}
			})
		})
	}
}

// Only ends are repeated: a lease that is opened later would hold a slot for a request that is long
// over.
func TestEndRetrierRetriesOnlyEnds(t *testing.T) {
	withFixture(t, func(f *fixture) {
		r := f.endRetrier()
		f.store.set(0, 0, errUnreachable)
		for _, op := range []limiters.Op{lease("a"), {Key: "k", Limit: logOfTwo, Hits: -1}, {Key: "k", Limit: logOfTwo, Hits: 1}} {
			_ = takeError(context.Background(), r, op)
		}
		if got := r.Stats(); got != (guard.EndRetrierStats{}) {
			t.Errorf("%+v, want nothing pending", got)
		}
	})
}

func TestEndRetrierIsBounded(t *testing.T) {
	withFixture(t, func(f *fixture) {
		r := f.endRetrier()
		f.store.set(0, 0, errUnreachable)
		const maximum, more = 50_000, 7
		for i := range maximum + more {
			f.endFails(r, fmt.Sprint(i))
		}
		if got := r.Stats(); got.Pending+got.Lost != maximum+more || got.Lost < more || got.Pending > maximum {
			t.Errorf("%+v, want %d pending and %d lost", got, maximum, more)
		}
		time.Sleep(11 * time.Second) // more than the TTL
		if got := r.Stats(); got != (guard.EndRetrierStats{Lost: maximum + more}) {
			t.Errorf("after the TTL: %+v, want all lost", got)
		}
	})
}

func TestEndRetrierSurvivesPanic(t *testing.T) {
	withFixture(t, func(f *fixture) {
		r := f.endRetrier()
		f.mustTake(r, []limiters.Op{lease("a")}, "ok used=1 remaining=1 reset=10s")
		f.store.set(0, 0, errUnreachable)
		f.endFails(r, "a")
		f.store.setPanic(true)
		time.Sleep(time.Second)
		f.store.setPanic(false)
		f.store.set(0, 0, nil)
		time.Sleep(time.Second)
		if got := f.usage(); got != 0 {
			t.Errorf("%d slots held, want none", got)
		}
	})
}

func TestEndRetrierRetriesOnceMoreWhenClosed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		for _, back := range []bool{true, false} {
			r := guard.NewEndRetrier(f.store)
			f.mustTake(r, []limiters.Op{lease("a")}, "ok used=1 remaining=1 reset=10s")
			f.store.set(0, 0, errUnreachable)
			f.endFails(r, "a")
			synctest.Wait()
			if back {
				f.store.set(0, 0, nil)
			}
			if err := r.Close(context.Background()); (err == nil) != back {
				t.Errorf("the store is back: %t, Close: %v", back, err)
			}
			f.store.set(0, 0, nil)
			if got := f.usage(); (got == 0) != back {
				t.Errorf("the store is back: %t, %d slots held", back, got)
			}
			time.Sleep(20 * time.Second)
		}
	})
}

// A release is repeated by Envoy or by a request that gives up. It is pending once.
func TestEndRetrierHoldsEachEndOnce(t *testing.T) {
	withFixture(t, func(f *fixture) {
		r := f.endRetrier()
		f.mustTake(r, []limiters.Op{lease("a"), lease("b")}, "ok used=1 remaining=1 reset=10s", "ok used=2 remaining=0 reset=10s")
		f.store.set(0, 0, errUnreachable)
		for range 3 {
			f.endFails(r, "a", "b", "a")
			time.Sleep(time.Second) // they are retried meanwhile
		}
		reserved := limiters.Op{Key: "k", Limit: reserves, Lease: lease("a").Lease, Kind: limiters.OpEnd}
		other := lease("a", end)
		other.Key = "other"
		for range 2 {
			_ = takeError(t.Context(), r, reserved, other)
		}
		if got := r.Stats(); got != (guard.EndRetrierStats{Pending: 4}) {
			t.Errorf("%+v, want two ids of a key, one under another limit and one of another key", got)
		}
		f.store.set(0, 0, nil)
		time.Sleep(time.Second)
		if got := r.Stats(); got != (guard.EndRetrierStats{Retried: 4}) || f.usage() != 0 {
			t.Errorf("%+v and %d slots held, want all repeated once", got, f.usage())
		}
		f.store.set(0, 0, errUnreachable)
		f.endFails(r, "a")
		if got := r.Stats().Pending; got != 1 {
			t.Errorf("%d pending, want the end once more", got)
		}
	})
}

// A deaf store answers no call before the call's context ends.
type deaf struct{ limiters.Store }

func (d deaf) Take(ctx context.Context, _ []limiters.Group, out []limiters.Verdict) error {
	<-ctx.Done()
	return limiters.FailAll(out, ctx.Err())
}

// A muted store is deaf once mute is set.
type muted struct {
	limiters.Store
	mute atomic.Bool
}

func (m *muted) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if m.mute.Load() {
		return deaf{}.Take(ctx, groups, out)
	}
	return m.Store.Take(ctx, groups, out)
}

// Close returns when its context ends, even if a call is under way as it begins.
func TestCloseIsBounded(t *testing.T) {
	const bound = 300 * time.Millisecond
	for name, open := range map[string]func(f *fixture, store limiters.Store) interface{ Close(context.Context) error }{
		"ends": func(f *fixture, store limiters.Store) interface{ Close(context.Context) error } {
			r := guard.NewEndRetrier(store)
			ctx, cancel := context.WithTimeout(f.Context(), time.Millisecond)
			defer cancel()
			_ = takeError(ctx, r, lease("a", end))
			return r
		},
		"denials": func(f *fixture, _ limiters.Store) interface{ Close(context.Context) error } {
			through := &muted{Store: f.store}
			c := guard.NewDenyCache(through, guard.DenyCacheOptions{MaxAge: time.Second})
			counted := limit(limiters.Spec{Max: 2, CountDenied: true})
			for range 5 {
				take(f, c, limiters.Op{Key: "k", Limit: counted, Hits: 2})
			}
			through.mute.Store(true) // the cache calls the store in a goroutine of its own
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, after := range []time.Duration{0, 10 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} {
				withFixture(t, func(f *fixture) {
					part := open(f, deaf{})
					time.Sleep(after)
					synctest.Wait()
					begin := time.Now()
					ctx, cancel := context.WithTimeout(context.Background(), bound)
					defer cancel()
					if err := part.Close(ctx); err == nil {
						t.Error("Close returned nil although the store answers nothing, want an error")
					}
					if took := time.Since(begin); took > bound {
						t.Errorf("closed %v after the start: took %v, want at most %v", after, took, bound)
					}
				})
			}
		})
	}
}
