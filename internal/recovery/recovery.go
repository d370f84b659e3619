// Package recovery makes a panic fail only its own HTTP request or task. Package grpcrecovery does
// the same for gRPC.
package recovery

import "net/http"

// A Report receives the value of each recovered panic, and the method, path or task that panicked.
// It runs on the stack of the panic, and must not panic.
type Report func(where string, value any)

// Recover recovers from a panic. The caller must defer it.
func (r Report) Recover(where string) {
	if value := recover(); value != nil {
		r(where, value)
	}
}

// HTTP returns a handler that calls next. A request for which next panics gets 500, see
// [Report.Serve].
func (r Report) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		response := &Response{ResponseWriter: w}
		r.Serve(response, request.URL.Path, func() { next.ServeHTTP(response, request) }, func() {
			http.Error(response, "Internal Server Error", http.StatusInternalServerError)
		})
	})
}

// Serve calls serve, which writes a response. If serve panics, Serve reports where, and fail writes
// the response. If the response has begun, Serve panics with [http.ErrAbortHandler] instead, so
// that the client does not take the response for complete. A panic with that value is passed on
// without a report.
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
