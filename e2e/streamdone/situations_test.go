package streamdone

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// envoyTimeout is the wait for Weir of the Envoy of testFirstCallTimedOut, which waits that long.
const envoyTimeout = 2 * time.Second

// A variant is a limit under which the first call opens a lease, which is released or settled at
// the end of the stream. Two requests fit.
type variant struct {
	name, path       string
	kind             string         // the kind of limit, with a TTL of 600 s
	brief            map[string]int // kinds with a TTL of 2 s, and the usage that an unfinished request leaves after it
	estimate, actual int
	held             int // by a request under way
	left             int // after its end
}

var variants = []variant{
	{name: "release by negative hits", path: "/negative", kind: "slots", brief: map[string]int{"brief": 0}, held: 1},
	{name: "release by marker", path: "/marker", kind: "slots", brief: map[string]int{"brief": 0}, held: 1},
	{name: "settle", path: "/settle", kind: "budget", brief: map[string]int{"brief_charge": 400, "brief_release": 0}, estimate: 400, actual: 30, held: 400, left: 30},
}

func (v variant) request(user string) request {
	return request{path: v.path, kind: v.kind, user: user, estimate: v.estimate, actual: v.actual}
}

// A scene is one variant on one store, with a user of its own.
type scene struct {
	*stack
	variant
	user  string
	store *store
}

func (s *scene) request() request { return s.variant.request(s.user) }

var lastScene atomic.Int64

// in returns the scene with a new user.
func (s *scene) in(t *testing.T) *scene {
	return &scene{s.stack, s.variant, fmt.Sprint(t.Name(), " ", lastScene.Add(1)), s.store}
}

// A store is a stack, another one for testFirstCallTimedOut, and on Redis a second Weir whose Redis
// can be made slow.
type store struct {
	*stack
	hasty *stack // its Envoy waits for envoyTimeout only
	name  string
	slow  *slowWeir // nil: memory
}

func newStore(t *testing.T, name string) *store {
	t.Helper()
	env := []string{"STORE_TIMEOUT=5s"} // only the recorder and the gate cause a timeout
	if name == "memory" {
		w := startWeir(t, harness.WeirOptions{Env: env})
		return &store{stack: newStack(t, testTimeout, nil, w.GRPC), hasty: newStack(t, envoyTimeout, nil, w.GRPC), name: name}
	}
	redis := redistest.Start(t)
	w := startWeir(t, harness.WeirOptions{Redis: redis.Addr, Env: env})
	return &store{
		stack: newStack(t, testTimeout, nil, w.GRPC), hasty: newStack(t, envoyTimeout, nil, w.GRPC), name: name,
		slow: startSlowWeir(t, redis.Addr, env),
	}
}

// TestStreamEndsReleaseTheirLeases has a subtest for each situation in which Envoy calls Weir at
// the end of a stream, or should and does not. In each of them it checks the calls that Envoy
// makes, and the usage that remains.
func TestStreamEndsReleaseTheirLeases(t *testing.T) {
	t.Parallel()
	stores := []*store{newStore(t, "memory"), newStore(t, "redis")}
	for _, situation := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"served", testServedRequest},
		{"denied", testDeniedRequest},
		{"first_call_times_out", testFirstCallTimedOut},
		{"client_leaves_during_first_call", testClientLeavesDuringFirstCall},
		{"client_leaves_during_work", testClientLeavesDuringWork},
		{"forged_id", testForgedID},
		{"upstream_fails", testUpstreamFails},
		{"weir_down_at_first_call", testServiceDownAtFirstCall},
		{"weir_down_at_end", testServiceDownAtEnd},
	} {
		t.Run(situation.name, func(t *testing.T) {
			t.Parallel()
			for _, st := range stores {
				for _, v := range variants {
					t.Run(st.name+"/"+v.name, func(t *testing.T) {
						t.Parallel()
						situation.test(t, (&scene{stack: st.stack, variant: v, store: st}).in(t))
					})
				}
			}
		})
	}
}

// wantCalls checks that each request made one first call and one call at its end, with the same id.
func (s *scene) wantCalls(t *testing.T, requests int) {
	t.Helper()
	s.rec.awaitDone(t, s.user, requests)
	first, done := s.rec.of(s.user)
	if len(first) != requests {
		t.Errorf("%d first calls, want %d", len(first), requests)
	}
	ids := map[string]int{}
	for _, c := range first {
		ids[c.id]++
		if c.id == "" || s.estimate > 0 && c.hits() != s.estimate {
			t.Errorf("first call %v, want an id and %d hits", c.descriptor, s.estimate)
		}
	}
	for _, c := range done {
		ids[c.id]--
		if !c.deadline {
			t.Errorf("no deadline: %v", c.descriptor)
		}
		switch {
		case s.path == "/negative" && (!c.descriptor.GetIsNegativeHits() || c.hits() != 1 || len(c.descriptor.GetEntries()) != 3),
			s.path == "/marker" && entry(c.descriptor, "release") != "1",
			s.path == "/settle" && (entry(c.descriptor, "settle") != "1" || c.hits() != s.actual):
			t.Errorf("at the end of the stream: %v", c.descriptor)
		}
	}
	for id, n := range ids {
		if n != 0 {
			t.Errorf("the two calls of a request have different ids: %q", id)
		}
	}
}

// The request is served. Envoy calls again with the same id, and Weir releases or settles.
func testServedRequest(t *testing.T, s *scene) {
	st := s.open(t, s.request())
	s.wantUsed(t, s.kind, s.user, s.held, "while the upstream works")
	st.answer(200, "")
	s.wantCalls(t, 1)
	s.wantUsed(t, s.kind, s.user, s.left, "after the end")
}

// The request is denied, and Envoy calls again all the same. A denied request must not free
// what others hold.
func testDeniedRequest(t *testing.T, s *scene) {
	streams := []*stream{s.open(t, s.request()), s.open(t, s.request())}
	for n := range 3 {
		s.denied(t, s.request())
		s.rec.awaitDone(t, s.user, n+1)
		s.wantUsed(t, s.kind, s.user, 2*s.held, "after a denied request")
	}
	for _, st := range streams {
		st.answer(200, "")
	}
	s.wantCalls(t, 5)
	s.wantUsed(t, s.kind, s.user, 2*s.left, "after the end")
}

// Weir is slower than Envoy's timeout, and Envoy admits the request. The call at its end
// comes although the first call was not answered. It ends the lease of the first call, and nothing
// else.
func testFirstCallTimedOut(t *testing.T, s *scene) {
	s.stack = s.store.hasty
	t.Run("Weir does not receive the call", func(t *testing.T) {
		t.Parallel()
		s.repeat(t, func(s *scene) bool {
			return s.admitUndecided(t, func(ctx context.Context, _ forward) (*ratelimitv3.RateLimitResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, func() bool { return false })
		})
	})
	t.Run("the answer of Weir is late", func(t *testing.T) {
		t.Parallel()
		s.repeat(t, func(s *scene) bool {
			return s.admitUndecided(t, func(ctx context.Context, weir forward) (*ratelimitv3.RateLimitResponse, error) {
				answer, err := weir(context.WithoutCancel(ctx)) // on a busy machine Envoy may give up before
				<-ctx.Done()
				return answer, err
			}, func() bool { return true })
		})
	})
	if s.store.slow == nil {
		return
	}
	t.Run("the reply of Redis is late", func(t *testing.T) {
		t.Parallel()
		s.repeat(t, func(s *scene) bool {
			gate := s.store.slow.closeGate(t, s)
			defer gate.abandon()
			return s.admitUndecided(t, gate.forward(), func() bool {
				// If Weir saw in time that Envoy canceled, it has ended the lease of the call.
				// Otherwise the call at the end frees it.
				return !gate.open(t)
			})
		})
	})
}

// repeat runs an attempt with new users until it reports that the recorder has received all calls.
// On a busy machine Envoy gives up some before it has sent them.
func (s *scene) repeat(t *testing.T, attempt func(*scene) bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !attempt(s.in(t)); {
		if time.Now().After(deadline) {
			t.Fatal("the recorder does not receive the calls")
		}
		t.Log("again: Envoy has given up a call before it sent it")
	}
}

// admitUndecided sends a request beside another one. Envoy does not wait for its first call. opened
// is called once Envoy has admitted the request. It reports whether the request holds a lease.
// admitUndecided returns false if Envoy has not sent a call.
func (s *scene) admitUndecided(
	t *testing.T, answer func(context.Context, forward) (*ratelimitv3.RateLimitResponse, error), opened func() bool,
) (sent bool) {
	t.Helper()
	// A busy machine must not delay the other calls until Envoy gives up.
	waitForAnswer := func(ctx context.Context, _ call, weir forward) (*ratelimitv3.RateLimitResponse, error) {
		return weir(context.WithoutCancel(ctx))
	}
	s.rec.intercept(s.user, waitForAnswer)
	other := s.open(t, s.request())
	if !s.rec.received(s.user, 1, 0) {
		return false
	}
	s.rec.intercept(s.user, func(ctx context.Context, c call, weir forward) (*ratelimitv3.RateLimitResponse, error) {
		if c.done {
			return waitForAnswer(ctx, c, weir)
		}
		return answer(ctx, weir)
	})
	st := s.open(t, s.request())
	if !s.rec.received(s.user, 2, 0) {
		return false
	}
	used, left := s.held, 0
	if opened() {
		used, left = 2*s.held, s.left
	}
	s.wantUsed(t, s.kind, s.user, used, "while the upstream works")
	st.answer(200, "")
	if !s.rec.received(s.user, 2, 1) {
		return false
	}
	s.wantUsed(t, s.kind, s.user, s.held+left, "after the end of the request that Envoy admitted")
	other.answer(200, "")
	if !s.rec.received(s.user, 2, 2) {
		return false
	}
	s.wantCalls(t, 2)
	s.wantUsed(t, s.kind, s.user, s.left+left, "after the end of both")
	if first, _ := s.rec.of(s.user); !first[1].canceled && first[1].err == nil {
		t.Errorf("Envoy waited for the late answer: %v", first[1])
	}
	return true
}

// The client leaves during the first call. Envoy cancels the call, and never makes the one
// at the end.
func testClientLeavesDuringFirstCall(t *testing.T, s *scene) {
	t.Run("Weir does not receive the call", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.rec.intercept(s.user, func(ctx context.Context, _ call, _ forward) (*ratelimitv3.RateLimitResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		st := s.send(t, s.request())
		must.Until(t, "the first call", func() bool {
			first, _ := s.rec.of(s.user)
			return len(first) == 1
		})
		s.leaveDuringFirstCall(t, st)
		s.wantUsed(t, s.kind, s.user, 0, "after a first call that Weir did not receive")
		s.wantNoCallAtEnd(t)
	})
	// Weir has answered, and cannot know that Envoy drops its answer.
	for kind, left := range s.brief {
		t.Run("the answer is lost, "+kind, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			answered := make(chan struct{})
			s.rec.intercept(s.user, func(ctx context.Context, _ call, weir forward) (*ratelimitv3.RateLimitResponse, error) {
				answer, err := weir(ctx)
				close(answered)
				<-ctx.Done()
				return answer, err
			})
			r := s.request()
			r.kind = kind
			st := s.send(t, r)
			<-answered
			s.leaveDuringFirstCall(t, st)
			first, _ := s.rec.of(s.user)
			s.wantHeldForTTL(t, kind, s.user, first, s.held, left)
			s.wantNoCallAtEnd(t)
		})
	}
	if s.store.slow == nil {
		return
	}
	t.Run("the reply of Redis is late", func(t *testing.T) {
		t.Parallel()
		for range 20 {
			s := s.in(t)
			if s.leaveWhileRedisIsLate(t) {
				s.wantUsed(t, s.kind, s.user, 0, "after Weir has ended the lease of the first call")
				s.wantNoCallAtEnd(t)
				return
			}
			t.Log("again: Weir answered before it saw that Envoy canceled")
		}
		t.Error("Weir never ends the lease of the first call")
	})
}

// leaveWhileRedisIsLate has the client leave when Redis has run the first call and not replied yet.
// It reports whether Weir gave up the lease of the call.
func (s *scene) leaveWhileRedisIsLate(t *testing.T) bool {
	t.Helper()
	gate := s.store.slow.closeGate(t, s)
	defer gate.abandon()
	answer := gate.forward()
	s.rec.intercept(s.user, func(ctx context.Context, _ call, weir forward) (*ratelimitv3.RateLimitResponse, error) {
		return answer(ctx, weir)
	})
	st := s.send(t, s.request())
	must.Until(t, "Redis has run the first call", func() bool { return s.used(t, s.kind, s.user) == s.held })
	s.leaveDuringFirstCall(t, st)
	return gate.open(t)
}

// leaveDuringFirstCall has the client leave, and returns once Envoy has canceled the first call.
func (s *scene) leaveDuringFirstCall(t *testing.T, st *stream) {
	t.Helper()
	st.leave()
	must.Until(t, "Envoy cancels the call", func() bool {
		first, _ := s.rec.of(s.user)
		return first[0].canceled
	})
}

// wantNoCallAtEnd checks that Envoy made no call at the end of the stream. Envoy makes its calls in
// order, so it would precede the call of a later request.
func (s *scene) wantNoCallAtEnd(t *testing.T) {
	t.Helper()
	s.rec.intercept(s.user, nil)
	s.open(t, s.request()).answer(200, "")
	s.rec.awaitDone(t, s.user, 1)
}

// The client leaves while the upstream works. Envoy calls immediately.
func testClientLeavesDuringWork(t *testing.T, s *scene) {
	st := s.open(t, s.request())
	s.wantUsed(t, s.kind, s.user, s.held, "while the upstream works")
	st.leave()
	s.wantCalls(t, 1)
	s.wantUsed(t, s.kind, s.user, s.left, "after the client left")
	select {
	case <-st.up.ended:
	case <-time.After(testTimeout):
		t.Error("the upstream still works")
	}
}

// The client sends ids. Envoy keeps its x-request-id, and replaces the header that holds the
// id of the lease.
func testForgedID(t *testing.T, s *scene) {
	const forged = "11111111-2222-4333-8444-555555555555"
	r := s.request()
	r.header = http.Header{"X-Request-Id": {forged}, "X-Weir-Lease": {forged}}
	streams := []*stream{s.open(t, r), s.open(t, r)}
	s.wantUsed(t, s.kind, s.user, 2*s.held, "two requests with the same forged id")
	s.denied(t, r)
	s.wantUsed(t, s.kind, s.user, 2*s.held, "after a denied request with that id")
	for _, st := range streams {
		if id := st.up.header.Get("x-request-id"); id != forged {
			t.Errorf("x-request-id is %s: Envoy no longer keeps that of the client", id)
		}
		if id := st.up.header.Get("x-weir-lease"); id == forged || id == "" {
			t.Errorf("x-weir-lease is %q", id)
		}
		st.answer(200, "")
	}
	s.wantCalls(t, 3)
	s.wantUsed(t, s.kind, s.user, 2*s.left, "after the end")
}

// The upstream fails.
func testUpstreamFails(t *testing.T, s *scene) {
	st := s.open(t, s.request())
	s.wantUsed(t, s.kind, s.user, s.held, "while the upstream works")
	st.answer(503, "")
	s.wantCalls(t, 1)
	s.wantUsed(t, s.kind, s.user, s.left, "after the end")
}

var errDown = status.Error(codes.Unavailable, "the service is down")

// Weir is down at the first call and back at the end. It receives a release or a settlement
// of nothing.
func testServiceDownAtFirstCall(t *testing.T, s *scene) {
	other := s.open(t, s.request())
	s.rec.intercept(s.user, func(ctx context.Context, c call, weir forward) (*ratelimitv3.RateLimitResponse, error) {
		if c.done {
			return weir(ctx)
		}
		return nil, errDown
	})
	for n := range 2 {
		s.open(t, s.request()).answer(200, "")
		s.rec.awaitDone(t, s.user, n+1)
		s.wantUsed(t, s.kind, s.user, s.held, "after a request that opened no lease")
	}
	other.answer(200, "")
	s.wantCalls(t, 3)
	s.wantUsed(t, s.kind, s.user, s.left, "after the end")
}

// Weir is down at the end of the stream. The call is lost, and the lease of the request
// stays until its TTL is over.
func testServiceDownAtEnd(t *testing.T, s *scene) {
	s.rec.intercept(s.user, func(ctx context.Context, c call, weir forward) (*ratelimitv3.RateLimitResponse, error) {
		if c.done {
			return nil, errDown
		}
		return weir(ctx)
	})
	requests := 0
	for kind, left := range s.brief {
		r := s.request()
		r.kind = kind
		s.open(t, r).answer(200, "")
		first, _ := s.rec.of(s.user)
		s.wantHeldForTTL(t, r.kind, s.user, first[requests:], s.held, left)
		requests++
	}
	s.rec.awaitDone(t, s.user, requests) // more calls: retry_policy has an effect
}
