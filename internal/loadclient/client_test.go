package loadclient_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/loadclient"
	"github.com/weir-rls/weir/internal/must"
)

// A server is an ordinary grpc-go server that records its requests by user.
type server struct {
	addr   string
	grpc   *grpc.Server
	answer func(user string) (ratelimitv3.RateLimitResponse_Code, error)

	mu        sync.Mutex
	requests  map[string]uint64
	last      *ratelimitv3.RateLimitRequest
	onRequest func(r *ratelimitv3.RateLimitRequest) // under mu, if not nil
}

func (s *server) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	user := r.GetDescriptors()[0].GetEntries()[0].GetValue()
	s.mu.Lock()
	s.requests[user]++
	s.last = r
	if s.onRequest != nil {
		s.onRequest(r)
	}
	s.mu.Unlock()
	code, err := s.answer(user)
	if err != nil {
		return nil, err
	}
	a := &ratelimitv3.RateLimitResponse{OverallCode: code}
	for range r.GetDescriptors() {
		a.Statuses = append(a.Statuses, &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: code, LimitRemaining: 7})
	}
	return a, nil
}

func start(t *testing.T, answer func(user string) (ratelimitv3.RateLimitResponse_Code, error)) *server {
	t.Helper()
	s := &server{grpc: grpc.NewServer(), answer: answer, requests: map[string]uint64{}}
	ratelimitv3.RegisterRateLimitServiceServer(s.grpc, s)
	s.addr = grpctest.Listen(t, s.grpc)
	return s
}

func (s *server) total() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, count := range s.requests {
		n += count
	}
	return n
}

func allow(string) (ratelimitv3.RateLimitResponse_Code, error) {
	return ratelimitv3.RateLimitResponse_OK, nil
}

// allowEven allows even users and denies odd ones.
func allowEven(user string) (ratelimitv3.RateLimitResponse_Code, error) {
	if strings.ContainsAny(user[len(user)-1:], "13579") {
		return ratelimitv3.RateLimitResponse_OVER_LIMIT, nil
	}
	return ratelimitv3.RateLimitResponse_OK, nil
}

func load(t *testing.T, o loadclient.Options) *loadclient.Result {
	t.Helper()
	r, err := loadclient.Run(t.Context(), o)
	must.Succeed(t, err)
	return r
}

// The result counts the answers, with and without a rate.
func TestEveryAnswerIsCounted(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 2000} {
		t.Run(fmt.Sprintf("rate %v", rate), func(t *testing.T) {
			t.Parallel()
			s := start(t, allowEven)
			const conns, inFlight = 3, 8
			r := load(t, loadclient.Options{
				Addr: s.addr, Request: loadclient.NewRequest("d", "a"), Users: loadclient.RoundRobin(10),
				Conns: conns, InFlight: inFlight, Rate: rate, Duration: 500 * time.Millisecond,
			})
			// Answers after measuring are not counted: those in flight, and those that a connection
			// sends at the same time.
			const after = 2 * conns * inFlight
			if total := s.total(); r.Errors != 0 || r.Requests() > total || r.Requests()+after < total {
				t.Errorf("counted %d and %d errors (%s), the server %d", r.Requests(), r.Errors, r.Error, total)
			}
			if d := int64(r.OK - r.Over); d < -after-1 || d > after+1 {
				t.Errorf("%d OK, %d over limit, of as many even users as odd ones", r.OK, r.Over)
			}
			if p50, p99 := r.Latency.Quantile(0.5), r.Latency.Quantile(0.99); p50 <= 0 || p50 > p99 || p99 > 2*r.Elapsed {
				t.Errorf("latencies: p50 %v, p99 %v", p50, p99)
			}
		})
	}
}

// A request carries its domain, its descriptors, and the user in each.
func TestRequestCarriesDomainDescriptorsAndUser(t *testing.T) {
	t.Parallel()
	for _, spread := range []bool{false, true} {
		s := start(t, allow)
		request := loadclient.NewRequest("a domain", "read", "write", strings.Repeat("long ", 60))
		request.Spread = spread
		load(t, loadclient.Options{Addr: s.addr, Request: request, Users: loadclient.RoundRobin(3), Count: 10, Duration: time.Minute})
		var got []string
		for _, d := range s.last.GetDescriptors() {
			e := d.GetEntries()
			got = append(got, e[0].GetKey()+" "+e[0].GetValue()+" "+e[1].GetKey()+" "+e[1].GetValue())
		}
		first := s.last.GetDescriptors()[0].GetEntries()[0].GetValue()
		users := []string{first, first, first}
		if spread {
			users = []string{"user-00000000", "user-00000001", "user-00000002"}
		}
		want := []string{
			"user_id " + users[0] + " action read", "user_id " + users[1] + " action write",
			"user_id " + users[2] + " action " + strings.Repeat("long ", 60),
		}
		if s.last.GetDomain() != "a domain" || !slices.Equal(got, want) {
			t.Errorf("asked %q: %q, want %q", s.last.GetDomain(), got, want)
		}
	}
}

// Each of many users sends requests, in proportion to the distribution. The bounds are about the
// expected share: 0.1 of ten users, and 0.341 by Zipf. A thousand requests in a second keep a
// random share well within them.
func TestUsersFollowDistribution(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		users    *loadclient.Users
		min, max float64 // bounds on the first user's share
	}{
		{"alike", loadclient.Uniform(10), 0.05, 0.15},
		{"in turn", loadclient.RoundRobin(10), 0.09, 0.11},
		{"Zipf 1", loadclient.Zipf(10, 1), 0.25, 0.45}, // 1 / (1 + 1/2 + ... + 1/10) = 0.341
		{"one", loadclient.Uniform(1), 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, allow)
			load(t, loadclient.Options{
				Addr: s.addr, Request: loadclient.NewRequest("d", "a"), Users: c.users, InFlight: 32, Count: 4_000, Duration: time.Minute,
			})
			part := float64(s.requests["user-00000000"]) / float64(s.total())
			if part < c.min || part > c.max {
				t.Errorf("of %d requests, %.3f are of the first user, want %v to %v", s.total(), part, c.min, c.max)
			}
		})
	}
}

// Each lease is opened once, and ended once, by the same user and after it was opened. About as
// many as wanted stay open, over several runs.
func TestLeasesAreOpenedAndThenEnded(t *testing.T) {
	t.Parallel()
	// A lease is ended at least wanted requests after it was opened. Each connection sends a third
	// of perRun, so even if one of them stalls, the end does not overtake the opening.
	const wanted, perRun = 300, 300
	s, open, opened := start(t, allow), map[string]string{}, map[string]bool{}
	s.onRequest = func(r *ratelimitv3.RateLimitRequest) {
		d := r.GetDescriptors()[0]
		e, hits := d.GetEntries(), d.GetHitsAddend().GetValue()
		user, id := e[0].GetValue(), e[2].GetValue()
		if e[1].GetValue() != "a" || e[2].GetKey() != "lease" || len(id) != 36 {
			t.Errorf("an odd request: %v", r)
		}
		switch {
		case len(e) == 3 && hits == 10 && !opened[id]:
			open[id], opened[id] = user, true
		case len(e) == 4 && e[3].GetKey() == "settle" && e[3].GetValue() != "" && hits == 300 && open[id] == user:
			delete(open, id)
		default:
			t.Errorf("lease %s is open: %q; user %s has sent %v", id, open[id], user, r)
		}
	}
	users := loadclient.Leasing(10, wanted)
	for range 3 {
		load(t, loadclient.Options{
			Addr: s.addr, Request: loadclient.NewLeaseRequest("d", "a", "settle", 10, 300), Users: users, Conns: 3, InFlight: 8, Count: perRun, Duration: time.Minute,
		})
	}
	if n := len(open); n < wanted || n > wanted+1 || len(opened) < 3*perRun/2 {
		t.Errorf("%d of %d leases are open, want %d", n, len(opened), wanted)
	}
	byUser := map[string]int{}
	for _, user := range open {
		byUser[user]++
	}
	if len(byUser) != 10 {
		t.Errorf("the users have these leases, want ten users: %v", byUser)
	}
}

// Errors are counted separately, so a failing server does not look fast. The result has the first
// message.
func TestErrorsAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code ratelimitv3.RateLimitResponse_Code
		err  error
		want string
	}{
		"a status":       {0, status.Error(codes.Unavailable, "no store"), "grpc-status: 14 grpc-message: no store"},
		"a code UNKNOWN": {ratelimitv3.RateLimitResponse_UNKNOWN, nil, "neither OK nor OVER_LIMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(user string) (ratelimitv3.RateLimitResponse_Code, error) {
				if user == "user-00000001" {
					return c.code, c.err
				}
				return ratelimitv3.RateLimitResponse_OK, nil
			})
			r := load(t, loadclient.Options{
				Addr: s.addr, Request: loadclient.NewRequest("d", "a"), Users: loadclient.RoundRobin(2), InFlight: 4, Count: 200, Duration: time.Minute,
			})
			if want := s.requests["user-00000001"]; r.OK == 0 || r.Errors != want {
				t.Errorf("%d OK, %d errors, want %d", r.OK, r.Errors, want)
			}
			if !strings.Contains(r.Error, c.want) {
				t.Errorf("the first error is %q, want %q", r.Error, c.want)
			}
		})
	}
}

// A server that closes its connections causes errors, and does not end the client.
func TestClosedConnectionIsAnError(t *testing.T) {
	t.Parallel()
	var s *server
	var once sync.Once
	s = start(t, func(string) (ratelimitv3.RateLimitResponse_Code, error) {
		if s.total() > 100 {
			once.Do(func() { go s.grpc.Stop() })
		}
		return ratelimitv3.RateLimitResponse_OK, nil
	})
	r := load(t, loadclient.Options{Addr: s.addr, Request: loadclient.NewRequest("d", "a"), InFlight: 4, Duration: 5 * time.Minute})
	if r.OK == 0 || r.Errors == 0 || r.Error == "" || r.Elapsed > 4*time.Minute {
		t.Errorf("%d OK, %d errors (%q) in %v", r.OK, r.Errors, r.Error, r.Elapsed)
	}
}

// At a rate, a frozen server shows in the latency: requests that were due meanwhile have waited,
// sent or not.
func TestLatencyCountsFromDueTime(t *testing.T) {
	t.Parallel()
	const pause, rate, total = 100 * time.Millisecond, 2000, 500
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var began time.Time
	var once sync.Once
	var s *server
	s = start(t, func(string) (ratelimitv3.RateLimitResponse_Code, error) {
		once.Do(func() { began = time.Now() })
		time.Sleep(pause - time.Since(began)) // in real time: the client has a kernel timer and TCP, which synctest cannot fake
		if s.total() >= total {
			end()
		}
		return ratelimitv3.RateLimitResponse_OK, nil
	})
	r, err := loadclient.Run(ctx, loadclient.Options{
		Addr: s.addr, Request: loadclient.NewRequest("d", "a"), Rate: rate, InFlight: 2, Duration: 2 * time.Minute,
	})
	must.Succeed(t, err)
	if r.Requests() < total/2 {
		t.Fatalf("%d requests counted, want nearly %d", r.Requests(), total)
	}
	// Requests that were due in the first half of the pause have waited for its second half. Half
	// of them are enough, because a request is due with its batch, and a quantile has a whole rank.
	const waited = rate * float64(pause/4) / float64(time.Second)
	if least := r.Latency.Quantile(1 - waited/float64(r.Requests())); least < pause/2 {
		t.Errorf("%.0f of %d requests have waited %v, want %v", waited, r.Requests(), least, pause/2)
	}
}

// serveHTTP is an HTTP/2 server without TLS.
func serveHTTP(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s := &http.Server{Protocols: &http.Protocols{}, Handler: h}
	s.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// A request to a proxy is a GET of / with headers; the status is the answer.
func TestProxyRequestsAreCountedByStatus(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	kinds := map[string]int{}
	addr := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("x-user-id")
		mu.Lock()
		kinds[r.Method+" "+r.URL.Path+" "+user+" "+r.Header.Get("x-action")]++
		n := kinds["n"]
		kinds["n"]++
		mu.Unlock()
		w.Header().Set("x-request", fmt.Sprint(n)) // headers that differ each time
		switch user {
		case "user-00000001":
			w.WriteHeader(http.StatusTooManyRequests)
		case "user-00000002":
			w.WriteHeader(http.StatusBadGateway)
		}
		fmt.Fprintln(w, "an answer")
	})
	r := load(t, loadclient.Options{
		Addr: addr, Request: loadclient.Get("login"), Users: loadclient.RoundRobin(4), InFlight: 4, Count: 200, Duration: time.Minute,
	})
	if r.Over == 0 || r.Errors == 0 || r.OK < r.Over || !strings.Contains(r.Error, ":status: 502") {
		t.Errorf("%d OK, %d over limit, %d errors (%q)", r.OK, r.Over, r.Errors, r.Error)
	}
	if kinds["GET / user-00000003 login"] == 0 || len(kinds) != 5 {
		t.Errorf("requests by kind: %v", kinds)
	}
}

// A stream that the server resets is an error, and the others of its connection go on.
func TestResetStreamIsAnError(t *testing.T) {
	t.Parallel()
	var resets atomic.Uint64
	addr := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-user-id") == "user-00000001" {
			resets.Add(1)
			panic(http.ErrAbortHandler)
		}
	})
	r := load(t, loadclient.Options{
		Addr: addr, Request: loadclient.Get("login"), Users: loadclient.RoundRobin(2), InFlight: 4, Count: 200, Duration: time.Minute,
	})
	if want := resets.Load(); r.OK == 0 || r.Errors != want || !strings.Contains(r.Error, "reset") {
		t.Errorf("%d OK, %d errors (%q), want %d", r.OK, r.Errors, r.Error, want)
	}
}

// The client sends no more DATA than the window of the server allows. It ignores frames of ended
// streams.
func TestFlowControlWindowIsRespected(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	const window = 1<<16 - 1
	var data, requests uint64
	var serving sync.WaitGroup
	serving.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			// It answers each request with an error and one frame too many, and never updates the
			// window.
			if d, is := frame.(*http2.DataFrame); is {
				data += uint64(d.Length)
				requests++
				status500 := []byte{0x8e}
				_ = f.WriteHeaders(http2.HeadersFrameParam{
					StreamID: d.StreamID, BlockFragment: status500, EndHeaders: true, EndStream: true,
				})
				_ = f.WriteRSTStream(d.StreamID, http2.ErrCodeNo)
				if data+uint64(d.Length) > window {
					_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // nothing more should arrive
				}
			}
		}
	})
	r := load(t, loadclient.Options{
		Addr: l.Addr().String(), Request: loadclient.NewRequest("d", "a"), InFlight: 2, Duration: 2 * time.Minute,
	})
	serving.Wait()
	// The client may leave less of the window unused than one request needs, which is below 200
	// bytes.
	if data > window || data < window-200 || r.Errors != requests {
		t.Errorf("%d bytes in %d requests were sent, want %d; %d errors", data, requests, window, r.Errors)
	}
}

// A missing server, or one without HTTP/2, is an error immediately.
func TestMissingServerIsAnError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = c.Close()
		}
	}()
	for _, addr := range []string{l.Addr().String(), "127.0.0.1:1"} {
		if r, err := loadclient.Run(t.Context(), loadclient.Options{Addr: addr, Request: loadclient.Get("a"), Duration: time.Second}); err == nil {
			t.Errorf("%s: %+v, want an error", addr, r)
		}
	}
}
