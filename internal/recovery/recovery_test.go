package recovery

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each kind of request that panics is reported once, by its name, and gets an error that does not show the panic.
func TestPanicFailsOnlyItsRequest(t *testing.T) {
	var reported []string
	report := Report(func(where string, value any) { reported = append(reported, where+": "+value.(string)) })
	desc := &grpc.ServiceDesc{ServiceName: "service", Methods: []grpc.MethodDesc{{
		MethodName: "Method",
		Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			panic("secret")
		},
	}}}
	report.Methods(desc)
	method, methodErr := desc.Methods[0].Handler(nil, t.Context(), nil, nil)
	unary, unaryErr := report.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "unary"},
		func(context.Context, any) (any, error) { panic("secret") })
	streamErr := report.Stream(nil, nil, &grpc.StreamServerInfo{FullMethod: "stream"},
		func(any, grpc.ServerStream) error { panic("secret") })
	for name, err := range map[string]error{"method": methodErr, "unary": unaryErr, "stream": streamErr} {
		if s := status.Convert(err); s.Code() != codes.Internal || s.Message() != "internal error" {
			t.Errorf("%s: %v, want INTERNAL, internal error", name, err)
		}
	}
	if method != nil || unary != nil {
		t.Errorf("replies %v and %v, want none", method, unary)
	}
	answer := httptest.NewRecorder()
	report.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })).
		ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/json", nil))
	if answer.Code != 500 || answer.Body.String() != "Internal Server Error\n" {
		t.Errorf("by HTTP: %d %q", answer.Code, answer.Body)
	}
	func() {
		defer report.Recover("task")
		panic("secret")
	}()
	if want := []string{"/service/Method: secret", "unary: secret", "stream: secret", "/json: secret", "task: secret"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// Without a panic, replies and errors of handlers are returned as they are, and nothing is reported.
func TestRequestsWithoutPanicAreUnchanged(t *testing.T) {
	report := Report(func(where string, value any) { t.Errorf("reported %s, %v", where, value) })
	want := status.Error(codes.Unavailable, "the store is down")
	reply, err := report.Unary(t.Context(), 1, &grpc.UnaryServerInfo{}, func(_ context.Context, request any) (any, error) { return request, want })
	if reply != 1 || err != want { //nolint:errorlint // the same error
		t.Errorf("%v, %v", reply, err)
	}
	if err := report.Stream(nil, nil, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return want }); err != want { //nolint:errorlint // the same error
		t.Error(err)
	}
	answer := httptest.NewRecorder()
	report.HTTP(http.NotFoundHandler()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if answer.Code != 404 {
		t.Errorf("by HTTP: %d, want 404", answer.Code)
	}
	report.Recover("task")
}
