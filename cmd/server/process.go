package main

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/gctune"
	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/receiptkeys"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/internal/ruleload"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tracing"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recorder"
	"github.com/weir-rls/weir/pkg/rls"
)

// A process is a running server. open sets its parts in the order of the fields.
type process struct {
	settings   *settings.Serve
	hostname   string // the host name at the start, which names this replica; may be ""
	log        *zap.Logger
	audit      *zap.Logger // logs the changes by the admin API
	metrics    *telemetry.Metrics
	stats      *ratelimitstats.Stats
	logRequest func(*rls.Observation)
	ready      *readiness
	gate       *admission.Gate
	panicked   recovery.Report // logs and counts

	rules       *ruleload.Loader
	observer    *observe.Observer // nil unless a setting needs it
	shadow      *shadowFile       // nil without SHADOW_CONFIG
	receiptKeys *receiptkeys.File // nil without RECEIPT_HEADER
	tracing     *tracing.Tracing  // nil without TRACING_ENABLED
	store       *storeStack
	recorder    *recorder.Recorder // nil without RECORD_PATH
	servers     *servers

	// A part that is opened adds its background tasks, which run until their context ends, and what
	// closes it. The last part is closed first.
	tasks   []func(context.Context)
	closers []func()
}

// open returns a process that is ready to run, or closes the parts that it has opened.
func open(ctx context.Context, s *settings.Serve, log, audit *zap.Logger) (*process, error) {
	started := time.Now()
	hostname, _ := os.Hostname()
	p := &process{
		settings: s, hostname: hostname, log: log, audit: audit, metrics: telemetry.NewMetrics(versionOf()),
		logRequest: telemetry.RequestLog(log), ready: &readiness{}, gate: admission.NewGate(s.MaxInFlight),
		tasks: []func(context.Context){gctune.Run},
	}
	logPanic := telemetry.PanicLog(log)
	p.panicked = func(where string, value any) {
		p.metrics.Panicked()
		logPanic(where, value)
	}
	p.ready.onChange(func(ready bool) {
		if ready {
			log.Info("ready", zap.String("version", versionOf()), zap.Duration("took_seconds", time.Since(started)))
		}
	})
	p.stats = ratelimitstats.New(p.metrics.Registry, ratelimitstats.Options{
		NearLimitRatio: s.NearLimitRatio, Milliseconds: s.PrometheusMillis,
	})
	p.metrics.RegisterShedding(p.gate.Stats)
	if err := p.openParts(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// openParts opens the rules first, to report their faults immediately. It opens the listeners
// before the store, because a process that still holds a port has not saved its snapshot yet.
func (p *process) openParts(ctx context.Context) error {
	if err := p.openStatsd(); err != nil {
		return err
	}
	if err := p.openRules(); err != nil {
		return err
	}
	p.openObserver()
	p.openShadow()
	if err := p.openReceipts(); err != nil {
		return err
	}
	l, err := p.openListeners(ctx)
	if err != nil {
		return err
	}
	if err := p.openStore(ctx); err != nil {
		return err
	}
	if err := p.openRecorder(); err != nil {
		return err
	}
	return p.openServers(l)
}

// openStatsd opens the exporter to statsd or dogstatsd, if the settings enable one.
func (p *process) openStatsd() error {
	s := &p.settings.Stats
	if s.DisableStats || !s.UseStatsd && !s.UseDogStatsd {
		return nil
	}
	to, err := statsdDestination(s)
	if err != nil {
		return err
	}
	p.tasks = append(p.tasks, statsd.New(to, p.stats, p.metrics.Registry, p.log).Run)
	return nil
}

func statsdDestination(s *settings.Stats) (statsd.Destination, error) {
	to := statsd.Destination{
		Network: s.StatsdProtocol, Address: net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		FlushInterval: s.FlushInterval, Tags: s.Tags(),
	}
	var err error
	if s.UseDogStatsd {
		to.Network = "udp"
		to.Dog = true
		to.DogTags = statsd.DogTags(os.Getenv)
		to.Mogrifiers, err = statsd.Mogrifiers(s.Mogrifiers, os.Getenv)
	}
	return to, err
}

// tracesTimeout bounds the export of the last spans.
const tracesTimeout = 5 * time.Second

// openTracing returns a store with a span for each call of b, if the settings enable tracing;
// otherwise b. It is called after b was opened, so that the last spans are sent before b closes,
// which may wait for a Redis that hangs.
func (p *process) openTracing(ctx context.Context, b limiters.Store) (limiters.Store, error) {
	if !p.settings.TracingEnabled {
		return b, nil
	}
	t, err := tracing.Start(ctx, p.settings.Tracing, func(err error) { p.log.Warn("tracing failed", zap.Error(err)) })
	if err != nil {
		return nil, err
	}
	p.tracing = t
	p.flushAtClose(t.Stop, tracesTimeout, "last traces not sent")
	return t.Store(b), nil
}

// flushAtClose registers flush, which close calls to write the unwritten data of a part. If flush
// fails, the message failure is logged.
func (p *process) flushAtClose(flush func(context.Context) error, timeout time.Duration, failure string) {
	p.closers = append(p.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := flush(ctx); err != nil {
			p.log.Warn(failure, zap.Error(err))
		}
	})
}

// observe passes a finished request to the parts that count, log, compare and record it.
func (p *process) observe(o *rls.Observation) {
	p.metrics.Observe(o)
	p.stats.Observe(o)
	p.logRequest(o)
	if p.observer != nil {
		p.observer.Observe(&o.Result)
	}
	if p.shadow != nil {
		p.shadow.Observe(o.Request, &o.Result)
	}
	if p.recorder != nil {
		p.recorder.Record(&o.Result)
	}
}

// close closes the parts, the last one first. No request may be in flight.
func (p *process) close() {
	for _, closePart := range slices.Backward(p.closers) {
		closePart()
	}
}

// setReadyWithoutStore records that the store need not answer before the process is ready, if
// on_store_error decides every request.
func (p *process) setReadyWithoutStore(rules *descriptors.Rules) {
	if canDecideWithoutStore(rules) {
		p.ready.setStoreReady()
	}
}

// run serves until stop receives a signal, the end of ctx, or the failure of a part. It closes the
// store after the last call to it.
func (p *process) run(ctx context.Context, stop *stopper, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	p.servers.serve(group)
	p.setReadyWithoutStore(p.rules.Rules())
	for _, task := range p.tasks {
		group.Go(func() error { task(running); return nil })
	}
	group.Go(func() error { return prefixError("rules", p.rules.Watch(running)) })
	group.Go(func() error { p.reloadOn(running, reload); return nil })
	group.Go(func() error {
		p.drain(running, stop)
		stop.forceAfter(p.settings.StopTimeout)
		p.stopServers(stop)
		cancel()
		return nil
	})
	err := group.Wait()
	p.close()
	stop.done()
	p.log.Info("stopped")
	return err
}

// drain waits for a signal or the failure of a part, and then makes the process not ready. After
// SIGTERM it keeps serving for DRAIN_DELAY, so that proxies stop sending.
func (p *process) drain(ctx context.Context, stop *stopper) {
	received := stop.wait(ctx)
	if received != nil {
		p.log.Info("stopping", signalField(received))
	}
	p.ready.stop()
	if received == syscall.SIGTERM {
		stop.delay(p.settings.DrainDelay)
	}
}

// signalField returns a log field with the name of a signal, such as SIGTERM.
func signalField(s os.Signal) zap.Field {
	return zap.String("signal", unix.SignalName(s.(syscall.Signal)))
}
