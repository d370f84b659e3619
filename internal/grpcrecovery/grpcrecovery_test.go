package grpcrecovery

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/recovery"
)

// Each kind of request that panics is reported once, by its name, and gets an error that does not
// show the panic.
func TestPanicFailsOnlyItsCall(t *testing.T) {
	var reported []string
	report := recovery.Report(func(where string, value any) { reported = append(reported, where+": "+value.(string)) })
	desc := &grpc.ServiceDesc{ServiceName: "service", Methods: []grpc.MethodDesc{{
		MethodName: "Method",
		Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			panic("secret")
		},
	}}}
	WrapMethods(desc, report)
	method, methodErr := desc.Methods[0].Handler(nil, t.Context(), nil, nil)
	unary, unaryErr := UnaryInterceptor(report)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "unary"},
		func(context.Context, any) (any, error) { panic("secret") })
	streamErr := StreamInterceptor(report)(nil, nil, &grpc.StreamServerInfo{FullMethod: "stream"},
		func(any, grpc.ServerStream) error { panic("secret") })
	for name, err := range map[string]error{"method": methodErr, "unary": unaryErr, "stream": streamErr} {
		if s := status.Convert(err); s.Code() != codes.Internal || s.Message() != "internal error" {
			t.Errorf("%s: %v, want INTERNAL, internal error", name, err)
		}
	}
	if method != nil || unary != nil {
		t.Errorf("replies %v and %v, want none", method, unary)
	}
	if want := []string{"/service/Method: secret", "unary: secret", "stream: secret"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// Without a panic, replies and errors of handlers are returned as they are, and nothing is
// reported.
func TestCallsWithoutPanicAreUnchanged(t *testing.T) {
	report := recovery.Report(func(where string, value any) { t.Errorf("reported %s, %v", where, value) })
	want := status.Error(codes.Unavailable, "the store is down")
	reply, err := UnaryInterceptor(report)(t.Context(), 1, &grpc.UnaryServerInfo{}, func(_ context.Context, request any) (any, error) { return request, want })
	if reply != 1 || err != want { //nolint:errorlint // the same error
		t.Errorf("got reply %v, error %v, want 1, %v", reply, err, want)
	}
	if err := StreamInterceptor(report)(nil, nil, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return want }); err != want { //nolint:errorlint // the same error
		t.Error(err)
	}
}
