package guard

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// This file routes the ends of leases, once the local store has decided an operation with a lease.
// An end goes to the local store alone if only that store holds the lease. Any other end goes to the
// wrapped store and then, under OnErrorLocal, to the local one too.

// takeWithLocalEnds decides groups of which some end leases that only the local store holds. These
// do not go to the wrapped store: during an outage, an EndRetrier there would retry them for
// nothing.
func (f *Fallback) takeWithLocalEnds(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	var ends, others split.Subset
	for first, g := range limiters.EachGroup(groups) {
		if isLocalEnd(g) {
			f.local.addEnd(&ends, g[0], first)
		} else {
			others.Add(g, first)
		}
	}
	endErr := f.local.takeEnds(ctx, now, &ends)
	others.Verdicts = make([]limiters.Verdict, others.Len())
	err := f.takeFromStore(ctx, now, others.Groups, others.Verdicts)
	ends.Scatter(out)
	others.Scatter(out)
	return split.ErrorOfAll([]error{err, endErr})
}

// isLocalEnd reports whether g ends a lease that only the local store holds.
func isLocalEnd(g limiters.Group) bool {
	return g[0].Kind == limiters.OpEnd && g[0].Holder == limiters.HeldByShare
}

// mirrorEnds repeats ends under OnErrorLocal that the wrapped store has decided, because the lease
// may be in either store. If ctx is canceled, it repeats those that failed too, because nothing
// else decides them.
func (l *localFallback) mirrorEnds(ctx context.Context, args takeArgs) {
	canceled := ctx.Err() != nil
	var ends split.Subset
	for i, op := range limiters.EachOp(args.groups) {
		if op.Kind == limiters.OpEnd && op.OnError == limiters.OnErrorLocal && (canceled || args.out[i].Err == nil) {
			l.addEnd(&ends, *op, i)
		}
	}
	if ends.Len() > 0 {
		// A full local store accepts an end without remembering it, so there is no error to report.
		_ = l.takeEnds(ctx, args.now, &ends)
	}
}

// addEnd adds an end for the local store, with this process's share of its limit. index is that of
// its verdict in the whole Take.
func (l *localFallback) addEnd(ends *split.Subset, end limiters.Op, index int) {
	l.scale(&end)
	ends.AddOps(limiters.Group{end}, index)
}

// takeEnds ends leases in the local store, even if ctx is canceled, because the slots would stay
// occupied.
func (l *localFallback) takeEnds(ctx context.Context, now time.Time, ends *split.Subset) error {
	return ends.Take(context.WithoutCancel(ctx), l.store, now)
}
