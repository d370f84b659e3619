package limiters

import (
	"errors"
	"math/bits"
)

// funnel holds hits up to its capacity and leaks the maximum per window, continuously. It is the leaky bucket as a meter, or
// GCRA (ITU-T I.371), like CL.THROTTLE of redis-cell. Its level is kept as the time that it takes to drain, so the rate is
// exact. A hit takes window/max to leave, in whole microseconds and a fraction with the limit's denominator.
//
// A peek is denied if one more hit would be. A hit larger than the capacity can never fit, even into an empty funnel.
type funnel struct {
	at    int64  // the time of the level
	whole int64  // µs to drain
	frac  uint32 // and frac/den µs
	den   uint32
}

// maxDrain bounds the time to drain a full funnel, in µs: about 71 years. Any time plus twice that is exact in a double.
const maxDrain = 1 << 51

// maxLevel bounds the reported usage: twice the largest capacity.
const maxLevel = 1 << 33

var errSlow = errors.New("the funnel takes more than 71 years to drain: " +
	"want a smaller capacity or a higher rate")

var funnelAlgorithm = algorithm{
	name: "funnel",
	parameters: []Parameter{{
		Key: "capacity", Type: Integer, Min: 1, Max: MaxPerWindow, Hits: true,
		About: "how much it holds; requests_per_unit if absent.",
	}},
	tag: func(*Limit) string { return "f" },
	complete: func(l *Limit) error {
		capacity := l.parameter("capacity")
		d := &drain{}
		l.own = d
		if l.spec.Max == 0 {
			if capacity != 0 {
				return errors.New("a capacity has no meaning for a maximum of 0, which denies every hit: leave it out")
			}
			return nil
		}
		if capacity != 0 {
			l.capacity = capacity
		}
		g := gcd(l.spec.Max, l.window)
		d.num, d.den = uint64(l.window/g), uint64(l.spec.Max/g)
		if hi, lo := bits.Mul64(uint64(l.capacity), d.num); hi >= d.den || quotient(hi, lo, d.den) > maxDrain {
			return errSlow
		}
		d.full = d.of(l.capacity)
		d.overdraft = d.of(2 * l.capacity)
		return nil
	},
	numbers: func(l *Limit) []int64 {
		d := drainOf(l)
		if d.den == 0 {
			return []int64{0, l.window, flag(l.spec.CountDenied), 0, 0, 0, 1}
		}
		return []int64{
			l.spec.Max, l.window, flag(l.spec.CountDenied), l.capacity,
			int64(d.num / d.den), int64(d.num % d.den), int64(d.den),
		}
	},
	words: 3,
	fits:  func(l *Limit, s State, now, n int64) (bool, int64) { return funnelOf(s).fits(l, now, n) },
	charge: func(l *Limit, s State, now, n int64) State {
		f := funnelOf(s).charge(l, now, n)
		return State{A: f.at, B: f.whole, C: int64(f.frac)<<32 | int64(f.den)}
	},
	usage:     func(l *Limit, s State, now int64) (used, reset int64) { return funnelOf(s).usage(l, now) },
	resetTime: func(_ *Limit, s State) int64 { return funnelOf(s).resetTime() },
	extraWait: func(l *Limit, hits int64) int64 { return drainOf(l).of(hits).up() },
}

func drainOf(l *Limit) *drain { return l.own.(*drain) }

func funnelOf(s State) funnel {
	return funnel{at: s.A, whole: s.B, frac: uint32(s.C >> 32), den: uint32(s.C)}
}

// drain is the time that a hit takes to leave: num/den µs, in lowest terms.
type drain struct {
	num, den  uint64
	full      span // for the capacity
	overdraft span // for twice the capacity, to which denied hits that count may fill the funnel
}

// A span is whole + frac/den µs, with the den of its drain.
type span struct {
	whole int64
	frac  uint64
}

// of returns how long k hits take to leave. It does not overflow for k up to twice the capacity.
func (d *drain) of(k int64) span {
	hi, lo := bits.Mul64(uint64(k), d.num)
	whole, frac := bits.Div64(hi, lo, d.den)
	return span{int64(whole), frac}
}

// hits returns how many hits take s to leave, rounded up, at most maxLevel. A state that was written under a far slower rate
// may have more.
func (d *drain) hits(s span) int64 {
	hi, lo := bits.Mul64(uint64(s.whole), d.den)
	lo, carry := bits.Add64(lo, s.frac, 0)
	if hi += carry; hi >= d.num {
		return maxLevel
	}
	n, rest := bits.Div64(hi, lo, d.num)
	if n >= maxLevel {
		return maxLevel
	}
	if rest > 0 {
		n++
	}
	return int64(n)
}

func (d *drain) add(a, b span) span {
	s := span{a.whole + b.whole, a.frac + b.frac}
	if s.frac >= d.den {
		s.whole, s.frac = s.whole+1, s.frac-d.den
	}
	return s
}

// sub returns a - b, at least 0.
func (d *drain) sub(a, b span) span {
	if !b.less(a) {
		return span{}
	}
	if a.frac < b.frac {
		a.whole, a.frac = a.whole-1, a.frac+d.den
	}
	return span{a.whole - b.whole, a.frac - b.frac}
}

func (a span) less(b span) bool { return a.whole < b.whole || a.whole == b.whole && a.frac < b.frac }

// up returns a in whole microseconds, rounded up.
func (a span) up() int64 {
	if a.frac > 0 {
		return a.whole + 1
	}
	return a.whole
}

// level returns how long the funnel takes to drain from the time at, the later of now and the state's time.
func (f funnel) level(l *Limit, now int64) (held span, at int64) {
	if f.at-now > l.window {
		return span{}, now
	}
	at = max(now, f.at)
	held = span{f.whole, uint64(f.frac)}
	if uint64(f.den) != drainOf(l).den && f.frac > 0 {
		// Written under a limit of another rate.
		held = span{f.whole + 1, 0}
	}
	if held.whole -= at - f.at; held.whole < 0 {
		return span{}, at
	}
	return held, at
}

func (f funnel) fits(l *Limit, now, n int64) (bool, int64) {
	n = max(n, 1)
	if n > l.capacity || l.spec.Max == 0 {
		return false, -1
	}
	held, at := f.level(l, now)
	d := drainOf(l)
	after := d.add(held, d.of(n))
	if !d.full.less(after) {
		return true, 0
	}
	return false, d.sub(after, d.full).up() + at - now
}

func (f funnel) charge(l *Limit, now, n int64) funnel {
	if l.spec.Max == 0 {
		return f
	}
	d := drainOf(l)
	held, at := f.level(l, now)
	if n > 0 {
		most := d.overdraft
		if most.less(held) {
			// The level is from before the capacity was lowered. It stays.
			most = held
		}
		held = d.add(held, d.of(min(n, 2*l.capacity)))
		if most.less(held) {
			held = most
		}
	} else {
		if held == (span{}) {
			return f
		}
		held = d.sub(held, d.of(min(-n, d.hits(held))))
	}
	if held == (span{}) {
		return funnel{}
	}
	return funnel{at: at, whole: held.whole, frac: uint32(held.frac), den: uint32(d.den)}
}

func (f funnel) usage(l *Limit, now int64) (used, reset int64) {
	if l.spec.Max == 0 {
		return 0, 0
	}
	held, at := f.level(l, now)
	if held == (span{}) {
		return 0, 0
	}
	return drainOf(l).hits(held), held.up() + at - now
}

func (f funnel) resetTime() int64 { return f.at + span{f.whole, uint64(f.frac)}.up() }

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
