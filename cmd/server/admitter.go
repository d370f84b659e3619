package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/pkg/rls"
)

const (
	// messageTimeout bounds the wait for a message after the headers of its request.
	messageTimeout = 10 * time.Second
	// maxUntimed is the number of requests that may wait for their messages without a timer. Messages usually arrive with their
	// headers, so under normal load no request pays for a timer.
	maxUntimed = 8
)

var errMessageTimeout = status.New(codes.DeadlineExceeded, "the message did not arrive within 10s of its headers")

// An admitter implements [rls.Admission] for gRPC: it receives a message within a bounded time, and then applies load shedding.
type admitter struct {
	*admission.InFlight
	service  *rls.Service
	messages messageReader
	waiting  atomic.Int64 // requests without their messages
}

func newAdmitter(requests *admission.InFlight, service *rls.Service) *admitter {
	return &admitter{InFlight: requests, service: service, messages: messageReader{codec: rls.Codec()}}
}

// Receive implements [rls.Admission]. It observes a request whose message is compressed or too large as rejected, because Envoy's
// failure mode may let that request pass.
func (a *admitter) Receive(ctx context.Context, decode func(any) error, message rls.Message) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := a.await(ctx, decode, message); err != nil {
		if code := status.Code(err); code != codes.Canceled && code != codes.DeadlineExceeded {
			a.service.ObserveRejected(err)
		}
		return err
	}
	if err := a.Enter(message.Ends); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// await receives a message in bounded time and bounded memory. It calls decode only if ctx has no stream of grpc-go.
func (a *admitter) await(ctx context.Context, decode func(any) error, message any) error {
	defer a.waiting.Add(-1)
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if s, ok := stream.(messageStream); ok {
		decode = func(message any) error { return a.messages.read(s, message) }
	}
	return receive(stream, decode, message, a.waiting.Add(1) > maxUntimed)
}

// receive decodes the uncompressed message of a stream. If timed is true, it fails after messageTimeout.
func receive(stream grpc.ServerTransportStream, decode func(any) error, message any, timed bool) error {
	if err := rejectCompressed(stream); err != nil {
		return err
	}
	if timed {
		defer abortIfLate(stream).Stop()
	}
	return decode(message)
}

// rejectCompressed returns UNIMPLEMENTED if the message is compressed. Envoy never compresses, and 4 kB can inflate to 4 MiB, so
// one client could keep all CPUs busy.
func rejectCompressed(stream grpc.ServerTransportStream) error {
	s, ok := stream.(interface{ RecvCompress() string })
	if !ok {
		return nil
	}
	if by := s.RecvCompress(); by != "" && by != encoding.Identity {
		return status.Error(codes.Unimplemented, "compressed messages are not supported: send the message without grpc-encoding")
	}
	return nil
}

// abortIfLate starts a timer that ends the stream with errMessageTimeout after messageTimeout. The caller stops the timer. In
// grpc-go, only the status of a stream interrupts a wait for its message, and only the stream's WriteStatus can set it before the
// handler returns.
func abortIfLate(stream any) *time.Timer {
	return time.AfterFunc(messageTimeout, func() {
		if s, ok := stream.(interface{ WriteStatus(*status.Status) error }); ok {
			_ = s.WriteStatus(errMessageTimeout)
		}
	})
}

// A boundedServer registers services whose messages must be uncompressed and arrive within messageTimeout.
type boundedServer struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (s boundedServer) RegisterService(desc *grpc.ServiceDesc, service any) {
	bounded := *desc
	bounded.Methods, bounded.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i := range bounded.Methods {
		handle := bounded.Methods[i].Handler
		bounded.Methods[i].Handler = func(
			service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			return handle(service, ctx, func(message any) error {
				return receive(grpc.ServerTransportStreamFromContext(ctx), decode, message, true)
			}, interceptor)
		}
	}
	for i := range bounded.Streams {
		handle := bounded.Streams[i].Handler
		bounded.Streams[i].Handler = func(service any, stream grpc.ServerStream) error {
			return handle(service, boundedStream{stream})
		}
	}
	s.Server.RegisterService(&bounded, service)
}

type boundedStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s boundedStream) RecvMsg(message any) error {
	return receive(grpc.ServerTransportStreamFromContext(s.Context()), s.ServerStream.RecvMsg, message, true)
}

// A healthServer stops Watch from retaining the request for as long as the client keeps the stream open.
type healthServer struct{ *health.Server }

// Watch implements healthv1.HealthServer.
func (s healthServer) Watch(request *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	service := request.GetService()
	if service != "" && service != serviceName {
		service = "unknown"
	}
	request.Reset()
	request.Service = service
	return s.Server.Watch(request, stream)
}
