package recovery

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// A response that has begun gets no 500. The client sees a broken connection, so it does not take the response for complete.
func TestPanicAbortsAResponseThatHasBegun(t *testing.T) {
	var reported []string
	report := Report(func(where string, value any) { reported = append(reported, fmt.Sprint(where, ": ", value)) })
	for path, panicWith := range map[string]any{"/bug": "secret", "/abort": http.ErrAbortHandler} {
		for _, begin := range []func(http.ResponseWriter){
			func(w http.ResponseWriter) { _, _ = w.Write([]byte("begun")) },
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
		} {
			answer := httptest.NewRecorder()
			got := func() (recovered any) {
				defer func() { recovered = recover() }()
				report.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					begin(w)
					panic(panicWith)
				})).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
				return nil
			}()
			if got != http.ErrAbortHandler { //nolint:errorlint // the same value
				t.Errorf("%s: panicked with %v, want http.ErrAbortHandler", path, got)
			}
			if strings.Contains(answer.Body.String(), "Error") {
				t.Errorf("%s: response %q, want no error in it", path, answer.Body)
			}
		}
	}
	if want := []string{"/bug: secret", "/bug: secret"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// A handler that aborts its connection on purpose is no bug.
func TestAbortIsNotReported(t *testing.T) {
	report := Report(func(where string, value any) { t.Errorf("reported %s, %v", where, value) })
	answer := httptest.NewRecorder()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler || answer.Body.Len() > 0 { //nolint:errorlint // the same value
			t.Errorf("panicked with %v and wrote %q, want http.ErrAbortHandler and nothing", got, answer.Body)
		}
	}()
	report.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).
		ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
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
