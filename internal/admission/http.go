package admission

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// bodyTimeout bounds the time in which an HTTP body must arrive.
const bodyTimeout = 2 * time.Second

// Handler wraps next with the limit. It reads the body before it admits the request, so that slow clients do not occupy the limit.
// Bodies being read have a second limit of the same size. Beyond either limit it answers 503, because 429 means a denied request. A
// body that takes longer than two seconds gets 400. If a body has more than maxBody bytes, next gets maxBody+1 of them, and must
// reject the request.
func (g *Gate) Handler(next http.Handler, maxBody int64) http.Handler {
	reading := make(chan struct{}, g.limit)
	read := func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		defer func() { <-reading }()
		// If the writer has no deadlines, the server's own timeout applies.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		return io.ReadAll(io.LimitReader(r.Body, maxBody+1))
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
		if r.Context().Err() != nil || g.Enter(nil) != nil {
			reject(w, http.StatusServiceUnavailable)
			return
		}
		defer g.Leave()
		if int64(len(body)) > maxBody {
			closeAfter(w)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func reject(w http.ResponseWriter, code int) {
	closeAfter(w)
	http.Error(w, http.StatusText(code), code)
}

// closeAfter closes the connection after the response. Otherwise the server reads the rest of the body before answering.
func closeAfter(w http.ResponseWriter) { w.Header().Set("Connection", "close") }
