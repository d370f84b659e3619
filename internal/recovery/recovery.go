// Package recovery makes a panic fail only its own request, by gRPC or HTTP.
package recovery

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Report receives the value of each recovered panic, and the method, path or task that panicked. It runs on the stack of the panic,
// and must not panic.
type Report func(where string, value any)

// errInternal reveals nothing of a panic.
var errInternal = status.Error(codes.Internal, "internal error")

// Recover recovers from a panic. The caller must defer it.
func (r Report) Recover(where string) {
	if value := recover(); value != nil {
		r(where, value)
	}
}

// recoverTo is Recover for a function with the error err, which a panic sets.
func (r Report) recoverTo(err *error, where string) {
	if value := recover(); value != nil {
		r(where, value)
		*err = errInternal
	}
}

// Methods makes the unary methods of desc recover without an interceptor. It replaces their interceptors by nil. A request whose
// method panics gets INTERNAL.
func (r Report) Methods(desc *grpc.ServiceDesc) {
	for i := range desc.Methods {
		m := &desc.Methods[i]
		name, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (reply any, err error) {
			defer r.recoverTo(&err, name)
			return handle(service, ctx, decode, nil)
		}
	}
}

// Unary is a [grpc.UnaryServerInterceptor]. A request whose handler panics gets INTERNAL.
func (r Report) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	defer r.recoverTo(&err, info.FullMethod)
	return handle(ctx, request)
}

// Stream is a [grpc.StreamServerInterceptor]. A stream whose handler panics gets INTERNAL.
func (r Report) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer r.recoverTo(&err, info.FullMethod)
	return handle(service, stream)
}

// HTTP returns a handler that calls next. A request for which next panics gets 500, see [Report.Serve].
func (r Report) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		response := &Response{ResponseWriter: w}
		r.Serve(response, request.URL.Path, func() { next.ServeHTTP(response, request) }, func() {
			http.Error(response, "Internal Server Error", http.StatusInternalServerError)
		})
	})
}

// Serve calls serve, which writes a response. If serve panics, Serve reports where, and fail writes the response. If the response has
// begun, Serve panics with [http.ErrAbortHandler] instead, so that the client does not take the response for complete. A panic with
// that value is passed on without a report.
func (r Report) Serve(response *Response, where string, serve, fail func()) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if value != http.ErrAbortHandler { //nolint:errorlint // net/http knows only this value
			r(where, value)
			if response.Code == 0 {
				fail()
				return
			}
		}
		panic(http.ErrAbortHandler)
	}()
	serve()
}

// A Response records the status code of a response.
type Response struct {
	http.ResponseWriter
	Code int // 0: the response has not begun
}

// WriteHeader implements [http.ResponseWriter].
func (r *Response) WriteHeader(code int) {
	if r.Code == 0 {
		r.Code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (r *Response) Write(b []byte) (int, error) {
	if r.Code == 0 {
		r.Code = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (r *Response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
