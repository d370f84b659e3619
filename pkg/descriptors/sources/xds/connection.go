package xds

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/structpb"
)

// patience is how long a connection may take until its stream is open. Tests shorten it.
var patience = 10 * time.Second

// pingAfter is the silence after which HTTP/2 asks whether the server is there. It is above the 5 minutes that a server
// built with grpc-go, such as Envoy Gateway, asks of its clients: who pings more often is cut off.
const pingAfter = 6 * time.Minute

// alive has the kernel ask whether the other side is there: a machine that vanished shows within a minute.
var alive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// open prepares a connection of its own for each stream: grpc-go's waits between attempts then do not come on top of
// ours, and names and certificates are looked up anew.
func (s *Source) open() (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if s.TLS != nil {
		config, err := s.TLS()
		if err != nil {
			return nil, err
		}
		secure = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: patience}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter}),
		grpc.WithDisableServiceConfig(),
	}
	if s.MaxMessageSize > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.MaxMessageSize)))
	}
	conn, err := grpc.NewClient(s.Server, options...)
	if err != nil {
		return nil, fmt.Errorf("xDS server %q: %w", s.Server, err)
	}
	return conn, nil
}

// dial connects to what grpc-go has resolved. It passes by the proxies of the environment, which are not meant for a
// control plane in the same cluster.
func dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: alive}
	if path, ok := strings.CutPrefix(address, "unix:///"); ok {
		return dialer.DialContext(ctx, "unix", path)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// node says who asks.
func (s *Source) node() *core.Node {
	n := &core.Node{Id: s.NodeID, UserAgentName: "weir"}
	if len(s.NodeMetadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for key, value := range s.NodeMetadata {
			n.Metadata.Fields[key] = structpb.NewStringValue(value)
		}
	}
	return n
}
