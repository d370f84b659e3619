// Package admission sheds load: it bounds the requests decided at a time, the rate at which
// connections are read, and the time in which an HTTP body must arrive.
package admission

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/weir-rls/weir/internal/backoff"
)

// defaultPerCPU is the default limit for each CPU. A CPU decides this many requests in about 10 ms
// with Redis and 5 ms in memory. A longer queue would only add latency, and Envoy times out after
// 20 ms.
const defaultPerCPU = 256

// errOverloaded is returned for a request that is shed: too many are in flight, or the server is
// stopping.
var errOverloaded = errors.New("too many requests in flight")

// A Gate bounds the requests decided at a time. It sheds further requests instead of queueing them,
// because a queued request would outlive its client's timeout and delay others.
type Gate struct {
	limit     int64
	busyAbove int64 // three quarters of limit; above it, connections are read more slowly
	count     atomic.Int64
	shed      atomic.Int64
	closed    atomic.Bool
	resume    chan struct{} // wakes one connection that waits in Read
}

// NewGate returns a Gate that admits limit requests; 0 means 256 for each CPU.
func NewGate(limit int) *Gate {
	limit = cmp.Or(limit, defaultPerCPU*runtime.GOMAXPROCS(0))
	return &Gate{limit: int64(limit), busyAbove: int64(limit - limit/4), resume: make(chan struct{})}
}

// Enter admits a request, or returns an error if it sheds the request. An admitted request must
// call Leave. Call Enter only once the whole request has arrived, so that slow clients do not
// occupy the limit.
//
// A request that may refund hits or end a lease is admitted up to twice the limit. If a release
// were lost, a slot would be held until the TTL of its lease, and deny requests long after the
// load. Enter calls mayRefund only beyond the limit; nil stands for a request that does neither.
func (g *Gate) Enter(mayRefund func() bool) error {
	n := g.count.Add(1)
	if n > g.limit && (n > 2*g.limit || mayRefund == nil || !mayRefund()) || g.closed.Load() {
		g.count.Add(-1)
		g.shed.Add(1)
		return errOverloaded
	}
	return nil
}

// Leave ends an admitted request.
func (g *Gate) Leave() {
	if g.count.Add(-1) > g.busyAbove {
		return
	}
	select {
	case g.resume <- struct{}{}:
	default:
	}
}

// Close sheds all further requests and waits until none is in flight, or ctx ends.
func (g *Gate) Close(ctx context.Context) {
	g.closed.Store(true)
	for g.count.Load() > 0 && backoff.Sleep(ctx, checkInterval) == nil {
	}
}

// Stats counts requests.
type Stats struct {
	InFlight int64 // admitted and not yet decided
	Shed     int64 // rejected since the start
}

// Stats returns the current counts.
func (g *Gate) Stats() Stats { return Stats{g.count.Load(), g.shed.Load()} }
