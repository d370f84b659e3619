// Package loadclient is a load generator for Envoy's RateLimitService and for HTTP/2 proxies. It
// uses little CPU time, because it often shares a machine with the server under test.
//
// It writes HTTP/2 frames from templates, batches them, decodes only the verdict, and does not
// allocate for a request. It supports one message per request, responses below 1 MB, plaintext
// connections, and no CONTINUATION frames.
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

	// Rate is the number of requests per second over all connections, independent of the server's
	// speed. Each connection sends a batch every millisecond, and latencies count from the
	// scheduled time. If Rate is 0, each response triggers the next request.
	Rate float64

	// Backoff is a client's wait after RESOURCE_EXHAUSTED. It cannot be combined with Rate.
	Backoff time.Duration

	// Count is the total number of requests. If 0, the run ends after Duration. It cannot be
	// combined with Rate.
	Count uint64

	WarmUp   time.Duration // not measured
	Duration time.Duration // measured

	// Begin and End, if not nil, are called when the measurement begins and ends, on the goroutine
	// of Run.
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

// Run generates load until Duration is over or ctx ends. It returns an error if it could not start.
// Result counts failed requests.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.setDefaults()
	r := &run{o: o, result: &Result{}}
	defer r.close()
	if err := r.connect(ctx); err != nil {
		return nil, fmt.Errorf("client: %s: %w", o.Addr, err)
	}
	if o.WarmUp <= 0 {
		r.begin() // a busy machine may answer requests before this goroutine goes on
	}
	ended := r.start()
	if o.WarmUp > 0 {
		wait(ctx, ended, o.WarmUp)
		r.begin()
	}
	wait(ctx, ended, o.Duration)
	r.end()
	<-ended
	if r.pacing != nil {
		return nil, r.pacing
	}
	r.addUp()
	if r.result.Requests() == 0 {
		return nil, errors.Join(fmt.Errorf("client: %s: no answer", o.Addr), errors.New(r.result.Error), ctx.Err())
	}
	return r.result, nil
}

func (o *Options) setDefaults() {
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
}

// A run is the load on some connections.
type run struct {
	o      Options
	phase  atomic.Int32
	conns  []*conn
	pacing error // the error of pace; read it after all goroutines have ended

	began  time.Time     // when the measurement began
	cpu    time.Duration // the process's CPU time when the measurement began
	result *Result
}

func (r *run) connect(ctx context.Context) error {
	base := time.Now()
	for i := range r.o.Conns {
		c, err := dial(ctx, &r.o, base, i, &r.phase)
		if err != nil {
			return err
		}
		r.conns = append(r.conns, c)
	}
	return nil
}

func (r *run) close() {
	for _, c := range r.conns {
		_ = c.net.Close()
	}
}

// start starts the goroutines of all connections. It returns a channel that is closed when they
// have ended.
func (r *run) start() <-chan struct{} {
	var all sync.WaitGroup
	for _, c := range r.conns {
		all.Go(c.run)
	}
	if r.o.Rate > 0 {
		all.Go(func() { r.pacing = pace(r.conns) })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	return ended
}

// begin begins the measurement.
func (r *run) begin() {
	if r.o.Begin != nil {
		r.o.Begin()
	}
	r.cpu, r.began = processCPU(), time.Now()
	r.phase.Store(measuring)
}

// end ends the measurement and the load. The connections still wait for the last answers.
func (r *run) end() {
	r.phase.Store(stopping)
	r.result.Elapsed, r.result.CPU = time.Since(r.began), processCPU()-r.cpu
	if r.o.End != nil {
		r.o.End()
	}
	for _, c := range r.conns {
		_ = c.net.SetDeadline(time.Now().Add(lastAnswers))
	}
}

// addUp adds the counts of all connections to the result.
func (r *run) addUp() {
	sum := r.result
	for _, c := range r.conns {
		sum.OK += c.ok
		sum.Over += c.over
		sum.Shed += c.shed
		sum.Errors += c.errors
		if c.err != nil {
			sum.Errors += uint64(c.sent.Load() - c.answered.Load()) // lost with their connection
			sum.Error = c.err.Error()
		}
		sum.Latency.add(&c.latency)
	}
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
