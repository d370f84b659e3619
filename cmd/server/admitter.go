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
	// messageTimeout is the longest time between a request's headers and the end of its message.
	messageTimeout = 10 * time.Second
	// maxUntimed is how many requests may wait for their messages without a timer. In ordinary traffic fewer wait, because a
	// message comes with its headers, and few requests pay for a timer. A message has up to 4 MiB, so it must be a small number.
	maxUntimed = 8
)

var errLate = status.New(codes.DeadlineExceeded, "the message did not arrive within 10s of its headers")

// An admitter admits requests by gRPC once their messages have arrived. It bounds the time in which they arrive.
type admitter struct {
	*admission.InFlight
	service *rls.Service
	waiting atomic.Int64 // requests without their messages
}

// Receive implements rls.Admission. A request whose context has ended is not received. A request that is compressed or too large is
// observed, because Envoy may let it pass.
func (a *admitter) Receive(ctx context.Context, decode func(any) error, message any) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := a.await(ctx, decode, message); err != nil {
		if code := status.Code(err); code != codes.Canceled && code != codes.DeadlineExceeded {
			a.service.ObserveRejected(err)
		}
		return err
	}
	if err := a.Enter(); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// await calls decode, in bounded time.
func (a *admitter) await(ctx context.Context, decode func(any) error, message any) error {
	defer a.waiting.Add(-1)
	return receive(ctx, decode, message, a.waiting.Add(1) > maxUntimed)
}

// receive calls decode for a message that is not compressed. With timed, decode ends within messageTimeout.
func receive(ctx context.Context, decode func(any) error, message any, timed bool) error {
	if err := refuseCompressed(ctx); err != nil {
		return err
	}
	if timed {
		defer endIfLate(ctx).Stop()
	}
	return decode(message)
}

// refuseCompressed returns an error if the message of a request is compressed. 4 kB can hold a message of 4 MiB, and one client that
// sends such messages would keep all CPUs busy. Envoy sends none.
func refuseCompressed(ctx context.Context) error {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok {
		return nil
	}
	if by := stream.RecvCompress(); by != "" && by != encoding.Identity {
		return status.Error(codes.Unimplemented, "compressed messages are not supported: send the message without grpc-encoding")
	}
	return nil
}

// endIfLate ends the stream of a request with errLate after messageTimeout, unless the timer is stopped before. In grpc-go, only the
// status of a stream ends a wait for its message, and only the stream itself can send the status before the handler returns.
func endIfLate(ctx context.Context) *time.Timer {
	return time.AfterFunc(messageTimeout, func() {
		if s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ WriteStatus(*status.Status) error }); ok {
			_ = s.WriteStatus(errLate)
		}
	})
}

// A boundedServer registers services, such as health checks, that receive messages as the rate limit service does: uncompressed,
// and within messageTimeout.
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
			return handle(service, ctx, func(message any) error { return receive(ctx, decode, message, true) }, interceptor)
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
	return receive(s.Context(), s.ServerStream.RecvMsg, message, true)
}

// A healthServer keeps nothing of a request while its Watch lasts, which the client decides.
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
