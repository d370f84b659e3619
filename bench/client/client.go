// Package client is a load generator for Envoy's RateLimitService, and for an HTTP/2 proxy in front of a service, that costs
// little itself: on a machine that it shares with the server under test, what it costs bounds what can be shown.
//
// It writes HTTP/2 frames from templates, all that are due in one write, and of the answers it decodes only whether the
// request was allowed. It allocates nothing on the way. It is no general client: one message per request, answers of less
// than 1 MB, no TLS, no CONTINUATION frames.
package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxInFlight is the most requests that one connection may have under way: a power of two.
const maxInFlight = 1024

// Options say what to send. Addr and Request are required.
type Options struct {
	Addr    string // host:port of a server that speaks HTTP/2 without TLS
	Request *Request
	Users   *Users // who asks; nil: one user

	Conns    int // connections; 0: 1
	InFlight int // requests under way on each, 0: 1; with a Rate, the most that may be: 0: 1024

	// Rate is how many requests a second come on all connections, whether or not the server keeps up, in bunches: one each
	// millisecond on each. A latency then counts from when the bunch came. 0: the next request is sent when one is answered.
	Rate float64

	// Backoff is how long a client waits that was refused (RESOURCE_EXHAUSTED) before it asks again. Not with a Rate.
	Backoff time.Duration

	// Count is how many requests to send, shared among the connections; then the run ends. 0: until Duration is over. Not with
	// a Rate.
	Count uint64

	WarmUp   time.Duration // not measured
	Duration time.Duration // measured

	// Begin and End, if given, are called when measuring begins and ends, from the goroutine of Run.
	Begin, End func()
}

// A Result is what was measured.
type Result struct {
	Elapsed time.Duration
	OK      uint64 // answers with code OK
	Over    uint64 // answers with code OVER_LIMIT
	Refused uint64 // answers of RESOURCE_EXHAUSTED, if there is a Backoff; else they are Errors
	Errors  uint64 // answers that were none: a gRPC or HTTP error, a stream that was reset, a connection that ended
	Error   string // the first of them
	Latency Histogram
	CPU     time.Duration // user and system time of this process
}

// Requests is how many were answered.
func (r *Result) Requests() uint64 { return r.OK + r.Over + r.Refused + r.Errors }

// PerSecond is the rate of answers that are no errors.
func (r *Result) PerSecond() float64 { return float64(r.OK+r.Over) / r.Elapsed.Seconds() }

// The phases of a run.
const (
	warming int32 = iota
	measuring
	stopping
)

// Run sends load until Duration is over or ctx ends. The error is of what kept it from running at all; what failed
// on the way is counted in the result.
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

	r := &Result{}
	wait(ctx, ended, o.WarmUp)
	if o.Begin != nil {
		o.Begin()
	}
	cpu, start := processCPU(), time.Now()
	phase.Store(measuring)
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
		r.Refused += c.refused
		r.Errors += c.errors
		if c.err != nil {
			r.Errors += uint64(c.sent.Load() - c.answered.Load()) // lost with their connection, if it was lost
			r.Error = c.err.Error()
		}
		r.Latency.add(&c.latency)
	}
	if r.Requests() == 0 {
		return nil, errors.Join(fmt.Errorf("client: %s: no answer", o.Addr), errors.New(r.Error), ctx.Err())
	}
	return r, nil
}

// wait waits for d, or until there is nothing to wait for.
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
