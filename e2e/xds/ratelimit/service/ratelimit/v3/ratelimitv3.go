// Package ratelimitv3 stands in for the package of go-control-plane that its server names its methods by, without the
// messages below it, which this repository has in a newer version.
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
