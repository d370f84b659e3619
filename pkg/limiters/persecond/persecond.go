// Package persecond is a limiters.Store of two: what is limited by the second goes to one, all else to the other. Windows
// of a second come and go a thousand times as often as the others, and whoever has many of them may want a Redis that
// keeps nothing and is near.
package persecond

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Store is a main store and one for windows of a second. It owns neither.
type Store struct{ main, second limiters.Store }

// New makes a Store. Hits whose window is one second go to second, all others to main, and a group in which there are
// both goes to main as a whole, for one store alone can charge all of it or none: a limit of a second that is now in
// such a group and now alone is counted in two places.
func New(main, second limiters.Store) *Store { return &Store{main, second} }

// Take implements limiters.Store. Both stores are called at the same time; if one fails, the verdicts of the other stand. If
// now is zero, each store uses its own clock.
func (s *Store) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	toMain, toSecond := slices.ContainsFunc(groups, isLonger), slices.ContainsFunc(groups, isBySecond)
	switch {
	case !toSecond:
		return s.main.Take(ctx, now, groups, out)
	case !toMain:
		return s.second.Take(ctx, now, groups, out)
	}
	var split limiters.Split
	first := 0
	for _, g := range groups {
		if isBySecond(g) {
			split.Add(s.second, g, first)
		} else {
			split.Add(s.main, g, first)
		}
		first += len(g)
	}
	return split.Take(ctx, now, out)
}

func isLonger(g limiters.Group) bool { return !isBySecond(g) }

// isBySecond reports whether all limits of g have a window of one second.
func isBySecond(g limiters.Group) bool {
	for i := range g {
		if g[i].Limit.Window() != time.Second {
			return false
		}
	}
	return true
}
