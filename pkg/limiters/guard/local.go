package guard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A localFallback decides operations under OnStoreErrorLocal in this process's memory, by its share
// of each limit.
type localFallback struct {
	store    limiters.Store // nil: it decides no operations
	replicas func() int
	shares   shareCache

	leasesUntil atomic.Pointer[time.Time] // when the last lease in store has expired; nil: it has had none
}

// mayHaveLeases reports whether a lease in the local store may be open.
func (l *localFallback) mayHaveLeases() bool {
	until := l.leasesUntil.Load()
	return until != nil && time.Now().Before(*until)
}

// noteLease notes that the local store may open a lease now, which expires after ttl.
func (l *localFallback) noteLease(ttl time.Duration) {
	// A minute is added because the store reads its clock later.
	until := time.Now().Add(ttl + time.Minute)
	for before := l.leasesUntil.Load(); before == nil || before.Before(until); before = l.leasesUntil.Load() {
		if l.leasesUntil.CompareAndSwap(before, &until) {
			return
		}
	}
}

// decideByShare decides the failed operations of t under OnStoreErrorLocal. A verdict keeps its
// error if store fails too.
func (l *localFallback) decideByShare(ctx context.Context, t takeResult) {
	var subset split.Subset
	for first, g := range limiters.EachGroup(t.groups) {
		l.addFailed(&subset, first, g, t)
	}
	// The store does not block, and must end a lease even if ctx is canceled.
	if subset.Len() == 0 || subset.Take(context.WithoutCancel(ctx), l.store) != nil {
		return
	}
	for i, v := range subset.Verdicts {
		if index := subset.Index(i); index >= 0 && v.Err == nil {
			v.By, v.LeaseAt = limiters.ByShare, leaseLocation(t.out[index].Err, limiters.LeaseOnlyInShare)
			t.out[index] = v
		}
	}
}

// addFailed adds the failed operations of g under OnStoreErrorLocal to subset. If another operation
// of g was denied or failed, it adds a denying operation, so that no share is charged.
func (l *localFallback) addFailed(subset *split.Subset, first int, g limiters.Group, t takeResult) {
	var failed limiters.Group
	var indices []int
	denied := false
	for i, op := range g {
		v := &t.out[first+i]
		if v.Err != nil && op.OnStoreError == limiters.OnStoreErrorLocal && l.useShare(&op) {
			failed, indices = append(failed, op), append(indices, first+i)
		} else {
			denied = denied || !v.Allowed
		}
	}
	if len(failed) == 0 {
		return
	}
	for i := range failed {
		if !failed[i].Lease.IsZero() {
			l.noteLease(failed[i].Limit.LeaseTTL())
		}
	}
	if denied {
		failed, indices = append(failed, limiters.DenyingOp(failed[0].Key)), append(indices, -1)
	}
	subset.AddOps(failed, indices...)
}

// useShare replaces the limit of op by this process's share of it. It reports whether the operation
// can be decided.
func (l *localFallback) useShare(op *limiters.Op) bool {
	if l.store == nil {
		return false
	}
	replicas := int64(l.replicas())
	if replicas <= 1 {
		return true
	}
	share, err := l.shares.limitFor(op.Limit, max(op.Hits, 1), replicas)
	if err == nil {
		op.Limit = share
	}
	return err == nil
}
