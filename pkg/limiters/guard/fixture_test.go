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

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A fixture is a store that replicas share, in the virtual time of synctest, which starts at a
// midnight.
type fixture struct {
	*testing.T
	store *faultyLink
}

func withFixture(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&fixture{t, &faultyLink{Store: memstore.New(memstore.Options{})}})
	})
}

// A faultyLink is a store with latency or failures. It counts its calls and operations.
type faultyLink struct {
	limiters.Store

	mu         sync.Mutex
	callDelay  time.Duration // latency of a call
	replyDelay time.Duration // latency of its reply
	err        error         // calls do not reach the store
	replyErr   error         // replies are lost
	badKey     string        // a key that fails
	panic      bool

	calls, ops atomic.Int64
}

func (l *faultyLink) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	l.calls.Add(1)
	l.ops.Add(int64(len(out)))
	l.mu.Lock()
	inner, callDelay, replyDelay, err, lost, bad, panics := l.Store, l.callDelay, l.replyDelay, l.err, l.replyErr, l.badKey, l.panic
	l.mu.Unlock()
	if panics {
		panic("out of order")
	}
	time.Sleep(callDelay)
	if err != nil {
		return limiters.FailAll(out, err)
	}
	err = inner.Take(ctx, groups, out)
	for i, op := range slices.Concat(groups...) {
		if bad != "" && op.Key == bad {
			out[i] = limiters.Verdict{Err: errors.New("a bad key")}
		}
	}
	time.Sleep(replyDelay)
	if lost != nil {
		return limiters.FailAll(out, lost)
	}
	return err
}

func (l *faultyLink) set(callDelay, replyDelay time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callDelay, l.replyDelay, l.err, l.replyErr = callDelay, replyDelay, err, nil
}

// setReplyErr makes calls fail with err after the store has decided. With nil, replies arrive
// again.
func (l *faultyLink) setReplyErr(lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replyErr = lost
}

func (l *faultyLink) setPanic(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.panic = yes
}

// setBadKey makes operations on a key fail; "" none.
func (l *faultyLink) setBadKey(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.badKey = key
}

func (l *faultyLink) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Store = memstore.New(memstore.Options{})
}

// A replica is a cache that wraps the store of the fixture, over a link of its own.
type replica struct {
	*guard.DenyCache
	f    *fixture
	link *faultyLink
}

func (f *fixture) replica(o guard.DenyCacheOptions) *replica {
	l := &faultyLink{Store: f.store}
	r := &replica{guard.NewDenyCache(l, o), f, l}
	f.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// describe returns a verdict as the traces write it, and whether it was cached.
func describe(v limiters.Verdict) string {
	if v.By == limiters.ByCache {
		return "cached: " + limiterstest.Format(v)
	}
	return limiterstest.Format(v)
}

// mustTake decides operations in one call and checks their verdicts.
func (f *fixture) mustTake(store limiters.Store, ops []limiters.Op, want ...string) {
	f.Helper()
	f.mustTakeGroups(store, limiters.Singles(ops...), want...)
}

func (f *fixture) mustTakeGroups(store limiters.Store, groups []limiters.Group, want ...string) {
	f.Helper()
	ops := slices.Concat(groups...)
	for i, v := range takeGroups(f, store, groups...) {
		if got := describe(v); got != want[i] {
			f.Errorf("at %v: operation %d, %d of %q:\n got %s\nwant %s", time.Now().Format("15:04:05.999999"), i, ops[i].Hits, ops[i].Key, got, want[i])
		}
	}
}

// mustTake decides n hits of a key in one call, and checks the verdict.
func (r *replica) mustTake(key string, limit *limiters.Limit, n int64, want string) {
	r.f.Helper()
	r.f.mustTake(r, []limiters.Op{{Key: key, Limit: limit, Hits: n}}, want)
}

// mustHaveUsage checks the usage of a key in the store itself.
func (f *fixture) mustHaveUsage(key string, limit *limiters.Limit, want int64) {
	f.Helper()
	synctest.Wait()
	if got := take(f, f.store.Store, limiters.Op{Key: key, Limit: limit})[0].Used; got != want {
		f.Errorf("at %v: the store holds %d of %q, want %d", time.Now().Format("15:04:05.999999"), got, key, want)
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

func take(tb testing.TB, store limiters.Store, ops ...limiters.Op) []limiters.Verdict {
	tb.Helper()
	return takeGroups(tb, store, limiters.Singles(ops...)...)
}

func takeGroups(tb testing.TB, store limiters.Store, groups ...limiters.Group) []limiters.Verdict {
	tb.Helper()
	out, err := limiterstest.Take(store, groups...)
	must.Succeed(tb, err)
	return out
}

// takeError decides operations in one call, and returns the error of the call.
func takeError(ctx context.Context, store limiters.Store, ops ...limiters.Op) error {
	return store.Take(ctx, limiters.Singles(ops...), make([]limiters.Verdict, len(ops)))
}
