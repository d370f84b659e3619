package limiters

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// MaxWindow is the maximum window of a limit.
const MaxWindow = 10 * 365 * 24 * time.Hour

// LargestMax is the largest Spec.Max of any algorithm. Counts saturate at MaxHits, so a larger
// maximum would never deny.
const LargestMax = MaxHits - 1

// A Spec describes a limit.
type Spec struct {
	Algorithm string        // one of [Algorithms]
	Max       int64         // hits per window, 0 to LargestMax; 0 denies every hit
	Window    time.Duration // whole microseconds, up to MaxWindow; 0 for concurrency
	Params    Params        // the parameters of the algorithm
	// CountDenied counts the hits of a denied charge, whatever its size. Under a limit of 100, one
	// denied charge of 150 keeps the key over its limit although nothing was admitted. It suits
	// gateways that peek first and charge the actual cost afterwards, and should be off for other
	// limits charged by cost.
	CountDenied bool
}

// Scaled returns s with its maximum, and each parameter that counts hits, replaced by the result of
// scale. The maximum is rounded up if the algorithm needs it. If scale returns 0 for a parameter,
// its default applies.
func (s Spec) Scaled(scale func(int64) int64) Spec {
	s.Max = scale(s.Max)
	d := definitionOf(s.Algorithm)
	if d.nextValidMax != nil {
		s.Max = d.nextValidMax(s)
	}
	for _, p := range d.parameters {
		if !p.Hits {
			continue
		}
		if n := p.number(&s.Params); *n != 0 {
			*n = scale(*n)
		}
	}
	return s
}

// capacity returns the largest usage that allowed hits can reach.
func (s *Spec) capacity() int64 { return cmp.Or(s.Params.Capacity, s.Max) }

// A Limit is a validated Spec with precomputed values. It is immutable and may be shared.
type Limit struct {
	spec           Spec
	definition     *definition
	algorithm      algorithm
	hits           hitAlgorithm // the algorithm; nil for concurrency
	stateID        string
	capacity       int64
	peekOver       bool         // a peek is allowed at the limit, and denied only above it
	penalty        *PenaltySpec // the penalty with its defaults; nil: none
	ttl            int64        // the TTL of a lease, in µs; 0: charges open no leases
	refundsExpired bool         // expired reservations are settled to 0
}

// An algorithm checks hits against the state of a key. These methods change no state. No algorithm
// does I/O or reads a clock. Times and durations are in µs.
type algorithm interface {
	// idPrefix returns the algorithm's part of Limit.StateID. It must change if the meaning of the
	// state changes, and only then.
	idPrefix() string
	// fits reports whether n hits, at most the capacity, fit at now; 0 hits fit if the usage is
	// within the capacity. If they do not fit, retryAfter is the wait until they do.
	fits(s *State, now, n int64) (ok bool, retryAfter int64)
	// usage returns the usage at now, and the time until the key has fully reset.
	usage(s *State, now int64) (used, resetAfter int64)
	// twinArgs returns [Limit.TwinArgs].
	twinArgs(now int64) (args [maxTwinArgs]int64, n int)
}

// A hitAlgorithm is an algorithm that also charges hits: it changes the words or the log of a
// [State] in place, but not the extra state. Concurrency is none, because it counts only leases,
// which [Decide] opens and ends.
type hitAlgorithm interface {
	algorithm
	// charge charges n > 0 hits or refunds -n, whether or not they fit.
	charge(s *State, now, n int64)
	// resetTime returns [Limit.ResetTime] of a state without extra state.
	resetTime(s *State) int64
	// extraWait returns an upper bound on the extra wait for k additional hits.
	extraWait(k int64) int64
	// maxAdmitted returns [Limit.MaxAdmitted].
	maxAdmitted() int64
	// reserve charges an estimate of n >= 0 hits that fit. chargedAt identifies the charge for
	// settle.
	reserve(s *State, now, n int64) (chargedAt int64)
	// settle applies corrections in order, to charges that still count.
	settle(s *State, now int64, corrections []correction)
}

// A definition declares an algorithm.
type definition struct {
	name string
	// parameters are the algorithm's own settings.
	parameters []Parameter
	largestMax int64 // the largest Max, see LargestMaxOf
	stateWords int   // how many of the words of a State it uses
	hasWindow  bool  // false only for concurrency
	// hasLog marks an algorithm whose states have a log, which grows with the hits.
	hasLog bool
	// drains marks an algorithm under which the usage of a key falls continuously, by the maximum
	// in a window.
	drains bool
	// countsDeniedByDefault makes rules count denied hits by default, as envoyproxy/ratelimit does.
	// A limit that counts denied hits then has peek=over by default.
	countsDeniedByDefault bool
	// nextValidMax returns the next valid maximum. If nil, every maximum is valid.
	nextValidMax func(Spec) int64
	// newAlgorithm returns the algorithm of a limit or an error. Maximum, window and parameters are
	// in range. A spec that was scaled is a share of whole; otherwise the two are equal.
	newAlgorithm func(spec, whole Spec) (algorithm, error)
}

var definitions = []*definition{&fixedWindowDefinition, &slidingLogDefinition, &funnelDefinition, &concurrencyDefinition}

// DefaultAlgorithm is the algorithm of rules without one.
const DefaultAlgorithm = "fixed_window"

// Algorithms returns the valid values of Spec.Algorithm.
func Algorithms() []string {
	names := make([]string, len(definitions))
	for i, d := range definitions {
		names[i] = d.name
	}
	return names
}

// definitionOf returns the definition of an algorithm; an empty one if there is none.
func definitionOf(algorithm string) *definition {
	i := slices.IndexFunc(definitions, func(d *definition) bool { return d.name == algorithm })
	if i < 0 {
		return &definition{}
	}
	return definitions[i]
}

// LargestMaxOf returns the largest Spec.Max of an algorithm whose other parameters have their
// defaults.
func LargestMaxOf(algorithm string) int64 { return definitionOf(algorithm).largestMax }

// HasWindow reports whether limits of an algorithm have a window.
func HasWindow(algorithm string) bool { return definitionOf(algorithm).hasWindow }

// CountsDeniedByDefault returns the default of CountDenied in rules.
func CountsDeniedByDefault(algorithm string) bool {
	return definitionOf(algorithm).countsDeniedByDefault
}

// A SpecError is the error of an invalid [Spec].
type SpecError struct {
	Problem string
	Remedy  string // what to write instead; may be empty
}

func (e *SpecError) Error() string {
	if e.Remedy == "" {
		return e.Problem
	}
	return e.Problem + ": " + e.Remedy
}

func specErrorf(format string, args ...any) *SpecError {
	return &SpecError{Problem: fmt.Sprintf(format, args...)}
}

func (e *SpecError) withRemedy(format string, args ...any) *SpecError {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// NewLimit validates spec and returns its Limit. The error wraps a [SpecError] for each invalid
// field that NewLimit finds, which may not be all.
func NewLimit(spec Spec) (*Limit, error) { return newLimit(spec, spec) }

func newLimit(spec, whole Spec) (*Limit, error) {
	d := definitionOf(spec.Algorithm)
	if d.name == "" {
		return nil, specErrorf("unknown algorithm %q", spec.Algorithm).withRemedy("want one of %q", Algorithms())
	}
	if err := errors.Join(
		validateRange("maximum", spec.Max, 0, LargestMax), d.validateWindow(spec.Window), d.validateParams(&spec.Params),
	); err != nil {
		return nil, err
	}
	l := &Limit{spec: spec, definition: d, capacity: spec.capacity()}
	l.peekOver = spec.Params.Peek == PeekOver || spec.Params.Peek == "" && d.countsDeniedByDefault && spec.CountDenied
	d.clearTextDefaults(&l.spec.Params)
	var err error
	if l.algorithm, err = d.newAlgorithm(spec, whole); err != nil {
		return nil, err
	}
	l.hits, _ = l.algorithm.(hitAlgorithm)
	l.stateID = l.algorithm.idPrefix()
	if d.hasWindow {
		l.stateID += strconv.FormatInt(spec.Window.Microseconds(), 10)
	}
	if l.IsConcurrency() {
		l.ttl = spec.Params.leaseTTL().Microseconds()
	}
	if err := l.setPenalty(spec.Params.Penalty); err != nil {
		return nil, err
	}
	if err := l.setReserve(spec.Params.Reserve); err != nil {
		return nil, err
	}
	return l, nil
}

func validateRange(what string, n, minN, maxN int64) error {
	if n < minN || n > maxN {
		return specErrorf("a %s of %d is out of range", what, n).withRemedy("want %d to %d", minN, maxN)
	}
	return nil
}

func (d *definition) validateWindow(w time.Duration) error {
	if !d.hasWindow {
		if w != 0 {
			return specErrorf("a window of %v has no meaning for the algorithm %s", w, d.name).withRemedy("want 0")
		}
		return nil
	}
	if w < time.Microsecond || w > MaxWindow || w%time.Microsecond != 0 {
		return specErrorf("a window of %v is out of range", w).withRemedy("want whole microseconds, up to 10 years")
	}
	return nil
}

// Scaled returns l with its Spec scaled down, see [Spec.Scaled], for a store in memory. All scaled
// versions of l may use one state. A refund under a scaled limit is never worth more than the
// charge that it takes back, whatever the scale of that charge was.
func (l *Limit) Scaled(scale func(int64) int64) (*Limit, error) {
	return newLimit(l.spec.Scaled(scale), l.spec)
}

// Spec returns the Spec that was passed to NewLimit, except that the zone UTC and each default of a
// Choice are empty. A number or a duration that is its default stays as given, because an override
// of the maximum may change the default.
func (l *Limit) Spec() Spec { return l.spec }

// Algorithm returns the name of the algorithm, such as "funnel".
func (l *Limit) Algorithm() string { return l.definition.name }

// StateID identifies the limit's algorithm and window. In every store, hits with the same key and
// StateID share a state. It contains no braces.
func (l *Limit) StateID() string { return l.stateID }

const maxTwinArgs = 5

// TwinArgs returns the n numbers that only this algorithm's twin in another language needs. The
// header of the twin lists them. Every twin also gets the maximum, the window, and two flags. Only
// windows by the calendar depend on now, in µs since 1970. The result is an array, because a slice
// would be an allocation for each limit of a batch.
func (l *Limit) TwinArgs(now int64) (args [maxTwinArgs]int64, n int) {
	return l.algorithm.twinArgs(now)
}

// Grows reports whether the state of a key grows with its hits.
func (l *Limit) Grows() bool { return l.definition.hasLog || l.UsesLeases() }

// StateWords returns the number of words that a [State] under l needs, see [State.PutWords].
func (l *Limit) StateWords() int { return l.definition.stateWords }

// Window returns the length of the limit's window; 0 if it has none.
func (l *Limit) Window() time.Duration { return l.spec.Window }

// CountsDenied reports whether denied hits are charged. A limit of 0 never writes.
func (l *Limit) CountsDenied() bool { return l.spec.CountDenied && l.spec.Max > 0 }

// MaxAdmitted returns the most hits of a key that l admits in any interval as long as its window,
// without refunds; 0 if it has no window. Calendar windows differ in length: the interval is then
// as long as the shortest.
func (l *Limit) MaxAdmitted() int64 {
	if l.hits == nil {
		return 0
	}
	return l.hits.maxAdmitted()
}

// Drains reports whether the usage of a key falls continuously, by Spec.Max in a window. Under
// other limits with a window, a hit counts until the window ends or, in a log, has passed.
func (l *Limit) Drains() bool { return l.definition.drains }

// PeeksOver reports whether a peek is allowed at exactly the limit, and denied only above it.
func (l *Limit) PeeksOver() bool { return l.peekOver }

// Capacity returns the largest usage that allowed hits can reach: the maximum, or the capacity of a
// funnel.
func (l *Limit) Capacity() int64 { return l.capacity }

// UsesExtraState reports whether l uses the [ExtraState] of a State. Other limits ignore it.
func (l *Limit) UsesExtraState() bool { return l.UsesLeases() || l.HasPenalty() }

// UsesLeases reports whether charges under l open leases: l either [Limit.IsConcurrency] or
// [Limit.Reserves].
func (l *Limit) UsesLeases() bool { return l.ttl > 0 }

// IsConcurrency reports whether l bounds the slots held at one time: its leases are its whole
// state, and it has no window.
func (l *Limit) IsConcurrency() bool { return !l.definition.hasWindow }

// Reserves reports whether the leases under l are reservations: they have an estimate, which an end
// corrects.
func (l *Limit) Reserves() bool { return l.UsesLeases() && !l.IsConcurrency() }

// LeaseTTL returns the TTL of a lease under l; 0 if l uses none.
func (l *Limit) LeaseTTL() time.Duration { return micros(l.ttl) }
