package manifests

import (
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	contourv1alpha1 "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	istiov1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
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
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"
)

// elsewhere are the namespaces of others, and what an overlay puts there.
var elsewhere = map[string]struct{ overlay, what string }{
	"istio-system":         {"istio", "EnvoyFilter istio-system/weir"},
	"projectcontour":       {"contour", "ConfigMap projectcontour/contour"},
	"envoy-gateway-system": {"envoy-gateway", ""}, // all of it: Envoy Gateway makes the pods there
}

func TestObjectsAreWhereTheyBelong(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		seen := map[string]bool{}
		for _, o := range all.objects {
			if seen[o.String()] {
				t.Errorf("%v is there twice", o)
			}
			seen[o.String()] = true
			other, isOther := elsewhere[o.namespace]
			switch {
			case o.kind == "Namespace":
				if o.name != "weir" || o.meta().GetLabels()[podsecurity.EnforceLevelLabel] != "restricted" {
					t.Errorf("%v: labels %v", o, o.meta().GetLabels())
				}
			case isOther && strings.HasPrefix(all.name, other.overlay) && (other.what == "" || other.what == o.String()):
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

// What somebody would have to fill in before the API server takes it, or before it works.
func TestNothingIsLeftToBeFilledIn(t *testing.T) {
	placeholder := regexp.MustCompile(`\bTODO\b|FIXME|(?i:change|replace|fill)[-_ ]?(?i:me|this|in)\b|(?i:placeholder)|\bYOUR\b|example\.(com|org)|<[a-z-]+>|\$\{?[A-Z]`)
	eachOverlay(t, func(t *testing.T, all overlay) {
		for _, o := range all.objects {
			text := string(o.yaml)
			if o.kind == "ConfigMap" || o.kind == "PrometheusRule" {
				// Dashboards and alerts have variables of their own, which other tests look at.
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

// ofEnvoyGatewaysPods tells of a Service whose pods Envoy Gateway makes: see TestEnvoyGatewaysPodsAreNotStartedAgainForWantOfRedis.
func ofEnvoyGatewaysPods(deployments map[string]*appsv1.Deployment, s *corev1.Service) bool {
	return deployments["weir"] == nil && s.Name == "weir-headless"
}

func TestSelectorsSelectThePodsThatTheyMean(t *testing.T) {
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
			selects("Service "+s.Name, labels.SelectorFromSet(s.Spec.Selector), strings.TrimSuffix(s.Name, "-headless"))
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

// scraped returns the Services that a ServiceMonitor selects and that have a port of that name. A ServiceMonitor selects
// Services of its own namespace only.
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
	if err != nil {
		t.Fatal(err)
	}
	if selector.Empty() {
		t.Error("a selector that selects all")
	}
	return selector
}

// portOf is a port of a pod, by its name or number; 0 if the pod has none such.
func portOf(c corev1.Container, p intstr.IntOrString) int32 {
	for _, port := range c.Ports {
		if p.Type == intstr.String && port.Name == p.StrVal || p.Type == intstr.Int && port.ContainerPort == p.IntVal {
			return port.ContainerPort
		}
	}
	return 0
}

func TestPortsAreThoseThatSomebodyListensOn(t *testing.T) {
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
					t.Errorf("%s: the %s probe asks a port that is not there: %v", name, what, probe.HTTPGet.Port)
				case probe.TCPSocket != nil && portOf(c, probe.TCPSocket.Port) == 0:
					t.Errorf("%s: the %s probe asks a port that is not there: %v", name, what, probe.TCPSocket.Port)
				}
			}
		}
		for _, s := range of[*corev1.Service](all) {
			if ofEnvoyGatewaysPods(deployments, s) {
				continue
			}
			for _, p := range s.Spec.Ports {
				c := deployments[strings.TrimSuffix(s.Name, "-headless")].Spec.Template.Spec.Containers[0]
				if port := portOf(c, p.TargetPort); port != p.Port {
					t.Errorf("Service %s: %s is %d, in the pod %v is %d", s.Name, p.Name, p.Port, p.TargetPort.String(), port)
				}
			}
		}
		for _, p := range of[*networkingv1.NetworkPolicy](all) {
			for _, rule := range p.Spec.Ingress {
				for _, port := range rule.Ports {
					if portOf(deployments[p.Name].Spec.Template.Spec.Containers[0], *port.Port) == 0 {
						t.Errorf("NetworkPolicy %s lets in to %v, which is not there", p.Name, port.Port)
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

// settingsOf are the variables of Weir's container, and the defaults of those that are not set.
func settingsOf(t *testing.T, all overlay, d *appsv1.Deployment) map[string]string {
	t.Helper()
	set := knownSettings(t)
	maps.Copy(set, environment(t, all, d))
	return set
}

// environment are the variables of Weir's container; those from Secrets that may be missing are left out.
func environment(t *testing.T, all overlay, d *appsv1.Deployment) map[string]string {
	t.Helper()
	env := map[string]string{}
	c := d.Spec.Template.Spec.Containers[0]
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil || from.Prefix != "" {
			t.Fatalf("variables from %+v: this test does not know such", from)
		}
		m := named[*corev1.ConfigMap](all, from.ConfigMapRef.Name)
		if m == nil {
			t.Fatalf("no ConfigMap %s", from.ConfigMapRef.Name)
		}
		maps.Copy(env, m.Data)
	}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = e.Value
		case e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Optional != nil && *e.ValueFrom.SecretKeyRef.Optional:
			if _, known := knownSettings(t)[e.Name]; !known {
				t.Errorf("%s is no setting of Weir's", e.Name)
			}
		default:
			t.Errorf("%s is from %+v, which has to be there", e.Name, e.ValueFrom)
		}
	}
	return env
}

// knownSettings are all variables that Weir reads, with their defaults, as docs/settings.md has them: a test of cmd/server
// makes that page. Variables without effect are not among them.
func knownSettings(t *testing.T) map[string]string {
	t.Helper()
	page, _, _ := strings.Cut(readFile(t, root+"/docs/settings.md"), "## Without effect")
	known := map[string]string{"AUTOMEMLIMIT": "", "GOMEMLIMIT": "", "GOGC": "", "GOMAXPROCS": ""}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_ ]+)` \\| `[^`]*` \\| (?:`([^`]*)`)?").FindAllStringSubmatch(page, -1) {
		for name := range strings.FieldsSeq(row[1]) {
			known[name] = row[2]
		}
	}
	if len(known) < 80 {
		t.Fatalf("%d settings in docs/settings.md: this test has gone blind", len(known))
	}
	return known
}

func TestEveryVariableIsASettingOfWeirs(t *testing.T) {
	known := knownSettings(t)
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := pods(all)["weir"]
		if weir == nil {
			return
		}
		for name, value := range environment(t, all, weir) {
			if _, found := known[name]; !found {
				t.Errorf("%s=%s is no setting of Weir's", name, value)
			}
		}
	})
}

// weirOf is Weir's Deployment of an overlay; but for envoy-gateway, which has none, each has one.
func weirOf(t *testing.T, all overlay) *appsv1.Deployment {
	t.Helper()
	weir := pods(all)["weir"]
	if weir == nil && !strings.HasPrefix(all.name, "envoy-gateway") {
		t.Fatalf("%s has no Weir", all.name)
	}
	return weir
}

func TestFilesAreMountedWhereWeirLooks(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		spec := weir.Spec.Template.Spec
		there := map[string]bool{} // files and folders in the container
		for _, m := range spec.Containers[0].VolumeMounts {
			if m.SubPath != "" {
				t.Errorf("%s is mounted by subPath, and would never change", m.MountPath)
			}
			i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if i < 0 {
				t.Errorf("no volume %s", m.Name)
				continue
			}
			there[m.MountPath] = true
			for _, key := range keysOf(t, all, spec.Volumes[i]) {
				there[path.Join(m.MountPath, key)] = true
			}
			if spec.Volumes[i].EmptyDir == nil && !m.ReadOnly {
				t.Errorf("%s can be written to", m.MountPath)
			}
		}
		set := settingsOf(t, all, weir)
		for _, name := range []string{
			"CONFIG_PATH", "CONFIG_OVERLAY", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT",
			"REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT", "REDIS_AUTH_FILE",
		} {
			if file := set[name]; file != "" && !there[file] {
				t.Errorf("%s=%s, and there are only %v", name, file, slices.Sorted(maps.Keys(there)))
			}
		}
		if file := set["MEMORY_SNAPSHOT"]; file != "" && !there[path.Dir(file)] {
			t.Errorf("MEMORY_SNAPSHOT=%s, and there is no such folder", file)
		}
		if rules := all.generated(t, "weir-rules"); rules.Name != "weir-rules" {
			t.Errorf("the rules are %s: another name with every change, and pods that run would not see it", rules.Name)
		}
	})
}

// keysOf are the files of a volume.
func keysOf(t *testing.T, all overlay, v corev1.Volume) []string {
	t.Helper()
	switch {
	case v.ConfigMap != nil:
		m := named[*corev1.ConfigMap](all, v.ConfigMap.Name)
		if m == nil || len(m.Data) == 0 || len(v.ConfigMap.Items) > 0 {
			t.Errorf("the volume %s is of the ConfigMap %s: %v", v.Name, v.ConfigMap.Name, m)
			return nil
		}
		return slices.Collect(maps.Keys(m.Data))
	case v.Secret != nil && ptr.Deref(v.Secret.Optional, false): // who has one puts passwords there
		return []string{"auth", "sentinel-auth"}
	case v.Secret != nil:
		for _, c := range of[*certmanagerv1.Certificate](all) {
			if c.Spec.SecretName == v.Secret.SecretName {
				return []string{"tls.crt", "tls.key", "ca.crt"}
			}
		}
		t.Errorf("nobody makes the Secret %s", v.Secret.SecretName)
	case v.EmptyDir != nil:
		if v.EmptyDir.SizeLimit == nil {
			t.Errorf("the volume %s has no bound", v.Name)
		}
	default:
		t.Errorf("the volume %s is of a kind that this test does not know", v.Name)
	}
	return nil
}

func TestPodsAreRestricted(t *testing.T) {
	restricted, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	eachOverlay(t, func(t *testing.T, all overlay) {
		for name, d := range pods(all) {
			pod := d.Spec.Template
			level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
			for _, result := range restricted.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
				if !result.Allowed {
					t.Errorf("%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
			if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
				t.Errorf("%s has a token for the API server", name)
			}
			if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
				t.Errorf("%s has the variables of other Services", name)
			}
			for _, c := range pod.Spec.Containers {
				s := c.SecurityContext
				if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s can write to its image", name)
				}
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: resources %+v", name, c.Resources)
				}
			}
			if account := pod.Spec.ServiceAccountName; account != "" && named[*corev1.ServiceAccount](all, account) == nil {
				t.Errorf("%s: no ServiceAccount %s", name, account)
			}
		}
	})
}

// The image has no shell for a preStop hook, and needs none: Weir itself waits after SIGTERM.
func TestAPodHasTheTimeThatItsStopTakes(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		set, stop := settingsOf(t, all, weir), time.Duration(0)
		for _, name := range []string{"DRAIN_DELAY", "STOP_TIMEOUT"} {
			d, err := time.ParseDuration(set[name])
			if err != nil || d <= 0 {
				t.Errorf("%s=%s", name, set[name])
			}
			stop += d
		}
		grace := time.Duration(ptr.Deref(weir.Spec.Template.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
		if grace < stop+5*time.Second {
			t.Errorf("it is killed after %v, and takes %v to stop", grace, stop)
		}
	})
}

func TestWhatDoesNotGrowWithReplicasHasOne(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		scalers, budgets := of[*autoscalingv2.HorizontalPodAutoscaler](all), of[*policyv1.PodDisruptionBudget](all)
		if settingsOf(t, all, weir)["BACKEND_TYPE"] == "memory" {
			if weir.Spec.Replicas == nil || *weir.Spec.Replicas != 1 || weir.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType ||
				weir.Spec.Strategy.RollingUpdate != nil || len(scalers)+len(budgets) != 0 {
				t.Errorf("replicas that count apart: %v, %+v, %v, %v", weir.Spec.Replicas, weir.Spec.Strategy, scalers, budgets)
			}
			return
		}
		if len(scalers) != 1 || len(budgets) != 1 {
			t.Fatalf("%d autoscalers, %d budgets", len(scalers), len(budgets))
		}
		scaler := scalers[0].Spec
		if weir.Spec.Replicas != nil {
			t.Error("the Deployment says how many replicas, against the autoscaler")
		}
		if scaler.ScaleTargetRef.Kind != "Deployment" || scaler.ScaleTargetRef.Name != weir.Name ||
			scaler.MinReplicas == nil || *scaler.MinReplicas < 2 || scaler.MaxReplicas <= *scaler.MinReplicas {
			t.Errorf("%+v", scaler)
		}
		if rolling := weir.Spec.Strategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable.IntValue() != 0 {
			t.Errorf("a rollout takes away replicas before there are others: %+v", rolling)
		}
	})
}

// Counters in memory, with what the collector leaves beside them, stay below what the container may have.
func TestCountersInMemoryFitTheContainer(t *testing.T) {
	all := build(t, k8s+"/overlays/memory")
	weir := weirOf(t, all)
	most, err := strconv.ParseInt(settingsOf(t, all, weir)["MEMORY_MAX_BYTES"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	limit := weir.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	if most > limit/2 {
		t.Errorf("MEMORY_MAX_BYTES=%d of a limit of %d", most, limit)
	}
}

func TestImagesAreOfOneVersion(t *testing.T) {
	var weir []string
	eachOverlay(t, func(t *testing.T, all overlay) {
		for name, d := range pods(all) {
			for _, c := range d.Spec.Template.Spec.Containers {
				image, tag, _ := strings.Cut(c.Image, ":")
				if tag == "" || tag == "latest" {
					t.Errorf("%s: %s is another one tomorrow", name, c.Image)
				}
				if image == "weir-rls/weir" {
					weir = append(weir, c.Image)
				}
			}
		}
	})
	weir = append(weir, *envoyGateway(t).Provider.Kubernetes.RateLimitDeployment.Container.Image)
	if all := slices.Compact(slices.Sorted(slices.Values(weir))); len(all) != 1 {
		t.Errorf("%v", all)
	}
}

// Whom a NetworkPolicy lets in and out: Envoys to gRPC, Prometheus to metrics, nobody to /json, Weir to its store.
func TestNetworkPoliciesLetThroughWhatIsNeeded(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		p := named[*networkingv1.NetworkPolicy](all, "weir")
		for _, rule := range p.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) == 0 {
				t.Errorf("it lets in all: %+v", rule)
			}
			for _, port := range rule.Ports {
				if port.Port.StrVal == "http" {
					t.Error("it lets in to /json, which charges")
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
		if set["BACKEND_TYPE"] == "memory" {
			if len(out) > 0 {
				t.Errorf("it asks nobody, and may: %v", out)
			}
			return
		}
		if !out["UDP53"] || !out["TCP53"] {
			t.Errorf("no DNS: %v", out)
		}
		hosts := strings.Split(set["REDIS_URL"], ",")
		if set["REDIS_TYPE"] == "SENTINEL" {
			hosts = append(hosts[1:], "the master:6379")
		}
		for _, host := range hosts {
			if _, port, err := net.SplitHostPort(host); err != nil || !out["TCP"+port] {
				t.Errorf("%s is not reached (%v): %v", host, err, out)
			}
		}
	})
}

// Names that one thing has for another by text, in which no tool sees a reference.
func TestTextsNameWhatThereIs(t *testing.T) {
	address := func(t *testing.T, all overlay, host, port string) {
		t.Helper()
		name, namespace, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc"), ".")
		service := named[*corev1.Service](all, name)
		if service == nil || namespace != "" && service.Namespace != namespace {
			t.Errorf("%s is no Service of the overlay", host)
			return
		}
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == port }) {
			t.Errorf("Service %s has no port %s", name, port)
		}
	}
	t.Run("redis", func(t *testing.T) {
		all := build(t, k8s+"/overlays/redis")
		host, port, err := net.SplitHostPort(settingsOf(t, all, weirOf(t, all))["REDIS_URL"])
		if err != nil {
			t.Fatal(err)
		}
		address(t, all, host, port)
	})
	t.Run("mtls", func(t *testing.T) {
		all := build(t, k8s+"/overlays/mtls")
		server, client := named[*certmanagerv1.Certificate](all, "weir-server"), named[*certmanagerv1.Certificate](all, "weir-client")
		for _, name := range server.Spec.DNSNames {
			address(t, all, name, "8081")
		}
		if len(server.Spec.DNSNames) != 8 {
			t.Errorf("%v: two Services have four names each", server.Spec.DNSNames)
		}
		set := settingsOf(t, all, weirOf(t, all))
		if !slices.Contains(client.Spec.DNSNames, set["GRPC_CLIENT_TLS_SAN"]) {
			t.Errorf("clients are %v, and Weir takes %s", client.Spec.DNSNames, set["GRPC_CLIENT_TLS_SAN"])
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
				t.Errorf("nobody issues %s: %v", c.Name, c.Spec.IssuerRef)
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
			t.Errorf("Contour asks %s", got)
		}
	})
	t.Run("envoy-gateway", func(t *testing.T) {
		all := build(t, k8s+"/overlays/envoy-gateway")
		host, port, err := net.SplitHostPort(*envoyGateway(t).RateLimit.Backend.Redis.URL)
		if err != nil {
			t.Fatal(err)
		}
		address(t, all, host, port)
	})
}
