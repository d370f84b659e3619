package main

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/telemetry"
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

// bounding refuses by HTTP what is too much: 503, for 429 is a decision there.
func (f *inFlight) bounding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.enter(r.Context()); err != nil {
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
			return
		}
		defer f.leave()
		next.ServeHTTP(w, r)
	})
}
