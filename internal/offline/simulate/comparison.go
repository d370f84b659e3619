package simulate

import (
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// compared are the algorithms of a Comparison.
var compared = [...]string{"fixed_window", "sliding_log", "funnel"}

const (
	fixedWindow = iota
	slidingLog
	funnel
	demanded // all hits, allowed or denied
)

// A comparison runs the compared algorithms over the requests that reach a limit.
type comparison struct {
	limits     [len(compared)]*limiters.Limit // nil: the algorithm cannot have these numbers
	errs       [len(compared)]error
	configured int // the index in compared of the limit's algorithm; -1 if it is not one of them
	counts     [len(compared)]struct {
		denied, keysDenied, burst, burstAt int64
		burstKey                           string
	}
	window  int64
	burst   *Burst
	pending *keyStats // with the largest burst of fixed windows, which is not in burst yet
	ops     [len(compared)]limiters.Op
	groups  []limiters.Group
	byGroup [len(compared)]int // the algorithm of each group
	states  [len(compared)]*limiters.State
	out     [len(compared)]limiters.Verdict
}

// newComparison returns the comparison of a limit, or the reason why the limit has none.
func newComparison(limit *limiters.Limit) (*comparison, string) {
	spec := limit.Spec()
	switch {
	case limit.Window() == 0:
		return nil, "the limit has no window"
	case limit.Reserves():
		return nil, "the limit has reservations"
	case spec.Max == 0:
		return nil, "the limit denies every request"
	}
	c := &comparison{window: spec.Window.Microseconds(), configured: -1}
	for i, algorithm := range compared {
		other := limiters.Spec{Algorithm: algorithm, Max: spec.Max, Window: spec.Window, CountDenied: limiters.CountsDeniedByDefault(algorithm)}
		if spec.CountDenied != limiters.CountsDeniedByDefault(spec.Algorithm) {
			other.CountDenied = spec.CountDenied
		}
		if algorithm == spec.Algorithm {
			c.configured, other.Params = i, ownParams(spec.Params)
		}
		var err error
		c.limits[i], err = limiters.NewLimit(other)
		if err != nil {
			c.errs[i] = err
			continue
		}
		c.ops[len(c.groups)] = limiters.Op{Limit: c.limits[i]}
		c.byGroup[len(c.groups)] = i
		c.groups = append(c.groups, c.ops[len(c.groups):len(c.groups)+1])
	}
	return c, ""
}

// ownParams returns p without its penalty and its reservation, which a comparison ignores.
func ownParams(p limiters.Params) limiters.Params {
	p.Penalty, p.Reserve = limiters.PenaltySpec{}, limiters.ReserveSpec{}
	return p
}

// observe decides the hits of one request by each algorithm. It returns the growth of the memory of
// k: hits in its span, and bytes of its log.
func (c *comparison) observe(k *keyStats, key string, at, n int64) (hits, bytes int) {
	expired := at - c.window
	if c.pending != nil && (c.pending != k || k.span.expires(expired)) {
		c.keepBurst()
	}
	hits = -k.span.expire(expired)
	bytes = -k.states[slidingLog].HeapBytes()
	for i := range c.groups {
		c.groups[i][0].Hits = n
		c.states[i] = &k.states[c.byGroup[i]]
	}
	limiters.Decide(at, c.groups, c.states[:], c.out[:], nil)
	bytes += k.states[slidingLog].HeapBytes()
	admitted := uint8(0)
	for i := range c.groups {
		by := c.byGroup[i]
		if c.out[i].Allowed {
			admitted |= 1 << by
			continue
		}
		c.counts[by].denied++
		if k.deniedBy&(1<<by) == 0 {
			k.deniedBy |= 1 << by
			c.counts[by].keysDenied++
		}
	}
	if n > 0 {
		k.span.add(at, n, admitted)
		hits++
		c.findBursts(k, key, at)
	}
	return hits, bytes
}

func (c *comparison) findBursts(k *keyStats, key string, at int64) {
	k.demand = max(k.demand, k.span.sums[demanded])
	for by := range c.counts {
		count := &c.counts[by]
		if k.span.sums[by] <= count.burst {
			continue
		}
		count.burst, count.burstAt, count.burstKey = k.span.sums[by], at, key
		if by == fixedWindow {
			c.pending = k
		}
	}
}

// keepBurst copies the span with the largest burst of fixed windows, before the span changes.
func (c *comparison) keepBurst() {
	k, count := c.pending, &c.counts[fixedWindow]
	c.pending = nil
	from := count.burstAt - c.window
	c.burst = &Burst{
		Key: count.burstKey, From: microTime(from), To: microTime(count.burstAt),
		Demand: make([]int64, burstBins), Fixed: make([]int64, burstBins), Log: make([]int64, burstBins), Funnel: make([]int64, burstBins),
	}
	series := [...][]int64{c.burst.Fixed, c.burst.Log, c.burst.Funnel, c.burst.Demand}
	for _, h := range k.span.live() {
		if h.at > count.burstAt {
			break // hits since then that fixed windows deny
		}
		// The span is open at its start.
		bin := (h.at - from - 1) * burstBins / c.window
		for by := range series {
			if h.admitted(by) {
				series[by][bin] += h.n
			}
		}
	}
	if c.limits[fixedWindow].Spec().Params.WindowStart == "" {
		if boundary := count.burstAt - count.burstAt%c.window; boundary > from {
			c.burst.Boundary = microTime(boundary)
		}
	}
}

// result returns the Comparison. Do not call observe afterwards.
func (c *comparison) result() *Comparison {
	if c.pending != nil {
		c.keepBurst()
	}
	r := &Comparison{Burst: c.burst}
	for i, algorithm := range compared {
		count := &c.counts[i]
		one := AlgorithmResult{Algorithm: algorithm, Own: i == c.configured, Denied: count.denied, KeysDenied: count.keysDenied, Burst: count.burst}
		if count.burst > 0 {
			one.BurstKey, one.BurstAt = descriptors.KeyText(count.burstKey), microTime(count.burstAt)
		}
		if c.errs[i] != nil {
			one.Error = c.errs[i].Error()
		}
		r.Algorithms = append(r.Algorithms, one)
	}
	if r.Burst != nil {
		r.Burst.Key = descriptors.KeyText(r.Burst.Key)
	}
	return r
}

func microTime(us int64) time.Time { return time.UnixMicro(us).UTC() }

// A span holds the hits of a key in the last window, (now - window, now], in the order of their
// times.
type span struct {
	hits  []spanHit
	first int                 // the index of the oldest hit in the window
	sums  [demanded + 1]int64 // the hits that each compared algorithm admitted, and then all hits
}

type spanHit struct {
	at         int64 // in µs since 1970
	n          int64
	admittedBy uint8 // a bit for each compared algorithm
}

// maxSpanHit bounds the hits of one request in a span, so that no sum overflows.
const maxSpanHit = 1 << 39

func (h spanHit) admitted(by int) bool { return by == demanded || h.admittedBy>>by&1 == 1 }

func (s *span) live() []spanHit { return s.hits[s.first:] }

func (s *span) expires(before int64) bool {
	return s.first < len(s.hits) && s.hits[s.first].at <= before
}

// expire drops the hits up to a time. It returns their number.
func (s *span) expire(before int64) (dropped int) {
	for ; s.expires(before); s.first++ {
		s.addToSums(s.hits[s.first], -1)
		dropped++
	}
	switch {
	case s.first == len(s.hits):
		s.hits, s.first = s.hits[:0], 0
	case s.first > 32 && s.first > len(s.hits)/2:
		s.hits = append(make([]spanHit, 0, len(s.hits)), s.live()...)
		s.first = 0
	}
	return dropped
}

func (s *span) add(at, n int64, admittedBy uint8) {
	h := spanHit{at, min(n, maxSpanHit), admittedBy}
	s.hits = append(s.hits, h)
	s.addToSums(h, 1)
}

// addToSums adds a hit to the sums with the sign 1, and takes it out with the sign -1.
func (s *span) addToSums(h spanHit, sign int64) {
	for by := range s.sums {
		if h.admitted(by) {
			s.sums[by] += sign * h.n
		}
	}
}
