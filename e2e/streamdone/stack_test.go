package streamdone

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

const (
	testTimeout = 2 * time.Minute // longer than any step takes on a busy machine
	briefTTL    = 2 * time.Second // the TTL of the kinds brief and brief_*
	slots       = 2               // the limit of the kinds slots and brief
	budget      = 1000            // the limit of the kinds with a budget
)

const rules = `
domain: streamdone
descriptors:
  - {key: kind, value: slots, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      algorithm: concurrency, concurrent_requests: 2, lease_ttl: 600s}}]}]}
  - {key: kind, value: brief, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      algorithm: concurrency, concurrent_requests: 2, lease_ttl: 2s}}]}]}
  - {key: kind, value: ten, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      algorithm: concurrency, concurrent_requests: 10, lease_ttl: 600s, on_store_error: deny}}]}]}
  - {key: kind, value: budget, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      unit: year, requests_per_unit: 1000, reserve: {ttl: 600s}}}]}]}
  - {key: kind, value: brief_charge, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      unit: year, requests_per_unit: 1000, reserve: {ttl: 2s, unsettled: charge}}}]}]}
  - {key: kind, value: brief_release, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      unit: year, requests_per_unit: 1000, reserve: {ttl: 2s, unsettled: release}}}]}]}
  - {key: kind, value: large, descriptors: [{key: user_id, descriptors: [{key: lease, rate_limit: {
      unit: year, requests_per_unit: 100000000, on_store_error: deny, reserve: {ttl: 600s}}}]}]}
`

// limits has the limit of each kind.
var limits = map[string]int{
	"slots": slots, "brief": slots, "ten": 10,
	"budget": budget, "brief_charge": budget, "brief_release": budget, "large": 100_000_000,
}

// A stack is an upstream, an Envoy, a recorder and one or more Weirs.
type stack struct {
	up    *upstream
	envoy *harness.Envoy
	rec   *recorder
	weir  ratelimitv3.RateLimitServiceClient // for peeks
}

// startWeir starts a Weir that the test stops or kills.
func startWeir(t *testing.T, o harness.WeirOptions) *harness.Weir {
	t.Helper()
	o.Binary, o.Rules = binary(t), filepath.Join(t.TempDir(), "rules.yaml")
	must.Write(t, o.Rules, rules)
	return harness.MustStartWeir(t, o)
}

// newStack starts the upstream, the recorder and Envoy. timeout is Envoy's wait for Weir. edit may
// change the bootstrap.
func newStack(t *testing.T, timeout time.Duration, edit func(string) string, weirs ...string) *stack {
	t.Helper()
	s := &stack{up: startUpstream(t), rec: startRecorder(t, weirs...)}
	s.weir = s.rec.weirs[0]
	s.envoy = startEnvoy(t, s, timeout, edit)
	return s
}

func startEnvoy(t *testing.T, s *stack, timeout time.Duration, edit func(string) string) *harness.Envoy {
	t.Helper()
	return harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("testdata", "bootstrap.yaml"), Weir: s.rec.addr, Upstream: s.up.addr,
		Timeout: timeout, Edit: edit,
	})
}

// A request is sent through Envoy.
type request struct {
	path, kind, user string
	estimate, actual int         // for reservations
	header           http.Header // further headers
}

// A stream is a request under way. Its upstream holds it until the test calls answer.
type stream struct {
	t      *testing.T
	up     *held
	cancel context.CancelFunc
	ended  chan struct{} // closed once status and err are set
	status int
	err    error
}

var lastStream atomic.Int64

// send sends a request and does not wait.
func (s *stack) send(t *testing.T, r request) *stream {
	t.Helper()
	name := strconv.FormatInt(lastStream.Add(1), 10)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.envoy.URL+r.path, nil)
	must.Succeed(t, err)
	for key, values := range r.header {
		req.Header[key] = values
	}
	for key, value := range map[string]string{
		"x-hold": name, "x-name": name, "x-kind": r.kind, "x-user-id": r.user, "x-estimate": strconv.Itoa(r.estimate), "x-actual": strconv.Itoa(r.actual),
	} {
		req.Header.Set(key, value)
	}
	st := &stream{t: t, up: s.up.get(name), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(st.ended)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(req)
		if err != nil {
			st.err = err
			return
		}
		st.status = res.StatusCode
		_, st.err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}()
	t.Cleanup(func() {
		cancel()
		<-st.ended
	})
	return st
}

// open sends a request and returns once its upstream has received it.
func (s *stack) open(t *testing.T, r request) *stream {
	t.Helper()
	st := s.send(t, r)
	st.awaitUpstream()
	return st
}

// denied sends a request that Envoy must answer with 429.
func (s *stack) denied(t *testing.T, r request) {
	t.Helper()
	st := s.send(t, r)
	if st.admitted() {
		t.Fatal("the upstream has received the request, want 429")
	}
	if st.status != http.StatusTooManyRequests || st.err != nil {
		t.Fatalf("status %d, %v, want 429", st.status, st.err)
	}
}

// admitted waits until the upstream has received the request or the client has a response, and
// reports whether it was the upstream.
func (st *stream) admitted() bool {
	select {
	case <-st.up.arrived:
		return true
	case <-st.ended:
		return false
	}
}

// awaitUpstream waits until the upstream has received the request.
func (st *stream) awaitUpstream() {
	st.t.Helper()
	if !st.admitted() {
		st.t.Fatalf("status %d, %v, want that the upstream receives the request", st.status, st.err)
	}
}

// answer has the upstream answer, and waits for the client's response.
func (st *stream) answer(status int, cost string) {
	st.t.Helper()
	st.up.answer <- respond(status, cost)
	<-st.ended
	if st.status != status || st.err != nil {
		st.t.Fatalf("status %d, %v, want %d", st.status, st.err, status)
	}
}

// leave has the client disconnect.
func (st *stream) leave() {
	st.cancel()
	<-st.ended
}

var lastPeek atomic.Int64

// used returns the usage of a user: the slots held, or the charged cost.
func (s *stack) used(t *testing.T, kind, user string) int {
	t.Helper()
	used, err := peek(t.Context(), s.weir, kind, user)
	must.Succeed(t, err)
	return used
}

// peek asks a Weir without charging, past the recorder. A peek of a reservation opens an empty one.
func peek(ctx context.Context, weir ratelimitv3.RateLimitServiceClient, kind, user string) (used int, err error) {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	res, err := weir.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "streamdone", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "kind", Value: kind}, {Key: "user_id", Value: user}, {Key: "lease", Value: fmt.Sprintf("peek-%d", lastPeek.Add(1))},
		},
		HitsAddend: wrapperspb.UInt64(0),
	}}})
	if err != nil {
		return 0, err
	}
	status := res.GetStatuses()[0]
	if status.GetCurrentLimit() == nil {
		return 0, fmt.Errorf("no limit for kind %s", kind)
	}
	return limits[kind] - int(status.GetLimitRemaining()), nil
}

// wantUsed fails the test unless the usage is as given.
func (s *stack) wantUsed(t *testing.T, kind, user string, want int, when string) {
	t.Helper()
	if got := s.used(t, kind, user); got != want {
		t.Errorf("%s: %d used, want %d", when, got, want)
	}
}

// wantHeldForTTL reads the usage of a kind until only left is used, and returns how long held was
// used. The leases of the calls in opened must last until the TTL of the first call is over. After
// the TTL of the last call, none of them may be left.
func (s *stack) wantHeldForTTL(t *testing.T, kind, user string, opened []call, held, left int) time.Duration {
	t.Helper()
	first, last := opened[0], opened[len(opened)-1]
	for {
		over := time.Since(last.ended) > briefTTL
		used := s.used(t, kind, user)
		since := time.Since(first.at)
		switch {
		case since < briefTTL && used != held:
			t.Fatalf("%s: %d used %v after the first call, want %d for %v", kind, used, since, held, briefTTL)
		case over && used != left:
			t.Fatalf("%s: %d used %v after the first call, want %d after %v", kind, used, since, left, briefTTL)
		case over:
			return since
		}
		time.Sleep(5 * time.Millisecond)
	}
}
