package guard

import (
	"context"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// This file routes the ends of leases while the local store may have open ones:
//
//	LeaseAt of the end   its on_store_error   sent to
//	LeaseOnlyInShare     local                the local store
//	another              any                  the wrapped store, and then the local store
//
// The last row ignores on_store_error, because a reload may have changed it since the lease opened.

// splitLocalEnds sends ends of leases that only the local store holds to that store. The other
// groups contain no such end, and go to another Take of f. The wrapped store does not get these
// ends, because during an outage an EndRetrier there would retry them for nothing.
func (f *Fallback) splitLocalEnds(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	var both split.FanOut
	for first, g := range limiters.EachGroup(groups) {
		if isLocalEnd(g) {
			both.Add(localUndoer{&f.local}, g, first)
		} else {
			both.Add(f, g, first)
		}
	}
	return both.Take(ctx, out)
}

// isLocalEnd reports whether g ends a lease that only the local store holds.
func isLocalEnd(g limiters.Group) bool {
	return g[0].Kind == limiters.OpEnd && g[0].LeaseAt == limiters.LeaseOnlyInShare
}

// mirrorEnds repeats ends in the local store, because the lease may be in either store. It omits
// those that decideByShare repeats: failed ends under OnStoreErrorLocal, unless ctx is canceled.
func (l *localFallback) mirrorEnds(ctx context.Context, t takeResult) {
	canceled := ctx.Err() != nil
	var ends split.Subset
	for i, op := range limiters.EachOp(t.groups) {
		if op.Kind == limiters.OpEnd && (op.OnStoreError != limiters.OnStoreErrorLocal || t.out[i].Err == nil || canceled) {
			ends.AddOps(limiters.Group{*op}, i)
		}
	}
	if ends.Len() > 0 {
		// A full local store accepts an end without remembering it, so there is no error to report.
		_ = ends.Take(ctx, localUndoer{l})
	}
}

// A localUndoer is a [limiters.Taker] that ends leases and refunds hits in the local store, under
// this process's shares of their limits. The operations are ungrouped and never denied, so one
// without a share is decided under the whole limit.
type localUndoer struct{ *localFallback }

// Take ignores a canceled ctx, which must not keep a slot occupied.
func (l localUndoer) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	ops := make([]limiters.Op, 0, len(groups)) // copies, because groups belong to the caller
	for _, op := range limiters.EachOp(groups) {
		scaled := *op
		l.useShare(&scaled)
		ops = append(ops, scaled)
	}
	return l.store.Take(context.WithoutCancel(ctx), limiters.Singles(ops...), out)
}
