package gateway_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// page is the page whose policies and overlay the test applies.
const page = "../../docs/deploy/envoy-gateway.md"

// pageBlocks returns the code blocks of the page with this info string.
func pageBlocks(t *testing.T, info string) (all []string) {
	t.Helper()
	text := must.Read(t, page)
	for _, b := range regexp.MustCompile("(?ms)^```"+info+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, b[1])
	}
	if len(all) == 0 {
		t.Fatalf("%s has no block %q", page, info)
	}
	return all
}

// pageOverlay returns the overlay of the manifests with the entries of the page. On a busy machine
// a test takes longer than a minute, so a lease lasts longer than on the page: no slot becomes free
// by itself.
func pageOverlay(t *testing.T) string {
	t.Helper()
	text := must.Read(t, "../../deploy/k8s/overlays/envoy-gateway/overlay.yaml")
	var entries string
	for _, b := range pageBlocks(t, "yaml envoy-gateway-overlay") {
		_, added, found := strings.Cut(b, "descriptors:\n")
		if !found {
			t.Fatalf("%s: an overlay without descriptors", page)
		}
		entries += added
	}
	const ttl = "lease_ttl: 60s"
	if !strings.Contains(entries, ttl) {
		t.Errorf("%s: no %s", page, ttl)
	}
	return string(text) + strings.ReplaceAll(entries, ttl, "lease_ttl: 600s")
}

// pageManifests returns the policies of the page that need leases, and their routes.
func pageManifests(t *testing.T) string {
	t.Helper()
	text := httpRoute("reports") + httpRoute("completions")
	for _, b := range pageBlocks(t, "yaml apply") {
		if strings.Contains(b, "EnvoyPatchPolicy") {
			text += "---\n" + b
		}
	}
	return text
}

// An upstream answers immediately, except on the paths of leases, where a request waits until its
// user's gate opens.
type upstream struct {
	mu    sync.Mutex
	gates map[string]*gate // by user
}

// A gate holds the requests of one user.
type gate struct {
	open          chan struct{}
	arrived       chan struct{} // one value for each request
	inFlight, max int
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	g := u.gates[r.Header.Get("x-user-id")]
	if g != nil {
		g.inFlight++
		g.max = max(g.max, g.inFlight)
	}
	u.mu.Unlock()
	if g != nil {
		g.arrived <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
		u.mu.Lock()
		g.inFlight--
		u.mu.Unlock()
	}
	w.WriteHeader(http.StatusOK)
}

// hold creates a gate for a user, in place of the user's last one.
func (u *upstream) hold(user string) *gate {
	g := &gate{open: make(chan struct{}), arrived: make(chan struct{}, 1000)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gates == nil {
		u.gates = map[string]*gate{}
	}
	u.gates[user] = g
	return g
}

// together sends requests of one user at the same time and holds each that arrives until all others
// are answered. It returns the number of requests that arrived, and reports an error if another
// request got anything but a 429.
func (s *setup) together(t *testing.T, path, user string, requests int) (arrived int) {
	t.Helper()
	g := s.upstream.hold(user)
	statuses := make(chan int, requests)
	for range requests {
		go func() { statuses <- s.status(s.url+path, http.MethodGet, "x-user-id: "+user, "x-weir-lease: forged") }()
	}
	for answered := 0; arrived+answered < requests; {
		select {
		case <-g.arrived:
			arrived++
		case status := <-statuses:
			answered++
			if status != http.StatusTooManyRequests {
				t.Errorf("%s: %d for a request that did not arrive, want 429", path, status)
			}
		}
	}
	close(g.open)
	for range arrived {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("%s: %d for a request that arrived, want 200", path, status)
		}
	}
	return arrived
}

// slots waits until all slots of the user are free, for far less than the lease_ttl.
func (s *setup) slots(t *testing.T, path, user string, want int) {
	t.Helper()
	begin := time.Now()
	free := must.Until(t, fmt.Sprintf("%s: %d slots are free after the last request", path, want), func() bool {
		return s.together(t, path, user, want) == want
	})
	t.Logf("%s: all slots free and used again after %v", path, free.Sub(begin))
}

// The policies and the overlay of the page limit the requests in flight.
func (s *setup) testRequestsInFlight(t *testing.T) {
	const limit = 3
	must.Until(t, "Envoy has the limit of the page", func() bool {
		s.users++
		user := fmt.Sprint("probe-", s.users)
		return s.together(t, "/reports", user, limit+1) == limit
	})
	for _, user := range []string{"alice", "bob"} {
		if got := s.together(t, "/reports", user, 12); got != limit {
			t.Errorf("%d requests of %s in flight, want %d", got, user, limit)
		}
		s.slots(t, "/reports", user, limit)
	}
	// Clients that repeat requests, each of which lasts 10 ms.
	g := s.upstream.hold("carol")
	stop := make(chan struct{})
	var opener, clients sync.WaitGroup
	opener.Go(func() {
		for {
			select {
			case <-g.arrived:
				time.Sleep(10 * time.Millisecond)
				g.open <- struct{}{}
			case <-stop:
				return
			}
		}
	})
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 12 {
		clients.Go(func() {
			for range 25 {
				status := s.status(s.url+"/reports", http.MethodGet, "x-user-id: carol")
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	close(stop)
	opener.Wait()
	t.Logf("%v, at most %d in flight", statuses, g.max)
	if g.max > limit || statuses[http.StatusOK] < limit || statuses[http.StatusOK]+statuses[http.StatusTooManyRequests] != 12*25 {
		t.Errorf("%d in flight, statuses %v; want at most %d, and only 200 and 429", g.max, statuses, limit)
	}
	s.slots(t, "/reports", "carol", limit)
}

// The policies and the overlay of the page reserve 5 of 20 tokens, and settle 3.
func (s *setup) testReservations(t *testing.T) {
	if got := s.together(t, "/completions", "dave", 8); got != 4 {
		t.Errorf("%d requests at the same time, want 4 with an estimate of 5 each", got)
	}
	// One after another, the k-th finds 3(k-1) settled tokens.
	user := "erin"
	for k := 1; k <= 7; k++ {
		want, before := http.StatusOK, s.decided()
		if k == 7 {
			want = http.StatusTooManyRequests
		}
		if got := s.status(s.url+"/completions", http.MethodGet, "x-user-id: "+user); got != want {
			t.Errorf("request %d: %d, want %d", k, got, want)
		}
		if want == http.StatusOK {
			must.Until(t, "the settlement at the end of the request", func() bool { return s.decided() >= before+2 })
		}
	}
}
