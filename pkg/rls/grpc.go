package rls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// A Receiver receives the message of a gRPC request, and decodes it with [Codec]. Its error is a
// gRPC status. A malformed message is no error.
type Receiver interface {
	Receive(ctx context.Context, message any) error
}

// A Gate admits or rejects gRPC requests that have been received.
type Gate interface {
	// Admit admits a request, or returns the gRPC status with which to reject it. If mayRefund is
	// false, the request refunds no hits and ends no lease.
	Admit(mayRefund bool) error
	// Done ends an admitted request.
	Done()
}

// ServiceDesc describes a [*Service] for a gRPC server, which must have [Codec]. Its method
// skips unary interceptors, because none would see a request that ends before it is decoded: use
// [Options].Observe. It uses this package's decoder instead of the generated one.
func ServiceDesc(r Receiver, g Gate) *grpc.ServiceDesc {
	file := ratelimitv3.File_envoy_service_ratelimit_v3_rls_proto
	return &grpc.ServiceDesc{
		ServiceName: string(file.Services().ByName("RateLimitService").FullName()),
		HandlerType: (*server)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handler{r, g}.shouldRateLimit}},
		Metadata:    file.Path(),
	}
}

// A server is a [*Service], or embeds one. grpc-go accepts no other type for a [ServiceDesc].
type server interface {
	answer(ctx context.Context, c *call) (wire []byte, err error)
	observeUndecoded(err error, p Protocol)
}

type handler struct {
	receiver Receiver
	gate     Gate
}

func (h handler) shouldRateLimit(
	service any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor, // see ServiceDesc
) (any, error) {
	s, c := service.(server), newCall()
	if err := h.receiver.Receive(ctx, c); err != nil {
		c.release()
		s.observeUndecoded(err, GRPC)
		return nil, err
	}
	if err := h.gate.Admit(c.message.mayRefund()); err != nil {
		c.release()
		return nil, err
	}
	defer h.gate.Done()
	c.observation.Protocol = GRPC
	wire, err := s.answer(ctx, c)
	if err != nil {
		return nil, err
	}
	e := &encodedResponse{wire: wire}
	e.buffers[0] = &e.wire
	return e, nil
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
// call.malformed: otherwise gRPC would answer INTERNAL before the service could count the request.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	into, ours := v.(*call)
	if !ours {
		return c.CodecV2.Unmarshal(data, v)
	}
	into.message.clear()
	wire := []byte(nil)
	if len(data) == 1 {
		wire = data[0].ReadOnlyData()
	} else {
		wire = data.Materialize()
	}
	into.malformed = malformedStatus(into.message.unmarshal(wire))
	return nil
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ours := v.(*encodedResponse); ours {
		return e.buffers[:], nil
	}
	return c.CodecV2.Marshal(v)
}
