package guard_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// The shares of a limit for charges of different sizes use one state. Whatever the sizes of
// charges, refunds and settlements are, a replica admits at most the whole limit at one time.
func TestChargesOfManySizesKeepToTheLimit(t *testing.T) {
	const whole, replicas = 60, 10
	now := time.Now()
	for _, name := range limiterstest.WindowedAlgorithms() {
		for _, l := range []limiters.Spec{
			{}, {CountDenied: true}, {Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Minute}}},
		} {
			l.Algorithm, l.Max, l.Window = name, whole, time.Hour
			limit, most := limiterstest.MustLimit(l), int64(0)
			for seed := range uint64(20) {
				f := withOnStoreError(guard.NewFallback(&limiterstest.FailingStore{Err: errUnreachable}, guard.FallbackOptions{
					Local: memoryAt(&now), Replicas: func() int { return replicas },
				}), limiters.OnStoreErrorLocal)
				most = max(most, mostAdmitted(t, f, limit, rand.New(rand.NewPCG(seed, 1))))
			}
			if most > whole {
				t.Errorf("%+v: admitted %d at one time", l, most)
			}
		}
	}
}

// mostAdmitted takes charges of random sizes at one time, and refunds or settles parts of some. It
// returns the highest sum of those admitted.
func mostAdmitted(t *testing.T, store limiters.Store, limit *limiters.Limit, rnd *rand.Rand) int64 {
	t.Helper()
	sizes := []int64{1, 1, 1, 2, 7, 20, 30, 60}
	decide := func(op limiters.Op) bool {
		op.Key, op.Limit = "k", limit
		var out [1]limiters.Verdict
		if err := store.Take(t.Context(), limiters.Singles(op), out[:]); err != nil || out[0].Err != nil {
			t.Fatal(err, out[0].Err)
		}
		return out[0].Allowed
	}
	sum, most := int64(0), int64(0)
	for i := range byte(250) {
		op := limiters.Op{Hits: sizes[rnd.IntN(len(sizes))]}
		if limit.Reserves() {
			op.Lease[0] = i + 1
		}
		if !decide(op) {
			continue
		}
		actual := rnd.Int64N(op.Hits + 1)
		if limit.Reserves() {
			decide(limiters.Op{Hits: actual, Lease: op.Lease, Kind: limiters.OpEnd})
		} else {
			decide(limiters.Op{Hits: actual - op.Hits})
		}
		sum += actual
		most = max(most, sum)
	}
	return most
}
