package guard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// An EndQueue is a Store that repeats the ends of leases that the wrapped store could not decide. Without it, each request that
// ends while the store is unreachable would hold its slot until its lease expires. A goroutine repeats each end until the store
// decides it or the lease has expired. The verdict of a failed end stays an error, even if a repetition succeeds.
//
// The queue is bounded, holds each end once, and is lost with the process. It does not hold the end of a take that was certainly
// not charged. An end that runs twice changes nothing the second time.
type EndQueue struct {
	store limiters.Store
	wake  chan struct{} // has room for one signal that ends are pending

	mu      sync.Mutex
	pending []pendingEnd
	held    map[endID]struct{} // of pending
	stats   EndStats           // without Pending

	worker
}

type pendingEnd struct {
	hit     limiters.Hit
	expires time.Time // the lease has expired
}

// An endID identifies an end.
type endID struct {
	key, limit string
	lease      limiters.LeaseID
}

func (e *pendingEnd) id() endID { return endID{e.hit.Key, e.hit.Limit.ID(), e.hit.Lease} }

// EndStats are the size and the counters of an EndQueue.
type EndStats struct {
	Pending  int64 // ends that wait for a repetition
	Repeated int64 // ends that the store has decided at a repetition
	Lost     int64 // ends that were given up: the queue was full, or the lease expired first
}

const (
	maxPendingEnds = 50_000
	endsPerCall    = 100
	// The pause between two rounds doubles while no end succeeds.
	minEndPause, maxEndPause = 20 * time.Millisecond, 500 * time.Millisecond
)

// NewEndQueue returns an empty queue that wraps store, and starts its goroutine. It does not own store. Call Close when no Take is
// under way.
func NewEndQueue(store limiters.Store) *EndQueue {
	q := &EndQueue{
		store: store, wake: make(chan struct{}, 1), held: map[endID]struct{}{},
	}
	q.begin(q.run)
	return q
}

// Close stops the goroutine and repeats what is pending once more. It returns soon after the end of ctx. The error has the number of
// leases that have not ended.
func (q *EndQueue) Close(ctx context.Context) error {
	defer q.end(ctx)()
	q.repeat(ctx)
	if left := q.Stats().Pending; left > 0 {
		return fmt.Errorf("guard: %d leases have not ended: the store fails", left)
	}
	return nil
}

// Stats returns the current size and counters.
func (q *EndQueue) Stats() EndStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Pending = int64(len(q.pending))
	return stats
}

// Take implements limiters.Store. The ends of a call with a time of the caller's are not repeated.
func (q *EndQueue) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	err := q.store.Take(ctx, now, groups, out)
	if (err != nil || slices.ContainsFunc(out, failed)) && now.IsZero() {
		q.addFailed(groups, out, err)
	}
	return err
}

func (q *EndQueue) addFailed(groups []limiters.Group, out []limiters.Verdict, err error) {
	var ends []pendingEnd
	for first, g := range eachGroup(groups) {
		for i, h := range g {
			if h.End && !h.Uncharged && (err != nil || out[first+i].Err != nil) {
				ends = append(ends, pendingEnd{h, time.Now().Add(h.Limit.LeaseTTL())})
			}
		}
	}
	if len(ends) > 0 {
		q.add(ends)
		select {
		case q.wake <- struct{}{}:
		default: // the goroutine is awake
		}
	}
}

func (q *EndQueue) add(ends []pendingEnd) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range ends {
		id := ends[i].id()
		if _, held := q.held[id]; held {
			continue
		}
		if len(q.pending) >= maxPendingEnds {
			q.stats.Lost++
			continue
		}
		q.pending, q.held[id] = append(q.pending, ends[i]), struct{}{}
	}
}

func (q *EndQueue) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
		for pause := minEndPause; q.Stats().Pending > 0; {
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			if pause = min(2*pause, maxEndPause); q.repeat(ctx) {
				pause = minEndPause
			}
		}
	}
}

// repeat repeats every pending end once. It stops at the first call that fails as a whole, and begins no call after ctx ends. It
// reports whether an end has succeeded.
func (q *EndQueue) repeat(ctx context.Context) (progress bool) {
	for n := q.Stats().Pending; n > 0 && ctx.Err() == nil; n -= endsPerCall {
		ends := q.next()
		if len(ends) == 0 {
			continue
		}
		left, err := q.send(ends)
		q.mu.Lock()
		q.stats.Repeated += int64(len(ends) - len(left))
		q.mu.Unlock()
		progress = progress || len(left) < len(ends)
		q.add(left)
		if err != nil {
			return progress
		}
	}
	return progress
}

// next removes the oldest ends from the queue, and returns those whose leases have not expired.
func (q *EndQueue) next() []pendingEnd {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, now := min(endsPerCall, len(q.pending)), time.Now()
	ends := slices.Clone(q.pending[:n])
	for i := range ends {
		delete(q.held, ends[i].id())
	}
	if q.pending = q.pending[n:]; len(q.pending) == 0 {
		q.pending, q.held = nil, map[endID]struct{}{}
	}
	ends = slices.DeleteFunc(ends, func(e pendingEnd) bool { return !now.Before(e.expires) })
	q.stats.Lost += int64(n - len(ends))
	return ends
}

// send sends ends to the store in one call. It returns the ends that failed, and the error of a call that failed as a whole.
func (q *EndQueue) send(ends []pendingEnd) (left []pendingEnd, err error) {
	defer func() {
		if err != nil {
			left = ends
		}
	}()
	defer split.RecoverTo(&err) // no request is on this goroutine that would recover
	ctx, cancel := q.call()
	defer cancel()
	hits := make([]limiters.Hit, len(ends))
	for i := range ends {
		hits[i] = ends[i].hit
	}
	out := make([]limiters.Verdict, len(hits))
	if err := q.store.Take(ctx, time.Time{}, limiters.Singles(hits...), out); err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Err != nil {
			left = append(left, ends[i])
		}
	}
	return left, nil
}
