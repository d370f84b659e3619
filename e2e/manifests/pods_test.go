package manifests

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	"github.com/weir-rls/weir/internal/must"
)

// settingsOf returns the variables of Weir's container, with the defaults of those that are not
// set.
func settingsOf(t *testing.T, all overlay, d *appsv1.Deployment) map[string]string {
	t.Helper()
	set := knownSettings(t)
	maps.Copy(set, environment(t, all, d))
	return set
}

// environment returns the variables of Weir's container without those from optional Secrets.
func environment(t *testing.T, all overlay, d *appsv1.Deployment) map[string]string {
	t.Helper()
	env := map[string]string{}
	c := d.Spec.Template.Spec.Containers[0]
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil || from.Prefix != "" {
			t.Fatalf("variables from %+v: this test does not support them", from)
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
				t.Errorf("%s is not a setting of Weir", e.Name)
			}
		default:
			t.Errorf("%s is from %+v, which is not optional", e.Name, e.ValueFrom)
		}
	}
	return env
}

// knownSettings returns all variables that Weir reads, with their defaults, from docs/settings.md.
// A test of cmd/server generates that page. Variables without effect are left out.
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
		t.Fatalf("%d settings in docs/settings.md: this test checks too little", len(known))
	}
	return known
}

func TestEnvironmentVariablesAreSettings(t *testing.T) {
	known := knownSettings(t)
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := pods(all)["weir"]
		if weir == nil {
			return
		}
		for name, value := range environment(t, all, weir) {
			if _, found := known[name]; !found {
				t.Errorf("%s=%s is not a setting of Weir", name, value)
			}
		}
	})
}

// weirOf returns Weir's Deployment of an overlay. Only the overlays for Envoy Gateway have none.
func weirOf(t *testing.T, all overlay) *appsv1.Deployment {
	t.Helper()
	weir := pods(all)["weir"]
	if weir == nil && !strings.HasPrefix(all.name, "envoy-gateway") {
		t.Fatalf("%s has no Weir", all.name)
	}
	return weir
}

// rulesByXDS reports whether an overlay gets its rules from a control plane.
func rulesByXDS(t *testing.T, all overlay) bool {
	t.Helper()
	return settingsOf(t, all, weirOf(t, all))["CONFIG_TYPE"] == "GRPC_XDS_SOTW"
}

func TestFilesAreMountedAtTheirSettings(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		spec := weir.Spec.Template.Spec
		there := map[string]bool{} // files and folders in the container
		for _, m := range spec.Containers[0].VolumeMounts {
			if m.SubPath != "" {
				t.Errorf("%s is mounted by subPath, which is never updated", m.MountPath)
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
				t.Errorf("%s is writable", m.MountPath)
			}
		}
		set := settingsOf(t, all, weir)
		for _, name := range []string{
			"CONFIG_PATH", "CONFIG_OVERLAY", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT",
			"REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT", "REDIS_AUTH_FILE",
		} {
			if file := set[name]; file != "" && !there[file] {
				t.Errorf("%s=%s, mounted are only %v", name, file, slices.Sorted(maps.Keys(there)))
			}
		}
		for _, name := range []string{"MEMORY_SNAPSHOT", "CONFIG_GRPC_XDS_RULES_FILE"} {
			if file := set[name]; file != "" && !there[path.Dir(file)] {
				t.Errorf("%s=%s is in a missing folder", name, file)
			}
		}
		if rulesByXDS(t, all) {
			return
		}
		if rules := all.generated(t, "weir-rules"); rules.Name != "weir-rules" {
			t.Errorf("the ConfigMap of the rules is %s: a name with a hash never reaches running pods", rules.Name)
		}
	})
}

// keysOf returns the files of a volume.
func keysOf(t *testing.T, all overlay, v corev1.Volume) []string {
	t.Helper()
	switch {
	case v.ConfigMap != nil && ptr.Deref(v.ConfigMap.Optional, false):
		return nil
	case v.ConfigMap != nil:
		m := named[*corev1.ConfigMap](all, v.ConfigMap.Name)
		if m == nil || len(m.Data) == 0 || len(v.ConfigMap.Items) > 0 {
			t.Errorf("the volume %s is of the ConfigMap %s: %v", v.Name, v.ConfigMap.Name, m)
			return nil
		}
		return slices.Collect(maps.Keys(m.Data))
	case v.Secret != nil && ptr.Deref(v.Secret.Optional, false): // an optional Secret with passwords
		return []string{"auth", "sentinel-auth"}
	case v.Secret != nil:
		for _, c := range of[*certmanagerv1.Certificate](all) {
			if c.Spec.SecretName == v.Secret.SecretName {
				return []string{"tls.crt", "tls.key", "ca.crt"}
			}
		}
		t.Errorf("no Certificate creates the Secret %s", v.Secret.SecretName)
	case v.EmptyDir != nil:
		if v.EmptyDir.SizeLimit == nil {
			t.Errorf("the volume %s has no bound", v.Name)
		}
	default:
		t.Errorf("the volume %s has a type that this test does not support", v.Name)
	}
	return nil
}

func TestPodsAreRestricted(t *testing.T) {
	restricted, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must.Succeed(t, err)
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

// The image has no shell for a preStop hook. Weir itself waits after SIGTERM.
func TestGracePeriodCoversShutdown(t *testing.T) {
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
			t.Errorf("the pod is killed after %v, and its shutdown takes %v", grace, stop)
		}
	})
}

func TestMemoryOverlayHasOneReplica(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		weir := weirOf(t, all)
		if weir == nil {
			return
		}
		scalers, budgets := of[*autoscalingv2.HorizontalPodAutoscaler](all), of[*policyv1.PodDisruptionBudget](all)
		if settingsOf(t, all, weir)["BACKEND_TYPE"] == "memory" {
			if weir.Spec.Replicas == nil || *weir.Spec.Replicas != 1 || weir.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType ||
				weir.Spec.Strategy.RollingUpdate != nil || len(scalers)+len(budgets) != 0 {
				t.Errorf("replicas with separate counters: %v, %+v, %v, %v", weir.Spec.Replicas, weir.Spec.Strategy, scalers, budgets)
			}
			return
		}
		if len(scalers) != 1 || len(budgets) != 1 {
			t.Fatalf("%d autoscalers, %d budgets", len(scalers), len(budgets))
		}
		scaler := scalers[0].Spec
		if weir.Spec.Replicas != nil {
			t.Error("the Deployment sets replicas, which conflicts with the autoscaler")
		}
		if scaler.ScaleTargetRef.Kind != "Deployment" || scaler.ScaleTargetRef.Name != weir.Name ||
			scaler.MinReplicas == nil || *scaler.MinReplicas < 2 || scaler.MaxReplicas <= *scaler.MinReplicas {
			t.Errorf("%+v", scaler)
		}
		if rolling := weir.Spec.Strategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable.IntValue() != 0 {
			t.Errorf("a rollout stops replicas before their successors are ready: %+v", rolling)
		}
	})
}

// Counters in memory, and the garbage beside them, fit the container's memory limit.
func TestMemoryCountersFitTheContainer(t *testing.T) {
	all := build(t, k8s+"/overlays/memory")
	weir := weirOf(t, all)
	most, err := strconv.ParseInt(settingsOf(t, all, weir)["MEMORY_MAX_BYTES"], 10, 64)
	must.Succeed(t, err)
	limit := weir.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	if most > limit/2 {
		t.Errorf("MEMORY_MAX_BYTES=%d of a limit of %d", most, limit)
	}
}

func TestImagesHaveOneVersion(t *testing.T) {
	var weir []string
	eachOverlay(t, func(t *testing.T, all overlay) {
		for name, d := range pods(all) {
			for _, c := range d.Spec.Template.Spec.Containers {
				image, tag, _ := strings.Cut(c.Image, ":")
				if tag == "" || tag == "latest" {
					t.Errorf("%s: the tag of %s may move", name, c.Image)
				}
				if image == "ghcr.io/weir-rls/weir" {
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
