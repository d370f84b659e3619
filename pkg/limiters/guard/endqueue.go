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

// An EndQueue is a Store that retries ends of leases that the wrapped store failed to decide. Otherwise, each request that ends
// during an outage would hold its slot until its lease expires. A goroutine retries each end until the store decides it or the
// lease has expired. The verdict of the failed end remains an error.
//
// The queue is bounded, deduplicated, and lost with the process. It skips ends of takes that were certainly not charged. Repeating
// an end is harmless.
type EndQueue struct {
	store limiters.Store
	wake  chan struct{} // signals pending ends; capacity 1

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
	// Bounds of the pause between rounds, which doubles while no end succeeds.
	minEndPause, maxEndPause = 20 * time.Millisecond, 500 * time.Millisecond
)

// NewEndQueue returns an empty queue that wraps store, without taking ownership, and starts its goroutine. Call Close after the
// last Take.
func NewEndQueue(store limiters.Store) *EndQueue {
	q := &EndQueue{
		store: store, wake: make(chan struct{}, 1), held: map[endID]struct{}{},
	}
	q.begin(q.run)
	return q
}

// Close stops the goroutine and retries pending ends once more. It returns shortly after ctx ends. The error has the number of
// remaining leases.
func (q *EndQueue) Close(ctx context.Context) error {
	defer q.end(ctx)()
	q.repeat(ctx)
	if left := q.Stats().Pending; left > 0 {
		return fmt.Errorf("guard: %d leases have not ended: the store fails", left)
	}
	return nil
}

// Stats returns the size and the counters.
func (q *EndQueue) Stats() EndStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Pending = int64(len(q.pending))
	return stats
}

// Take implements limiters.Store. It does not retry ends of a call with a non-zero now.
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
		default: // a signal is pending
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

// repeat retries every pending end once. It stops at the first call that fails as a whole, and starts none after ctx has ended. It
// reports whether any end succeeded.
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

// next removes the oldest ends from the queue and returns those whose leases have not expired.
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

// send retries ends in one call. It returns the failed ends, and the error of a call that failed as a whole.
func (q *EndQueue) send(ends []pendingEnd) (left []pendingEnd, err error) {
	defer func() {
		if err != nil {
			left = ends
		}
	}()
	defer split.RecoverTo(&err) // no caller on this goroutine recovers
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
