package guard

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A PerSecond is a Store that divides hits between two others: one for windows of one second, one for everything else.
// Windows of one second expire so often that some operators give them a Redis of their own, nearby and without
// persistence.
type PerSecond struct{ main, second limiters.Store }

// NewPerSecond returns a PerSecond. It owns neither store. A group goes to second if all its windows are one second, and
// otherwise to main as a whole: only one store can charge it atomically. So a limit of one second that is sometimes in
// such a group and sometimes not has two counters.
func NewPerSecond(main, second limiters.Store) *PerSecond { return &PerSecond{main, second} }

// Take implements limiters.Store. It calls both stores at the same time. If one fails, the verdicts of the other stand. If
// now is zero, each store uses its own clock.
func (s *PerSecond) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	switch {
	case !slices.ContainsFunc(groups, isPerSecond):
		return s.main.Take(ctx, now, groups, out)
	case !slices.ContainsFunc(groups, isLonger):
		return s.second.Take(ctx, now, groups, out)
	}
	var parts split.Parts
	for first, g := range eachGroup(groups) {
		if isPerSecond(g) {
			parts.Add(s.second, g, first)
		} else {
			parts.Add(s.main, g, first)
		}
	}
	return parts.Take(ctx, now, out)
}

// isPerSecond reports whether every window of g is one second. Limits with parts stay in the main store, which is persistent.
func isPerSecond(g limiters.Group) bool {
	for i := range g {
		if l := g[i].Limit; l.Window() != time.Second || l.HasParts() {
			return false
		}
	}
	return true
}

func isLonger(g limiters.Group) bool { return !isPerSecond(g) }
