package guard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

var slots = limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 2, Params: limiters.Params{LeaseTTL: 10 * time.Second}})

var reserves = limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 10, Window: time.Minute, Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: 10 * time.Second}}})

// lease returns an operation that opens a lease of k under an id. Options change it.
func lease(id string, options ...func(*limiters.Op)) limiters.Op {
	op := limiters.Op{Key: "k", Limit: slots, Hits: 1, Lease: limiters.NewLeaseID(nil, id)}
	for _, o := range options {
		o(&op)
	}
	return op
}

func end(op *limiters.Op) { op.Hits, op.Kind = 0, limiters.OpEnd }

func peek(op *limiters.Op) { op.Hits = 0 }

// A lease that was opened here while the store was lost is in this process only. Its end may come
// when the store is back.
func TestEndGoesToBothStores(t *testing.T) {
	for name, c := range map[string]struct{ goneAtTake, goneAtEnd bool }{
		"lost at the start": {true, false}, "lost at the end": {false, true}, "lost at both": {true, true}, "never lost": {},
	} {
		t.Run(name, func(t *testing.T) {
			store, local := &limiterstest.FailingStore{Store: memory()}, memory()
			f := withOnStoreError(guard.NewFallback(store, guard.FallbackOptions{Local: local}), limiters.OnStoreErrorLocal)
			store.Err = errUnreachable
			takeGroups(t, f, limiters.Group{lease("other")}) // stays in the local store
			store.Err = failure(c.goneAtTake)
			takeGroups(t, f, limiters.Group{lease("a")})
			store.Err = failure(c.goneAtEnd)
			if v := takeGroups(t, f, limiters.Group{lease("a", end)})[0]; !v.Allowed || v.Err != nil {
				t.Errorf("the end was answered by %+v", v)
			}
			held := func(s limiters.Store) int64 { return takeGroups(t, s, limiters.Group{lease("z", peek)})[0].Used }
			wantInStore := int64(0)
			if c.goneAtEnd && !c.goneAtTake {
				wantInStore = 1 // until its TTL
			}
			store.Err = nil
			if got := held(store); got != wantInStore {
				t.Errorf("%d slots in the store, want %d", got, wantInStore)
			}
			if got := held(local); got != 1 {
				t.Errorf("%d slots in the local store, want 1", got)
			}
		})
	}
}

// Every end in normal operation would otherwise be remembered by the local store, too: before an
// outage, and when the leases of an outage have expired.
func TestEndSkipsLocalStoreWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, local := &limiterstest.FailingStore{Store: memory()}, &faultyLink{Store: memory()}
		f := withOnStoreError(guard.NewFallback(store, guard.FallbackOptions{Local: local}), limiters.OnStoreErrorLocal)
		wantCalls := func(when string, want int64) {
			t.Helper()
			local.calls.Store(0)
			takeGroups(t, f, limiters.Group{lease("a")}, limiters.Group{lease("a", end)})
			if got := local.calls.Load(); got != want {
				t.Errorf("%s: %d calls of the local store, want %d", when, got, want)
			}
		}
		wantCalls("before an outage", 0)
		store.Err = errUnreachable
		takeGroups(t, f, limiters.Group{lease("b")})
		store.Err = nil
		wantCalls("after an outage", 1)
		time.Sleep(lease("b").Limit.LeaseTTL() + 2*time.Minute)
		wantCalls("when the lease has expired", 0)
	})
}

func TestFailedEndIsDecidedByPolicyAndNotCounted(t *testing.T) {
	for on, want := range map[limiters.OnStoreError]limiters.Verdict{
		limiters.OnStoreErrorUnset: {Err: errUnreachable}, limiters.OnStoreErrorFail: {Err: errUnreachable},
		limiters.OnStoreErrorAllow: {Allowed: true, By: limiters.ByPolicy, Remaining: 2},
		limiters.OnStoreErrorDeny:  {Allowed: true, By: limiters.ByPolicy},
		limiters.OnStoreErrorLocal: {Allowed: true, By: limiters.ByShare, Remaining: 2},
	} {
		f := guard.NewFallback(&limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, guard.FallbackOptions{Local: memory()})
		// A second operation that is decided, so that the call does not fail as a whole.
		out := take(t, withOnStoreError(f, on, limiters.OnStoreErrorAllow), lease("a", end), op("other"))
		if out[0].At, out[0].Order = 0, 0; out[0] != want {
			t.Errorf("on_store_error %v: %+v, want %+v", on, out[0], want)
		}
		if got := f.Stats().Ops; got != [limiters.OnStoreErrorLocal + 1]int64{limiters.OnStoreErrorAllow: 1} {
			t.Errorf("on_store_error %v: decided %v, want the other operation only", on, got)
		}
	}
}

func TestDenyCacheForwardsLeases(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		f.mustTake(a, []limiters.Op{lease("a")}, "ok used=1 remaining=1 reset=10s")
		f.mustTake(a, []limiters.Op{lease("a")}, "ok used=1 remaining=1 reset=10s already_open")
		f.mustTake(a, []limiters.Op{lease("b")}, "ok used=2 remaining=0 reset=10s")
		calls, lookups := a.link.calls.Load(), a.Stats().Lookups
		for range 2 {
			f.mustTake(a, []limiters.Op{lease("c")}, "denied used=2 remaining=0 retry=1s reset=10s")
		}
		if got := a.link.calls.Load() - calls; got != 2 {
			t.Errorf("%d calls of the store for two denials by leases, want 2", got)
		}
		f.mustTake(a, []limiters.Op{lease("a", end), lease("c")},
			"ok used=1 remaining=1 reset=10s", "ok used=2 remaining=0 reset=10s")
		if got := a.Stats().Lookups - lookups; got != 3 {
			t.Errorf("%d further lookups, want 3: an end is not looked up", got)
		}
		// An end brings no answer from memory, and forgets none.
		logOfTwoOp := limiters.Op{Key: "k", Limit: logOfTwo, Hits: 1}
		f.mustTake(a, []limiters.Op{logOfTwoOp}, "ok used=1 remaining=1 reset=60s")
		f.mustTake(a, []limiters.Op{logOfTwoOp}, "ok used=2 remaining=0 reset=60s")
		f.mustTake(a, []limiters.Op{logOfTwoOp}, "denied used=2 remaining=0 retry=60s reset=60s")
		f.mustTake(a, []limiters.Op{lease("c", end)}, "ok used=1 remaining=1 reset=10s")
		f.mustTake(a, []limiters.Op{logOfTwoOp}, "cached: denied used=2 remaining=0 retry=60s reset=60s")
	})
}

// An end reaches the local store even if its call is canceled, because nothing retries it there.
func TestCanceledEndReachesTheLocalStore(t *testing.T) {
	for name, fail := range map[string]func(f *limiterstest.FailingStore, cancel func()){
		"the call fails":    func(f *limiterstest.FailingStore, cancel func()) { f.Err = errUnreachable; cancel() },
		"the end fails":     func(f *limiterstest.FailingStore, _ func()) { f.OfKey = failsOn("k") },
		"the reply is lost": func(_ *limiterstest.FailingStore, cancel func()) { cancel() },
		"the end fails during the cancellation": func(f *limiterstest.FailingStore, cancel func()) {
			f.OfKey, f.Store = failsOn("k"), canceling{f.Store, cancel}
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, local := &limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, memory()
			f := withOnStoreError(guard.NewFallback(store, guard.FallbackOptions{Local: local}), limiters.OnStoreErrorLocal)
			takeGroups(t, f, limiters.Group{lease("a")})
			store.Err = nil
			ctx, cancel := context.WithCancel(t.Context())
			fail(store, cancel)
			_ = takeError(ctx, f, lease("a", end))
			cancel()
			if got := takeGroups(t, local, limiters.Group{lease("z", peek)})[0].Used; got != 0 {
				t.Errorf("%d slots in the local store", got)
			}
		})
	}
}

// A rule whose on_store_error changes in an outage leaves no lease behind in the local store,
// whether the store then decides the end or fails it.
func TestEndUnderAnotherOnStoreErrorReachesTheLocalStore(t *testing.T) {
	for _, now := range []limiters.OnStoreError{limiters.OnStoreErrorFail, limiters.OnStoreErrorAllow, limiters.OnStoreErrorDeny} {
		for _, failure := range []error{errUnreachable, nil} {
			store, local := &limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, memory()
			f := guard.NewFallback(store, guard.FallbackOptions{Local: local})
			takeGroups(t, withOnStoreError(f, limiters.OnStoreErrorLocal), limiters.Group{lease("a")})
			store.Err = failure
			_ = takeError(t.Context(), withOnStoreError(f, now), lease("a", end))
			if got := takeGroups(t, local, limiters.Group{lease("z", peek)})[0].Used; got != 0 {
				t.Errorf("%v, %v: %d slots in the local store", now, failure, got)
			}
		}
	}
}

// The end of a lease that only the local store holds reaches only the local store, even if its
// context is canceled. Another end in the same call goes to the wrapped store.
func TestEndOfALocalLeaseReachesOnlyTheLocalStore(t *testing.T) {
	otherKey := func(op *limiters.Op) { op.Key = "other" }
	for _, canceled := range []bool{false, true} {
		store, local := &limiterstest.FailingStore{Store: memory()}, memory()
		f := guard.NewFallback(store, guard.FallbackOptions{Local: local, Replicas: func() int { return 3 }})
		takeGroups(t, store, limiters.Group{lease("a", otherKey)})
		store.Err = limiters.Uncharged(errUnreachable)
		leaseAt := takeGroups(t, withOnStoreError(f, limiters.OnStoreErrorLocal), limiters.Group{lease("a")})[0].LeaseAt
		store.Err = nil
		ctx, cancel := context.WithCancel(t.Context())
		wantOther := int64(0)
		if canceled {
			cancel()
			wantOther = 1
		}
		ends := []limiters.Op{lease("a", end, func(op *limiters.Op) { op.LeaseAt = leaseAt }), lease("a", end, otherKey)}
		before := slices.Clone(ends)
		_ = takeError(ctx, f, ends...)
		cancel()
		if !slices.Equal(ends, before) {
			t.Errorf("the caller's operations have become %+v, want %+v", ends, before)
		}
		if got := takeGroups(t, local, limiters.Group{lease("z", peek)})[0].Used; got != 0 {
			t.Errorf("%d slots in the local store", got)
		}
		// A store that had got the end would remember it, and the lease would hold no slot.
		if got := takeGroups(t, store, limiters.Group{lease("a")})[0].Used; got != 1 {
			t.Errorf("%d slots in the store after the charge, want 1: the end reached it", got)
		}
		if got := takeGroups(t, store, limiters.Group{lease("z", peek, otherKey)})[0].Used; got != wantOther {
			t.Errorf("canceled: %t: %d slots of the other key in the store, want %d", canceled, got, wantOther)
		}
	}
}

// A Take of such ends alone calls the wrapped store not at all, because an empty call could fail
// and so report an outage.
func TestEndOfALocalLeaseMakesNoStoreCall(t *testing.T) {
	store := &faultyLink{Store: memory()}
	f := withOnStoreError(guard.NewFallback(store, guard.FallbackOptions{Local: memory()}), limiters.OnStoreErrorLocal)
	store.set(0, 0, limiters.Uncharged(errUnreachable))
	leaseAt := takeGroups(t, f, limiters.Group{lease("a")})[0].LeaseAt
	before := store.calls.Load()
	if v := takeGroups(t, f, limiters.Group{lease("a", end, func(op *limiters.Op) { op.LeaseAt = leaseAt })})[0]; !v.Allowed || v.Err != nil {
		t.Errorf("the end: %+v, want allowed", v)
	}
	if calls := store.calls.Load() - before; calls != 0 {
		t.Errorf("%d calls of the wrapped store, want none", calls)
	}
}

// A canceling store cancels the context of each call.
type canceling struct {
	limiters.Store
	cancel func()
}

// A filledStore is a store whose limits are used up by fill after its first Take.
type filledStore struct {
	limiters.Store
	fill       limiters.Op
	filled     bool
	afterFirst func() // may be nil
}

func (s *filledStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	err := s.Store.Take(ctx, groups, out)
	if !s.filled {
		s.filled = true
		err = errors.Join(err, s.Store.Take(ctx, limiters.Singles(s.fill), make([]limiters.Verdict, 1)))
		if s.afterFirst != nil {
			s.afterFirst()
		}
	}
	return err
}

// unreachableFor returns a store that charges nothing of the keys in failing, which may change.
func unreachableFor(failing *[]string) limiters.Store {
	return &limiterstest.FailingStore{Store: memory(), OfKey: func(key string) error {
		if slices.Contains(*failing, key) {
			return limiters.Uncharged(errUnreachable)
		}
		return nil
	}}
}

// A limit of a group fails, the share allows it, and then the store denies another limit. The group
// is denied, so the share holds no lease of it, and no hits.
func TestShareIsUndoneIfTheStoreThenDeniesTheGroup(t *testing.T) {
	window := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 10, Window: time.Hour})
	reservation := lease("a")
	reservation.Limit = reserves
	for name, c := range map[string]struct {
		failing  limiters.Op
		wasOpen  bool // the lease was open before
		wantUsed int64
	}{
		"a slot":               {lease("a"), false, 0},
		"a slot that was open": {lease("a"), true, 1},
		"a reservation":        {reservation, false, 0},
		"hits":                 {limiters.Op{Key: "k", Limit: window, Hits: 3}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			local := memory()
			if c.wasOpen {
				takeGroups(t, local, limiters.Group{c.failing})
			}
			store := &filledStore{
				Store: unreachableFor(&[]string{"k"}),
				fill:  limiters.Op{Key: "rest", Limit: window, Hits: 9},
			}
			f := withOnStoreError(guard.NewFallback(store, guard.FallbackOptions{Local: local}), limiters.OnStoreErrorLocal)
			v := takeGroups(t, f, limiters.Group{c.failing, {Key: "rest", Limit: window, Hits: 1}})
			if v[0].By != limiters.ByShare || !v[0].Allowed || v[0].LeaseAt == limiters.LeaseOnlyInShare != c.wasOpen || !v[1].Denied() {
				t.Errorf("verdicts %+v, want the first allowed by the share, and the second denied", v)
			}
			check := c.failing
			check.Hits, check.Lease = 0, limiters.LeaseID{}
			if got := takeGroups(t, local, limiters.Group{check})[0].Used; got != c.wantUsed {
				t.Errorf("%d hits or slots are used in the share, want %d", got, c.wantUsed)
			}
		})
	}
}

// As above, but the store fails the second limit too, without an on_store_error of its own.
func TestShareIsUndoneIfTheGroupStaysUndecided(t *testing.T) {
	window := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 10, Window: time.Hour})
	failing := []string{"first"}
	store := &filledStore{
		Store:      unreachableFor(&failing),
		fill:       limiters.Op{Key: "other", Limit: window, Hits: 1},
		afterFirst: func() { failing = append(failing, "second") },
	}
	local := memory()
	f := guard.NewFallback(store, guard.FallbackOptions{Local: local})
	group := limiters.Group{{Key: "first", Limit: window, Hits: 3}, {Key: "second", Limit: window, Hits: 3}}
	group[0].OnStoreError, group[1].OnStoreError = limiters.OnStoreErrorLocal, limiters.OnStoreErrorFail
	out := make([]limiters.Verdict, len(group))
	_ = f.Take(t.Context(), []limiters.Group{group}, out)
	if out[0].By != limiters.ByShare || out[1].Err == nil {
		t.Errorf("verdicts %+v, want the first by the share, and the second undecided", out)
	}
	if got := takeGroups(t, local, limiters.Group{{Key: "first", Limit: window}})[0].Used; got != 0 {
		t.Errorf("%d hits are used in the share, want 0", got)
	}
}

// As above, but the second attempt fails for a third limit, whose share is not charged because the
// store denies the group.
func TestShareThatWasNotChargedIsNotRefunded(t *testing.T) {
	window := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 10, Window: time.Hour})
	hits := func(key string, n int64) limiters.Op { return limiters.Op{Key: key, Limit: window, Hits: n} }
	var failing []string
	store := &filledStore{
		Store: unreachableFor(&failing),
		fill:  hits("rest", 9),
	}
	store.afterFirst = func() { failing = append(failing, "later") }
	local := memory()
	takeGroups(t, local, limiters.Group{hits("first", 2), hits("later", 5)})
	failing = []string{"first"}
	f := withOnStoreError(guard.NewFallback(store, guard.FallbackOptions{Local: local}), limiters.OnStoreErrorLocal)
	if v := takeGroups(t, f, limiters.Group{hits("first", 3), hits("later", 3), hits("rest", 1)}); !v[0].Allowed || v[1].By != limiters.ByShare || !v[2].Denied() {
		t.Errorf("verdicts %+v, want the first allowed, the second by the share, and the third denied", v)
	}
	for key, want := range map[string]int64{"first": 2, "later": 5} {
		if got := takeGroups(t, local, limiters.Group{hits(key, 0)})[0].Used; got != want {
			t.Errorf("%s: %d hits are used in the share, want %d", key, got, want)
		}
	}
}

func (c canceling) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	defer c.cancel()
	return c.Store.Take(ctx, groups, out)
}

// on_store_error hides the error of the store, and must not hide that the store has certainly
// opened no lease.
func TestOnStoreErrorVerdictLocatesTheLease(t *testing.T) {
	for err, uncharged := range map[error]bool{errUnreachable: false, limiters.Uncharged(errUnreachable): true} {
		for _, whole := range []bool{true, false} {
			store := &limiterstest.FailingStore{Store: memory(), OfKey: func(string) error { return err }}
			if whole {
				store.Err = err
			}
			f := guard.NewFallback(store, guard.FallbackOptions{Local: memory()})
			for on, want := range map[limiters.OnStoreError]limiters.LeaseLocation{
				limiters.OnStoreErrorAllow: limiters.LeaseNowhere, limiters.OnStoreErrorDeny: limiters.LeaseNowhere, limiters.OnStoreErrorLocal: limiters.LeaseOnlyInShare,
			} {
				if !uncharged {
					want = limiters.LeaseInStore
				}
				if v := takeGroups(t, withOnStoreError(f, on), limiters.Group{lease("a")})[0]; v.LeaseAt != want || v.Err != nil {
					t.Errorf("%v, %v, the call as a whole: %t: %+v, want LeaseAt %v", on, err, whole, v, want)
				}
			}
		}
	}
}
