package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/rls"
)

// servers are the network servers of the process.
type servers struct {
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

// openServers opens the servers, which serve starts. All other parts must be open.
func (p *process) openServers(l listenerSet) (*servers, error) {
	s := p.settings
	service := rls.New(decide.New(p.loader.Rules, p.store.fallback, decideOptions(s)), p.rlsOptions())
	options, err := grpcOptions(&s.Listeners, p.log)
	if err != nil {
		return nil, err
	}
	if p.store.tracing != nil {
		options = append(options, p.store.tracing.GRPC())
	}
	var jsonHandler http.Handler // nil unless /json is served
	if s.JSON {
		jsonHandler = p.panicked.HTTP(p.gate.Handler(service, rls.MaxBodyBytes))
	}
	all := &servers{
		grpc:         p.newGRPC(service, options...),
		grpcListener: admission.NewListener(l.grpc, p.gate),
		http: []httpServer{
			{"http", newHTTP(jsonHandler, p.ready, p.metrics), l.http},
			{"debug", newDebug(p.loader.Rules), l.debug},
		},
	}
	if l.prometheus != nil {
		all.http = append(all.http, httpServer{"prometheus", newPrometheus(s.PrometheusPath, p.metrics), l.prometheus})
	}
	if l.admin != nil {
		all.admin, err = p.openAdmin(l.admin)
		if err != nil {
			return nil, err
		}
	}
	p.logListening(l)
	return all, nil
}

func (p *process) rlsOptions() rls.Options {
	s := p.settings
	options := rls.Options{
		Observe:          p.observe,
		DynamicMetadata:  s.ResponseDynamicMetadata,
		StandardHeaders:  s.ResponseHeadersStandard != "",
		RetryAfterJitter: s.Jitter,
		DeniedByHeader:   s.ResponseHeaderDeniedBy,
	}
	if p.receiptKeys != nil {
		options.Receipts = rls.Receipts{
			Header: s.ReceiptHeader, Keys: p.receiptKeys.Keys, Replica: p.hostname, KeyHashSecret: []byte(s.KeyHashSecret),
		}
	}
	if s.ResponseHeaders {
		options.Headers = rls.Headers{Limit: s.LimitHeader, Remaining: s.RemainingHeader, Reset: s.ResetHeader}
	}
	return options
}

func (p *process) logListening(l listenerSet) {
	fields := []zap.Field{
		zap.String("version", buildVersion()), zap.Stringer("grpc", l.grpc.Addr()), zap.Stringer("http", l.http.Addr()),
		zap.Stringer("debug", l.debug.Addr()),
	}
	if l.prometheus != nil {
		fields = append(fields, zap.Stringer("prometheus", l.prometheus.Addr()))
	}
	if l.admin != nil {
		fields = append(fields, zap.Stringer("admin", l.admin.Addr()))
	}
	p.log.Info("listening", append(fields, zap.String("store", p.settings.BackendType), zap.String("source", p.loader.Source()))...)
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
	if s.admin != nil {
		group.Go(func() error {
			s.admin.serve()
			return nil
		})
	}
}

// stopHTTP stops all HTTP servers except that of the admin API, see [stopHTTPServer].
func (s *servers) stopHTTP(ctx context.Context) {
	var all sync.WaitGroup
	for _, h := range s.http {
		all.Go(func() { stopHTTPServer(ctx, h.server) })
	}
	all.Wait()
}

func prefixError(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
