package containers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go/wait"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/e2e/xds/envoygateway"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// The names that Envoy Gateway gives a listener, an HTTPRoute and a rule of its
// BackendTrafficPolicy.
const (
	listener = "default/eg/http"
	route    = "httproute/default/backend/rule/0/match/0/*"
	rule     = "rule-0-match-0"
)

// A gateway is the control plane, in a container.
type gateway struct {
	*service
	url string
}

func (s *stack) gateway(certs string) *gateway {
	s.t.Helper()
	g := s.start(recipe{
		image: images.gateway, alias: "envoy-gateway", port: 18000, mounts: map[string]string{"/certs": certs}, restricted: true, user: "65534:65534",
		ready: wait.ForHTTP("/ready").WithPort("18000/tcp").WithStartupTimeout(startTimeout),
	})
	return &gateway{g, "http://" + g.address(18000)}
}

// set makes the gateway push a limit in Envoy Gateway's form.
func (g *gateway) set(version string, perMinute uint32) {
	g.t.Helper()
	b, err := protojson.Marshal(&conf.RateLimitConfig{Name: listener, Domain: listener, Descriptors: []*conf.RateLimitDescriptor{{
		Key: route, Value: route, Descriptors: []*conf.RateLimitDescriptor{{
			Key: rule, RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_HOUR, RequestsPerUnit: perMinute},
		}},
	}}})
	must.Succeed(g.t, err)
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPut, g.url+"/rules?version="+version, strings.NewReader("["+string(b)+"]"))
	must.Succeed(g.t, err)
	answer, err := http.DefaultClient.Do(r)
	must.Succeed(g.t, err)
	must.Succeed(g.t, answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		g.t.Fatalf("the control plane answers %s", answer.Status)
	}
}

// request waits for the service's next request and returns its version and its error.
func (g *gateway) request() (version, fault string) {
	g.t.Helper()
	var q struct{ Node, Version, Error string }
	must.Succeed(g.t, json.Unmarshal([]byte(harness.MustGet(g.t, g.url+"/request")), &q))
	if q.Node != envoygateway.NodeID {
		g.t.Errorf("the node is %q", q.Node)
	}
	return q.Version, q.Error
}

func (g *gateway) acknowledged(version string) {
	g.t.Helper()
	if got, fault := g.request(); got != version || fault != "" {
		g.t.Fatalf("the service has version %q, fault %q; want an ACK of %q", got, fault, version)
	}
}

// The image replaces envoyproxy/ratelimit in the Deployment that Envoy Gateway creates: with its
// command, uid, rights, environment, certificates, probes and ports, and nothing else. It starts
// before the gateway.
func TestEnvoyGatewayConfiguresContainer(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	s := newStack(t)
	s.redis()
	weir := s.start(recipe{
		image: images.weir, alias: "envoy-ratelimit", entrypoint: []string{"/bin/ratelimit"}, user: "65534:65534", restricted: true,
		env: envoygateway.Environment(envoygateway.Pod("redis:6379")),
		// The certificate has the names of the Service, as the gateway issues it.
		mounts: map[string]string{"/certs": certificates(t, authority, "envoy-ratelimit", "*.envoy-gateway-system")},
		port:   8080, more: []int{8081, 19001},
		ready: wait.ForHTTP("/healthcheck").WithPort("8080/tcp").WithStartupTimeout(startTimeout), // all three probes
	})
	c := s.envoy(read(t, "e2e", "containers", "testdata", "envoy-gateway.yaml"),
		map[string]string{"/certs": certificates(t, authority, "envoy")})

	g := s.gateway(certificates(t, authority, "envoy-gateway", "envoy-gateway.envoy-gateway-system.svc.cluster.local"))
	g.set("1", 2)
	if version, fault := g.request(); version != "" || fault != "" {
		t.Errorf("the first request is of version %q, %s", version, fault)
	}
	g.acknowledged("1")
	answered := func(user string, status int, limit string) {
		t.Helper()
		if a := c.do(user, ""); a.Status != status || a.Limit != limit || a.Limited {
			t.Errorf("%s: %+v, want %d and a limit of %s", user, a, status, limit)
		}
	}
	must.Until(t, "Envoy reaches the service", func() bool { return c.do("nobody", "").Limit != "" })
	answered("alice", 200, "2, 2;w=3600")
	answered("alice", 200, "2, 2;w=3600")
	answered("alice", 429, "2, 2;w=3600")
	answered("bob", 200, "2, 2;w=3600")

	// Envoy Gateway pushes a new version after any change.
	g.set("2", 2)
	g.acknowledged("2")
	answered("alice", 429, "2, 2;w=3600")
	g.set("3", 4)
	g.acknowledged("3")
	answered("bob", 200, "4, 4;w=3600")

	// The figures on Envoy Gateway's dashboard.
	series := fmt.Sprintf(`ratelimit_service_rate_limit_over_limit{domain=%q,key1=%q,key2=%q}`, listener, route+"_"+route, rule)
	metrics := harness.MustGet(t, "http://"+weir.address(19001)+"/metrics")
	if !strings.Contains(metrics, series+" 2\n") {
		t.Errorf("no %s 2 in\n%s", series, metrics)
	}
	weir.end()
}
