package memstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// The snapshot was written before algorithms declared their parameters, with one full key under each limit.
func TestSnapshotOfAnEarlierVersionLoads(t *testing.T) {
	b, err := os.ReadFile("testdata/v1.snapshot")
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMicro(1_763_683_200_000_000)
	s := storeAt(&now)
	if result, err := s.load(bytes.NewReader(b)); err != nil || result.Keys != 4 {
		t.Fatalf("%+v, %v, want 4 keys", result, err)
	}
	for _, spec := range []limiters.Spec{
		{Algorithm: "fixed_window", Max: 1, Window: limiters.MaxWindow, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}},
		{Algorithm: "fixed_window", Max: 2, Window: limiters.MaxWindow, CountDenied: true},
		{Algorithm: "sliding_log", Max: 3, Window: limiters.MaxWindow},
		{Algorithm: "funnel", Max: 70_000, Window: limiters.MaxWindow, Params: limiters.Params{Capacity: 4}},
	} {
		l, out := limiterstest.MustLimit(spec), make([]limiters.Verdict, 1)
		groups := []limiters.Group{{{Key: "a key", Limit: l, N: 1}}}
		if err := s.Take(context.Background(), now, groups, out); err != nil || out[0].Allowed || out[0].Used < l.Capacity() {
			t.Errorf("%+v: %+v, %v, want a denial", spec, out[0], err)
		}
	}
}

func TestSnapshotParametersSurvive(t *testing.T) {
	for _, c := range []struct{ algorithm, params, text string }{
		{"fixed_window", "", ""},
		{"funnel", "capacity=7", ""},
		{"fixed_window", "window_start=first_hit", ""},
		{"fixed_window", "window_start=calendar", "window_start=calendar"},
		{"funnel", "capacity=7 penalty.after=1 penalty.within=1s penalty.for=1m0s", "penalty.after=1 penalty.within=1s penalty.for=1m0s"},
	} {
		params, err := limiters.ParseParams(c.params)
		if err != nil {
			t.Fatal(err)
		}
		l := limiterstest.MustLimit(limiters.Spec{Algorithm: c.algorithm, Max: 5, Window: 24 * time.Hour, Params: params})
		spec := l.Spec()
		if text := paramsText(spec); text != c.text {
			t.Errorf("%q has the text %q, want %q", c.params, text, c.text)
		}
		f := limitFields{
			algorithm: spec.Algorithm, maximum: uint64(spec.Max), window: uint64(spec.Window.Microseconds()),
			capacity: uint64(spec.Params.Capacity), params: paramsText(spec),
		}
		if isFirstHit(spec.Params) {
			f.flags = flagFirstHit
		}
		if got, err := f.limit(); err != nil || got.Spec() != spec {
			t.Errorf("%q became %+v, %v", c.params, got, err)
		}
	}
}

// A limit with a parameter that version 1 has no field for.
func TestSnapshotReadsParametersAsText(t *testing.T) {
	s, limit := New(Options{}), limiterstest.MustLimit(
		limiters.Spec{Algorithm: "funnel", Max: 5, Window: time.Hour, Params: limiters.Params{Capacity: 3}})
	expiry := s.clock() + time.Hour.Microseconds()
	b := binary.LittleEndian.AppendUint64(nil, uint64(expiry))
	b = append(b, 0, 0) // the first name, no flags
	for _, n := range []int64{5, time.Hour.Microseconds(), 0, 1} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = append(append(b, "k\x0a"...), "capacity=3"...)
	b = limiters.AppendState(b, limit, stateOf(s.clock(), 1_000_000, 1))
	l := loader{store: s, transaction: transaction{store: s, storeNow: s.clock()}, names: []string{"funnel" + paramsSuffix}, limits: map[limitFields]*limiters.Limit{}}
	if err := l.key(&keyReader{b: b}); err != nil {
		t.Fatal(err)
	}
	if got := keysBySpec(s); !maps.Equal(got, map[limiters.Spec]int{limit.Spec(): 1}) {
		t.Errorf("loaded %v", got)
	}
}
