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
	decode := func(message any) error {
		return wireCodec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, message)
	}
	response, err := method{s, openGate{}}.shouldRateLimit(nil, ctx, decode, nil)
	if err != nil {
		return nil, err
	}
	return wireCodec.Marshal(response)
}

// serveUndecoded serves a request whose message is not received because of err.
func serveUndecoded(s *Service, err error) {
	_, _ = method{s, openGate{}}.shouldRateLimit(nil, context.Background(), func(any) error { return err }, nil)
}

// ServeByGeneratedTypes is ServeWire with the generated codec in place of this package's.
func ServeByGeneratedTypes(ctx context.Context, s *Service, wire []byte) (mem.BufferSlice, error) {
	var request ratelimitv3.RateLimitRequest
	if err := proto.Unmarshal(wire, &request); err != nil {
		return nil, err
	}
	response, err := s.answerGenerated(ctx, newCall(), &request)
	if err != nil {
		return nil, err
	}
	return wireCodec.Marshal(response)
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
