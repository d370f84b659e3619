package rls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Register registers the service with a gRPC server that was made with [Codec]. It is what
// ratelimitv3.RegisterRateLimitServiceServer does, but requests and responses are never messages of Envoy's types.
func (s *Service) Register(server grpc.ServiceRegistrar) { server.RegisterService(ServiceDesc(), s) }

// ServiceDesc describes the service to a gRPC server that was made with [Codec]. To interceptors its requests and
// responses are opaque.
func ServiceDesc() *grpc.ServiceDesc {
	file := ratelimitv3.File_envoy_service_ratelimit_v3_rls_proto
	return &grpc.ServiceDesc{
		ServiceName: string(file.Services().ByName("RateLimitService").FullName()),
		HandlerType: (*ratelimitv3.RateLimitServiceServer)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
		Metadata:    file.Path(),
	}
}

func shouldRateLimit(
	service any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor,
) (any, error) {
	s, c := service.(*Service), newCall()
	if err := decode(c); err != nil {
		c.release()
		return nil, err
	}
	c.start, c.answer.GRPC = now(), true
	if intercept == nil {
		return s.serve(ctx, c)
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName}
	return intercept(ctx, c, info, func(ctx context.Context, c any) (any, error) { return s.serve(ctx, c.(*call)) })
}

// serve answers a call off the wire, and releases it.
func (s *Service) serve(ctx context.Context, c *call) (any, error) {
	var r *reply
	err := s.answer(ctx, c)
	if err == nil {
		r, err = s.reply(c)
	}
	s.observe(c, err)
	c.release()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// A reply is a response ready for the wire, in one piece of memory, which gRPC holds until it is sent.
type reply struct {
	buffers [1]mem.Buffer
	wire    mem.SliceBuffer
	room    [72]byte
}

func (s *Service) reply(c *call) (*reply, error) {
	r := &reply{}
	room := r.room[:0]
	if n := len(c.statuses) * sizeOfStatus; n > cap(room) {
		room = make([]byte, 0, n)
	}
	var err error
	r.wire, err = s.marshal(room, c)
	r.buffers[0] = &r.wire
	return r, err
}

// Codec is what a gRPC server reads and writes this service's requests and responses with, by grpc.ForceServerCodecV2.
// Any other message goes the ordinary way.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (o codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ours := v.(*call)
	if !ours {
		return o.CodecV2.Unmarshal(data, v)
	}
	c.asked.clear()
	if len(data) == 1 {
		return c.asked.unmarshal(data[0].ReadOnlyData())
	}
	return c.asked.unmarshal(data.Materialize())
}

// Marshal implements encoding.CodecV2.
func (o codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ours := v.(*reply); ours {
		return r.buffers[:], nil
	}
	return o.CodecV2.Marshal(v)
}
