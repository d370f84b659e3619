package rls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// A ReceiveFunc receives the message of the gRPC request with ctx, and decodes it with [Codec]. Its
// error is a gRPC status. A malformed message is no error.
type ReceiveFunc func(ctx context.Context, message any) error

// A Gate admits or rejects gRPC requests that have been received.
type Gate interface {
	// Admit admits a request, or returns the gRPC status with which to reject it. If mayRefund is
	// false, the request refunds no hits and ends no lease.
	Admit(mayRefund bool) error
	// Done ends an admitted request.
	Done()
}

// ServiceDesc describes s for a gRPC server, which must have [Codec]. For each request, the method
// calls receive and then asks g; both are required.
//
// The method skips unary interceptors, because none would see a request that ends before it is
// decoded: use [Options].Observe. It skips the decode function of grpc-go too, which bounds
// neither time nor memory, see ADR 18.
func (s *Service) ServiceDesc(receive ReceiveFunc, g Gate) *grpc.ServiceDesc {
	file := ratelimitv3.File_envoy_service_ratelimit_v3_rls_proto
	return &grpc.ServiceDesc{
		ServiceName: string(file.Services().ByName("RateLimitService").FullName()),
		HandlerType: (*any)(nil), // the method knows its service
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: method{s, receive, g}.shouldRateLimit}},
		Metadata:    file.Path(),
	}
}

type method struct {
	service *Service
	receive ReceiveFunc
	gate    Gate
}

func (m method) shouldRateLimit(
	_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor, // see ServiceDesc
) (any, error) {
	e := newExchange()
	e.observation.Protocol = GRPC
	if err := m.receive(ctx, e); err != nil {
		e.decodeErr = err
		return m.answer(ctx, e)
	}
	if err := m.gate.Admit(e.message.mayRefund()); err != nil {
		e.release()
		return nil, err
	}
	defer m.gate.Done()
	return m.answer(ctx, e)
}

func (m method) answer(ctx context.Context, e *exchange) (any, error) {
	wire, err := m.service.handle(ctx, e)
	if err != nil {
		return nil, err
	}
	response := &encodedResponse{wire: wire}
	response.buffers[0] = &response.wire
	return response, nil
}

// An encodedResponse is a RateLimitResponse in wire format. It holds the buffer and the slice of
// buffers that gRPC expects, so that an answer needs one allocation for both.
type encodedResponse struct {
	buffers [1]mem.Buffer
	wire    mem.SliceBuffer
}

// Codec returns the codec for [ServiceDesc], to be set with [grpc.ForceServerCodecV2]. It passes
// messages of other services to gRPC's own codec.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2. It stores the error of a malformed request in
// exchange.decodeErr: otherwise gRPC would answer INTERNAL before the service could count the
// request.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	into, ours := v.(*exchange)
	if !ours {
		return c.CodecV2.Unmarshal(data, v)
	}
	into.message.clear()
	var wire []byte
	if len(data) == 1 {
		wire = data[0].ReadOnlyData()
	} else {
		wire = data.Materialize()
	}
	into.decodeErr = malformedStatus(into.message.unmarshal(wire))
	return nil
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ours := v.(*encodedResponse); ours {
		return e.buffers[:], nil
	}
	return c.CodecV2.Marshal(v)
}
