package admission

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// bodyTimeout is the longest time in which the body of an HTTP request may arrive.
const bodyTimeout = 2 * time.Second

// Handler bounds an HTTP handler. It reads the body, at most maxBody bytes, and then admits the request: one that has not
// arrived whole holds no part of the limit. Bodies that are being read have a limit of the same size of their own. A
// request past either limit gets 503, because 429 is an answer of the service. A body that is too large, or does not arrive
// within two seconds, gets 400.
func (f *InFlight) Handler(next http.Handler, maxBody int64) http.Handler {
	reading := make(chan struct{}, f.limit)
	read := func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		defer func() { <-reading }()
		// A writer without deadlines leaves the timeout to the server.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case reading <- struct{}{}:
		default:
			reject(w, http.StatusServiceUnavailable)
			return
		}
		body, err := read(w, r)
		if err != nil {
			reject(w, http.StatusBadRequest)
			return
		}
		if r.Context().Err() != nil || f.Enter() != nil {
			reject(w, http.StatusServiceUnavailable)
			return
		}
		defer f.Leave()
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func reject(w http.ResponseWriter, code int) {
	w.Header().Set("Connection", "close") // otherwise the server reads the rest of the body before it answers
	http.Error(w, http.StatusText(code), code)
}
