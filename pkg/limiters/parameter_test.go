package limiters

import (
	"maps"
	"strings"
	"testing"
)

func TestParamsAreCanonical(t *testing.T) {
	d := &definition{name: "a", parameters: []Parameter{
		{Key: "start", Type: Choice, Choices: []string{"clock", "hit"}},
		{Key: "size", Type: Integer, Min: 1, Max: 9, Hits: true},
		{Key: "penalty.for", Type: Duration, Min: 1, Max: 3_600_000_000},
	}}
	for _, c := range []struct{ params, want, err Params }{
		{"", "", ""},
		{"start=clock", "", ""},
		{"penalty.for=90s  size=07 start=hit", "start=hit size=7 penalty.for=1m30s", ""},
		{"size=0", "", "a size of 0 is out of range: want 1 to 9"},
		{"size=10", "", "a size of 10 is out of range: want 1 to 9"},
		{"size=big", "", `a size of "big" is not a whole number`},
		{"size", "", `a size of "" is not a whole number`},
		{"size=1 size=2", "", "the parameter size is given twice"},
		{"start=noon", "", `unknown start "noon": want one of ["clock" "hit"]`},
		{"penalty.for=90", "", `a penalty.for of "90" is not a duration in whole microseconds`},
		{"penalty.for=1ns", "", `a penalty.for of "1ns" is not a duration in whole microseconds`},
		{"penalty.for=2h", "", "a penalty.for of 2h0m0s is out of range: want 1µs to 1h0m0s"},
		{"colour=red", "", `the algorithm a has no parameter "colour"`},
	} {
		got, _, err := d.parse(c.params)
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), string(c.err))) {
			t.Errorf("%q: %q, %v, want %q, %q", c.params, got, err, c.want, c.err)
		}
	}
	p := Params("start=hit size=7 penalty.for=1m30s")
	if _, got, err := d.parse(p); err != nil || !maps.Equal(got, values{"start": 1, "size": 7, "penalty.for": 90_000_000}) {
		t.Errorf("%v, %v", got, err)
	}
	if value, rest := p.Cut("size"); value != "7" || rest != "start=hit penalty.for=1m30s" {
		t.Errorf("%q, %q", value, rest)
	}
}

func TestScaledSpec(t *testing.T) {
	half := func(n int64) int64 { return n / 2 }
	for _, c := range []struct {
		spec Spec
		max  int64
		want Params
	}{
		{Spec{Algorithm: "funnel", Max: 10, Params: "capacity=7"}, 5, "capacity=3"},
		{Spec{Algorithm: "funnel", Max: 10, Params: "capacity=1"}, 5, ""},
		{Spec{Algorithm: "funnel", Max: 10}, 5, ""},
		{Spec{Algorithm: "funnel", Max: 10, Params: "capacity=big"}, 5, "capacity=big"},
		{Spec{Algorithm: "fixed_window", Max: 10, Params: "window_start=first_hit"}, 5, "window_start=first_hit"},
		{Spec{Algorithm: "sliding_log", Max: 10, Params: "penalty.after=4 penalty.within=1m0s penalty.for=10m0s"}, 5, "penalty.after=4 penalty.within=1m0s penalty.for=10m0s"},
	} {
		if got := c.spec.Scaled(half); got.Max != c.max || got.Params != c.want {
			t.Errorf("%+v: %+v, want %d and %q", c.spec, got, c.max, c.want)
		}
	}
}
