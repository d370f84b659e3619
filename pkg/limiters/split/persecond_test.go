package split_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A limit of one second that gets a penalty by a reload is counted in the other store from then on,
// and so the reference has two stores too.
func TestPerSecondPassesTheSuite(t *testing.T) {
	limiterstest.RunAgainst(t, newTwoReferences, func(*testing.T) limiterstest.TimedStore {
		return limiterstest.Decorated(split.NewPerSecondRouter(memory(), memory()))
	})
	t.Run("references", func(t *testing.T) {
		reference := func() limiters.Store { return limiterstest.Inner(limiterstest.NewReference()) }
		limiterstest.RunRandom(t, limiterstest.Decorated(split.NewPerSecondRouter(reference(), reference())))
	})
}

func memory() limiters.Store { return limiterstest.Inner(memstore.New(memstore.Options{})) }

// twoReferences is a naive [split.PerSecondRouter], which decides group by group.
type twoReferences struct{ main, second *limiterstest.Reference }

func newTwoReferences() limiterstest.TimedStore {
	return twoReferences{limiterstest.NewReference(), limiterstest.NewReference()}
}

func (r twoReferences) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	return r.TakeAt(ctx, time.Time{}, groups, out)
}

func (r twoReferences) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	for _, g := range groups {
		store := r.second
		for _, op := range g {
			spec := op.Limit.Spec()
			if spec.Window != time.Second || spec.Params.Penalty != (limiters.PenaltySpec{}) || spec.Params.Reserve != (limiters.ReserveSpec{}) {
				store = r.main
			}
		}
		if err := store.TakeAt(ctx, now, []limiters.Group{g}, out[:len(g)]); err != nil {
			return err
		}
		out = out[len(g):]
	}
	return nil
}

func (r twoReferences) Reset(ctx context.Context, keys []limiters.StateName) ([]bool, error) {
	found, err := r.main.Reset(ctx, keys)
	if err != nil {
		return nil, err
	}
	inSecond, err := r.second.Reset(ctx, keys)
	for i := range inSecond {
		found[i] = found[i] || inSecond[i]
	}
	return found, err
}

func (r twoReferences) ResetMatching(ctx context.Context, match func(string) bool, cursor string) (limiters.Progress, error) {
	done, err := r.main.ResetMatching(ctx, match, cursor)
	if err != nil {
		return done, err
	}
	second, err := r.second.ResetMatching(ctx, match, cursor)
	return limiters.Progress{Scanned: done.Scanned + second.Scanned, Reset: done.Reset + second.Reset}, err
}

func fixedWindow(window time.Duration) *limiters.Limit {
	return limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: window})
}

var (
	second     = fixedWindow(time.Second)
	minute     = fixedWindow(time.Minute)
	twoSeconds = fixedWindow(2 * time.Second)
)

var penalizedSecond = limiterstest.MustLimit(limiters.Spec{
	Algorithm: "fixed_window", Max: 5, Window: time.Second, Params: limiters.Params{Penalty: limiters.PenaltySpec{After: 1, Within: time.Minute, For: 10 * time.Minute}},
})

func TestPerSecondDividesOps(t *testing.T) {
	op := func(key string, l *limiters.Limit) limiters.Op { return limiters.Op{Key: key, Limit: l} }
	for _, c := range []struct {
		name              string
		groups            []limiters.Group
		toMain, toSeconds string
	}{
		{"nothing", nil, "", ""},
		{"no seconds", limiters.Singles(op("a", minute), op("b", twoSeconds)), "a b", ""},
		{"only seconds", limiters.Singles(op("a", second), op("b", second)), "", "a b"},
		{"both", limiters.Singles(op("a", second), op("b", minute), op("c", second)), "b", "a c"},
		{"a group of both", []limiters.Group{{op("a", second), op("b", minute)}, {op("c", second)}}, "a b", "c"},
		{"all in a group of both", []limiters.Group{{op("a", second), op("b", minute)}}, "a b", ""},
		{"a second with a penalty", limiters.Singles(op("a", second), op("b", penalizedSecond)), "b", "a"},
		{"only a second with a penalty", limiters.Singles(op("a", penalizedSecond)), "a", ""},
		{"groups of their own", []limiters.Group{
			{op("a", second), op("b", second)}, {op("c", minute), op("d", minute)},
		}, "c d", "a b"},
	} {
		var main, seconds echo
		n := 0
		for _, g := range c.groups {
			for i := range g {
				n++
				g[i].Hits = int64(n)
			}
		}
		out := make([]limiters.Verdict, n)
		if err := split.NewPerSecondRouter(&main, &seconds).Take(t.Context(), c.groups, out); err != nil {
			t.Fatal(c.name, err)
		}
		if got := main.keys(); got != c.toMain {
			t.Errorf("%s: to the main store %q, want %q", c.name, got, c.toMain)
		}
		if got := seconds.keys(); got != c.toSeconds {
			t.Errorf("%s: to the store for seconds %q, want %q", c.name, got, c.toSeconds)
		}
		if main.calls > 1 || seconds.calls > 1 {
			t.Errorf("%s: %d and %d calls, want one each at most", c.name, main.calls, seconds.calls)
		}
		for i, v := range out {
			if v.Used != int64(i+1) {
				t.Errorf("%s: verdict %d is of operation %d", c.name, i, v.Used-1)
			}
		}
	}
}

func TestPerSecondStoreThatFailsFailsItsOpsOnly(t *testing.T) {
	broken := errors.New("broken")
	ops := []limiters.Op{{Key: "a", Limit: second, Hits: 1}, {Key: "b", Limit: minute, Hits: 2}}
	out := make([]limiters.Verdict, 2)
	if err := split.NewPerSecondRouter(&echo{}, &echo{err: broken}).Take(t.Context(), limiters.Singles(ops...), out); err != nil ||
		!errors.Is(out[0].Err, broken) || out[0].Allowed || out[1].Err != nil || out[1].Used != 2 {
		t.Errorf("%+v, %v: want the first to fail, the second to stand", out, err)
	}
	if err := split.NewPerSecondRouter(&echo{err: broken}, &echo{}).Take(t.Context(), limiters.Singles(ops...), out); err != nil ||
		out[0].Err != nil || out[0].Used != 1 || !errors.Is(out[1].Err, broken) {
		t.Errorf("%+v, %v: want the second to fail, the first to stand", out, err)
	}
	err := split.NewPerSecondRouter(&echo{err: broken}, &echo{err: context.Canceled}).Take(t.Context(), limiters.Singles(ops...), out)
	if !errors.Is(err, broken) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want both errors", err)
	}
}

// A panic in a store must not end the process: it is an error of that store's operations.
func TestPerSecondPanicIsAnErrorOfItsOps(t *testing.T) {
	groups := limiters.Singles(limiters.Op{Key: "a", Limit: second, Hits: 1}, limiters.Op{Key: "b", Limit: minute, Hits: 2})
	out := make([]limiters.Verdict, 2)
	if err := split.NewPerSecondRouter(&echo{}, &echo{panics: true}).Take(t.Context(), groups, out); err != nil ||
		!errors.Is(out[0].Err, limiters.ErrPanic) || out[1].Used != 2 {
		t.Errorf("%+v, %v: want the first to fail with ErrPanic, the second to stand", out, err)
	}
}

// A pagedStore returns its results of resets, one cursor in each step of a pass.
type pagedStore struct {
	limiters.Store
	found   []bool
	cursors []string // what a step returns
	got     []string // the cursors of the steps so far
	err     error
}

func (s *pagedStore) Reset(context.Context, []limiters.StateName) ([]bool, error) {
	return slices.Clone(s.found), s.err
}

func (s *pagedStore) ResetMatching(_ context.Context, _ func(string) bool, cursor string) (limiters.Progress, error) {
	s.got = append(s.got, cursor)
	return limiters.Progress{Cursor: s.cursors[len(s.got)-1]}, s.err
}

func TestPerSecondResetsBothStores(t *testing.T) {
	main := &pagedStore{found: []bool{true, false, false}, cursors: []string{"s1", ""}}
	seconds := &pagedStore{found: []bool{false, true, false}, cursors: []string{"m1", ""}}
	r := split.NewPerSecondRouter(main, seconds)
	if found, err := r.Reset(t.Context(), nil); err != nil || !slices.Equal(found, []bool{true, true, false}) {
		t.Errorf("found %v, %v, want the first two", found, err)
	}
	cursor := ""
	for range 4 {
		progress, err := r.ResetMatching(t.Context(), nil, cursor)
		must.Succeed(t, err)
		cursor = progress.Cursor
	}
	if cursor != "" || !slices.Equal(main.got, []string{"", "s1"}) || !slices.Equal(seconds.got, []string{"", "m1"}) {
		t.Errorf("steps %q and %q, then %q, want two of each store, and the end", main.got, seconds.got, cursor)
	}
	if _, err := r.ResetMatching(t.Context(), nil, "x"); !errors.Is(err, limiters.ErrCursor) {
		t.Errorf("an unknown cursor: %v, want %v", err, limiters.ErrCursor)
	}
}

func TestPerSecondResetThatFailsIsAnError(t *testing.T) {
	broken := errors.New("broken")
	working, failing := &pagedStore{}, &pagedStore{err: broken, cursors: []string{"", ""}}
	for _, c := range []struct {
		main, seconds *pagedStore
		cursor        string // of the pass over the failing store
	}{{failing, working, ""}, {working, failing, "s"}} {
		r := split.NewPerSecondRouter(c.main, c.seconds)
		_, err := r.Reset(t.Context(), nil)
		_, passErr := r.ResetMatching(t.Context(), nil, c.cursor)
		if !errors.Is(err, broken) || !errors.Is(passErr, broken) {
			t.Errorf("at the cursor %q: %v and %v, want %v", c.cursor, err, passErr, broken)
		}
	}
}
