package manifests

import (
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// onlyBlock returns the block of docs/runbooks.md with this info.
func onlyBlock(t *testing.T, info string) string {
	t.Helper()
	found := blocks(t, info)
	if len(found) != 1 || !strings.HasSuffix(found[0].page, "docs/runbooks.md") {
		t.Fatalf("%d blocks %q, want one in docs/runbooks.md", len(found), info)
	}
	return found[0].text
}

// mustRun runs a block and returns its output. Replacements adapt it from a cluster to this
// machine.
func mustRun(t *testing.T, text string, replacements ...string) string {
	t.Helper()
	adapted := strings.NewReplacer(replacements...).Replace(text)
	out, err := script(t, adapted)
	if err != nil {
		t.Fatalf("%s\n%s%v", adapted, out, err)
	}
	return out
}

// block denies further logins of alice.
func (p *pod) block(t *testing.T) {
	t.Helper()
	if got := p.countAllowed(7, "weir", "user_id=alice", "action=login"); got != 5 {
		t.Fatalf("%d logins allowed, want 5", got)
	}
}

func (p *pod) allows(domain string, entries ...string) bool {
	code, err := p.ask(domain, entries...)
	return err == nil && code == rlsv3.RateLimitResponse_OK
}

// The runbook's commands find and delete the key of a user in Redis. The deny cache may deny for
// one second more.
func TestRunbookUnblocksAUserOnRedis(t *testing.T) {
	redis := redistest.Start(t)
	host, port, err := net.SplitHostPort(redis.Addr)
	must.Succeed(t, err)
	p := run(t, build(t, k8s+"/overlays/redis"), map[string]string{"REDIS_URL": redis.Addr})
	p.block(t)
	here := []string{"kubectl -n weir exec deployment/weir-redis -- redis-cli", "redis-cli -h " + host + " -p " + port}
	want := onlyBlock(t, "text key")
	if got := mustRun(t, onlyBlock(t, "sh unblock-find"), here...); got != want {
		t.Errorf("the keys are\n%swant\n%s", got, want)
	}
	if got := mustRun(t, onlyBlock(t, "sh unblock-delete"), here...); got != "1\n" {
		t.Errorf("%q keys deleted, want 1", got)
	}
	must.Until(t, "a login of the unblocked user", func() bool { return p.allows("weir", "user_id=alice", "action=login") })
}

// weir top names a blocked user, and weir reset unblocks the user immediately, with the admin API.
func TestRunbookUnblocksAUserByReset(t *testing.T) {
	admin := redistest.FreeAddr(t)
	token := filepath.Join(t.TempDir(), "tokens")
	must.Write(t, token, strings.Repeat("ab", 16))
	redis := redistest.Start(t)
	p := run(t, build(t, k8s+"/overlays/redis"), map[string]string{
		"REDIS_URL": redis.Addr, "ADMIN_ADDR": admin, "ADMIN_TOKEN_FILE": token, "DENY_CACHE_MAX": "1m",
	})
	p.block(t)
	here := []string{
		"kubectl -n weir exec deployment/weir -- /bin/weir", "WEIR_ADMIN_URL=http://" + admin + " weir", "/etc/weir/admin/tokens", token,
	}
	for _, names := range [][2]string{{"sh blocked-top", "text top"}, {"sh unblock-reset", "text reset"}} {
		// Counts and rates differ from run to run, and so does the folder of the rules.
		varying := regexp.MustCompile(`\b[0-9.]+\b|\S*/`)
		comparable := func(text string) string {
			return strings.Join(strings.Fields(varying.ReplaceAllString(text, "")), " ")
		}
		got, want := mustRun(t, onlyBlock(t, names[0]), here...), onlyBlock(t, names[1])
		if comparable(got) != comparable(want) {
			t.Errorf("%s prints\n%swant\n%s", names[0], got, want)
		}
	}
	if !p.allows("weir", "user_id=alice", "action=login") {
		t.Error("the user is still blocked after the reset")
	}
}

// The runbook's refund unblocks a user on every store.
func TestRunbookUnblocksAUserInMemory(t *testing.T) {
	p := run(t, build(t, k8s+"/overlays/memory"), nil)
	p.block(t)
	mustRun(t, onlyBlock(t, "sh unblock-refund"), "localhost:8080", "127.0.0.1:"+p.ports["http"])
	if !p.allows("weir", "user_id=alice", "action=login") {
		t.Error("the user is still blocked after the refund")
	}
}

// SHADOW_MODE, and rules without limits, turn limiting off. The rules need no restart.
func TestRunbookTurnsLimitingOff(t *testing.T) {
	all := build(t, k8s+"/overlays/memory")
	setting := regexp.MustCompile(`\bSHADOW_MODE=true\b`).FindString(onlyBlock(t, "sh cluster shadow-mode"))
	if setting == "" {
		t.Fatal("the runbook does not set SHADOW_MODE")
	}
	p := run(t, all, map[string]string{"SHADOW_MODE": "true"})
	if got := p.countAllowed(9, "weir", "user_id=alice", "action=login"); got != 9 {
		t.Errorf("%d of 9 logins allowed in shadow mode", got)
	}
	if _, text := p.get("metrics", "/metrics"); !strings.Contains(text,
		`weir_denials_total{domain="weir",enforced="false",limit="0",rule="user_id.action=login"} 4`) {
		t.Error("no weir_denials_total with enforced=\"false\"")
	}

	p = run(t, all, nil)
	p.block(t)
	block := onlyBlock(t, "sh cluster no-limits")
	rules := regexp.MustCompile(`--from-literal=(rules.yaml)='([^']*)'.*\| kubectl (?:-n weir )?(replace|apply) -f -`).FindStringSubmatch(block)
	if rules == nil {
		t.Fatal("the runbook does not replace the rules")
	}
	// A ConfigMap that Helm wrote, with a file of another name. kubectl apply keeps it: it deletes
	// only the keys of an earlier apply.
	after := map[string]string{}
	if rules[3] == "apply" {
		after["limits.yaml"] = named[*corev1.ConfigMap](all, "weir-rules").Data["rules.yaml"]
	}
	after[rules[1]] = rules[2] + "\n"
	p.mount("/etc/weir/rules", after)
	must.Until(t, "the reload of the rules", func() bool {
		return strings.Count(p.Log(), "rules loaded") == 2 || strings.Contains(p.Log(), "rules not loaded")
	})
	if !p.allows("weir", "user_id=alice", "action=login") {
		t.Errorf("a login is still denied after\n%s%s", block, p.Tail())
	}
}

// Envoy's runtime turns the rate limit filter off, and on again, without a restart.
func TestRunbookTurnsOffEnvoysFilter(t *testing.T) {
	p := run(t, build(t, k8s+"/overlays/memory"), nil)
	envoy := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: root + "/envoy/bootstrap.yaml", Weir: "127.0.0.1:" + p.ports["grpc"], Timeout: stepTimeout,
	})
	login := func() string {
		return mustRun(t, "curl -s -o /dev/null -w '%{http_code}' -H 'x-user-id: alice' -H 'x-action: login' "+envoy.URL)
	}
	for range 6 {
		login()
	}
	if got := login(); got != "429" {
		t.Fatalf("%s before the filter is off, want 429", got)
	}
	mustRun(t, onlyBlock(t, "sh envoy-off"), "http://localhost:9901", envoy.Admin)
	must.Until(t, "a login while the filter is off", func() bool { return login() == "200" })
	mustRun(t, onlyBlock(t, "sh envoy-on"), "http://localhost:9901", envoy.Admin)
	must.Until(t, "a 429 after the filter is on again", func() bool { return login() == "429" })
}

// The runbook's first command shows whether requests pass.
func TestRunbookShowsWhetherRequestsPass(t *testing.T) {
	p := run(t, build(t, k8s+"/overlays/memory"), nil)
	p.block(t)
	got := mustRun(t, onlyBlock(t, "sh passing"), "localhost:9090", "127.0.0.1:"+p.ports["metrics"])
	for line := range strings.Lines(onlyBlock(t, "text passing")) {
		series, _, _ := strings.Cut(line, " ")
		if !strings.Contains(line, `code="OK"`) {
			continue // shown only after a failure
		}
		if !strings.Contains(got, series+" ") {
			t.Errorf("no %s in\n%s", series, got)
		}
	}
}
