// Package grpctest serves gRPC for tests, in memory or on loopback.
package grpctest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Listen serves on loopback until the test ends, and returns the address.
func Listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, server, l)
	return l.Addr().String()
}

func serve(t *testing.T, server *grpc.Server, l net.Listener) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// Serve serves in memory until the test ends, and returns a connection to the server.
func Serve(t *testing.T, server *grpc.Server) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	serve(t, server, l)
	conn, err := grpc.NewClient("passthrough:weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
