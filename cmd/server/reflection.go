package main

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// oneFileEach is a stream interceptor for the reflection service: a response contains only the file
// that the client asked for. With all files that it imports, a response takes a megabyte, and a
// client that reads nothing keeps one for each of its streams. Clients ask for the other files by
// name, because the protocol lets a server leave out files.
func oneFileEach(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(service, oneFileStream{stream})
}

type oneFileStream struct{ grpc.ServerStream }

// SendMsg implements [grpc.ServerStream]. The messages of both versions of the service have the
// same fields.
func (s oneFileStream) SendMsg(m any) error {
	if response, ok := m.(proto.Message); ok {
		r := response.ProtoReflect()
		if field := r.Descriptor().Fields().ByName("file_descriptor_response"); field != nil && r.Has(field) {
			answer := r.Mutable(field).Message()
			files := answer.Mutable(answer.Descriptor().Fields().ByName("file_descriptor_proto")).List()
			files.Truncate(min(1, files.Len()))
		}
	}
	return s.ServerStream.SendMsg(m)
}
