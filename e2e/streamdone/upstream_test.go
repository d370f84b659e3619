package streamdone

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// An upstream is the service behind Envoy. It counts the requests in flight. A request with x-work
// lasts that many milliseconds, and one with x-hold until the test answers it.
type upstream struct {
	addr string

	mu       sync.Mutex
	requests map[string]*held // by x-hold
	inFlight map[string]bool  // by x-name; false: its client has left, and the upstream has not noticed yet
	left     map[string]bool  // by x-name: clients that left, or are about to
	peak     int              // requests in flight whose client has not left
	rawPeak  int              // all requests in flight
}

// A held request waits for its response.
type held struct {
	arrived chan struct{} // closed once the upstream has received it and header is set
	header  http.Header
	answer  chan func(http.ResponseWriter)
	ended   chan struct{} // closed once the upstream has answered it, or sees that its client left
}

// startUpstream starts an upstream that ends with the test.
func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{requests: map[string]*held{}, inFlight: map[string]bool{}, left: map[string]bool{}}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	u.addr = strings.TrimPrefix(server.URL, "http://")
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.enter(r.Header.Get("x-name"))
	defer u.leave(r.Header.Get("x-name"))
	if name := r.Header.Get("x-hold"); name != "" {
		h := u.get(name)
		h.header = r.Header
		defer close(h.ended)
		close(h.arrived)
		select {
		case answer := <-h.answer:
			answer(w)
		case <-r.Context().Done():
		}
		return
	}
	work, _ := strconv.Atoi(r.Header.Get("x-work"))
	select {
	case <-time.After(time.Duration(work) * time.Millisecond):
		respond(200, r.Header.Get("x-cost"))(w)
	case <-r.Context().Done():
	}
}

func (u *upstream) enter(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inFlight[name] = !u.left[name]
	n := 0
	for _, counts := range u.inFlight {
		if counts {
			n++
		}
	}
	u.peak, u.rawPeak = max(u.peak, n), max(u.rawPeak, len(u.inFlight))
}

func (u *upstream) leave(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.inFlight, name)
}

// clientLeaves stops counting a request. Envoy may release its slot before the upstream notices
// that the client left.
func (u *upstream) clientLeaves(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left[name] = true
	if _, found := u.inFlight[name]; found {
		u.inFlight[name] = false
	}
}

// has reports whether a request is in flight.
func (u *upstream) has(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, found := u.inFlight[name]
	return found
}

// get returns the request with a x-hold header, which may arrive later.
func (u *upstream) get(name string) *held {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.requests[name]
	if h == nil {
		h = &held{arrived: make(chan struct{}), answer: make(chan func(http.ResponseWriter), 1), ended: make(chan struct{})}
		u.requests[name] = h
	}
	return h
}

// respond returns a response with a status and the header x-cost, unless cost is empty.
func respond(status int, cost string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if cost != "" {
			w.Header().Set("x-cost", cost)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "status "+strconv.Itoa(status))
	}
}
