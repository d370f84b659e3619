package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/rls"
)

type listeners struct{ grpc, http, debug net.Listener }

// listen opens all listeners or none.
func listen(s *settings.Serve) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for _, one := range []struct {
		to       *net.Listener
		variable string
		host     string
		port     uint16
	}{
		{&l.grpc, "GRPC_PORT", s.GRPCHost, s.GRPCPort},
		{&l.http, "PORT", s.Host, s.Port},
		{&l.debug, "DEBUG_PORT", s.DebugHost, s.DebugPort},
	} {
		if *one.to, err = net.Listen("tcp", net.JoinHostPort(one.host, strconv.Itoa(int(one.port)))); err != nil {
			return l, fmt.Errorf("%s: %w", one.variable, err)
		}
	}
	return l, nil
}

func (l listeners) close() {
	for _, one := range []net.Listener{l.grpc, l.http, l.debug} {
		if one != nil {
			_ = one.Close()
		}
	}
}

// serviceName is the name that health checks know the service by, as in envoyproxy/ratelimit.
const serviceName = "ratelimit"

// pingsAllowed: proxies ping idle connections, and grpc-go's default answers those who do with GOAWAY too_many_pings.
var pingsAllowed = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}

// maxStreams is how many requests a connection may have under way: as many as Envoy opens on one by default.
const maxStreams = 1024

func newGRPC(service *rls.Service, ready *readiness, log *zap.Logger, metrics *telemetry.Metrics) *grpc.Server {
	server := grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(pingsAllowed),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.UnaryInterceptor(recovering(log, metrics)),
	)
	ratelimitv3.RegisterRateLimitServiceServer(server, service)
	checks := health.NewServer()
	healthv1.RegisterHealthServer(server, checks)
	ready.onChange(func(ready bool) {
		serving := healthv1.HealthCheckResponse_NOT_SERVING
		if ready {
			serving = healthv1.HealthCheckResponse_SERVING
		}
		checks.SetServingStatus("", serving)
		checks.SetServingStatus(serviceName, serving)
	})
	return server
}

// recovering turns a bug of ours, met by one request, into an error of that request alone.
func recovering(log *zap.Logger, metrics *telemetry.Metrics) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		defer func() {
			if p := recover(); p != nil {
				metrics.Panicked()
				log.Error("a bug of weir's: please report it", zap.String("method", info.FullMethod), zap.Any("panic", p),
					zap.ByteString("stack", debug.Stack()))
				reply, err = nil, status.Error(codes.Internal, "internal error")
			}
		}()
		return handler(ctx, req)
	}
}

// stopGRPC turns connections away, and ends those that have not ended in time.
func stopGRPC(server *grpc.Server, most time.Duration) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	wg.Go(func() {
		server.GracefulStop()
		close(ended)
	})
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		server.Stop()
	}
}

func newHTTP(ready *readiness, metrics *telemetry.Metrics) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.is() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK"))
	})
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	return bounded(mux, 10*time.Second)
}

func newDebug() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return bounded(mux, 5*time.Minute)
}

// bounded is a server whose every wait has an end.
func bounded(h http.Handler, write time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: write,
		IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 16,
	}
}

func serveHTTP(what string, server *http.Server, l net.Listener) error {
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return named(what, err)
	}
	return nil
}

func stopHTTP(most time.Duration, servers ...*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
	}
}
