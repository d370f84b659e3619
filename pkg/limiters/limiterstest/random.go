package limiterstest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// earliest and latest bound the time of random sequences, in µs since 1970: from 2000 to 2035. The
// log of the Lua twin keeps times modulo 2^51 µs, so two times that meet in a sequence must be less
// than half of that apart: 35.6 years.
const earliest, latest = 946_684_800_000_000, 2_051_222_400_000_000

// fullSequences is the number of random sequences per algorithm of [Run], and sequenceSteps the
// number of calls in each.
const fullSequences, sequenceSteps = 60, 60

// Sequences returns the number of random sequences that a test plays: n, and with -short a tenth,
// rounded up. The race tests run with -short: with the race detector a sequence takes ten times as
// long, and finds no more, because it runs on one goroutine.
func Sequences(n uint64) uint64 {
	if testing.Short() {
		return (n + 9) / 10
	}
	return n
}

// Seeds yields the seeds of Sequences(n) random sequences, from FirstSeed on.
func Seeds(n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		first := FirstSeed()
		for i := range Sequences(n) {
			if !yield(first + i) {
				return
			}
		}
	}
}

// FirstSeed returns the environment variable SEED, or 0 without it. A change is tested with the
// same sequences each time, so that a failure comes from the change. The nightly workflow sets
// SEED, and plays others.
func FirstSeed() uint64 {
	text := os.Getenv("SEED")
	if text == "" {
		return 0
	}
	seed, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		panic(fmt.Errorf("SEED: want a whole number, got %q: %w", text, err))
	}
	return seed
}

// RunRandom compares a store with the reference over random sequences. Calls have several
// operations, some in groups, on a few keys, under limits whose maximum changes as in a reload.
// Time stands still, goes on to an edge, jumps ahead and steps back.
func RunRandom(t *testing.T, store TimedStore) {
	suite{newReference, fullSequences}.random(t, store, WindowedAlgorithms(), NewGenerator)
}

// random is [RunRandom] for some algorithms and a kind of sequences.
func (s suite) random(t *testing.T, store TimedStore, algorithms []string, generate func(algorithm string, seed uint64) *Generator) {
	for _, name := range algorithms {
		t.Run(name, func(t *testing.T) {
			for seed := range Seeds(s.sequences) {
				Agree(t, generate(name, seed), sequenceSteps, store, s.newReference())
			}
		})
	}
}

// randomMixed is [RunRandom] for calls whose operations are under limits of several algorithms,
// with penalties and leases. A group may have any of them.
func (s suite) randomMixed(t *testing.T, store TimedStore) {
	for seed := range Seeds(3 * s.sequences) {
		Agree(t, NewMixedGenerator(seed), sequenceSteps, store, s.newReference())
	}
}

// A CallSource makes the calls of a sequence, as a [Generator] does.
type CallSource interface {
	Next() (now time.Time, groups []limiters.Group)
	Observe(verdicts []limiters.Verdict) // gets the verdicts of the last call
}

// Agree decides steps calls in a store and in a reference. If their verdicts differ, it logs the
// last operations and ends the test. The keys should name the sequence, as those of a Generator do.
func Agree(t *testing.T, calls CallSource, steps int, store, reference TimedStore) {
	t.Helper()
	var history []func() string // formatted only if the stores disagree
	for range steps {
		now, groups := calls.Next()
		got, want := takeBoth(t, now, groups, store, reference)
		sizes := sizesOf(groups)
		for i, op := range slices.Concat(groups...) {
			history = append(history, func() string {
				return fmt.Sprintf("%d %s %+v kind=%d n=%d lease=%.2x groups of %v => %s",
					now.UnixMicro(), op.Key, op.Limit.Spec(), op.Kind, op.Hits, op.Lease, sizes, Format(want[i]))
			})
			if got[i] != want[i] {
				for _, line := range history[max(0, len(history)-12):] {
					t.Log(line())
				}
				t.Fatalf("%s: the stores disagree:\n got %s\nwant %s", op.Key, Format(got[i]), Format(want[i]))
			}
		}
		calls.Observe(want)
	}
}

// takeBoth decides groups in a store and in a reference.
func takeBoth(t *testing.T, now time.Time, groups []limiters.Group, store, reference TimedStore) (got, want []limiters.Verdict) {
	t.Helper()
	n := len(slices.Concat(groups...))
	got, want = make([]limiters.Verdict, n), make([]limiters.Verdict, n)
	if err := reference.TakeAt(context.Background(), now, groups, want); err != nil {
		t.Fatal(err)
	}
	if err := store.TakeAt(context.Background(), now, groups, got); err != nil {
		t.Fatal(err)
	}
	return got, want
}

// sizesOf returns the number of operations in each group.
func sizesOf(groups []limiters.Group) []int {
	all := make([]int, len(groups))
	for i, g := range groups {
		all[i] = len(g)
	}
	return all
}

// A Generator makes a random sequence of calls. The same seed gives the same sequence.
type Generator struct {
	Name string // of the sequence; its keys begin with it

	rnd      *rand.Rand
	limits   []*limiters.Limit // all with one StateID; the first is used most
	reloaded int               // how many of the last limits addReloaded has added
	spans    []int64           // times at whose edges something happens, in µs
	mixed    bool              // each operation has a limit of its own; otherwise all operations of a call have the same
	now      int64
	last     []limiters.Verdict
}

// addReloaded adds a limit that remembers a key for another time than the first limit, as after a
// reload: with another penalty or TTL, or without.
func (g *Generator) addReloaded(spec limiters.Spec) {
	g.limits = append(g.limits, MustLimit(spec))
	g.reloaded++
}

// WithoutReload removes the limits that remember a key for another time than the first limit. With
// them, a store that lets keys expire forgets what the reference still remembers.
func (g *Generator) WithoutReload() *Generator {
	g.limits = g.limits[:len(g.limits)-g.reloaded]
	return g
}

// NewGenerator returns a Generator for an algorithm and a seed.
func NewGenerator(algorithm string, seed uint64) *Generator {
	rnd := rand.New(rand.NewPCG(seed, 0))
	spec := randomSpec(rnd, algorithm)
	return newGenerator(rnd, fmt.Sprintf("%s %d", algorithm, seed), spec)
}

// NewMixedGenerator returns a Generator of calls whose operations are under several limits, for a
// seed.
func NewMixedGenerator(seed uint64) *Generator {
	rnd := rand.New(rand.NewPCG(seed, 2))
	g := &Generator{rnd: rnd, Name: fmt.Sprintf("mixed %d", seed), mixed: true, now: traceStart.UnixMicro() + rnd.Int64N(1e12)}
	for len(g.limits) < 5 {
		spec, shares := randomSpec(rnd, pick(rnd, limiters.Algorithms()...)), len(g.limits) > 0 && rnd.IntN(4) == 0
		switch {
		case shares: // the states of another limit
			spec = pick(rnd, g.limits...).Spec()
			spec.Max = pick(rnd, 1, spec.Max+1, spec.Max/2+1)
		case spec.Window > 0:
			if rnd.IntN(2) == 0 {
				spec.CountDenied = false
				spec.Params.Peek = ""
				ttl := pick(rnd, 40*time.Millisecond, 10*time.Second, time.Hour)
				spec.Params.Reserve = limiters.ReserveSpec{TTL: ttl, Unsettled: pick(rnd, limiters.UnsettledCharge, limiters.UnsettledRelease)}
			}
			if rnd.IntN(2) == 0 {
				spec.Params.Penalty = randomPenalty(rnd)
			}
		}
		l, err := limiters.NewLimit(spec)
		if err != nil {
			continue
		}
		// A limit with reserve.unsettled=release refunds what has expired. It does so late if the
		// last hits were under another limit.
		if !shares && slices.ContainsFunc(g.limits, func(other *limiters.Limit) bool { return other.StateID() == l.StateID() }) {
			continue
		}
		g.limits = append(g.limits, l)
		g.spans = append(g.spans, max(1, min(spec.Window.Microseconds(), maxSpanMicros)))
	}
	return g
}

// NewLeaseGenerator returns a Generator of limits with leases for an algorithm and a seed. Some
// calls have another TTL, or the limit without reserve.
func NewLeaseGenerator(algorithm string, seed uint64) *Generator {
	rnd := rand.New(rand.NewPCG(seed, 1))
	plain := randomSpec(rnd, algorithm)
	ttl := pick(rnd, time.Millisecond, 40*time.Millisecond, 10*time.Second, time.Hour, plain.Window)
	ttl = max(time.Millisecond, min(ttl, 24*time.Hour))
	withTTL := func(ttl time.Duration) limiters.Spec {
		spec := plain
		if spec.Window == 0 {
			spec.Params = limiters.Params{LeaseTTL: ttl}
			return spec
		}
		spec.CountDenied = false
		spec.Params.Peek = ""
		spec.Params.Reserve = limiters.ReserveSpec{TTL: ttl, Unsettled: pick(rnd, limiters.UnsettledCharge, limiters.UnsettledRelease)}
		return spec
	}
	g := newGenerator(rnd, fmt.Sprintf("%s leases %d", algorithm, seed), withTTL(ttl))
	g.addReloaded(withTTL(ttl/2 + time.Millisecond))
	g.addReloaded(plain)
	g.spans = append(g.spans, ttl.Microseconds(), limiters.EndedTTL.Microseconds())
	return g
}

func newGenerator(rnd *rand.Rand, name string, spec limiters.Spec) *Generator {
	g := &Generator{
		Name: name, rnd: rnd,
		limits: []*limiters.Limit{MustLimit(spec)},
		spans:  []int64{max(1, spec.Window.Microseconds())},
		now:    traceStart.UnixMicro() + rnd.Int64N(1e12),
	}
	for range 3 {
		other := spec
		other.Max = pick(rnd, 0, 1, spec.Max/2, spec.Max+1, 2*spec.Max, 5)
		if other.Max == 0 {
			other = other.Scaled(func(int64) int64 { return 0 })
		} else {
			maximum := other.Max
			other = other.Scaled(func(n int64) int64 { return pick(rnd, 1, n/2+1, n+3) })
			other.Max = maximum
		}
		if l, err := limiters.NewLimit(other); err == nil {
			g.limits = append(g.limits, l)
		}
	}
	return g
}

func randomSpec(rnd *rand.Rand, algorithm string) limiters.Spec {
	for {
		spec := limiters.Spec{
			Algorithm: algorithm,
			Max: pick(rnd, 0, 1, 1, 2, 3, 5, 7, 10, 30, 97, 1000, 1237, 100_003, 1_000_000, rnd.Int64N(1_000_000),
				3_599_999_999, 1<<32, 6_000_000_000, 1_000_000_000_000_000, limiters.LargestMax),
			Window: time.Duration(pick(rnd, 1, 7, 1000, 1e6, 1e6, 6e7, 6e7, 36e8, 864e8, 7*864e8, 30*864e8, 365*864e8,
				3650*864e8)) * time.Microsecond,
			CountDenied: rnd.IntN(2) == 0,
		}
		if !slices.Contains(WindowedAlgorithms(), algorithm) {
			spec.Window, spec.CountDenied = 0, false
		}
		spec.Params = randomParams(rnd, algorithm, spec.Max)
		if _, err := limiters.NewLimit(spec); err == nil {
			return spec
		}
	}
}

// randomParams gives each parameter of an algorithm a random value, or none. It gives no object.
func randomParams(rnd *rand.Rand, algorithm string, maximum int64) (params limiters.Params) {
	for _, p := range limiters.Parameters(algorithm) {
		n := pick(rnd, 0, p.Min, 15, maximum/2+1, 4_000_000, rnd.Int64N(1_000_000)+1)
		text := ""
		switch {
		case p.Type == limiters.Object || strings.Contains(p.Key, "."), (p.Type == limiters.Choice && p.Default == "" || p.Derived || p.Type == limiters.Zone) && rnd.IntN(2) == 0: // none
		case p.Type == limiters.Zone:
			text = pick(rnd, zones...)
		case p.Type == limiters.Choice:
			text = pick(rnd, p.Choices...)
		case n < p.Min || n > p.Max: // none
		case p.Type == limiters.Duration:
			text = (time.Duration(n) * time.Microsecond).String()
		default:
			text = strconv.FormatInt(n, 10)
		}
		if text == "" {
			continue
		}
		if err := p.Set(&params, text); err != nil {
			panic(err)
		}
	}
	return params
}

// zones are zones in which days begin and end in unusual ways.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "Pacific/Apia", "America/St_Johns",
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// Next returns the next call: its time and its groups.
func (g *Generator) Next() (time.Time, []limiters.Group) {
	g.now = max(earliest, min(g.now+g.step(), latest))
	limit := g.limits[0]
	if g.rnd.IntN(12) == 0 {
		limit = pick(g.rnd, g.limits...)
	}
	ops := make([]limiters.Op, pick(g.rnd, 1, 1, 1, 1, 2, 3, 5))
	for i := range ops {
		if g.mixed {
			limit = pick(g.rnd, g.limits...)
		}
		ops[i] = limiters.Op{Key: g.Name + " " + pick(g.rnd, "a", "a", "a", "b", "c"), Limit: limit, Hits: g.hits(limit)}
		if !limit.UsesExtraState() && g.rnd.IntN(12) == 0 {
			ops[i].Kind, ops[i].Hits = limiters.OpCountDenied, max(0, ops[i].Hits)
		}
		if limit.UsesLeases() && g.rnd.IntN(8) > 0 {
			ops[i].Lease = limiters.NewLeaseID(nil, pick(g.rnd, "1", "2", "3", "4", "5", strconv.FormatInt(g.now, 10)))
			if g.rnd.IntN(3) == 0 {
				ops[i].Kind = limiters.OpEnd
			}
		}
	}
	if g.rnd.IntN(3) > 0 {
		return time.UnixMicro(g.now), limiters.Singles(ops...)
	}
	var groups []limiters.Group
	for len(ops) > 0 {
		n := min(len(ops), pick(g.rnd, 1, 2, 3, 4))
		if ungrouped := slices.IndexFunc(ops[:n], func(op limiters.Op) bool { return op.Kind != limiters.OpAddHits }); ungrouped >= 0 {
			n = max(1, ungrouped)
		}
		groups, ops = append(groups, ops[:n]), ops[n:]
	}
	return time.UnixMicro(g.now), groups
}

// Observe passes the verdicts of the last call to the generator, which aims at their edges.
func (g *Generator) Observe(verdicts []limiters.Verdict) { g.last = verdicts }

func (g *Generator) step() int64 {
	window := pick(g.rnd, g.spans...)
	switch g.rnd.IntN(16) {
	case 0, 1, 2, 3:
		return 0
	case 4, 5, 6:
		return g.rnd.Int64N(3)
	case 7, 8:
		return g.rnd.Int64N(window/3 + 1)
	case 9:
		return window - 1 + g.rnd.Int64N(3)
	case 10:
		return -g.rnd.Int64N(min(window+3, g.now))
	case 11:
		return pick(g.rnd, -window, -window-1, 2*window, -1, 2*window+1) % g.now
	}
	for _, v := range g.last {
		// After RetryAfter the hits fit, and a microsecond earlier they do not.
		if v.RetryAfter > 0 {
			return v.RetryAfter.Microseconds() - g.rnd.Int64N(2)
		}
		if v.ResetAfter > 0 && g.rnd.IntN(4) == 0 {
			return v.ResetAfter.Microseconds() - g.rnd.Int64N(2)
		}
	}
	return 1
}

func (g *Generator) hits(l *limiters.Limit) int64 {
	capacity := max(l.Spec().Max, l.Capacity(), 1)
	switch g.rnd.IntN(20) {
	case 0, 1, 8:
		return 0
	case 2:
		return g.rnd.Int64N(capacity) + 1
	case 3:
		return g.rnd.Int64N(3*capacity) + 1
	case 4:
		return -g.rnd.Int64N(capacity) - 1
	case 5:
		return -1
	case 6:
		return pick[int64](g.rnd, capacity, capacity+1, -3*capacity, limiters.MaxHits, 1<<62, -1<<63, 2*capacity)
	case 7:
		return g.rnd.Int64N(max(1, capacity/2)) + 1
	}
	return pick[int64](g.rnd, 1, 1, 1, 1, 2)
}
