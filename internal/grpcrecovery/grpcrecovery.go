// Package grpcrecovery makes a panic fail only its own gRPC request.
package grpcrecovery

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/recovery"
)

// errInternal reveals nothing of a panic.
var errInternal = status.Error(codes.Internal, "internal error")

// recoverTo recovers from a panic, reports it, and sets the error of the function that panicked.
// The caller must defer it.
func recoverTo(report recovery.Report, err *error, where string) {
	if value := recover(); value != nil {
		report(where, value)
		*err = errInternal
	}
}

// WrapMethods makes the unary methods of desc recover without an interceptor. It replaces their
// interceptors by nil. A request whose method panics gets INTERNAL.
func WrapMethods(desc *grpc.ServiceDesc, report recovery.Report) {
	for i := range desc.Methods {
		m := &desc.Methods[i]
		name, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (reply any, err error) {
			defer recoverTo(report, &err, name)
			return handle(service, ctx, decode, nil)
		}
	}
}

// UnaryInterceptor returns an interceptor. A request whose handler panics gets INTERNAL.
func UnaryInterceptor(report recovery.Report) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
		defer recoverTo(report, &err, info.FullMethod)
		return handle(ctx, request)
	}
}

// StreamInterceptor returns an interceptor. A stream whose handler panics gets INTERNAL.
func StreamInterceptor(report recovery.Report) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
		defer recoverTo(report, &err, info.FullMethod)
		return handle(service, stream)
	}
}
