package persecond

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

func TestTwoStoresPassTheSuiteAsOne(t *testing.T) {
	limiterstest.Run(t, func(*testing.T) limiters.Store {
		return New(memstore.New(memstore.Options{}), memstore.New(memstore.Options{}))
	})
	t.Run("references", func(t *testing.T) {
		limiterstest.Random(t, New(limiterstest.NewReference(), limiterstest.NewReference()))
	})
}

// asked keeps what it is asked, in order, and answers each hit with its own n.
type asked struct {
	keys  []string
	calls int
	err   error
}

func (a *asked) Take(_ context.Context, _ time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	a.calls++
	for i, h := range hits {
		a.keys = append(a.keys, h.Key)
		out[i] = limiters.Verdict{Allowed: true, Used: h.N}
	}
	return a.err
}

var second, minute, twoSeconds = limit(time.Second), limit(time.Minute), limit(2 * time.Second)

func limit(window time.Duration) *limiters.Limit {
	return limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: window})
}

func TestWhereHitsGo(t *testing.T) {
	hit := func(key string, l *limiters.Limit, group uint16) limiters.Hit {
		return limiters.Hit{Key: key, Limit: l, Group: group}
	}
	for _, c := range []struct {
		name              string
		hits              []limiters.Hit
		toMain, toSeconds string
	}{
		{"nothing", nil, "", ""},
		{"no seconds", []limiters.Hit{hit("a", minute, 0), hit("b", twoSeconds, 0)}, "a b", ""},
		{"only seconds", []limiters.Hit{hit("a", second, 0), hit("b", second, 3)}, "", "a b"},
		{"both", []limiters.Hit{hit("a", second, 0), hit("b", minute, 0), hit("c", second, 0)}, "b", "a c"},
		{"a group of both", []limiters.Hit{hit("a", second, 1), hit("b", minute, 1), hit("c", second, 0)}, "a b", "c"},
		{"all in a group of both", []limiters.Hit{hit("a", second, 1), hit("b", minute, 1)}, "a b", ""},
		{"groups of their own", []limiters.Hit{
			hit("a", second, 1), hit("b", minute, 2), hit("c", second, 1), hit("d", minute, 2),
		}, "b d", "a c"},
	} {
		var main, seconds asked
		for i := range c.hits {
			c.hits[i].N = int64(i + 1)
		}
		out := make([]limiters.Verdict, len(c.hits))
		if err := New(&main, &seconds).Take(t.Context(), time.Time{}, c.hits, out); err != nil {
			t.Fatal(c.name, err)
		}
		if got := strings.Join(main.keys, " "); got != c.toMain {
			t.Errorf("%s: to the main store %q, want %q", c.name, got, c.toMain)
		}
		if got := strings.Join(seconds.keys, " "); got != c.toSeconds {
			t.Errorf("%s: to the store for seconds %q, want %q", c.name, got, c.toSeconds)
		}
		if main.calls > 1 || seconds.calls > 1 {
			t.Errorf("%s: %d and %d calls, want one each at most", c.name, main.calls, seconds.calls)
		}
		for i, v := range out {
			if v.Used != int64(i+1) {
				t.Errorf("%s: verdict %d is of hit %d", c.name, i, v.Used-1)
			}
		}
	}
}

func TestOneStoreThatFailsFailsItsHitsAlone(t *testing.T) {
	broken := errors.New("broken")
	hits := []limiters.Hit{{Key: "a", Limit: second, N: 1}, {Key: "b", Limit: minute, N: 2}}
	out := make([]limiters.Verdict, 2)
	if err := New(&asked{}, &asked{err: broken}).Take(t.Context(), time.Time{}, hits, out); err != nil ||
		!errors.Is(out[0].Err, broken) || out[0].Allowed || out[1].Err != nil || out[1].Used != 2 {
		t.Errorf("%+v, %v: want the first to fail, the second to stand", out, err)
	}
	if err := New(&asked{err: broken}, &asked{}).Take(t.Context(), time.Time{}, hits, out); err != nil ||
		out[0].Err != nil || out[0].Used != 1 || !errors.Is(out[1].Err, broken) {
		t.Errorf("%+v, %v: want the second to fail, the first to stand", out, err)
	}
	err := New(&asked{err: broken}, &asked{err: context.Canceled}).Take(t.Context(), time.Time{}, hits, out)
	if !errors.Is(err, broken) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want both errors", err)
	}
}
