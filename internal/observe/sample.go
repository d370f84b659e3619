package observe

import (
	"math"
	"sync"
	"sync/atomic"
)

// countedPerSecond is the number of additions to the sketches of all shards in a second up to which each one is made. Above, a sample is
// made, so that the cost of the sketches does not grow with the load.
const countedPerSecond = 10_000

// A sampler selects what the sketches of one order count. Of n hits it counts all if n is at least the weight; otherwise it counts
// the weight, with the probability n / weight. So the mean of a count is the true count, and its variance is at most the weight times
// the true count. The weight is 1 at low rates: then each count is exact.
type sampler struct {
	weight atomic.Uint64 // a power of two
	_      [56]byte      // the fields below change more often, and must not share its cache line

	mu      sync.Mutex
	counted uint64    // additions since the last adapt
	doubles uint64    // the weight doubles when counted exceeds this number
	largest [2]uint64 // weights, by the number of the window, modulo 2
}

func newSampler() *sampler {
	s := &sampler{doubles: countedPerSecond, largest: [2]uint64{1, 1}}
	s.weight.Store(1)
	return s
}

// weigh returns the count to add for n hits: n, the weight or 0.
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

// note notes n additions.
func (s *sampler) note(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted += n
	if s.counted <= s.doubles {
		return
	}
	s.doubles += countedPerSecond
	if weight := s.weight.Load(); weight < math.MaxUint64/2 {
		s.weight.Store(2 * weight)
		// The additions may be those of the last window. From now on, those of the current window have the weight.
		s.largest[0], s.largest[1] = max(s.largest[0], 2*weight), max(s.largest[1], 2*weight)
	}
}

// adapt lowers the weight after a second with few additions. A lower weight at the same load makes at most countedPerSecond additions.
func (s *sampler) adapt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	weight := s.weight.Load()
	for ; weight > 1 && s.counted <= countedPerSecond/2; weight /= 2 {
		s.counted *= 2
	}
	s.weight.Store(weight)
	s.counted, s.doubles = 0, countedPerSecond
}

// age begins a window.
func (s *sampler) age(window uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.largest[window%2] = s.weight.Load()
}

// largestWeight returns the largest weight of the current window and the last one.
func (s *sampler) largestWeight() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.largest[0], s.largest[1])
}

// outside is the probability that the true count of a key is not within its bounds, if the largest weight is above 1.
const outside = .001

// bounds returns bounds of the true count of a key, of which a sample with a largest weight has a count from low to high. The bounds
// of a weight of 1 are low and high. Otherwise they are those of Freedman ("On tail probabilities for martingales", 1975), because the
// variance is at most the weight times the true count.
func bounds(low, high, weight uint64) (lower, upper uint64) {
	if weight <= 1 {
		return low, high
	}
	l := float64(weight) * math.Log(2/outside)
	lower = low - min(low, ceil(math.Sqrt(2*l*float64(low)+4*l*l/9)-2*l/3))
	upper = high + min(math.MaxUint64-high, ceil(l+math.Sqrt(2*l*float64(high)+l*l)))
	return lower, upper
}

// ceil returns f rounded up, at most 2^63.
func ceil(f float64) uint64 { return uint64(math.Ceil(min(f, 1<<63))) }
