package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/rls"
)

// serviceName is the name that health checks know the service by, as in envoyproxy/ratelimit.
const serviceName = "ratelimit"

// pingsAllowed: proxies ping idle connections, and grpc-go's default answers those who do with GOAWAY too_many_pings.
var pingsAllowed = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}

// maxStreams is how many requests a connection may have under way. A connection has one reader and one writer here, which
// 128 requests keep busy: past them Envoy does better to open another, which another CPU, or replica, can serve.
const maxStreams = 128

// windowSize is how many bytes of a stream, and of a connection, may be on their way. grpc-go would rather find out by a PING each
// round trip, and its answer, which is worth something for long streams alone.
const windowSize = 1 << 20

// workersPerCPU is how many goroutines wait for requests, for each CPU. A new goroutine grows its stack several times
// before its request is answered, which is a fifth of what the request costs; these have grown theirs. More of them than
// requests at once would be none the better: they take turns, and the caches forget the stack of each. Where all are busy
// requests get goroutines of their own.
const workersPerCPU = 32

func workers() int { return workersPerCPU * runtime.GOMAXPROCS(0) }

// grpcOptions are what the settings say of the gRPC server.
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
	config, err := files.Config(func(err error) { log.Error("certificates not read again, the old ones stay", zap.Error(err)) })
	if err != nil {
		return nil, fmt.Errorf("GRPC_SERVER_TLS_CERT: %w", err)
	}
	return append(options, grpc.Creds(credentials.NewTLS(config))), nil
}

func newGRPC(
	service *rls.Service, bound *inFlight, ready *readiness, log *zap.Logger, metrics *telemetry.Metrics, options ...grpc.ServerOption,
) *grpc.Server {
	server := grpc.NewServer(append(options,
		grpc.KeepaliveEnforcementPolicy(pingsAllowed),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(windowSize),
		grpc.StaticConnWindowSize(windowSize),
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.NumStreamWorkers(uint32(workers())),
		grpc.ChainUnaryInterceptor(metrics.Unary, recovering(log, metrics)),
	)...)
	server.RegisterService(watched(rls.ServiceDesc(), bound, log, metrics), service)
	checks := health.NewServer()
	healthv1.RegisterHealthServer(server, checks)
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

// watched is desc without interceptors, which cost the one method that is called all day some closures a call. Its calls
// are counted as they are answered, and bounded before they are decoded.
func watched(desc *grpc.ServiceDesc, bound *inFlight, log *zap.Logger, metrics *telemetry.Metrics) *grpc.ServiceDesc {
	for i := range desc.Methods {
		m := &desc.Methods[i]
		name, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (reply any, err error) {
			if err := bound.enter(ctx); err != nil {
				return nil, err
			}
			defer func() {
				bound.leave()
				if p := recover(); p != nil {
					metrics.PanickedAsked()
					reply, err = nil, bug(log, name, p)
				}
			}()
			return handle(service, ctx, decode, nil)
		}
	}
	return desc
}

// recovering turns a bug of ours, met by one request, into an error of that request alone.
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

// bug tells the log of a panic, and the client as little as can be.
func bug(log *zap.Logger, method string, p any) error {
	log.Error("a bug of weir's: please report it", zap.String("method", method), zap.Any("panic", p),
		zap.ByteString("stack", debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// stopGRPC turns connections away, and ends those that have not ended with ctx.
func stopGRPC(ctx context.Context, server *grpc.Server) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	wg.Go(func() {
		server.GracefulStop()
		close(ended)
	})
	select {
	case <-ended:
	case <-ctx.Done():
		server.Stop()
	}
}
