package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/loadclient"
)

// A measurement is one run of one subject under one load. CPU times are user and system time per
// request.
type measurement struct {
	Run       string  `json:"run"` // when it began
	Machine   string  `json:"machine"`
	Row       string  `json:"row"`
	Subject   subject `json:"subject"`
	X         float64 `json:"x,omitempty"`
	Round     int     `json:"round"`
	PerSecond float64 `json:"per_second,omitempty"`
	ServerCPU float64 `json:"server_cpu_us,omitempty"`
	RedisCPU  float64 `json:"redis_cpu_us,omitempty"`
	EnvoyCPU  float64 `json:"envoy_cpu_us,omitempty"`
	ClientCPU float64 `json:"client_cpu_us,omitempty"`
	P50       float64 `json:"p50_us,omitempty"`
	P99       float64 `json:"p99_us,omitempty"`
	P999      float64 `json:"p99_9_us,omitempty"`
	Allocs    float64 `json:"allocs,omitempty"`
	ServerMB  float64 `json:"server_mb,omitempty"` // resident at the end
	RedisMB   float64 `json:"redis_mb,omitempty"`
	OverPart  float64 `json:"over_part,omitempty"` // share of all answers
	Errors    uint64  `json:"errors,omitempty"`
	Error     string  `json:"error,omitempty"`
	Value     float64 `json:"value,omitempty"` // the result of a Go benchmark; the other figures are 0
	// The figures of a command that ran once; the other figures are 0.
	Seconds    float64 `json:"s,omitempty"`
	CPUSeconds float64 `json:"cpu_s,omitempty"`
	PeakMB     float64 `json:"peak_mb,omitempty"`
}

// String returns the line printed for each measurement.
func (m *measurement) String() string {
	s := fmt.Sprintf("%-8s %-20s", m.Row, m.Subject)
	if m.X != 0 {
		s += fmt.Sprintf(" %8g", m.X)
	}
	if m.Seconds > 0 {
		return s + fmt.Sprintf("  %.2f s, CPU %.2f s, at most %.0f MB", m.Seconds, m.CPUSeconds, m.PeakMB)
	}
	if m.PerSecond == 0 {
		return s + fmt.Sprintf("  %.1f", m.Value)
	}
	s += fmt.Sprintf("  %7.0f/s  CPU %5.1f + Redis %4.1f + Envoy %4.1f µs  p50 %6.0f  p99 %6.0f  p99.9 %6.0f µs  "+
		"%5.1f allocs  %4.0f + %3.0f MB  over %3.0f %%  client %.1f µs",
		m.PerSecond, m.ServerCPU, m.RedisCPU, m.EnvoyCPU, m.P50, m.P99, m.P999, m.Allocs, m.ServerMB, m.RedisMB,
		100*m.OverPart, m.ClientCPU)
	if m.Errors > 0 {
		s += fmt.Sprintf("  %d ERRORS: %s", m.Errors, m.Error)
	}
	return s
}

// figures returns the numbers of m except X.
func (m *measurement) figures() []*float64 {
	return []*float64{
		&m.PerSecond, &m.ServerCPU, &m.RedisCPU, &m.EnvoyCPU, &m.ClientCPU, &m.P50, &m.P99, &m.P999, &m.Allocs, &m.ServerMB, &m.RedisMB,
		&m.OverPart, &m.Seconds, &m.CPUSeconds, &m.PeakMB,
	}
}

// round drops insignificant digits.
func (m *measurement) round() {
	for _, v := range m.figures() {
		*v = math.Round(*v*1000) / 1000
	}
}

// span is the length of a measurement.
type span struct{ warmUp, duration time.Duration }

// usage is the CPU time and the allocations of the processes so far.
type usage struct {
	server, redis, envoy time.Duration
	allocs               float64
}

// begin and end order their reads so that reading is not measured.
func (s *setup) begin(ctx context.Context) (u usage, err error) {
	allocs, err := allocations(ctx, s.debug)
	if err != nil {
		return u, err
	}
	u, err = s.cpu()
	u.allocs = allocs
	return u, err
}

func (s *setup) end(ctx context.Context) (u usage, err error) {
	if u, err = s.cpu(); err != nil {
		return u, err
	}
	u.allocs, err = allocations(ctx, s.debug)
	return u, err
}

func (s *setup) cpu() (u usage, err error) {
	var errs [3]error
	u.server, errs[0] = cpuOf(s.server)
	u.redis, errs[1] = cpuOf(s.redis)
	u.envoy, errs[2] = cpuOf(s.envoy)
	return u, errors.Join(errs[:]...)
}

// measure starts a subject, sends the load and stops the subject.
func measure(ctx context.Context, s side, l load, d span) (m *measurement, err error) {
	up, stop, err := start(ctx, s, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return up.measure(ctx, d)
}

// start starts a subject and fills it. Tests replace it.
var start = func(ctx context.Context, s side, l load) (_ *setup, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, nil, err
	}
	up, err := startSubject(ctx, s, l, dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() error { return errors.Join(up.stop(), os.RemoveAll(dir)) }
	up.load = l.of(s.subject)
	if l.fill > 0 || up.load.request.OpensLeases() {
		if err := fill(ctx, up.addr, up.load); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: fill: %w", s.subject, err), stop())
		}
	}
	return up, stop, nil
}

// measure sends its load to a subject that runs.
func (s *setup) measure(ctx context.Context, d span) (*measurement, error) {
	l := s.load
	var before, after usage
	var beforeErr, afterErr error
	r, err := loadclient.Run(ctx, loadclient.Options{
		Addr: s.addr, Request: l.request, Users: l.users, Conns: l.conns, InFlight: l.inflight, Rate: l.rate,
		WarmUp: d.warmUp, Duration: d.duration,
		Begin: func() { before, beforeErr = s.begin(ctx) },
		End:   func() { after, afterErr = s.end(ctx) },
	})
	if err := errors.Join(err, beforeErr, afterErr, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.subject, err)
	}
	m := &measurement{
		Subject: s.subject, X: l.x, PerSecond: r.PerSecond(), OverPart: float64(r.Over) / float64(r.Requests()), Errors: r.Errors, Error: r.Error,
		P50: micros(r.Latency.Quantile(0.5)), P99: micros(r.Latency.Quantile(0.99)), P999: micros(r.Latency.Quantile(0.999)),
	}
	requests := float64(r.Requests())
	m.ServerCPU = micros(after.server-before.server) / requests
	m.RedisCPU = micros(after.redis-before.redis) / requests
	m.EnvoyCPU = micros(after.envoy-before.envoy) / requests
	m.ClientCPU = micros(r.CPU) / requests
	m.Allocs = (after.allocs - before.allocs) / requests
	if s.envoy != nil {
		passed, err := (&harness.Envoy{Admin: s.envoyAdmin}).Stat(ctx, "cluster.backend.ratelimit.error")
		if err != nil {
			return nil, err
		}
		m.Errors += uint64(passed)
		if passed > 0 {
			m.Error = "Envoy passed them without an answer"
		}
	}
	server, err := s.server.Resident()
	if err != nil {
		return nil, err
	}
	redis, err := s.redis.Resident()
	m.ServerMB, m.RedisMB = float64(server)/1e6, float64(redis)/1e6
	m.round()
	return m, err
}

// fill sends requests of all users in turn, several users in each request. Leases are opened by a
// request each.
func fill(ctx context.Context, addr string, l load) error {
	const usersPerRequest, maxTime = 20, 30 * time.Minute
	o := loadclient.Options{Addr: addr, Conns: 4, Duration: maxTime}
	if l.request.OpensLeases() {
		o.Request, o.Users, o.InFlight, o.Count = l.request, l.users, l.inflight, openLeases
	} else {
		o.Request, o.Users, o.InFlight = l.request.Repeated(usersPerRequest), loadclient.RoundRobin(l.fill), 4
		o.Count = uint64(l.fill*max(l.times, 1)+usersPerRequest-1) / usersPerRequest
	}
	r, err := loadclient.Run(ctx, o)
	switch {
	case err != nil:
		return err
	case r.Errors > 0:
		return fmt.Errorf("%d errors: %s", r.Errors, r.Error)
	case r.Elapsed >= maxTime:
		return fmt.Errorf("not done in %v", maxTime)
	}
	return ctx.Err()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
