// Package limiterstest is the conformance suite of [limiters.Store]. The test of a store calls
// [Run] with a function that opens the store. The store needs the method TakeAt: a [Clock] adds it
// to a store with an option for its clock, and [Decorated] to a decorator. A bug found in one store
// becomes a trace here, and so a test of all stores.
//
// The first part is traces, in testdata:
//
//	+7s take 1 => ok used=3 remaining=2 reset=53s
//
// The second part compares a store with [Reference], verdict by verdict and field by field, over
// long random sequences with clocks that stand still, jump and step back. The reference itself is
// compared with the traces, and with models that are naive on purpose: a list of every hit, a
// fraction of big integers.
package limiterstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Run runs the suite on stores that open returns. Each must be empty, and open must register its
// cleanup.
func Run(t *testing.T, open func(t *testing.T) TimedStore) {
	RunAgainst(t, newReference, open)
}

// RunAgainst is [Run] with another reference for random sequences. It is for a decorator that keeps
// the limits of a key in several stores, so that a reload can move a limit to another store. The
// reference must not use the decorator.
func RunAgainst(t *testing.T, newReference func() TimedStore, open func(t *testing.T) TimedStore) {
	suite{newReference, fullSequences}.run(t, open)
	t.Run("many leases", func(t *testing.T) { testManyLeases(t, open(t)) })
}

// RunReduced is [Run] with fewer random sequences, and without keys that have many leases. It is
// for a store that differs only in its connection, or in the names of its keys, from a store that
// passes Run.
func RunReduced(t *testing.T, open func(t *testing.T) TimedStore) {
	suite{newReference, fullSequences / 6}.run(t, open)
}

func newReference() TimedStore { return NewReference() }

// A suite is the conformance suite with a reference and a number of random sequences per algorithm.
type suite struct {
	newReference func() TimedStore
	sequences    uint64
}

func (s suite) run(t *testing.T, openUnchecked func(t *testing.T) TimedStore) {
	open := func(t *testing.T) TimedStore { return checkedStore{openUnchecked(t), t} }
	t.Run("traces", func(t *testing.T) { RunTraces(t, open(t)) })
	t.Run("random", func(t *testing.T) { s.random(t, open(t), WindowedAlgorithms(), NewGenerator) })
	t.Run("random leases", func(t *testing.T) { s.random(t, open(t), limiters.Algorithms(), NewLeaseGenerator) })
	t.Run("random mixed", func(t *testing.T) { s.randomMixed(t, open(t)) })
	t.Run("reservations after a refund", func(t *testing.T) { testReservationsAfterRefund(t, open(t)) })
	t.Run("random penalties", func(t *testing.T) { s.random(t, open(t), WindowedAlgorithms(), NewPenaltyGenerator) })
	t.Run("random resets", func(t *testing.T) { s.randomResets(t, open(t)) })
	RunOwnClock(t, openUnchecked)
}

// RunOwnClock is the part of [Run] in which the store uses its own clock.
func RunOwnClock(t *testing.T, openUnchecked func(t *testing.T) TimedStore) {
	open := func(t *testing.T) limiters.Store { return checkedStore{openUnchecked(t), t} }
	replicas := func(t *testing.T) []limiters.Store { return slices.Repeat([]limiters.Store{open(t)}, 3) }
	t.Run("races", func(t *testing.T) { RunRaces(t, replicas(t)) })
	t.Run("races with penalties", func(t *testing.T) { testPenaltyRaces(t, replicas(t)) })
	t.Run("resets", func(t *testing.T) { testResets(t, open(t)) })
	t.Run("canceled", func(t *testing.T) { testCanceled(t, open(t)) })
	t.Run("no operations", func(t *testing.T) { testNoOps(t, open(t)) })
	t.Run("own clock", func(t *testing.T) { testOwnClock(t, open(t)) })
	t.Run("order", func(t *testing.T) { testOrder(t, open(t)) })
}

// A checkedStore fails t if a verdict contradicts itself: a penalty denies, and only a denied
// operation waits. It also fails t if a Take fails and a verdict has no error.
type checkedStore struct {
	TimedStore
	t *testing.T
}

func (s checkedStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	return s.check(s.TimedStore.Take(ctx, groups, out), out)
}

func (s checkedStore) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	return s.check(s.TimedStore.TakeAt(ctx, now, groups, out), out)
}

// check checks the result of a Take, and returns its error.
func (s checkedStore) check(err error, out []limiters.Verdict) error {
	for i := range out {
		v := &out[i]
		if v.Allowed && (v.Penalized || v.PenaltyBegan || v.TooManyLeases || v.RetryAfter != 0 || v.Err != nil) {
			s.t.Errorf("a verdict contradicts itself: %+v", *v)
		}
		if err != nil && v.Err == nil {
			s.t.Errorf("Take fails with %q, and a verdict has no error: %+v", err, *v)
		}
	}
	return err
}

// WindowedAlgorithms returns the algorithms whose limits have a window.
func WindowedAlgorithms() []string {
	return slices.DeleteFunc(limiters.Algorithms(), func(name string) bool { return !limiters.HasWindow(name) })
}

// Take decides groups in one call, by the clock of the store.
func Take(store limiters.Store, groups ...limiters.Group) ([]limiters.Verdict, error) {
	out := make([]limiters.Verdict, len(slices.Concat(groups...)))
	return out, store.Take(context.Background(), groups, out)
}

// testCanceled checks that a call whose context has ended charges nothing and returns the uncharged
// error of the context.
func testCanceled(t *testing.T, store limiters.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	limit := MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour})
	groups := []limiters.Group{{{Key: "k", Limit: limit, Hits: 1}}}
	out := make([]limiters.Verdict, 1)
	if err := store.Take(ctx, groups, out); !errors.Is(err, context.Canceled) || !limiters.IsUncharged(err) {
		t.Errorf("Take of a canceled context: %v, want an uncharged %v", err, context.Canceled)
	}
	if out, err := Take(store, groups...); err != nil || !out[0].Allowed {
		t.Fatalf("the next Take: %+v, %v, want the hit that the canceled call did not charge", out[0], err)
	}
}

// testNoOps checks that a call without groups succeeds.
func testNoOps(t *testing.T, store limiters.Store) {
	if _, err := Take(store); err != nil {
		t.Errorf("Take without operations: %v", err)
	}
}

// testOwnClock checks the times of verdicts by the clock of the store.
func testOwnClock(t *testing.T, store limiters.Store) {
	for _, name := range WindowedAlgorithms() {
		limit := MustLimit(limiters.Spec{Algorithm: name, Max: 2, Window: time.Hour})
		out, err := Take(store, limiters.Group{{Key: "k", Limit: limit, Hits: 2}}, limiters.Group{{Key: "k", Limit: limit, Hits: 1}})
		if err != nil {
			t.Fatal(name, err)
		}
		if !out[0].Allowed || out[1].Allowed {
			t.Errorf("%s: 2 and 1 of 2 an hour: %+v", name, out)
		}
		if out[0].ResetAfter <= 0 || out[0].ResetAfter > time.Hour {
			t.Errorf("%s: reset %v, want at most the window", name, out[0].ResetAfter)
		}
		if out[1].RetryAfter <= 0 || out[1].RetryAfter > out[1].ResetAfter {
			t.Errorf("%s: retry %v, want at most the reset, %v", name, out[1].RetryAfter, out[1].ResetAfter)
		}
	}
}

// testOrder checks that At and Order give the order in which a store decided the operations of a
// key. Each charge adds 1 to the usage of a key that never resets, so the usages ascend in that
// order.
func testOrder(t *testing.T, store limiters.Store) {
	const goroutines, takes = 64, 100
	limit := MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: limiters.LargestMax, Window: limiters.MaxWindow})
	var mu sync.Mutex
	decided := map[string][]limiters.Verdict{}
	before := time.Now().Add(-time.Hour).UnixMicro()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range takes {
				groups := limiters.Singles(limiters.Op{Key: "a", Limit: limit, Hits: 1}, limiters.Op{Key: "b", Limit: limit, Hits: 1})
				if g%4 == 0 {
					groups = groups[:1]
				}
				out, err := Take(store, groups...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i := range groups {
					decided[groups[i][0].Key] = append(decided[groups[i][0].Key], out[i])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, all := range decided {
		slices.SortFunc(all, func(a, b limiters.Verdict) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Order, b.Order)) })
		for i, v := range all {
			if v.Used != int64(i+1) || v.At < before {
				t.Fatalf("verdict %d of key %s by time and order has the usage %d: %+v", i+1, key, v.Used, v)
			}
		}
	}
}

// FirstHitParams returns parameters of an algorithm with which no window ends by the clock during a
// test.
func FirstHitParams(algorithm string) limiters.Params {
	for _, p := range limiters.Parameters(algorithm) {
		if p.Key == "window_start" {
			return limiters.Params{WindowStart: limiters.StartByFirstHit}
		}
	}
	return limiters.Params{}
}

// MustLimit returns the limit of a valid spec. It panics if the spec is invalid.
func MustLimit(spec limiters.Spec) *limiters.Limit {
	l, err := limiters.NewLimit(spec)
	if err != nil {
		panic(fmt.Sprintf("limiterstest: %+v: %v", spec, err))
	}
	return l
}
