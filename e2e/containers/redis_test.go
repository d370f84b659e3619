package containers_test

import (
	"context"
	"testing"

	"github.com/moby/moby/client"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// Weir outlives its Redis. While Redis is down or hangs, requests get an error before Envoy gives
// up, and Envoy lets them pass. When Redis is back, limits hold again, with the earlier counts if
// Redis kept them.
func TestContainerSurvivesRedisOutage(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name       string
		keeps      bool
		lose, back func(*testing.T, *service)
	}{
		{"hangs", true,
			func(t *testing.T, redis *service) {
				_, err := docker.ContainerPause(t.Context(), redis.GetContainerID(), client.ContainerPauseOptions{})
				must.Succeed(t, err)
			},
			func(t *testing.T, redis *service) {
				_, err := docker.ContainerUnpause(t.Context(), redis.GetContainerID(), client.ContainerUnpauseOptions{})
				must.Succeed(t, err)
			},
		},
		{"stops", false,
			func(t *testing.T, redis *service) {
				most := startTimeout
				must.Succeed(t, redis.Stop(context.Background(), &most))
			},
			func(t *testing.T, redis *service) { must.Succeed(t, redis.Start(t.Context())) },
		},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			redis := s.redis()
			// Cached denials would answer in place of a missing Redis.
			weir := s.weir(rules(t, hourly(3)).dir, onRedis, map[string]string{"STORE_TIMEOUT": "5s", "LOCAL_CACHE_SIZE_IN_BYTES": "0"})
			c := s.envoy(bootstrap(t))
			c.awaitConnected("login")
			for _, action := range actions {
				c.allowed(3, "alice", action)
				c.denied("alice", action)
			}
			how.lose(t, redis)
			for _, action := range actions {
				if a := c.do("alice", action); a.Status != 200 || a.Limit != "" {
					t.Errorf("%s without Redis: %+v, want that it passes unlimited", action, a)
				}
			}
			if n := c.stat("cluster.weir.upstream_rq_timeout"); n > 0 {
				t.Errorf("Envoy gave up %d requests, want that Weir answers each of them", n)
			}
			if n := c.stat("cluster.backend.ratelimit.failure_mode_allowed"); n < len(actions) {
				t.Errorf("Envoy let %d pass, want %d or more", n, len(actions))
			}
			if body := harness.MustGet(t, "http://"+weir.address(8080)+"/healthcheck"); body != "OK" {
				t.Errorf("/healthcheck without Redis: %q; all replicas would leave at once", body)
			}
			how.back(t, redis)
			c.awaitConnected("login")
			for _, action := range actions {
				if how.keeps {
					c.denied("alice", action)
				}
				c.allowed(3, "bob", action)
				c.denied("bob", action)
			}
			weir.end()
		})
	}
}
