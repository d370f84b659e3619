package guard

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A localFallback decides operations under OnErrorLocal in this process's memory, by its share of
// each limit.
type localFallback struct {
	store    limiters.Store // nil: it decides no operations
	replicas func() int
	shares   shareCache

	hasLeases atomic.Bool // store has decided an operation with a lease
}

// decideByShare decides the failed operations of args under OnErrorLocal. A verdict keeps its error
// if store fails too.
func (l *localFallback) decideByShare(ctx context.Context, args takeArgs) {
	var subset split.Subset
	for first, g := range limiters.EachGroup(args.groups) {
		l.addFailed(&subset, first, g, args)
	}
	// The store does not block, and must end a lease even if ctx is canceled.
	if subset.Len() == 0 || subset.Take(context.WithoutCancel(ctx), l.store, args.now) != nil {
		return
	}
	for i, v := range subset.Verdicts {
		if index := subset.Index(i); index >= 0 && v.Err == nil {
			v.By, v.Holder = limiters.ByShare, leaseHolder(args.out[index].Err, limiters.HeldByShare)
			args.out[index] = v
		}
	}
}

// addFailed adds the failed operations of g under OnErrorLocal to subset. If another operation of g
// was denied or failed, it adds a denying operation, so that no share is charged.
func (l *localFallback) addFailed(subset *split.Subset, first int, g limiters.Group, args takeArgs) {
	var failed limiters.Group
	var indices []int
	denied := false
	for i, op := range g {
		v := &args.out[first+i]
		if v.Err != nil && op.OnError == limiters.OnErrorLocal && l.scale(&op) {
			failed, indices = append(failed, op), append(indices, first+i)
		} else {
			denied = denied || !v.Allowed
		}
	}
	if len(failed) == 0 {
		return
	}
	if slices.ContainsFunc(failed, hasLease) {
		l.hasLeases.Store(true)
	}
	if denied {
		failed, indices = append(failed, limiters.DenyingOp(failed[0].Key)), append(indices, -1)
	}
	subset.AddOps(failed, indices...)
}

func hasLease(op limiters.Op) bool { return !op.Lease.IsZero() }

// scale replaces the limit of op by this process's share of it. It reports whether the operation
// can be decided.
func (l *localFallback) scale(op *limiters.Op) bool {
	replicas := int64(l.replicas())
	if l.store == nil || replicas <= 1 {
		return l.store != nil
	}
	share, err := l.shares.replicaLimit(op.Limit, max(op.N, 1), replicas)
	if err == nil {
		op.Limit = share
	}
	return err == nil
}

// mirrorEnds repeats ends under OnErrorLocal that the wrapped store has decided, because the lease
// may be in either store. If ctx is canceled, it repeats those that failed too, because nothing
// else decides them.
func (l *localFallback) mirrorEnds(ctx context.Context, args takeArgs) {
	canceled := ctx.Err() != nil
	var ends split.Subset
	for i, op := range limiters.EachOp(args.groups) {
		if op.Kind == limiters.OpEnd && op.OnError == limiters.OnErrorLocal && (canceled || args.out[i].Err == nil) {
			ends.AddOps(limiters.Group{*op}, i)
		}
	}
	if ends.Len() > 0 {
		// A full local store accepts an end without remembering it, so there is no error to report.
		_ = ends.Take(ctx, localEnds{l}, args.now)
	}
}

// localEnds is the [split.Taker] that ends leases in the local store.
type localEnds struct{ local *localFallback }

// Take ends leases. It ignores a canceled ctx, which must not keep a slot occupied.
func (e localEnds) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	ends := make([]limiters.Op, 0, len(groups)) // copies, because groups belong to the caller
	for _, op := range limiters.EachOp(groups) {
		end := *op
		e.local.scale(&end)
		ends = append(ends, end)
	}
	return e.local.store.Take(context.WithoutCancel(ctx), now, limiters.Singles(ends...), out)
}

func isLocalEnd(g limiters.Group) bool {
	return g[0].Kind == limiters.OpEnd && g[0].Holder == limiters.HeldByShare
}
