package admission

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"time"
)

// bodyTimeout bounds the time in which an HTTP body must arrive.
const bodyTimeout = 2 * time.Second

// Handler wraps next with the limit. It reads the body before it admits the request, so that slow
// clients do not occupy the limit, and writes the response after the request has left the limit.
// Bodies being read have a second limit of the same size. Beyond either limit it answers 503,
// because 429 means a denied request.
//
// next must reject a body of more than maxBody bytes. It receives only the first maxBody+1 bytes of
// such a body. A body that does not arrive within two seconds ends with an error, and next must
// reject it too.
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
			g.shed.Add(1)
			reject(w)
			return
		}
		body, err := read(w, r)
		if g.Admit(false) != nil {
			reject(w)
			return
		}
		if err != nil || int64(len(body)) > maxBody {
			closeAfter(w)
		}
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), errorReader{err}))
		response := bufferedResponse{ResponseWriter: w, status: http.StatusOK}
		func() {
			defer g.Done()
			next.ServeHTTP(&response, r)
		}()
		w.WriteHeader(response.status)
		_, _ = w.Write(response.body.Bytes())
	})
}

// A bufferedResponse holds the status and the body of a response.
type bufferedResponse struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements [http.ResponseWriter].
func (r *bufferedResponse) WriteHeader(status int) { r.status = status }

// Write implements [http.ResponseWriter].
func (r *bufferedResponse) Write(b []byte) (int, error) { return r.body.Write(b) }

// Unwrap returns the writer to the client.
func (r *bufferedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// An errorReader returns its error, or [io.EOF] if it is nil.
type errorReader struct{ err error }

// Read implements io.Reader.
func (r errorReader) Read([]byte) (int, error) { return 0, cmp.Or(r.err, io.EOF) }

func reject(w http.ResponseWriter) {
	closeAfter(w)
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}

// closeAfter closes the connection after the response. Otherwise the server reads the rest of the
// body before answering.
func closeAfter(w http.ResponseWriter) { w.Header().Set("Connection", "close") }
