package manifests

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	contourv1alpha1 "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	istiov1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weir-rls/weir/internal/must"
)

// The policies allow Envoy to reach gRPC, Prometheus to reach /metrics, and Weir to reach its
// store. No pod may reach /json.
func TestNetworkPoliciesAllowOnlyNeededTraffic(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		p := named[*networkingv1.NetworkPolicy](all, "weir")
		for _, rule := range p.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) == 0 {
				t.Errorf("the policy admits everyone: %+v", rule)
			}
			for _, port := range rule.Ports {
				if port.Port.StrVal == "http" {
					t.Error("the policy admits to /json, which charges keys")
				}
			}
		}
		out := map[string]bool{}
		for _, rule := range p.Spec.Egress {
			for _, port := range rule.Ports {
				out[string(*port.Protocol)+port.Port.String()] = true
			}
		}
		set := settingsOf(t, all, weir)
		if !out["UDP53"] || !out["TCP53"] {
			t.Errorf("no DNS, by which Weir finds its store and counts its replicas: %v", out)
		}
		if set["BACKEND_TYPE"] == "memory" {
			if len(out) > 2 {
				t.Errorf("a store in memory needs only DNS, allowed are: %v", out)
			}
			return
		}
		hosts := strings.Split(set["REDIS_URL"], ",")
		if set["REDIS_TYPE"] == "SENTINEL" {
			hosts = append(hosts[1:], "the master:6379")
		}
		for _, host := range hosts {
			if _, port, err := net.SplitHostPort(host); err != nil || !out["TCP"+port] {
				t.Errorf("the policy blocks %s (%v): %v", host, err, out)
			}
		}
	})
}

// The chart's policy allows each port that an address of Redis names, and the default port of
// Sentinels.
func TestChartPolicyAllowsPortsOfRedis(t *testing.T) {
	for values, want := range map[string]int32{
		"{store: {url: 'redis:7000?db=1'}}":                                                 7000,
		"{store: {url: 'redis:7000/1'}}":                                                    7000,
		"{store: {type: cluster, url: 'a:7000,b:7001'}}":                                    7000,
		"{store: {type: sentinel, url: 'mymaster,a'}}":                                      26379,
		"{store: {type: sentinel, url: 'mymaster,a:77'}}":                                   77,
		"{config: {settings: {REDIS_PERSECOND: true, REDIS_PERSECOND_URL: 'second:7000'}}}": 7000,
		"{config: {settings: {REDIS_PERSECOND: true, REDIS_PERSECOND_TYPE: SENTINEL, REDIS_PERSECOND_URL: 'mymaster,second'}}}":   26379,
		"{config: {settings: {REDIS_PERSECOND: true, REDIS_PERSECOND_TYPE: sentinel, REDIS_PERSECOND_URL: 'm,a:7000,b'}}}":        26379,
		"{config: {settings: {REDIS_PERSECOND: true, REDIS_PERSECOND_TYPE: CLUSTER, REDIS_PERSECOND_URL: 'a:6379,b:7000?db=0'}}}": 7000,
	} {
		policy := named[*networkingv1.NetworkPolicy](render(t, valuesOf(t, values)), "weir")
		if !slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == want })
		}) {
			t.Errorf("%s: the policy blocks port %d", values, want)
		}
	}
}

// Some objects name others in plain text, which no tool recognizes as a reference.
func TestReferencesInTextExist(t *testing.T) {
	address := func(t *testing.T, all overlay, host, port string) {
		t.Helper()
		name, namespace, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc"), ".")
		service := named[*corev1.Service](all, name)
		if service == nil || namespace != "" && service.Namespace != namespace {
			t.Errorf("%s is not a Service of the overlay", host)
			return
		}
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == port }) {
			t.Errorf("Service %s has no port %s", name, port)
		}
	}
	t.Run("redis", func(t *testing.T) {
		all := build(t, k8s+"/overlays/redis")
		host, port, err := net.SplitHostPort(settingsOf(t, all, weirOf(t, all))["REDIS_URL"])
		must.Succeed(t, err)
		address(t, all, host, port)
	})
	t.Run("mtls", func(t *testing.T) {
		all := build(t, k8s+"/overlays/mtls")
		server, client := named[*certmanagerv1.Certificate](all, "weir-server"), named[*certmanagerv1.Certificate](all, "weir-client")
		for _, name := range server.Spec.DNSNames {
			address(t, all, name, "8081")
		}
		if len(server.Spec.DNSNames) != 8 {
			t.Errorf("%v: want four names for each of two Services", server.Spec.DNSNames)
		}
		set := settingsOf(t, all, weirOf(t, all))
		if !slices.Contains(client.Spec.DNSNames, set["GRPC_CLIENT_TLS_SAN"]) {
			t.Errorf("the clients' certificate is for %v, Weir accepts %s", client.Spec.DNSNames, set["GRPC_CLIENT_TLS_SAN"])
		}
		issuers := map[string]bool{}
		for _, i := range of[*certmanagerv1.Issuer](all) {
			issuers[i.Name] = true
			if i.Spec.CA != nil && i.Spec.CA.SecretName != named[*certmanagerv1.Certificate](all, "weir-ca").Spec.SecretName {
				t.Errorf("Issuer %s has the CA of %s", i.Name, i.Spec.CA.SecretName)
			}
		}
		for _, c := range of[*certmanagerv1.Certificate](all) {
			if !issuers[c.Spec.IssuerRef.Name] {
				t.Errorf("no Issuer for %s: %v", c.Name, c.Spec.IssuerRef)
			}
		}
	})
	t.Run("istio", func(t *testing.T) {
		all := build(t, k8s+"/overlays/istio")
		filter, _ := istioPatches(t, named[*istiov1alpha3.EnvoyFilter](all, "weir"))
		grpc := filter.GetRateLimitService().GetGrpcService().GetEnvoyGrpc()
		parts := strings.Split(grpc.GetClusterName(), "|")
		if len(parts) != 4 || parts[0] != "outbound" || parts[2] != "" || grpc.GetAuthority() != parts[3] {
			t.Fatalf("%v", grpc)
		}
		address(t, all, parts[3], parts[1])
	})
	t.Run("contour", func(t *testing.T) {
		all := build(t, k8s+"/overlays/contour")
		service := named[*contourv1alpha1.ExtensionService](all, "weir")
		for _, s := range service.Spec.Services {
			address(t, all, s.Name+"."+service.Namespace, fmt.Sprint(s.Port))
		}
		if got := contourConfig(t, all).RateLimitService.ExtensionService; got != service.Namespace+"/"+service.Name {
			t.Errorf("Contour calls %s", got)
		}
	})
	t.Run("envoy-gateway", func(t *testing.T) {
		all := build(t, k8s+"/overlays/envoy-gateway")
		host, port, err := net.SplitHostPort(*envoyGateway(t).RateLimit.Backend.Redis.URL)
		must.Succeed(t, err)
		address(t, all, host, port)
	})
}
