package limiters

import (
	"math/bits"
	"slices"
	"time"
)

// A funnel is a leaky bucket as a meter (GCRA, ITU-T I.371), like CL.THROTTLE of redis-cell: it
// holds hits up to its capacity and drains at max per window. Its level is stored as the time to
// drain. A hit takes window/max to drain, which is stored as whole microseconds and a fraction, so
// that the rate is exact.
//
// A charge of more hits than the capacity never fits.
type funnel struct {
	max, window int64 // window in µs
	capacity    int64 // the largest level, in hits
	perHit      hitTime
	// perRefund is the time of a refunded hit. A hit takes longer to drain under a share, so a
	// share refunds at the rate of the whole limit: a refund is then never worth more than its
	// charge.
	perRefund hitTime
	full      span // time until the capacity has drained
	overdraft span // time until twice the capacity has drained: the bound for counted denied hits
}

// maxCapacity bounds the capacity, and maxDen the denominator of the time to drain a hit, so that
// products are exact in the doubles of the Lua twin.
const maxCapacity, maxDen = 1<<32 - 1, 1<<32 - 1

// maxDrainMicros bounds the time to drain a full funnel: about 71 years. A time plus twice
// maxDrainMicros is exact in a double.
const maxDrainMicros = 1 << 51

// MaxFunnelUsed bounds the usage that a funnel reports: twice the maximum capacity.
const MaxFunnelUsed = 1 << 33

var errDrainsTooSlowly = specErrorf("the funnel takes more than 71 years to drain").withRemedy("set a smaller 'capacity' or a higher rate")

var funnelParameters = []Parameter{{
	Key: "capacity", Type: Integer, Min: 1, Max: maxCapacity, Hits: true, DefaultText: "requests_per_unit",
	number: func(p *Params) *int64 { return &p.Capacity },
	About:  "the largest burst, in hits.",
}}

var funnelDefinition = definition{
	name:       "funnel",
	parameters: slices.Concat(funnelParameters, windowedParameters),
	largestMax: maxCapacity,
	stateWords: 3,
	hasWindow:  true,
	drains:     true,
	nextValidMax: func(spec Spec) int64 {
		if step, ok := stepOf(spec.Max, spec.Window); ok {
			return (spec.Max + step - 1) / step * step
		}
		return spec.Max
	},
	newAlgorithm: newFunnel,
}

// newFunnel returns the funnel of spec, which refunds hits at the rate of whole. It returns an
// error if the capacity exceeds maxCapacity, the denominator of perHit maxDen, or the time to drain
// maxDrainMicros. The capacity must be 0 under a maximum of 0.
func newFunnel(spec, whole Spec) (algorithm, error) {
	a := &funnel{
		max: spec.Max, window: spec.Window.Microseconds(),
		capacity: spec.capacity(), perHit: newHitTime(spec),
	}
	if a.max == 0 {
		if a.capacity != 0 {
			return nil, specErrorf("'capacity' has no meaning for a maximum of 0, which denies every hit").withRemedy("remove 'capacity'")
		}
		return a, nil
	}
	if a.capacity > maxCapacity {
		return nil, specErrorf("a funnel of %d hits is too large", a.capacity).withRemedy("want a 'capacity' of at most %d", maxCapacity)
	}
	hit := &a.perHit
	if hit.den > maxDen {
		return nil, impreciseError(spec)
	}
	if hi, lo := bits.Mul64(uint64(a.capacity), hit.num); hi >= hit.den || quotient(hi, lo, hit.den) > maxDrainMicros {
		return nil, errDrainsTooSlowly
	}
	a.full = hit.timeFor(a.capacity)
	a.overdraft = hit.timeFor(2 * a.capacity)
	a.perRefund = newHitTime(whole)
	return a, nil
}

// stepOf returns the smallest divisor of window whose multiples, up to maximum, are valid maximums:
// their hit times have denominators of at most maxDen. It returns false if there is none.
func stepOf(maximum int64, window time.Duration) (step int64, ok bool) {
	us := window.Microseconds()
	smallest := max(1, (maximum+maxDen-1)/maxDen)
	if us%smallest == 0 {
		return smallest, true
	}
	for _, d := range divisorsOf(us) {
		if d >= smallest && (!ok || d < step) {
			step, ok = d, true
		}
	}
	return step, ok
}

// divisorsOf returns the divisors of n > 0, unsorted. It does not try each number up to n, because
// that would take seconds for a long window.
func divisorsOf(n int64) []int64 {
	divisors := []int64{1}
	for factor := int64(2); n > 1; factor++ {
		if factor*factor > n {
			factor = n // n is a prime
		}
		before := divisors
		for power := factor; n%factor == 0; power *= factor {
			n /= factor
			for _, d := range before {
				divisors = append(divisors, d*power)
			}
		}
	}
	return divisors
}

// impreciseError returns the error for a denominator above maxDen, with a smaller valid maximum.
func impreciseError(spec Spec) error {
	maximum := int64(maxDen)
	if step, ok := stepOf(spec.Max, spec.Window); ok {
		maximum = spec.Max - spec.Max%step
	}
	return specErrorf("a funnel cannot count %d hits in %v exactly", spec.Max, spec.Window).withRemedy("want at most %d", maximum)
}

func (a *funnel) idPrefix() string { return "f" }

// level returns the level, as the time to drain, and the time at which it has this level: the later
// of now and the time of the state.
func (a *funnel) level(s *State, now int64) (level span, at int64) {
	f := funnelStateOf(s)
	if f.time-now > a.window {
		return span{}, now
	}
	at = max(now, f.time)
	level = f.level
	if f.den != a.perHit.den {
		// The state was written under a limit with another rate.
		level = span{level.ceil(), 0}
	}
	level.whole -= at - f.time
	if level.whole < 0 {
		return span{}, at
	}
	return level, at
}

func (a *funnel) fits(s *State, now, n int64) (bool, int64) {
	level, at := a.level(s, now)
	hit := &a.perHit
	after := hit.add(level, hit.timeFor(n))
	if !a.full.less(after) {
		return true, 0
	}
	return false, hit.sub(after, a.full).ceil() + at - now
}

func (a *funnel) charge(s *State, now, n int64) {
	if a.max == 0 {
		return
	}
	hit := &a.perHit
	level, at := a.level(s, now)
	if n > 0 {
		maxLevel := a.overdraft
		if maxLevel.less(level) {
			// The level exceeds a capacity that has been lowered. It stays until it has drained.
			maxLevel = level
		}
		level = hit.add(level, hit.timeFor(min(n, 2*a.capacity)))
		if maxLevel.less(level) {
			level = maxLevel
		}
	} else {
		if level == (span{}) {
			return
		}
		refund := a.perRefund.timeFor(min(-n, a.perRefund.hits(level)))
		if a.perRefund != *hit {
			refund.frac = 0 // computed with another denominator, so the fraction cannot be subtracted
		}
		level = hit.sub(level, refund)
	}
	var f funnelState
	if level != (span{}) {
		f = funnelState{at, level, hit.den}
	}
	f.store(s)
}

func (a *funnel) reserve(s *State, now, n int64) (chargedAt int64) {
	if n > 0 {
		a.charge(s, now, n)
	}
	return 0
}

// settle keeps the level between empty and twice the capacity.
func (a *funnel) settle(s *State, now int64, corrections []correction) {
	for _, c := range corrections {
		if c.delta != 0 {
			a.charge(s, now, c.delta)
		}
	}
}

func (a *funnel) usage(s *State, now int64) (used, resetAfter int64) {
	if a.max == 0 {
		return 0, 0
	}
	level, at := a.level(s, now)
	if level == (span{}) {
		return 0, 0
	}
	return a.perHit.hits(level), level.ceil() + at - now
}

func (a *funnel) resetTime(s *State) int64 {
	f := funnelStateOf(s)
	return f.time + f.level.ceil()
}

func (a *funnel) extraWait(k int64) int64 { return a.perHit.timeFor(k).ceil() }

func (a *funnel) maxAdmitted() int64 { return a.capacity + a.max }

func (a *funnel) twinArgs(int64) ([maxTwinArgs]int64, int) {
	num, den := a.perHit.num, a.perHit.den
	return [maxTwinArgs]int64{a.capacity, int64(num / den), int64(num % den), int64(den)}, 4
}

// A funnelState is the words of a [State] under a funnel.
type funnelState struct {
	time  int64  // when level was computed, in µs since 1970
	level span   // the time to drain
	den   uint64 // the denominator of level, at most maxDen
}

func funnelStateOf(s *State) funnelState {
	fraction := uint64(s.words[2])
	return funnelState{time: s.words[0], level: span{s.words[1], fraction >> 32}, den: fraction & maxDen}
}

func (f funnelState) store(s *State) {
	s.words = [...]int64{f.time, f.level.whole, int64(f.level.frac<<32 | f.den)}
}

// A hitTime is the time in which one hit drains: num/den µs, in lowest terms.
type hitTime struct{ num, den uint64 }

// newHitTime returns the time of a hit under a limit. Under a limit of 0, which never charges, a
// hit takes no time.
func newHitTime(spec Spec) hitTime {
	maximum, window := spec.Max, spec.Window.Microseconds()
	if maximum == 0 {
		return hitTime{den: 1}
	}
	g := gcd(maximum, window)
	return hitTime{num: uint64(window / g), den: uint64(maximum / g)}
}

// A span is a duration of whole + frac/den µs, with the den of its hitTime.
type span struct {
	whole int64
	frac  uint64
}

// timeFor returns the time to drain k hits. It does not overflow for k up to twice the capacity.
func (t *hitTime) timeFor(k int64) span {
	hi, lo := bits.Mul64(uint64(k), t.num)
	whole, frac := bits.Div64(hi, lo, t.den)
	return span{int64(whole), frac}
}

// hits returns the number of hits that drain in s, rounded up, at most MaxFunnelUsed.
func (t *hitTime) hits(s span) int64 {
	hi, lo := bits.Mul64(uint64(s.whole), t.den)
	lo, carry := bits.Add64(lo, s.frac, 0)
	hi += carry
	if hi >= t.num {
		return MaxFunnelUsed
	}
	n, rest := bits.Div64(hi, lo, t.num)
	if n >= MaxFunnelUsed {
		return MaxFunnelUsed
	}
	if rest > 0 {
		n++
	}
	return int64(n)
}

func (t *hitTime) add(a, b span) span {
	s := span{a.whole + b.whole, a.frac + b.frac}
	if s.frac >= t.den {
		s.whole, s.frac = s.whole+1, s.frac-t.den
	}
	return s
}

// sub returns a - b, at least 0.
func (t *hitTime) sub(a, b span) span {
	if !b.less(a) {
		return span{}
	}
	if a.frac < b.frac {
		a.whole, a.frac = a.whole-1, a.frac+t.den
	}
	return span{a.whole - b.whole, a.frac - b.frac}
}

func (s span) less(t span) bool { return s.whole < t.whole || s.whole == t.whole && s.frac < t.frac }

// ceil returns s in µs, rounded up.
func (s span) ceil() int64 {
	if s.frac > 0 {
		return s.whole + 1
	}
	return s.whole
}

func quotient(hi, lo, den uint64) uint64 {
	q, _ := bits.Div64(hi, lo, den)
	return q
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
