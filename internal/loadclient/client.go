// Package loadclient is a load generator for Envoy's RateLimitService and for HTTP/2 proxies. It uses little CPU time, because it
// often shares a machine with the server under test.
//
// It writes HTTP/2 frames from templates, batches them, decodes only the verdict, and does not allocate for a request. It supports
// one message per request, responses below 1 MB, plaintext connections, and no CONTINUATION frames.
package loadclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxInFlight bounds the concurrent requests of a connection. It is a power of two.
const maxInFlight = 1024

// Options configures a run. Addr and Request are required.
type Options struct {
	Addr    string // host:port of a server that speaks HTTP/2 without TLS
	Request *Request
	Users   *Users // the senders; nil: one user

	Conns    int // connections; 0: 1
	InFlight int // concurrent requests on each, 0: 1; with a Rate, the maximum of them, 0: 1024

	// Rate is the number of requests per second over all connections, independent of the server's speed. Each connection sends a
	// batch every millisecond, and latencies count from the scheduled time. If Rate is 0, each response triggers the next request.
	Rate float64

	// Backoff is a client's wait after RESOURCE_EXHAUSTED. It cannot be combined with Rate.
	Backoff time.Duration

	// Count is the total number of requests. If 0, the run ends after Duration. It cannot be combined with Rate.
	Count uint64

	WarmUp   time.Duration // not measured
	Duration time.Duration // measured

	// Begin and End, if not nil, are called when the measurement begins and ends, on the goroutine of Run.
	Begin, End func()
}

// A Result holds the measurements of a run.
type Result struct {
	Elapsed time.Duration
	OK      uint64 // answers with code OK
	Over    uint64 // answers with code OVER_LIMIT
	Shed    uint64 // answers of RESOURCE_EXHAUSTED with a Backoff; without one they are Errors
	Errors  uint64 // gRPC and HTTP errors, reset streams, and requests of lost connections
	Error   string // the first of them
	Latency Histogram
	CPU     time.Duration // user and system time of this process
}

// Requests returns the number of answered requests.
func (r *Result) Requests() uint64 { return r.OK + r.Over + r.Shed + r.Errors }

// PerSecond returns the rate of answers without errors.
func (r *Result) PerSecond() float64 { return float64(r.OK+r.Over) / r.Elapsed.Seconds() }

// The phases of a run.
const (
	warming int32 = iota
	measuring
	stopping
)

// Run generates load until Duration is over or ctx ends. It returns an error if it could not start. Result counts failed requests.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.Conns, o.InFlight = max(o.Conns, 1), min(o.InFlight, maxInFlight)
	if o.InFlight < 1 {
		o.InFlight = 1
		if o.Rate > 0 {
			o.InFlight = maxInFlight
		}
	}
	if o.Users == nil {
		o.Users = Uniform(1)
	}
	phase := &atomic.Int32{}
	base, conns := time.Now(), make([]*conn, o.Conns)
	for i := range conns {
		c, err := dial(ctx, &o, base, i, phase)
		if err != nil {
			for _, open := range conns[:i] {
				_ = open.net.Close()
			}
			return nil, fmt.Errorf("client: %s: %w", o.Addr, err)
		}
		conns[i] = c
	}
	r := &Result{}
	var cpu time.Duration
	var start time.Time
	begin := func() {
		if o.Begin != nil {
			o.Begin()
		}
		cpu, start = processCPU(), time.Now()
		phase.Store(measuring)
	}
	if o.WarmUp <= 0 {
		begin() // a busy machine may answer requests before this goroutine goes on
	}
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(c.run)
	}
	var pacing error
	if o.Rate > 0 {
		all.Go(func() { pacing = pace(conns) })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()

	if o.WarmUp > 0 {
		wait(ctx, ended, o.WarmUp)
		begin()
	}
	wait(ctx, ended, o.Duration)
	phase.Store(stopping)
	r.Elapsed, r.CPU = time.Since(start), processCPU()-cpu
	if o.End != nil {
		o.End()
	}

	for _, c := range conns {
		_ = c.net.SetDeadline(time.Now().Add(lastAnswers))
	}
	<-ended
	if pacing != nil {
		return nil, pacing
	}
	for _, c := range conns {
		_ = c.net.Close()
		r.OK += c.ok
		r.Over += c.over
		r.Shed += c.shed
		r.Errors += c.errors
		if c.err != nil {
			r.Errors += uint64(c.sent.Load() - c.answered.Load()) // lost with their connection
			r.Error = c.err.Error()
		}
		r.Latency.add(&c.latency)
	}
	if r.Requests() == 0 {
		return nil, errors.Join(fmt.Errorf("client: %s: no answer", o.Addr), errors.New(r.Error), ctx.Err())
	}
	return r, nil
}

// wait waits for d, or until the run has ended.
func wait(ctx context.Context, ended <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ended:
	case <-ctx.Done():
	}
}

func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
