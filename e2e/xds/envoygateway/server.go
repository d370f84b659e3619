// Package envoygateway imitates Envoy Gateway for a rate limit service: a control plane built with
// go-control-plane in the same way, and the same environment variables.
package envoygateway

import (
	"context"
	"errors"
	"net"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	control "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// NodeID is the node id that the service sends.
const NodeID = "envoy-ratelimit"

// A Server serves one set of rules.
type Server struct {
	// Node is the node id of the clients that get the rules.
	Node string
	// Requests receives the service's requests in order.
	Requests chan *discovery.DiscoveryRequest

	cache cache.SnapshotCache
	mu    sync.Mutex
	stop  []func()
}

// NewServer returns a server without rules. It does not listen yet.
func NewServer() *Server {
	return &Server{
		Node:     NodeID,
		Requests: make(chan *discovery.DiscoveryRequest, 1000),
		cache:    cache.NewSnapshotCache(false, cache.IDHash{}, nil),
	}
}

// Serve accepts connections on l until Stop.
func (s *Server) Serve(listener net.Listener, options ...grpc.ServerOption) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	callbacks := control.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
		select {
		case s.Requests <- r:
			return nil
		default:
			return errors.New("nobody reads the requests")
		}
	}}
	g := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, control.NewServer(ctx, s.cache, callbacks))
	s.mu.Lock()
	s.stop = append(s.stop, func() { cancel(); g.Stop() })
	s.mu.Unlock()
	return g.Serve(listener)
}

// Stop ends all streams and every Serve.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.stop {
		stop()
	}
	s.stop = nil
}

// Set replaces the configs. Without configs, the snapshot has no resources of the type and the
// version "", as in Envoy Gateway.
func (s *Server) Set(ctx context.Context, version string, configs ...*conf.RateLimitConfig) error {
	resources := map[resource.Type][]types.Resource{}
	for _, c := range configs {
		resources[resource.RateLimitConfigType] = append(resources[resource.RateLimitConfigType], c)
	}
	snapshot, err := cache.NewSnapshot(version, resources)
	if err != nil {
		return err
	}
	return s.cache.SetSnapshot(ctx, s.Node, snapshot)
}
