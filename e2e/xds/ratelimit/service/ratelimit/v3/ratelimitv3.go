// Package ratelimitv3 replaces a package of go-control-plane, whose server needs only its method
// names. It omits the messages, for which the repository uses a newer version.
package ratelimitv3

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// RateLimitConfigDiscoveryServiceServer is the service, which Envoy Gateway does not offer.
type RateLimitConfigDiscoveryServiceServer any

// RateLimitConfigDiscoveryService_StreamRlsConfigsServer is its stream.
type RateLimitConfigDiscoveryService_StreamRlsConfigsServer = grpc.BidiStreamingServer[
	discovery.DiscoveryRequest, discovery.DiscoveryResponse,
]
