package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
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
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/rls"
)

// serviceName is the name of the service in health checks, as in envoyproxy/ratelimit.
const serviceName = "ratelimit"

// pingsAllowed lets proxies ping idle connections every five seconds. By default grpc-go answers such pings with GOAWAY
// too_many_pings.
var pingsAllowed = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}

// maxStreams is how many requests may be in flight on a connection. A connection has one reader and one writer, which 128
// requests keep busy. Past that, Envoy should open another connection, which another CPU or replica can serve.
const maxStreams = 128

// windowSize is the flow-control window of a stream and of a connection, in bytes. By default grpc-go measures it with a
// PING each round trip, which only long streams repay.
const windowSize = 1 << 20

// maxHeaders is how many bytes the headers of a request may have. Envoy sends a few hundred. The default of grpc-go is
// 16 MiB for each of the maxStreams of a connection.
const maxHeaders = 64 << 10

// workersPerCPU is how many goroutines wait for requests, for each CPU. A new goroutine grows its stack several times before
// its request is answered, which takes a fifth of the CPU of the request. A worker has grown its stack already. More workers
// than concurrent requests would take turns, and evict each other's stacks from the CPU caches. When all are busy, a request
// gets a goroutine of its own.
const workersPerCPU = 32

func workers() int { return workersPerCPU * runtime.GOMAXPROCS(0) }

// grpcOptions returns the options of the gRPC server that the settings choose.
func grpcOptions(s *settings.Listeners, log *zap.Logger) ([]grpc.ServerOption, error) {
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: s.MaxConnectionAge, MaxConnectionAgeGrace: s.MaxConnectionAgeGrace,
		}),
	}
	if !s.ServerUseTLS {
		return options, nil
	}
	clients, err := tlsfiles.ParseNames(s.ClientSAN)
	if err != nil {
		return nil, fmt.Errorf("GRPC_CLIENT_TLS_SAN: %w", err)
	}
	files := tlsfiles.Server{Cert: s.ServerCert, Key: s.ServerKey, ClientCA: s.ClientCA, Clients: clients}
	config, err := files.Config(func(err error) { log.Error("certificates not reloaded, the old ones stay", zap.Error(err)) })
	if err != nil {
		return nil, fmt.Errorf("GRPC_SERVER_TLS_CERT: %w", err)
	}
	return append(options, grpc.Creds(credentials.NewTLS(config))), nil
}

func newGRPC(
	service *rls.Service, requests *admission.InFlight, ready *readiness, log *zap.Logger, metrics *telemetry.Metrics,
	stats *ratelimitstats.Stats, options ...grpc.ServerOption,
) *grpc.Server {
	server := grpc.NewServer(append(options,
		grpc.KeepaliveEnforcementPolicy(pingsAllowed),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(windowSize),
		grpc.StaticConnWindowSize(windowSize),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.NumStreamWorkers(uint32(workers())),
		grpc.ChainUnaryInterceptor(stats.Unary, recovering(log, metrics)),
		grpc.ChainStreamInterceptor(recoveringStream(log, metrics)),
	)...)
	desc := rls.ServiceDesc(&admitter{InFlight: requests, service: service})
	server.RegisterService(recovered(desc, log, metrics, stats), service)
	checks := health.NewServer()
	healthv1.RegisterHealthServer(boundedServer{server}, healthServer{checks})
	reflection.Register(boundedServer{server})
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

// shouldRateLimit is the method that Envoy calls for each request.
const shouldRateLimit = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName

// recovered wraps the methods of desc: a panic is an error of that request only. An interceptor could do the same, but costs
// several closures for each call.
func recovered(
	desc *grpc.ServiceDesc, log *zap.Logger, metrics *telemetry.Metrics, stats *ratelimitstats.Stats,
) *grpc.ServiceDesc {
	for i := range desc.Methods {
		m := &desc.Methods[i]
		name, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (reply any, err error) {
			defer func() {
				if p := recover(); p != nil {
					metrics.Panicked()
					stats.Panicked()
					reply, err = nil, bug(log, name, p)
				}
			}()
			return handle(service, ctx, decode, nil)
		}
	}
	return desc
}

// recovering makes a panic of a handler an error of that request only.
func recovering(log *zap.Logger, metrics *telemetry.Metrics) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		defer func() {
			if p := recover(); p != nil {
				metrics.Panicked()
				reply, err = nil, bug(log, info.FullMethod, p)
			}
		}()
		return handler(ctx, req)
	}
}

// recoveringStream is recovering for streams.
func recoveringStream(log *zap.Logger, metrics *telemetry.Metrics) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if p := recover(); p != nil {
				metrics.Panicked()
				err = bug(log, info.FullMethod, p)
			}
		}()
		return handler(service, stream)
	}
}

// bug logs a panic. Its error shows the client nothing of it.
func bug(log *zap.Logger, method string, p any) error {
	log.Error("bug in Weir, please report it", zap.String("method", method), zap.Any("panic", p),
		zap.ByteString("stack", debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// idleToStop is how long no request must be in flight until stopGRPC closes the connections. Within it, the messages of requests arrive
// whose headers have arrived, and clients get their responses.
const idleToStop = time.Second

// stopGRPC rejects new connections and waits for the requests in flight. When there are none, or ctx ends, it closes all connections: a
// watch of the health, or half a request, could last for as long as its client likes. It returns when all handlers have returned.
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
