package limiters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// MaxWindow is the longest window of a limit.
const MaxWindow = 10 * 365 * 24 * time.Hour

// MaxPerWindow is the largest maximum, and the largest capacity, of a limit: what Envoy can express in 32 bits.
const MaxPerWindow = 1<<32 - 1

// A Spec describes a limit.
type Spec struct {
	Algorithm string        // one of [Algorithms]
	Max       int64         // hits per window, 0 to MaxPerWindow; 0 denies every hit
	Window    time.Duration // whole microseconds, up to MaxWindow
	Params    Params        // of the algorithm, such as "capacity=15"; see Parameters
	// CountDenied makes denied hits count. It is what lets a gateway look first and charge the true cost afterwards.
	CountDenied bool
}

// A Limit is a Spec that was found good, with what its algorithm wants computed once. It does not change and may be
// shared.
type Limit struct {
	spec     Spec
	kind     *algorithm
	id       string
	window   int64 // µs
	capacity int64 // what a key can hold at most: Max, or the capacity of a funnel
	own      any   // what the algorithm computed once, of a type of its own
	params   string
}

// An algorithm is a line of the table that this package, and nothing outside it, chooses by.
type algorithm struct {
	name string
	// tag is the algorithm's name in keys. It never changes, for a key of another meaning must have another name.
	tag func(*Limit) string
	// parameters are what the algorithm takes beside the settings of every limit.
	parameters []Parameter
	// countsDenied is the default of CountDenied in rules.
	countsDenied bool
	// check completes a limit and tells what is wrong with it. The limit's spec, window and capacity are set.
	check func(*Limit) error
	// params are the arguments of the algorithm's twin in Lua, whose header names them.
	params func(*Limit) []int64
	words  int // of a State that it uses
	// grows tells that a state takes memory with the hits it holds: it has a log.
	grows bool

	// judge tells whether n >= 0 hits fit at now, 0 meaning a look, and if not, after how long they would (< 0: never).
	judge func(l *Limit, s State, now, n int64) (ok bool, retry int64)
	// charge records n > 0 hits, or gives back -n, and tells what the state is then. It does not ask whether they fit.
	charge func(l *Limit, s State, now, n int64) State
	// usage tells what the key holds at now, and how long until it is as good as new.
	usage func(l *Limit, s State, now int64) (used, reset int64)
	// until is when the state is as good as new, whatever the maximum.
	until func(l *Limit, s State) int64
	// more is how much longer than n hits of a key, at most, n and so many more wait, in µs; nil: no more is known than that
	// they fit when the key is as good as new.
	more func(l *Limit, hits int64) int64
	// steady tells that denied hits that count put off nothing: whoever waits, waits for the same moment.
	steady bool
}

var algorithms = []*algorithm{&fixedWindowAlgorithm, &slidingLogAlgorithm, &funnelAlgorithm}

// DefaultAlgorithm is the algorithm of rules that name none.
const DefaultAlgorithm = "fixed_window"

// Algorithms are the names that a Spec may use.
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

// New makes a Limit of a Spec. The error tells everything that is wrong with it.
func New(spec Spec) (*Limit, error) {
	kind := algorithmOf(spec.Algorithm)
	if kind == nil {
		return nil, fmt.Errorf("unknown algorithm %q: want one of %q", spec.Algorithm, Algorithms())
	}
	params, err := kind.canonical(spec.Params)
	if err := errors.Join(checkRange("maximum", spec.Max, 0, MaxPerWindow), checkWindow(spec.Window), err); err != nil {
		return nil, err
	}
	spec.Params = params
	l := &Limit{spec: spec, kind: kind, window: spec.Window.Microseconds(), capacity: spec.Max}
	if err := l.kind.check(l); err != nil {
		return nil, err
	}
	l.id = l.kind.tag(l) + strconv.FormatInt(l.window, 10)
	wire := append([]byte(l.kind.name), 0)
	for _, n := range l.kind.params(l) {
		wire = binary.BigEndian.AppendUint64(wire, uint64(n))
	}
	l.params = string(wire)
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

// Spec is what the limit was made of.
func (l *Limit) Spec() Spec { return l.spec }

// ID names the limit's algorithm and window: keys of the same name and ID share a state, in any store. It has no braces.
func (l *Limit) ID() string { return l.id }

// Params is the limit as the batch script in pkg/redisscripts takes it: the algorithm's name, a zero byte, and its numbers
// as big-endian integers of 8 bytes.
func (l *Limit) Params() string { return l.params }

// Grows tells whether the state of a key takes memory with the hits that it holds.
func (l *Limit) Grows() bool { return l.kind.grows }

// Words is how many words of a State the limit's algorithm uses, of A, B and C in this order. The others are 0.
func (l *Limit) Words() int { return l.kind.words }

// Window is how long it takes until a hit counts no longer, for a funnel that holds its maximum or less.
func (l *Limit) Window() time.Duration { return l.spec.Window }

// countsDenied tells whether a denied hit is charged all the same. A limit of 0 writes nothing, ever.
func (l *Limit) countsDenied() bool { return l.spec.CountDenied && l.spec.Max > 0 }

// Capacity is what a key can hold at most: the maximum, or what a funnel holds.
func (l *Limit) Capacity() int64 { return l.capacity }

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
