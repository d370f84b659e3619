package conform

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/conform"
)

// The timeouts are generous: a busy machine must not fail a check that waits.
const (
	runTimeout  = 10 * time.Minute
	callTimeout = 30 * time.Second // for a call to Weir, and for a call to its store
)

// Weir passes every check, for each algorithm, on each store.
func TestWeirConforms(t *testing.T) {
	for _, c := range []struct {
		name   string
		column string // the column on the page
		server string
		store  func(t *testing.T) (env []string)
	}{
		{"memory", "Weir, memory", "counters in the process", func(*testing.T) []string { return nil }},
		{"redis", "Weir, Redis", "on one Redis", func(t *testing.T) []string {
			return []string{"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redistest.Start(t).Addr}
		}},
		{"cluster", "Weir, Redis Cluster of 3", "on three masters", func(t *testing.T) []string {
			cluster := redistest.StartCluster(t, 3)
			return []string{"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=cluster", "REDIS_URL=" + strings.Join(cluster.Addrs(), ",")}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// A busy machine may need longer for a call of the store than the default, and sheds
			// load at the default bound.
			w := startWeir(t, append(c.store(t), "STORE_TIMEOUT="+callTimeout.String(), "MAX_IN_FLIGHT=100000")...)
			report := grade(t, conform.Options{Target: w.GRPC, Algorithms: conform.Algorithms(), CallTimeout: callTimeout})
			for _, r := range report.Checks {
				if r.Outcome == conform.Fail {
					t.Error(r.Text())
				}
			}
			keepReport(c.column, c.server, report)
		})
	}
}

// ratelimitDefects are the checks that envoyproxy/ratelimit of January 2026 always fails. Under
// load it fails others at times.
var ratelimitDefects = []string{
	"semantics.pairs", "semantics.counters", "semantics.refund", "crash.hits_64_bit", "crash.refund_64_bit", "crash.override_unit_unknown",
}

func TestChecksDetectDefectsOfRatelimit(t *testing.T) {
	binary := harness.MustFindRatelimit(t)
	t.Parallel()
	rules, err := conform.Rules(nil)
	must.Succeed(t, err)
	r := harness.MustStartRatelimit(t, harness.RatelimitOptions{Binary: binary, Rules: rules, Redis: redistest.Start(t).Addr, Dir: t.TempDir()})
	report := grade(t, conform.Options{Target: r.GRPC})
	var failed []string
	for _, c := range report.Checks {
		if c.Outcome == conform.Fail {
			failed = append(failed, c.ID)
		}
	}
	for _, id := range ratelimitDefects {
		if !slices.Contains(failed, id) {
			t.Errorf("%s does not fail; %q do", id, failed)
		}
	}
	keepReport("envoyproxy/ratelimit, Redis", "the newest version that `go install` builds, of January 2026, on one Redis", report)
}

// grade runs all checks.
func grade(t *testing.T, o conform.Options) conform.Report {
	t.Helper()
	o.Timeout, o.Only = runTimeout, regexp.MustCompile(*only)
	report, err := conform.Run(t.Context(), o)
	must.Succeed(t, err)
	t.Logf("%s in %.1f s", report.Summary(), report.Seconds)
	return report
}

// startWeir starts Weir with the rules of all checks. env selects the store.
func startWeir(t *testing.T, env ...string) *harness.Weir {
	t.Helper()
	rules, err := conform.Rules(conform.Algorithms())
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	must.Write(t, path, rules)
	return harness.MustStartWeir(t, harness.WeirOptions{Binary: weirBinary(t), Rules: path, Env: env})
}
