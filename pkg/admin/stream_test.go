package admin

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// scripted are top keys and decisions for tests.
type scripted struct {
	mu      sync.Mutex
	filter  Filter
	out     chan Decision
	drops   atomic.Int64
	cancels atomic.Int64
	err     error
}

func (s *scripted) Top(denied bool, domain string, n int) Top {
	if denied {
		return Top{Total: 9, Keys: []TopKey{{Domain: domain, Rule: "user_id", Key: []Entry{{"user_id", "42"}}, KeyHash: "0123456789abcdef", Count: int64(n)}}}
	}
	return Top{Keys: []TopKey{}}
}

func (s *scripted) Subscribe(f Filter) (*Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filter = f
	return &Subscription{s.out, s.drops.Load, func() { s.cancels.Add(1) }}, s.err
}

func TestTop(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Top = (&scripted{}).Top })
	var top Top
	if code, text := w.call("GET", "/v1/top?by=denied&domain=shop&limit=7", "", &top); code != 200 || top.Total != 9 || top.Keys[0].Count != 7 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := w.call("GET", "/v1/top", "", &top); code != 200 || len(top.Keys) != 0 {
		t.Errorf("%d %s", code, text)
	}
	for query, want := range map[string]int{"by=x": 422, "limit=0": 422, "limit=1001": 422, "domain=other": 404} {
		if code, text := w.call("GET", "/v1/top?"+query, "", nil); code != want {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	w = newWorld(t, nil)
	if code, text := w.call("GET", "/v1/top", "", nil); code != 404 || !strings.Contains(text, "TOP_KEYS") {
		t.Error(code, text)
	}
}

// readTimeout is the timeout of a server for requests. A stream lasts longer.
const readTimeout = 200 * time.Millisecond

// streamOf begins a stream of a real server.
func streamOf(t *testing.T, w *world, query string) (lines *bufio.Scanner, end func()) {
	t.Helper()
	server := httptest.NewUnstartedServer(w.api)
	server.Config.ReadTimeout, server.Config.WriteTimeout = readTimeout, readTimeout
	server.Start()
	t.Cleanup(server.Close)
	request, err := http.NewRequest("GET", server.URL+decisionsPath+"?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
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
	s := &scripted{out: make(chan Decision)}
	w := newWorld(t, func(o *Options) { o.Subscribe = s.Subscribe })
	lines, end := streamOf(t, w, "domain=shop&outcome=denied&sample=0.5&entry=user_id=4=2")
	s.out <- Decision{Domain: "shop", Rule: "user_id", Outcome: "denied", Key: []Entry{{"user_id", "42"}}}
	if line, _ := next(lines, "data: "); !strings.Contains(line, `"outcome":"denied"`) || !strings.Contains(line, `"key":[["user_id","42"]]`) {
		t.Error(line)
	}
	time.Sleep(2 * readTimeout)
	s.drops.Store(3)
	select {
	case s.out <- Decision{Domain: "shop"}:
	case <-time.After(20 * time.Second):
		t.Fatal("the stream has ended with the timeout of the request")
	}
	if line, _ := next(lines, "dropped\":"); line != `data: {"dropped":3}` {
		t.Error(line)
	}
	s.mu.Lock()
	if want := (Filter{Domain: "shop", Outcome: "denied", Sample: .5, Entry: Entry{"user_id", "4=2"}}); s.filter != want {
		t.Errorf("filter %+v, want %+v", s.filter, want)
	}
	s.mu.Unlock()
	end()
	awaitCancels(t, s, 1)
	lines, _ = streamOf(t, w, "")
	if _, more := next(lines, ": decisions"); !more {
		t.Fatal("no stream")
	}
	w.api.Stop()
	if line, more := next(lines, ""); more && line != "" {
		t.Errorf("after Stop: %q", line)
	}
	awaitCancels(t, s, 2)
}

func awaitCancels(t *testing.T, s *scripted, n int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.cancels.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d subscriptions were cancelled, want %d", s.cancels.Load(), n)
		}
	}
}

// A stream ends when the token of its caller is removed from the file. The streams of other callers stay.
func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	rewrite := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const other = "another-token-0123456789"
	rewrite(other + "\n" + token + "\n")
	tokens, err := ReadTokens(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{out: make(chan Decision)}
	w := newWorld(t, func(o *Options) { o.Subscribe, o.Auth = s.Subscribe, Auth{Tokens: tokens} })
	lines, _ := streamOf(t, w, "")
	if _, more := next(lines, ": decisions"); !more {
		t.Fatal("no stream")
	}
	rewrite("# a comment\n" + token + "\n")
	time.Sleep(2 * checkInterval)
	select {
	case s.out <- Decision{Domain: "shop"}:
	case <-time.After(20 * time.Second):
		t.Fatal("the stream of a valid token has ended")
	}
	rewrite(other + "\n")
	awaitCancels(t, s, 1)
}

// Streams are bounded, and do not take the calls of others.
func TestStreamsAreBounded(t *testing.T) {
	s := &scripted{out: make(chan Decision)}
	w := newWorld(t, func(o *Options) { o.Subscribe = s.Subscribe })
	for range maxStreams {
		lines, _ := streamOf(t, w, "")
		if _, more := next(lines, ": decisions"); !more {
			t.Fatal("no stream")
		}
	}
	if code, text := w.call("GET", decisionsPath, "", nil); code != 503 || !strings.Contains(text, "8 calls") {
		t.Error(code, text)
	}
	if code, _ := w.call("GET", "/v1/status", "", nil); code != 200 {
		t.Error(code)
	}
	w.api.Stop()
}

func TestInvalidStreamRequestsAreRejected(t *testing.T) {
	s := &scripted{err: errors.New("8 subscribers already")}
	w := newWorld(t, func(o *Options) { o.Subscribe = s.Subscribe })
	for query, want := range map[string]int{"outcome=no": 422, "sample=2": 422, "sample=x": 422, "sample=NaN": 422, "": 503} {
		if code, text := w.call("GET", decisionsPath+"?"+query, "", nil); code != want {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	w = newWorld(t, nil)
	if code, _ := w.call("GET", decisionsPath, "", nil); code != 404 {
		t.Error(code)
	}
}
