package xds_test

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// soon is how long a test waits for an event. The race detector makes huge rules slow.
const soon = 2 * time.Minute

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(soon):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func mustReceiveNothing[T any](t *testing.T, from <-chan T, what string) {
	t.Helper()
	select {
	case v := <-from:
		t.Fatalf("%s: got %v, want nothing", what, v)
	default:
	}
}

// A server is a control plane whose test sends each message.
type server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	address string
	grpc    *grpc.Server
	streams chan *stream
}

// A stream is a stream that a client opened.
type stream struct {
	t        *testing.T
	headers  metadata.MD
	requests chan *discovery.DiscoveryRequest
	pushes   chan *discovery.DiscoveryResponse
	end      chan error
	nonce    int
}

// serve serves at a TCP address until the test ends or calls stop.
func serve(t *testing.T, address string, options ...grpc.ServerOption) *server {
	t.Helper()
	return serveOn(t, "tcp", address, options...)
}

func serveOn(t *testing.T, network, address string, options ...grpc.ServerOption) *server {
	t.Helper()
	listener, err := net.Listen(network, address)
	must.Succeed(t, err)
	s := &server{
		t: t, address: listener.Addr().String(), grpc: grpc.NewServer(options...), streams: make(chan *stream, 100),
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	done := make(chan error, 1)
	go func() { done <- s.grpc.Serve(listener) }()
	t.Cleanup(func() {
		s.stop()
		must.Succeed(t, <-done)
	})
	return s
}

func (s *server) stop() { s.grpc.Stop() }

func (s *server) StreamAggregatedResources(
	to discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	headers, _ := metadata.FromIncomingContext(to.Context())
	st := &stream{
		t: s.t, headers: headers, requests: make(chan *discovery.DiscoveryRequest, 100),
		pushes: make(chan *discovery.DiscoveryResponse), end: make(chan error),
	}
	s.streams <- st
	received := make(chan error, 1)
	go func() {
		for {
			request, err := to.Recv()
			if err != nil {
				received <- err
				return
			}
			st.requests <- request
		}
	}()
	for {
		select {
		case push := <-st.pushes:
			if err := to.Send(push); err != nil {
				return err
			}
		case err := <-st.end:
			return err
		case err := <-received:
			return err
		}
	}
}

// accept waits for a stream and its first request.
func (s *server) accept() (*stream, *discovery.DiscoveryRequest) {
	s.t.Helper()
	st := receive(s.t, s.streams, "a stream")
	return st, st.request()
}

func (s *stream) request() *discovery.DiscoveryRequest {
	s.t.Helper()
	return receive(s.t, s.requests, "a request")
}

// send pushes resources and returns the client's request in reply.
func (s *stream) send(version string, resources ...*anypb.Any) *discovery.DiscoveryRequest {
	s.t.Helper()
	return s.sendPush(&discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: xds.TypeURL, Resources: resources})
}

// sendPush pushes with a new nonce and returns the client's request in reply, which must have the
// same nonce.
func (s *stream) sendPush(push *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	s.t.Helper()
	s.nonce++
	push.Nonce = "nonce " + strconv.Itoa(s.nonce)
	select {
	case s.pushes <- push:
	case <-time.After(soon):
		s.t.Fatal("the stream takes no push")
	}
	answer := s.request()
	if answer.GetResponseNonce() != push.Nonce || answer.GetTypeUrl() != xds.TypeURL {
		s.t.Fatalf("the answer is %v, want one to the push with %q", answer, push.Nonce)
	}
	return answer
}

// acknowledged fails the test unless the request acknowledges the version.
func acknowledged(t *testing.T, answer *discovery.DiscoveryRequest, version string) {
	t.Helper()
	if answer.GetVersionInfo() != version || answer.GetErrorDetail() != nil {
		t.Errorf("the answer is %v, want an ACK of %q", answer, version)
	}
}

// mustReject fails the test unless the request rejects a push and keeps oldVersion. It returns the
// error text.
func mustReject(t *testing.T, answer *discovery.DiscoveryRequest, oldVersion string) string {
	t.Helper()
	if answer.GetVersionInfo() != oldVersion || answer.GetErrorDetail() == nil {
		t.Errorf("the answer is %v, want a NACK that keeps %q", answer, oldVersion)
	}
	return answer.GetErrorDetail().GetMessage()
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	value, err := proto.Marshal(m)
	must.Succeed(t, err)
	return &anypb.Any{TypeUrl: xds.TypeURL, Value: value}
}

// domain returns a resource that limits each user to perMinute.
func domain(t *testing.T, name string, perMinute uint32) *anypb.Any {
	t.Helper()
	return pack(t, &conf.RateLimitConfig{Name: name, Domain: name, Descriptors: []*conf.RateLimitDescriptor{{
		Key:       "user",
		RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_MINUTE, RequestsPerUnit: perMinute},
	}}})
}

// broken returns a resource with a fault.
func broken(t *testing.T, name string) *anypb.Any {
	t.Helper()
	return pack(t, &conf.RateLimitConfig{Name: name, Domain: name, Descriptors: []*conf.RateLimitDescriptor{{
		Key: "user", RateLimit: &conf.RateLimitPolicy{Unit: 99, RequestsPerUnit: 1},
	}}})
}

func huge(t *testing.T, descriptors int) *anypb.Any {
	t.Helper()
	c := &conf.RateLimitConfig{Name: "huge", Domain: "huge"}
	for i := range descriptors {
		c.Descriptors = append(c.Descriptors, &conf.RateLimitDescriptor{
			Key:       fmt.Sprintf("%010000d", i), // the parser looks for mistakes in a value, which takes long
			RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_HOUR, RequestsPerUnit: 7},
		})
	}
	return pack(t, c)
}
