package guard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/limiters"
)

// An EndRetrier is a Store that retries operations of kind [limiters.OpEnd], here called ends, that
// the wrapped store failed to decide. Otherwise, each request that ends during an outage would hold
// its slot until its lease expires. A goroutine retries each end until the store decides it or the
// lease has expired, but the verdict of the failed end remains an error.
//
// At most 50,000 ends are pending in memory, each once, and a restart loses them. A reset keeps
// pending ends, because it may fail, and a retry of an end that the store has already decided is
// harmless.
type EndRetrier struct {
	limiters.Resetter // of the wrapped store

	store limiters.Taker
	wake  chan struct{} // signals pending ends; capacity 1

	mu      sync.Mutex
	pending []pendingEnd
	ids     map[endID]struct{} // the ids of the ends in pending
	stats   EndRetrierStats    // the counters, without Pending

	worker
}

type pendingEnd struct {
	op      limiters.Op
	expires time.Time // when the lease expires at the latest
}

type endID struct {
	key, limit string
	lease      limiters.LeaseID
}

func (e *pendingEnd) id() endID { return endID{e.op.Key, e.op.Limit.StateID(), e.op.Lease} }

// EndRetrierStats are the counters of an EndRetrier.
type EndRetrierStats struct {
	Pending int64 // ends that wait for a retry
	Retried int64 // ends that failed at first, and that the store decided in a retry
	Lost    int64 // ends that failed and are not retried: too many were pending, or the lease has expired
}

const (
	maxPendingEnds = 50_000
	endsPerCall    = 100
)

// endBackoff is the wait before pending ends are retried. It grows while no retry succeeds.
var endBackoff = backoff.Backoff{Initial: 20 * time.Millisecond, Max: 500 * time.Millisecond}

// NewEndRetrier returns an EndRetrier that wraps store, without taking ownership, and starts its
// goroutine. Call Close after the last Take.
func NewEndRetrier(store limiters.Store) *EndRetrier {
	r := &EndRetrier{Resetter: store, store: store, wake: make(chan struct{}, 1), ids: map[endID]struct{}{}}
	r.startWorker(r.run)
	return r
}

// Close stops the goroutine and retries pending ends once more. It returns shortly after ctx ends.
// The error states the number of remaining leases.
func (r *EndRetrier) Close(ctx context.Context) error {
	cancelCalls := r.stopWorker(ctx)
	defer cancelCalls()
	r.retryAll(ctx)
	if remaining := r.Stats().Pending; remaining > 0 {
		return fmt.Errorf("guard: %d leases have not ended before the stop", remaining)
	}
	return nil
}

// Stats returns the number of pending ends and the counters.
func (r *EndRetrier) Stats() EndRetrierStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Pending = int64(len(r.pending))
	return stats
}

// Take implements [limiters.Store].
func (r *EndRetrier) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	err := r.store.Take(ctx, groups, out)
	if slices.ContainsFunc(out, isUndecided) {
		r.addFailed(groups, out)
	}
	return err
}

func (r *EndRetrier) addFailed(groups []limiters.Group, out []limiters.Verdict) {
	var ends []pendingEnd
	for i, op := range limiters.EachOp(groups) {
		if op.Kind == limiters.OpEnd && out[i].Err != nil {
			ends = append(ends, pendingEnd{*op, time.Now().Add(op.Limit.LeaseTTL())})
		}
	}
	if len(ends) > 0 {
		r.add(ends)
		select {
		case r.wake <- struct{}{}:
		default: // a signal is pending
		}
	}
}

func (r *EndRetrier) add(ends []pendingEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range ends {
		id := ends[i].id()
		if _, isPending := r.ids[id]; isPending {
			continue
		}
		if len(r.pending) >= maxPendingEnds {
			r.stats.Lost++
			continue
		}
		r.pending, r.ids[id] = append(r.pending, ends[i]), struct{}{}
	}
}

func (r *EndRetrier) run(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for failures := 0; r.Stats().Pending > 0; {
			if backoff.Sleep(ctx, endBackoff.Wait(failures)) != nil {
				return
			}
			failures++
			if r.retryAll(ctx) {
				failures = 0
			}
		}
	}
}

// retryAll retries every pending end once. It stops at the first call that fails as a whole, and
// starts none after ctx has ended. It reports whether any end succeeded.
func (r *EndRetrier) retryAll(ctx context.Context) (progress bool) {
	for n := r.Stats().Pending; n > 0 && ctx.Err() == nil; n -= endsPerCall {
		ends := r.popOldest()
		if len(ends) == 0 {
			continue
		}
		remaining, err := r.retry(ends)
		r.mu.Lock()
		r.stats.Retried += int64(len(ends) - len(remaining))
		r.mu.Unlock()
		progress = progress || len(remaining) < len(ends)
		r.add(remaining)
		if err != nil {
			return progress
		}
	}
	return progress
}

// popOldest removes the oldest pending ends and returns those whose leases have not expired.
func (r *EndRetrier) popOldest() []pendingEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, now := min(endsPerCall, len(r.pending)), time.Now()
	ends := slices.Clone(r.pending[:n])
	for i := range ends {
		delete(r.ids, ends[i].id())
	}
	r.pending = r.pending[n:]
	if len(r.pending) == 0 {
		r.pending, r.ids = nil, map[endID]struct{}{}
	}
	ends = slices.DeleteFunc(ends, func(e pendingEnd) bool { return !now.Before(e.expires) })
	r.stats.Lost += int64(n - len(ends))
	return ends
}

// retry sends ends in one call. It returns the failed ends, and the error of a call that failed as
// a whole.
func (r *EndRetrier) retry(ends []pendingEnd) (remaining []pendingEnd, err error) {
	ops := make([]limiters.Op, len(ends))
	for i := range ends {
		ops[i] = ends[i].op
	}
	out, err := r.send(r.store, ops)
	for i := range out {
		if out[i].Err != nil {
			remaining = append(remaining, ends[i])
		}
	}
	return remaining, err
}
