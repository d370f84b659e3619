// Package e2e_test specifies the behavior that a user of Envoy sees: a real Envoy, with the files
// in envoy/, in front of a real Weir, on each store. It has no fakes and skips nothing: `make test`
// installs the servers.
package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

const (
	testTimeout = 2 * time.Minute // far longer than needed, so that a test does not fail on a busy machine
	window      = 3               // requests_per_unit of each rule in envoy/rules.yaml
)

// stores are the stores of Weir. redis returns the address of a server, or "" for memory.
var stores = []struct {
	name  string
	redis func(*testing.T) string
}{
	{"memory", func(*testing.T) string { return "" }},
	{"redis", func(t *testing.T) string { return redistest.Start(t).Addr }},
}

// startWeir starts Weir and stops it with the test; it must exit without an error. On a busy
// machine a call of Redis takes long, and many requests are in flight: neither is an error here.
func startWeir(t *testing.T, redis, rules string) *harness.Weir {
	t.Helper()
	return harness.MustStartWeir(t, harness.WeirOptions{
		Binary: binary(t), Rules: rules, Redis: redis, Env: []string{"STORE_TIMEOUT=1m", "MAX_IN_FLIGHT=100000"},
	})
}

// onEachStore runs f with a Weir of these rules on each of the stores, side by side.
func onEachStore(t *testing.T, rules string, f func(t *testing.T, w *harness.Weir)) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			f(t, startWeir(t, store.redis(t), must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), rules)))
		})
	}
}

// startEnvoy starts Envoy in front of Weir and stops it with the test; it must exit without an
// error.
func startEnvoy(t *testing.T, bootstrap string, w *harness.Weir) *client {
	t.Helper()
	e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("..", "envoy", bootstrap), Weir: w.GRPC, Timeout: testTimeout,
	})
	return &client{e}
}

// A client sends requests through Envoy.
type client struct{ envoy *harness.Envoy }

func (c *client) do(t *testing.T, user, action string) harness.Answer {
	t.Helper()
	a, err := c.envoy.Do(t.Context(), user, action)
	must.Succeed(t, err)
	return a
}

// allowed sends n requests that must pass.
func (c *client) allowed(t *testing.T, n int, user, action string) {
	t.Helper()
	for i := range n {
		if a := c.do(t, user, action); a.Status != 200 {
			t.Fatalf("%s %s, request %d of %d: %+v, want 200", user, action, i+1, n, a)
		}
	}
}

// denied sends a request and expects a denial.
func (c *client) denied(t *testing.T, user, action string) harness.Answer {
	t.Helper()
	a := c.do(t, user, action)
	if a.Status != 429 {
		t.Fatalf("%s %s: %+v, want 429", user, action, a)
	}
	return a
}

// hourly returns a rules file with limit hits an hour for each user and action, so that no window
// ends during a test. Each algorithm has two actions.
func hourly(limit int) string {
	rule := func(action, algorithm string) string {
		return fmt.Sprintf("      - {key: action, value: %s, rate_limit: {algorithm: %s, unit: hour, requests_per_unit: %d}}\n",
			action, algorithm, limit)
	}
	const firstHit = "fixed_window, window_start: first_hit"
	return "domain: weir\ndescriptors:\n  - key: user_id\n    descriptors:\n" +
		rule("login", firstHit) + rule("signup", firstHit) +
		rule("reply", "sliding_log") + rule("comment", "sliding_log") +
		rule("post", "funnel") + rule("upload", "funnel")
}
