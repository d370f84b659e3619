package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weir-rls/weir/internal/must"
)

// A client gets the files of a service one by one, on one stream, as grpcurl asks for them.
func TestReflectionSendsOneFileAtATime(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+rulesFile(t))
	conn, err := grpc.NewClient(s.address("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	must.Succeed(t, err)
	all := &descriptorpb.FileDescriptorSet{}
	known := map[string]bool{}
	ask := func(request *reflectionv1.ServerReflectionRequest) {
		t.Helper()
		must.Succeed(t, stream.Send(request))
		response, err := stream.Recv()
		must.Succeed(t, err)
		files := response.GetFileDescriptorResponse().GetFileDescriptorProto()
		if len(files) != 1 {
			t.Fatalf("%v: %d files, want one", request, len(files))
		}
		file := &descriptorpb.FileDescriptorProto{}
		must.Succeed(t, proto.Unmarshal(files[0], file))
		known[file.GetName()] = true
		all.File = append(all.File, file)
	}
	// The response repeats the request.
	long, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	must.Succeed(t, err)
	must.Succeed(t, long.Send(&reflectionv1.ServerReflectionRequest{Host: strings.Repeat("x", 1<<10)}))
	if _, err := long.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of more than 1 KiB: %v, want RESOURCE_EXHAUSTED", err)
	}
	ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService",
	}})
	for i := 0; i < len(all.File); i++ {
		for _, name := range all.File[i].GetDependency() {
			if !known[name] {
				ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: name}})
			}
		}
	}
	if _, err := protodesc.NewFiles(all); err != nil {
		t.Errorf("the files are not complete: %v", err)
	}
}
