package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gatewayv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"helm.sh/helm/v3/pkg/strvals"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

// gatewaysOwn are the values of the pods' details, which are Envoy Gateway's own in mode
// envoy-gateway. Their defaults are not empty, so the chart cannot reject them. docs/deploy/helm.md
// lists them.
var gatewaysOwn = []string{
	"image.pullPolicy", "livenessProbe", "networkPolicy.enabled", "networkPolicy.metricsFrom", "podSecurityContext", "readinessProbe",
	"revisionHistoryLimit", "securityContext", "serviceAccount.create", "startupProbe", "terminationGracePeriodSeconds", "topologySpread.enabled",
}

// Every value changes what the chart renders, or is rejected. A value without an effect is one of
// another mode or another store.
func TestChartIgnoresNoValue(t *testing.T) {
	const all = "monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,monitoring.dashboard.enabled=true,"
	c, defaults := loadChart(t), valuesOf(t, readFile(t, helmChart+"/values.yaml"))
	for base, ignored := range map[string][]string{
		all + "mode=standalone,admin.enabled=true": {"aiGateway.", "envoyGateway.", "store.memory.", "store.tls.", "tls.", "autoscaling.keda."},
		all + "mode=standalone,store.type=cluster,store.url=a:1,store.tls.enabled=true,store.tls.existingSecret=s,admin.enabled=true,tls.enabled=true," +
			"tls.certManager.enabled=true": {"aiGateway.", "envoyGateway.", "store.memory.", "redis.", "autoscaling.keda."},
		all + "mode=standalone,store.type=memory,admin.enabled=true": {"aiGateway.", "envoyGateway.", "redis.", "store.tls.", "tls.", "autoscaling.", "podDisruptionBudget.", "topologySpread."},
		all + "mode=ai-gateway,admin.enabled=true,autoscaling.type=keda,autoscaling.keda.triggers[0].type=cron": {
			"envoyGateway.", "store.memory.", "store.tls.", "tls.", "autoscaling.targetCPU"},
		all + "mode=envoy-gateway,envoyGateway.createConfig=true,store.type=cluster,store.url=a:1,store.tls.enabled=true,store.tls.existingSecret=s": append(
			[]string{"admin.existingSecret", "aiGateway.", "store.memory.", "redis.", "tls.", "autoscaling.keda."}, gatewaysOwn...),
	} {
		rendered := func(set string) (string, error) {
			values, err := strvals.Parse(base)
			must.Succeed(t, err)
			if err := strvals.ParseInto(set, values); err != nil {
				return "", fmt.Errorf("no value of the schema: %w", err)
			}
			manifest, notes, err := renderText(c, "weir", namespaceOf(values), values)
			return manifest + notes, err
		}
		before, err := rendered("")
		if err != nil {
			t.Fatalf("%s: %v", base, err)
		}
		valuesSchema(t).leaves("", defaults, func(path string, s valueSchema, _ any) {
			isIgnored := slices.ContainsFunc(ignored, func(p string) bool { return strings.HasPrefix(path, p) })
			if path == "mode" || strings.HasPrefix(path, "global") || isIgnored {
				return
			}
			for _, value := range otherValues(s) {
				after, err := rendered(path + value)
				if err != nil && !strings.Contains(err.Error(), "schema") || err == nil && after != before {
					return
				}
			}
			t.Errorf("%s: the chart accepts %s and ignores it", base, path)
		})
	}
}

// otherValues returns assignments of values. One of them is valid, and not the value that is set.
func otherValues(s valueSchema) (all []string) {
	for _, value := range s.Enum {
		all = append(all, "="+value)
	}
	switch kind := fmt.Sprint(s.Type); {
	case len(s.Enum) > 0:
	case kind == "boolean":
		all = []string{"=true", "=false"}
	case kind == "array":
		all = []string{"[0].name=other"}
	case kind == "object":
		all = []string{".other=seven", ".LOG_LEVEL=debug"}
	case kind == "string":
		all = []string{"=other", "=7s", "=other:7", "=sha256:" + strings.Repeat("7", 64)}
	default:
		all = []string{"=7"}
	}
	return all
}

// The network policy admits connections to the second Redis, too.
func TestChartAdmitsThePerSecondRedis(t *testing.T) {
	all := render(t, valuesOf(t, "{store: {url: 'redis:7000'}, config: {settings: {REDIS_PERSECOND: true, REDIS_PERSECOND_URL: 'second:7001'}}}"))
	for _, want := range []int32{7000, 7001} {
		found := false
		for _, rule := range named[*networkingv1.NetworkPolicy](all, "weir").Spec.Egress {
			found = found || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == want })
		}
		if !found {
			t.Errorf("the policy blocks port %d", want)
		}
	}
}

// With a Redis of its own, Envoy Gateway's pods get the type, the password and the TLS of the
// store.
func TestChartPassesTheStoreToEnvoyGateway(t *testing.T) {
	values := valuesOf(t, `
mode: envoy-gateway
envoyGateway: {createConfig: true}
store:
  type: sentinel
  url: mymaster,sentinel.redis:26379
  auth: {existingSecret: redis-password}
  tls: {enabled: true, existingSecret: redis-tls, clientCert: true}
config: {settings: {MEMORY_MAX_BYTES: 268435456, DRAIN_DELAY: 7s}}
tolerations: [{key: edge, operator: Exists}]
podAnnotations: {team: edge}
`)
	config := gatewayOf(t, loadChart(t), values)
	deployment := config.Provider.Kubernetes.RateLimitDeployment
	checkStore(t, deployment)
	if container := deployment.Container; container.Image == nil || len(container.VolumeMounts) != 3 {
		t.Errorf("the container is %+v", container)
	}
	if len(deployment.Pod.Tolerations) != 1 || deployment.Pod.Annotations["team"] != "edge" {
		text, _ := yaml.Marshal(deployment.Pod)
		t.Errorf("the pods are\n%s", text)
	}
	settings := variablesOf(t, deployment)
	if settings["MEMORY_MAX_BYTES"] != "268435456" || settings["DRAIN_DELAY"] != "7s" {
		t.Errorf("the variables are %v", settings)
	}

	// Envoy Gateway's own image needs the same Redis, and nothing else of Weir.
	must.Succeed(t, strvals.ParseInto("envoyGateway.useWeir=false", values))
	deployment = gatewayOf(t, loadChart(t), values).Provider.Kubernetes.RateLimitDeployment
	checkStore(t, deployment)
	container := deployment.Container
	if container.Image != nil || container.Resources != nil || deployment.Patch != nil || len(container.VolumeMounts) != 1 || len(variablesOf(t, deployment)) != 7 {
		t.Errorf("after going back the container is %+v", container)
	}
}

// checkStore checks the variables and the files of the Redis of
// [TestChartPassesTheStoreToEnvoyGateway].
func checkStore(t *testing.T, deployment *gatewayv1alpha1.KubernetesDeploymentSpec) {
	t.Helper()
	got := variablesOf(t, deployment)
	for name, want := range map[string]string{
		"REDIS_TYPE": "SENTINEL", "REDIS_AUTH": "redis-password/auth", "REDIS_SENTINEL_AUTH": "redis-password/sentinel-auth", "REDIS_TLS": "true",
		"REDIS_TLS_CACERT": "/etc/weir/redis-tls/ca.crt", "REDIS_TLS_CLIENT_CERT": "/etc/weir/redis-tls/tls.crt",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"REDIS_URL", "REDIS_SOCKET_TYPE", "BACKEND_TYPE"} {
		if value, found := got[name]; found {
			t.Errorf("%s is %q: Envoy Gateway sets it", name, value)
		}
	}
	for _, v := range deployment.Pod.Volumes {
		if v.Secret == nil || v.Secret.SecretName != "redis-tls" {
			continue
		}
		for _, m := range deployment.Container.VolumeMounts {
			if m.Name == v.Name && m.MountPath == "/etc/weir/redis-tls" {
				return
			}
		}
	}
	t.Error("the Secret redis-tls is not mounted")
}

// variablesOf returns the variables of the container, and NAME/KEY for those from a Secret.
func variablesOf(t *testing.T, deployment *gatewayv1alpha1.KubernetesDeploymentSpec) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, e := range deployment.Container.Env {
		if _, twice := got[e.Name]; twice {
			t.Errorf("%s is set twice", e.Name)
		}
		got[e.Name] = e.Value
		if e.ValueFrom != nil {
			got[e.Name] = e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
		}
	}
	return got
}
