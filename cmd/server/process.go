package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/internal/gctune"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tracing"
)

// A process is a server with all that it owns.
type process struct {
	settings *settings.Serve
	log      *zap.Logger
	metrics  *telemetry.Metrics
	stats    *ratelimitstats.Stats
	ready    *readiness
	rules    *ruleSource
	store    *store
	servers  *servers

	background []func(ctx context.Context) // run until ctx ends
	closers    []func()                    // called in reverse order
	abandoned  chan struct{}               // closed when the process should end although a part has not stopped
}

// open makes a process that is ready to run. It opens the rules first, so that faults are reported at once. It opens the
// listeners before the store: a process that still holds them has not saved its counters yet.
func open(ctx context.Context, s *settings.Serve, log *zap.Logger) (_ *process, err error) {
	started := time.Now()
	p := &process{settings: s, log: log, metrics: telemetry.NewMetrics(versionOf()), ready: newReadiness(), abandoned: make(chan struct{})}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	rulesLoaded, storeAnswered := p.ready.need(), p.ready.need()
	p.ready.onChange(func(ready bool) {
		if ready {
			log.Info("ready", zap.String("version", versionOf()), zap.Duration("after", time.Since(started)))
		}
	})
	p.stats = ratelimitstats.New(p.metrics.Registry, ratelimitstats.Options{
		NearLimitRatio: s.NearLimitRatio, Milliseconds: s.PrometheusMillis,
	})
	if err := p.openSender(); err != nil {
		return nil, err
	}
	if p.rules, err = newRuleSource(s, log, p.metrics, p.stats, rulesLoaded); err != nil {
		if s.Config == "" && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no rules: neither --config nor CONFIG_PATH is set, and %s does not exist\ntry weir --config rules.yaml", s.Path())
		}
		return nil, err
	}
	l, err := listen(ctx, s, log)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, l.close)
	traces, err := p.openStore(ctx, storeAnswered)
	if err != nil {
		return nil, err
	}
	p.servers, err = newServers(s, l, p.rules, p.store, p.ready, log, p.metrics, p.stats, traces.GRPC()...)
	return p, err
}

// openStore opens the store and wraps it. From the inside out: the store, tracing, the deny cache, the fallback. So a trace
// shows the calls to Redis only.
func (p *process) openStore(ctx context.Context, answered func()) (*tracing.Tracing, error) {
	s, log := p.settings, p.log
	var err error
	if p.store, err = openStore(s, log, p.metrics); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.store.close)
	traces, err := tracing.Start(ctx, s.Tracing, func(err error) { log.Warn("tracing failed", zap.Error(err)) })
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func() {
		if err := traces.Stop(); err != nil {
			log.Warn("last traces not sent", zap.Error(err))
		}
	})
	cached, drop, closeCache := withDenyCache(s, traces.Store(p.store.Store), log, p.metrics)
	p.closers = append(p.closers, closeCache)
	replicas := newReplicas(s, log)
	fallback, sweepLocal := withFallback(s, cached, replicas, p.rules, log, p.metrics)
	p.store.Store = fallback
	readyWithoutStore := func() {
		if canDecideWithoutStore(p.rules.live.Load()) {
			answered()
		}
	}
	p.rules.replaced = func() {
		drop()
		fallback.Forget()
		readyWithoutStore()
	}
	p.background = append(p.background, gctune.Run, replicas.watch, sweepLocal, func(ctx context.Context) {
		readyWithoutStore()
		p.store.run(ctx, answered)
	})
	return traces, nil
}

// openSender makes what sends metrics to statsd or dogstatsd, if the settings ask for it.
func (p *process) openSender() error {
	s := &p.settings.Stats
	if s.DisableStats || !s.UseStatsd && !s.UseDogStatsd {
		return nil
	}
	tags, err := s.Tags()
	if err != nil {
		return fmt.Errorf("EXTRA_TAGS: %w", err)
	}
	to := statsd.Destination{
		Network: s.StatsdProtocol, Address: net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		Every: s.FlushInterval, Tags: tags,
	}
	if s.UseDogStatsd {
		to.Network, to.Dog, to.DogTags = "udp", true, statsd.DogTags(os.Getenv)
		if to.Mogrifiers, err = statsd.Mogrifiers(s.Mogrifiers, os.Getenv); err != nil {
			return err
		}
	}
	p.background = append(p.background, statsd.New(to, p.stats, p.metrics.Registry, p.log).Run)
	return nil
}

func (p *process) close() {
	for _, f := range slices.Backward(p.closers) {
		f()
	}
}

// run serves until a signal, the end of ctx, or the failure of a part. It closes the store when no call to it is in flight
// any more.
func (p *process) run(ctx context.Context, signals, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forced, force := context.WithCancel(context.Background())
	defer force()
	stopped := make(chan struct{})
	var forcing sync.WaitGroup
	group, running := errgroup.WithContext(ctx)
	p.servers.serve(group)
	for _, f := range p.background {
		group.Go(func() error { f(running); return nil })
	}
	group.Go(func() error { return p.rules.watch(running, reload) })
	group.Go(func() error {
		p.drain(running, signals)
		forcing.Go(func() { p.forceStop(stopped, signals, force) })
		p.servers.stop(forced, p.store.stopped)
		cancel()
		return nil
	})
	err := group.Wait()
	p.close()
	close(stopped)
	forcing.Wait()
	p.log.Info("stopped")
	return err
}

// drain waits for a signal, or for the failure of a part. After SIGTERM the server then answers for DRAIN_DELAY while it
// is not ready, so that proxies stop sending; another signal ends the delay.
func (p *process) drain(ctx context.Context, signals <-chan os.Signal) {
	var received os.Signal
	select {
	case received = <-signals:
		p.log.Info("stopping", zap.Stringer("signal", received))
	case <-ctx.Done():
	}
	p.ready.stop()
	if received != syscall.SIGTERM {
		return
	}
	timer := time.NewTimer(p.settings.DrainDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-signals:
	}
}

// abandonAfter is how long a process that is forced to stop waits for its parts. A call to a store returns within
// STORE_TIMEOUT, which may be longer.
const abandonAfter = 2 * time.Second

// forceStop calls force after STOP_TIMEOUT, or at one more signal, unless the process has stopped by then. No signal ends
// the process itself: what remains to do takes little time, and saves the counters.
func (p *process) forceStop(stopped <-chan struct{}, signals <-chan os.Signal, force func()) {
	timer := time.NewTimer(p.settings.StopTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
		return
	case <-signals:
	case <-timer.C:
	}
	force()
	timer.Reset(abandonAfter)
	select {
	case <-stopped:
	case <-timer.C:
		close(p.abandoned)
	}
}
