package main

import (
	"context"
	"errors"
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
	"google.golang.org/grpc/tap"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/ratelimitstats"
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

// maxHeaders is how many bytes the headers of a request may have. Those of Envoy have a few hundred; grpc-go's own limit is
// 16 MiB, which each of maxStreams may hold.
const maxHeaders = 64 << 10

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
	service *rls.Service, requests *admission.InFlight, ready *readiness, log *zap.Logger, metrics *telemetry.Metrics,
	stats *ratelimitstats.Stats, options ...grpc.ServerOption,
) *grpc.Server {
	arrivals := &admission.Arrivals{}
	server := grpc.NewServer(append(options,
		grpc.KeepaliveEnforcementPolicy(pingsAllowed),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(windowSize),
		grpc.StaticConnWindowSize(windowSize),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.InTapHandle(arriving(arrivals)),
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.NumStreamWorkers(uint32(workers())),
		grpc.ChainUnaryInterceptor(stats.Unary, recovering(log, metrics)),
	)...)
	server.RegisterService(admitted(rls.ServiceDesc(), requests, arrivals, log, metrics, stats), service)
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

// shouldRateLimit is the method that is called all day.
const shouldRateLimit = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName

// arriving bounds the time in which the messages of the rate limit service arrive. It is called with the headers of each
// request.
func arriving(arrivals *admission.Arrivals) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		if info.FullMethodName != shouldRateLimit {
			return ctx, nil
		}
		return arrivals.Context(ctx), nil
	}
}

// admitted bounds the methods of desc. A request is admitted once its message has arrived. Interceptors would cost some
// closures a call.
func admitted(
	desc *grpc.ServiceDesc, requests *admission.InFlight, arrivals *admission.Arrivals, log *zap.Logger, metrics *telemetry.Metrics,
	stats *ratelimitstats.Stats,
) *grpc.ServiceDesc {
	for i := range desc.Methods {
		m := &desc.Methods[i]
		name, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (reply any, err error) {
			entered := false
			defer func() {
				if entered {
					requests.Leave()
				}
				if p := recover(); p != nil {
					metrics.Panicked()
					stats.Panicked()
					reply, err = nil, bug(log, name, p)
				}
			}()
			return handle(service, ctx, func(message any) error {
				if err := arrivals.Receive(ctx, decode, message); err != nil {
					return statusOf(err)
				}
				if err := requests.Enter(ctx); err != nil {
					return statusOf(err)
				}
				entered = true
				return nil
			}, nil)
		}
	}
	return desc
}

// statusOf is the error that the client gets for a request that was not admitted.
func statusOf(err error) error {
	switch {
	case errors.Is(err, admission.ErrOverloaded):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, admission.ErrLate):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	default:
		return err
	}
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
