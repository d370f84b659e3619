package rls

import (
	"context"

	"google.golang.org/grpc/mem"
)

var wireCodec = Codec()

// ServeWire serves a request in wire format as a gRPC server does, without a connection.
func ServeWire(ctx context.Context, s *Service, request []byte) (mem.BufferSlice, error) {
	decode := func(message any) error {
		return wireCodec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, message)
	}
	response, err := wireDesc.Methods[0].Handler(s, ctx, decode, nil)
	if err != nil {
		return nil, err
	}
	return wireCodec.Marshal(response)
}

var wireDesc = ServiceDesc(nil, nil)
