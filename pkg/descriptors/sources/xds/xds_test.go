package xds_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

func TestFirstRequestHasNodeAndHeaders(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	start(t, &xds.Source{
		Server: s.address, NodeID: "envoy-ratelimit",
		NodeMetadata: map[string]string{"zone": "a", "tier": "1=2"},
		Headers:      map[string]string{"X-Token": "secret"},
	})
	st, first := s.accept()
	node := first.GetNode()
	fields := node.GetMetadata().GetFields()
	if node.GetId() != "envoy-ratelimit" || len(fields) != 2 || fields["zone"].GetStringValue() != "a" ||
		fields["tier"].GetStringValue() != "1=2" {
		t.Errorf("node %v", node)
	}
	if got := st.headers.Get("x-token"); len(got) != 1 || got[0] != "secret" {
		t.Errorf("headers %v", st.headers)
	}
	if first.GetTypeUrl() != xds.TypeURL || len(first.GetResourceNames()) != 0 || first.GetVersionInfo() != "" ||
		first.GetResponseNonce() != "" || first.GetErrorDetail() != nil {
		t.Errorf("the first request is %v", first)
	}
}

func TestUnixSocketsAreReached(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	abstract := fmt.Sprintf("weir-xds-%d", os.Getpid())
	for target, address := range map[string]string{
		"unix://" + dir + "/absolute": "absolute", "unix:" + dir + "/one": "one", "unix:relative": "relative", "unix-abstract:" + abstract: "@" + abstract,
	} {
		t.Run(target, func(t *testing.T) {
			s := serveOn(t, "unix", address)
			w := start(t, &xds.Source{Server: target})
			w.next(xds.Connected)
			st, _ := s.accept()
			acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
		})
	}
}

func TestPushesAreApplied(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	w.next(xds.Connected)

	acknowledged(t, st.send("1", domain(t, "b", 2), domain(t, "a", 1)), "1")
	if e := w.next(xds.Accepted); e.Version != "1" || e.Files != 2 {
		t.Errorf("the event is %+v", e)
	}
	if files := receive(t, w.loads, "rules"); len(files) != 2 || files[0].Name != "a" || files[1].Name != "b" {
		t.Errorf("files %v, want a and b", files)
	}
	w.wantLimit("a", 1)
	w.wantLimit("b", 2)
	rules := w.rules.Load()

	for version, resources := range map[string][]*anypb.Any{
		"2": {domain(t, "b", 2), domain(t, "a", 1)},
		"3": {domain(t, "a", 1), domain(t, "b", 2)},
	} {
		acknowledged(t, st.send(version, resources...), version)
		w.next(xds.Unchanged)
		mustReceiveNothing(t, w.loads, "rules that are the same were loaded")
	}
	if w.rules.Load() != rules {
		t.Error("the rules are others, want the same")
	}

	acknowledged(t, st.send("4", domain(t, "a", 10), domain(t, "b", 2)), "4")
	w.next(xds.Accepted)
	w.wantLimit("a", 10)
	acknowledged(t, st.send("5", domain(t, "b", 2)), "5")
	w.next(xds.Accepted)
	w.wantLimit("a", -1)
	w.wantLimit("b", 2)

	acknowledged(t, st.send("6"), "6")
	w.next(xds.Accepted)
	if domains, n := w.rules.Load().Counts(); domains != 0 || n != 0 {
		t.Errorf("%d domains, %d rules after an empty push", domains, n)
	}
}

func TestEmptyFirstPushIsAccepted(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	acknowledged(t, st.send("1"), "1")
	w.await(xds.Accepted)
	if w.rules.Load() == nil {
		t.Error("no rules were loaded, want none of them")
	}
	acknowledged(t, st.send("2"), "2")
	w.next(xds.Unchanged)
}

func TestBadRulesAreRejectedAndOldRulesStay(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	reason := mustReject(t, st.send("1", broken(t, "ugc")), "")
	if want := "invalid rate limit unit '99'"; !strings.Contains(reason, want) {
		t.Errorf("the server got %q, want %q in it", reason, want)
	}
	acknowledged(t, st.send("2", domain(t, "ugc", 5)), "2")
	w.await(xds.Accepted)

	reason = mustReject(t, st.send("3", broken(t, "ugc"), broken(t, "other")), "2")
	for _, want := range []string{"ugc:3:", "other:3:", "invalid rate limit unit '99'"} {
		if !strings.Contains(reason, want) {
			t.Errorf("the server got %q, want %q in it", reason, want)
		}
	}
	if e := w.next(xds.Rejected); e.Version != "3" || e.Err == nil || e.Err.Error() != reason {
		t.Errorf("the event is %+v", e)
	}
	w.wantLimit("ugc", 5)

	// Watch cannot know whether the rejected rules have come into force meanwhile, so it passes on
	// even the rules accepted last.
	loads := len(w.loads)
	acknowledged(t, st.send("4", domain(t, "ugc", 5)), "4")
	w.next(xds.Accepted)
	if len(w.loads) != loads+1 {
		t.Errorf("the rules were passed on %d times, want once", len(w.loads)-loads)
	}
	acknowledged(t, st.send("5", domain(t, "ugc", 5)), "5")
	w.next(xds.Unchanged)
}

func TestMalformedPushesAreRejected(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	acknowledged(t, st.send("good", domain(t, "ugc", 5)), "good")
	deep := &conf.RateLimitDescriptor{Key: "k"}
	for range 1000 {
		deep = &conf.RateLimitDescriptor{Key: "k", Descriptors: []*conf.RateLimitDescriptor{deep}}
	}
	for name, c := range map[string]struct {
		resources []*anypb.Any
		want      string
	}{
		"no message": {[]*anypb.Any{{TypeUrl: xds.TypeURL, Value: []byte("\xff\xff")}},
			"resource 1 of 1: it is not a RateLimitConfig"},
		"no UTF-8": {[]*anypb.Any{{TypeUrl: xds.TypeURL, Value: []byte("\x12\x01\xff")}}, "UTF-8"},
		"another type": {[]*anypb.Any{{TypeUrl: "type.googleapis.com/envoy.Cluster"}},
			`it has type "type.googleapis.com/envoy.Cluster"`},
		"no type": {[]*anypb.Any{{}}, `it has type ""`},
		"too deep": {[]*anypb.Any{pack(t, &conf.RateLimitConfig{Descriptors: []*conf.RateLimitDescriptor{deep}})},
			"recursion"},
		"no domain": {[]*anypb.Any{pack(t, &conf.RateLimitConfig{Name: "n"})},
			"n:1:9: config file cannot have empty domain"},
		"a duplicate domain": {[]*anypb.Any{domain(t, "ugc", 5), domain(t, "ugc", 5)},
			"duplicate domain 'ugc' in config file: another resource, ugc, has it too: send one resource for each domain, or set MERGE_DOMAIN_CONFIG"},
		"one of two": {[]*anypb.Any{domain(t, "ugc", 6), {TypeUrl: "x"}}, "resource 2 of 2"},
	} {
		if reason := mustReject(t, st.send(name, c.resources...), "good"); !strings.Contains(reason, c.want) {
			t.Errorf("%s: the server got %q, want %q in it", name, reason, c.want)
		}
	}
	other := &discovery.DiscoveryResponse{VersionInfo: "other", TypeUrl: "type.googleapis.com/envoy.Cluster"}
	if reason := mustReject(t, st.sendPush(other), "good"); !strings.Contains(reason, "the push has type") {
		t.Errorf("the server got %q", reason)
	}
	w.wantLimit("ugc", 5)
}

func TestErrorDetailIsBounded(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	var all []*anypb.Any
	for i := range 1000 {
		all = append(all, broken(t, fmt.Sprintf("dömäin %d", i)))
	}
	reason := mustReject(t, st.send("1", all...), "")
	// The text is cut at 4096 bytes. A partial UTF-8 character at the cut, of at most 3 bytes, is
	// dropped.
	if len(reason) > 4096 || len(reason) < 4093 || !strings.HasSuffix(reason, "\n...") {
		t.Errorf("the server got %d bytes that end in %q", len(reason), reason[max(0, len(reason)-20):])
	}
}

// TestRepeatedRejectionsBackOff checks that a server which repeats a rejected push immediately does
// not cause a busy loop.
func TestRepeatedRejectionsBackOff(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	for version, push := range map[string]*anypb.Any{"bad": broken(t, "ugc"), "garbage": {}} {
		began := time.Now()
		for range 3 {
			mustReject(t, st.send(version, push), "")
		}
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("%s: three refusals in %v, want 0.1 s and 0.2 s between them", version, took)
		}
	}
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
	w.await(xds.Accepted)
	w.wantLimit("ugc", 5)
	// Watch ends during the wait.
	for range 2 {
		mustReject(t, st.send("2", broken(t, "ugc")), "1")
	}
	st.pushes <- &discovery.DiscoveryResponse{
		VersionInfo: "2", TypeUrl: xds.TypeURL, Resources: []*anypb.Any{broken(t, "ugc")},
	}
	w.stop()
}

func TestRulesSurviveXDSOutage(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address, NodeID: "me"})
	st, _ := s.accept()
	acknowledged(t, st.send("7", domain(t, "ugc", 5)), "7")
	w.await(xds.Accepted)
	s.stop()
	for range 5 {
		if e := w.await(xds.Disconnected); e.Err == nil || e.Retry > quick.Max {
			t.Errorf("the event is %+v", e)
		}
	}
	w.wantLimit("ugc", 5)

	back := serve(t, s.address)
	st, first := back.accept()
	w.await(xds.Connected)
	if first.GetVersionInfo() != "7" || first.GetResponseNonce() != "" || first.GetNode().GetId() != "me" {
		t.Errorf("the first request of a new stream is %v", first)
	}
	loads := len(w.loads)
	acknowledged(t, st.send("8", domain(t, "ugc", 5)), "8")
	w.next(xds.Unchanged)
	if len(w.loads) != loads {
		t.Error("the same rules were loaded again")
	}
	acknowledged(t, st.send("9", domain(t, "ugc", 6)), "9")
	w.next(xds.Accepted)
	w.wantLimit("ugc", 6)
}

// Envoy Gateway counts its versions from 1 at each start, and go-control-plane up to 0.13 does not
// reply to a request that has its version.
func TestSameVersionFromRestartedServerIsRequestedAgain(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	source := &xds.Source{Server: s.address}
	source.SetTimeouts(0, 10*time.Millisecond)
	w := start(t, source)
	st, _ := s.accept()
	acknowledged(t, st.send("3", domain(t, "ugc", 5)), "3")
	w.await(xds.Accepted)
	s.stop()
	st, first := serve(t, s.address).accept()
	if first.GetVersionInfo() != "3" {
		t.Errorf("the first request of a new stream is %v", first)
	}
	second := st.request()
	if second.GetVersionInfo() != "3?" || second.GetResponseNonce() != "" || second.GetTypeUrl() != xds.TypeURL ||
		second.GetErrorDetail() != nil {
		t.Errorf("the second request is %v, want one for everything", second)
	}
	acknowledged(t, st.send("3", domain(t, "ugc", 6)), "3")
	w.await(xds.Accepted)
	w.wantLimit("ugc", 6)
}

// A server without resources may have an empty version, and then does not reply to a client that
// has none. Saved rules that the server has deleted meanwhile must end.
func TestDeletedRulesEndAfterARestart(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	source := &xds.Source{Server: s.address, HasRules: func() bool { return true }}
	source.SetTimeouts(0, 10*time.Millisecond)
	w := start(t, source)
	st, first := s.accept()
	if first.GetVersionInfo() != "" {
		t.Errorf("the first request is %v", first)
	}
	if second := st.request(); second.GetVersionInfo() != "?" || second.GetTypeUrl() != xds.TypeURL {
		t.Errorf("the second request is %v, want one for everything", second)
	}
	acknowledged(t, st.send(""), "")
	w.await(xds.Accepted)
	if domains, n := w.rules.Load().Counts(); domains != 0 || n != 0 {
		t.Errorf("%d domains, %d rules, want none", domains, n)
	}
}

// The caller may put rejected rules in force later, for example after it has corrected an overlay.
// They must end too if the server has deleted them meanwhile.
func TestRejectedRulesThatCameIntoForceEnd(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	var inForce atomic.Bool
	source := &xds.Source{Server: s.address, HasRules: inForce.Load}
	source.SetTimeouts(0, 10*time.Millisecond)
	start(t, source)
	st, _ := s.accept()
	mustReject(t, st.send("1", broken(t, "ugc")), "")
	inForce.Store(true)
	close(st.end)
	st, _ = s.accept()
	if second := st.request(); second.GetVersionInfo() != "?" {
		t.Errorf("the second request is %v, want one for everything", second)
	}
}

// The caller hears of a push that cannot be read, and when it is corrected, even by the rules that
// are in force.
func TestUnreadablePushIsReportedUntilTheNextPush(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
	receive(t, w.loads, "rules")
	reason := mustReject(t, st.send("2", &anypb.Any{}), "1")
	if err := receive(t, w.faults, "the fault"); err.Error() != reason {
		t.Errorf("reported %q, want %q", err, reason)
	}
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
	receive(t, w.loads, "the rules before the fault")
}

func TestEndedStreamIsReopened(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	for _, end := range []error{nil, status.Error(codes.PermissionDenied, "not you")} {
		st, _ := s.accept()
		w.await(xds.Connected)
		select {
		case st.end <- end:
		case <-time.After(soon):
			t.Fatal("the stream does not end")
		}
		e := w.next(xds.Disconnected)
		want := "the server ended the stream"
		if end != nil {
			want = "not you"
		}
		if e.Err == nil || !strings.Contains(e.Err.Error(), want) || !strings.Contains(e.Err.Error(), s.address) {
			t.Errorf("the stream ended by %v, want %q and the server in it", e.Err, want)
		}
	}
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}

func TestBackoffResetsAfterAUsefulStream(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address, Backoff: backoff.Backoff{Initial: time.Millisecond, Max: time.Minute}})
	for _, want := range []time.Duration{1, 2, 4, 8, 0, 1, 2, 4} {
		st, _ := s.accept()
		if want == 0 {
			acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
			want = 1
		}
		select {
		case st.end <- nil:
		case <-time.After(soon):
			t.Fatal("the stream does not end")
		}
		if e := w.await(xds.Disconnected); e.Retry != want*time.Millisecond {
			t.Errorf("the wait is %v, want %v", e.Retry, want*time.Millisecond)
		}
	}
}

func TestSilentServerTimesOut(t *testing.T) {
	// The kernel accepts connections, and no process reads from them.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	source := &xds.Source{Server: listener.Addr().String()}
	source.SetTimeouts(50*time.Millisecond, 0)
	w := start(t, source)
	for range 2 {
		if e := w.next(xds.Disconnected); e.Err == nil {
			t.Error("no error")
		}
	}
}

// A nowhere is a resolver that never finds an address.
type nowhere struct{}

func init() { resolver.Register(nowhere{}) }

func (nowhere) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return nowhere{}, nil
}
func (nowhere) Scheme() string                        { return "nowhere" }
func (nowhere) ResolveNow(resolver.ResolveNowOptions) {}
func (nowhere) Close()                                {}

func TestUnresolvedNameTimesOut(t *testing.T) {
	source := &xds.Source{Server: "nowhere:///server"}
	source.SetTimeouts(50*time.Millisecond, 0)
	w := start(t, source)
	for range 2 {
		if e := w.next(xds.Disconnected); e.Err == nil || !strings.Contains(e.Err.Error(), "no stream within 50ms") {
			t.Errorf("the error is %v", e.Err)
		}
	}
}

func TestWatchReturnsWhenItsContextEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	t.Run("connecting", func(t *testing.T) {
		w := start(t, &xds.Source{Server: listener.Addr().String()})
		conn, err := listener.Accept()
		must.Succeed(t, err)
		defer func() { _ = conn.Close() }()
		w.stop()
		if e := w.next(xds.Disconnected); e.Err != nil {
			t.Errorf("the end of Watch is reported as the error %v", e.Err)
		}
	})
	t.Run("waiting", func(t *testing.T) {
		w := start(t, &xds.Source{Server: "127.0.0.1:1", Backoff: backoff.Backoff{Initial: time.Hour, Max: time.Hour}})
		if e := w.next(xds.Disconnected); e.Retry > time.Hour || e.Retry < time.Hour-time.Minute {
			t.Errorf("the event is %+v", e)
		}
		w.stop()
	})
	t.Run("connected", func(t *testing.T) {
		s := serve(t, "127.0.0.1:0")
		w := start(t, &xds.Source{Server: s.address})
		s.accept()
		w.next(xds.Connected)
		w.stop()
		if e := w.next(xds.Disconnected); e.Err != nil {
			t.Errorf("the end of Watch is reported as the error %v", e.Err)
		}
	})
}

func TestMaxMessageSizeBoundsPushes(t *testing.T) {
	const descriptors = 600
	push := huge(t, descriptors)
	if len(push.GetValue()) < 5<<20 {
		t.Fatalf("%d bytes are not huge", len(push.GetValue()))
	}
	s := serve(t, "127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	st, _ := s.accept()
	w.next(xds.Connected)
	st.pushes <- &discovery.DiscoveryResponse{VersionInfo: "1", TypeUrl: xds.TypeURL, Resources: []*anypb.Any{push}}
	e := w.next(xds.Disconnected)
	if status.Code(errors.Unwrap(e.Err)) != codes.ResourceExhausted {
		t.Errorf("the stream ended by %v", e.Err)
	}
	w.stop()

	s = serve(t, "127.0.0.1:0")
	w = start(t, &xds.Source{Server: s.address, MaxMessageSize: 20 << 20})
	st, _ = s.accept()
	acknowledged(t, st.send("1", push), "1")
	if _, n := w.rules.Load().Counts(); n != descriptors {
		t.Errorf("%d rules, want %d", n, descriptors)
	}
}

func TestInvalidServerIsAnError(t *testing.T) {
	w := start(t, &xds.Source{Server: "unix:"})
	if e := w.next(xds.Disconnected); e.Err == nil {
		t.Error("no error")
	}
}
