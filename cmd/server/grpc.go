package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/grpcrecovery"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/rls"
)

// serviceName is the health-check name of the service, the same as in envoyproxy/ratelimit.
const serviceName = "ratelimit"

// pingsAllowed permits keepalive pings of idle connections every five seconds. By default grpc-go
// closes such connections with GOAWAY too_many_pings.
var pingsAllowed = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}

// maxStreams bounds the requests in flight on one connection. 128 keep its one reader and one
// writer goroutine busy; beyond that, Envoy should open another connection, which another CPU or
// replica can serve.
const maxStreams = 128

// connWindow and streamWindow are the flow-control windows of a connection and of a stream, in
// bytes. Fixed windows turn off grpc-go's bandwidth estimation, whose PING in each round trip pays
// off only for long streams. A client can fill the window of each of its streams with bytes that
// nobody reads, so the window of a stream is the smallest that grpc-go accepts.
const (
	connWindow   = 1 << 20
	streamWindow = 64 << 10
)

// maxHeaderBytes bounds the headers of a request, in bytes. Envoy sends a few hundred; grpc-go
// would allow 16 MiB for each of maxStreams.
const maxHeaderBytes = 64 << 10

// workersPerCPU is the number of worker goroutines for each CPU. Without workers, growing the stack
// of a new goroutine takes a fifth of a request's CPU time. More workers than concurrent requests
// would evict each other's stacks from the CPU caches. If all workers are busy, grpc-go starts a
// goroutine for the request.
const workersPerCPU = 32

// maxConnectionAge bounds the age of a connection, to 146 years. grpc-go adds a random tenth, and
// would end a connection at once if the sum overflowed.
const maxConnectionAge time.Duration = math.MaxInt64 / 2

// grpcOptions returns the server options for the settings.
func grpcOptions(s *settings.Listeners, log *zap.Logger) ([]grpc.ServerOption, error) {
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: min(s.MaxConnectionAge, maxConnectionAge), MaxConnectionAgeGrace: s.MaxConnectionAgeGrace,
		}),
	}
	if !s.ServerUseTLS {
		return options, nil
	}
	clients, err := clientNames(s)
	if err != nil {
		return nil, err
	}
	files := tlsfiles.Server{Cert: s.ServerCert, Key: s.ServerKey, ClientCA: s.ClientCA, Clients: clients, Expired: logExpired(log)}
	config, err := files.Config(func(err error) {
		log.Error("certificates of the rate limit service not reloaded, the old ones stay in use", zap.Error(err))
	})
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

func (p *process) newGRPC(service *rls.Service, options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(slices.Concat(options, []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(pingsAllowed),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.NumStreamWorkers(uint32(workersPerCPU * runtime.GOMAXPROCS(0))),
		grpc.ChainUnaryInterceptor(p.stats.Unary, grpcrecovery.UnaryInterceptor(p.panicked)),
		grpc.ChainStreamInterceptor(grpcrecovery.StreamInterceptor(p.panicked)),
	}, grpcmessage.ServerOptions())...)
	receiver := grpcmessage.Receiver{Codec: rls.Codec()}
	desc := service.ServiceDesc(receiver.Receive, p.gate)
	grpcrecovery.WrapMethods(desc, func(method string, value any) {
		p.stats.Panicked()
		p.panicked(method, value)
	})
	server.RegisterService(desc, service)
	checks := health.NewServer()
	healthv1.RegisterHealthServer(
		grpcmessage.Registrar{ServiceRegistrar: server},
		grpcmessage.HealthServer{Server: checks, Service: serviceName},
	)
	reflection.Register(server)
	p.ready.onChange(func(ready bool) {
		serving := healthv1.HealthCheckResponse_NOT_SERVING
		if ready {
			serving = healthv1.HealthCheckResponse_SERVING
		}
		checks.SetServingStatus("", serving)
		checks.SetServingStatus(serviceName, serving)
	})
	return server
}

// idleToStop is how long no request may be in flight before stopGRPC closes the connections. It
// leaves time for messages whose headers have arrived, and for responses to reach their clients.
const idleToStop = time.Second

// stopGRPC rejects new connections and waits until no request is in flight, or ctx ends. Then it
// closes all connections, because a client could keep a health watch or an incomplete request open
// forever. It returns when all handlers have returned.
func stopGRPC(ctx context.Context, server *grpc.Server, gate *admission.Gate) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	wg.Go(func() {
		server.GracefulStop()
		close(ended)
	})
	tick := time.NewTicker(idleToStop / 100)
	defer tick.Stop()
	for idleSince := time.Now(); time.Since(idleSince) < idleToStop; {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			server.Stop()
			return
		case <-tick.C:
			if gate.Stats().InFlight > 0 {
				idleSince = time.Now()
			}
		}
	}
	server.Stop()
}
