package limiterstest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// randomPenalties is [RunRandom] for limits with penalties.
func randomPenalties(t *testing.T, store limiters.Store, newReference func() limiters.Store, sequences uint64) {
	random(t, store, newReference, sequences, NewPenaltyGenerator)
}

// NewPenaltyGenerator returns a Generator for an algorithm and a seed, whose limits have penalties.
// One of them may have another penalty or none, as after a reload.
func NewPenaltyGenerator(algorithm string, seed uint64) *Generator {
	rnd := rand.New(rand.NewPCG(seed, 1))
	spec := randomSpec(rnd, algorithm)
	spec.Params.Penalty = randomPenalty(rnd)
	g := newGenerator(rnd, fmt.Sprintf("%s penalties %d ", algorithm, seed), spec)
	spec.Params.Penalty = limiters.PenaltySpec{}
	if rnd.IntN(2) == 0 {
		spec.Params.Penalty = randomPenalty(rnd)
	}
	g.addReloaded(spec)
	p := g.limits[0].Spec().Params.Penalty
	longest := cmp.Or(p.Longest, 24*time.Hour)
	for _, d := range []time.Duration{p.Within, p.For, longest, cmp.Or(p.Forget, longest)} {
		// Longer times would carry the clock of a sequence beyond 2^53 µs.
		g.spans = append(g.spans, min(d.Microseconds(), maxSpanMicros))
	}
	return g
}

const maxSpanMicros = int64(24 * time.Hour / time.Microsecond)

func randomPenalty(rnd *rand.Rand) limiters.PenaltySpec {
	durations := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, time.Minute, time.Hour, limiters.MaxWindow}
	lasts := pick(rnd, durations[:5]...)
	p := limiters.PenaltySpec{After: pick[int64](rnd, 1, 1, 2, 3, 5), Within: pick(rnd, durations...), For: lasts}
	if rnd.IntN(3) > 0 {
		p.Factor = pick[int64](rnd, 1, 2, 3, 1000)
	}
	if rnd.IntN(2) == 0 {
		p.Longest = pick(rnd, lasts, 3*lasts, limiters.MaxWindow)
	}
	if rnd.IntN(2) == 0 {
		p.Forget = pick(rnd, durations...)
	}
	return p
}

// RunPenaltyRaces uses up one key of each algorithm as [RunRaces] does, under a limit with a
// penalty. Exactly the limit is admitted, and exactly the offences before the penalty are denied
// without it.
func RunPenaltyRaces(t *testing.T, replicas []limiters.Store) {
	const goroutines, each, maximum, after = 64, 12, 500, 100
	for _, name := range WindowedAlgorithms() {
		limit := MustLimit(limiters.Spec{
			Algorithm: name, Max: maximum, Window: limiters.MaxWindow,
			Params: limiters.Params{Penalty: limiters.PenaltySpec{
				After: after, Within: time.Hour, For: limiters.MaxWindow, Longest: limiters.MaxWindow,
			}},
		})
		t.Run(name, func(t *testing.T) {
			var admitted, offences, penalized, began atomic.Int64
			var wg sync.WaitGroup
			for _, store := range replicas {
				for range goroutines {
					wg.Go(func() {
						groups, out := limiters.Singles(limiters.Op{Key: "offended", Limit: limit, N: 1}), make([]limiters.Verdict, 1)
						for range each {
							if err := store.Take(context.Background(), time.Time{}, groups, out); err != nil || out[0].Err != nil {
								t.Errorf("take: %v %v", err, out[0].Err)
								return
							}
							switch {
							case out[0].Allowed:
								admitted.Add(1)
							case out[0].Penalized:
								penalized.Add(1)
								if out[0].PenaltyBegan {
									began.Add(1)
								}
							default:
								offences.Add(1)
							}
						}
					})
				}
			}
			wg.Wait()
			if n := began.Load(); n != 1 {
				t.Errorf("%d operations began a penalty, want 1", n)
			}
			// The last offence is denied by the penalty that it begins.
			want := [3]int64{maximum, after - 1, int64(len(replicas)*goroutines*each) - maximum - after + 1}
			if got := [3]int64{admitted.Load(), offences.Load(), penalized.Load()}; got != want {
				t.Errorf("%v operations were admitted, denied by the limit and denied by the penalty: want %v", got, want)
			}
		})
	}
}
