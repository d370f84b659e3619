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

// MaxPerWindow is the largest maximum and the largest capacity of a limit: Envoy has 32 bits for them.
const MaxPerWindow = 1<<32 - 1

// A Spec describes a limit.
type Spec struct {
	Algorithm string        // one of [Algorithms]
	Max       int64         // hits per window, 0 to MaxPerWindow; 0 denies every hit
	Window    time.Duration // whole microseconds, up to MaxWindow
	Params    Params        // of the algorithm, such as "capacity=15"; see Parameters
	// CountDenied makes denied hits count as usage, whatever their size. Under a limit of 100, one denied hit of 150 keeps the
	// key over its limit although nothing was admitted. So limits that are charged by cost should leave it off. It lets a
	// gateway peek first and charge the true cost afterwards.
	CountDenied bool
}

// A Limit is a valid Spec, with what its algorithm computes once. It is immutable and may be shared.
type Limit struct {
	spec     Spec
	kind     *algorithm
	id       string
	window   int64   // µs
	capacity int64   // the largest usage of a key that allows hits: Max, or the capacity of a funnel
	values   []int64 // of the algorithm's parameters, in the order of their declaration
	own      any     // what the algorithm computed once, of a type of its own
	numbers  []int64
}

// An algorithm is an entry of the table of algorithms. No store chooses by algorithm. Only version 1 of memstore's snapshots
// names two parameters.
type algorithm struct {
	name string
	// tag returns the algorithm's name in keys. It must never change: a state of another meaning needs another key.
	tag func(*Limit) string
	// parameters are the settings of the algorithm, beside those of every limit.
	parameters []Parameter
	// countsDenied is the default of CountDenied in rules.
	countsDenied bool
	// complete sets the remaining fields of a limit, or returns what is wrong with it. The limit's spec, window and capacity are
	// set.
	complete func(*Limit) error
	// numbers returns the numbers that the algorithm computes with, in an order of its own.
	numbers func(*Limit) []int64
	words   int // how many words of a State it uses
	// grows says that a state has a log, which takes memory with the hits in it.
	grows bool

	// fits reports whether n hits fit at now, where 0 is a peek, and otherwise in how many µs they would; negative: never.
	fits func(l *Limit, s State, now, n int64) (ok bool, retry int64)
	// charge charges n > 0 hits or refunds -n, whether or not they fit, and returns the new state.
	charge func(l *Limit, s State, now, n int64) State
	// usage returns the key's usage at now, and in how many µs the key has fully reset.
	usage func(l *Limit, s State, now int64) (used, reset int64)
	// resetTime returns when the state has fully reset under every maximum, in µs since 1970.
	resetTime func(l *Limit, s State) int64
	// extraWait returns an upper bound, in µs, on the extra wait for k additional hits. If nil, callers must use the reset time.
	extraWait func(l *Limit, k int64) int64
	// fixedEnd says that denied hits that count do not make the wait longer.
	fixedEnd bool
}

var algorithms = []*algorithm{&fixedWindowAlgorithm, &slidingLogAlgorithm, &funnelAlgorithm}

// DefaultAlgorithm is the algorithm of rules that name none.
const DefaultAlgorithm = "fixed_window"

// Algorithms returns the names that a Spec may use.
func Algorithms() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.name
	}
	return names
}

func algorithmOf(name string) *algorithm {
	i := slices.IndexFunc(algorithms, func(a *algorithm) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return algorithms[i]
}

// CountsDeniedByDefault returns the CountDenied of a limit whose rules do not set it.
func CountsDeniedByDefault(algorithm string) bool {
	a := algorithmOf(algorithm)
	return a != nil && a.countsDenied
}

// New returns the Limit of a Spec. The error names everything that is wrong with the Spec.
func New(spec Spec) (*Limit, error) {
	kind := algorithmOf(spec.Algorithm)
	if kind == nil {
		return nil, fmt.Errorf("unknown algorithm %q: want one of %q", spec.Algorithm, Algorithms())
	}
	params, values, paramsErr := kind.parse(spec.Params)
	if err := errors.Join(checkRange("maximum", spec.Max, 0, MaxPerWindow), checkWindow(spec.Window), paramsErr); err != nil {
		return nil, err
	}
	spec.Params = params
	l := &Limit{spec: spec, kind: kind, values: values, window: spec.Window.Microseconds(), capacity: spec.Max}
	if err := l.kind.complete(l); err != nil {
		return nil, err
	}
	l.id = l.kind.tag(l) + strconv.FormatInt(l.window, 10)
	l.numbers = l.kind.numbers(l)
	return l, nil
}

func checkRange(what string, n, least, most int64) error {
	if n < least || n > most {
		return fmt.Errorf("a %s of %d is out of range: want %d to %d", what, n, least, most)
	}
	return nil
}

func checkWindow(w time.Duration) error {
	if w < time.Microsecond || w > MaxWindow || w%time.Microsecond != 0 {
		return fmt.Errorf("a window of %v is out of range: want whole microseconds, up to 10 years", w)
	}
	return nil
}

// Spec returns the limit's Spec, with its Params in canonical form.
func (l *Limit) Spec() Spec { return l.spec }

// ID names the limit's algorithm and window. Hits with the same key and ID share a state in every store. It has no braces.
func (l *Limit) ID() string { return l.id }

// Numbers returns the numbers that the algorithm computes with, for its twin in pkg/redisscripts, whose header names them. The
// caller must not change them.
func (l *Limit) Numbers() []int64 { return l.numbers }

// Grows reports whether the state of a key takes more memory with more hits.
func (l *Limit) Grows() bool { return l.kind.grows }

// Words returns how many words of a State the algorithm uses, of A, B and C in this order. The others are 0.
func (l *Limit) Words() int { return l.kind.words }

// Window returns the length of the limit's window.
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
