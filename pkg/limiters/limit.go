package limiters

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// MaxWindow is the maximum window of a limit.
const MaxWindow = 10 * 365 * 24 * time.Hour

// MaxPerWindow is the maximum of Spec.Max. Counts saturate at MaxHits, so a larger maximum would never deny.
const MaxPerWindow = MaxHits - 1

// A Spec describes a limit.
type Spec struct {
	Algorithm string        // one of [Algorithms]
	Max       int64         // hits per window, 0 to MaxPerWindow; 0 denies every hit
	Window    time.Duration // whole microseconds, up to MaxWindow; 0 for concurrency
	Params    Params        // of the algorithm
	// CountDenied charges denied hits of any size: under a limit of 100, one denied hit of 150 keeps the key over its limit
	// although nothing was admitted. It suits gateways that peek first and charge the actual cost afterwards, and should be off for
	// other limits charged by cost.
	CountDenied bool
}

// A Limit is a validated Spec with precomputed values. It is immutable and may be shared.
type Limit struct {
	spec       Spec
	definition *definition
	counter    counter // nil: see IsConcurrency
	id         string
	capacity   int64
	hasParts   bool // beside the fields that every hit reads
	hasLeases  bool
	grows      bool
	peekOver   bool // see peek
	numbers    []int64
	dated      datedAlgorithm    // nil if the numbers do not depend on the time
	penalty    *penaltyRule      // nil: none
	slots      *concurrencyLimit // nil: the limit has a counter
	ttl        int64             // of a lease or a reservation, in µs
	reserver   reserver          // nil without reserve
	releases   bool              // expired reservations are settled to 0
}

// An algorithm decides the hits of one limit. It is a [counter] or a [concurrencyLimit].
type algorithm interface {
	// tag returns the algorithm's part of Limit.ID. It must change if the meaning of the state changes, and only then.
	tag() string
	// maxUsage returns the maximum usage at which hits can be allowed.
	maxUsage() int64
	// numbers returns the arguments of the Lua twin.
	numbers() []int64
}

// A counter is an algorithm that counts the hits of a key in a core. Its methods are pure functions, except that they may modify a
// [Log] in place. Times and durations are in µs.
type counter interface {
	algorithm
	// fits reports whether n hits fit at now, or whether a peek is allowed if n is 0. If not, retry is the wait until they fit;
	// negative means never.
	fits(s core, now, n int64) (ok bool, retry int64)
	// charge charges n > 0 hits or refunds -n, whether or not they fit, and returns the new state.
	charge(s core, now, n int64) core
	// usage returns the usage at now, and the time until the key has fully reset.
	usage(s core, now int64) (used, reset int64)
	// resetTime returns when the state has fully reset under every maximum, in µs since 1970.
	resetTime(s core) int64
	// extraWait returns an upper bound on the extra wait for k additional hits.
	extraWait(k int64) int64
}

// A datedAlgorithm is an algorithm whose numbers depend on the time, in µs since 1970.
type datedAlgorithm interface{ numbersAt(now int64) []int64 }

// A definition declares an algorithm. Stores are independent of the algorithm, except that version 1 of memstore's snapshots names
// two parameters.
type definition struct {
	name string
	// parameters are the algorithm's own settings.
	parameters []Parameter
	// countsDenied is the default of CountDenied in rules.
	countsDenied bool
	stateWords   int // how many of A, B and C of a State it uses
	// windowless marks an algorithm without windows.
	windowless bool
	// grows marks an algorithm whose states have a log, which grows with the hits.
	grows bool
	// countedPeekOver makes peek=over the default for limits that count denied hits.
	countedPeekOver bool
	// fixedEnd marks an algorithm whose waits do not grow with counted denied hits.
	fixedEnd bool
	// roundUp returns the next valid maximum. If nil, every maximum is valid.
	roundUp func(Spec) int64
	// neverFull returns a Spec whose limit shares states with that of a Spec, and which no state fills, so that only a penalty
	// denies its peeks. Such a Spec is invalid if its maximum is too large. Nil for an algorithm without penalties.
	neverFull func(Spec) Spec
	// algorithm returns the algorithm of a limit or an error. Maximum, window and parameters are in range, and peek is set.
	algorithm func(Spec) (algorithm, error)
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

func definitionOf(algorithm string) *definition {
	i := slices.IndexFunc(definitions, func(d *definition) bool { return d.name == algorithm })
	if i < 0 {
		return nil
	}
	return definitions[i]
}

// HasWindow reports whether limits of an algorithm have a window.
func HasWindow(algorithm string) bool {
	d := definitionOf(algorithm)
	return d != nil && !d.windowless
}

// CountsDeniedByDefault returns the default of CountDenied in rules.
func CountsDeniedByDefault(algorithm string) bool {
	d := definitionOf(algorithm)
	return d != nil && d.countsDenied
}

// New validates spec and returns its Limit. The error names every invalid field.
func New(spec Spec) (*Limit, error) {
	d := definitionOf(spec.Algorithm)
	if d == nil {
		return nil, fmt.Errorf("unknown algorithm %q: want one of %q", spec.Algorithm, Algorithms())
	}
	if err := errors.Join(
		checkRange("maximum", spec.Max, 0, MaxPerWindow), d.checkWindow(spec.Window), d.check(&spec.Params),
	); err != nil {
		return nil, err
	}
	full := spec
	if full.Params.Peek == "" {
		full.Params.Peek = d.defaultPeek(spec.CountDenied)
	}
	a, err := d.algorithm(full)
	if err != nil {
		return nil, err
	}
	penalty, err := newPenalty(spec.Params.Penalty)
	if err != nil {
		return nil, err
	}
	d.clearDefaults(&spec.Params)
	l := &Limit{
		spec: spec, definition: d, penalty: penalty,
		id:       a.tag(),
		capacity: a.maxUsage(),
		numbers:  a.numbers(),
		peekOver: full.Params.Peek == PeekOver,
	}
	if !d.windowless {
		l.id += strconv.FormatInt(spec.Window.Microseconds(), 10)
	}
	l.dated, _ = a.(datedAlgorithm)
	switch a := a.(type) {
	case counter:
		l.counter = a
	case *concurrencyLimit:
		l.hasLeases, l.slots, l.ttl = true, a, a.ttl
	}
	if err := l.setReserve(spec.Params.Reserve); err != nil {
		return nil, err
	}
	l.grows = d.grows || l.hasLeases
	l.hasParts = l.hasLeases || penalty != nil
	return l, nil
}

func checkRange(what string, n, minN, maxN int64) error {
	if n < minN || n > maxN {
		return fmt.Errorf("a %s of %d is out of range: want %d to %d", what, n, minN, maxN)
	}
	return nil
}

func (d *definition) checkWindow(w time.Duration) error {
	if d.windowless {
		if w != 0 {
			return fmt.Errorf("a window of %v has no meaning for the algorithm %s: want 0", w, d.name)
		}
		return nil
	}
	if w < time.Microsecond || w > MaxWindow || w%time.Microsecond != 0 {
		return fmt.Errorf("a window of %v is out of range: want whole microseconds, up to 10 years", w)
	}
	return nil
}

// peek is the parameter that defines a peek. With would_fit, a peek is denied if one more hit would be. With over, it is denied
// only if the usage exceeds the limit, which requires counted denied hits.
var peek = Parameter{
	Key: "peek", Type: Choice, Choices: []string{PeekWouldFit, PeekOver}, NoDefault: true,
	text:  func(p *Params) *string { return &p.Peek },
	About: "whether a peek is denied if one more hit would be, or only over the limit.",
}

// The values of Params.Peek.
const (
	PeekWouldFit = "would_fit"
	PeekOver     = "over"
)

func (d *definition) defaultPeek(countDenied bool) string {
	if d.countedPeekOver && countDenied {
		return PeekOver
	}
	return PeekWouldFit
}

// Spec returns the limit's Spec, with default parameters set to zero, so that equivalent Specs are equal.
func (l *Limit) Spec() Spec { return l.spec }

// ID identifies the limit's algorithm and window. In every store, hits with the same key and ID share a state. It contains no
// braces.
func (l *Limit) ID() string { return l.id }

// Numbers returns the arguments of the Lua twin at now; its header in pkg/redisscripts names them. The caller must not modify the
// result.
func (l *Limit) Numbers(now time.Time) []int64 {
	if l.dated == nil {
		return l.numbers
	}
	return l.dated.numbersAt(now.UnixMicro())
}

// Grows reports whether the state of a key grows with its hits.
func (l *Limit) Grows() bool { return l.grows }

// StateWords returns how many of the words A, B and C of a State the algorithm uses, in this order. The others are 0.
func (l *Limit) StateWords() int { return l.definition.stateWords }

// Window returns the length of the limit's window; 0 if it has none.
func (l *Limit) Window() time.Duration { return l.spec.Window }

// countsDenied reports whether denied hits are charged. A limit of 0 never writes.
func (l *Limit) countsDenied() bool { return l.spec.CountDenied && l.spec.Max > 0 }

// Capacity returns the maximum usage at which hits can be allowed: the maximum, or the capacity of a funnel.
func (l *Limit) Capacity() int64 { return l.capacity }

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
