// Package ratelimitv3 replaces a package of go-control-plane: its server takes the names of its methods from it. This version has
// no messages, because the repository uses newer ones.
package ratelimitv3

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// RateLimitConfigDiscoveryServiceServer is the service, which no gateway offers.
type RateLimitConfigDiscoveryServiceServer any

// RateLimitConfigDiscoveryService_StreamRlsConfigsServer is its stream.
type RateLimitConfigDiscoveryService_StreamRlsConfigsServer = grpc.BidiStreamingServer[
	discovery.DiscoveryRequest, discovery.DiscoveryResponse,
]
