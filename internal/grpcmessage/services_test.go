package grpcmessage

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/grpctest"
)

// serve returns a connection to a server with a bounded health service, and with the service
// "received", whose method Check answers with the message that a Receiver receives.
func serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(ServerOptions()...)
	healthv1.RegisterHealthServer(Registrar{server}, HealthServer{Server: health.NewServer()})
	receiver := &Receiver{Codec: encoding.GetCodecV2(proto.Name)}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "received", Methods: []grpc.MethodDesc{{
		MethodName: "Check",
		Handler: func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			message := &healthv1.HealthCheckRequest{}
			return message, receiver.Receive(ctx, message)
		},
	}}}, nil)
	return grpctest.Serve(t, server)
}

// A release of grpc-go may change the type of its transport streams, which is internal. Then every
// call here gets errTransport.
func TestTransportStreamTypeOfGRPCIsKnown(t *testing.T) {
	conn := serve(t)
	packed := grpc.UseCompressor(gzip.Name)
	received := func(size int, options ...grpc.CallOption) error {
		request, reply := &healthv1.HealthCheckRequest{Service: strings.Repeat("x", size)}, &healthv1.HealthCheckRequest{}
		err := conn.Invoke(t.Context(), "/received/Check", request, reply, options...)
		if err == nil && reply.GetService() != request.GetService() {
			t.Errorf("received %d bytes of %d", len(reply.GetService()), size)
		}
		return err
	}
	checked := func(size int, options ...grpc.CallOption) error {
		request := &healthv1.HealthCheckRequest{Service: strings.Repeat("x", size)}
		_, err := healthv1.NewHealthClient(conn).Check(t.Context(), request, options...)
		return err
	}
	watched := func(size int, options ...grpc.CallOption) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{Service: strings.Repeat("x", size)}, options...)
		if err == nil {
			_, err = watch.Recv()
		}
		return err
	}
	for name, c := range map[string]struct {
		got  error
		want codes.Code
	}{
		"received":             {received(0), codes.OK},
		"received, 1 MiB":      {received(1 << 20), codes.OK},
		"received, too large":  {received(maxMessageBytes), codes.ResourceExhausted},
		"received, compressed": {received(0, packed), codes.Unimplemented},
		"unary":                {checked(0), codes.OK},
		"unary, too large":     {checked(maxSmallMessageBytes), codes.ResourceExhausted},
		"unary, compressed":    {checked(0, packed), codes.Unimplemented},
		"stream":               {watched(1 << 9), codes.OK},
		"stream, too large":    {watched(maxSmallMessageBytes), codes.ResourceExhausted},
		"stream, compressed":   {watched(0, packed), codes.Unimplemented},
	} {
		if status.Code(c.got) != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// A watch may last as long as its connection. It must not keep the name that the client sent, which
// may have 1 KiB.
func TestHealthWatchDoesNotRetainRequest(t *testing.T) {
	checks := health.NewServer()
	checks.SetServingStatus("ratelimit", healthv1.HealthCheckResponse_SERVING)
	for _, c := range []struct {
		name string
		want healthv1.HealthCheckResponse_ServingStatus
	}{
		{"", healthv1.HealthCheckResponse_SERVING}, {"ratelimit", healthv1.HealthCheckResponse_SERVING},
		{strings.Repeat("x", 1<<20), healthv1.HealthCheckResponse_SERVICE_UNKNOWN},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		stream := &watchStream{ctx: ctx, sent: make(chan healthv1.HealthCheckResponse_ServingStatus, 1)}
		request := &healthv1.HealthCheckRequest{Service: c.name}
		request.ProtoReflect().SetUnknown(make([]byte, 1<<20))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = HealthServer{checks, "ratelimit"}.Watch(request, stream)
		}()
		if got := <-stream.sent; got != c.want {
			t.Errorf("%.20q: %v, want %v", c.name, got, c.want)
		}
		if n := len(request.GetService()) + len(request.ProtoReflect().GetUnknown()); n > 20 {
			t.Errorf("%.20q: the watch keeps %d bytes", c.name, n)
		}
		cancel()
		<-ended
	}
}

type watchStream struct {
	grpc.ServerStream
	ctx  context.Context // the stream's context
	sent chan healthv1.HealthCheckResponse_ServingStatus
}

func (s *watchStream) Context() context.Context { return s.ctx }

func (s *watchStream) Send(r *healthv1.HealthCheckResponse) error {
	s.sent <- r.GetStatus()
	return nil
}
