package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// rulesFile holds one rule for each algorithm, with windows of seconds.
var rulesFile = filepath.Join("..", "envoy", "rules.yaml")

// algorithms are the rules of envoy/rules.yaml.
var algorithms = []struct {
	name, action string
	limit        string        // x-ratelimit-limit
	reset        int           // at most this many seconds later no hit counts any more
	slot         time.Duration // the longest wait after the first request until another one fits
}{
	{"fixed_window", "login", "3, 3;w=5", 5, 5 * time.Second},
	{"sliding_log", "reply", "3, 3;w=4", 4, 4 * time.Second},
	{"funnel", "post", "3, 3;w=6", 6, 2 * time.Second},
}

func TestEnvoyAppliesLimitsOfEveryAlgorithm(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			c := startEnvoy(t, "bootstrap.yaml", startWeir(t, store.redis(t), rulesFile))
			for _, alg := range algorithms {
				t.Run(alg.name, func(t *testing.T) {
					t.Parallel()
					passed, denied := spend(t, c, alg.action, alg.slot)
					for i, a := range passed {
						want := harness.Answer{Status: 200, Limit: alg.limit, Remaining: window - 1 - i, Reset: a.Reset, RetryAfter: -1}
						if a != want || a.Reset < 1 || a.Reset > alg.reset {
							t.Errorf("request %d: %+v, want %+v and a reset of 1 to %d", i+1, a, want, alg.reset)
						}
					}
					want := harness.Answer{Status: 429, Limited: true, Limit: alg.limit, Remaining: 0, Reset: denied.Reset, RetryAfter: denied.Reset}
					if denied != want || denied.RetryAfter < 1 || denied.RetryAfter > int(alg.slot.Seconds()) {
						t.Errorf("one more: %+v, want %+v and a wait of at most %v", denied, want, alg.slot)
					}
				})
				t.Run(alg.name+"/a retry after the advertised wait succeeds", func(t *testing.T) {
					t.Parallel()
					c.allowed(t, window, "carol", alg.action)
					must.Succeed(t, untilDenied(t, c, "carol", alg.action).Wait(t.Context()))
					c.allowed(t, 1, "carol", alg.action)
				})
			}
		})
	}
}

// spend sends four requests of a new user. On a busy machine hits may expire before the fourth.
// spend then tries another user.
func spend(t *testing.T, c *client, action string, slot time.Duration) (passed []harness.Answer, denied harness.Answer) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for try := 0; time.Now().Before(deadline); try++ {
		passed = nil
		start := time.Now()
		user := fmt.Sprintf("alice-%d", try)
		for range window {
			passed = append(passed, c.do(t, user, action))
		}
		denied = c.do(t, user, action)
		if time.Since(start) < slot {
			return passed, denied
		}
	}
	t.Fatalf("no 4 requests within %v", slot)
	return nil, harness.Answer{}
}

// untilDenied sends requests until one is denied. On a busy machine hits may expire before.
func untilDenied(t *testing.T, c *client, user, action string) harness.Answer {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		if a := c.do(t, user, action); a.Status == 429 {
			return a
		}
	}
	t.Fatalf("%s %s: never denied", user, action)
	return harness.Answer{}
}

// Each user and each action has a counter of its own.
func TestUsersAndActionsHaveSeparateCounters(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			rules := must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), hourly(3))
			c := startEnvoy(t, "bootstrap.yaml", startWeir(t, store.redis(t), rules))
			for _, actions := range [][2]string{{"login", "signup"}, {"reply", "comment"}, {"post", "upload"}} {
				t.Run(actions[0], func(t *testing.T) {
					c.allowed(t, 3, "alice", actions[0])
					c.denied(t, "alice", actions[0])
					c.allowed(t, 3, "bob", actions[0])
					c.allowed(t, 3, "alice", actions[1])
					c.denied(t, "alice", actions[1])
					c.denied(t, "alice", actions[0])
				})
			}
		})
	}
}

// A request that no rule matches is admitted, and its response has no limit.
func TestRequestWithoutRulePasses(t *testing.T) {
	t.Parallel()
	c := startEnvoy(t, "bootstrap.yaml", startWeir(t, "", rulesFile))
	want := harness.Answer{Status: 200, Remaining: -1, Reset: -1, RetryAfter: -1}
	for _, who := range []struct{ user, action string }{{"alice", "logout"}, {"alice", ""}, {"", "login"}, {"", ""}} {
		for range window + 1 {
			if a := c.do(t, who.user, who.action); a != want {
				t.Errorf("%q: %+v, want %+v", who, a, want)
			}
		}
	}
}

// An Envoy without the newer fields limits too. Only x-ratelimit-reset then has the wait.
func TestOlderEnvoyReadsResetHeader(t *testing.T) {
	t.Parallel()
	c := startEnvoy(t, "bootstrap-1.30.yaml", startWeir(t, "", rulesFile))
	for _, alg := range algorithms {
		_, a := spend(t, c, alg.action, alg.slot)
		if a.Status != 429 || !a.Limited || a.Remaining != 0 || a.Reset < 1 || a.RetryAfter != -1 {
			t.Errorf("%s: %+v, want 429 with a reset and no retry-after", alg.name, a)
		}
	}
}
