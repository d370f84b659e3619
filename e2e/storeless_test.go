package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

const whenLost = `domain: weir
on_store_error: local
descriptors:
- {key: unset, rate_limit: {unit: year, requests_per_unit: 1000}}
- {key: allow, rate_limit: {unit: year, requests_per_unit: 1, on_store_error: allow}}
- {key: deny, rate_limit: {unit: year, requests_per_unit: 1000, on_store_error: deny}}
`

// While Redis is frozen, on_store_error of the rule decides. When Redis continues, limits hold as
// before.
func TestOnStoreErrorDecidesWhileRedisIsFrozen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := startWeirWith(t, server.Addr, whenLost+
		"- {key: error, rate_limit: {unit: year, requests_per_unit: 1000, on_store_error: error}}\n", "REPLICAS=10")
	ask := directCalls(t, w)
	code := func(key, user string, hits ...uint64) string {
		r, err := ask(key, user, hits...)
		if err != nil {
			return status.Code(err).String()
		}
		return r.GetOverallCode().String()
	}
	mode := func(name string) int { return metric(t, w, `weir_domain_mode{domain="weir",mode="`+name+`"}`) }
	// On a busy machine a call may time out while Redis works, so each attempt has a new user.
	users := 0
	codesOf := func() string {
		users++
		user := fmt.Sprint("user-", users)
		return strings.Join([]string{code("unset", user), code("allow", user), code("allow", user), code("deny", user), code("error", user)}, " ")
	}
	redisDecides := func() bool { return codesOf() == "OK OK OVER_LIMIT OK OK" && mode("store") == 1 && mode("local") == 0 }
	must.Until(t, "Redis decides", redisDecides)
	must.Until(t, "Redis counts a hit of alice", func() bool { return code("error", "alice") == "OK" })
	must.Succeed(t, server.Signal(syscall.SIGSTOP))
	must.Until(t, "rules fail as on_store_error says", func() bool { return codesOf() == "OK OK OK OVER_LIMIT Unavailable" })
	if mode("store") != 0 || mode("local") != 1 || mode("error") != 1 {
		t.Errorf("weir_domain_mode does not show the outage:\n%s", harness.MustGet(t, w.HTTP+"/metrics"))
	}
	// The share of one replica of ten in a limit of 1000 is 137, of which some are used.
	r, err := ask("unset", "bob", 137)
	if err != nil || r.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		t.Errorf("a share: %v, %v", r, err)
	}
	if r, err = ask("unset", "bob", 1); err != nil || r.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("more than a share: %v, %v", r, err)
	}
	must.Succeed(t, server.Signal(syscall.SIGCONT))
	must.Until(t, "Redis decides again", redisDecides)
	got := ""
	must.Until(t, "Redis decides a request of alice", func() bool {
		got = code("error", "alice", 1000)
		return got != codes.Unavailable.String()
	})
	if got != "OVER_LIMIT" {
		t.Errorf("%s for as many hits of alice as her limit, want OVER_LIMIT: one was counted before the outage", got)
	}
}

// Weir is ready without Redis only if all rules have an on_store_error other than error.
func TestReadyWithoutRedisIfNoRuleNeedsIt(t *testing.T) {
	t.Parallel()
	nobody := redistest.FreeAddr(t)
	w := startWeirWith(t, nobody, whenLost)
	if r, err := directCalls(t, w)("unset", "alice"); err != nil || r.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		t.Errorf("%v, %v", r, err)
	}
}

// startWeirWith is startWeir with rules as text, settings, and a STORE_TIMEOUT that is short enough
// for a test.
func startWeirWith(t *testing.T, redis, rules string, env ...string) *harness.Weir {
	t.Helper()
	return harness.MustStartWeir(t, harness.WeirOptions{
		Binary: binary(t), Rules: must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), rules), Redis: redis,
		Env: append([]string{"STORE_TIMEOUT=500ms"}, env...),
	})
}
