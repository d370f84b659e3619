package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/rls"
)

// inFlight bounds the requests that are being decided, of gRPC and of /json together. One past the bound is refused at once:
// whoever waits for too much waits for nothing, and keeps others waiting.
type inFlight struct {
	most    int64
	many    int64 // of them, so that connections are read at the pace of the answers: see crowd
	now     atomic.Int64
	refused atomic.Int64
	room    chan struct{} // tells one who waits that they are no longer many
}

// perCPU is the default bound for each CPU: what it decides in about ten milliseconds, on Redis (22,000 a second) or in half
// of that (50,000 in memory). More of them only wait longer, and Envoy waits for 20 ms.
const perCPU = 256

// newInFlight makes a bound; 0 is the default.
func newInFlight(most int) *inFlight {
	if most == 0 {
		most = perCPU * runtime.GOMAXPROCS(0)
	}
	return &inFlight{most: int64(most), many: int64(most - most/4), room: make(chan struct{})}
}

var errTooMany = status.Error(codes.ResourceExhausted, "too many requests under way")

// enter lets a request in, which leaves later; or tells that it is not to be decided: there are too many, or who asked has
// not waited.
func (f *inFlight) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if f.now.Add(1) > f.most {
		f.now.Add(-1)
		f.refused.Add(1)
		return errTooMany
	}
	return nil
}

func (f *inFlight) leave() {
	if f.now.Add(-1) > f.many {
		return
	}
	select {
	case f.room <- struct{}{}:
	default:
	}
}

func (f *inFlight) stats() telemetry.Load {
	return telemetry.Load{InFlight: f.now.Load(), Refused: f.refused.Load()}
}

// bodyWithin is how long the body of a request by HTTP may take to arrive.
const bodyWithin = 2 * time.Second

// bounding refuses by HTTP what is too much: 503, for 429 is a decision there. A request counts as under way once it is there:
// who sends half of one takes no place from Envoy. Those that are being read are counted for themselves.
func (f *inFlight) bounding(next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, code int) {
		w.Header().Set("Connection", "close") // else the server waits for the body before it answers
		http.Error(w, http.StatusText(code), code)
	}
	reading := make(chan struct{}, f.most)
	read := func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		defer func() { <-reading }()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin)) // else the server's own stands
		return io.ReadAll(http.MaxBytesReader(w, r.Body, rls.MaxBody))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case reading <- struct{}{}:
		default:
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		body, err := read(w, r)
		if err != nil {
			refuse(w, http.StatusBadRequest)
			return
		}
		if err := f.enter(r.Context()); err != nil {
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		defer f.leave()
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
