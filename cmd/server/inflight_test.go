package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/rls"
)

// Requests past MAX_IN_FLIGHT are shed immediately, by gRPC and /json. Health checks are not. Once
// Redis answers, requests are decided again.
func TestRequestsPastMaxInFlightAreShed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+redis.Addr, "STORE_TIMEOUT=1m", "MAX_IN_FLIGHT=2")
	s.awaitHealthy()
	s.remaining("alice")
	must.Succeed(t, redis.Signal(syscall.SIGSTOP))
	thaw := func() { _ = redis.Signal(syscall.SIGCONT) }
	t.Cleanup(thaw)
	answers := make(chan error, 2)
	for _, user := range []string{"bob", "carol"} {
		go func() {
			_, err := s.call(user)
			answers <- err
		}()
	}
	s.awaitInFlight("2")
	if _, err := s.call("dave"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many by gRPC: %v, want RESOURCE_EXHAUSTED", err)
	}
	const ask = `{"domain":"ugc","descriptors":[{"entries":[{"key":"user_id","value":"dave"}]}]}`
	if code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json", ask); code != 503 {
		t.Errorf("one too many by /json: %d %s, want 503", code, body)
	}
	if code, _ := s.get("/healthcheck"); code != 200 || !s.healthy("ratelimit") {
		t.Errorf("/healthcheck: %d; want both health checks to be answered", code)
	}
	if _, metrics := s.get("/metrics"); !strings.Contains(metrics, "\nweir_refused_requests_total 2\n") {
		t.Error("/metrics does not count 2 rejected requests")
	}
	thaw()
	for range 2 {
		if err := <-answers; err != nil {
			t.Errorf("one within the bound: %v", err)
		}
	}
	s.awaitInFlight("0")
	if got := s.remaining("dave"); got != 2 {
		t.Errorf("got %d remaining of 2 for dave, want 2: a rejected request was charged", got)
	}
}

// Partial requests by HTTP delay only other partial requests. Each is counted, and a late one gets
// the reason.
func TestPartialHTTPRequestsDoNotDelayOthers(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "MAX_IN_FLIGHT=2")
	s.awaitHealthy()
	const head = "POST /json HTTP/1.1\r\nHost: weir\r\nContent-Length: 1000\r\n\r\n{"
	var slow []net.Conn
	for range 8 {
		conn, err := net.Dial("tcp", s.httpAddr)
		must.Succeed(t, err)
		defer conn.Close()
		if _, err := conn.Write([]byte(head)); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	for range 20 {
		if _, err := s.call("alice"); err != nil {
			t.Fatalf("by gRPC, meanwhile: %v", err)
		}
	}
	codes := map[int]int{}
	for _, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(maxWait))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.Succeed(t, err)
		body, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		codes[response.StatusCode]++
		if response.StatusCode == 400 && !strings.Contains(string(body), "the body did not arrive in time") {
			t.Errorf("%q, want the reason", body)
		}
	}
	// On a busy machine, the last may arrive when the first has timed out.
	refused, late := codes[503], codes[400]
	if refused+late != len(slow) || refused == 0 || late < 2 {
		t.Errorf("%v, want that two at a time are read until their time is up, and the others refused", codes)
	}
	if got, want := s.metricOrNone(`weir_requests_total{code="InvalidArgument",overall=""}`), strconv.Itoa(late); got != want {
		t.Errorf("%s late requests counted, want %s", got, want)
	}
	if got, want := s.metric("weir_refused_requests_total"), strconv.Itoa(refused); got != want {
		t.Errorf("%s refused requests counted, want %s", got, want)
	}
	if code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json", `{"domain":"ugc"}`); code == 503 {
		t.Errorf("afterwards: %d %s", code, body)
	}
}

// A request that frees what another holds is shed only beyond twice the limit. Without its release,
// a slot would be held until the TTL, and deny requests long after the load.
func TestReleasesAreShedLast(t *testing.T) {
	gate := admission.NewGate(2)
	client := ratelimitv3.NewRateLimitServiceClient(inMemoryWith(t, gate, rls.Options{}))
	decide := func(refund bool, keys ...string) codes.Code {
		d := &commonv3.RateLimitDescriptor{}
		for _, key := range keys {
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: "1"})
		}
		if refund {
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(1), true
		}
		_, err := client.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "other", Value: "1"}}}, d,
		}})
		return status.Code(err)
	}
	const shed = codes.ResourceExhausted
	for held, want := range []struct{ ordinary, end codes.Code }{
		{codes.OK, codes.OK}, {codes.OK, codes.OK}, {shed, codes.OK}, {shed, codes.OK}, {shed, shed},
	} {
		for _, c := range []struct {
			what      string
			got, want codes.Code
		}{
			{"a charge", decide(false, "user", "lease"), want.ordinary},
			{"a refund", decide(true, "user", "lease"), want.end},
			{"a release", decide(false, "user", "lease", "release"), want.end},
			{"a settle", decide(false, "user", "lease", "settle"), want.end},
			{"a key that is called release", decide(false, "release"), want.ordinary},
			{"a release that is not last", decide(false, "user", "release", "lease"), want.ordinary},
		} {
			if c.got != c.want {
				t.Errorf("beside %d requests: %s: %v, want %v", held, c.what, c.got, c.want)
			}
		}
		if n := gate.Stats().InFlight; n != int64(held) {
			t.Fatalf("%d requests in flight, want %d", n, held)
		}
		if err := gate.Admit(true); (err != nil) != (want.end == shed) {
			t.Errorf("beside %d requests: %v", held, err)
		}
	}
	gate.CloseAndWait(canceled(t))
	for gate.Stats().InFlight > 0 {
		gate.Done()
	}
	if err := gate.Admit(true); err == nil {
		t.Error("an end is admitted after Close")
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
