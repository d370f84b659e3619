package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// New rules hold without a restart and keep the counters; rules with a fault change nothing.
func TestReloadAppliesChangedRules(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			path := must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), hourly(3))
			w := startWeir(t, store.redis(t), path)
			c := startEnvoy(t, "bootstrap.yaml", w)
			c.allowed(t, 3, "alice", "reply")
			c.denied(t, "alice", "reply")

			must.Write(t, path, hourly(5))
			must.Until(t, "the limit is 5", func() bool { return c.do(t, "bob", "reply").Limit == "5, 5;w=3600" })
			c.allowed(t, 2, "alice", "reply") // 3 of 5 were spent
			c.denied(t, "alice", "reply")

			must.Write(t, path, strings.ReplaceAll(hourly(9), "requests_per_unit", "requests_per_unti"))
			must.Until(t, "the fault is in the log", func() bool { return strings.Contains(w.Log(), "requests_per_unti") })
			if a := c.do(t, "carol", "reply"); a.Status != 200 || a.Limit != "5, 5;w=3600" {
				t.Errorf("after a bad file: %+v, want the limit of 5 that was there", a)
			}
			c.denied(t, "alice", "reply")

			must.Write(t, path, hourly(7))
			must.Until(t, "the limit is 7", func() bool { return c.do(t, "bob", "reply").Limit == "7, 7;w=3600" })
			c.allowed(t, 2, "alice", "reply") // 5 of 7 were spent
		})
	}
}

// Weir exits with 0 on SIGTERM. With failure_mode_deny: false, Envoy then lets requests pass.
func TestSIGTERMExitsWithZero(t *testing.T) {
	onEachStore(t, hourly(3), func(t *testing.T, w *harness.Weir) {
		c := startEnvoy(t, "bootstrap.yaml", w)
		c.allowed(t, 3, "alice", "login")
		c.denied(t, "alice", "login")
		harness.MustStop(t, w.Process)
		want := harness.Answer{Status: 200, Remaining: -1, Reset: -1, RetryAfter: -1}
		if a := c.do(t, "alice", "login"); a != want {
			t.Errorf("without Weir: %+v, want %+v", a, want)
		}
	})
}

// Envoy accepts every bootstrap in envoy/ unchanged, and serves its admin page on loopback only.
func TestBootstrapsAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "envoy", "bootstrap*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, f := range files {
		if err := harness.Validate(t.Context(), f); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text), "\nadmin:\n  address: {socket_address: {address: 127.0.0.1, ") {
			t.Errorf("%s: the admin page is not on loopback (%v)", f, err)
		}
	}
}

// Weir accepts the rules in envoy/ unchanged.
func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	if out, err := exec.CommandContext(t.Context(), bin, "check", rulesFile).CombinedOutput(); err != nil {
		t.Errorf("weir check: %v\n%s", err, out)
	}
}
