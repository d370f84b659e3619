package limiterstest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// RunRaces uses up one key of each algorithm from 64 goroutines on each of several stores that
// share their state. They must admit exactly the limit: a window of ten years does not end
// meanwhile, and no hit leaks from a funnel.
func RunRaces(t *testing.T, replicas []limiters.Store) {
	t.Run("leases", func(t *testing.T) { testLeaseRaces(t, replicas) })
	const maximum = 500
	for _, name := range WindowedAlgorithms() {
		limit := MustLimit(limiters.Spec{Algorithm: name, Max: maximum, Window: limiters.MaxWindow})
		t.Run(name, func(t *testing.T) {
			var admitted, sent atomic.Int64
			charge := func(store limiters.Store, n int64) {
				if takeOne(t, store, limiters.Op{Key: "spent", Limit: limit, Hits: n}).Allowed {
					admitted.Add(n)
				}
				sent.Add(n)
			}
			race(replicas, 64, 12, func(store limiters.Store, g, i int) { charge(store, int64(1+(g+i)%3)) })
			// Less than the largest charge remains. Charges of 1 use up the rest.
			for range 3 {
				charge(replicas[0], 1)
			}
			if got := admitted.Load(); got != maximum {
				t.Errorf("%d hits of %d were admitted, want exactly %d", got, sent.Load(), maximum)
			}
		})
	}
}

// testPenaltyRaces uses up one key of each algorithm as [RunRaces] does, under a limit with a
// penalty. Exactly the limit is admitted, and exactly the offenses before the penalty are denied
// without it.
func testPenaltyRaces(t *testing.T, replicas []limiters.Store) {
	const goroutines, calls, maximum, after = 64, 12, 500, 100
	for _, name := range WindowedAlgorithms() {
		limit := MustLimit(limiters.Spec{
			Algorithm: name, Max: maximum, Window: limiters.MaxWindow,
			Params: limiters.Params{Penalty: limiters.PenaltySpec{
				After: after, Within: time.Hour, For: limiters.MaxWindow, Max: limiters.MaxWindow,
			}},
		})
		t.Run(name, func(t *testing.T) {
			var admitted, offenses, penalized, began atomic.Int64
			race(replicas, goroutines, calls, func(store limiters.Store, _, _ int) {
				v := takeOne(t, store, limiters.Op{Key: "offended", Limit: limit, Hits: 1})
				switch {
				case v.Allowed:
					admitted.Add(1)
				case v.Penalized:
					penalized.Add(1)
				default:
					offenses.Add(1)
				}
				if v.PenaltyBegan {
					began.Add(1)
				}
			})
			if n := began.Load(); n != 1 {
				t.Errorf("%d operations began a penalty, want 1", n)
			}
			// The last offense is denied by the penalty that it begins.
			want := [3]int64{maximum, after - 1, int64(len(replicas)*goroutines*calls) - maximum - after + 1}
			if got := [3]int64{admitted.Load(), offenses.Load(), penalized.Load()}; got != want {
				t.Errorf("%v operations were admitted, denied by the limit and denied by the penalty: want %v", got, want)
			}
		})
	}
}

// testLeaseRaces opens and ends leases of one key from many goroutines on each of several stores
// that share their state.
func testLeaseRaces(t *testing.T, replicas []limiters.Store) {
	t.Run("concurrency", func(t *testing.T) { testSlotRaces(t, replicas) })
	for _, name := range WindowedAlgorithms() {
		t.Run(name, func(t *testing.T) { testReservationRaces(t, replicas, name) })
	}
}

// testSlotRaces checks that no more slots are held than the limit has, and that none is held after
// all releases.
func testSlotRaces(t *testing.T, replicas []limiters.Store) {
	const slots = 10
	limit := MustLimit(limiters.Spec{Algorithm: "concurrency", Max: slots})
	var held, admitted atomic.Int64
	race(replicas, 16, 20, func(store limiters.Store, g, i int) {
		op := limiters.Op{Key: "slots", Limit: limit, Hits: 1, Lease: idOf(g, i)}
		if takeOne(t, store, op).Allowed {
			admitted.Add(1)
			if n := held.Add(1); n > slots {
				t.Errorf("%d slots of %d are held", n, slots)
			}
			held.Add(-1)
		}
		op.Kind = limiters.OpEnd
		takeOne(t, store, op)
	})
	if v := takeOne(t, replicas[0], limiters.Op{Key: "slots", Limit: limit}); v.Used != 0 || admitted.Load() < slots {
		t.Errorf("after all releases %d slots are held; %d requests were admitted", v.Used, admitted.Load())
	}
}

// testReservationRaces checks that the usage of a key is the sum of the settled costs.
func testReservationRaces(t *testing.T, replicas []limiters.Store, algorithm string) {
	const goroutines, calls = 16, 20
	params := FirstHitParams(algorithm)
	params.Reserve.TTL = time.Hour
	limit := MustLimit(limiters.Spec{Algorithm: algorithm, Max: 100_000, Window: limiters.MaxWindow, Params: params})
	var actual atomic.Int64
	race(replicas, goroutines, calls, func(store limiters.Store, g, i int) {
		n := int64(g*calls + i)
		op := limiters.Op{Key: "reserved", Limit: limit, Hits: n % 50, Lease: idOf(g, i)}
		if v := takeOne(t, store, op); !v.Allowed {
			t.Errorf("reserve %d hits: got %+v, want allowed", op.Hits, v)
		}
		op.Kind, op.Hits = limiters.OpEnd, n%70
		for range 2 { // the second changes nothing
			takeOne(t, store, op)
		}
		actual.Add(op.Hits)
	})
	if v := takeOne(t, replicas[0], limiters.Op{Key: "reserved", Limit: limit}); v.Used != actual.Load() {
		t.Errorf("the usage is %d, want %d", v.Used, actual.Load())
	}
}

// race calls f on each store, from as many goroutines for each, and waits for them. Goroutine g of
// all makes call i.
func race(replicas []limiters.Store, goroutines, calls int, f func(store limiters.Store, g, i int)) {
	var wg sync.WaitGroup
	for g := range goroutines * len(replicas) {
		wg.Go(func() {
			for i := range calls {
				f(replicas[g%len(replicas)], g, i)
			}
		})
	}
	wg.Wait()
}

// takeOne decides an operation. Any goroutine may call it: an error does not end the test.
func takeOne(t *testing.T, store limiters.Store, op limiters.Op) limiters.Verdict {
	out, err := Take(store, limiters.Group{op})
	if err != nil || out[0].Err != nil {
		t.Errorf("take: %v %v", err, out[0].Err)
	}
	return out[0]
}

// idOf returns the id of lease i of goroutine or call n.
func idOf(n, i int) limiters.LeaseID { return limiters.NewLeaseID(nil, fmt.Sprint(n, "/", i)) }
