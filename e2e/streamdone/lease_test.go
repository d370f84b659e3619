package streamdone

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// A stream that lasts longer than the TTL loses its slot, and another request is admitted beside
// it. Its late release frees nothing of the other request.
func TestStreamOutlivesLease(t *testing.T) {
	t.Parallel()
	w := startWeir(t, harness.WeirOptions{Env: []string{"STORE_TIMEOUT=5s"}})
	s := newStack(t, testTimeout, nil, w.GRPC)
	r := request{path: "/negative", kind: "brief", user: "outlives"}
	long := []*stream{s.open(t, r), s.open(t, r)}
	opened, _ := s.rec.of(r.user)
	expired := s.wantHeldForTTL(t, r.kind, r.user, opened, slots, 0)
	over := []*stream{s.open(t, r), s.open(t, r)}
	t.Logf("leases expired after %v; then %d streams at a limit of %d", expired, s.up.rawPeak, slots)
	if s.up.rawPeak != 2*slots {
		t.Errorf("%d streams, want %d", s.up.rawPeak, 2*slots)
	}
	for _, st := range long {
		st.answer(200, "")
	}
	done := s.rec.awaitDone(t, r.user, len(long))
	first, _ := s.rec.of(r.user)
	used := s.used(t, r.kind, r.user)
	if time.Since(first[slots].at) < briefTTL && used != slots {
		t.Errorf("after the late release %d slots are held, want those of the other streams: %v", used, done)
	}
	for _, st := range over {
		st.answer(200, "")
	}
	s.rec.awaitDone(t, r.user, 2*slots)
	s.wantUsed(t, r.kind, r.user, 0, "after the end of all")
}

// An Envoy that is killed releases nothing: its slots are missing until their TTL is over.
func TestKilledEnvoyLeaksLeasesForTTL(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := startWeir(t, harness.WeirOptions{Redis: redis.Addr, Env: []string{"STORE_TIMEOUT=5s"}})
	s := newStack(t, testTimeout, nil, w.GRPC)
	r := request{path: "/negative", kind: "brief", user: "killed"}
	next := startEnvoy(t, s, testTimeout, nil)
	for range slots {
		s.open(t, r)
	}
	first, _ := s.rec.of(r.user)
	s.envoy.Kill()
	gone := time.Now()
	s.envoy = next
	if st := s.send(t, r); st.admitted() {
		if since := time.Since(first[0].at); since < briefTTL {
			t.Fatalf("a request is admitted %v after the first call, want 429 for %v", since, briefTTL)
		}
		st.answer(200, "") // the machine stalled
		s.rec.awaitDone(t, r.user, 1)
	}
	free := s.wantHeldForTTL(t, r.kind, r.user, first, slots, 0)
	t.Logf("%d slots were free %v after Envoy was killed, and %v after the first call", slots, time.Since(gone), free)
	for range slots {
		s.open(t, r).answer(200, "")
	}
}

// A Weir that is killed while streams run loses their releases, and the slots are missing until
// their TTL is over. Envoy does not count these calls. A request that Envoy admitted meanwhile has
// no slot, and its release frees none.
func TestKilledWeirLeaksSlotForTTL(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	ports := harness.MustFreePorts(t, 1)
	o := harness.WeirOptions{Redis: redis.Addr, Port: ports[0], Env: []string{"STORE_TIMEOUT=5s"}}
	w := startWeir(t, o)
	s := newStack(t, testTimeout, nil, w.GRPC)
	r := request{path: "/negative", kind: "brief", user: "weir killed"}
	before := s.open(t, r)
	w.Kill()
	before.answer(200, "")
	s.rec.awaitDone(t, r.user, 1)
	if counted := harness.MustGet(t, s.envoy.Admin+"/stats?filter=ratelimit.error"); counted != "" {
		t.Errorf("Envoy counts the failed call at the end of a stream in %s: docs/failure-modes.md says that it does not", counted)
	}
	meanwhile := s.open(t, r)
	startWeir(t, o)
	must.Until(t, "Weir answers", func() bool {
		_, err := peek(t.Context(), s.weir, r.kind, r.user)
		return err == nil
	})
	meanwhile.answer(200, "")
	done := s.rec.awaitDone(t, r.user, 2)
	first, _ := s.rec.of(r.user)
	if done[0].err == nil || done[1].err != nil || first[1].err == nil {
		t.Errorf("calls %v and %v: want that Weir was down at the end of the first stream and at the start of the second", first, done)
	}
	free := s.wantHeldForTTL(t, r.kind, r.user, first[:1], 1, 0)
	t.Logf("the slot was free %v after the first call", free)
}
