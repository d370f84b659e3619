package manifests

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gatewayv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/api/v1alpha1/validation"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	contour "github.com/projectcontour/contour/pkg/config"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	istioapi "istio.io/api/networking/v1alpha3"
	istiov1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// envoyGateway returns the configuration of Envoy Gateway in the overlay.
func envoyGateway(t *testing.T) *gatewayv1alpha1.EnvoyGateway {
	t.Helper()
	all := build(t, k8s+"/overlays/envoy-gateway")
	config := &gatewayv1alpha1.EnvoyGateway{}
	fromYAML(t, named[*corev1.ConfigMap](all, "envoy-gateway-config").Data["envoy-gateway.yaml"], config)
	return config
}

func TestEnvoyGatewayConfigurationIsValid(t *testing.T) {
	config := envoyGateway(t)
	if err := validation.ValidateEnvoyGateway(config); err != nil {
		t.Error(err)
	}
	if config.RateLimit.Timeout == nil || config.RateLimit.Backend.Type != gatewayv1alpha1.RedisBackendType {
		t.Errorf("%+v", config.RateLimit)
	}
	allowsSixCalls(t, string(*config.RateLimit.Timeout))
	all := build(t, k8s+"/overlays/envoy-gateway")
	deployment := config.Provider.Kubernetes.RateLimitDeployment
	for _, e := range deployment.Container.Env {
		if _, known := knownSettings(t)[e.Name]; !known {
			t.Errorf("%s is not a setting of Weir", e.Name)
		}
		if e.Name == "CONFIG_OVERLAY" && e.Value != deployment.Container.VolumeMounts[0].MountPath {
			t.Errorf("the overlay is mounted at %v, CONFIG_OVERLAY is %s", deployment.Container.VolumeMounts, e.Value)
		}
	}
	volume := deployment.Pod.Volumes[0]
	if volume.Name != deployment.Container.VolumeMounts[0].Name || named[*corev1.ConfigMap](all, volume.ConfigMap.Name) == nil {
		t.Errorf("%+v", volume)
	}
}

// Envoy Gateway's probes all use /healthcheck, which fails without Redis. The patch makes such a
// pod unready without restarting it. REPLICAS_DNS counts the pods by the labels that Envoy Gateway
// sets.
func TestEnvoyGatewayPodsSurviveRedisOutage(t *testing.T) {
	config, all := envoyGateway(t), build(t, k8s+"/overlays/envoy-gateway")
	health := func() *corev1.Probe {
		get := &corev1.HTTPGetAction{Path: "/healthcheck", Port: intstr.FromInt32(8080)}
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}, PeriodSeconds: 10}
	}
	// As internal/infrastructure/kubernetes/ratelimit of Envoy Gateway creates it.
	theirs := appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "envoy-ratelimit", Image: "weir", StartupProbe: health(), ReadinessProbe: health()}, // some versions bring no liveness probe
	}}}}}
	text, err := json.Marshal(theirs)
	must.Succeed(t, err)
	if text, err = strategicpatch.StrategicMergePatch(text, config.Provider.Kubernetes.RateLimitDeployment.Patch.Value.Raw, theirs); err != nil {
		t.Fatal(err)
	}
	var patched appsv1.Deployment
	must.Succeed(t, json.Unmarshal(text, &patched))
	containers := patched.Spec.Template.Spec.Containers
	if len(containers) != 1 || containers[0].Image != "weir" {
		t.Fatalf("%+v", containers)
	}
	for what, p := range map[string]struct {
		probe *corev1.Probe
		path  string
	}{"startup": {containers[0].StartupProbe, "/livez"}, "liveness": {containers[0].LivenessProbe, "/livez"}, "readiness": {containers[0].ReadinessProbe, "/healthcheck"}} {
		if get := p.probe.HTTPGet; get.Path != p.path || get.Port.IntValue() != 8080 {
			t.Errorf("%s: %+v", what, p.probe)
		}
	}
	for _, e := range config.Provider.Kubernetes.RateLimitDeployment.Container.Env {
		if e.Name == "REPLICAS_DNS" {
			service := named[*corev1.Service](all, e.Value)
			if service == nil || service.Spec.ClusterIP != "None" || service.Spec.Selector["app.kubernetes.io/name"] != "envoy-ratelimit" {
				t.Errorf("%+v does not resolve to the pods", service)
			}
			return
		}
	}
	t.Error("REPLICAS_DNS is not set")
}

// No NetworkPolicy covers the pods that Envoy Gateway creates, so they do not serve /json.
func TestEnvoyGatewayPodsServeNoJSON(t *testing.T) {
	chart := gatewayOf(t, loadChart(t), valuesOf(t, "{mode: envoy-gateway, envoyGateway: {createConfig: true}}"))
	for what, config := range map[string]*gatewayv1alpha1.EnvoyGateway{"the chart": chart, "the kustomization": envoyGateway(t)} {
		if !slices.Contains(config.Provider.Kubernetes.RateLimitDeployment.Container.Env, corev1.EnvVar{Name: "JSON_ENABLED", Value: "false"}) {
			t.Errorf("%s does not turn /json off", what)
		}
	}
	chart = gatewayOf(t, loadChart(t), valuesOf(t, "{mode: envoy-gateway, envoyGateway: {createConfig: true}, config: {settings: {JSON_ENABLED: true}}}"))
	var got []string
	for _, e := range chart.Provider.Kubernetes.RateLimitDeployment.Container.Env {
		if e.Name == "JSON_ENABLED" {
			got = append(got, e.Value)
		}
	}
	if !slices.Equal(got, []string{"true"}) {
		t.Errorf("with JSON_ENABLED in config.settings, its values are %q", got)
	}
}

// allowsSixCalls fails the test if a proxy's timeout is not more than six times STORE_TIMEOUT, as
// docs/failure-modes.md advises. Otherwise Weir might not answer in time.
func allowsSixCalls(t *testing.T, timeout string) {
	t.Helper()
	got, err := time.ParseDuration(timeout)
	must.Succeed(t, err)
	store, err := time.ParseDuration(knownSettings(t)["STORE_TIMEOUT"])
	must.Succeed(t, err)
	if got <= 6*store {
		t.Errorf("the proxy waits %v, want more than six times %v, which Weir waits for its store", got, store)
	}
}

func contourConfig(t *testing.T, all overlay) *contour.Parameters {
	t.Helper()
	config, err := contour.Parse(strings.NewReader(named[*corev1.ConfigMap](all, "contour").Data["contour.yaml"]))
	must.Succeed(t, err)
	return config
}

func TestContourConfigurationIsValid(t *testing.T) {
	all := build(t, k8s+"/overlays/contour")
	config := contourConfig(t, all)
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
	for _, d := range config.RateLimitService.DefaultGlobalRateLimitPolicy.Descriptors {
		for _, e := range d.Entries {
			if e.RemoteAddress == nil {
				t.Errorf("no rule matches %+v", e)
			}
		}
	}
	if got := domainOf(t, all); config.RateLimitService.Domain != got {
		t.Errorf("Contour asks for the domain %s, the rules are for %s", config.RateLimitService.Domain, got)
	}
}

// domainOf returns the domain of an overlay's rules.
func domainOf(t *testing.T, all overlay) string {
	t.Helper()
	var rules struct{ Domain string }
	must.Succeed(t, yaml.Unmarshal([]byte(all.generated(t, "weir-rules").Data["rules.yaml"]), &rules))
	return rules.Domain
}

// istioPatches returns the filter and the virtual host of an EnvoyFilter, as Envoy's types.
func istioPatches(t *testing.T, f *istiov1alpha3.EnvoyFilter) (*ratelimitv3.RateLimit, *routev3.VirtualHost) {
	t.Helper()
	filter, host := &ratelimitv3.RateLimit{}, &routev3.VirtualHost{}
	for _, p := range f.Spec.ConfigPatches {
		value := p.GetPatch().GetValue()
		switch p.GetApplyTo() {
		case istioapi.EnvoyFilter_HTTP_FILTER:
			typed := value.GetFields()["typed_config"].GetStructValue()
			want := "type.googleapis.com/" + string(filter.ProtoReflect().Descriptor().FullName())
			if got := typed.GetFields()["@type"].GetStringValue(); got != want {
				t.Fatalf("%s", got)
			}
			delete(typed.Fields, "@type")
			recode(t, typed, filter)
		case istioapi.EnvoyFilter_VIRTUAL_HOST:
			recode(t, value, host)
		default:
			t.Fatalf("a patch of %v: this test does not support it", p.GetApplyTo())
		}
	}
	return filter, host
}

func recode(t *testing.T, from, into proto.Message) {
	t.Helper()
	text, err := protojson.Marshal(from)
	if err == nil {
		err = protojson.Unmarshal(text, into)
	}
	must.Succeed(t, err)
}

// Istio passes the patches to Envoy unchanged. The test inserts them into envoy/bootstrap.yaml
// where Istio would.
func TestEnvoyAcceptsIstioPatches(t *testing.T) {
	all := build(t, k8s+"/overlays/istio")
	filter, host := istioPatches(t, named[*istiov1alpha3.EnvoyFilter](all, "weir"))
	if got := domainOf(t, all); filter.GetDomain() != got {
		t.Errorf("Envoy asks for the domain %s, the rules are for %s", filter.GetDomain(), got)
	}
	allowsSixCalls(t, filter.GetTimeout().AsDuration().String())
	filter.RateLimitService.GetGrpcService().GetEnvoyGrpc().ClusterName = "weir" // which the bootstrap has
	validate(t, func(bootstrap map[string]any) {
		manager := managerOf(bootstrap)
		first := manager["http_filters"].([]any)[0].(map[string]any)
		typed := asMap(t, filter)
		typed["@type"] = first["typed_config"].(map[string]any)["@type"]
		first["typed_config"] = typed
		virtual := manager["route_config"].(map[string]any)["virtual_hosts"].([]any)[0].(map[string]any)
		virtual["rate_limits"] = asMap(t, host)["rateLimits"]
	})
}

func asMap(t *testing.T, m proto.Message) map[string]any {
	t.Helper()
	text, err := protojson.Marshal(m)
	must.Succeed(t, err)
	var all map[string]any
	must.Succeed(t, yaml.Unmarshal(text, &all))
	return all
}

// managerOf returns the HTTP connection manager of the clients' listener.
func managerOf(bootstrap map[string]any) map[string]any {
	listener := bootstrap["static_resources"].(map[string]any)["listeners"].([]any)[0].(map[string]any)
	filters := listener["filter_chains"].([]any)[0].(map[string]any)["filters"].([]any)
	return filters[0].(map[string]any)["typed_config"].(map[string]any)
}

// validate fails the test if a real Envoy rejects envoy/bootstrap.yaml with a change.
func validate(t *testing.T, change func(bootstrap map[string]any)) {
	t.Helper()
	bootstrap := map[string]any{}
	fromYAML(t, readFile(t, root+"/envoy/bootstrap.yaml"), &bootstrap)
	change(bootstrap)
	text, err := yaml.Marshal(bootstrap)
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "bootstrap.yaml")
	must.Write(t, path, string(text))
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	if err := harness.Validate(ctx, path); err != nil {
		t.Error(err)
	}
}

func TestEnvoyAcceptsBootstraps(t *testing.T) {
	files, err := filepath.Glob(root + "/envoy/bootstrap*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
		if err := harness.Validate(ctx, f); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// The rules overlay for Envoy Gateway sets the algorithm of a rule in Envoy Gateway's form.
func TestRulesOverlayMatchesEnvoyGatewayRules(t *testing.T) {
	dir := t.TempDir()
	all := build(t, k8s+"/overlays/envoy-gateway")
	over := filepath.Join(dir, "overlay.yaml")
	must.Write(t, over, named[*corev1.ConfigMap](all, "weir-overlay").Data["overlay.yaml"])
	const rules = `
domain: default/eg/http
descriptors:
  - key: httproute/default/backend/rule/0/match/0/www_weir_test
    value: httproute/default/backend/rule/0/match/0/www_weir_test
    descriptors:
      - key: rule-0-match-0
        value: rule-0-match-0
        rate_limit: {unit: hour, requests_per_unit: 3}
  - key: httproute/default/backend/rule/1/match/0/*
    value: httproute/default/backend/rule/1/match/0/*
    descriptors:
      - key: rule-0-match-0
        rate_limit: {unit: hour, requests_per_unit: %s}
`
	file := filepath.Join(dir, "rules.yaml")
	must.Write(t, file, strings.ReplaceAll(rules, "%s", "3"))
	if out, err := weirCommand(t, "check", "--strict", "--overlay", over, file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// 2,000,000 is too large for a sliding log, so a fault proves that the overlay has set the
	// algorithm.
	for _, line := range []string{"3}", "%s}"} {
		must.Write(t, file, strings.ReplaceAll(strings.Replace(rules, line, "2000000}", 1), "%s", "3"))
		if out, err := weirCommand(t, "check", "--overlay", over, file); err == nil || !strings.Contains(out, "the overlay sets 'algorithm'") {
			t.Errorf("the overlay does not reach the rule with %s: %v\n%s", line, err, out)
		}
	}
}

// The configuration of Envoy Gateway accepts what the page adds to it, and weir check accepts the
// overlay of the page.
func TestEnvoyGatewayPageAdditionsAreValid(t *testing.T) {
	config := envoyGateway(t)
	fromYAML(t, blocks(t, "yaml envoy-gateway")[0].text, config)
	if err := validation.ValidateEnvoyGateway(config); err != nil || !config.ExtensionAPIs.EnableEnvoyPatchPolicy {
		t.Errorf("%v, %+v", err, config.ExtensionAPIs)
	}
	dir := t.TempDir()
	over, rules := filepath.Join(dir, "overlay.yaml"), filepath.Join(dir, "rules.yaml")
	const head = "domain: default/eg/http\ndescriptors:\n"
	overlay := head
	for _, b := range blocks(t, "yaml envoy-gateway-overlay") {
		overlay += strings.TrimPrefix(b.text, head)
	}
	must.Write(t, over, overlay)
	text := "domain: default/eg/http\ndescriptors:\n"
	for _, route := range []string{"reports", "completions"} {
		key := "httproute/default/" + route + "/rule/0/match/0/*"
		text += fmt.Sprintf("  - {key: %[1]s, value: %[1]s, descriptors: [{key: rule-0-match-0, descriptors: [{key: rule-0-match-1, rate_limit: {unit: hour, requests_per_unit: 3}}]}]}\n", key)
	}
	must.Write(t, rules, text)
	if out, err := weirCommand(t, "check", "--strict", "--overlay", over, rules); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The monitoring component scrapes the pods that Envoy Gateway creates, on the port that Envoy
// Gateway sets for metrics. The alert WeirDown needs the job label "weir", which comes from the
// Service.
func TestMonitoringScrapesEnvoyGatewayPods(t *testing.T) {
	all := build(t, k8s+"/overlays/envoy-gateway-monitoring")
	monitors := of[*monitoringv1.ServiceMonitor](all)
	if len(monitors) != 1 || len(monitors[0].Spec.Endpoints) != 1 {
		t.Fatalf("ServiceMonitors %+v, want one with one endpoint", monitors)
	}
	m := monitors[0]
	services := scraped(t, all, m, m.Spec.Endpoints[0].Port)
	if len(services) != 1 {
		t.Fatalf("%d Services scraped, want 1", len(services))
	}
	s := services[0]
	if got := s.Spec.Selector["app.kubernetes.io/name"]; got != "envoy-ratelimit" {
		t.Errorf("the Service selects pods named %q, want envoy-ratelimit", got)
	}
	if got := s.Labels[m.Spec.JobLabel]; got != "weir" {
		t.Errorf("the job label is %q, want weir", got)
	}
	for _, p := range s.Spec.Ports {
		if p.Name == m.Spec.Endpoints[0].Port && p.TargetPort.IntValue() != 19001 { // PROMETHEUS_ADDR in Envoy Gateway's pods
			t.Errorf("metrics are scraped from port %v, want 19001", p.TargetPort.IntValue())
		}
	}
	for _, o := range all.objects {
		if o.namespace == "weir" {
			t.Errorf("%v is in the namespace weir, which this overlay does not create", o)
		}
	}
}
