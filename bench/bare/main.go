// Command bare is a grpc-go server that answers OK to every descriptor. It shows the least that a
// rate limit service in Go costs, so it has the gRPC options of Weir's own server and nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // profiles, to compare with Weir's
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8081", "where to listen")
	profiler := flag.String("debug", "", "where to serve /debug/pprof")
	gogc := flag.Int("gogc", 1600, "the garbage collector's GOGC")
	flag.Parse()
	debug.SetGCPercent(*gogc)
	if err := serve(*address, *profiler); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// options are a copy of those in cmd/server/grpc.go, because a command cannot be imported. Change
// both together.
var options = []grpc.ServerOption{
	grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 24 * time.Hour, MaxConnectionAgeGrace: time.Hour}),
	grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	grpc.MaxConcurrentStreams(128),
	grpc.StaticStreamWindowSize(1 << 20),
	grpc.StaticConnWindowSize(1 << 20),
	grpc.NumStreamWorkers(uint32(32 * runtime.GOMAXPROCS(0))),
}

func serve(address, profiler string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if profiler != "" {
		d, err := net.Listen("tcp", profiler)
		if err != nil {
			return err
		}
		h := &http.Server{ReadHeaderTimeout: time.Second}
		defer h.Close()
		go func() { _ = h.Serve(d) }() // ends with the process
	}
	server := grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(server, bare{})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		server.Stop()
	}()
	return server.Serve(l)
}

type bare struct{}

var allowed = &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}

// ShouldRateLimit allows everything.
func (bare) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	a := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(r.GetDescriptors())),
	}
	for i := range a.Statuses {
		a.Statuses[i] = allowed
	}
	return a, nil
}
