package xds

import (
	"cmp"
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

// pingAfter is the idle time after which the client sends an HTTP/2 ping. It must exceed 5 minutes,
// because servers built with grpc-go, such as Envoy Gateway, by default close connections that ping
// more often.
const pingAfter = 6 * time.Minute

// keepAlive makes the kernel detect a lost peer within a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// open returns a new connection. Each stream has its own, which avoids grpc-go's reconnect backoff
// and reloads names and certificates.
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
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig,
			MinConnectTimeout: cmp.Or(s.connectTimeout, defaultConnectTimeout)}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter}),
		grpc.WithDisableServiceConfig(),
	}
	if s.MaxMessageSize > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.MaxMessageSize)))
	}
	conn, err := grpc.NewClient(s.Server, options...)
	if err != nil {
		return nil, fmt.Errorf("control plane %q: %w", s.Server, err)
	}
	return conn, nil
}

// dial connects to a resolved address. It ignores proxies in the environment, because the control
// plane is usually in the same cluster.
func dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	// grpc-go writes unix:///path, unix:path or unix:@name for a socket.
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return dialer.DialContext(ctx, "unix", strings.TrimPrefix(path, "//"))
	}
	return dialer.DialContext(ctx, "tcp", address)
}

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
