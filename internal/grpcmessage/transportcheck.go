package grpcmessage

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// CheckTransport returns an error if this build has a version of grpc-go whose streams are not a
// transportStream, because a package maintainer chose another version than go.mod. Each request
// would get an error, and an Envoy with failure_mode_deny: false would let all of them pass. The
// check sends a request in memory. It returns nil if ctx ends.
func CheckTransport(ctx context.Context) error { return checkTransport(ctx) }

func checkTransport(ctx context.Context, options ...grpc.ServerOption) error {
	server := grpc.NewServer(append(options, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if _, err := uncompressedStream(stream.Context()); err != nil {
			return err
		}
		return stream.SendMsg(&healthv1.HealthCheckResponse{})
	}))...)
	listener := bufconn.Listen(pieceSize)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:check", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	err = conn.Invoke(ctx, "/check/Check", &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{})
	if status.Code(err) != codes.Internal {
		return nil
	}
	return errors.New(status.Convert(err).Message())
}
