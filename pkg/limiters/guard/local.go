package guard

import (
	"context"
	"slices"
	"sync/atomic"

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
