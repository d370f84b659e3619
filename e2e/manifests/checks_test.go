package manifests

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurity "k8s.io/pod-security-admission/api"

	"github.com/weir-rls/weir/internal/must"
)

// elsewhere lists the namespaces of other software, and the object that an overlay puts there.
var elsewhere = map[string]struct{ overlays, what string }{
	"istio-system":         {"istio", "EnvoyFilter istio-system/weir"},
	"projectcontour":       {"contour", "ConfigMap projectcontour/contour"},
	"envoy-gateway-system": {"envoy-gateway envoy-gateway-monitoring ai-gateway", ""}, // all objects
}

func TestObjectsAreInTheirNamespace(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		seen := map[string]bool{}
		for _, o := range all.objects {
			if seen[o.String()] {
				t.Errorf("%v exists twice", o)
			}
			seen[o.String()] = true
			other, isOther := elsewhere[o.namespace]
			switch {
			case o.kind == "Namespace":
				if o.name != "weir" || o.meta().GetLabels()[podsecurity.EnforceLevelLabel] != "restricted" {
					t.Errorf("%v: labels %v", o, o.meta().GetLabels())
				}
			case isOther && slices.Contains(strings.Fields(other.overlays), all.name) && (other.what == "" || other.what == o.String()):
			case o.namespace != "weir":
				t.Errorf("%v is not in the namespace weir", o)
			}
			for _, err := range apivalidation.NameIsDNSSubdomain(o.name, false) {
				t.Errorf("%v: %s", o, err)
			}
			faults := metavalidation.ValidateLabels(o.meta().GetLabels(), field.NewPath("labels"))
			faults = append(faults, apivalidation.ValidateAnnotations(o.meta().GetAnnotations(), field.NewPath("annotations"))...)
			if len(faults) > 0 {
				t.Errorf("%v: %v", o, faults)
			}
		}
	})
}

// A manifest must work as it is, without a value that a user has to fill in.
func TestManifestsHaveNoPlaceholders(t *testing.T) {
	placeholder := regexp.MustCompile(`\bTODO\b|FIXME|(?i:change|replace|fill)[-_ ]?(?i:me|this|in)\b|(?i:placeholder)|\bYOUR\b|example\.(com|org)|<[a-z-]+>|\$\{?[A-Z]`)
	eachOverlay(t, func(t *testing.T, all overlay) {
		for _, o := range all.objects {
			text := string(o.yaml)
			if o.kind == "ConfigMap" || o.kind == "PrometheusRule" {
				// Other tests check the variables of dashboards and alerts.
				text = regexp.MustCompile(`\$(__)?[a-z_]+|\{\{[^}]*\}\}`).ReplaceAllString(text, "")
			}
			if found := placeholder.FindString(text); found != "" {
				t.Errorf("%v holds %q", o, found)
			}
		}
	})
}

func pods(all overlay) map[string]*appsv1.Deployment {
	found := map[string]*appsv1.Deployment{}
	for _, d := range of[*appsv1.Deployment](all) {
		found[d.Name] = d
	}
	return found
}

// ofEnvoyGatewaysPods reports whether Envoy Gateway creates the pods of a Service. See
// TestEnvoyGatewayPodsSurviveRedisOutage.
func ofEnvoyGatewaysPods(deployments map[string]*appsv1.Deployment, s *corev1.Service) bool {
	return deployments["weir"] == nil && s.Name == "weir-headless"
}

// deploymentOf returns the name of the Deployment whose pods a Service selects.
func deploymentOf(s *corev1.Service) string {
	if s.Name == "envoy-ai-gateway-ratelimit" {
		return "weir"
	}
	return strings.TrimSuffix(s.Name, "-headless")
}

func TestSelectorsMatchTheirPods(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		deployments := pods(all)
		selects := func(who string, selector labels.Selector, want string) {
			t.Helper()
			var got []string
			for name, d := range deployments {
				if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
					got = append(got, name)
				}
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("%s selects %v by %v, want %s", who, got, selector, want)
			}
		}
		for name, d := range deployments {
			selects("Deployment "+name, asSelector(t, d.Spec.Selector), name)
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				selects("the topology spread of "+name, asSelector(t, c.LabelSelector), name)
			}
		}
		for _, s := range of[*corev1.Service](all) {
			if ofEnvoyGatewaysPods(deployments, s) {
				continue
			}
			selects("Service "+s.Name, labels.SelectorFromSet(s.Spec.Selector), deploymentOf(s))
		}
		for _, p := range of[*networkingv1.NetworkPolicy](all) {
			selects("NetworkPolicy "+p.Name, asSelector(t, &p.Spec.PodSelector), p.Name)
		}
		for _, b := range of[*policyv1.PodDisruptionBudget](all) {
			selects("PodDisruptionBudget "+b.Name, asSelector(t, b.Spec.Selector), b.Name)
		}
		for _, m := range of[*monitoringv1.ServiceMonitor](all) {
			for _, e := range m.Spec.Endpoints {
				if n := len(scraped(t, all, m, e.Port)); n != 1 {
					t.Errorf("ServiceMonitor %s/%s selects %d Services with a port %s, want 1", m.Namespace, m.Name, n, e.Port)
				}
			}
		}
	})
}

// scraped returns the Services that a ServiceMonitor selects and that have a port of that name. A
// ServiceMonitor selects Services of its own namespace only.
func scraped(t *testing.T, all overlay, m *monitoringv1.ServiceMonitor, port string) (found []*corev1.Service) {
	t.Helper()
	for _, s := range of[*corev1.Service](all) {
		hasPort := slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port })
		if s.Namespace == m.Namespace && hasPort && asSelector(t, &m.Spec.Selector).Matches(labels.Set(s.Labels)) {
			found = append(found, s)
		}
	}
	return found
}

func asSelector(t *testing.T, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	must.Succeed(t, err)
	if selector.Empty() {
		t.Error("a selector that matches all pods")
	}
	return selector
}

// portOf returns a port of a container, by its name or number; 0 if the container has no such port.
func portOf(c corev1.Container, p intstr.IntOrString) int32 {
	for _, port := range c.Ports {
		if p.Type == intstr.String && port.Name == p.StrVal || p.Type == intstr.Int && port.ContainerPort == p.IntVal {
			return port.ContainerPort
		}
	}
	return 0
}

func TestPortsMatchListeners(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		deployments := pods(all)
		for name, d := range deployments {
			c := d.Spec.Template.Spec.Containers[0]
			for what, probe := range map[string]*corev1.Probe{
				"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe,
			} {
				switch {
				case probe == nil:
					t.Errorf("%s has no %s probe", name, what)
				case probe.HTTPGet != nil && portOf(c, probe.HTTPGet.Port) == 0:
					t.Errorf("%s: the %s probe uses a missing port: %v", name, what, probe.HTTPGet.Port)
				case probe.TCPSocket != nil && portOf(c, probe.TCPSocket.Port) == 0:
					t.Errorf("%s: the %s probe uses a missing port: %v", name, what, probe.TCPSocket.Port)
				}
			}
		}
		for _, s := range of[*corev1.Service](all) {
			if ofEnvoyGatewaysPods(deployments, s) {
				continue
			}
			for _, p := range s.Spec.Ports {
				c := deployments[deploymentOf(s)].Spec.Template.Spec.Containers[0]
				if port := portOf(c, p.TargetPort); port != p.Port {
					t.Errorf("Service %s: %s is %d, in the pod %v is %d", s.Name, p.Name, p.Port, p.TargetPort.String(), port)
				}
			}
		}
		for _, p := range of[*networkingv1.NetworkPolicy](all) {
			for _, rule := range p.Spec.Ingress {
				for _, port := range rule.Ports {
					if portOf(deployments[p.Name].Spec.Template.Spec.Containers[0], *port.Port) == 0 {
						t.Errorf("NetworkPolicy %s admits to the missing port %v", p.Name, port.Port)
					}
				}
			}
		}
		if weir := deployments["weir"]; weir != nil {
			set := settingsOf(t, all, weir)
			_, metrics, err := net.SplitHostPort(set["PROMETHEUS_ADDR"])
			if err != nil || set["USE_PROMETHEUS"] != "true" {
				t.Errorf("no metrics by %q: %v", set["PROMETHEUS_ADDR"], err)
			}
			c := weir.Spec.Template.Spec.Containers[0]
			for name, listens := range map[string]string{"grpc": set["GRPC_PORT"], "http": set["PORT"], "metrics": metrics} {
				if got := fmt.Sprint(portOf(c, intstr.FromString(name))); got != listens {
					t.Errorf("the port %s is %s, and Weir listens on %s", name, got, listens)
				}
			}
			a := weir.Spec.Template.Annotations
			if a["prometheus.io/port"] != metrics || a["prometheus.io/path"] != set["PROMETHEUS_PATH"] {
				t.Errorf("annotations %v, and metrics are on %s%s", a, metrics, set["PROMETHEUS_PATH"])
			}
		}
	})
}
