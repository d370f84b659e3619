package limiters

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

func mustPenalty(t *testing.T, p PenaltySpec) *PenaltySpec {
	t.Helper()
	l, err := NewLimit(Spec{Algorithm: "fixed_window", Max: 1, Window: time.Second, Params: Params{Penalty: p}})
	must.Succeed(t, err)
	return l.penalty
}

func TestPenaltyParametersAreChecked(t *testing.T) {
	const minute = time.Minute
	base := func(change func(*PenaltySpec)) PenaltySpec {
		p := PenaltySpec{After: 20, Within: minute, For: 10 * minute}
		change(&p)
		return p
	}
	for _, c := range []struct {
		penalty PenaltySpec
		err     string
	}{
		{base(func(*PenaltySpec) {}), ""},
		{base(func(p *PenaltySpec) { p.Factor, p.Max, p.Forget = 1000, MaxWindow, MaxWindow }), ""},
		{PenaltySpec{After: 20, Within: minute}, "'penalty' needs 'for': set 'for' in 'penalty'"},
		{PenaltySpec{Within: minute, For: 10 * minute}, "'penalty' needs 'after': set 'after' in 'penalty'"},
		{base(func(p *PenaltySpec) { p.After = -1 }), "a 'penalty.after' of -1 is out of range: want 1 to 1000000"},
		{base(func(p *PenaltySpec) { p.Factor = 1001 }), "a 'penalty.factor' of 1001 is out of range: want 1 to 1000"},
		{base(func(p *PenaltySpec) { p.Within = 1500 * time.Nanosecond }), "a 'penalty.within' of 1.5µs is not a duration in whole microseconds"},
		{base(func(p *PenaltySpec) { p.Max = 5 * minute }), "a penalty of 10m0s is longer than its 'max' of 5m0s: set a longer 'max' or a shorter 'for'"},
		{base(func(p *PenaltySpec) { p.For = 48 * time.Hour }), "a penalty of 48h0m0s is longer than its 'max' of 24h0m0s"},
	} {
		for _, algorithm := range []string{"fixed_window", "sliding_log", "funnel"} {
			_, err := NewLimit(Spec{Algorithm: algorithm, Max: 1, Window: time.Second, Params: Params{Penalty: c.penalty}})
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("%s with %+v: %v, want %q", algorithm, c.penalty, err, c.err)
			}
		}
	}
}

func TestPenaltyLastsLongerEachTime(t *testing.T) {
	for _, c := range []struct {
		penalty PenaltySpec
		want    []time.Duration // the lengths of penalties that follow each other without a pause
	}{
		{PenaltySpec{For: 10 * time.Minute, Factor: 2, Max: time.Hour}, []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour}},
		{PenaltySpec{For: 10 * time.Minute}, []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		{PenaltySpec{For: 24 * time.Hour, Factor: 9}, []time.Duration{24 * time.Hour, 24 * time.Hour}},
		{PenaltySpec{For: time.Millisecond, Factor: 1000, Max: MaxWindow}, []time.Duration{
			time.Millisecond, time.Second, 1000 * time.Second, 1_000_000 * time.Second, MaxWindow, MaxWindow}},
	} {
		c.penalty.After, c.penalty.Within = 1, time.Minute
		spec := mustPenalty(t, c.penalty)
		p, now := penaltyState{}, int64(1_700_000_000_000_000)
		for i, want := range c.want {
			p.addOffense(spec, now)
			if got := micros(p.timeLeft(spec, now)); got != want {
				t.Errorf("%+v: penalty %d lasts %v, want %v", c.penalty, i+1, got, want)
			}
			now = p.until
		}
	}
}

// The time to compute a penalty does not grow with the number of earlier penalties.
func TestBegunPenaltiesAreBounded(t *testing.T) {
	spec := mustPenalty(t, PenaltySpec{After: 1, Within: time.Minute, For: time.Millisecond, Factor: 2, Max: MaxWindow})
	p, now := penaltyState{}, int64(1)
	for range 1000 {
		p.addOffense(spec, now)
		now = p.until
	}
	if p.begun != MaxPenaltiesBegun || spec.duration(p.begun) != maxWindowMicros {
		t.Errorf("after %d penalties, one lasts %d µs, want %d and %d µs", p.begun, spec.duration(p.begun), MaxPenaltiesBegun, maxWindowMicros)
	}
}

func TestPenaltyResetTimeIncludesForget(t *testing.T) {
	spec := mustPenalty(t, PenaltySpec{After: 2, Within: 10 * time.Millisecond, For: 20 * time.Millisecond, Forget: 30 * time.Millisecond})
	const now = int64(1_000_000)
	var once penaltyState
	once.addOffense(spec, now)
	twice := once
	twice.addOffense(spec, now+5)
	for _, c := range []struct {
		p    penaltyState
		want int64
	}{{penaltyState{}, 0}, {once, now + 10_000}, {twice, now + 5 + 50_000}} {
		if got := c.p.resetTime(spec); got != c.want {
			t.Errorf("%+v: %d, want %d", c.p, got, c.want)
		}
	}
}
