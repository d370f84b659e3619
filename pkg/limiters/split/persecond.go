package split

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A PerSecondRouter is a Store that sends limits with a window of one second to one store, and all
// other limits to another store. Some operators use a nearby Redis without persistence for windows
// that expire so quickly.
type PerSecondRouter struct{ main, perSecond limiters.Store }

// NewPerSecondRouter returns a PerSecondRouter. It owns neither store. A group goes to perSecond if
// all of its windows are one second, and otherwise to main as a whole, because only one store can
// charge it atomically. So a limit of one second that occurs in both kinds of groups has two
// counters.
func NewPerSecondRouter(main, perSecond limiters.Store) *PerSecondRouter {
	return &PerSecondRouter{main, perSecond}
}

// Take implements [limiters.Store]. It calls both stores concurrently. If one fails, verdicts of
// the other are kept.
func (r *PerSecondRouter) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	switch {
	case !slices.ContainsFunc(groups, isPerSecond):
		return r.main.Take(ctx, groups, out)
	case !slices.ContainsFunc(groups, isLonger):
		return r.perSecond.Take(ctx, groups, out)
	}
	var both FanOut
	for first, g := range limiters.EachGroup(groups) {
		if isPerSecond(g) {
			both.Add(r.perSecond, g, first)
		} else {
			both.Add(r.main, g, first)
		}
	}
	return both.Take(ctx, out)
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

// Reset implements [limiters.Store]. A key may have counters in both stores, see
// [NewPerSecondRouter].
func (r *PerSecondRouter) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	found, err = r.main.Reset(ctx, keys)
	if err != nil {
		return found, err
	}
	inPerSecond, err := r.perSecond.Reset(ctx, keys)
	return FoundInEither(found, inPerSecond), err
}

// Prefixes of cursors, which identify the store.
const mainCursor, perSecondCursor = "m", "s"

// ResetMatching implements [limiters.Store]. It passes over the main store and then over perSecond.
func (r *PerSecondRouter) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (limiters.Progress, error) {
	if storeCursor, ok := strings.CutPrefix(cursor, perSecondCursor); ok {
		progress, err := r.perSecond.ResetMatching(ctx, match, storeCursor)
		if progress.Cursor != "" {
			progress.Cursor = perSecondCursor + progress.Cursor
		}
		return progress, err
	}
	storeCursor, ok := strings.CutPrefix(cursor, mainCursor)
	if !ok && cursor != "" {
		return limiters.Progress{}, limiters.ErrCursor
	}
	progress, err := r.main.ResetMatching(ctx, match, storeCursor)
	if err != nil {
		return progress, err
	}
	if progress.Cursor == "" {
		progress.Cursor = perSecondCursor // the pass over perSecond begins
	} else {
		progress.Cursor = mainCursor + progress.Cursor
	}
	return progress, nil
}
