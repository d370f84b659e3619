package topkeys

import (
	"math"
	"sync"
	"sync/atomic"
)

// countedPerSecond is the maximum number of additions to the sketches in a second, over all shards.
// Beyond it, additions are sampled, so that the cost does not grow with the load.
const countedPerSecond = 10_000

// A sampler selects the additions to the sketches of one order. Of n hits, it counts all if n >=
// weight; otherwise it counts weight, with probability n / weight. So a count is unbiased, and its
// variance is at most weight times the true count. At low rates weight is 1, and counts are exact.
type sampler struct {
	weight atomic.Uint64 // a power of two
	_      [56]byte      // the fields below change more often, and must not share its cache line

	mu          sync.Mutex
	counted     uint64    // additions since the last adapt
	doubleAbove uint64    // the weight doubles when counted exceeds this number
	largest     [2]uint64 // weights, by the number of the window, modulo 2
}

func newSampler() *sampler {
	s := &sampler{doubleAbove: countedPerSecond, largest: [2]uint64{1, 1}}
	s.weight.Store(1)
	return s
}

// weigh returns the count to add for n hits: n, weight or 0.
func (s *sampler) weigh(n uint64, random func() uint64) uint64 {
	weight := s.weight.Load()
	switch {
	case n >= weight:
		return n
	case n > 0 && random()&(weight-1) < n:
		return weight
	}
	return 0
}

// note records n additions.
func (s *sampler) note(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted += n
	if s.counted <= s.doubleAbove {
		return
	}
	s.doubleAbove += countedPerSecond
	if weight := s.weight.Load(); weight < math.MaxUint64/2 {
		s.weight.Store(2 * weight)
		// Additions of the last window may still be in progress, and those of the current one have
		// the new weight.
		s.largest[0], s.largest[1] = max(s.largest[0], 2*weight), max(s.largest[1], 2*weight)
	}
}

// adapt lowers the weight after a second with few additions, such that the same load would cause at
// most countedPerSecond additions.
func (s *sampler) adapt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	weight := s.weight.Load()
	for ; weight > 1 && s.counted <= countedPerSecond/2; weight /= 2 {
		s.counted *= 2
	}
	s.weight.Store(weight)
	s.counted, s.doubleAbove = 0, countedPerSecond
}

// beginWindow begins a window.
func (s *sampler) beginWindow(window uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.largest[window%2] = s.weight.Load()
}

// largestWeight returns the maximum weight of the current and the last window.
func (s *sampler) largestWeight() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.largest[0], s.largest[1])
}

// outsideProbability is the probability that a true count is outside of its bounds if the largest
// weight exceeds 1.
const outsideProbability = .001

// bounds returns bounds of a key's true count. low and high are the bounds of the sampled count,
// and weight is the largest weight. With weight 1 they are low and high. Otherwise they follow from
// Freedman's inequality ("On tail probabilities for martingales", 1975) for a variance of at most
// weight times the true count.
func bounds(low, high, weight uint64) (lower, upper uint64) {
	if weight <= 1 {
		return low, high
	}
	l := float64(weight) * math.Log(2/outsideProbability)
	lower = low - min(low, ceil(math.Sqrt(2*l*float64(low)+4*l*l/9)-2*l/3))
	upper = high + min(math.MaxUint64-high, ceil(l+math.Sqrt(2*l*float64(high)+l*l)))
	return lower, upper
}

// ceil returns f rounded up, at most 2^63.
func ceil(f float64) uint64 { return uint64(math.Ceil(min(f, 1<<63))) }
