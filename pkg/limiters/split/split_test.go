package split_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// An echo is a store whose verdicts have each operation's N as Used. It records the groups of its
// calls.
type echo struct {
	limiters.Store
	err    error
	panics bool
	calls  int
	groups []limiters.Group
}

// keys returns the keys of the operations, separated by spaces.
func (e *echo) keys() string {
	var keys []string
	for _, op := range slices.Concat(e.groups...) {
		keys = append(keys, op.Key)
	}
	return strings.Join(keys, " ")
}

func (e *echo) Take(_ context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	e.calls++
	if e.panics {
		panic("out of order")
	}
	if e.err != nil {
		return limiters.FailAll(out, e.err)
	}
	e.groups = append(e.groups, groups...)
	for i, op := range slices.Concat(groups...) {
		out[i] = limiters.Verdict{Allowed: true, Used: op.Hits}
	}
	return nil
}

func ops(ns ...int64) limiters.Group {
	var g limiters.Group
	for _, n := range ns {
		g = append(g, limiters.Op{Hits: n})
	}
	return g
}

// divide decides groups of operations 0 1 2, 3, 4 5 and 6 by two stores in turn.
func divide(a, b limiters.Taker) ([]limiters.Verdict, error) {
	var s split.FanOut
	s.Add(a, ops(0, 1, 2), 0)
	s.Add(b, ops(3), 3)
	s.Add(a, ops(4, 5), 4)
	s.Add(b, ops(6), 6)
	out := make([]limiters.Verdict, 7)
	return out, s.Take(context.Background(), out)
}

func TestSplitScattersVerdicts(t *testing.T) {
	var a, b echo
	out, err := divide(&a, &b)
	if err != nil || len(a.groups) != 2 || len(b.groups) != 2 {
		t.Fatal(err, a.groups, b.groups)
	}
	for i, v := range out {
		if v.Used != int64(i) || !v.Allowed {
			t.Errorf("operation %d: %+v", i, v)
		}
	}
}

func TestSplitStoreThatFailsFailsItsOpsOnly(t *testing.T) {
	broken := errors.New("broken")
	for _, bad := range []*echo{{err: broken}, {panics: true}} {
		want := broken
		if bad.panics {
			want = limiters.ErrPanic
		}
		for _, badIsFirst := range []bool{true, false} {
			a, b := bad, &echo{}
			if !badIsFirst {
				a, b = b, a
			}
			out, err := divide(a, b)
			if err != nil {
				t.Errorf("%v, want no error while one store decides", err)
			}
			for i, v := range out {
				ofBad := (i == 3 || i == 6) != badIsFirst
				if ofBad != errors.Is(v.Err, want) || ofBad == v.Allowed {
					t.Errorf("bad first: %t: operation %d: %+v", badIsFirst, i, v)
				}
			}
		}
		out, err := divide(bad, &echo{err: context.Canceled})
		if !errors.Is(err, want) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want both errors", err)
		}
		for i, v := range out {
			if v.Err == nil || v.Allowed {
				t.Errorf("operation %d of two failed stores: %+v", i, v)
			}
		}
	}
}

// If one store may have charged its hits, the Take as a whole may have, and so each operation.
func TestSplitIsUnchargedOnlyIfAllStoresAre(t *testing.T) {
	busy, broken := limiters.Uncharged(errors.New("too busy")), errors.New("broken")
	for _, other := range []error{busy, broken, errors.New(busy.Error())} {
		out, err := divide(&echo{err: busy}, &echo{err: other})
		if !errors.Is(err, busy) || !errors.Is(err, other) || limiters.IsUncharged(err) != limiters.IsUncharged(other) {
			t.Errorf("with %q: %v", other, err)
		}
		for i, v := range out {
			if limiters.IsUncharged(v.Err) != limiters.IsUncharged(other) {
				t.Errorf("with %q: operation %d: %v", other, i, v.Err)
			}
		}
	}
}

func TestErrorOfAllHasEachTextOnce(t *testing.T) {
	broken := errors.New("broken")
	err := split.ErrorOfAll([]error{broken, errors.New("broken"), limiters.Uncharged(broken), errors.New("busy")})
	if err == nil || err.Error() != "broken\nnothing was charged: broken\nbusy" {
		t.Errorf("%v, want each text once", err)
	}
}

// A store that fails may return no results.
func TestFoundInEitherIgnoresMissingResults(t *testing.T) {
	for _, found := range [][]bool{split.FoundInEither(nil, []bool{true}), split.FoundInEither([]bool{}, []bool{true})} {
		if len(found) > 0 {
			t.Errorf("found %v, want nothing", found)
		}
	}
}

func TestSubsetMayHaveOpsOfItsOwn(t *testing.T) {
	var s split.Subset
	s.AddOps(ops(10, 2, 11), -1, 2, -1)
	s.Add(ops(0), 0)
	if err := s.Take(context.Background(), &echo{}); err != nil || s.Len() != 4 || s.Verdicts[0].Used != 10 {
		t.Fatal(err, s.Len(), s.Verdicts)
	}
	out := make([]limiters.Verdict, 3)
	out[1].Used = 99
	s.Scatter(out)
	if out[0].Used != 0 || !out[0].Allowed || out[1].Used != 99 || out[2].Used != 2 {
		t.Errorf("got %+v, want allowed with used=0, then 99 as before, then used=2", out)
	}
}
