package limiters

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// MaxWindow is the longest window of a limit.
const MaxWindow = 10 * 365 * 24 * time.Hour

// MaxPerWindow is the largest maximum of a limit. Counts stop at MaxHits, so a larger maximum would never deny.
const MaxPerWindow = MaxHits - 1

// A Spec describes a limit.
type Spec struct {
	Algorithm string        // one of [Algorithms]
	Max       int64         // hits per window, 0 to MaxPerWindow; 0 denies every hit
	Window    time.Duration // whole microseconds, up to MaxWindow; 0 for concurrency
	Params    Params        // of the algorithm
	// CountDenied makes denied hits count as usage, whatever their size. Under a limit of 100, one denied hit of 150 keeps the
	// key over its limit although nothing was admitted. So limits that are charged by cost should leave it off. It lets a
	// gateway peek first and charge the true cost afterwards.
	CountDenied bool
}

// A Limit is a valid Spec, with what its algorithm computes once. It is immutable and may be shared.
type Limit struct {
	spec       Spec
	definition *definition
	algorithm  algorithm
	id         string
	capacity   int64
	hasParts   bool // beside the fields that every hit reads
	hasLeases  bool
	grows      bool
	peekOver   bool // see peek
	numbers    []int64
	dated      datedAlgorithm // nil: the numbers do not depend on the time
	penalty    *penaltyRule   // nil: none
	slots      *concurrencyLimit
	ttl        int64    // of a lease or a reservation, in µs
	reserver   reserver // nil without reserve
	releases   bool     // a reservation that expires is settled to 0
}

// An algorithm decides the hits of one limit. It has the limit's numbers and what it computes from them once. Its methods are
// pure functions, except that they change a [Log] in place. Times and durations are in µs.
type algorithm interface {
	// tag returns the algorithm's name in keys. It must never change: a state of another meaning needs another key.
	tag() string
	// maxUsage returns the largest usage of a key that allows hits.
	maxUsage() int64
	// numbers returns the numbers that the algorithm computes with, in an order of its own.
	numbers() []int64

	// fits reports whether n hits fit at now, where 0 is a peek, and otherwise in how many µs they would; negative: never.
	fits(s core, now, n int64) (ok bool, retry int64)
	// charge charges n > 0 hits or refunds -n, whether or not they fit, and returns the new state.
	charge(s core, now, n int64) core
	// usage returns the key's usage at now, and in how many µs the key has fully reset.
	usage(s core, now int64) (used, reset int64)
	// resetTime returns when the state has fully reset under every maximum, in µs since 1970.
	resetTime(s core) int64
	// extraWait returns an upper bound on the extra wait for k additional hits.
	extraWait(k int64) int64
}

// A datedAlgorithm is an algorithm whose numbers depend on the time, in µs since 1970.
type datedAlgorithm interface{ numbersAt(now int64) []int64 }

// A definition declares an algorithm. No store chooses by algorithm. Only version 1 of memstore's snapshots names two
// parameters.
type definition struct {
	name string
	// parameters are the settings of the algorithm, beside those of every limit.
	parameters []Parameter
	// countsDenied is the default of CountDenied in rules.
	countsDenied bool
	stateWords   int // how many of A, B and C of a State it uses
	// windowless says that a limit has no window.
	windowless bool
	// grows says that a state has a log, which takes memory with the hits in it.
	grows bool
	// countedPeekOver makes peek=over the default of limits that count denied hits.
	countedPeekOver bool
	// fixedEnd says that denied hits that count do not make the wait longer.
	fixedEnd bool
	// roundUp returns the next larger maximum that the algorithm can compute with. If nil, it can with any.
	roundUp func(Spec) int64
	// algorithm returns the algorithm of a limit, or what is wrong with the limit. The maximum, the window and the parameters are
	// in their ranges, and peek is set.
	algorithm func(Spec) (algorithm, error)
}

var definitions = []*definition{&fixedWindowDefinition, &slidingLogDefinition, &funnelDefinition, &concurrencyDefinition}

// DefaultAlgorithm is the algorithm of rules that name none.
const DefaultAlgorithm = "fixed_window"

// Algorithms returns the names that a Spec may use.
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

// HasWindow reports whether the limits of an algorithm have a window.
func HasWindow(algorithm string) bool {
	d := definitionOf(algorithm)
	return d != nil && !d.windowless
}

// CountsDeniedByDefault returns the CountDenied of a limit whose rules do not set it.
func CountsDeniedByDefault(algorithm string) bool {
	d := definitionOf(algorithm)
	return d != nil && d.countsDenied
}

// New returns the Limit of a Spec. The error names everything that is wrong with the Spec.
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
	dated, _ := a.(datedAlgorithm)
	l := &Limit{
		spec: spec, dated: dated, definition: d, algorithm: a, penalty: penalty,
		id:       a.tag(),
		capacity: a.maxUsage(),
		numbers:  a.numbers(),
		peekOver: full.Params.Peek == PeekOver,
	}
	if !d.windowless {
		l.id += strconv.FormatInt(spec.Window.Microseconds(), 10)
	}
	if c, ok := a.(*concurrencyLimit); ok {
		l.hasLeases, l.slots, l.ttl = true, c, c.ttl
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

// peek is the parameter of every algorithm that gives a peek its meaning. With would_fit, a peek is denied if one more hit would
// be. With over, it is denied only while the key's usage is more than its limit, which takes denied hits that count.
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

// Spec returns the limit's Spec. Parameters that are the default are zero, so Specs that mean the same are equal.
func (l *Limit) Spec() Spec { return l.spec }

// ID names the limit's algorithm and window. Hits with the same key and ID share a state in every store. It has no braces.
func (l *Limit) ID() string { return l.id }

// Numbers returns the numbers that the algorithm computes with at now, for its twin in pkg/redisscripts, whose header names them.
// A zero now is the wall clock's. The caller must not change the numbers.
func (l *Limit) Numbers(now time.Time) []int64 {
	if l.dated == nil {
		return l.numbers
	}
	if now.IsZero() {
		now = time.Now()
	}
	return l.dated.numbersAt(now.UnixMicro())
}

// Grows reports whether the state of a key takes more memory with more hits.
func (l *Limit) Grows() bool { return l.grows }

// StateWords returns how many of A, B and C of a State the algorithm uses, in this order. The others are 0.
func (l *Limit) StateWords() int { return l.definition.stateWords }

// Window returns the length of the limit's window, 0 if it has none.
func (l *Limit) Window() time.Duration { return l.spec.Window }

// countsDenied reports whether a denied hit is charged. A limit of 0 never writes.
func (l *Limit) countsDenied() bool { return l.spec.CountDenied && l.spec.Max > 0 }

// Capacity returns the largest usage of a key that allows hits: the maximum, or the capacity of a funnel.
func (l *Limit) Capacity() int64 { return l.capacity }

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
