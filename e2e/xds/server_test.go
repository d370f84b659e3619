// Package xds_test holds Weir's source of rules against the server of go-control-plane, which is the one in Envoy
// Gateway. It stands in a module of its own, for the product needs none of it.
package xds_test

import (
	"context"
	"net"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	control "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/internal/certtest"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

const nodeID = "envoy-ratelimit"

// A server is put together as Envoy Gateway's is.
type server struct {
	t        *testing.T
	address  string
	cache    cache.SnapshotCache
	requests chan *discovery.DiscoveryRequest
	stop     func()
}

func newServer(t *testing.T) *server {
	return &server{
		t: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		requests: make(chan *discovery.DiscoveryRequest, 1000),
	}
}

// serve serves at address until the test ends, or stop.
func (s *server) serve(address string, options ...grpc.ServerOption) {
	t := s.t
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	s.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	callbacks := control.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
		s.requests <- r
		return nil
	}}
	g := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, control.NewServer(ctx, s.cache, callbacks))
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	s.stop = func() {
		cancel()
		g.Stop()
	}
	t.Cleanup(func() {
		s.stop()
		must(t, <-done)
	})
}

// set makes configs what the server has. Without any there is no such type in its snapshot, as in Envoy Gateway, and
// the version is then "".
func (s *server) set(version string, configs ...*conf.RateLimitConfig) {
	s.t.Helper()
	resources := map[resource.Type][]types.Resource{}
	for _, c := range configs {
		resources[resource.RateLimitConfigType] = append(resources[resource.RateLimitConfigType], c)
	}
	snapshot, err := cache.NewSnapshot(version, resources)
	must(s.t, err)
	must(s.t, s.cache.SetSnapshot(s.t.Context(), nodeID, snapshot))
}

// request waits for the next request.
func (s *server) request() *discovery.DiscoveryRequest {
	s.t.Helper()
	return receive(s.t, s.requests, "a request")
}

// acknowledged waits for a version to be taken.
func (s *server) acknowledged(version string) {
	s.t.Helper()
	if r := s.request(); r.GetVersionInfo() != version || r.GetErrorDetail() != nil || r.GetResponseNonce() == "" {
		s.t.Fatalf("the request is %v, want an ACK of %q", r, version)
	}
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func config(name string, perMinute uint32) *conf.RateLimitConfig {
	return &conf.RateLimitConfig{Name: name, Domain: name, Descriptors: []*conf.RateLimitDescriptor{{
		Key:       "user",
		RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_MINUTE, RequestsPerUnit: perMinute},
	}}}
}

// secure is TLS as Envoy Gateway speaks it.
func secure(t *testing.T, a *certtest.Authority) grpc.ServerOption {
	t.Helper()
	return grpc.Creds(credentials.NewTLS(a.Server(t, "envoy-gateway")))
}
