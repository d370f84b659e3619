package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weir-rls/weir/internal/gctune"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/internal/ruleload"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recorder"
)

// A process is a running server. open sets its parts in the order of the fields, and close closes them in reverse. The methods that
// run, stop or feed an optional part do nothing if it is nil.
type process struct {
	settings *settings.Serve
	log      *zap.Logger
	metrics  *telemetry.Metrics
	stats    *ratelimitstats.Stats
	ready    *readiness
	panicked recovery.Report // logs and counts

	sender    *statsd.Sender // nil unless the settings ask for it
	rules     *ruleload.Loader
	shadow    *shadowFile  // nil without SHADOW_CONFIG
	receipts  *receiptKeys // nil without RECEIPT_HEADER
	listeners listenerSet
	store     *store
	recorder  *recorder.Recorder // nil without RECORD_PATH
	servers   *servers

	warnOfRules func(*descriptors.Rules) // see ruleWarnings
}

// open returns a process that is ready to run. It opens the rules first, to report their faults immediately. It opens the listeners
// before the store, because a process that still holds a port has not saved its snapshot yet.
func open(ctx context.Context, s *settings.Serve, log *zap.Logger) (_ *process, err error) {
	started := time.Now()
	p := &process{settings: s, log: log, metrics: telemetry.NewMetrics(versionOf()), ready: &readiness{}}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
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
	if err := p.openSender(); err != nil {
		return nil, err
	}
	if err := p.openRules(); err != nil {
		return nil, err
	}
	p.shadow = openShadow(s, p.rules, log, p.metrics)
	p.receipts, err = openReceiptKeys(&s.Responses, log)
	if err != nil {
		return nil, err
	}
	p.listeners, err = listen(ctx, s, log)
	if err != nil {
		return nil, err
	}
	p.store, err = openStore(ctx, s, p.rules.Rules, log, p.metrics, p.panicked)
	if err != nil {
		return nil, err
	}
	p.recorder, err = openRecorder(s, log, p.metrics)
	if err != nil {
		return nil, err
	}
	p.servers, err = p.newServers()
	if err != nil {
		return nil, err
	}
	return p, nil
}

// openSender opens the exporter to statsd or dogstatsd, if the settings enable one.
func (p *process) openSender() error {
	s := &p.settings.Stats
	if s.DisableStats || !s.UseStatsd && !s.UseDogStatsd {
		return nil
	}
	to, err := statsdDestination(s)
	if err != nil {
		return err
	}
	p.sender = statsd.New(to, p.stats, p.metrics.Registry, p.log)
	return nil
}

func statsdDestination(s *settings.Stats) (statsd.Destination, error) {
	to := statsd.Destination{
		Network: s.StatsdProtocol, Address: net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		Every: s.FlushInterval, Tags: s.Tags(),
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

// close closes the recorder, the store and the listeners, in this order. The other parts end with run.
func (p *process) close() {
	closeRecorder(p.recorder, p.log)
	if p.store != nil {
		p.store.close()
	}
	p.listeners.close()
}

// runStore maintains the store until ctx ends, and marks the process ready once the store has answered.
func (p *process) runStore(ctx context.Context) {
	p.readyWithoutStore(p.rules.Rules())
	p.store.run(ctx, p.ready.storeAnswered)
}

// readyWithoutStore marks the process ready without an answer of the store if on_store_error decides every request.
func (p *process) readyWithoutStore(rules *descriptors.Rules) {
	if canDecideWithoutStore(rules) {
		p.ready.storeAnswered()
	}
}

// run serves until stop receives a signal, the end of ctx, or the failure of a part. It closes the store after the last call to it.
func (p *process) run(ctx context.Context, stop *stopper, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	p.servers.serve(group)
	for _, part := range []func(context.Context){
		gctune.Run, p.servers.observer.Run, p.sender.Run, p.runStore, p.shadow.run, p.receipts.watch,
	} {
		group.Go(func() error { part(running); return nil })
	}
	group.Go(func() error { return prefixError("rules", p.rules.Watch(running, p.rulesReplaced)) })
	group.Go(func() error { p.reloadOn(running, reload); return nil })
	group.Go(func() error {
		p.drain(running, stop)
		stop.forceAfter(p.settings.StopTimeout)
		p.servers.stop(stop.forced, p.store.backend.save)
		cancel()
		return nil
	})
	err := group.Wait()
	p.close()
	stop.done()
	p.log.Info("stopped")
	return err
}

// drain waits for a signal or the failure of a part, and then makes the process not ready. After SIGTERM it keeps serving for
// DRAIN_DELAY, so that proxies stop sending.
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
