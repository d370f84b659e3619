package redisstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrBusy is the error of a Take that is turned away at once: as many hits wait for the calls under way as may.
var ErrBusy = errors.New("redisstore: too many hits are waiting for Redis")

// errWaited is the error of a Take that waited for a call of its own until its time was up. It has charged nothing.
var errWaited = errors.New("the calls before it took all its time")

// errTimeout is the error of a Take whose call has not come back in time. It may have charged.
var errTimeout = errors.New("no answer in time")

// A decide decides hits by one call. It uses neither groups nor out after it has returned.
type decide func(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error

// A lane takes hits to one Redis, a call at a time. Who comes while a call is under way waits, together with all others
// that do, and they go in the next call: there is no timer, and nobody waits who comes while there is none.
//
// A Take that meets no other makes its call itself. After a call that others have waited for, a goroutine of the lane
// makes the next ones, until nobody waits. After calls that failed it turns hits away for a while: see breaker.
type lane struct {
	decide  decide
	timeout time.Duration // of a Take, and of a call
	most    int           // hits in a call, if they are of several Takes
	bound   int           // hits that may wait
	counts  *counts

	mu      sync.Mutex
	breaker breaker
	busy    bool
	queue   []*ticket
	waiting int // hits in the queue

	served sync.WaitGroup
	load   load
}

// counts are what the lanes of a store have done.
type counts struct {
	calls, hits   atomic.Int64
	refused, left atomic.Int64
	broken        atomic.Int64
}

// A load is the hits of several tickets, in one call. Only the lane's goroutine touches it.
type load struct {
	tickets  []*ticket
	groups   []limiters.Group // of the tickets
	hits     int              // in them
	verdicts []limiters.Verdict
	deadline time.Time     // the latest of the tickets': nobody waits any longer
	had      time.Duration // the most that one of them had, from when it came
}

// A ticket is a Take that waits: its hits, and what has become of them.
type ticket struct {
	now      time.Time
	had      time.Duration // from when it came to its deadline
	deadline time.Time
	hits     []limiters.Hit
	groups   []limiters.Group // slices of hits
	verdicts []limiters.Verdict
	err      error
	state    atomic.Int32
	done     chan struct{}
	timer    *time.Timer
}

const (
	waiting = iota
	sent
	left
)

var tickets = sync.Pool{New: func() any {
	t := &ticket{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	t.timer.Stop()
	return t
}}

// Take decides hits, alone or with those of others.
func (l *lane) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	l.mu.Lock()
	if l.breaker.refuses(l.busy) {
		l.mu.Unlock()
		l.counts.broken.Add(int64(len(out)))
		return ErrBroken
	}
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		return l.alone(ctx, now, groups, out)
	}
	if l.waiting > 0 && l.waiting+len(out) > l.bound {
		l.mu.Unlock()
		l.counts.refused.Add(int64(len(out)))
		return ErrBusy
	}
	t := tickets.Get().(*ticket)
	t.now = now
	t.copy(groups, len(out))
	t.had = l.has(ctx)
	t.deadline = time.Now().Add(t.had)
	t.state.Store(waiting)
	l.queue = append(l.queue, t)
	l.waiting += len(out)
	l.mu.Unlock()
	return l.await(ctx, t, out)
}

func (l *lane) alone(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	had, err := l.has(ctx), limiters.ErrPanic // unless it returns
	defer func() { l.next(err, had) }()
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	l.count(len(out))
	err = l.decide(ctx, now, groups, out)
	return err
}

// has is how long a Take has.
func (l *lane) has(ctx context.Context) time.Duration {
	if own, bounded := ctx.Deadline(); bounded {
		return min(l.timeout, time.Until(own))
	}
	return l.timeout
}

func (l *lane) count(hits int) {
	l.counts.calls.Add(1)
	l.counts.hits.Add(int64(hits))
}

// await waits for a ticket's verdicts. Who does not wait any longer leaves it: uncharged if it has not been sent.
func (l *lane) await(ctx context.Context, t *ticket, out []limiters.Verdict) error {
	t.timer.Reset(l.timeout)
	var why error
	select {
	case <-t.done:
		t.timer.Stop()
		err := t.err
		copy(out, t.verdicts)
		t.forget()
		return err
	case <-ctx.Done():
		t.timer.Stop()
		why = ctx.Err()
	case <-t.timer.C:
	}
	// It is not used again: whoever has it may still write to it.
	if t.state.CompareAndSwap(waiting, left) {
		l.counts.left.Add(int64(len(t.hits)))
		return errors.Join(errWaited, why)
	}
	return errors.Join(errTimeout, why)
}

// copy copies groups of n hits into the ticket: a Take that gives up waiting must not use its groups any more.
func (t *ticket) copy(groups []limiters.Group, n int) {
	t.hits, t.groups = slices.Grow(t.hits[:0], n), t.groups[:0]
	for _, g := range groups {
		first := len(t.hits)
		t.hits = append(t.hits, g...)
		t.groups = append(t.groups, t.hits[first:])
	}
	t.verdicts = slices.Grow(t.verdicts[:0], n)[:n]
}

// forget gives the ticket back, without what it holds.
func (t *ticket) forget() {
	clear(t.hits)
	clear(t.groups)
	clear(t.verdicts)
	t.err = nil
	tickets.Put(t)
}

// next passes the lane on to those who wait, after a call that was the only one.
func (l *lane) next(err error, had time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended(err, had); len(l.queue) == 0 {
		l.busy = false
		return
	}
	l.served.Go(l.serve)
}

// ended tells the breaker of a call. If it is broken now, nobody waits any longer. The lock is held.
func (l *lane) ended(err error, had time.Duration) {
	l.breaker.record(err, had, l.timeout)
	if !l.breaker.broken() || len(l.queue) == 0 {
		return
	}
	var told []*ticket
	for _, t := range l.queue {
		if t.state.CompareAndSwap(waiting, sent) {
			t.err = ErrBroken
			told = append(told, t)
			l.counts.broken.Add(int64(len(t.hits)))
		}
	}
	clear(l.queue)
	l.queue, l.waiting = l.queue[:0], 0
	l.deliver(told)
}

func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy
}

// serve makes calls until nobody waits.
func (l *lane) serve() {
	for l.gather(); l.collect(); l.gather() {
		l.call()
	}
}

// gather lets those who are about to wait do so first, as long as there are any: with a processor free this takes no time,
// and with none the call is larger, which leaves more of the processor to all.
func (l *lane) gather() {
	for n, before := l.waits(), -1; n > before && n < l.most; n = l.waits() {
		before = n
		runtime.Gosched()
	}
}

// waits tells how many hits wait.
func (l *lane) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// collect takes those who wait from the queue, as many as a call may have and as are of one time. It tells whether there
// are any; if not, the lane is free.
func (l *lane) collect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.load
	clear(d.groups)
	d.tickets, d.groups, d.hits, d.deadline, d.had = d.tickets[:0], d.groups[:0], 0, time.Time{}, 0
	taken := 0
	for _, t := range l.queue {
		if len(d.tickets) > 0 && (d.hits+len(t.hits) > l.most || !t.now.Equal(d.tickets[0].now)) {
			break
		}
		taken++
		l.waiting -= len(t.hits)
		if t.state.CompareAndSwap(waiting, sent) {
			d.add(t)
		}
	}
	l.queue = slices.Delete(l.queue, 0, taken)
	l.busy = len(d.tickets) > 0
	return l.busy
}

func (d *load) add(t *ticket) {
	d.tickets = append(d.tickets, t)
	if t.deadline.After(d.deadline) {
		d.deadline = t.deadline
	}
	d.had = max(d.had, t.had)
	d.groups, d.hits = append(d.groups, t.groups...), d.hits+len(t.hits)
}

func (l *lane) call() {
	d := &l.load
	d.verdicts = slices.Grow(d.verdicts[:0], d.hits)[:d.hits]
	l.count(d.hits)
	ctx, cancel := context.WithDeadline(context.Background(), d.deadline)
	defer cancel()
	err := l.guarded(ctx)
	l.mu.Lock()
	l.ended(err, d.had)
	l.mu.Unlock()
	from := 0
	for _, t := range d.tickets {
		t.err = err
		copy(t.verdicts, d.verdicts[from:])
		from += len(t.hits)
	}
	clear(d.verdicts)
	l.deliver(slices.Clone(d.tickets))
}

// deliver wakes those whose verdicts have come, on a goroutine of its own: the next call need not wait for that.
func (l *lane) deliver(told []*ticket) {
	l.served.Go(func() {
		for _, t := range told {
			t.done <- struct{}{}
		}
	})
}

// guarded makes a panic, which is a bug of ours, an error of those who wait: it is none of the process.
func (l *lane) guarded(ctx context.Context) (err error) {
	defer limiters.RecoverTo(&err)
	return l.decide(ctx, l.load.tickets[0].now, l.load.groups, l.load.verdicts)
}
