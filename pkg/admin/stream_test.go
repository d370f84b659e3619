package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/explain"
)

// scripted are top keys and decisions for tests.
type scripted struct {
	mu      sync.Mutex
	filter  api.Filter
	out     chan api.Decision
	drops   atomic.Int64
	cancels atomic.Int64
	err     error
}

func (s *scripted) Top(by api.TopOrder, domain string, n int) api.Top {
	if by == api.ByDenied {
		return api.Top{Total: 9, Keys: []api.TopKey{{Domain: domain, Rule: "user_id", Key: []explain.Entry{{"user_id", "42"}}, KeyHash: "0123456789abcdef", Count: int64(n)}}}
	}
	return api.Top{Keys: []api.TopKey{}}
}

func (s *scripted) Subscribe(f api.Filter) (*api.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filter = f
	return &api.Subscription{C: s.out, Dropped: s.drops.Load, Close: func() { s.cancels.Add(1) }}, s.err
}

func TestTopIsServed(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Top = (&scripted{}).Top })
	var top api.Top
	if code, text := f.call("GET", "/v1/top?by=denied&domain=shop&limit=7", "", &top); code != 200 || top.Total != 9 || top.Keys[0].Count != 7 {
		t.Errorf("the most denied keys of shop: %d %s, want 200, a total of 9, and first a key with 7", code, text)
	}
	if code, text := f.call("GET", "/v1/top", "", &top); code != 200 || len(top.Keys) != 0 {
		t.Errorf("the busiest keys: %d %s, want 200 and no keys", code, text)
	}
	for query, want := range map[string]int{"by=x": 422, "limit=0": 422, "limit=1001": 422, "domain=other": 404} {
		if code, text := f.call("GET", "/v1/top?"+query, "", nil); code != want {
			t.Errorf("%s: got status %d with %s, want %d", query, code, text, want)
		}
	}
	f = newFixture(t, nil)
	if code, text := f.call("GET", "/v1/top", "", nil); code != 404 || !strings.Contains(text, "TOP_KEYS") {
		t.Error(code, text)
	}
}

// readTimeout is the timeout of a server for requests. A stream lasts longer.
const readTimeout = 200 * time.Millisecond

// streamOf begins a stream of a real server, in a bubble of synctest.
func streamOf(t *testing.T, f *fixture, query string) (lines *bufio.Scanner, end func()) {
	t.Helper()
	listener := grpctest.NewPipes()
	server := &http.Server{Handler: f.api, ReadTimeout: readTimeout, WriteTimeout: readTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	dial := func(context.Context, string, string) (net.Conn, error) { return listener.Connect(), nil }
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	request, err := http.NewRequest("GET", "http://weir"+decisionsPath+"?"+query, nil)
	must.Succeed(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(response.Status, response.Header)
	}
	return bufio.NewScanner(response.Body), func() { _ = response.Body.Close() }
}

// next returns the next line that contains text; false at the end of the stream.
func next(lines *bufio.Scanner, text string) (string, bool) {
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return lines.Text(), true
		}
	}
	return "", false
}

func TestDecisionsAreStreamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{out: make(chan api.Decision)}
		f := newFixture(t, func(o *Options) { o.Subscribe = s.Subscribe })
		lines, end := streamOf(t, f, "domain=shop&outcome=denied&sample=0.5&entry=user_id=4=2")
		s.decide(t, api.Decision{Domain: "shop", Rule: "user_id", Outcome: "denied", Key: []explain.Entry{{"user_id", "42"}}})
		if line, _ := next(lines, "data: "); !strings.Contains(line, `"outcome":"denied"`) || !strings.Contains(line, `"key":[["user_id","42"]]`) {
			t.Error(line)
		}
		// The stream outlasts the timeouts of its request.
		time.Sleep(2 * readTimeout)
		s.drops.Store(3)
		s.decide(t, api.Decision{Domain: "shop"})
		if line, _ := next(lines, "dropped\":"); line != `data: {"dropped":3}` {
			t.Error(line)
		}
		if want := (api.Filter{Domain: "shop", Outcome: "denied", Sample: .5, Entry: explain.Entry{"user_id", "4=2"}}); s.filter != want {
			t.Errorf("filter %+v, want %+v", s.filter, want)
		}
		end()
		s.wantCancels(t, 1)
		lines, _ = streamOf(t, f, "")
		if _, more := next(lines, ": decisions"); !more {
			t.Fatal("no stream")
		}
		f.api.Stop()
		if line, more := next(lines, ""); more && line != "" {
			t.Errorf("after Stop: %q", line)
		}
		s.wantCancels(t, 2)
	})
}

// decide sends a decision to the stream, which must not have ended.
func (s *scripted) decide(t *testing.T, d api.Decision) {
	t.Helper()
	synctest.Wait()
	select {
	case s.out <- d:
	default:
		t.Fatal("the stream has ended")
	}
}

// wantCancels checks the number of streams that have ended, when no goroutine has more to do.
func (s *scripted) wantCancels(t *testing.T, want int64) {
	t.Helper()
	synctest.Wait()
	if n := s.cancels.Load(); n != want {
		t.Fatalf("%d subscriptions were canceled, want %d", n, want)
	}
}

// On HTTP/2, a write deadline that passes ends the stream, even without a write.
func TestIdleStreamsStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		s := stream{w: w, control: http.NewResponseController(w), dropped: func() int64 { return 0 }}
		stopping := make(chan struct{})
		ended := make(chan struct{})
		s.write(": decisions\n\n")
		go func() {
			defer close(ended)
			s.send(t.Context(), nil, stopping, func() bool { return true })
		}()
		time.Sleep(time.Minute)
		close(stopping)
		<-ended
		if w.passed || !w.last.After(time.Now()) {
			t.Error("a deadline passed before the next write")
		}
	})
}

// deadlines records write deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	last   time.Time
	passed bool // a deadline passed before the next one was set
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.passed = d.passed || !d.last.IsZero() && !d.last.After(time.Now())
	d.last = at
	return nil
}

// A stream ends when the token of its caller is removed from the file. The streams of other callers
// stay.
func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		rewrite := func(text string) {
			must.Write(t, path, text)
		}
		const other = "another-token-0123456789"
		rewrite(other + "\n" + token + "\n")
		tokens, err := ReadTokens(path, func(err error) { t.Error(err) })
		must.Succeed(t, err)
		s := &scripted{out: make(chan api.Decision)}
		f := newFixture(t, func(o *Options) { o.Subscribe, o.Auth = s.Subscribe, Auth{Tokens: tokens} })
		lines, _ := streamOf(t, f, "")
		if _, more := next(lines, ": decisions"); !more {
			t.Fatal("no stream")
		}
		rewrite("# a comment\n" + token + "\n")
		time.Sleep(2 * checkInterval)
		s.wantCancels(t, 0)
		rewrite(other + "\n")
		time.Sleep(checkInterval)
		s.wantCancels(t, 1)
	})
}

// Streams are bounded, and do not take the calls of others.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{out: make(chan api.Decision)}
		f := newFixture(t, func(o *Options) { o.Subscribe = s.Subscribe })
		for range maxStreams {
			lines, _ := streamOf(t, f, "")
			if _, more := next(lines, ": decisions"); !more {
				t.Fatal("no stream")
			}
		}
		if code, text := f.call("GET", decisionsPath, "", nil); code != 503 || !strings.Contains(text, "8 calls") {
			t.Error(code, text)
		}
		if code, _ := f.call("GET", "/v1/status", "", nil); code != 200 {
			t.Error(code)
		}
		f.api.Stop()
	})
}

func TestInvalidStreamRequestsAreRejected(t *testing.T) {
	s := &scripted{err: errors.New("8 subscribers already")}
	f := newFixture(t, func(o *Options) { o.Subscribe = s.Subscribe })
	for query, want := range map[string]int{
		"outcome=no": 422, "sample=2": 422, "sample=x": 422, "sample=NaN": 422, "sample=Inf": 422, "sample=-Inf": 422, "entry=": 503, "": 503,
		"entry==5": 422, // without a key, the filter would select every decision
	} {
		code, text := f.call("GET", decisionsPath+"?"+query, "", nil)
		if code != want || !json.Valid([]byte(text)) {
			t.Errorf("%s: got status %d with %s, want %d with a problem in JSON", query, code, text, want)
		}
	}
}
