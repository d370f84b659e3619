package manifests

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	gatewayv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/api/v1alpha1/validation"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/strvals"
	corev1 "k8s.io/api/core/v1"

	"github.com/weir-rls/weir/internal/must"
)

// gatewayChart returns Envoy Gateway's own chart, without its definitions of resources.
func gatewayChart(t *testing.T) *chart.Chart {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/gateway").Output()
	must.Succeed(t, err)
	path := strings.TrimSpace(string(dir)) + "/charts/gateway-helm"
	c, err := loader.LoadDir(path)
	must.Succeed(t, err)
	c.SetDependencies()
	// A release of the chart has values in place of these variables.
	released := strings.NewReplacer("${GatewayImage}", "docker.io/envoyproxy/gateway:latest", "${GatewayImagePullPolicy}", "IfNotPresent")
	c.Values = valuesOf(t, released.Replace(readFile(t, path+"/values.tmpl.yaml")))
	return c
}

// gatewayOf returns the configuration that Envoy Gateway's chart renders with values.
func gatewayOf(t *testing.T, c *chart.Chart, values map[string]any) *gatewayv1alpha1.EnvoyGateway {
	t.Helper()
	manifest, _, err := renderText(c, "eg", "envoy-gateway-system", values)
	must.Succeed(t, err)
	for document := range strings.SplitSeq(manifest, "\n---") {
		if !strings.Contains(document, "name: envoy-gateway-config") || !strings.Contains(document, "kind: ConfigMap") {
			continue
		}
		var m corev1.ConfigMap
		fromYAML(t, document, &m)
		config := &gatewayv1alpha1.EnvoyGateway{}
		fromYAML(t, m.Data["envoy-gateway.yaml"], config)
		if err := validation.ValidateEnvoyGateway(config); err != nil {
			t.Error(err)
		}
		return config
	}
	t.Fatal("Envoy Gateway's chart renders no configuration")
	return nil
}

// The values in the notes of Weir's chart make Envoy Gateway's chart run Weir. One further value
// makes it run its own image again.
func TestEnvoyGatewayChartGoesBackWithOneValue(t *testing.T) {
	_, notes, err := renderText(loadChart(t), "weir", "envoy-gateway-system", map[string]any{"mode": "envoy-gateway"})
	must.Succeed(t, err)
	_, after, found := strings.Cut(notes, "\nconfig:\n")
	text, _, end := strings.Cut(after, "\nLogs:")
	if !found || !end {
		t.Fatalf("no values in the notes:\n%s", notes)
	}
	text = regexp.MustCompile(`(?m)^\S.*$`).ReplaceAllString(text, "") // without the notes behind the values
	values, c := valuesOf(t, "config:\n"+text), gatewayChart(t)
	own := gatewayOf(t, c, nil).Provider.Kubernetes.RateLimitDeployment.Container
	weir := gatewayOf(t, c, values)
	container := weir.Provider.Kubernetes.RateLimitDeployment.Container
	if got := *container.Image; !strings.Contains(got, "weir") || len(container.Env) == 0 {
		t.Errorf("with the values of the notes the image is %s", got)
	}
	const back = "config.envoyGateway.provider.kubernetes.rateLimitDeployment=null"
	for _, page := range []string{root + "/docs/deploy/helm.md", root + "/docs/deploy/envoy-gateway.md", root + "/docs/switching.md"} {
		if !strings.Contains(readFile(t, page), back) {
			t.Errorf("%s does not name %s", page, back)
		}
	}
	must.Succeed(t, strvals.ParseInto(back, values))
	old := gatewayOf(t, c, values)
	container = old.Provider.Kubernetes.RateLimitDeployment.Container
	if own.Image == nil || *container.Image != *own.Image || len(container.Env)+len(container.VolumeMounts) != 0 {
		t.Errorf("after the value the container is %+v, want %+v", container, own)
	}
	if before, after := *weir.RateLimit.Backend.Redis.URL, *old.RateLimit.Backend.Redis.URL; before != after {
		t.Errorf("the value changes Redis from %s to %s", before, after)
	}
}
