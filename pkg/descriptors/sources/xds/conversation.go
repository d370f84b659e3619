package xds

import (
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// silence is how long a server may say nothing to a version before it is asked again. Tests shorten it.
var silence = 2 * time.Second

// A conversation is a stream. It may send from two goroutines, and receive in one.
type conversation struct {
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient

	mu    sync.Mutex
	heard bool // the server has said something
}

// send leaves it to receive to tell why it failed.
func (c *conversation) send(request *discovery.DiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.stream.Send(request)
}

func (c *conversation) receive() (*discovery.DiscoveryResponse, error) {
	push, err := c.stream.Recv()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	return push, err
}

// askAgain asks for everything if the server stays silent. To a version that it has itself a server need not say
// anything, as to one that is up to date. But Envoy Gateway counts its versions from 1 whenever it starts, and so may
// have other rules under the same version. The version asked with is one that no server has: to none, "", a server says
// nothing either as long as it has no rules, and those that are held would stay. To be called at the end of the stream,
// stop returns when nothing runs.
func (c *conversation) askAgain(version string) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(silence, func() {
		defer close(done)
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.heard {
			_ = c.stream.Send(&discovery.DiscoveryRequest{TypeUrl: TypeURL, VersionInfo: version + "?"})
		}
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}
