package failures

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

const (
	policyLimit = 60 // each user's limit
	shareOf2    = 43 // the share of one replica of two in policyLimit, from the table of docs/design.md
)

// Two replicas lose their Redis under load. No response is an error: rules with allow admit, rules
// with deny admit nothing, and rules with local admit at most the shares. When Redis returns, it
// decides again without any action.
func TestOnStoreErrorDecidesUnderLoad(t *testing.T) {
	t.Parallel()
	policies := []string{"allow", "deny", "local"}
	text := &strings.Builder{}
	fmt.Fprintf(text, "domain: %s\ndescriptors:\n  - key: user_id\n    descriptors:\n", domain)
	for _, p := range policies {
		fmt.Fprintf(text, "      - {key: action, value: %s, rate_limit: {unit: day, window_start: first_hit, count_denied: false, "+
			"requests_per_unit: %d, on_store_error: %s}}\n", p, policyLimit, p)
	}
	redis := redistest.Start(t)
	env := withLongTimeout(append(onRedis(redis.Addr), "REPLICAS=2")...)
	l := &load{rate: either(600, 3000)}
	users := l.rate / 60
	l.pick = func(n int) counter { return counter{policies[n/2%3], n / 6 % users} } // each user reaches both replicas
	first := startWeir(t, text.String(), env...)
	l.clients = []*client{dial(t, first.GRPC), dial(t, startWeir(t, text.String(), env...).GRPC)}
	mode := func(name string) float64 {
		return harness.MustMetrics(t, first.HTTP)[fmt.Sprintf(`weir_domain_mode{domain="%s",mode="%s"}`, domain, name)]
	}
	l.start(t)
	sleep(t, either(time.Second, 3*time.Second))
	signal(t, redis, syscall.SIGSTOP)
	t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
	frozen := time.Now()
	must.Until(t, "weir_domain_mode reports the fallback", func() bool { return mode("local") == 1 && mode("store") == 0 })
	if *full {
		sleep(t, 30*time.Second)
	}
	counting := time.Now() // from now on, the test uses the CPU that its load needs
	must.Until(t, "each user has spent the local shares", func() bool {
		spent := 0
		for c := range l.since(frozen).withVerdict(denied).byCounter() {
			if c.action == "local" {
				spent++
			}
		}
		return spent == users
	})
	thaw := time.Now()
	signal(t, redis, syscall.SIGCONT)
	must.Until(t, "Redis decides again", func() bool { return mode("store") == 1 && mode("local") == 0 })
	back := time.Since(thaw)
	sleep(t, time.Second)
	all := l.end()

	while := all.within(frozen, thaw)
	// STORE_TIMEOUT (15 ms), and 10 ms for the rest of the request.
	if p := all.within(frozen, counting).quantile(.999); *full && p > 25*time.Millisecond {
		t.Errorf("99.9 %% of answers came within %v, want 25ms", p)
	}
	checkPolicies(t, all, while, frozen)
	over, shared := checkShares(t, all, while)
	t.Logf("Redis decides again after %v; locally one user passed %d times at most", back, shared)
	record(row{
		failure: fmt.Sprintf("Redis frozen for %v, on_store_error allow, deny and local; 2 replicas, a limit of %d, shares of %d",
			thaw.Sub(frozen).Round(time.Second), policyLimit, shareOf2),
		rate: l.rate, of: all, while: all.within(frozen, counting), outage: 0, lost: "0", over: fmt.Sprintf("%d hits of %d users, by local", over, users),
	})
}

// checkPolicies checks that no request failed, and that each policy decided the requests during the
// outage.
func checkPolicies(t *testing.T, all, while answers, frozen time.Time) {
	t.Helper()
	if errs := all.withVerdict(failed); len(errs) > 0 {
		t.Errorf("%d requests of %d failed: %s", len(errs), len(all), errs.codes())
	}
	// If Redis denied a user before, the denial may still be in the deny cache.
	denials := all.filter(func(a *answer) bool { return a.sent.Before(frozen) && a.verdict == denied }).byCounter()
	if n := len(while.filter(func(a *answer) bool { return a.action == "allow" && a.verdict == denied && denials[a.counter] == 0 })); n > 0 {
		t.Errorf("%d requests under on_store_error: allow were denied", n)
	}
	if n := len(while.filter(func(a *answer) bool { return a.action == "deny" && a.verdict == allowed })); n > 0 {
		t.Errorf("%d requests under on_store_error: deny passed", n)
	}
}

// checkShares checks that each user of on_store_error: local spent at most the limit and the shares
// of both replicas. It returns the hits over the limit, and the most hits of a user that a share
// admitted.
func checkShares(t *testing.T, all, while answers) (over, shared int) {
	t.Helper()
	for c, n := range all.withVerdict(allowed).byCounter() {
		if c.action != "local" {
			continue
		}
		if n > policyLimit+2*shareOf2 {
			t.Errorf("%v: %d were admitted, of %d and two shares of %d", c, n, policyLimit, shareOf2)
		}
		over += max(0, n-policyLimit)
	}
	for c, n := range while.withVerdict(allowed).byCounter() {
		if c.action == "local" {
			shared = max(shared, n)
		}
	}
	if shared < shareOf2 {
		t.Errorf("a user passed at most %d times locally, so no share was spent", shared)
	}
	return over, shared
}
