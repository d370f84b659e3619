package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrQueueFull is returned by a Take that would exceed MaxWaiting, and that charged nothing. If no
// operation waits, a Take of any size may wait.
var ErrQueueFull = limiters.Uncharged(errors.New("the queue for Redis is full"))

// errEndedUnsent is returned by a Take that timed out or was canceled before its operations were
// sent. The queue returns it as [limiters.Uncharged].
var errEndedUnsent = errors.New("the request timed out or was canceled while it waited for earlier calls")

// errEndedSent is returned by a Take that timed out or was canceled after its operations were sent.
// Hits may have been charged.
var errEndedSent = errors.New("the request timed out or was canceled before Redis answered: hits may have been charged")

// A callFunc decides groups in one call of the script on a server, or in calls for each hash slot
// on a node of a cluster. It charges nothing after notAfter, and does not retain groups or out.
type callFunc func(ctx context.Context, notAfter time.Time, groups []limiters.Group, out []limiters.Verdict) error

// A queue makes one call at a time to a Redis server. Takes that arrive during a call wait, and
// share the next one. No timer delays a call: without one in flight, a Take makes its call
// immediately, on its own goroutine. If others wait when that call ends, a goroutine makes further
// calls until the queue is empty.
//
// After repeated failures the queue rejects operations for a while, see [breaker].
type queue struct {
	queueConfig
	call callFunc

	mu         sync.Mutex
	breaker    breaker
	busy       bool      // a call is under way
	sent       []*waiter // those of the call under way, in the order of timeoutAt
	waiters    []*waiter // those that came later, in the order of timeoutAt
	waitingOps int       // the number of operations of waiters
	timerSet   bool      // timeOutWaiters will run

	combined combinedCall // used only by the goroutine of serve
}

// A queueConfig configures the queues of a Store.
type queueConfig struct {
	timeout    time.Duration   // the timeout of a Take, and of a call
	maxBatch   int             // operations in a call that carries several Takes
	maxWaiting int             // operations that may wait; the queue holds a canceled operation, and counts it, until its next call
	stats      *statCounters   // of the Store
	running    *sync.WaitGroup // of the Store, which waits for the goroutines of its queues
}

func newQueue(config queueConfig, call callFunc) *queue {
	return &queue{queueConfig: config, call: call, breaker: breaker{timeout: config.timeout}}
}

// A combinedCall contains the operations of several waiters, which one call decides.
type combinedCall struct {
	notAfter time.Time // the latest deadline of the waiters
	groups   []limiters.Group
	ops      int // the number of operations in groups
	verdicts []limiters.Verdict
}

// A waiter is a queued Take, with copies of its operations.
type waiter struct {
	timeoutAt time.Time // the timeout of the queue after the Take began
	deadline  time.Time // timeoutAt, or the earlier deadline of its context
	ops       []limiters.Op
	groups    []limiters.Group // slices of ops
	verdicts  []limiters.Verdict
	err       error
	state     waiterState   // guarded by queue.mu until it is one of the last two, which are final
	done      chan struct{} // buffered; receives a value when err is set, and the verdicts if it is nil
}

type waiterState uint8

const (
	stateWaiting waiterState = iota
	stateSent
	stateDone      // answered, or rejected because the breaker has opened
	stateAbandoned // timed out or canceled; the queue may refer to the waiter for longer than its Take
)

// waiterPool saves more than a quarter of the CPU of a Take in BenchmarkQueue.
var waiterPool = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

// maxPooledOps bounds the operations of a waiter that is reused.
const maxPooledOps = 256

// Take decides groups, in a call of their own or shared with other Takes. After an error, out is
// undefined. It implements [limiters.Taker] for a [split.FanOut], which then sets the verdicts
// itself.
func (q *queue) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		q.stats.unsent.Add(int64(len(out)))
		return limiters.Uncharged(withCause(errEndedUnsent, err))
	}
	q.mu.Lock()
	if q.breaker.rejects(q.busy) {
		q.mu.Unlock()
		q.stats.breakerRejected.Add(int64(len(out)))
		return ErrBreakerOpen
	}
	if !q.busy {
		q.busy = true
		q.mu.Unlock()
		return q.callAlone(ctx, groups, out)
	}
	if q.waitingOps > 0 && q.waitingOps+len(out) > q.maxWaiting {
		q.mu.Unlock()
		q.stats.queueRejected.Add(int64(len(out)))
		return ErrQueueFull
	}
	w := q.addWaiter(ctx, groups, len(out))
	q.mu.Unlock()
	return q.await(ctx, w, out)
}

// addWaiter adds a waiter with groups of n operations. The lock must be held.
func (q *queue) addWaiter(ctx context.Context, groups []limiters.Group, n int) *waiter {
	w := waiterPool.Get().(*waiter)
	w.setGroups(groups, n)
	start := time.Now() // under the lock, so that waiters is in the order of timeoutAt
	w.timeoutAt, w.deadline = start.Add(q.timeout), start.Add(untilDeadline(ctx, q.timeout))
	w.state = stateWaiting
	q.waiters = append(q.waiters, w)
	q.waitingOps += n
	q.setTimer(q.timeout)
	return w
}

// callAlone decides one Take in a call on the caller's goroutine. It may return after the end of
// ctx. It returns within the timeout or, if a charge of a moving hash slot must be refunded, within
// twice the timeout.
func (q *queue) callAlone(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	notAfter := time.Now().Add(untilDeadline(ctx, q.timeout))
	err := q.callWithTimeout(notAfter, groups, out)
	q.finish(err)
	return err
}

// untilDeadline returns the time until the deadline of ctx, at most timeout.
func untilDeadline(ctx context.Context, timeout time.Duration) time.Duration {
	if deadline, bounded := ctx.Deadline(); bounded {
		return min(timeout, time.Until(deadline))
	}
	return timeout
}

// callWithTimeout decides groups in one call. The call may use the whole timeout, even if
// notAfter is earlier or its client has left, because a timeout closes the connection, which other
// clients share. A panic becomes an error.
func (q *queue) callWithTimeout(notAfter time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	err := limiters.CatchPanic(func() error { return q.call(ctx, notAfter, groups, out) })
	if errors.Is(err, limiters.ErrPanic) {
		q.stats.panics.Add(1)
	}
	return err
}

// await waits for the verdicts of w. If ctx ends before w is sent, nothing is charged.
func (q *queue) await(ctx context.Context, w *waiter, out []limiters.Verdict) error {
	select {
	case <-w.done:
	case <-ctx.Done():
		q.mu.Lock()
		abandoned, err := q.abandon(w, ctx.Err())
		q.mu.Unlock()
		if abandoned {
			return err
		}
		<-w.done // w has got its result at the same time
	}
	return w.result(out)
}

// abandon ends the wait of w, unless its state is final. err is the error of its Take, with the
// cause, if there is one. The lock must be held.
func (q *queue) abandon(w *waiter, cause error) (abandoned bool, err error) {
	switch w.state {
	case stateWaiting:
		w.state = stateAbandoned
		q.stats.unsent.Add(int64(len(w.ops)))
		return true, limiters.Uncharged(withCause(errEndedUnsent, cause))
	case stateSent:
		w.state = stateAbandoned
		return true, withCause(errEndedSent, cause)
	default:
		return false, nil
	}
}

// timeoutStep is the shortest time between two runs of timeOutWaiters, and so the longest extra
// delay of a timeout.
const timeoutStep = time.Millisecond

// setTimer calls timeOutWaiters after d, unless such a call is due already, because a timer for
// each Take would cost 400 ns of CPU. The lock must be held.
func (q *queue) setTimer(d time.Duration) {
	if !q.timerSet {
		q.timerSet = true
		time.AfterFunc(d, q.timeOutWaiters)
	}
}

// timeOutWaiters abandons the waiters whose timeout has passed, removes those that were not sent,
// and sets the timer to the next timeout.
func (q *queue) timeOutWaiters() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timerSet = false
	now := time.Now()
	q.timeOutFirst(q.sent, now)
	n := q.timeOutFirst(q.waiters, now)
	for _, w := range q.waiters[:n] {
		q.waitingOps -= len(w.ops)
	}
	q.waiters = slices.Delete(q.waiters, 0, n)
}

// timeOutFirst abandons the first waiters of a list, which is in the order of timeoutAt, and
// returns their number. It sets the timer to the timeout of the next one.
func (q *queue) timeOutFirst(list []*waiter, now time.Time) int {
	for i, w := range list {
		if w.timeoutAt.After(now) {
			q.setTimer(max(w.timeoutAt.Sub(now), timeoutStep))
			return i
		}
		if abandoned, err := q.abandon(w, nil); abandoned {
			w.err = err
			w.done <- struct{}{}
		}
	}
	return len(list)
}

// withCause joins err with the reason why the context ended, if any.
func withCause(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// setGroups copies groups of n operations, because a Take must not retain its groups.
func (w *waiter) setGroups(groups []limiters.Group, n int) {
	w.ops, w.groups = slices.Grow(w.ops[:0], n), w.groups[:0]
	for _, g := range groups {
		first := len(w.ops)
		w.ops = append(w.ops, g...)
		w.groups = append(w.groups, w.ops[first:])
	}
	w.verdicts = slices.Grow(w.verdicts[:0], n)[:n]
}

// deliver gives w, whose state is stateDone, its result. From then on, w may be reused.
func (w *waiter) deliver(err error, verdicts []limiters.Verdict) {
	w.err = err
	copy(w.verdicts, verdicts)
	w.done <- struct{}{}
}

// result returns the error of w, and copies the verdicts to out unless w was abandoned. A waiter
// that was not abandoned goes back to the pool, because the queue refers to it no longer.
func (w *waiter) result(out []limiters.Verdict) error {
	err := w.err
	if w.state == stateAbandoned {
		return err
	}
	copy(out, w.verdicts)
	clear(w.ops)
	clear(w.groups)
	clear(w.verdicts)
	w.err = nil
	if cap(w.ops) <= maxPooledOps {
		waiterPool.Put(w)
	}
	return err
}

// finish ends a call that a Take made itself. It starts the queue's goroutine if others wait.
func (q *queue) finish(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.record(err)
	if len(q.waiters) == 0 {
		q.busy = false
		return
	}
	q.running.Go(q.serve)
}

// record passes the result of a call to the breaker, and rejects all waiters if the breaker has
// opened. The lock must be held.
func (q *queue) record(err error) {
	q.breaker.record(err)
	if !q.breaker.open() {
		return
	}
	for _, w := range q.waiters {
		if w.state == stateWaiting {
			w.state = stateDone
			q.stats.breakerRejected.Add(int64(len(w.ops)))
			w.deliver(ErrBreakerOpen, nil)
		}
	}
	clear(q.waiters)
	q.waiters, q.waitingOps = q.waiters[:0], 0
}

func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.busy
}

// serve makes calls until no operations wait.
func (q *queue) serve() {
	for q.yieldWhileGrowing(); q.popWaiters(); q.yieldWhileGrowing() {
		q.callCombined()
	}
}

// yieldWhileGrowing yields the processor as long as the next batch grows. On an idle processor it
// returns immediately. On a busy processor, larger batches need less CPU per decision, see
// docs/adr/0003-batching.md.
func (q *queue) yieldWhileGrowing() {
	for n, before := q.countWaiting(), -1; n > before && n < q.maxBatch; n = q.countWaiting() {
		before = n
		runtime.Gosched()
	}
}

func (q *queue) countWaiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waitingOps
}

// popWaiters moves waiters to q.sent and their operations to q.combined, up to maxBatch operations.
// If there are none, it marks the queue as idle and returns false.
func (q *queue) popWaiters() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.combined
	c.clear()
	n := 0
	for _, w := range q.waiters {
		if len(q.sent) > 0 && c.ops+len(w.ops) > q.maxBatch {
			break
		}
		n++
		q.waitingOps -= len(w.ops)
		if w.state == stateWaiting {
			w.state = stateSent
			q.sent = append(q.sent, w)
			c.add(w)
		}
	}
	q.waiters = slices.Delete(q.waiters, 0, n)
	q.busy = len(q.sent) > 0
	return q.busy
}

func (c *combinedCall) clear() {
	clear(c.groups)
	clear(c.verdicts)
	*c = combinedCall{groups: c.groups[:0], verdicts: c.verdicts[:0]}
}

func (c *combinedCall) add(w *waiter) {
	if w.deadline.After(c.notAfter) {
		c.notAfter = w.deadline
	}
	c.groups, c.ops = append(c.groups, w.groups...), c.ops+len(w.ops)
}

// callCombined decides q.combined, and gives each of the sent waiters its result.
func (q *queue) callCombined() {
	c := &q.combined
	c.verdicts = slices.Grow(c.verdicts, c.ops)[:c.ops]
	err := q.callWithTimeout(c.notAfter, c.groups, c.verdicts)
	sent := q.endCall(err)
	verdicts := c.verdicts
	for _, w := range sent {
		n := len(w.ops)
		if w.state == stateDone {
			w.deliver(err, verdicts)
		}
		verdicts = verdicts[n:]
	}
	clear(sent)
}

// endCall records the result of a call with several Takes, and takes their waiters from q.sent.
// Those that were not abandoned are done, but not answered.
func (q *queue) endCall(err error) (sent []*waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.record(err)
	for _, w := range q.sent {
		if w.state == stateSent {
			w.state = stateDone
		}
	}
	sent, q.sent = q.sent, q.sent[:0] // popWaiters uses the memory again, after all are answered
	return sent
}
