package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func (w *world) endQueue() *guard.EndQueue {
	q := guard.NewEndQueue(w.store)
	w.Cleanup(func() { _ = q.Close(context.Background()) })
	return q
}

// ends sends the end of an id, which fails.
func (w *world) endFails(q *guard.EndQueue, ids ...string) {
	w.Helper()
	for _, id := range ids {
		out := make([]limiters.Verdict, 1)
		if err := q.Take(context.Background(), time.Time{}, limiters.Singles(lease(id, 0, end)), out); err == nil && out[0].Err == nil {
			w.Errorf("the end of %s did not fail: %+v", id, out[0])
		}
	}
}

// held returns the slots held in the store itself.
func (w *world) held() int64 {
	return takeGroups(w, w.store.inner, limiters.Group{lease("z", 0, peek)})[0].Used
}

func TestEndQueuePassesTheSuite(t *testing.T) {
	limiterstest.Run(t, func(t *testing.T) limiters.Store {
		q := guard.NewEndQueue(memory())
		t.Cleanup(func() { _ = q.Close(context.Background()) })
		return q
	})
}

// A stream ends while the store is down. Its slot is free soon after the store is back, long before its TTL.
func TestFailedEndIsRepeatedUntilTheStoreIsBack(t *testing.T) {
	for name, fail := range map[string]func(w *world, yes bool){
		"unreachable": func(w *world, yes bool) { w.store.set(0, 0, map[bool]error{true: errGone}[yes]) },
		"lost reply":  func(w *world, yes bool) { w.store.hears(map[bool]error{true: errGone}[yes]) },
		"one key":     func(w *world, yes bool) { w.store.fails(map[bool]string{true: "k"}[yes]) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				q := w.endQueue()
				w.takes(q, []limiters.Hit{lease("a", 0), lease("b", 0)}, "ok used=1 remaining=1 reset=10s", "ok used=2 remaining=0 reset=10s")
				fail(w, true)
				w.endFails(q, "a")
				time.Sleep(3 * time.Second)
				if got := q.Stats(); got != (guard.EndStats{Pending: 1}) {
					t.Errorf("during the failure: %+v, want one pending", got)
				}
				fail(w, false)
				time.Sleep(time.Second)
				if got := q.Stats(); got != (guard.EndStats{Repeated: 1}) || w.held() != 1 {
					t.Errorf("after the failure: %+v and %d slots held, want one repeated and one slot of the other", got, w.held())
				}
				calls := w.store.calls.Load()
				time.Sleep(time.Minute)
				if got := w.store.calls.Load(); got != calls {
					t.Errorf("%d calls of an empty queue", got-calls)
				}
			})
		})
	}
}

// Only ends are repeated: a take that is run later would hold a slot for a request that is long over.
func TestEndQueueRepeatsNoTake(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.endQueue()
		w.store.set(0, 0, errGone)
		for _, h := range []limiters.Hit{lease("a", 0), {Key: "k", Limit: twoALog, N: -1}, {Key: "k", Limit: twoALog, N: 1}} {
			_ = q.Take(context.Background(), time.Time{}, limiters.Singles(h), make([]limiters.Verdict, 1))
		}
		_ = q.Take(context.Background(), time.Now(), limiters.Singles(lease("a", 0, end)), make([]limiters.Verdict, 1))
		if got := q.Stats(); got != (guard.EndStats{}) {
			t.Errorf("%+v, want nothing pending", got)
		}
	})
}

func TestEndQueueIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.endQueue()
		w.store.set(0, 0, errGone)
		const most, more = 50_000, 7
		for i := range most + more {
			w.endFails(q, fmt.Sprint(i))
		}
		if got := q.Stats(); got.Pending+got.Lost != most+more || got.Lost < more || got.Pending > most {
			t.Errorf("%+v, want %d pending and %d lost", got, most, more)
		}
		time.Sleep(11 * time.Second) // more than the TTL
		if got := q.Stats(); got != (guard.EndStats{Lost: most + more}) {
			t.Errorf("after the TTL: %+v, want all lost", got)
		}
	})
}

func TestEndQueueSurvivesPanic(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.endQueue()
		w.takes(q, []limiters.Hit{lease("a", 0)}, "ok used=1 remaining=1 reset=10s")
		w.store.set(0, 0, errGone)
		w.endFails(q, "a")
		w.store.panics(true)
		time.Sleep(time.Second)
		w.store.panics(false)
		w.store.set(0, 0, nil)
		time.Sleep(time.Second)
		if got := w.held(); got != 0 {
			t.Errorf("%d slots held, want none", got)
		}
	})
}

func TestEndQueueRepeatsOnceMoreWhenClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, back := range []bool{true, false} {
			q := guard.NewEndQueue(w.store)
			w.takes(q, []limiters.Hit{lease("a", 0)}, "ok used=1 remaining=1 reset=10s")
			w.store.set(0, 0, errGone)
			w.endFails(q, "a")
			synctest.Wait()
			if back {
				w.store.set(0, 0, nil)
			}
			if err := q.Close(context.Background()); (err == nil) != back {
				t.Errorf("the store is back: %t, Close: %v", back, err)
			}
			w.store.set(0, 0, nil)
			if got := w.held(); (got == 0) != back {
				t.Errorf("the store is back: %t, %d slots held", back, got)
			}
			time.Sleep(20 * time.Second)
		}
	})
}
