package guard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A world is a store that replicas share, in the virtual time of synctest, which starts at a midnight.
type world struct {
	*testing.T
	store *line
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&world{t, &line{Store: memstore.New(memstore.Options{})}})
	})
}

// A line is a store with latency or failures. It counts its calls and hits.
type line struct {
	limiters.Store

	mu    sync.Mutex
	there time.Duration // latency of a call
	back  time.Duration // latency of its reply
	err   error         // calls do not reach the store
	lost  error         // replies are lost
	bad   string        // a key that fails
	panic bool

	calls, hits atomic.Int64
}

func (l *line) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	l.calls.Add(1)
	l.hits.Add(int64(len(out)))
	l.mu.Lock()
	inner, there, back, err, lost, bad, panics := l.Store, l.there, l.back, l.err, l.lost, l.bad, l.panic
	l.mu.Unlock()
	if panics {
		panic("out of order")
	}
	if err != nil {
		return err
	}
	time.Sleep(there)
	err = inner.Take(ctx, now, groups, out)
	for i, h := range slices.Concat(groups...) {
		if bad != "" && h.Key == bad {
			out[i] = limiters.Verdict{Err: errors.New("a bad key")}
		}
	}
	time.Sleep(back)
	if lost != nil {
		return lost
	}
	return err
}

func (l *line) set(there, back time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there, l.back, l.err, l.lost = there, back, err, nil
}

// hears makes the replies of calls get lost, or arrive again.
func (l *line) hears(lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = lost
}

func (l *line) panics(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.panic = yes
}

// fails makes hits on a key fail.
func (l *line) fails(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = key
}

func (l *line) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Store = memstore.New(memstore.Options{})
}

// A replica is a cache that wraps the store of the world, on a line of its own.
type replica struct {
	*guard.DenyCache
	w    *world
	line *line
}

func (w *world) replica(o guard.DenyOptions) *replica {
	l := &line{Store: w.store}
	r := &replica{guard.NewDenyCache(l, o), w, l}
	w.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// describe returns a verdict as the traces write it, and whether it was cached.
func describe(v limiters.Verdict) string {
	if v.By == limiters.ByCache {
		return "cached: " + limiterstest.Format(v)
	}
	return limiterstest.Format(v)
}

// takes has hits decided in one call and checks their verdicts.
func (w *world) takes(store limiters.Store, hits []limiters.Hit, want ...string) {
	w.Helper()
	w.takesGroups(store, limiters.Singles(hits...), want...)
}

func (w *world) takesGroups(store limiters.Store, groups []limiters.Group, want ...string) {
	w.Helper()
	hits := slices.Concat(groups...)
	for i, v := range takeGroups(w, store, groups...) {
		if got := describe(v); got != want[i] {
			w.Errorf("at %v: hit %d of %d, of %q:\n got %s\nwant %s", time.Now().Format("15:04:05.999999"), i, hits[i].N, hits[i].Key, got, want[i])
		}
	}
}

// take has n hits of a key decided in one call, and checks the verdict.
func (r *replica) take(key string, limit *limiters.Limit, n int64, want string) {
	r.w.Helper()
	r.w.takes(r, []limiters.Hit{{Key: key, Limit: limit, N: n}}, want)
}

// holds checks the usage of a key in the store itself.
func (w *world) holds(key string, limit *limiters.Limit, want int64) {
	w.Helper()
	synctest.Wait()
	if got := take(w, w.store.Store, limiters.Hit{Key: key, Limit: limit})[0].Used; got != want {
		w.Errorf("at %v: the store holds %d of %q, want %d", time.Now().Format("15:04:05.999999"), got, key, want)
	}
}

func limit(spec limiters.Spec) *limiters.Limit {
	if spec.Algorithm == "" {
		spec.Algorithm = "fixed_window"
	}
	if spec.Window == 0 {
		spec.Window = time.Minute
	}
	return limiterstest.MustLimit(spec)
}
