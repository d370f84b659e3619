package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/rls"
)

// servers are the network servers of the process.
type servers struct {
	gate         *admission.Gate
	observer     *observe.Observer
	grpc         *grpc.Server
	grpcListener net.Listener
	http         []httpServer
	admin        *adminServer // nil without ADMIN_ADDR
}

type httpServer struct {
	name     string
	server   *http.Server
	listener net.Listener
}

func (h *httpServer) serve() error {
	if err := h.server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
		return prefixError(h.name, err)
	}
	return nil
}

// newServers returns the servers of p, whose other parts must be open.
func (p *process) newServers() (*servers, error) {
	s := p.settings
	l := p.listeners
	metrics := p.metrics
	observer := newObserver(s, l.admin != nil, p.log, metrics)
	o := decideOptions(s)
	o.EndLocally = p.store.fallback.EndLocally
	service := rls.New(decide.New(p.rules.Rules, p.store.fallback, o), p.rlsOptions(observer))
	serverOptions, err := grpcOptions(&s.Listeners, p.log)
	if err != nil {
		return nil, err
	}
	gate := admission.NewGate(s.MaxInFlight)
	metrics.RegisterLoad(gate.Stats)
	var jsonHandler http.Handler // nil unless /json is served
	if s.JSON {
		jsonHandler = p.panicked.HTTP(gate.Handler(service, rls.MaxBody))
	}
	all := &servers{
		gate:         gate,
		observer:     observer,
		grpc:         newGRPC(service, gate, p.ready, p.panicked, p.stats, append(serverOptions, p.store.traces.GRPC()...)...),
		grpcListener: admission.NewListener(l.grpc, gate),
		http: []httpServer{
			{"http", newHTTP(jsonHandler, p.ready, metrics), l.http},
			{"debug", newDebug(p.rules.Rules), l.debug},
		},
	}
	if l.prometheus != nil {
		all.http = append(all.http, httpServer{"prometheus", newPrometheus(s.PrometheusPath, metrics), l.prometheus})
	}
	if l.admin != nil {
		all.admin, err = p.newAdmin(all)
		if err != nil {
			return nil, err
		}
	}
	p.logListening()
	return all, nil
}

func (p *process) rlsOptions(observer *observe.Observer) rls.Options {
	s := p.settings
	logRequest := telemetry.RequestLog(p.log)
	options := rls.Options{
		Observe: func(o *rls.Observation) {
			p.metrics.Observe(o)
			p.stats.Observe(o)
			logRequest(o)
			observer.Observe(&o.Result)
			p.shadow.observe(o)
			p.recorder.Record(&o.Result)
		},
		DynamicMetadata:  s.ResponseDynamicMetadata,
		StandardHeaders:  s.ResponseHeadersStandard != "",
		RetryAfterJitter: s.Jitter(),
		DeniedByHeader:   s.ResponseHeaderDeniedBy,
		Receipts:         p.receipts.options(s),
	}
	if s.ResponseHeaders {
		options.Headers = rls.Headers{Limit: s.LimitHeader, Remaining: s.RemainingHeader, Reset: s.ResetHeader}
	}
	return options
}

func (p *process) logListening() {
	l := p.listeners
	fields := []zap.Field{
		zap.String("version", versionOf()), zap.Stringer("grpc", l.grpc.Addr()), zap.Stringer("http", l.http.Addr()),
		zap.Stringer("debug", l.debug.Addr()),
	}
	if l.prometheus != nil {
		fields = append(fields, zap.Stringer("prometheus", l.prometheus.Addr()))
	}
	if l.admin != nil {
		fields = append(fields, zap.Stringer("admin", l.admin.Addr()))
	}
	p.log.Info("listening", append(fields, zap.String("store", p.settings.BackendType), zap.String("source", p.rules.Source()))...)
}

func decideOptions(s *settings.Serve) decide.Options {
	return decide.Options{
		ShadowMode:     s.ShadowMode,
		QuotaMode:      s.QuotaMode,
		AllOrNothing:   s.StopCacheKeyIncrementWhenOverlimit,
		LeaseSecret:    []byte(s.KeyHashSecret),
		EndTimeout:     s.StoreTimeout,
		CalendarMonths: s.UseCalendarMonthRateLimit,
	}
}

func (s *servers) serve(group *errgroup.Group) {
	group.Go(func() error {
		err := s.grpc.Serve(s.grpcListener)
		if errors.Is(err, grpc.ErrServerStopped) {
			return nil // stopped before Serve was called
		}
		return prefixError("grpc", err)
	})
	for _, h := range s.http {
		group.Go(h.serve)
	}
	group.Go(func() error { s.admin.serve(); return nil })
}

// unwindTimeout is how long stop waits for handlers after it has closed their connections.
const unwindTimeout = time.Second

// stop waits for the requests and admin calls in flight, at most until ctx ends, calls save, and closes the HTTP servers. It frees
// their ports last, so that the next process, which binds them first, loads a complete snapshot.
func (s *servers) stop(ctx context.Context, save func()) {
	stopGRPC(ctx, s.grpc, s.gate)
	s.gate.Close(ctx)
	s.admin.stop(ctx) // before save, so that the snapshot has its resets
	save()
	var all sync.WaitGroup
	for _, h := range s.http {
		all.Go(func() { stopHTTP(ctx, h.server) })
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), unwindTimeout)
	defer cancel()
	s.gate.Close(ctx)
}

func prefixError(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
