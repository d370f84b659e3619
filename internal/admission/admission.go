// Package admission sheds load. It bounds the requests that are decided at the same time, and the pace at which connections
// are read. It also bounds the time in which the body of an HTTP request may arrive.
package admission

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/weir-rls/weir/internal/backoff"
)

// defaultPerCPU is the default limit for each CPU. A CPU decides this many requests in about 10 ms with Redis, and in
// about 5 ms in memory. A longer queue would only make every request wait longer, and Envoy waits for 20 ms.
const defaultPerCPU = 256

// ErrOverloaded is the error of a request that is shed: too many others are in flight, or the server stops.
var ErrOverloaded = errors.New("too many requests in flight")

// InFlight bounds the requests that are decided at the same time. A request past the limit is shed at once: in a queue
// it would outlive its client's timeout, and delay the others.
type InFlight struct {
	limit  int64
	busy   int64 // three quarters of limit; above it, connections are read at the pace of the answers
	count  atomic.Int64
	shed   atomic.Int64
	closed atomic.Bool
	freed  chan struct{} // wakes one connection that waits in Read
}

// NewInFlight returns an InFlight that admits limit requests. The limit 0 stands for 256 for each CPU.
func NewInFlight(limit int) *InFlight {
	if limit == 0 {
		limit = defaultPerCPU * runtime.GOMAXPROCS(0)
	}
	return &InFlight{limit: int64(limit), busy: int64(limit - limit/4), freed: make(chan struct{})}
}

// Enter admits a request, which must call Leave when it has been decided. The error is ErrOverloaded. A request enters once
// it has arrived whole: a client that sends half a request must not hold a part of the limit.
func (f *InFlight) Enter() error {
	if f.count.Add(1) > f.limit || f.closed.Load() {
		f.count.Add(-1)
		f.shed.Add(1)
		return ErrOverloaded
	}
	return nil
}

// Leave ends a request that Enter admitted.
func (f *InFlight) Leave() {
	if f.count.Add(-1) > f.busy {
		return
	}
	select {
	case f.freed <- struct{}{}:
	default:
	}
}

// Close sheds all further requests, and waits until no request is in flight, or ctx ends.
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

// Stats returns the counts of now.
func (f *InFlight) Stats() Stats { return Stats{f.count.Load(), f.shed.Load()} }
