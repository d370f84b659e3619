package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

var errUnreachable = errors.New("the store is unreachable")

// failure returns errUnreachable if unreachable is set, else nil.
func failure(unreachable bool) error {
	if unreachable {
		return errUnreachable
	}
	return nil
}

// failsOn returns a function that fails for keys that contain text.
func failsOn(text string) func(string) error {
	return func(key string) error { return failure(strings.Contains(key, text)) }
}

func memory() limiters.Store { return limiterstest.Inner(memstore.New(memstore.Options{})) }

// memoryAt returns a store whose clock is *now.
func memoryAt(now *time.Time) limiters.Store {
	return memstore.New(memstore.Options{Now: func() time.Time { return *now }})
}

var hourly = limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: time.Hour, CountDenied: true})

func op(key string) limiters.Op { return limiters.Op{Key: key, Limit: hourly, Hits: 1} }

// withOnStoreError returns f as a store that sets one OnStoreError for all operations of a Take, or
// one for each.
func withOnStoreError(f *guard.Fallback, onStoreErrors ...limiters.OnStoreError) limiters.Store {
	return &withOnStoreErrors{f, onStoreErrors}
}

type withOnStoreErrors struct {
	*guard.Fallback
	onStoreErrors []limiters.OnStoreError
}

func (u *withOnStoreErrors) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	set := make([]limiters.Group, len(groups))
	next := 0
	for i, g := range groups {
		set[i] = slices.Clone(g)
		for j := range g {
			set[i][j].OnStoreError = u.onStoreErrors[next%len(u.onStoreErrors)]
			next++
		}
	}
	return u.Fallback.Take(ctx, set, out)
}

func TestFallbackPassesTheSuite(t *testing.T) {
	limiterstest.Run(t, func(*testing.T) limiterstest.TimedStore {
		return limiterstest.Decorated(withOnStoreError(guard.NewFallback(memory(), guard.FallbackOptions{Local: memory()}), limiters.OnStoreErrorFail))
	})
}

// If the store is always down, the local store decides everything, by the whole share of one
// replica.
func TestFallbackOnLocalStorePassesTheSuite(t *testing.T) {
	limiterstest.Run(t, func(*testing.T) limiterstest.TimedStore {
		f := guard.NewFallback(&limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, guard.FallbackOptions{Local: memory()})
		return limiterstest.Decorated(sole{&withOnStoreErrors{f, []limiters.OnStoreError{limiters.OnStoreErrorLocal}}})
	})
}

// sole hides that operations are decided locally.
type sole struct{ *withOnStoreErrors }

func (s sole) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	err := s.withOnStoreErrors.Take(ctx, groups, out)
	for i := range out {
		out[i].By = limiters.ByStore
	}
	return err
}

func TestFallbackAppliesOnStoreErrorOfEachOp(t *testing.T) {
	f := guard.NewFallback(&limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, guard.FallbackOptions{Local: memory()})
	ops := []limiters.Op{
		op("a"), op("d"), op("l"), op("f"), op("u"), {Key: "d", Limit: hourly, Hits: -1}, {Key: "d", Limit: hourly},
	}
	got := take(t, withOnStoreError(f,
		limiters.OnStoreErrorAllow, limiters.OnStoreErrorDeny, limiters.OnStoreErrorLocal, limiters.OnStoreErrorFail, limiters.OnStoreErrorUnset,
		limiters.OnStoreErrorDeny, limiters.OnStoreErrorDeny,
	), ops...)
	got[2].ResetAfter, got[2].At = 0, 0 // depend on the clock
	if want := []limiters.Verdict{
		{Allowed: true, Remaining: 5, By: limiters.ByPolicy}, {By: limiters.ByPolicy},
		{Allowed: true, Used: 1, Remaining: 4, By: limiters.ByShare}, {Err: errUnreachable}, {Err: errUnreachable},
		{Allowed: true, By: limiters.ByPolicy}, {By: limiters.ByPolicy},
	}; !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	decided := [...]int64{limiters.OnStoreErrorFail: 2, limiters.OnStoreErrorAllow: 1, limiters.OnStoreErrorDeny: 3, limiters.OnStoreErrorLocal: 1}
	if got, want := f.Stats(), (guard.FallbackStats{Down: true, Ops: decided}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// If no operation is decided, Take returns the error of the store. It also fails if the context has
// ended.
func TestFallbackWithoutAnyVerdictFails(t *testing.T) {
	f := guard.NewFallback(&limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, guard.FallbackOptions{})
	out := make([]limiters.Verdict, 2)
	groups := limiters.Singles(op("a"), op("b"))
	err := withOnStoreError(f, limiters.OnStoreErrorFail, limiters.OnStoreErrorLocal).Take(t.Context(), groups, out)
	if !errors.Is(err, errUnreachable) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := withOnStoreError(f, limiters.OnStoreErrorAllow).Take(ctx, groups[:1], out[:1]); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFallbackKeepsVerdictsOfTheStore(t *testing.T) {
	store := &limiterstest.FailingStore{Store: memory(), OfKey: failsOn("bad")}
	f := guard.NewFallback(store, guard.FallbackOptions{Local: memory()})
	out := take(t, withOnStoreError(f, limiters.OnStoreErrorDeny, limiters.OnStoreErrorDeny, limiters.OnStoreErrorFail), op("good"), op("bad"), op("bad2"))
	if !out[0].Allowed || out[0].By != limiters.ByStore || out[1].Allowed || out[1].By != limiters.ByPolicy || out[2].Err == nil {
		t.Errorf("got %+v", out)
	}
	if f.Stats().Down {
		t.Error("a store with a bad key is not down")
	}
}

// If one of two stores is unreachable, requests that need both stores show the outage too.
func TestUnreachablePartOfAStoreIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &limiterstest.FailingStore{Store: memory(), Err: errUnreachable}
		var failed []error
		f := guard.NewFallback(split.NewPerSecondRouter(memory(), part), guard.FallbackOptions{
			Failed: func(reason error) { failed = append(failed, reason) },
		})
		allowing, ops := withOnStoreError(f, limiters.OnStoreErrorAllow), []limiters.Op{op("k"), {Key: "k", Limit: limit(limiters.Spec{Max: 5, Window: time.Second}), Hits: 1}}
		for range 3 {
			if got := take(t, allowing, ops...); got[0].By != limiters.ByStore || got[1].By != limiters.ByPolicy {
				t.Errorf("got %+v, want the first by the store", got)
			}
		}
		if !f.Stats().Down || len(failed) != 1 || !errors.Is(failed[0], errUnreachable) {
			t.Errorf("down %t, reported %v, want down and one report", f.Stats().Down, failed)
		}
		part.Err = nil
		time.Sleep(time.Second)
		take(t, allowing, ops...)
		if f.Stats().Down {
			t.Error("still down when both stores answer")
		}
	})
}

// Without a report, nothing would say why on_store_error decides: a full Redis fails each
// operation, but not the call.
func TestReasonOfOnStoreErrorIsReportedWithoutAnOutage(t *testing.T) {
	for on, want := range map[limiters.OnStoreError]int{
		limiters.OnStoreErrorFail: 0, limiters.OnStoreErrorAllow: 2, limiters.OnStoreErrorDeny: 2, limiters.OnStoreErrorLocal: 2,
	} {
		var failed []error
		f := guard.NewFallback(&limiterstest.FailingStore{Store: memory(), OfKey: failsOn("bad")}, guard.FallbackOptions{
			Local: memory(), Failed: func(reason error) { failed = append(failed, reason) },
		})
		take(t, withOnStoreError(f, on), op("good"))
		take(t, withOnStoreError(f, on), op("bad"), op("bad2"))
		take(t, withOnStoreError(f, on), op("good"), op("bad"))
		if len(failed) != want || want > 0 && !errors.Is(failed[0], errUnreachable) || f.Stats().Down {
			t.Errorf("%s: reported %v, down %t, want %d reports", on, failed, f.Stats().Down, want)
		}
	}
}

func TestFallbackReportsLossAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &limiterstest.FailingStore{Store: memory()}
		var changes []string
		f := guard.NewFallback(store, guard.FallbackOptions{
			Local:  memory(),
			Failed: func(reason error) { changes = append(changes, reason.Error()) },
			Recovered: func(o guard.Outage) {
				changes = append(changes, fmt.Sprintf("recovered after %s, %d operations", o.Duration, o.Ops))
			},
		})
		var got []string
		for _, gone := range []bool{false, true, true, false, false, true, false} {
			store.Err = failure(gone)
			if !gone {
				time.Sleep(time.Second)
			}
			v := take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), op("k"))[0]
			got = append(got, fmt.Sprintf("%d %t %t", v.Used, v.By == limiters.ByShare, f.Stats().Down))
		}
		// The local counts continue.
		if want := []string{"1 false false", "1 true true", "2 true true", "2 false false", "3 false false", "3 true true", "4 false false"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		want := []string{
			"the store is unreachable", "recovered after 1s, 2 operations", "the store is unreachable", "recovered after 1s, 1 operations",
		}
		if !slices.Equal(changes, want) {
			t.Errorf("changes %q, want %q", changes, want)
		}
	})
}

func TestOutageCountsConcurrentOps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failed = 1000
		store := &limiterstest.FailingStore{Store: memory(), Err: errUnreachable}
		var outages []guard.Outage
		f := guard.NewFallback(store, guard.FallbackOptions{Recovered: func(o guard.Outage) { outages = append(outages, o) }})
		var takes sync.WaitGroup
		for range failed {
			takes.Go(func() { take(t, withOnStoreError(f, limiters.OnStoreErrorAllow), op("k")) })
		}
		takes.Wait()
		store.Err = nil
		time.Sleep(time.Second)
		for range failed {
			takes.Go(func() { take(t, withOnStoreError(f, limiters.OnStoreErrorAllow), op("k")) })
		}
		takes.Wait()
		if want := []guard.Outage{{Duration: time.Second, Ops: failed}}; !slices.Equal(outages, want) {
			t.Errorf("got %v, want %v", outages, want)
		}
	})
}

// While one node of a cluster is down, Takes fail and succeed in turns. The reported state must not
// change with each.
func TestPartialOutageDoesNotFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &limiterstest.FailingStore{Store: memory()}
		changes := 0
		f := guard.NewFallback(store, guard.FallbackOptions{
			Local: memory(), Failed: func(error) { changes++ }, Recovered: func(guard.Outage) { changes++ },
		})
		for i := range 100 {
			store.Err = failure(i%2 == 0)
			take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), op("k"))
			time.Sleep(100 * time.Millisecond)
		}
		if !f.Stats().Down || changes != 1 {
			t.Errorf("down %t after %d changes, want down after one", f.Stats().Down, changes)
		}
		store.Err = nil
		time.Sleep(time.Second)
		take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), op("k"))
		if f.Stats().Down || changes != 2 {
			t.Errorf("a second later: down %t after %d changes, want up after two", f.Stats().Down, changes)
		}
	})
}

// The store may fail between the two Takes for a group that it failed in part. The Outage counts
// the operation that only the second Take failed to decide.
func TestOutageThatBeginsAtTheRestOfAGroupIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &limiterstest.FailingStore{Store: memory()}
		store.OfKey = func(key string) error {
			store.Err = errUnreachable // of the next Take
			return failure(key == "bad")
		}
		var outages []guard.Outage
		f := guard.NewFallback(store, guard.FallbackOptions{Recovered: func(o guard.Outage) { outages = append(outages, o) }})
		takeGroups(t, withOnStoreError(f, limiters.OnStoreErrorAllow), limiters.Group{op("bad"), op("k")})
		if !f.Stats().Down {
			t.Error("the store is not down")
		}
		store.Err, store.OfKey = nil, nil
		time.Sleep(time.Second)
		take(t, withOnStoreError(f, limiters.OnStoreErrorAllow), op("k"))
		if want := []guard.Outage{{Duration: time.Second, Ops: 1}}; !slices.Equal(outages, want) {
			t.Errorf("got %v, want %v", outages, want)
		}
	})
}

// If the client leaves during the second Take for such a group, on_store_error does not decide the
// rest, and there is no outage.
func TestCanceledRestOfAGroupStaysUndecided(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	takes := 0
	store := &limiterstest.FailingStore{Store: memory(), OfKey: func(key string) error {
		if key == "bad" {
			return errUnreachable
		}
		if takes++; takes == 1 {
			return nil
		}
		cancel()
		return ctx.Err()
	}}
	var reasons []error
	f := guard.NewFallback(store, guard.FallbackOptions{Failed: func(reason error) { reasons = append(reasons, reason) }})
	var out [2]limiters.Verdict
	must.Succeed(t, withOnStoreError(f, limiters.OnStoreErrorAllow).Take(ctx, []limiters.Group{{op("bad"), op("k")}}, out[:]))
	if n := f.Stats().Ops[limiters.OnStoreErrorAllow]; n != 1 || !errors.Is(out[1].Err, context.Canceled) || len(reasons) != 1 {
		t.Errorf("%d operations allowed, reports %v, verdict %+v, want 1, one report, and %v", n, reasons, out[1], context.Canceled)
	}
}

// Without operations, a check notes that the store is back.
func TestCheckIdleNoticesRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &limiterstest.FailingStore{Store: memory(), Err: errUnreachable}
		changes, checks := 0, 0
		f := guard.NewFallback(store, guard.FallbackOptions{
			Local: memory(), Failed: func(error) { changes++ }, Recovered: func(guard.Outage) { changes++ },
		})
		var result error
		fails := false
		check := func(context.Context) error {
			checks++
			if fails {
				take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), op("k"))
			}
			return result
		}
		want := func(when string, down bool, wantChecks, wantChanges int) {
			t.Helper()
			f.CheckIdle(t.Context(), check)
			if f.Stats().Down != down || checks != wantChecks || changes != wantChanges {
				t.Errorf("%s: down %t, %d checks, %d changes, want %t, %d, %d", when, f.Stats().Down, checks, changes, down, wantChecks, wantChanges)
			}
		}
		want("without a failure", false, 0, 0)
		take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), op("k"))
		want("after a failure", true, 0, 1)
		time.Sleep(10*time.Second - 1)
		want("just before 10s", true, 0, 1)
		time.Sleep(time.Nanosecond)
		result = errors.New("no answer")
		want("a check without an answer", true, 1, 1)
		result, fails = nil, true
		want("an operation fails during the check", true, 2, 1)
		fails = false
		want("soon after that operation", true, 2, 1)
		time.Sleep(10 * time.Second)
		want("an answer", false, 3, 2)
		want("afterwards", false, 3, 2)
	})
}

// A denial from a cache does not show that the store is back.
func TestCachedDenialDoesNotEndOutage(t *testing.T) {
	store := &limiterstest.FailingStore{Store: memory()}
	cache := guard.NewDenyCache(store, guard.DenyCacheOptions{})
	defer cache.Close(t.Context())
	f := guard.NewFallback(cache, guard.FallbackOptions{})
	once := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}})
	over, allowing := limiters.Op{Key: "over", Limit: once, Hits: 1}, withOnStoreError(f, limiters.OnStoreErrorAllow)
	take(t, allowing, over)
	take(t, allowing, over)
	store.Err = errUnreachable
	take(t, allowing, op("new"))
	if v := take(t, allowing, over)[0]; v.Allowed || v.By != limiters.ByCache || !f.Stats().Down {
		t.Errorf("%+v, down: %v", v, f.Stats().Down)
	}
}

// A denial from a cache does not hide that the store failed all other operations of the Take.
func TestCachedDenialDoesNotHideAnOutage(t *testing.T) {
	withFixture(t, func(f *fixture) {
		cache := f.replica(defaults)
		var failed []error
		var outages []guard.Outage
		fallback := guard.NewFallback(cache, guard.FallbackOptions{
			Failed:    func(reason error) { failed = append(failed, reason) },
			Recovered: func(o guard.Outage) { outages = append(outages, o) },
		})
		over, allowing := limiters.Op{Key: "over", Limit: logOfTwo, Hits: 1}, withOnStoreError(fallback, limiters.OnStoreErrorAllow)
		take(t, allowing, over, over, over)
		cache.link.set(0, 0, limiters.Uncharged(errUnreachable))
		for range 3 {
			if got := take(t, allowing, over, op("new")); got[0].By != limiters.ByCache || got[1].By != limiters.ByPolicy {
				t.Errorf("got %+v, want the first by the cache", got)
			}
		}
		if !fallback.Stats().Down || len(failed) != 1 || !errors.Is(failed[0], errUnreachable) || !limiters.IsUncharged(failed[0]) {
			t.Errorf("down %t, reported %v, want down and one report", fallback.Stats().Down, failed)
		}
		cache.link.set(0, 0, nil)
		time.Sleep(time.Second)
		take(t, allowing, op("new"))
		if want := []guard.Outage{{Duration: time.Second, Ops: 3}}; !slices.Equal(outages, want) {
			t.Errorf("got %v, want %v", outages, want)
		}
	})
}

// Under every algorithm, for every size of charges, each replica admits its share and no more. If
// charges reach the replicas in turn, a client that uses its limit exactly is never denied.
func TestFallbackAdmitsTheShare(t *testing.T) {
	const replicas = 4
	for _, spec := range []limiters.Spec{
		{Algorithm: "fixed_window", Max: 200, Window: time.Hour, CountDenied: true},
		{Algorithm: "sliding_log", Max: 200, Window: time.Hour},
		{Algorithm: "funnel", Max: 200, Params: limiters.Params{Capacity: 100}, Window: time.Hour},
	} {
		limit := limiterstest.MustLimit(spec)
		for _, n := range []int64{1, 7, 60, 100, 101} {
			whole := limit.Capacity() / n * n
			var admitted, falsely int64
			now := time.Now()
			for range replicas {
				f := guard.NewFallback(&limiterstest.FailingStore{Err: errUnreachable}, guard.FallbackOptions{
					Local: memoryAt(&now), Replicas: func() int { return replicas },
				})
				for i := range int64(400) {
					op := limiters.Op{Key: "k", Limit: limit, Hits: n}
					var out [1]limiters.Verdict
					must.Succeed(t, withOnStoreError(f, limiters.OnStoreErrorLocal).Take(t.Context(), []limiters.Group{{op}}, out[:]))
					if out[0].Allowed {
						admitted += n
					} else if i < whole/n/replicas {
						falsely++
					}
				}
			}
			if admitted < whole || admitted > replicas*whole {
				t.Errorf("%s, charges of %d: %d admitted of %d", spec.Algorithm, n, admitted, whole)
			}
			if falsely > 0 {
				t.Errorf("%s, charges of %d: %d were denied of a client that keeps to the limit", spec.Algorithm, n, falsely)
			}
			if n == 1 && admitted == replicas*whole {
				t.Errorf("%s: each replica admits all", spec.Algorithm)
			}
		}
	}
}

func TestShareFollowsTheNumberOfReplicas(t *testing.T) {
	replicas := 1
	f := guard.NewFallback(&limiterstest.FailingStore{Err: errUnreachable}, guard.FallbackOptions{Local: memory(), Replicas: func() int { return replicas }})
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1000, Window: time.Hour, CountDenied: true})
	var got []int64
	for _, replicas = range []int{1, 10, 3, 10, 1} {
		v := take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), limiters.Op{Key: "k", Limit: limit})[0]
		got = append(got, v.Remaining)
	}
	if want := []int64{1000, 137, 385, 137, 1000}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFallbackIsSafeForConcurrentUse(t *testing.T) {
	f := guard.NewFallback(&limiterstest.FailingStore{Err: errUnreachable}, guard.FallbackOptions{Local: memory(), Replicas: func() int { return 2 }})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				take(t, withOnStoreError(f, limiters.OnStoreErrorLocal), limiters.Op{Key: "k", Limit: hourly, Hits: int64(j % 5)})
				if i == 0 {
					f.ForgetShares()
				}
			}
		})
	}
	all.Wait()
	if n := f.Stats().Ops[limiters.OnStoreErrorLocal]; n != 1600 {
		t.Errorf("%d decided, want 1600", n)
	}
}

// A store charges nothing of a group that it cannot decide as a whole. The rest of the group must
// still be charged: clients can easily make keys for which the store has no room.
func TestFallbackChargesTheRestOfAFailedGroup(t *testing.T) {
	store := memstore.New(memstore.Options{MaxKeys: 1})
	take(t, store, op("k"))
	for range 5 {
		take(t, store, op("k")) // the store is full, and its key is over its limit
	}
	larger := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 8, Window: time.Hour, CountDenied: true})
	f := guard.NewFallback(store, guard.FallbackOptions{})
	var got []string
	for _, on := range []limiters.OnStoreError{
		limiters.OnStoreErrorDeny, limiters.OnStoreErrorFail, limiters.OnStoreErrorAllow, limiters.OnStoreErrorAllow, limiters.OnStoreErrorAllow,
	} {
		v := takeGroups(t, withOnStoreError(f, on), limiters.Group{{Key: "k", Limit: larger, Hits: 1}, op("new")})
		got = append(got, fmt.Sprint(v[0].Used, v[0].Allowed, v[0].By == limiters.ByStore, v[1].Allowed, v[1].Err != nil))
	}
	if want := []string{
		"6 true true false false", "6 true true false true", // the failed operation charges nothing
		"7 true true true false", "8 true true true false", "9 false true true false",
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The store may fail another operation each time that the rest is sent again.
func TestFallbackChargesTheRestThatIsLeft(t *testing.T) {
	for _, on := range []limiters.OnStoreError{limiters.OnStoreErrorAllow, limiters.OnStoreErrorLocal} {
		store := &failingInTurn{memory(), []string{"a", "b", "c"}}
		f := guard.NewFallback(store, guard.FallbackOptions{Local: memory()})
		v := takeGroups(t, withOnStoreError(f, on), limiters.Group{op("a"), op("b"), op("c"), op("d")})
		for i, byStore := range []bool{false, false, false, true} {
			if !v[i].Allowed || (v[i].By == limiters.ByStore) != byStore {
				t.Errorf("%s: operation %d: %+v, want it allowed, by the store: %t", on, i, v[i], byStore)
			}
		}
		for key, want := range map[string]int64{"a": 0, "b": 0, "c": 0, "d": 1} {
			if got := take(t, store, limiters.Op{Key: key, Limit: hourly})[0].Used; got != want {
				t.Errorf("%s: the store has charged %d under %s, want %d", on, got, key, want)
			}
		}
	}
}

// A failingInTurn is a store that fails keys, the next one in each Take. It charges nothing of such
// a Take.
type failingInTurn struct {
	limiters.Store
	keys []string
}

func (s *failingInTurn) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if len(s.keys) == 0 {
		return s.Store.Take(ctx, groups, out)
	}
	failing, ops := s.keys[0], slices.Concat(groups...)
	s.keys = s.keys[1:]
	for i := range ops {
		ops[i].Hits = 0
	}
	err := s.Store.Take(ctx, limiters.Singles(ops...), out)
	for i := range ops {
		if ops[i].Key == failing {
			out[i] = limiters.Verdict{Err: errUnreachable}
		}
	}
	return err
}

// If an operation of a group is denied or fails, no share of the others is charged.
func TestShareIsNotChargedForADeniedGroup(t *testing.T) {
	local := memory()
	f := guard.NewFallback(&limiterstest.FailingStore{Store: memory(), Err: errUnreachable}, guard.FallbackOptions{Local: local})
	for _, c := range []struct {
		with     limiters.OnStoreError
		together bool
		want     int64
	}{
		{limiters.OnStoreErrorDeny, true, 0}, {limiters.OnStoreErrorFail, true, 0}, {limiters.OnStoreErrorDeny, false, 1}, {limiters.OnStoreErrorAllow, true, 2},
	} {
		ops := []limiters.Op{op("local"), op(fmt.Sprint(c.with))}
		groups := limiters.Singles(ops...)
		if c.together {
			groups = []limiters.Group{ops}
		}
		v := takeGroups(t, withOnStoreError(f, limiters.OnStoreErrorLocal, c.with), groups...)
		if !v[0].Allowed || v[0].By != limiters.ByShare || v[0].Used != c.want {
			t.Errorf("with %q: %+v, want %d used", c.with, v[0], c.want)
		}
	}
}

// A funnel may hold more than it leaks in a window. Rare charges of that size keep to the limit,
// and may reach the same replica twice in succession.
func TestChargeLargerThanTheRateHasTheWholeFunnel(t *testing.T) {
	now := time.Now()
	f := guard.NewFallback(&limiterstest.FailingStore{Err: errUnreachable}, guard.FallbackOptions{Local: memoryAt(&now), Replicas: func() int { return 10 }})
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 60, Params: limiters.Params{Capacity: 600}, Window: time.Minute})
	for i := range 3 {
		var v [1]limiters.Verdict
		op := limiters.Op{Key: "k", Limit: limit, Hits: 600}
		err := withOnStoreError(f, limiters.OnStoreErrorLocal).Take(t.Context(), []limiters.Group{{op}}, v[:])
		now = now.Add(10 * time.Minute)
		if err != nil || !v[0].Allowed {
			t.Errorf("operation %d: %+v, %v", i, v, err)
		}
	}
}
