package rls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// An Admission admits or rejects gRPC requests.
type Admission interface {
	// Receive receives a request, for example by decode, and then admits it. A non-nil error is the
	// response.
	Receive(ctx context.Context, decode func(any) error, request PendingRequest) error
	// Done ends an admitted request.
	Done()
}

// A PendingRequest is a request over gRPC, empty until it is decoded.
type PendingRequest interface {
	// MayRefund reports whether the request refunds hits, ends a lease or settles a reservation. It
	// may be true for other requests too, because ordinary keys may be named release or settle.
	MayRefund() bool
}

type admitAll struct{}

func (admitAll) Receive(_ context.Context, decode func(any) error, request PendingRequest) error {
	return decode(request)
}
func (admitAll) Done() {}

// ServiceDesc returns the description of the service for a gRPC server with [Codec]. It uses this
// package's decoder instead of the generated one. A nil Admission admits every request. Unary
// interceptors do not see ShouldRateLimit: its metrics come from its [Observation], and a request
// that ends before it is decoded would reach no interceptor.
func ServiceDesc(a Admission) *grpc.ServiceDesc {
	if a == nil {
		a = admitAll{}
	}
	file := ratelimitv3.File_envoy_service_ratelimit_v3_rls_proto
	return &grpc.ServiceDesc{
		ServiceName: string(file.Services().ByName("RateLimitService").FullName()),
		HandlerType: (*ratelimitv3.RateLimitServiceServer)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handler{a}.shouldRateLimit}},
		Metadata:    file.Path(),
	}
}

type handler struct{ Admission }

func (h handler) shouldRateLimit(
	service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	c := newCall()
	if err := h.Receive(ctx, decode, c); err != nil {
		c.release()
		return nil, err
	}
	defer h.Done()
	c.observation.GRPC = true
	wire, err := service.(*Service).answer(ctx, c)
	if err != nil {
		return nil, err
	}
	e := &encodedResponse{wire: wire}
	e.buffers[0] = &e.wire
	return e, nil
}

// An encodedResponse is a RateLimitResponse in wire format, which gRPC frees after sending.
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
func (o codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ours := v.(*call)
	if !ours {
		return o.CodecV2.Unmarshal(data, v)
	}
	c.message.clear()
	wire := []byte(nil)
	if len(data) == 1 {
		wire = data[0].ReadOnlyData()
	} else {
		wire = data.Materialize()
	}
	c.malformed = malformedStatus(c.message.unmarshal(wire))
	return nil
}

// Marshal implements encoding.CodecV2.
func (o codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ours := v.(*encodedResponse); ours {
		return e.buffers[:], nil
	}
	return o.CodecV2.Marshal(v)
}
