// Package xds_test tests Weir's xDS source against go-control-plane's server, which Envoy Gateway
// uses. It is a module of its own, because the product does not need go-control-plane's server.
package xds_test

import (
	"net"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/e2e/xds/envoygateway"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

const nodeID = envoygateway.NodeID

// stepTimeout is far longer than any step takes on a busy machine.
const stepTimeout = 2 * time.Minute

// A server is assembled like Envoy Gateway's.
type server struct {
	*envoygateway.Server
	t       *testing.T
	address string
}

func newServer(t *testing.T) *server { return &server{Server: envoygateway.NewServer(), t: t} }

// serve serves at address until the test ends or stop is called.
func (s *server) serve(address string, options ...grpc.ServerOption) {
	s.t.Helper()
	listener, err := net.Listen("tcp", address)
	must.Succeed(s.t, err)
	s.address = listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener, options...) }()
	s.t.Cleanup(func() {
		s.stop()
		must.Succeed(s.t, <-done)
	})
}

func (s *server) stop() { s.Stop() }

// set replaces the server's configs.
func (s *server) set(version string, configs ...*conf.RateLimitConfig) {
	s.t.Helper()
	must.Succeed(s.t, s.Set(s.t.Context(), version, configs...))
}

// request waits for the next request.
func (s *server) request() *discovery.DiscoveryRequest {
	s.t.Helper()
	return receive(s.t, s.Requests, "a request")
}

// acknowledged waits for the acknowledgement of a version.
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
	case <-time.After(stepTimeout):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func config(name string, perYear uint32) *conf.RateLimitConfig {
	return &conf.RateLimitConfig{Name: name, Domain: name, Descriptors: []*conf.RateLimitDescriptor{{
		Key:       "user",
		RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_YEAR, RequestsPerUnit: perYear},
	}}}
}

// secure is TLS with Envoy Gateway's settings.
func secure(t *testing.T, a *certtest.Authority) grpc.ServerOption {
	t.Helper()
	return grpc.Creds(credentials.NewTLS(a.Server(t, "envoy-gateway")))
}
