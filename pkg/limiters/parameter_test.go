package limiters

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParamsStringRoundTrips(t *testing.T) {
	for _, c := range []struct{ algorithm, text, want, err string }{
		{"fixed_window", "", "", ""},
		{"fixed_window", "window_start=clock", "", ""},
		{"fixed_window", "penalty.for=90s  penalty.within=01s window_start=first_hit penalty.after=07",
			"window_start=first_hit penalty.after=7 penalty.within=1s penalty.for=1m30s", ""},
		{"fixed_window", "time_zone=UTC window_start=calendar calendar_unit=day", "window_start=calendar", ""},
		{"fixed_window", "reserve.ttl=1m reserve.unsettled=charge", "reserve.ttl=1m0s", ""},
		{"funnel", "peek=would_fit capacity=3", "capacity=3 peek=would_fit", ""},
		{"funnel", "capacity=0", "", "a 'capacity' of 0 is out of range: want 1 to 4294967295"},
		{"funnel", "capacity=4294967296", "", "a 'capacity' of 4294967296 is out of range: want 1 to 4294967295"},
		{"funnel", "capacity=big", "", `a 'capacity' of "big" is not a whole number`},
		{"funnel", "capacity", "", `a 'capacity' of "" is not a whole number`},
		{"funnel", "capacity=1 capacity=2", "", "the parameter capacity is given twice"},
		{"funnel", "peek=", "", `unknown peek ""`},
		{"fixed_window", "window_start=noon", "", `unknown window_start "noon": want one of ["clock" "first_hit" "calendar"]`},
		{"fixed_window", "time_zone=Berlin", "", `unknown time_zone "Berlin"`},
		{"concurrency", "lease_ttl=90", "", `a 'lease_ttl' of "90" is not a duration`},
		{"concurrency", "lease_ttl=1000001ns", "", "a 'lease_ttl' of 1.000001ms is not a duration in whole microseconds"},
		{"concurrency", "lease_ttl=25h", "", "a 'lease_ttl' of 25h0m0s is out of range: want 1ms to 24h0m0s"},
		{"concurrency", "lease_ttl=0s", "", "a 'lease_ttl' of 0s is out of range: want 1ms to 24h0m0s"},
		{"fixed_window", "penalty=1", "", "'penalty' is an object: set its keys"},
		{"fixed_window", "colour=red", "", `unknown parameter "colour"`},
		{"fixed_window", "capacity=1", "", `the algorithm fixed_window has no parameter "capacity"`},
	} {
		params, err := ParseParams(c.text)
		var l *Limit
		if err == nil {
			l, err = NewLimit(Spec{Algorithm: c.algorithm, Max: 10, Window: 24 * time.Hour, Params: params})
		}
		if err != nil || c.err != "" {
			if c.err == "" || err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s %q: %v, want %q", c.algorithm, c.text, err, c.err)
			}
			continue
		}
		got := l.Spec().Params
		if text := got.String(); text != c.want {
			t.Errorf("%s %q became %q, want %q", c.algorithm, c.text, text, c.want)
		}
		if again, err := ParseParams(c.want); err != nil || again != got {
			t.Errorf("%s %q: %+v, %v, want %+v", c.algorithm, c.want, again, err, got)
		}
	}
}

// Each parameter has a field of its own.
func TestEachParameterHasAField(t *testing.T) {
	text := map[ParameterType]string{Integer: "7", Duration: "3s", Zone: "Europe/Berlin"}
	var params Params
	for _, p := range allParameters {
		if p.Type == Object {
			continue
		}
		before, value := params, text[p.Type]
		if p.Type == Choice {
			value = p.Choices[len(p.Choices)-1]
		}
		if err := p.Set(&params, value); err != nil || p.Text(before) != "" {
			t.Errorf("%s: %v, had %q, want a field that is not set", p.Key, err, p.Text(before))
		}
	}
	for _, p := range allParameters {
		if p.Type != Object && p.Text(params) == "" {
			t.Errorf("%s is not set in %+v", p.Key, params)
		}
	}
	fields := leafFields(reflect.TypeFor[Params]())
	if text := params.String(); strings.Count(text, "=") != fields {
		t.Errorf("%q does not have the %d fields of Params", text, fields)
	}
}

// leafFields returns the number of fields of a type, with those of structs in place of the structs.
func leafFields(t reflect.Type) (n int) {
	if t.Kind() != reflect.Struct {
		return 1
	}
	for f := range t.Fields() {
		n += leafFields(f.Type)
	}
	return n
}

// Hashes of rules and snapshots contain the text of a limit, so all algorithms have their
// parameters in one order.
func TestAlgorithmsHaveTheirParametersInOneOrder(t *testing.T) {
	for _, algorithm := range Algorithms() {
		rest := allParameters
		for _, p := range Parameters(algorithm) {
			i := slices.IndexFunc(rest, func(other Parameter) bool { return other.Key == p.Key })
			if i < 0 {
				t.Fatalf("%s of %s is missing in allParameters, or not in its order", p.Key, algorithm)
			}
			rest = rest[i+1:]
		}
	}
}

func TestScaledSpecScalesItsParameters(t *testing.T) {
	half := func(n int64) int64 { return n / 2 }
	penalty := Params{Penalty: PenaltySpec{After: 4, Within: time.Minute, For: 10 * time.Minute}}
	for _, c := range []struct {
		spec Spec
		max  int64
		want Params
	}{
		{Spec{Algorithm: "funnel", Max: 10, Params: Params{Capacity: 7}}, 5, Params{Capacity: 3}},
		{Spec{Algorithm: "funnel", Max: 10, Params: Params{Capacity: 1}}, 5, Params{}},
		{Spec{Algorithm: "funnel", Max: 10}, 5, Params{}},
		{Spec{Algorithm: "fixed_window", Max: 10, Params: Params{WindowStart: StartByFirstHit}}, 5, Params{WindowStart: StartByFirstHit}},
		{Spec{Algorithm: "sliding_log", Max: 10, Params: penalty}, 5, penalty},
	} {
		if got := c.spec.Scaled(half); got.Max != c.max || got.Params != c.want {
			t.Errorf("%+v: %+v, want %d and %+v", c.spec, got, c.max, c.want)
		}
	}
}
