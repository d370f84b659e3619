// Package shadow decides live requests again under the candidate rules of a shadow file, and counts
// the differences.
//
// [Comparison.Observe] copies decided requests to a bounded queue, and drops and counts them if it
// is full. [Comparison.Run] decides the copies in order, with a [decide.Decider] on a separate
// memory store, at the times of the live decisions. So a candidate cannot deny, fail or delay a
// request.
//
// A Comparison sees only the requests of its process. With several replicas, each counts its part
// of a key's hits.
package shadow

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Options configures a [Comparison].
type Options struct {
	// Decide contains the settings with which the server decides.
	Decide decide.Options
	// MaxBytes bounds the counters of the candidate; default 128 MiB, which is enough for about a
	// million keys.
	MaxBytes int64
	// KeyHashSecret, if not empty, hashes keys, see [descriptors.KeyHash].
	KeyHashSecret []byte
	// Panicked, if not nil, receives the value of a recovered panic. It must not panic.
	Panicked func(any)

	wrap func(limiters.Store) limiters.Store // set by tests: wraps the store of a candidate
}

const defaultMaxBytes = 128 << 20

// Bounds of the queue. A decision takes a few µs, so the queue holds some 10 ms of a busy server.
const (
	maxQueued = 8192
	// maxQueuedBytes bounds the memory of the queued requests.
	maxQueuedBytes = 32 << 20
)

// A Comparison compares a candidate with the rules in force. It is safe for concurrent use.
type Comparison struct {
	options Options
	queue   chan *requestCopy
	queued  atomic.Int64 // bytes
	current atomic.Pointer[candidate]
	dropped atomic.Int64
	panics  atomic.Int64
}

// New returns a Comparison without a candidate.
func New(o Options) *Comparison {
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	if o.Panicked == nil {
		o.Panicked = func(any) {}
	}
	return &Comparison{options: o, queue: make(chan *requestCopy, maxQueued)}
}

// SetCandidate makes rules the candidate, with empty counters. Nil rules end the comparison. It
// returns false, and changes nothing, if the candidate already has the version of rules.
func (c *Comparison) SetCandidate(rules *descriptors.Rules) bool {
	old := c.current.Load()
	switch {
	case rules == nil:
		c.current.Store(nil)
		return old != nil
	case old != nil && old.rules.Version() == rules.Version():
		return false
	}
	c.current.Store(newCandidate(rules, &c.options, time.Now()))
	return true
}

// Observe queues a decided request, or drops it. It never waits, and does not retain request and
// result.
func (c *Comparison) Observe(request *decide.Request, result *decide.Result) {
	if len(result.Decisions) == 0 { // nothing was decided: the request was invalid, or there are no rules
		return
	}
	current := c.current.Load()
	if current == nil {
		return
	}
	defer c.recoverPanic()
	if len(c.queue) == cap(c.queue) || c.queued.Load() > maxQueuedBytes {
		c.drop(current)
		return
	}
	r := newRequestCopy(request, result, time.Now())
	c.queued.Add(r.bytes)
	select {
	case c.queue <- r:
	default:
		c.queued.Add(-r.bytes)
		c.drop(current)
		r.release()
	}
}

func (c *Comparison) drop(current *candidate) {
	c.dropped.Add(1)
	current.dropped.Add(1)
}

// Run decides the queued requests until ctx ends.
func (c *Comparison) Run(ctx context.Context) {
	for {
		select {
		case r := <-c.queue:
			c.queued.Add(-r.bytes)
			if current := c.current.Load(); current != nil {
				c.compare(ctx, current, r)
			}
			r.release()
		case <-ctx.Done():
			return
		}
	}
}

// compare decides a copy with the candidate. A panic affects only this copy.
func (c *Comparison) compare(ctx context.Context, current *candidate, r *requestCopy) {
	defer c.recoverPanic()
	current.compare(ctx, r)
}

// recoverPanic reports a panic. The caller must defer it.
func (c *Comparison) recoverPanic() {
	if value := recover(); value != nil {
		c.panics.Add(1)
		c.options.Panicked(value)
	}
}
