package xds

import (
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A stream is an ADS stream. Two goroutines may call send; one may call receive.
type stream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient

	mu      sync.Mutex
	replied bool // the server has sent a message
}

// send sends a request. receive returns its error, if any.
func (s *stream) send(request *discovery.DiscoveryRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.Send(request)
}

func (s *stream) receive() (*discovery.DiscoveryResponse, error) {
	push, err := s.Recv()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replied = true
	return push, err
}

// requestAll requests all resources if the server does not reply within timeout. A server need not
// reply to a request that has its current version. But Envoy Gateway counts versions from 1 at each
// start, so it may have other rules under the same version. requestAll asks with a version that no
// server has. An empty version would not do: a server without rules does not reply to it, and
// outdated rules would stay in force.
//
// Call stop at the end of the stream. After stop returns, nothing is sent.
func (s *stream) requestAll(version string, timeout time.Duration) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(timeout, func() {
		defer close(done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.replied {
			_ = s.Send(&discovery.DiscoveryRequest{TypeUrl: TypeURL, VersionInfo: version + "?"})
		}
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}
