// Package gateway_test tests Weir under a real Envoy Gateway, which configures a real Envoy and
// sends Weir its rules by mTLS. It is a module and a step of CI of its own, because Envoy Gateway
// takes minutes to build.
package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/e2e/xds/envoygateway"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

const envoyVersion = "1.40.0" // the name under which Envoy Gateway finds the binary; the version itself may be newer

// A policy is a BackendTrafficPolicy with one rule, for the routes that it names.
type policy struct {
	name   string
	routes []string
	rule   string // YAML in flow form
}

// policies has one policy for each kind of selector. perUser is the limit of the first one, which
// the test changes.
func policies(perUser int) []policy {
	// The window of a year is the one that turns least: policies have no windows that begin with
	// the first hit.
	select3 := func(selector string, limit int, more string) string {
		return fmt.Sprintf("{clientSelectors: [{%s}], limit: {requests: %d, unit: Year}%s}", selector, limit, more)
	}
	byUser := "headers: [{name: x-user-id, type: Distinct}]"
	return []policy{
		{"header", []string{"header"}, select3(byUser, perUser, "")},
		{"exact", []string{"exact"}, select3("headers: [{name: x-plan, type: Exact, value: free}]", 2, "")},
		{"cidr", []string{"cidr"}, select3("sourceCIDR: {type: Exact, value: 127.0.0.0/8}", 2, "")},
		{"other-cidr", []string{"other-cidr"}, select3("sourceCIDR: {type: Exact, value: 10.0.0.0/8}", 2, "")},
		{"path", []string{"path"}, select3("path: {type: PathPrefix, value: /path/limited}", 2, "")},
		{"method", []string{"method"}, select3("methods: [{value: POST}]", 2, "")},
		{"shared", []string{"shared-a", "shared-b"}, select3(byUser, 3, ", shared: true")},
		{"apart", []string{"apart-a", "apart-b"}, select3(byUser, 3, "")},
		{"shadow", []string{"shadow"}, select3(byUser, 2, ", shadowMode: true")},
		{"cost", []string{"cost"}, select3(byUser, 6, ", cost: {response: {from: Metadata, metadata: {namespace: weir.test, key: tokens}}}")},
		{"backend", []string{"backend"}, select3(byUser, 3, "")}, // the overlay gives it a sliding log
	}
}

// httpRoute returns a route from the path /NAME to the upstream.
func httpRoute(name string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s, namespace: default}
spec:
  parentRefs: [{name: eg}]
  rules:
    - matches: [{path: {type: PathPrefix, value: /%[1]s}}]
      backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: upstream}]
`, name)
}

// manifests returns the routes and policies.
func manifests(all []policy) string {
	var b strings.Builder
	for _, p := range all {
		var targets []string
		for _, route := range p.routes {
			targets = append(targets, "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: "+route+"}")
			b.WriteString(httpRoute(route))
		}
		fmt.Fprintf(&b, `---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: %s, namespace: default}
spec:
  targetRefs: [%s]
  rateLimit: {type: Global, global: {rules: [%s]}}
`, p.name, strings.Join(targets, ", "), p.rule)
	}
	return b.String()
}

// A setup is a running Envoy Gateway with its Envoy, Weir and Redis.
type setup struct {
	t       *testing.T
	folder  string
	replace *strings.Replacer
	gateway *harness.Process
	weir    *harness.Process
	start   func() // starts Weir, always at the same port
	url     string // Envoy's listener
	admin   string // Envoy's admin interface
	health  string // Weir's health checks and metrics
	debug   string
	users   int

	upstream upstream
}

// envoyGateway returns the binary in $ENVOY_GATEWAY. Without one the test is skipped, unless
// GATEWAY_REQUIRED is 1.
func envoyGateway(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ENVOY_GATEWAY")
	if path == "" {
		if os.Getenv("GATEWAY_REQUIRED") == "1" {
			t.Fatal("no Envoy Gateway: make gateway builds one")
		}
		t.Skip("no Envoy Gateway: make gateway builds one")
	}
	return path
}

// begin starts everything. Weir starts before the gateway has rules.
func begin(t *testing.T) *setup {
	t.Helper()
	binary := envoyGateway(t)
	for _, port := range []string{"8081", "18000", "18001", "18002", "19000", "19001"} { // Envoy Gateway's own, which are fixed
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Fatalf("Envoy Gateway needs this port: %v", err)
		}
		must.Succeed(t, l.Close())
	}
	s := &setup{t: t, folder: t.TempDir()}
	ports := harness.MustFreePorts(t, 6)
	upstream := httptest.NewServer(&s.upstream)
	t.Cleanup(upstream.Close)
	_, upstreamPort, _ := net.SplitHostPort(upstream.Listener.Addr().String())
	s.replace = strings.NewReplacer("FOLDER", s.folder, "ENVOY_VERSION", envoyVersion, "LISTENER_PORT", strconv.Itoa(ports[0]),
		"UPSTREAM_PORT", upstreamPort, "WEIR_PORT", strconv.Itoa(ports[1]), "ADMIN_PORT", strconv.Itoa(ports[5]))
	s.url = fmt.Sprint("http://127.0.0.1:", ports[0])
	s.admin = fmt.Sprint("http://127.0.0.1:", ports[5])
	s.health, s.debug = fmt.Sprint("http://127.0.0.1:", ports[2]), fmt.Sprint("http://127.0.0.1:", ports[3])

	// Envoy Gateway runs this Envoy instead of a download.
	envoy, err := harness.FindEnvoy()
	must.Succeed(t, err)
	envoy, err = filepath.EvalSymlinks(envoy)
	must.Succeed(t, err)
	bin := filepath.Join(s.folder, "data", "envoy-versions", envoyVersion, "bin")
	must.Succeed(t, os.MkdirAll(bin, 0o755))
	must.Succeed(t, os.Symlink(envoy, filepath.Join(bin, "envoy")))
	out, err := exec.CommandContext(t.Context(), binary, "certgen", "--local", "--config-home", filepath.Join(s.folder, "config")).CombinedOutput()
	if err != nil {
		t.Fatalf("certgen: %v\n%s", err, out)
	}

	s.startWeir(ports)
	must.Succeed(t, os.Mkdir(filepath.Join(s.folder, "resources"), 0o755))
	s.apply(policies(3))
	config := must.Read(t, "testdata/envoy-gateway.yaml")
	path := filepath.Join(s.folder, "envoy-gateway.yaml")
	must.Write(t, path, s.replace.Replace(string(config)))
	cmd := exec.Command(binary, "server", "--config-path", path)
	s.gateway, err = harness.Start(t.Context(), cmd, filepath.Join(s.folder, "gateway.log"), harness.Listens("127.0.0.1:18001"))
	must.Succeed(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(s.gateway.PID(), syscall.SIGCONT)
		if _, err := s.gateway.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.gateway.Tail())
		}
	})
	must.Until(t, "Weir has rules", func() bool { return s.status(s.health+"/healthcheck", "GET") == http.StatusOK })
	must.Until(t, "Envoy has routes", func() bool { return s.status(s.url+"/other-cidr", "GET") == http.StatusOK })
	must.Until(t, "Envoy has the limits", func() bool { return s.allowed("/header", 5) == 3 })
	return s
}

// startWeir starts Weir with the environment that Envoy Gateway gives its container and that of the
// overlay envoy-gateway.
func (s *setup) startWeir(ports []int) {
	s.t.Helper()
	weir := build(s.t)
	binary := filepath.Join(s.folder, "ratelimit")
	must.Succeed(s.t, os.Symlink(weir, binary))
	overlay := filepath.Join(s.folder, "overlay.yaml")
	must.Write(s.t, overlay, pageOverlay(s.t))
	redis := redistest.Start(s.t)
	certs := filepath.Join(s.folder, "config", "certs", "envoy-rate-limit")
	environment := envoygateway.Environment(envoygateway.Endpoints{
		Gateway: "127.0.0.1:18001", Redis: redis.Addr, Prometheus: fmt.Sprint("127.0.0.1:", ports[4]),
		Cert: certs + "/tls.crt", Key: certs + "/tls.key", CACert: certs + "/ca.crt",
	})
	for name, value := range map[string]string{
		"CONFIG_OVERLAY": overlay, "CONFIG_GRPC_XDS_RULES_FILE": filepath.Join(s.folder, "received.json"), "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true",
		"JSON_ENABLED": "false",
		// The test's own.
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN": "envoy-gateway", "STORE_TIMEOUT": "30s", "DRAIN_DELAY": "0s",
		"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "GRPC_PORT": strconv.Itoa(ports[1]), "PORT": strconv.Itoa(ports[2]), "DEBUG_PORT": strconv.Itoa(ports[3]),
	} {
		environment[name] = value
	}
	s.start = func() {
		cmd := exec.Command(binary)
		for name, value := range environment {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		s.weir = harness.MustStart(s.t, cmd, harness.Listens(fmt.Sprint("127.0.0.1:", ports[1])))
	}
	s.start()
}

// apply replaces the resources of the gateway.
func (s *setup) apply(all []policy) {
	s.t.Helper()
	text := must.Read(s.t, "testdata/resources.yaml")
	path := filepath.Join(s.folder, "resources", "resources.yaml")
	must.Write(s.t, path, s.replace.Replace(string(text))+manifests(all)+pageManifests(s.t))
}

// status sends one request and returns its status, 0 without a response.
func (s *setup) status(url, method string, headers ...string) int {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	must.Succeed(s.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

// allowed sends requests of a new user and returns how many of them are allowed.
func (s *setup) allowed(path string, times int, headers ...string) (n int) {
	s.t.Helper()
	s.users++
	for range times {
		if s.status(s.url+path, http.MethodGet, append(headers, fmt.Sprint("x-user-id: user-", s.users))...) == http.StatusOK {
			n++
		}
	}
	return n
}

var build, remove = harness.BuildOnce()

func TestMain(m *testing.M) { os.Exit(harness.Run(m, "gateway", remove)) }

func TestWeirServesARealEnvoyGateway(t *testing.T) {
	s := begin(t)
	for _, c := range []struct {
		path          string
		requests, max int
		headers       []string
	}{
		{"/header", 5, 3, nil},
		{"/exact", 4, 4, []string{"x-plan: pro"}},
		{"/exact", 4, 2, []string{"x-plan: free"}},
		{"/cidr", 4, 2, nil},
		{"/other-cidr", 4, 4, nil},
		{"/path/open", 4, 4, nil},
		{"/path/limited", 4, 2, nil},
		{"/shadow", 4, 4, nil},
		{"/backend", 5, 3, nil},
	} {
		if got := s.allowed(c.path, c.requests, c.headers...); got != c.max {
			t.Errorf("%s %v: %d of %d requests allowed, want %d", c.path, c.headers, got, c.requests, c.max)
		}
	}
	t.Run("method", func(t *testing.T) {
		allowed := map[string]int{}
		for range 4 {
			for _, method := range []string{http.MethodPost, http.MethodPut} {
				if s.status(s.url+"/method", method) == http.StatusOK {
					allowed[method]++
				}
			}
		}
		if allowed[http.MethodPost] != 2 || allowed[http.MethodPut] != 4 {
			t.Errorf("%v, want 2 POST and 4 PUT", allowed)
		}
	})
	t.Run("shared rules", func(t *testing.T) {
		for policy, want := range map[string]int{"shared": 3, "apart": 6} {
			s.users++
			user, n := fmt.Sprint("x-user-id: user-", s.users), 0
			for i := range 10 {
				if s.status(s.url+"/"+policy+[]string{"-a", "-b"}[i%2], http.MethodGet, user) == http.StatusOK {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d requests to two routes allowed, want %d", policy, n, want)
			}
		}
	})
	t.Run("cost of responses", func(t *testing.T) {
		s.users++
		user := fmt.Sprint("x-user-id: user-", s.users)
		for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} { // 1 and 3 of 6, then 1 and 3
			before := s.decided()
			if got := s.status(s.url+"/cost", http.MethodGet, user); got != want {
				t.Errorf("request %d: %d, want %d", i+1, got, want)
			}
			if want == http.StatusOK {
				must.Until(t, "the charge at the end of the request", func() bool { return s.decided() >= before+2 })
			}
		}
	})
	t.Run("requests in flight", s.testRequestsInFlight)
	t.Run("Envoy has the bound of streams of the page", func(t *testing.T) {
		text := harness.MustGet(t, s.admin+"/config_dump?resource=dynamic_active_clusters&name_regex=ratelimit_cluster")
		if !strings.Contains(text, `"max_concurrent_streams": 128`) {
			t.Errorf("no bound of 128 streams in\n%s", text)
		}
	})
	t.Run("reservations", s.testReservations)
	t.Run("overlay", func(t *testing.T) {
		if rules := harness.MustGet(t, s.debug+"/rlconfig"); strings.Count(rules, "algorithm: sliding_log") != 2 {
			t.Errorf("two rules have a sliding log, not these:\n%s", rules)
		}
	})
	t.Run("a change of policy", func(t *testing.T) {
		s.apply(policies(5))
		must.Until(t, "the new limit", func() bool { return s.allowed("/header", 7) == 5 })
	})
	// A gateway that does not answer: limits stay, also when Weir restarts.
	t.Run("an outage of the gateway", func(t *testing.T) {
		must.Succeed(t, syscall.Kill(s.gateway.PID(), syscall.SIGSTOP))
		if got := s.allowed("/header", 7); got != 5 {
			t.Errorf("%d allowed, want 5", got)
		}
		_, err := s.weir.Stop()
		must.Succeed(t, err)
		s.start()
		must.Until(t, "Weir has the rules of its file", func() bool { return s.status(s.health+"/healthcheck", "GET") == http.StatusOK })
		must.Until(t, "Envoy reaches Weir again", func() bool { return s.allowed("/header", 7) == 5 })
		must.Succeed(t, syscall.Kill(s.gateway.PID(), syscall.SIGCONT))
		s.apply(policies(2))
		must.Until(t, "a change after the outage", func() bool { return s.allowed("/header", 7) == 2 })
	})
}

// decided returns the number of requests that Weir has answered.
func (s *setup) decided() int {
	return int(harness.MustMetrics(s.t, s.health).Sum("weir_requests_total"))
}
