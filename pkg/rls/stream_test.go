package rls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

var wireCodec = Codec()

// An openGate admits every request.
type openGate struct{}

func (openGate) Admit(bool) error { return nil }
func (openGate) Done()            {}

// ServeWire serves a request in wire format as a gRPC server does, without a connection.
func ServeWire(ctx context.Context, s *Service, request []byte) (mem.BufferSlice, error) {
	receive := func(_ context.Context, message any) error {
		return wireCodec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, message)
	}
	response, err := method{s, receive, openGate{}}.shouldRateLimit(nil, ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	return wireCodec.Marshal(response)
}

// serveUndecoded serves a request whose message is not received because of err.
func serveUndecoded(s *Service, err error) {
	receive := func(context.Context, any) error { return err }
	_, _ = method{s, receive, openGate{}}.shouldRateLimit(nil, context.Background(), nil, nil)
}

// ServeByGeneratedTypes is ServeWire with the generated codec in place of this package's.
func ServeByGeneratedTypes(ctx context.Context, s *Service, wire []byte) (mem.BufferSlice, error) {
	var request ratelimitv3.RateLimitRequest
	if err := proto.Unmarshal(wire, &request); err != nil {
		return nil, err
	}
	c := newExchange()
	again, err := proto.Marshal(&request)
	if err != nil {
		return nil, err
	}
	c.decodeErr = malformedStatus(c.message.unmarshal(again))
	answer, err := s.handle(ctx, c)
	if err != nil {
		return nil, err
	}
	var response ratelimitv3.RateLimitResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return nil, err
	}
	return wireCodec.Marshal(&response)
}

// ShouldRateLimit serves a request as a gRPC server does, without a connection.
func (s *Service) ShouldRateLimit(ctx context.Context, request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	wire, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	answer, err := ServeWire(ctx, s, wire)
	if err != nil {
		return nil, err
	}
	response := new(ratelimitv3.RateLimitResponse)
	return response, proto.Unmarshal(answer.Materialize(), response)
}
