package guard

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A PerSecond is a Store that sends windows of one second to one store, and all others to another.
// Some operators use a nearby Redis without persistence for windows that expire so quickly.
type PerSecond struct{ main, perSecond limiters.Store }

// NewPerSecond returns a PerSecond. It owns neither store. A group goes to perSecond if all of its
// windows are one second, and otherwise to main as a whole, because only one store can charge it
// atomically. So a limit of one second that occurs in both kinds of groups has two counters.
func NewPerSecond(main, perSecond limiters.Store) *PerSecond { return &PerSecond{main, perSecond} }

// Take implements [limiters.Store]. It calls both stores concurrently. If one fails, verdicts of
// the other are kept. If now is zero, each store uses its own clock.
func (s *PerSecond) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	switch {
	case !slices.ContainsFunc(groups, isPerSecond):
		return s.main.Take(ctx, now, groups, out)
	case !slices.ContainsFunc(groups, isLonger):
		return s.perSecond.Take(ctx, now, groups, out)
	}
	var both split.FanOut
	for first, g := range limiters.EachGroup(groups) {
		if isPerSecond(g) {
			both.Add(s.perSecond, g, first)
		} else {
			both.Add(s.main, g, first)
		}
	}
	return both.Take(ctx, now, out)
}

// isPerSecond reports whether all windows of g are one second. Limits with extra state use the main
// store, which is persistent.
func isPerSecond(g limiters.Group) bool {
	for i := range g {
		if l := g[i].Limit; l.Window() != time.Second || l.UsesExtraState() {
			return false
		}
	}
	return true
}

func isLonger(g limiters.Group) bool { return !isPerSecond(g) }
