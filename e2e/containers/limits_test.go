package containers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// Each algorithm, on each store, through Envoy to a 429. A client that waits for the reported time
// gets in.
func TestContainerLimitsByEveryAlgorithm(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			env := map[string]string{}
			if store == "redis" {
				s.redis()
				env = onRedis
			}
			weir := s.weir(rules(t, read(t, "envoy", "rules.yaml")).dir, env)
			c := s.envoy(bootstrap(t))
			c.awaitConnected("login")
			for _, action := range actions {
				// A machine too slow for three requests in two seconds proves nothing about limits.
				for deadline, try := time.Now().Add(startTimeout), 0; ; try++ {
					user := fmt.Sprint("user-", try)
					c.allowed(3, user, action)
					a := c.do(user, action)
					if a.Status == 200 && time.Now().Before(deadline) {
						continue
					}
					if a.Status != 429 || a.Remaining != 0 || a.RetryAfter < 1 {
						t.Errorf("%s: %+v, want 429 and when to come again", action, a)
					}
					must.Succeed(t, a.Wait(t.Context()))
					c.allowed(1, user, action)
					break
				}
			}
			weir.end()
		})
	}
}

// A change of the ConfigMap reaches a running container, and its counts stay. A change with a fault
// has no effect.
func TestConfigMapChangeReloadsRules(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := rules(t, hourly(3))
	weir := s.weir(m.dir)
	c := s.envoy(bootstrap(t))
	c.awaitConnected("login")
	for _, action := range actions {
		c.allowed(3, "alice", action)
		c.denied("alice", action)
	}
	limit := func(want string) func() bool {
		return func() bool { return c.do("bob", "reply").Limit == want }
	}
	m.replace(t, map[string]string{"rules.yaml": hourly(5)})
	must.Until(t, "the limit is 5", limit("5, 5;w=3600"))
	c.allowed(2, "alice", "reply") // 3 of 5 were spent
	c.denied("alice", "reply")

	m.replace(t, map[string]string{"rules.yaml": strings.ReplaceAll(hourly(9), "requests_per_unit", "requests_per_unti")})
	must.Until(t, "the fault is in the log", func() bool { return strings.Contains(weir.log(), "requests_per_unti") })
	c.denied("alice", "reply")

	m.replace(t, map[string]string{"rules.yaml": hourly(7)})
	must.Until(t, "the limit is 7", limit("7, 7;w=3600"))
	c.allowed(2, "alice", "reply")
	c.denied("alice", "reply")
}
