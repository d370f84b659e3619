// Package admission sheds load: it bounds the requests decided at a time, the rate at which
// connections are read, and the time in which an HTTP body must arrive.
package admission

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/backoff"
)

// defaultPerCPU is the default limit for each CPU. A CPU decides this many requests in about 10 ms
// with Redis and 5 ms in memory. A longer queue would only add latency, and by default Envoy times
// out after 20 ms.
const defaultPerCPU = 256

// The gRPC statuses of requests that a Gate does not admit.
var (
	errOverloaded = status.Error(codes.ResourceExhausted, "too many requests in flight")
	errStopping   = status.Error(codes.Unavailable, "the server is stopping")
)

// A Gate bounds the requests decided at a time. It sheds further requests instead of queuing them,
// because a queued request would outlive its client's timeout and delay others.
type Gate struct {
	limit     int64
	busyAbove int64 // three quarters of limit; above it, connections are read more slowly
	inFlight  atomic.Int64
	shed      atomic.Int64
	closed    atomic.Bool
	resume    chan struct{} // wakes one connection that waits in Read
}

// NewGate returns a Gate that admits limit requests; 0 means 256 for each CPU.
func NewGate(limit int) *Gate {
	limit = cmp.Or(limit, defaultPerCPU*runtime.GOMAXPROCS(0))
	return &Gate{limit: int64(limit), busyAbove: int64(limit - limit/4), resume: make(chan struct{})}
}

// Admit admits a request, or returns the gRPC status with which to reject it. The caller must call
// Done once an admitted request is decided. Call Admit only once the whole request has arrived, so
// that slow clients do not occupy the limit.
//
// A request that may refund hits or end a lease is admitted up to twice the limit. If a release
// were lost, a slot would be held until the TTL of its lease, and deny requests long after the
// load.
func (g *Gate) Admit(mayRefund bool) error {
	n := g.inFlight.Add(1)
	switch {
	case g.closed.Load():
		g.inFlight.Add(-1)
		return errStopping
	case n > g.limit && (!mayRefund || n > 2*g.limit):
		g.inFlight.Add(-1)
		g.shed.Add(1)
		return errOverloaded
	}
	return nil
}

// Done ends an admitted request.
func (g *Gate) Done() {
	if g.inFlight.Add(-1) > g.busyAbove {
		return
	}
	select {
	case g.resume <- struct{}{}:
	default:
	}
}

// CloseAndWait rejects all further requests and waits until none is in flight, or ctx ends.
func (g *Gate) CloseAndWait(ctx context.Context) {
	g.closed.Store(true)
	for g.inFlight.Load() > 0 && backoff.Sleep(ctx, checkInterval) == nil {
	}
}

// Stats counts requests.
type Stats struct {
	InFlight int64 // admitted and not yet decided
	Shed     int64 // since the start
}

// Stats returns the current counts.
func (g *Gate) Stats() Stats { return Stats{g.inFlight.Load(), g.shed.Load()} }
