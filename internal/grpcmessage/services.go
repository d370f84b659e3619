package grpcmessage

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// maxSmallMessageBytes bounds a message that a decode function of grpc-go accepts. These messages
// hold a name, and responses of the reflection service repeat it.
const maxSmallMessageBytes = 1 << 10

// ServerOptions returns the options of a server that bound messages not received by a [Receiver]:
// to 1 KiB each and, of streams, to uncompressed messages that arrive in time. Unary methods need
// a [Registrar] as well. A response of the reflection service contains one file.
func ServerOptions() []grpc.ServerOption {
	bound := func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return handle(service, boundedStream{stream})
	}
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxSmallMessageBytes), grpc.ChainStreamInterceptor(bound)}
}

// A boundedStream is a stream whose messages must be uncompressed and arrive within messageTimeout.
type boundedStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s boundedStream) RecvMsg(message any) error {
	return decodeInTime(s.Context(), s.ServerStream.RecvMsg, message)
}

// SendMsg implements grpc.ServerStream. Of the files in a response of the reflection service, it
// sends only the first, for which the client asked. With all files that it imports, a response
// takes a megabyte, and a client that reads nothing keeps one for each of its streams. Clients ask
// for the other files by name.
func (s boundedStream) SendMsg(message any) error {
	if response, ok := message.(proto.Message); ok {
		r := response.ProtoReflect() // the messages of both versions of the service have the same fields
		if field := r.Descriptor().Fields().ByName("file_descriptor_response"); field != nil && r.Has(field) {
			answer := r.Mutable(field).Message()
			files := answer.Mutable(answer.Descriptor().Fields().ByName("file_descriptor_proto")).List()
			files.Truncate(min(1, files.Len()))
		}
	}
	return s.ServerStream.SendMsg(message)
}

// A Registrar registers services whose unary methods accept only uncompressed messages that arrive
// in time. An interceptor cannot do so, because grpc-go decodes the message of a unary method
// first.
type Registrar struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r Registrar) RegisterService(desc *grpc.ServiceDesc, service any) {
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
	r.ServiceRegistrar.RegisterService(&bounded, service)
}

// decodeInTime decodes an uncompressed message, which must arrive within messageTimeout.
func decodeInTime(ctx context.Context, decode func(any) error, message any) error {
	stream, err := uncompressedStream(ctx)
	if err != nil {
		return err
	}
	defer startTimer(stream).timer.Stop()
	return decode(message)
}

// A HealthServer is a [health.Server] whose watches do not retain their requests, which may last as
// long as their connections.
type HealthServer struct {
	*health.Server
	Service string // the only service with a status, except the empty one
}

// Watch implements healthv1.HealthServer. The status of services other than Service is
// SERVICE_UNKNOWN.
func (s HealthServer) Watch(request *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	service := request.GetService()
	if service != "" && service != s.Service {
		service = "unknown"
	}
	request.Reset()
	request.Service = service
	return s.Server.Watch(request, stream)
}
