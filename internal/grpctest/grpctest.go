// Package grpctest serves gRPC in memory for tests.
package grpctest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Serve serves until the test ends, and returns a connection to the server.
func Serve(t *testing.T, server *grpc.Server) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return conn
}
