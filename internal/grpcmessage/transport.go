package grpcmessage

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// CheckTransport calls a server in memory and returns an error if a [Receiver] cannot read the
// streams of this version of grpc-go. Call it before a server starts, because otherwise every
// request would fail.
func CheckTransport() error {
	return checkTransport(func(ctx context.Context) error {
		_, err := uncompressedStream(ctx)
		return err
	})
}

// checkTransport calls check with the context of a request, and returns errTransport if check does.
// Other errors, such as a timeout on a suspended machine, must not prevent the start, because they
// do not concern the type of the stream. Every request checks its own stream.
func checkTransport(check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), messageTimeout)
	defer cancel()
	listener := bufconn.Listen(pieceSize)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := check(stream.Context()); err != nil {
			return err
		}
		return stream.SendMsg(&healthv1.HealthCheckRequest{})
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // an error reaches the call below
	defer serving.Wait()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	err = conn.Invoke(ctx, "/weir/CheckTransport", &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckRequest{})
	if errors.Is(err, errTransport) {
		return err
	}
	return nil
}
