package limiterstest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// NewPenaltyGenerator returns a Generator for an algorithm and a seed, whose limits have penalties.
// One of them may have another penalty or none, as after a reload.
func NewPenaltyGenerator(algorithm string, seed uint64) *Generator {
	rnd := rand.New(rand.NewPCG(seed, 1))
	spec := randomSpec(rnd, algorithm)
	spec.Params.Penalty = randomPenalty(rnd)
	g := newGenerator(rnd, fmt.Sprintf("%s penalties %d", algorithm, seed), spec)
	spec.Params.Penalty = limiters.PenaltySpec{}
	if rnd.IntN(2) == 0 {
		spec.Params.Penalty = randomPenalty(rnd)
	}
	g.addReloaded(spec)
	p := g.limits[0].Spec().Params.Penalty
	longest := cmp.Or(p.Max, 24*time.Hour)
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
		p.Max = pick(rnd, lasts, 3*lasts, limiters.MaxWindow)
	}
	if rnd.IntN(2) == 0 {
		p.Forget = pick(rnd, durations...)
	}
	return p
}
