package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/rls"
)

// serviceName is the health-check name of the service, the same as in envoyproxy/ratelimit.
const serviceName = "ratelimit"

// pingsAllowed permits keepalive pings of idle connections every five seconds. By default grpc-go closes such connections with
// GOAWAY too_many_pings.
var pingsAllowed = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}

// maxStreams bounds the requests in flight on one connection. 128 keep its one reader and one writer goroutine busy; beyond that,
// Envoy should open another connection, which another CPU or replica can serve.
const maxStreams = 128

// connWindow and streamWindow are the flow-control windows of a connection and of a stream, in bytes. Fixed windows turn off grpc-go's
// bandwidth estimation, whose PING in each round trip pays off only for long streams. A client can fill the window of each of its
// streams with bytes that nobody reads, so the window of a stream is the smallest that grpc-go accepts.
const (
	connWindow   = 1 << 20
	streamWindow = 64 << 10
)

// maxHeaders bounds the headers of a request, in bytes. Envoy sends a few hundred; grpc-go would allow 16 MiB for each of
// maxStreams.
const maxHeaders = 64 << 10

// workersPerCPU is the number of worker goroutines for each CPU. Without workers, growing the stack of a new goroutine takes a
// fifth of a request's CPU time. More workers than concurrent requests would evict each other's stacks from the CPU caches. If all
// workers are busy, grpc-go starts a goroutine for the request.
const workersPerCPU = 32

// grpcOptions returns the server options for the settings.
func grpcOptions(s *settings.Listeners, log *zap.Logger) ([]grpc.ServerOption, error) {
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: s.MaxConnectionAge, MaxConnectionAgeGrace: s.MaxConnectionAgeGrace,
		}),
	}
	if !s.ServerUseTLS {
		return options, nil
	}
	clients, err := clientNames(s)
	if err != nil {
		return nil, err
	}
	files := tlsfiles.Server{Cert: s.ServerCert, Key: s.ServerKey, ClientCA: s.ClientCA, Clients: clients}
	config, err := files.Config(func(err error) { log.Error("certificates not reloaded, the old ones stay", zap.Error(err)) })
	if err != nil {
		return nil, fmt.Errorf("GRPC_SERVER_TLS_CERT: %w", err)
	}
	return append(options, grpc.Creds(credentials.NewTLS(config))), nil
}

// clientNames returns the names of which a client certificate must have one.
func clientNames(s *settings.Listeners) (tlsfiles.Names, error) {
	names, err := tlsfiles.ParseNames(s.ClientSAN)
	if err != nil {
		return nil, fmt.Errorf("GRPC_CLIENT_TLS_SAN: %w", err)
	}
	return names, nil
}

func newGRPC(
	service *rls.Service, requests *admission.InFlight, ready *readiness, log *zap.Logger, metrics *telemetry.Metrics,
	stats *ratelimitstats.Stats, options ...grpc.ServerOption,
) *grpc.Server {
	server := grpc.NewServer(slices.Concat(options, []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(pingsAllowed),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.NumStreamWorkers(uint32(workersPerCPU * runtime.GOMAXPROCS(0))),
		grpc.ChainUnaryInterceptor(stats.Unary, recoverUnary(log, metrics)),
		grpc.ChainStreamInterceptor(recoverStream(log, metrics)),
	}, grpcmessage.ServerOptions())...)
	desc := rls.ServiceDesc(newAdmitter(requests, service))
	server.RegisterService(recoverMethods(desc, log, metrics, stats), service)
	checks := health.NewServer()
	healthv1.RegisterHealthServer(grpcmessage.Registrar{ServiceRegistrar: server}, grpcmessage.HealthServer{Server: checks, Service: serviceName})
	reflection.Register(server)
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

const shouldRateLimit = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName

// recoverMethods makes the methods of desc, which skip interceptors, recover from panics.
func recoverMethods(
	desc *grpc.ServiceDesc, log *zap.Logger, metrics *telemetry.Metrics, stats *ratelimitstats.Stats,
) *grpc.ServiceDesc {
	for i := range desc.Methods {
		m := &desc.Methods[i]
		name, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (response any, err error) {
			defer func() {
				if p := recover(); p != nil {
					metrics.Panicked()
					stats.Panicked()
					response, err = nil, logPanic(log, name, p)
				}
			}()
			return handle(service, ctx, decode, nil)
		}
	}
	return desc
}

// recoverUnary turns a panic of a handler into an INTERNAL error of that request.
func recoverUnary(log *zap.Logger, metrics *telemetry.Metrics) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		defer func() {
			if p := recover(); p != nil {
				metrics.Panicked()
				reply, err = nil, logPanic(log, info.FullMethod, p)
			}
		}()
		return handler(ctx, req)
	}
}

// recoverStream is [recoverUnary] for streams.
func recoverStream(log *zap.Logger, metrics *telemetry.Metrics) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if p := recover(); p != nil {
				metrics.Panicked()
				err = logPanic(log, info.FullMethod, p)
			}
		}()
		return handler(service, stream)
	}
}

// logPanic logs a panic and returns an INTERNAL error that reveals nothing of it.
func logPanic(log *zap.Logger, method string, p any) error {
	log.Error("bug in Weir, please report it", zap.String("method", method), zap.Any("panic", p),
		zap.ByteString("stack", debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// idleToStop is how long no request may be in flight before stopGRPC closes the connections. It leaves time for messages whose
// headers have arrived, and for responses to reach their clients.
const idleToStop = time.Second

// stopGRPC rejects new connections and waits until no request is in flight, or ctx ends. Then it closes all connections, because a
// client could keep a health watch or an incomplete request open forever. It returns when all handlers have returned.
func stopGRPC(ctx context.Context, server *grpc.Server, requests *admission.InFlight) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	wg.Go(func() {
		server.GracefulStop()
		close(ended)
	})
	tick := time.NewTicker(idleToStop / 100)
	defer tick.Stop()
	for idle := time.Now(); time.Since(idle) < idleToStop; {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			server.Stop()
			return
		case <-tick.C:
			if requests.Stats().InFlight > 0 {
				idle = time.Now()
			}
		}
	}
	server.Stop()
}
