package main

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/pkg/rls"
)

// An admitter implements [rls.Admission] for gRPC: it receives a message, and then applies load shedding.
type admitter struct {
	*admission.InFlight
	service  *rls.Service
	receiver receiver
}

func newAdmitter(requests *admission.InFlight, service *rls.Service) *admitter {
	return &admitter{InFlight: requests, service: service, receiver: receiver{codec: rls.Codec()}}
}

// Receive implements [rls.Admission]. It observes a request whose message is compressed or too large as rejected, because Envoy's
// failure mode may let that request pass.
func (a *admitter) Receive(ctx context.Context, _ func(any) error, message rls.Message) error {
	err := ctx.Err()
	if err != nil {
		return status.FromContextError(err).Err()
	}
	err = a.receiver.receive(ctx, message)
	if err != nil {
		if code := status.Code(err); code != codes.Canceled && code != codes.DeadlineExceeded {
			a.service.ObserveRejected(err)
		}
		return err
	}
	err = a.Enter(message.Ends)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// decodeInTime decodes an uncompressed message, which must arrive within messageTimeout.
func decodeInTime(ctx context.Context, decode func(any) error, message any) error {
	stream, err := uncompressedStream(ctx)
	if err != nil {
		return err
	}
	defer abortIfLate(stream).Stop()
	return decode(message)
}

// A boundedServer registers services whose methods decode in time. An interceptor cannot do so, because grpc-go decodes the message of
// a unary method first.
type boundedServer struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (s boundedServer) RegisterService(desc *grpc.ServiceDesc, service any) {
	bounded := *desc
	bounded.Methods = slices.Clone(desc.Methods)
	for i := range bounded.Methods {
		handle := bounded.Methods[i].Handler
		bounded.Methods[i].Handler = func(
			service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			return handle(service, ctx, func(message any) error { return decodeInTime(ctx, decode, message) }, interceptor)
		}
	}
	s.Server.RegisterService(&bounded, service)
}

// boundStream is an interceptor. Each message of a stream must be uncompressed and arrive within messageTimeout.
func boundStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(service, boundedStream{stream})
}

type boundedStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s boundedStream) RecvMsg(message any) error {
	return decodeInTime(s.Context(), s.ServerStream.RecvMsg, message)
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
