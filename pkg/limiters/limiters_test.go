package limiters

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

func TestInvalidSpecsAreErrors(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, c := range []struct {
		spec Spec
		err  string // "": the spec is valid
	}{
		{Spec{Algorithm: "fixed_window", Max: LargestMax, Window: 10 * year, Params: Params{WindowStart: StartByFirstHit}}, ""},
		{Spec{Algorithm: "fixed_window", Window: time.Microsecond, CountDenied: true}, ""},
		{Spec{Algorithm: "fixed_window", Max: -1, Window: time.Second}, "maximum of -1 is out of range"},
		{Spec{Algorithm: "fixed_window", Max: LargestMax + 1, Window: time.Second}, "maximum of 4503599627370496 is out of range"},
		{Spec{Algorithm: "fixed_window", Max: 1}, "window of 0s is out of range"},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: time.Nanosecond}, "whole microseconds"},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: 10*year + time.Microsecond}, "up to 10 years"},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: time.Second, Params: Params{Capacity: 1}}, `no parameter "capacity"`},
		{Spec{Algorithm: "fixed_window", Max: -1}, "maximum of -1 is out of range: want 0 to 4503599627370495\na window of 0s"},
		{Spec{Algorithm: "sliding_log", Max: MaxLogLimit, Window: time.Minute}, ""},
		{Spec{Algorithm: "sliding_log", Max: MaxLogLimit + 1, Window: time.Minute}, "the algorithm funnel"},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: time.Minute, CountDenied: true, Params: Params{Peek: PeekWouldFit}}, ""},
		{Spec{Algorithm: "sliding_log", Max: 1, Window: time.Minute, Params: Params{Peek: PeekOver}}, ""},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: 90 * day, Params: Params{WindowStart: StartByCalendar, CalendarUnit: "month", TimeZone: "Europe/Berlin"}}, ""},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: 10 * year, Params: Params{WindowStart: StartByCalendar, CalendarUnit: "year"}}, ""},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: day, Params: Params{WindowStart: StartByCalendar}}, ""},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour, Params: Params{WindowStart: StartByCalendar}}, "not a whole number of units: want days of 24h0m0s"},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: day, Params: Params{WindowStart: StartByCalendar, TimeZone: "Berlin"}}, `unknown time_zone "Berlin"`},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: day, Params: Params{WindowStart: StartByCalendar, TimeZone: "{a}"}}, `unknown time_zone "{a}"`},
		{Spec{Algorithm: "fixed_window", Max: 1, Window: day, Params: Params{TimeZone: "UTC"}}, "'time_zone' has no meaning without a calendar"},
		{Spec{Algorithm: "funnel", Max: 1, Window: time.Minute, Params: Params{Capacity: 2, Peek: PeekWouldFit}}, ""},
		{Spec{Algorithm: "funnel", Max: 1, Window: time.Minute, Params: Params{Peek: "fits"}}, `unknown peek "fits": want one of ["would_fit" "over"]`},
		{Spec{Algorithm: "sliding_log", Max: 1, Window: time.Minute, Params: Params{WindowStart: StartByFirstHit}}, `no parameter "window_start"`},
		{Spec{Algorithm: "sliding_log", Max: 1, Window: time.Minute, Params: Params{Capacity: 2}}, `no parameter "capacity"`},
		{Spec{Algorithm: "funnel", Max: 1, Window: year}, ""},
		{Spec{Algorithm: "funnel", Max: 1_000_000, Window: time.Second, Params: Params{Capacity: 4000000}}, ""},
		{Spec{Algorithm: "funnel", Max: 3_599_999_999, Window: time.Hour, Params: Params{Capacity: 4000000}}, ""},
		{Spec{Algorithm: "funnel", Max: maxCapacity, Window: time.Second}, ""},
		{Spec{Algorithm: "funnel", Max: maxCapacity + 1, Window: time.Second}, "want a 'capacity' of at most 4294967295"},
		{Spec{Algorithm: "funnel", Max: maxCapacity + 1, Window: time.Second, Params: Params{Capacity: 9}}, ""},
		{Spec{Algorithm: "funnel", Max: 1_000_000_000_000_000, Window: time.Hour, Params: Params{Capacity: 4294967295}}, ""},
		{Spec{Algorithm: "funnel", Max: 4_294_967_311, Window: time.Second, Params: Params{Capacity: 9}}, "want at most 4294967310"},
		{Spec{Algorithm: "funnel", Max: LargestMax, Window: time.Microsecond, Params: Params{Capacity: 9}}, "exactly: want at most 4294967295"},
		{Spec{Algorithm: "funnel", Max: 1, Window: time.Second, Params: Params{Capacity: 4294967296}}, "a 'capacity' of 4294967296 is out of range"},
		{Spec{Algorithm: "funnel", Max: 1, Window: year, Params: Params{Capacity: 71}}, ""},
		{Spec{Algorithm: "funnel", Max: 1, Window: year, Params: Params{Capacity: 72}}, "more than 71 years"},
		{Spec{Algorithm: "funnel", Max: 1, Window: time.Second, Params: Params{Capacity: -1}}, "a 'capacity' of -1 is out of range"},
		{Spec{Algorithm: "funnel", Max: 0, Window: time.Second}, ""},
		{Spec{Algorithm: "funnel", Max: 0, Window: time.Second, Params: Params{Capacity: 1}}, "remove 'capacity'"},
		{Spec{Algorithm: "funnel", Max: 1, Window: time.Second, Params: Params{WindowStart: StartByFirstHit}}, `no parameter "window_start"`},
		{Spec{Algorithm: "sliding_window", Max: 1, Window: time.Second}, `unknown algorithm "sliding_window": want one of`},
	} {
		l, err := NewLimit(c.spec)
		switch {
		case c.err == "" && err != nil:
			t.Errorf("NewLimit(%+v): %v, want no error", c.spec, err)
		case c.err == "" && l.Spec() != c.spec:
			t.Errorf("NewLimit(%+v).Spec() = %+v, want it unchanged", c.spec, l.Spec())
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("NewLimit(%+v): %v, want %q", c.spec, err, c.err)
		}
	}
}

// The error of a funnel that cannot count exactly names the next lower maximum. A window of a prime
// number of seconds has no divisor from 10^6 to that prime, so a search number by number would
// exceed the timeout of go test here.
func TestMaximumOfAnImpreciseFunnelIsFoundWithoutTryingEachNumber(t *testing.T) {
	const prime, funnels = 315_359_983, 1000
	for range funnels {
		_, err := NewLimit(Spec{Algorithm: "funnel", Max: LargestMax, Window: prime * time.Second, Params: Params{Capacity: 1}})
		if want := fmt.Sprintf("want at most %d", LargestMax/prime*prime); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
	}
}

func TestDivisorsOfANumber(t *testing.T) {
	for n := range int64(1000) {
		n++
		var want []int64
		for d := int64(1); d <= n; d++ {
			if n%d == 0 {
				want = append(want, d)
			}
		}
		if got := slices.Sorted(slices.Values(divisorsOf(n))); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}

// Limits that differ only in the maximum, count_denied or peek share a state.
func TestLimitsOfOneAlgorithmAndWindowShareAState(t *testing.T) {
	base := Spec{Algorithm: "fixed_window", Max: 5, Window: time.Minute}
	id := func(change func(*Spec)) string {
		s := base
		change(&s)
		l, err := NewLimit(s)
		must.Succeed(t, err)
		return l.StateID()
	}
	same := id(func(*Spec) {})
	for what, change := range map[string]func(*Spec){
		"maximum":      func(s *Spec) { s.Max = 9 },
		"count_denied": func(s *Spec) { s.CountDenied = true },
		"peek":         func(s *Spec) { s.Params = Params{Peek: PeekOver} },
	} {
		if got := id(change); got != same {
			t.Errorf("another %s: %q, want %q", what, got, same)
		}
	}
	for what, change := range map[string]func(*Spec){
		"window":       func(s *Spec) { s.Window = time.Hour },
		"window_start": func(s *Spec) { s.Params = Params{WindowStart: StartByFirstHit} },
		"algorithm":    func(s *Spec) { s.Algorithm = "sliding_log" },
	} {
		if got := id(change); got == same || strings.ContainsAny(got, "{}") {
			t.Errorf("another %s: %q, want another than %q", what, got, same)
		}
	}
}

// Compares the queue of a log with a slice.
func TestDequeMatchesSlice(t *testing.T) {
	for seed := range uint64(16) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var d deque
		var want []entry
		maxStep := []int{3, 40, 700, 3000}[seed%4]
		for step := range 400 {
			n := rnd.IntN(maxStep)
			switch rnd.IntN(5) {
			case 0, 1:
				for i := range n {
					e := entry{time: int64(step), sum: uint32(i)}
					d.push(e)
					want = append(want, e)
				}
			case 2:
				n = min(n, len(want))
				d.removeFront(n)
				want = want[n:]
			case 3:
				n = min(n, len(want))
				d.removeBack(n)
				want = want[:len(want)-n]
			case 4:
				if len(want) > 0 {
					d.setSum(uint32(n))
					want[len(want)-1].sum = uint32(n)
				}
			}
			if d.len() != len(want) {
				t.Fatalf("seed %d: %d entries, want %d", seed, d.len(), len(want))
			}
			for i := range want {
				if d.get(i) != want[i] {
					t.Fatalf("seed %d: entry %d is %v, want %v", seed, i, d.get(i), want[i])
				}
			}
			if len(want) > 0 && (d.newest != want[len(want)-1] || d.oldest != want[0].time) {
				t.Fatalf("seed %d: from %d to %v, want %v to %v", seed, d.oldest, d.newest, want[0], want[len(want)-1])
			}
			if maxSize := (len(want)*2 + 3*chunkLen) * entrySize * 2; d.size() > maxSize {
				t.Fatalf("seed %d: %d entries take %d bytes", seed, len(want), d.size())
			}
		}
	}
}

// A log that is in use and does not grow keeps its size.
func TestShortLogStaysSmall(t *testing.T) {
	var d deque
	for i := range 100_000 {
		d.push(entry{time: int64(i)})
		if d.len() > 5 {
			d.removeFront(1)
		}
	}
	if d.size() > 16*entrySize+24 {
		t.Errorf("5 entries take %d bytes", d.size())
	}
}

// A log may grow by hits that a cache has denied, but not while a peek is allowed.
func TestDeniedHitsNeedMemoryOnlyIfTheyCount(t *testing.T) {
	l, err := NewLimit(Spec{Algorithm: "sliding_log", Max: 1, Window: time.Hour, CountDenied: true})
	must.Succeed(t, err)
	const now = 1_000_000
	state, out := State{}, make([]Verdict, 1)
	denied := Op{Limit: l, Kind: OpCountDenied, Hits: 3}
	full := errors.New("no memory")
	decide := func(op Op) {
		Decide(now, Singles(op), []*State{&state}, out, func(int) error { return full })
	}
	if decide(denied); !out[0].Allowed {
		t.Errorf("without memory, a peek that fits: %+v, want allowed", out[0])
	}
	if decide(Op{Limit: l, Hits: 1}); !errors.Is(out[0].Err, full) {
		t.Errorf("without memory, a charge that fits: %+v, want an error", out[0])
	}
	Decide(now, Singles(Op{Limit: l, Hits: 1}), []*State{&state}, out, nil)
	if decide(denied); !out[0].Denied() || out[0].Used != 1 {
		t.Errorf("without memory, denied hits: %+v, want denied with 1 used", out[0])
	}
	Decide(now, Singles(denied), []*State{&state}, out, nil)
	if out[0].Used != 2 {
		t.Errorf("denied hits: %+v, want 2 used", out[0])
	}
}

// Unit, count and zone of a calendar are in the StateID, and the StateID has no braces, which are
// special in Redis.
func TestStateIDOfACalendarHasUnitCountAndZone(t *testing.T) {
	seen := map[string]string{}
	for _, c := range []struct {
		days   int
		params string
	}{
		{30, ""}, {30, "window_start=first_hit"}, {30, "window_start=calendar"}, {30, "window_start=calendar calendar_unit=month"},
		{60, "window_start=calendar calendar_unit=month"}, {30, "window_start=calendar calendar_unit=month time_zone=Europe/Berlin"},
		{30, "window_start=calendar time_zone=Europe/Berlin"}, {30, "window_start=calendar time_zone=Etc/GMT+5"},
		{7, "window_start=calendar"}, {7, "window_start=calendar calendar_unit=week"},
	} {
		params, err := ParseParams(c.params)
		must.Succeed(t, err)
		l, err := NewLimit(Spec{Algorithm: "fixed_window", Max: 1, Window: time.Duration(c.days) * 24 * time.Hour, Params: params})
		must.Succeed(t, err)
		what := fmt.Sprint(c.days, " days, ", c.params)
		if other, taken := seen[l.StateID()]; taken || strings.ContainsAny(l.StateID(), "{}") {
			t.Errorf("%s has the ID %q, as %s", what, l.StateID(), other)
		}
		seen[l.StateID()] = what
	}
}

// Algorithms and limits read no clock: the caller passes the time.
func TestLimitersReadNoClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	clock := regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|NewTimer|NewTicker|Tick|Sleep)\(`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source := must.Read(t, file)
		if found := clock.Find(source); found != nil {
			t.Errorf("%s calls %s", file, found)
		}
	}
}
