package containers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// Two replicas behind one Envoy, on one Redis, together admit exactly the limit, and both answer
// requests.
func TestTwoReplicasAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	const limit, requests, workers = 100, 300, 8
	s := newStack(t)
	s.redis()
	m := rules(t, hourly(limit))
	a, b := s.weir(m.dir, onRedis), s.weir(m.dir, onRedis)
	c := s.envoy(bootstrap(t, change{"lb_policy: LEAST_REQUEST", "lb_policy: ROUND_ROBIN"}))
	c.awaitConnected("login")
	must.Until(t, "Envoy knows both replicas", func() bool { return c.replicas() == 2 })
	for _, action := range actions {
		var mu sync.Mutex
		codes := map[int]int{}
		var all sync.WaitGroup
		next := make(chan struct{}, requests)
		for range requests {
			next <- struct{}{}
		}
		close(next)
		for range workers {
			all.Go(func() {
				for range next {
					answer, err := c.envoy.Do(t.Context(), "alice", action)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					codes[answer.Status]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if codes[200] != limit || codes[429] != requests-limit {
			t.Errorf("%s: %v, want %d times 200 and %d times 429", action, codes, limit, requests-limit)
		}
	}
	for _, one := range []*service{a, b} {
		if n := harness.MustMetrics(t, "http://"+one.address(8080)).Sum("weir_requests_total"); int(n) < len(actions)*requests/4 {
			t.Errorf("a replica answered %v of %d requests", n, len(actions)*requests)
		}
		one.end()
	}
}

// replicas returns the number of hosts that Envoy considers healthy.
func (c *proxy) replicas() (n int) {
	c.t.Helper()
	return c.stat("cluster.weir.membership_healthy")
}

// All replicas are replaced one by one under load, as in a Deployment with maxSurge 1 and
// maxUnavailable 0. A new replica starts, and once Envoy knows it, an old one stops. No request is
// lost, and each counts once.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.redis()
	m := rules(t, hourly(1_000_000))
	// The delay is the server's own.
	settings := map[string]string{"DRAIN_DELAY": "2s"}
	replicas := []*service{s.weir(m.dir, onRedis, settings), s.weir(m.dir, onRedis, settings)}
	c := s.envoy(bootstrap(t,
		change{"failure_mode_deny: false", "failure_mode_deny: true"}, // a lost request becomes a 500
		change{"      lb_policy: LEAST_REQUEST\n", "      lb_policy: LEAST_REQUEST\n" +
			"      health_checks:\n        - timeout: 5s\n          interval: 0.25s\n          no_traffic_interval: 0.25s\n" +
			"          unhealthy_threshold: 1\n          healthy_threshold: 1\n          grpc_health_check: {service_name: ratelimit}\n" +
			"      common_lb_config: {healthy_panic_threshold: {value: 0}}\n"}))
	c.awaitConnected("login")
	must.Until(t, "Envoy knows both replicas", func() bool { return c.replicas() == 2 })

	l := load(c)
	for range 2 {
		fresh := s.weir(m.dir, onRedis, settings)
		must.Until(t, "Envoy knows the new replica", func() bool { return c.replicas() == 3 })
		replicas[0].end()
		must.Until(t, "Envoy knows that the old replica is gone", func() bool { return c.replicas() == 2 })
		replicas = append(replicas[1:], fresh)
	}
	sent, lost := l.end()
	if len(lost) > 0 {
		t.Errorf("%d of %d requests are lost:\n%s", len(lost), sent, strings.Join(lost[:min(len(lost), 20)], "\n"))
	}
	if sent < 100 {
		t.Errorf("%d requests: too few for a load", sent)
	}
	a := c.do("alice", "login")
	if counted := 1_000_000 - a.Remaining - 1; counted != sent {
		t.Errorf("%d requests were sent, %d counted", sent, counted)
	}
	for _, name := range []string{"error", "failure_mode_allowed"} {
		if n := c.stat("cluster.backend.ratelimit." + name); n != 0 {
			t.Errorf("ratelimit.%s is %d, want 0", name, n)
		}
	}
	t.Logf("%d requests", sent)
	if t.Failed() {
		t.Logf("%s", harness.MustGet(t, c.envoy.Admin+"/stats?filter=cluster.weir"))
	}
}

// A running load is a few workers that each send a request, wait for its answer and pause.
type running struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	mu   sync.Mutex
	sent int
	lost []string
}

func load(c *proxy) *running {
	const workers, pause, most = 4, 10 * time.Millisecond, 10 * time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), most)
	r := &running{stop: cancel}
	for range workers {
		r.all.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				began := time.Now()
				err := one(c.envoy.URL)
				r.mu.Lock()
				r.sent++
				if err != nil {
					r.lost = append(r.lost, fmt.Sprintf("%s, after %v: %v", began.Format("15:04:05.000"), time.Since(began), err))
				}
				r.mu.Unlock()
			}
		})
	}
	return r
}

// one sends a request to its end, even if the test ends, and expects an answer that the rate limit
// service approved.
func one(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("x-user-id", "alice")
	r.Header.Set("x-action", "login")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("x-ratelimit-limit") == "" {
		return errors.New(answer.Status + ", x-ratelimit-limit: " + answer.Header.Get("x-ratelimit-limit"))
	}
	return nil
}

// end stops the load after every started request has an answer.
func (r *running) end() (sent int, lost []string) {
	r.stop()
	r.all.Wait()
	return r.sent, r.lost
}
