package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
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

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(stop)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	metrics := telemetry.NewMetrics(versionOf())
	rules := &ruleSource{file: &sources.File{Path: s.Rules()}, log: log, metrics: metrics}
	if err := rules.load(); err != nil {
		return err
	}
	store, err := openStore(&s.Serve, log, metrics)
	if err != nil {
		return err
	}
	defer store.close()

	ready := newReadiness()
	logAnswer := telemetry.AnswerLog(log)
	service := rls.New(rules.live.Rules, store, func(a *rls.Answer) {
		metrics.Answered(a)
		logAnswer(a)
	})
	listeners, err := listen(&s.Serve)
	if err != nil {
		return err
	}
	grpcServer := newGRPC(service, ready, log, metrics)
	httpServer, debugServer := newHTTP(ready, metrics), newDebug()
	log.Info("listening", zap.Stringer("grpc", listeners.grpc.Addr()), zap.Stringer("http", listeners.http.Addr()),
		zap.Stringer("debug", listeners.debug.Addr()), zap.String("store", s.BackendType), zap.String("rules", s.Rules()))

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return named("grpc", grpcServer.Serve(listeners.grpc)) })
	group.Go(func() error { return serveHTTP("http", httpServer, listeners.http) })
	group.Go(func() error { return serveHTTP("debug", debugServer, listeners.debug) })
	group.Go(func() error { return rules.watch(running, reload) })
	group.Go(func() error { store.await(running, ready.set); return nil })
	group.Go(func() error {
		var how os.Signal
		select {
		case how = <-stop:
			log.Info("stopping", zap.Stringer("signal", how))
		case <-running.Done():
		}
		// In order: turn the proxies away, let what they asked for end, then end the rest.
		ready.stop()
		if how == syscall.SIGTERM {
			drain(s.DrainDelay, stop)
		}
		stopGRPC(grpcServer, s.StopTimeout)
		stopHTTP(s.StopTimeout, httpServer, debugServer)
		cancel()
		return nil
	})
	err = group.Wait()
	log.Info("stopped")
	return err
}

// drain lets time pass in which the server still answers. Another signal cuts it short.
func drain(d time.Duration, stop <-chan os.Signal) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ruleSource keeps the rules of the moment in step with the files.
type ruleSource struct {
	file    *sources.File
	live    descriptors.Live
	log     *zap.Logger
	metrics *telemetry.Metrics
}

// load reads the rules at start, when there are no old ones to keep.
func (r *ruleSource) load() error {
	files, err := r.file.Read()
	if err != nil {
		return fmt.Errorf("no rules: %w (--config or CONFIG_PATH names the file or folder)", err)
	}
	if err := r.live.Load(files); err != nil {
		return fmt.Errorf("the rules of %s have faults:\n%w", r.file.Path, err)
	}
	r.loaded()
	return nil
}

func (r *ruleSource) loaded() {
	rules := r.live.Rules()
	for _, w := range rules.Warnings() {
		r.log.Warn("suspicious rule", zap.Stringer("at", w))
	}
	r.metrics.Loaded(rules, time.Now(), nil)
	domains, n := rules.Counts()
	r.log.Info("rules loaded", zap.Int("domains", domains), zap.Int("rules", n))
}

// watch loads the rules when they change, until ctx ends. Rules with a fault change nothing.
func (r *ruleSource) watch(ctx context.Context, reload <-chan os.Signal) error {
	var group errgroup.Group
	group.Go(func() error {
		for {
			select {
			case <-reload:
				r.file.Reload()
			case <-ctx.Done():
				return nil
			}
		}
	})
	err := r.file.Watch(ctx, func(files []descriptors.File, err error) {
		if err == nil {
			err = r.live.Load(files)
		}
		if err != nil {
			r.log.Error("rules not loaded, the old ones stay", zap.String("path", r.file.Path), zap.String("error", brief(err)))
			r.metrics.Loaded(nil, time.Now(), err)
			return
		}
		r.loaded()
	})
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return named("rules", err)
}

// brief is an error for the log, which tells the first of many faults.
func brief(err error) string {
	const most = 20
	var faults descriptors.Faults
	if !errors.As(err, &faults) || len(faults) <= most {
		return err.Error()
	}
	return fmt.Sprintf("%v\nand %d more: weir check prints them all", faults[:most], len(faults)-most)
}

// readiness tells whether the server wants requests: once its store has answered, until it stops.
type readiness struct {
	mu             sync.Mutex
	ready, stopped bool
	changed        func(ready bool) // called with every change, before is tells it
}

func newReadiness() *readiness { return &readiness{changed: func(bool) {}} }

// onChange calls f now, and from now on with every change.
func (r *readiness) onChange(f func(ready bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = f
	f(r.ready && !r.stopped)
}

func (r *readiness) set() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(!r.stopped)
	r.ready = true
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(false)
	r.stopped = true
}

func (r *readiness) is() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready && !r.stopped
}
