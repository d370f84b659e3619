package limiterstest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// RunLeaseRaces opens and ends leases and reservations of one key from many goroutines on each of
// several stores that share their state.
func RunLeaseRaces(t *testing.T, replicas []limiters.Store) {
	t.Run("concurrency", func(t *testing.T) { slotRaces(t, replicas) })
	for _, name := range WindowedAlgorithms() {
		t.Run(name, func(t *testing.T) { reserveRaces(t, replicas, name) })
	}
}

// slotRaces checks that no more slots are held than the limit has, and that none is held after all
// releases.
func slotRaces(t *testing.T, replicas []limiters.Store) {
	const slots = 10
	limit := MustLimit(limiters.Spec{Algorithm: "concurrency", Max: slots})
	var held, admitted atomic.Int64
	racers(replicas, func(store limiters.Store, id string) {
		op := limiters.Op{Key: "slots", Limit: limit, N: 1, Lease: limiters.NewLeaseID(nil, id)}
		if v := takeOne(t, store, op); v.Allowed {
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

// reserveRaces checks that the usage of a key is the sum of the settled costs.
func reserveRaces(t *testing.T, replicas []limiters.Store, algorithm string) {
	params := FirstHitParams(algorithm)
	params.Reserve.TTL = time.Hour
	limit := MustLimit(limiters.Spec{Algorithm: algorithm, Max: 100_000, Window: limiters.MaxWindow, Params: params})
	var number, actual atomic.Int64
	racers(replicas, func(store limiters.Store, id string) {
		n := number.Add(1)
		op := limiters.Op{Key: "reserved", Limit: limit, N: n % 50, Lease: limiters.NewLeaseID(nil, id)}
		if v := takeOne(t, store, op); !v.Allowed {
			t.Errorf("reserve %d hits: got %+v, want allowed", op.N, v)
		}
		op.Kind, op.N = limiters.OpEnd, n%70
		for range 2 { // the second changes nothing
			takeOne(t, store, op)
		}
		actual.Add(op.N)
	})
	if v := takeOne(t, replicas[0], limiters.Op{Key: "reserved", Limit: limit}); v.Used != actual.Load() {
		t.Errorf("the usage is %d, want %d", v.Used, actual.Load())
	}
}

// racers calls f with many ids from many goroutines on each store.
func racers(replicas []limiters.Store, f func(store limiters.Store, id string)) {
	const goroutines, calls = 16, 20
	var wg sync.WaitGroup
	for r, store := range replicas {
		for g := range goroutines {
			wg.Go(func() {
				for i := range calls {
					f(store, fmt.Sprint(r, g, i))
				}
			})
		}
	}
	wg.Wait()
}

func takeOne(t *testing.T, store limiters.Store, op limiters.Op) limiters.Verdict {
	out := make([]limiters.Verdict, 1)
	if err := store.Take(context.Background(), time.Time{}, limiters.Singles(op), out); err != nil || out[0].Err != nil {
		t.Errorf("take: %v %v", err, out[0].Err)
	}
	return out[0]
}
