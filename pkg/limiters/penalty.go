package limiters

import (
	"cmp"
	"time"
)

// A penaltyState records the offenses and penalties of a key. An offense is a request that the
// limit itself denies. Enough offenses within a window begin a penalty, which denies every request.
// Times are in µs since 1970. The zero value has no offenses.
type penaltyState struct {
	offenses int64 // offenses since the last penalty, in their window
	since    int64 // the time of the first of them, where their window starts
	until    int64 // the end of the last penalty
	begun    int64 // penalties begun since Forget last passed
}

// A PenaltySpec configures a penalty; the zero value means none. Durations are whole microseconds.
type PenaltySpec struct {
	After  int64         // denied requests that begin a penalty
	Within time.Duration // the window of those requests, from the first of them
	For    time.Duration // length of the first penalty
	Factor int64         // multiplies the length with each further penalty; 1 by default
	Max    time.Duration // maximum length of a penalty; 24h by default
	Forget time.Duration // time after a penalty until earlier penalties are forgotten; Max by default
}

const (
	maxOffenses      = 1_000_000
	maxFactor        = 1000
	minPenaltyMicros = int64(time.Millisecond / time.Microsecond)
)

// MaxPenaltiesBegun bounds the count of penalties that a key has begun. A penalty of 1 ms that has
// doubled so often is longer than MaxWindow.
const MaxPenaltiesBegun = 63

var maxWindowMicros = MaxWindow.Microseconds()

var penaltyParameters = []Parameter{
	{Key: "penalty", Type: Object, About: "deny every request for a while after repeated denials."},
	{Key: "penalty.after", Type: Integer, Min: 1, Max: maxOffenses, Required: true,
		number: func(p *Params) *int64 { return &p.Penalty.After },
		About:  "the number of denied requests that begins a penalty."},
	{Key: "penalty.within", Type: Duration, Min: minPenaltyMicros, Max: maxWindowMicros, Required: true,
		number: func(p *Params) *int64 { return (*int64)(&p.Penalty.Within) },
		About:  "the window in which denied requests are counted, from the first of them."},
	{Key: "penalty.for", Type: Duration, Min: minPenaltyMicros, Max: maxWindowMicros, Required: true,
		number: func(p *Params) *int64 { return (*int64)(&p.Penalty.For) },
		About:  "the length of the first penalty."},
	{Key: "penalty.factor", Type: Integer, Min: 1, Max: maxFactor, Default: "1",
		number: func(p *Params) *int64 { return &p.Penalty.Factor },
		About:  "the factor by which each further penalty is longer."},
	{Key: "penalty.max", Type: Duration, Min: minPenaltyMicros, Max: maxWindowMicros, Default: "24h",
		number: func(p *Params) *int64 { return (*int64)(&p.Penalty.Max) },
		About:  "the length of the longest penalty."},
	{Key: "penalty.forget", Type: Duration, Min: minPenaltyMicros, Max: maxWindowMicros, DefaultText: "max",
		number: func(p *Params) *int64 { return (*int64)(&p.Penalty.Forget) },
		About:  "the time after a penalty until the next penalty has the length of the first."},
}

func (l *Limit) setPenalty(p PenaltySpec) error {
	if p.After == 0 {
		return nil
	}
	defaults := defaultParams().Penalty
	p.Factor, p.Max = cmp.Or(p.Factor, defaults.Factor), cmp.Or(p.Max, defaults.Max)
	p.Forget = cmp.Or(p.Forget, p.Max)
	if p.For > p.Max {
		return specErrorf("a penalty of %v is longer than its 'max' of %v", p.For, p.Max).withRemedy("set a longer 'max' or a shorter 'for'")
	}
	l.penalty = &p
	return nil
}

// timeLeft returns how long the penalty p still lasts at now; 0 outside of a penalty. It is at most
// spec.Max, in case a clock stepped back or the maximum was lowered.
func (p *penaltyState) timeLeft(spec *PenaltySpec, now int64) int64 {
	return max(0, min(p.until-now, spec.Max.Microseconds()))
}

// addOffense updates p for a denied request, which is an offense unless a penalty denied it. It
// reports whether a penalty began.
func (p *penaltyState) addOffense(spec *PenaltySpec, now int64) (began bool) {
	if left := p.timeLeft(spec, now); left > 0 {
		p.until = now + left
		return false
	}
	within := spec.Within.Microseconds()
	// A window that starts more than its length ahead was recorded before a clock was corrected.
	if p.offenses == 0 || now-p.since >= within || p.since-now > within {
		p.offenses, p.since = 0, now
	}
	p.offenses++
	if p.offenses < spec.After {
		return false
	}
	if now >= p.until+spec.Forget.Microseconds() {
		p.begun = 0
	}
	*p = penaltyState{until: now + spec.duration(p.begun), begun: min(p.begun+1, MaxPenaltiesBegun)}
	return true
}

// duration returns the length of a penalty after begun earlier penalties, in µs.
func (spec *PenaltySpec) duration(begun int64) int64 {
	d, maximum := spec.For.Microseconds(), spec.Max.Microseconds()
	for ; begun > 0 && spec.Factor > 1 && d < maximum; begun-- {
		d *= spec.Factor
	}
	return min(d, maximum)
}

// resetTime returns when p becomes equivalent to the zero penaltyState, in µs since 1970.
func (p *penaltyState) resetTime(spec *PenaltySpec) int64 {
	resetTime := int64(0)
	if p.offenses > 0 {
		resetTime = p.since + spec.Within.Microseconds()
	}
	if p.begun > 0 {
		resetTime = max(resetTime, p.until+spec.Forget.Microseconds())
	}
	return resetTime
}

// penaltyLeft returns the time left of a penalty under l; 0 outside of a penalty.
func (l *Limit) penaltyLeft(s *State, now int64) time.Duration {
	if l.penalty == nil {
		return 0
	}
	return micros(s.extraOrEmpty().penalty.timeLeft(l.penalty, now))
}

// HasPenalty reports whether l has a penalty.
func (l *Limit) HasPenalty() bool { return l.penalty != nil }

// Penalty returns the penalty of l, which must have one, with its defaults.
func (l *Limit) Penalty() PenaltySpec { return *l.penalty }
