package streamdone

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

const (
	loadLimit = 10 // the limit of the kind ten
	loadTime  = 4 * time.Second
	slowReply = 200 * time.Millisecond // Redis's delay; clients leave meanwhile
)

// Three replicas share one Redis, which restarts once. Some clients leave during the first call,
// some while the upstream works. With a durable Redis, the upstream never has more requests in
// flight than the limit. Without persistence, a restart admits at most the limit once more. After
// the last stream every slot is free, long before the TTL of ten minutes.
func TestConcurrencyHoldsUnderLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		settings func(dir string) []string
		most     int
	}{
		{"appendfsync always", func(dir string) []string {
			return []string{"--dir", dir, "--appendonly", "yes", "--appendfsync", "always"}
		}, loadLimit},
		{"no persistence", func(string) []string { return nil }, 2 * loadLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			settings := c.settings(t.TempDir())
			redis := redistest.Start(t, settings...)
			t.Cleanup(func() { redis.Stop() })
			slow := redistest.SlowProxy(t, redis.Addr, slowReply)
			var weirs []string
			for range 3 {
				w := startWeir(t, harness.WeirOptions{Redis: slow, Env: []string{"STORE_TIMEOUT=5s"}})
				weirs = append(weirs, w.GRPC)
			}
			s := newStack(t, testTimeout, denyOnFailure(t), weirs...)
			counts := s.load(t, 64, loadTime, enoughLoad, s.visit, func() {
				time.Sleep(loadTime / 4)
				redis.Stop()
				restarted, err := redistest.Run(redis.Addr, settings...)
				if err != nil {
					t.Error(err)
					return
				}
				redis = restarted
			})

			ended := time.Now()
			s.awaitCalls(t)
			must.Until(t, "every slot is free", func() bool { return s.used(t, "ten", loadUser) == 0 })
			t.Logf("%v; at most %d in flight, %d with those whose client had just left; all slots free after %v",
				counts, s.up.peak, s.up.rawPeak, time.Since(ended))
			if s.up.peak > c.most {
				t.Errorf("%d requests in flight, want at most %d", s.up.peak, c.most)
			}
			if !enoughLoad(counts) {
				t.Errorf("%v: this load tests too little", counts)
			}
		})
	}
}

// denyOnFailure returns an edit of the bootstrap: Envoy answers 500 if Weir does not decide.
func denyOnFailure(t *testing.T) func(string) string {
	return func(bootstrap string) string {
		edited := strings.Replace(bootstrap, "failure_mode_deny: false", "failure_mode_deny: true", 1)
		if edited == bootstrap {
			t.Error("no failure_mode_deny in the bootstrap")
		}
		return edited
	}
}

const loadUser = "load"

// enoughLoad reports whether each outcome occurred.
func enoughLoad(counts map[string]int) bool {
	return counts["200"] >= 50 && counts["left during the first call"] > 0 && counts["left the upstream"] > 0 && counts["429"] > 0
}

// load has clients send requests while disturb runs, for atLeast at least and until there is
// enough. A busy machine needs longer than atLeast. It returns the number of requests by outcome
// once all streams have ended.
func (s *stack) load(t *testing.T, clients int, atLeast time.Duration, enough func(counts map[string]int) bool,
	send func(t *testing.T, name string, random *rand.Rand) string, disturb func(),
) map[string]int {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	start := time.Now()
	over := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(start) > atLeast && (enough(counts) || time.Since(start) > testTimeout)
	}
	var running sync.WaitGroup
	var disturbed atomic.Bool
	running.Go(func() {
		defer disturbed.Store(true)
		disturb()
	})
	for n := range clients {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			for i := 0; !disturbed.Load() || !over(); i++ {
				outcome := send(t, fmt.Sprint(n, ".", i), random)
				mu.Lock()
				counts[outcome]++
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return counts
}

// visit sends one request and returns its outcome. Of ten clients one leaves early.
func (s *stack) visit(t *testing.T, name string, random *rand.Rand) string {
	path := []string{"/negative", "/marker"}[random.IntN(2)]
	headers := map[string]string{"x-kind": "ten", "x-work": strconv.Itoa(20 + random.IntN(60))}
	leaves, soon := random.IntN(20), time.Duration(random.Int64N(int64(slowReply/10)))
	outcome := s.sendLoad(t, path, name, headers, func(ended <-chan struct{}) string {
		switch leaves {
		case 0:
			start := time.Now()
			select {
			case <-time.After(soon):
				// A client that leaves while the answer is on its way to Envoy keeps its slot until
				// the TTL, see ADR 16.
				if time.Since(start) < slowReply/2 {
					return "left during the first call"
				}
			case <-ended:
			}
		case 1:
			if s.reachesUpstream(name, ended) {
				return "left the upstream"
			}
		}
		return ""
	})
	if outcome != "200" {
		time.Sleep(10 * time.Millisecond)
	}
	return outcome
}

// sendLoad sends one request and returns its outcome: the status, or the result of leave, which
// runs meanwhile. The client leaves if that result is not "".
func (s *stack) sendLoad(t *testing.T, path, name string, headers map[string]string, leave func(ended <-chan struct{}) string) string {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.envoy.URL+path, nil)
	if err != nil {
		t.Error(err)
		return "invalid"
	}
	req.Header.Set("x-name", name)
	req.Header.Set("x-user-id", loadUser)
	for key, value := range headers {
		req.Header.Set(key, value)
	}
	ended, left := make(chan struct{}), make(chan string, 1)
	go func() {
		how := leave(ended)
		if how != "" {
			s.up.clientLeaves(name)
			cancel()
		}
		left <- how
	}()
	res, err := http.DefaultTransport.RoundTrip(req)
	close(ended)
	how := <-left
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	switch {
	case how != "":
		return how
	case err != nil:
		t.Error(err)
		return "failed"
	}
	return strconv.Itoa(res.StatusCode)
}

// reachesUpstream waits until a request is at the upstream. It returns false if the request ends
// before.
func (s *stack) reachesUpstream(name string, ended <-chan struct{}) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !s.up.has(name) {
		select {
		case <-tick.C:
		case <-ended:
			return false
		}
	}
	return true
}
