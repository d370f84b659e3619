package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/gctune"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tracing"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/rls"
)

type serve struct {
	settings.Serve `embed:""`
}

// Run serves until a signal, or the end of ctx, stops it.
func (s *serve) Run(ctx context.Context, to streams) error {
	level, err := s.Level()
	if err != nil {
		return err
	}
	log := telemetry.NewLog(to.err, level, s.LogFormat)
	defer func() { _ = log.Sync() }()
	inert, err := settings.InertSet()
	if err != nil {
		return err
	}
	for _, line := range inert {
		log.Info(line)
	}
	for _, line := range s.Idle() {
		log.Warn(line)
	}
	limitMemory(log)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT) // for good: one that comes after the end is not to kill what ends by itself
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	metrics := telemetry.NewMetrics(versionOf())
	stats := ratelimitstats.New(metrics.Registry, ratelimitstats.Options{
		NearLimitRatio: s.NearLimitRatio, Milliseconds: s.PrometheusMillis,
	})
	sender, err := newSender(&s.Stats, stats, metrics, log)
	if err != nil {
		return err
	}
	ready := newReadiness()
	rulesThere, storeAnswered := ready.need(), ready.need()
	rules, err := newRuleSource(&s.Serve, log, metrics, stats, rulesThere)
	if err != nil {
		return err
	}
	store, err := openStore(&s.Serve, log, metrics)
	if err != nil {
		return err
	}
	store.close = sync.OnceFunc(store.close)
	defer store.close()
	traces, err := tracing.Start(ctx, s.Tracing, func(err error) { log.Warn("traces", zap.Error(err)) })
	if err != nil {
		return err
	}
	defer func() {
		if err := traces.Stop(); err != nil {
			log.Warn("traces not sent", zap.Error(err))
		}
	}()
	// The cache stands before what is traced: a trace shows what Redis was asked.
	remembering, drop, forget := remember(&s.Serve, traces.Store(store.Store), log, metrics)
	defer forget()
	sharing := newReplicas(&s.Serve, log)
	fallback, tidy := fallBack(&s.Serve, remembering, sharing, rules, log, metrics)
	store.Store = fallback
	doWithout := func() {
		if canDoWithout(rules.live.Load()) {
			storeAnswered()
		}
	}
	rules.replaced = func() {
		drop()
		fallback.Forget()
		doWithout()
	}
	p, err := newServers(&s.Serve, rules, store, ready, log, metrics, stats, traces.GRPC()...)
	if err != nil {
		return err
	}

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	// What has not ended when that is over is given up: a store that hangs is closed under those who wait for it.
	stopping, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	keepStore := context.AfterFunc(stopping, store.close)
	ended := make(chan struct{})
	var hurrying sync.WaitGroup
	group, running := errgroup.WithContext(running)
	p.serve(group)
	group.Go(func() error { gctune.Run(running); return nil })
	if sender != nil {
		group.Go(func() error { sender.Run(running); return nil })
	}
	group.Go(func() error { return rules.watch(running, reload) })
	group.Go(func() error { store.await(running, storeAnswered); return nil })
	group.Go(func() error { sharing.watch(running); return nil })
	group.Go(func() error { tidy(running); return nil })
	doWithout()
	group.Go(func() error {
		s.stopOn(running, signals, ready, log)
		hurrying.Go(func() { s.hurry(ended, signals, giveUp) })
		p.stop(stopping)
		cancel()
		return nil
	})
	err = group.Wait()
	close(ended)
	hurrying.Wait()
	keepStore()
	store.stopped()
	log.Info("stopped")
	return err
}

// stopOn waits for a signal, or for a server that failed, and turns the proxies away.
func (s *serve) stopOn(ctx context.Context, signals <-chan os.Signal, ready *readiness, log *zap.Logger) {
	var how os.Signal
	select {
	case how = <-signals:
		log.Info("stopping", zap.Stringer("signal", how))
	case <-ctx.Done():
	}
	ready.stop()
	if how == syscall.SIGTERM {
		drain(s.DrainDelay, signals)
	}
}

// hurry gives up what has not ended after STOP_TIMEOUT, or with one more signal. No signal ends the process itself: what
// remains is short, and saves the counters.
func (s *serve) hurry(ended <-chan struct{}, signals <-chan os.Signal, giveUp func()) {
	timer := time.NewTimer(s.StopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return
	case <-signals:
	case <-timer.C:
	}
	giveUp()
}

// newSender is what sends metrics to statsd or dogstatsd; nil if nothing does.
func newSender(
	s *settings.Stats, from statsd.Source, metrics *telemetry.Metrics, log *zap.Logger,
) (*statsd.Sender, error) {
	if s.DisableStats || !s.UseStatsd && !s.UseDogStatsd {
		return nil, nil
	}
	tags, err := s.Tags()
	if err != nil {
		return nil, fmt.Errorf("EXTRA_TAGS: %w", err)
	}
	to := statsd.Destination{
		Network: s.StatsdProtocol, Address: net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		Every: s.FlushInterval, Tags: tags,
	}
	if s.UseDogStatsd {
		to.Network, to.Dog, to.DogTags = "udp", true, statsd.DogTags(os.Getenv)
		if to.Mogrifiers, err = statsd.Mogrifiers(s.Mogrifiers, os.Getenv); err != nil {
			return nil, err
		}
	}
	return statsd.New(to, from, metrics.Registry, log), nil
}

// drain lets time pass in which the server still answers. Another signal cuts it short.
func drain(d time.Duration, signals <-chan os.Signal) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-signals:
	}
}

// servers are what listens.
type servers struct {
	grpc         *grpc.Server
	grpcListener net.Listener
	http         []httpServer
}

type httpServer struct {
	name     string
	server   *http.Server
	listener net.Listener
}

func newServers(
	s *settings.Serve, rules *ruleSource, store *store, ready *readiness, log *zap.Logger, metrics *telemetry.Metrics,
	stats *ratelimitstats.Stats, traces ...grpc.ServerOption,
) (*servers, error) {
	logAnswer := telemetry.AnswerLog(log)
	options := rls.Options{
		Observe: func(o *rls.Observation) {
			metrics.Answered(o)
			stats.Answered(o)
			logAnswer(o)
		},
		DynamicMetadata: s.ResponseDynamicMetadata,
	}
	if s.ResponseHeaders {
		options.Headers = rls.Headers{Limit: s.LimitHeader, Remaining: s.RemainingHeader, Reset: s.ResetHeader}
	}
	service := rls.New(decide.New(rules.live.Load, store, decide.Options{
		ShadowMode: s.ShadowMode, QuotaMode: s.QuotaMode, AllOrNothing: s.StopCacheKeyIncrementWhenOverlimit,
	}), options)
	grpcOptions, err := grpcOptions(&s.Listeners, log)
	if err != nil {
		return nil, err
	}
	requests := admission.NewInFlight(s.MaxInFlight)
	metrics.Load(func() telemetry.LoadStats { return telemetry.LoadStats(requests.Stats()) })
	l, err := listen(s)
	if err != nil {
		return nil, err
	}
	var byHTTP http.Handler
	if s.JSON {
		byHTTP = requests.Handler(service, rls.MaxBody)
	}
	all := &servers{
		grpc:         newGRPC(service, requests, ready, log, metrics, stats, append(grpcOptions, traces...)...),
		grpcListener: admission.NewListener(l.grpc, requests),
		http: []httpServer{
			{"http", newHTTP(byHTTP, ready, metrics), l.http},
			{"debug", newDebug(rules.live.Load), l.debug},
		},
	}
	if l.prometheus != nil {
		all.http = append(all.http, httpServer{"prometheus", newPrometheus(s.PrometheusPath, metrics), l.prometheus})
	}
	fields := []zap.Field{zap.Stringer("grpc", l.grpc.Addr())}
	for _, one := range all.http {
		fields = append(fields, zap.Stringer(one.name, one.listener.Addr()))
	}
	log.Info("listening", append(fields, zap.String("store", s.BackendType), zap.String("rules", rules.from))...)
	return all, nil
}

func (s *servers) serve(group *errgroup.Group) {
	group.Go(func() error {
		err := s.grpc.Serve(s.grpcListener)
		if errors.Is(err, grpc.ErrServerStopped) {
			return nil // told to stop before it began
		}
		return named("grpc", err)
	})
	for _, one := range s.http {
		group.Go(func() error { return serveHTTP(one.name, one.server, one.listener) })
	}
}

// stop waits for what is under way, and ends what has not ended with ctx.
func (s *servers) stop(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { stopGRPC(ctx, s.grpc) })
	for _, one := range s.http {
		all.Go(func() { stopHTTP(ctx, one.server) })
	}
	all.Wait()
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
