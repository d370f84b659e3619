package limiters

import (
	"strings"
	"testing"
	"time"
)

func mustPenalty(t *testing.T, params Params) *penaltyRule {
	t.Helper()
	l, err := New(Spec{Algorithm: "fixed_window", Max: 1, Window: time.Second, Params: params})
	if err != nil {
		t.Fatal(err)
	}
	return l.penalty
}

func TestPenaltyParameters(t *testing.T) {
	const base = "penalty.after=20 penalty.within=1m penalty.for=10m "
	for _, c := range []struct{ params, err string }{
		{base, ""},
		{base + "penalty.factor=1000 penalty.max=87600h penalty.forget=87600h", ""},
		{"penalty.after=20 penalty.within=1m", "a penalty without for: set for in penalty"},
		{"penalty.within=1m penalty.for=10m", "a penalty without after: set after in penalty"},
		{"penalty.after=0 penalty.within=1m penalty.for=10m", "a penalty.after of 0 is out of range: want 1 to 1000000"},
		{base + "penalty.factor=0", "a penalty.factor of 0 is out of range: want 1 to 1000"},
		{base + "penalty.max=5m", "a penalty of 10m0s is longer than its max of 5m0s: raise max in penalty, or shorten for"},
		{"penalty.after=1 penalty.within=1m penalty.for=48h", "a penalty of 48h0m0s is longer than its max of 24h0m0s"},
		{base + "penalty=1", "penalty is an object: set its keys"},
	} {
		for _, algorithm := range []string{"fixed_window", "sliding_log", "funnel"} {
			_, err := New(Spec{Algorithm: algorithm, Max: 1, Window: time.Second, Params: Params(c.params)})
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("%s with %q: %v, want %q", algorithm, c.params, err, c.err)
			}
		}
	}
}

func TestPenaltyLastsLongerEachTime(t *testing.T) {
	for _, c := range []struct {
		params Params
		want   []time.Duration // of each penalty that follows another at once
	}{
		{"penalty.for=10m penalty.factor=2 penalty.max=1h", []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour}},
		{"penalty.for=10m", []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		{"penalty.for=24h penalty.factor=9", []time.Duration{24 * time.Hour, 24 * time.Hour}},
		{"penalty.for=1ms penalty.factor=1000 penalty.max=87600h", []time.Duration{
			time.Millisecond, time.Second, 1000 * time.Second, 1_000_000 * time.Second, MaxWindow, MaxWindow}},
	} {
		r := mustPenalty(t, "penalty.after=1 penalty.within=1m "+c.params)
		p, now := Penalty{}, int64(1_700_000_000_000_000)
		for i, want := range c.want {
			p = r.offend(p, now)
			if got := micros(r.wait(p, now)); got != want {
				t.Errorf("%s: penalty %d lasts %v, want %v", c.params, i+1, got, want)
			}
			now = p.Until
		}
	}
}

// However many penalties a key had, the next one is computed at once.
func TestPenaltyLevelIsBounded(t *testing.T) {
	r := mustPenalty(t, "penalty.after=1 penalty.within=1m penalty.for=1ms penalty.factor=2 penalty.max=87600h")
	p, now := Penalty{}, int64(1)
	for range 1000 {
		p = r.offend(p, now)
		now = p.Until
	}
	if p.Level != maxPenaltyLevel || r.duration(p.Level) != maxWindowMicros {
		t.Errorf("level %d lasts %d µs", p.Level, r.duration(p.Level))
	}
}

func TestPenaltyResetTime(t *testing.T) {
	r := mustPenalty(t, "penalty.after=2 penalty.within=10ms penalty.for=20ms penalty.forget=30ms")
	const now = int64(1_000_000)
	offended := r.offend(Penalty{}, now)
	for _, c := range []struct {
		p    Penalty
		want int64
	}{{Penalty{}, 0}, {offended, now + 10_000}, {r.offend(offended, now+5), now + 5 + 50_000}} {
		if got := r.resetTime(c.p); got != c.want {
			t.Errorf("%+v: %d, want %d", c.p, got, c.want)
		}
	}
}
