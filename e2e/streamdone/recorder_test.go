package streamdone

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/must"
)

// A call is one request of Envoy to the rate limit service.
type call struct {
	at         time.Time
	user, id   string // values in the first descriptor
	done       bool   // made at the end of the stream
	deadline   bool   // it has a grpc-timeout
	request    *ratelimitv3.RateLimitRequest
	descriptor *commonv3.RateLimitDescriptor // the first one of the request

	ended    time.Time // zero: not yet
	answer   *ratelimitv3.RateLimitResponse
	err      error
	canceled bool // Envoy had canceled it when it ended
}

// hits returns the hits of the call.
func (c call) hits() int {
	if n := c.descriptor.GetHitsAddend(); n != nil {
		return int(n.GetValue())
	}
	return 1
}

// overLimit reports whether Weir denied the call.
func (c call) overLimit() bool {
	return c.answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
}

// entry returns the value of an entry; empty: it has none.
func entry(d *commonv3.RateLimitDescriptor, key string) string {
	for _, e := range d.GetEntries() {
		if e.GetKey() == key {
			return e.GetValue()
		}
	}
	return ""
}

type forward func(context.Context) (*ratelimitv3.RateLimitResponse, error)

// An interceptor answers a call in place of Weir, or forwards it.
type interceptor func(ctx context.Context, c call, weir forward) (*ratelimitv3.RateLimitResponse, error)

// A recorder is a rate limit service that passes each call to a Weir, with its deadline and its
// cancellation, and keeps it.
type recorder struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	addr string

	mu           sync.Mutex
	weirs        []ratelimitv3.RateLimitServiceClient // in turn
	next         int
	calls        []*call
	interceptors map[string]interceptor // by user; empty: all users without one of their own
}

// startRecorder starts a recorder in front of the Weirs. It ends with the test.
func startRecorder(t *testing.T, weirs ...string) *recorder {
	t.Helper()
	r := &recorder{interceptors: map[string]interceptor{}}
	for _, addr := range weirs {
		r.weirs = append(r.weirs, dial(t, addr))
	}
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, r)
	r.addr = grpctest.Listen(t, server)
	return r
}

// dial returns a client of a rate limit service, which is closed with the test.
func dial(t *testing.T, addr string) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}, MinConnectTimeout: testTimeout,
		}))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return ratelimitv3.NewRateLimitServiceClient(conn)
}

// ShouldRateLimit passes a call to a Weir.
func (r *recorder) ShouldRateLimit(ctx context.Context, req *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	d := req.GetDescriptors()[0]
	c := &call{at: time.Now(), user: entry(d, "user_id"), id: entry(d, "lease"), request: req, descriptor: d}
	last := d.GetEntries()[len(d.GetEntries())-1].GetKey()
	c.done = d.GetIsNegativeHits() || last == "release" || last == "settle"
	_, c.deadline = ctx.Deadline()

	r.mu.Lock()
	r.calls = append(r.calls, c)
	weir := r.weirs[r.next%len(r.weirs)]
	r.next++
	intercept := r.interceptors[c.user]
	if intercept == nil {
		intercept = r.interceptors[""]
	}
	copied := *c
	r.mu.Unlock()

	pass := func(ctx context.Context) (*ratelimitv3.RateLimitResponse, error) {
		return weir.ShouldRateLimit(ctx, req)
	}
	var answer *ratelimitv3.RateLimitResponse
	var err error
	if intercept != nil {
		answer, err = intercept(ctx, copied, pass)
	} else {
		answer, err = pass(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.ended, c.answer, c.err, c.canceled = time.Now(), answer, err, ctx.Err() != nil
	return answer, err
}

// intercept sets the interceptor of a user.
func (r *recorder) intercept(user string, f interceptor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interceptors[user] = f
}

// of returns the calls for a user so far: the first calls of its requests, and those at the end of
// a stream.
func (r *recorder) of(user string) (first, done []call) {
	for _, c := range r.all() {
		switch {
		case c.user != user:
		case c.done:
			done = append(done, c)
		default:
			first = append(first, c)
		}
	}
	return first, done
}

// all returns all calls so far.
func (r *recorder) all() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]call, len(r.calls))
	for i, c := range r.calls {
		all[i] = *c
	}
	return all
}

// received reports whether so many first calls and calls at the end of a stream have ended. It
// waits for them until a lost call is more likely than a late one.
func (r *recorder) received(user string, first, done int) bool {
	under := func(c call) bool { return c.ended.IsZero() }
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		firstCalls, doneCalls := r.of(user)
		if len(slices.DeleteFunc(firstCalls, under)) >= first && len(slices.DeleteFunc(doneCalls, under)) >= done {
			return true
		}
	}
	return false
}

// awaitDone waits until n calls at the end of a stream have ended, and returns them.
func (r *recorder) awaitDone(t *testing.T, user string, n int) []call {
	t.Helper()
	var ended []call
	must.Until(t, "the calls at the end of the stream", func() bool {
		_, done := r.of(user)
		ended = slices.DeleteFunc(done, func(c call) bool { return c.ended.IsZero() })
		return len(ended) >= n
	})
	if len(ended) > n {
		t.Errorf("%d calls at the end of a stream, want %d", len(ended), n)
	}
	return ended
}
