// Package admission sheds load: it bounds the requests decided at a time, the rate at which connections are read, and the time in
// which an HTTP body must arrive.
package admission

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/weir-rls/weir/internal/backoff"
)

// defaultPerCPU is the default limit for each CPU. A CPU decides this many requests in about 10 ms with Redis and 5 ms in memory. A
// longer queue would only add latency, and Envoy times out after 20 ms.
const defaultPerCPU = 256

// ErrOverloaded is returned for a request that is shed: too many are in flight, or the server is stopping.
var ErrOverloaded = errors.New("too many requests in flight")

// An InFlight bounds the requests decided at a time. It sheds further requests instead of queueing them, because a queued request
// would outlive its client's timeout and delay others.
type InFlight struct {
	limit  int64
	busy   int64 // three quarters of limit; above it, connections are read more slowly
	count  atomic.Int64
	shed   atomic.Int64
	closed atomic.Bool
	freed  chan struct{} // wakes one connection that waits in Read
}

// NewInFlight returns an InFlight that admits limit requests; 0 means 256 for each CPU.
func NewInFlight(limit int) *InFlight {
	if limit == 0 {
		limit = defaultPerCPU * runtime.GOMAXPROCS(0)
	}
	return &InFlight{limit: int64(limit), busy: int64(limit - limit/4), freed: make(chan struct{})}
}

// Enter admits a request or returns ErrOverloaded. An admitted request must call Leave. Call Enter only once the whole request has
// arrived, so that slow clients do not occupy the limit.
//
// A request that may free a slot is admitted up to twice the limit. If its release were lost, a slot would be held until
// the TTL of the lease, and deny requests long after the load. Enter calls ends only beyond the limit; if nil, the request frees nothing.
func (f *InFlight) Enter(ends func() bool) error {
	n := f.count.Add(1)
	if n > f.limit && (n > 2*f.limit || ends == nil || !ends()) || f.closed.Load() {
		f.count.Add(-1)
		f.shed.Add(1)
		return ErrOverloaded
	}
	return nil
}

// Leave ends an admitted request.
func (f *InFlight) Leave() {
	if f.count.Add(-1) > f.busy {
		return
	}
	select {
	case f.freed <- struct{}{}:
	default:
	}
}

// Close sheds all further requests and waits until none is in flight, or ctx ends.
func (f *InFlight) Close(ctx context.Context) {
	f.closed.Store(true)
	for f.count.Load() > 0 && backoff.Sleep(ctx, checkInterval) == nil {
	}
}

// Stats counts requests.
type Stats struct {
	InFlight int64 // admitted and not yet decided
	Shed     int64 // rejected with ErrOverloaded since the start
}

// Stats returns the current counts.
func (f *InFlight) Stats() Stats { return Stats{f.count.Load(), f.shed.Load()} }
