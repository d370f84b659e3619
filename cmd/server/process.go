package main

import (
	"context"
	"os"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/decisionstream"
	"github.com/weir-rls/weir/internal/gctune"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/receiptkeys"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/internal/ruleload"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/topkeys"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recorder"
	"github.com/weir-rls/weir/pkg/rls"
)

// An environment holds the inputs that the parts of a process share.
type environment struct {
	settings *settings.Serve
	hostname string // the host name at the start, which names this replica; may be ""
	log      *zap.Logger
	metrics  *telemetry.Metrics
	panicked recovery.Report // logs and counts

	// A part that is opened adds its background tasks, which run until their context ends, and what
	// closes it. The last part is closed first.
	tasks   []func(context.Context)
	closers []func()
}

// A process is a running server. [open] opens its parts, and run starts them, ends all requests and
// closes the parts.
type process struct {
	environment
	audit      *zap.Logger // logs the changes by the admin API
	stats      *ratelimitstats.Stats
	logRequest func(*rls.Observation)
	ready      *readiness
	gate       *admission.Gate

	loader      *ruleload.Loader
	topKeys     *topkeys.Counter       // nil without TOP_KEYS or ADMIN_ADDR
	decisions   *decisionstream.Stream // nil unless a setting needs it
	shadow      *shadowRules           // nil without SHADOW_CONFIG
	receiptKeys *receiptkeys.File      // nil without RECEIPT_HEADER
	store       *storeStack
	recorder    *recorder.Recorder // nil without RECORD_PATH
	servers     *servers
}

// open returns a process that is ready to run, or closes the parts that it has opened.
func open(ctx context.Context, s *settings.Serve, log, audit *zap.Logger) (*process, error) {
	started := time.Now()
	hostname, _ := os.Hostname()
	p := &process{
		environment: environment{
			settings: s, hostname: hostname, log: log, metrics: telemetry.NewMetrics(buildVersion()), tasks: []func(context.Context){gctune.Run},
		},
		audit: audit, logRequest: telemetry.RequestLog(log), ready: &readiness{}, gate: admission.NewGate(s.MaxInFlight),
	}
	logPanic := telemetry.PanicLog(log)
	p.panicked = func(where string, value any) {
		p.metrics.Panicked()
		logPanic(where, value)
	}
	p.ready.onChange(func(ready bool) {
		if ready {
			log.Info("ready", zap.String("version", buildVersion()), zap.Duration("took_seconds", time.Since(started)))
		}
	})
	p.stats = ratelimitstats.New(p.metrics.Registry, ratelimitstats.Options{
		NearLimitRatio: s.NearLimitRatio, Milliseconds: s.PrometheusMillis, Statsd: s.SendsStatsd(),
	})
	p.metrics.RegisterShedding(p.gate.Stats)
	if err := p.openParts(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// openParts opens the parts. The servers are last, because they use all others.
func (p *process) openParts(ctx context.Context) (err error) {
	if err := grpcmessage.CheckTransport(ctx); err != nil {
		return err
	}
	if err := p.openStatsd(p.stats); err != nil {
		return err
	}
	// Faults of the rules are reported before the process waits for ports.
	if p.loader, err = p.openLoader(); err != nil {
		return err
	}
	p.topKeys = p.openTopKeys()
	p.decisions = p.openDecisionStream()
	p.shadow = p.openShadow(p.loader)
	if p.receiptKeys, err = p.openReceiptKeys(); err != nil {
		return err
	}
	// The ports come before the store: a process that still holds one has not saved its snapshot.
	l, err := p.openListeners(ctx)
	if err != nil {
		return err
	}
	if p.store, err = p.openStore(ctx, p.loader.Rules, p.ready); err != nil {
		return err
	}
	if p.recorder, err = p.openRecorder(); err != nil {
		return err
	}
	p.servers, err = p.openServers(l)
	return err
}

// run serves until stop receives a signal, the end of ctx, or the failure of a part. Then it shuts
// the process down.
func (p *process) run(ctx context.Context, stop *stopper, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	p.start(running, group, reload)
	group.Go(func() error {
		p.endRequests(stop.wait(running), stop)
		cancel()
		return nil
	})
	err := group.Wait()
	p.close()
	stop.done()
	p.log.Info("stopped")
	return err
}

// start starts the servers, and the background tasks, which run until ctx ends.
func (p *process) start(ctx context.Context, group *errgroup.Group, reload <-chan os.Signal) {
	p.servers.serve(group)
	p.setReadyWithoutStore(p.loader.Rules())
	for _, task := range p.tasks {
		group.Go(func() error { task(ctx); return nil })
	}
	group.Go(func() error { return prefixError("rules", p.loader.Watch(ctx)) })
	group.Go(func() error { p.reloadOn(ctx, reload); return nil })
}

// unwindTimeout is how long endRequests waits for handlers after it has closed their connections.
const unwindTimeout = time.Second

// endRequests makes the process not ready, ends all requests, and saves the counters after the last
// one. received is the signal that stops the process, or nil. Requests in flight may finish until
// the stop is forced.
func (p *process) endRequests(received os.Signal, stop *stopper) {
	if received != nil {
		p.log.Info("stopping", signalField(received))
	}
	p.ready.stop()
	if received == syscall.SIGTERM {
		stop.delay(p.settings.DrainDelay) // proxies stop sending meanwhile
	}
	stop.forceAfter(p.settings.StopTimeout)
	stopGRPC(stop.forced, p.servers.grpc, p.gate)
	p.gate.CloseAndWait(stop.forced)
	if admin := p.servers.admin; admin != nil {
		admin.stop(stop.forced) // before the save, so that the snapshot has its resets
	}
	stop.save(p.store.save)
	// The next process binds these ports first, so it loads a complete snapshot.
	p.servers.stopHTTP(stop.forced)
	// The handlers whose connections were just closed still end.
	ctx, cancel := context.WithTimeout(context.Background(), unwindTimeout)
	defer cancel()
	p.gate.CloseAndWait(ctx)
}

// close closes the parts, the last one first. No request may be in flight.
func (e *environment) close() {
	for _, closePart := range slices.Backward(e.closers) {
		closePart()
	}
}

// flushAtClose registers flush, which close calls to write the unwritten data of a part. If flush
// fails, the message failure is logged.
func (e *environment) flushAtClose(flush func(context.Context) error, timeout time.Duration, failure string) {
	e.closers = append(e.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := flush(ctx); err != nil {
			e.log.Warn(failure, zap.Error(err))
		}
	})
}

// observe passes a finished request to the parts that count, log, compare and record it.
func (p *process) observe(o *rls.Observation) {
	p.metrics.Observe(o)
	p.stats.Observe(o)
	p.logRequest(o)
	if p.topKeys != nil {
		p.topKeys.Add(&o.Result)
	}
	if p.decisions != nil {
		p.decisions.Publish(&o.Result)
	}
	if p.shadow != nil {
		p.shadow.Observe(o.Request, &o.Result)
	}
	if p.recorder != nil {
		p.recorder.Record(&o.Result)
	}
}

// setReadyWithoutStore records that the store need not answer before the process is ready, if
// on_store_error decides every request.
func (p *process) setReadyWithoutStore(rules *descriptors.Rules) {
	if canDecideWithoutStore(rules) {
		p.ready.setStoreReady()
	}
}

// signalField returns a log field with the name of a signal, such as SIGTERM.
func signalField(s os.Signal) zap.Field {
	return zap.String("signal", unix.SignalName(s.(syscall.Signal)))
}
