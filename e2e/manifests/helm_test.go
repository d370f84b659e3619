package manifests

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

const helmChart = root + "/deploy/helm/weir"

var update = flag.Bool("update", false, "write the generated files of the chart, its page, and the schemas in testdata")

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(helmChart)
	must.Succeed(t, err)
	return c
}

// namespaceOf returns the namespace in which values are installed.
func namespaceOf(values map[string]any) string {
	if mode, set := values["mode"]; set && mode != "standalone" {
		return "envoy-gateway-system"
	}
	return "weir"
}

// renderText returns the manifest of a release, as `helm template` prints it, and its notes.
func renderText(c *chart.Chart, release, namespace string, values map[string]any) (manifest, notes string, err error) {
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return "", "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = files[name]
		} else {
			fmt.Fprintf(&b, "---\n%s\n", files[name])
		}
	}
	return b.String(), notes, nil
}

// render returns the objects of a release named weir.
func render(t *testing.T, values map[string]any) overlay {
	t.Helper()
	manifest, _, err := renderText(loadChart(t), "weir", namespaceOf(values), values)
	must.Succeed(t, err)
	all := overlay{name: "chart", dir: helmChart}
	for document := range strings.SplitSeq(manifest, "\n---") {
		var head struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if head.Kind == "" {
			continue
		}
		o := object{kind: head.Kind, namespace: head.Metadata.Namespace, name: head.Metadata.Name, yaml: []byte(document)}
		if o.typed, err = decode(o.yaml); err != nil {
			t.Fatalf("%v: %v in\n%s", o, err, document)
		}
		all.objects = append(all.objects, o)
	}
	return all
}

// valueSets returns the files of ci/, by name.
func valueSets(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(helmChart + "/ci/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d sample value sets: %v", len(files), err)
	}
	all := map[string]map[string]any{}
	for _, f := range files {
		all[strings.TrimSuffix(filepath.Base(f), ".yaml")] = valuesOf(t, readFile(t, f))
	}
	return all
}

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	must.Succeed(t, yaml.Unmarshal([]byte(text), &values))
	return values
}

func TestHelmLint(t *testing.T) {
	for name, values := range valueSets(t) {
		for _, m := range lint.AllWithKubeVersion(helmChart, values, namespaceOf(values), &chartutil.DefaultCapabilities.KubeVersion).Messages {
			if m.Severity >= support.InfoSev && !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// The chart and kustomize make equal objects where both express the same.
func TestChartEqualsKustomize(t *testing.T) {
	sets := valueSets(t)
	withAdmin := kustomization(t, "mtls", "admin")
	for _, pair := range []struct {
		values map[string]any
		built  overlay
	}{
		{nil, build(t, k8s+"/overlays/redis")},
		{sets["memory"], build(t, k8s+"/overlays/memory")},
		{sets["redis"], build(t, k8s+"/overlays/redis")},
		{sets["sentinel"], build(t, k8s+"/overlays/sentinel")},
		{sets["cluster"], build(t, k8s+"/overlays/redis-cluster")},
		{sets["mtls"], build(t, k8s+"/overlays/mtls")},
		{valuesOf(t, "{tls: {enabled: true, certManager: {enabled: true}}, admin: {enabled: true}}"), withAdmin},
		{sets["monitoring"], build(t, k8s+"/overlays/monitoring")},
		{sets["envoy-gateway"], build(t, k8s+"/overlays/envoy-gateway")},
		{sets["envoy-gateway-monitoring"], build(t, k8s+"/overlays/envoy-gateway-monitoring")},
		{sets["ai-gateway"], build(t, k8s+"/overlays/ai-gateway")},
	} {
		t.Run(pair.built.name, func(t *testing.T) {
			chart, built := normalized(t, render(t, pair.values)), normalized(t, pair.built)
			for _, name := range slices.Sorted(maps.Keys(built)) {
				if chart[name] != built[name] {
					t.Errorf("%s\n%s", name, difference(chart[name], built[name]))
				}
			}
			for name := range chart {
				if built[name] == "" {
					t.Errorf("only the chart has %s", name)
				}
			}
		})
	}
}

// kustomization builds an overlay with a component.
func kustomization(t *testing.T, name, component string) overlay {
	t.Helper()
	dir, err := filepath.Abs(k8s)
	must.Succeed(t, err)
	at := t.TempDir()
	must.Succeed(t, os.Symlink(dir, filepath.Join(at, "k8s")))
	must.Write(t, filepath.Join(at, name, "kustomization.yaml"), fmt.Sprintf("resources: [../k8s/overlays/%s]\ncomponents: [../k8s/components/%s]\n", name, component))
	return build(t, filepath.Join(at, name))
}

// hashed matches the name of a ConfigMap that kustomize ends with a hash.
var hashed = regexp.MustCompile(`\bweir-(settings|store)-[a-z0-9]{10}\b`)

// normalized returns each object as JSON, by kind and name, without the parts that only one of the
// two can have. These are the labels that Helm needs, the Namespace, and the checksum that restarts
// pods. kustomize has names with hashes instead of the checksum. Files of YAML lose their comments.
func normalized(t *testing.T, all overlay) map[string]string {
	t.Helper()
	objects := map[string]string{}
	for _, o := range all.objects {
		if o.kind == "Namespace" { // helm install --create-namespace
			continue
		}
		var object any
		must.Succeed(t, yaml.Unmarshal(hashed.ReplaceAll(o.yaml, []byte("weir-$1")), &object))
		object = withoutHelm(object)
		meta := object.(map[string]any)["metadata"].(map[string]any)
		labels, _ := meta["labels"].(map[string]any)
		if labels == nil {
			labels = map[string]any{}
			meta["labels"] = labels
		}
		for key, value := range map[string]any{"app.kubernetes.io/name": "weir", "app.kubernetes.io/part-of": "weir"} {
			if labels[key] == nil { // generators of kustomize set no labels
				labels[key] = value
			}
		}
		if data, is := object.(map[string]any)["data"].(map[string]any); is {
			for name, text := range data {
				if strings.HasSuffix(name, ".yaml") {
					var file any
					must.Succeed(t, yaml.Unmarshal([]byte(text.(string)), &file))
					data[name] = file
				}
			}
		}
		text, err := json.MarshalIndent(object, "", " ")
		must.Succeed(t, err)
		objects[hashed.ReplaceAllString(o.String(), "weir-$1")] = string(text)
	}
	return objects
}

// withoutHelm removes the labels and the annotation that only the chart has.
func withoutHelm(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{
			"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version", "checksum/settings",
		} {
			if value, is := v[key].(string); is && value != "envoy-gateway" { // a selector of pods of Envoy Gateway
				delete(v, key)
			}
		}
		for key, value := range v {
			v[key] = withoutHelm(value)
		}
	case []any:
		for i := range v {
			v[i] = withoutHelm(v[i])
		}
	}
	return v
}

// difference returns the lines that only one of two texts has.
func difference(chart, built string) string {
	if chart == "" {
		return "the chart does not have it"
	}
	var b strings.Builder
	c, k := strings.Split(chart, "\n"), strings.Split(built, "\n")
	for _, line := range c {
		if !slices.Contains(k, line) {
			fmt.Fprintln(&b, "chart:    ", line)
		}
	}
	for _, line := range k {
		if !slices.Contains(c, line) {
			fmt.Fprintln(&b, "kustomize:", line)
		}
	}
	if b.Len() == 0 { // the order of lists
		for i := range min(len(c), len(k)) {
			if c[i] != k[i] {
				return fmt.Sprintf("line %d: chart %s, kustomize %s", i, c[i], k[i])
			}
		}
	}
	return b.String()
}

// Helm reads no files outside of the chart, so the chart has copies.
func TestChartFilesAreCopies(t *testing.T) {
	wants := map[string]string{}
	for name, source := range map[string]string{
		"rules.yaml": "base/rules.yaml", "alerts.yaml": "components/monitoring/alerts.yaml",
		"dashboard.json": "components/monitoring/dashboard.json", "overlay.yaml": "overlays/envoy-gateway/overlay.yaml",
	} {
		wants[name] = readFile(t, k8s+"/"+source)
	}
	known := knownSettings(t)
	delete(known, "GOGC") // the chart allows all variables of Go by a pattern
	wants["settings.txt"] = strings.Join(slices.Sorted(maps.Keys(known)), "\n") + "\n"
	for name, want := range wants {
		path := helmChart + "/files/" + name
		if *update {
			must.Write(t, path, want)
		}
		if readFile(t, path) != want {
			t.Errorf("%s is out of date: go test -run Copies -update", path)
		}
	}
	image := weirOf(t, build(t, k8s+"/overlays/redis")).Spec.Template.Spec.Containers[0].Image
	if c := loadChart(t); !strings.HasSuffix(image, ":"+c.Metadata.AppVersion) || !strings.Contains(c.Metadata.Annotations["artifacthub.io/images"], image) {
		t.Errorf("kustomize has %s, the chart %s and %s", image, c.Metadata.AppVersion, c.Metadata.Annotations["artifacthub.io/images"])
	}
}

// Values that cannot work fail when the templates are rendered, with a sentence that names the
// value.
func TestChartRejectsInvalidValues(t *testing.T) {
	c := loadChart(t)
	for _, bad := range []struct{ set, want string }{
		{"store.type=memory,replicaCount=3", "store.type memory allows one replica, and replicaCount is 3"},
		{"store.type=memory,store.url=redis:6379", "have no effect with store.type memory"},
		{"store.type=cluster,store.url=r:6379,store.tls.enabled=true", "store.tls.enabled with store.type cluster needs store.tls.existingSecret"},
		{"store.tls.enabled=true,store.tls.systemRoots=true", "the Redis of this chart has no TLS"},
		{"store.type=cluster", "store.type cluster needs store.url"},
		{"store.type=sentinel,store.url=sentinel:26379", "store.type sentinel needs store.url: the name of the master"},
		{"redis.enabled=false", "store.type redis has no Redis"},
		{"store.type=postgres", "/store/type"},
		{"storage.type=redis", "additional properties 'storage' not allowed"},
		{"store.adress=redis:6379", "additional properties 'adress' not allowed"},
		{"replicaCount=-1", "minimum: got -1, want 0"},
		{"replicaCount=many", "/replicaCount"},
		{"autoscaling.minReplicas=20", "autoscaling.maxReplicas is 10, and autoscaling.minReplicas is 20"},
		{"autoscaling.type=keda", "needs autoscaling.keda.triggers"},
		{"config.settings.LOG_LEVL=debug", "config.settings.LOG_LEVL is no setting of Weir"},
		{"config.settings.REDIS_URL=redis:6379", "config.settings.REDIS_URL: set the values under store"},
		{"config.settings.GRPC_PORT=9000", "config.settings.GRPC_PORT: the Services, probes and volumes"},
		{"config.settings.HOST=127.0.0.1", "config.settings.HOST: "},
		{"config.settings.GRPC_HOST=127.0.0.1", "config.settings.GRPC_HOST: "},
		{"config.settings.GRPC_UDS=/tmp/weir.sock", "config.settings.GRPC_UDS: the Services, probes and volumes"},
		{"config.settings.DRAIN_DELAY=30s", "terminationGracePeriodSeconds is 40, and DRAIN_DELAY (30s) and STOP_TIMEOUT (10s)"},
		{"config.settings.STOP_TIMEOUT=1m", "DRAIN_DELAY (15s) and STOP_TIMEOUT (1m)"},
		{"terminationGracePeriodSeconds=25", "terminationGracePeriodSeconds is 25"},
		{"store.type=memory,terminationGracePeriodSeconds=11", "DRAIN_DELAY (1s) and STOP_TIMEOUT (10s)"},
		{"config.existingConfigMap=a,config.rules.b=c", "contradict each other"},
		{"config.overlay.a=b", "no effect in mode standalone"},
		{"tls.enabled=true", "tls.enabled needs a certificate"},
		{"tls.certManager.enabled=true", "no effect without tls.enabled"},
		{"image.digest=latest", "/image/digest"},
		{"monitoring.serviceMonitor.interval=1.5s", "/monitoring/serviceMonitor/interval"},
		{"config.settings.KEY_HASH_SECRET=abc", "a ConfigMap would show this secret"},
		{"config.settings.CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:abc", "a ConfigMap would show this secret"},
		{"config.settings.REDIS_PERSECOND_URL=redis://:abc@redis:6379", "a ConfigMap would show this secret"},
		{"store.url=rediss://user:abc@redis:6379", "store.url has a password"},
		{"store.url=redis:6379?username=weir&password=abc", "store.url has a password"},
		{"store.url=default:abc@redis:6379", "store.url has a password"},
		{`store.url=default:a\,bc@redis:6379`, "store.url has a password"},
		{`store.type=cluster,store.url=a:6379\,default:abc@b:6379`, "store.url has a password"},
		{`store.type=sentinel,store.url=mymaster\, :abc@a:26379`, "store.url has a password"},
		{"config.settings.REDIS_PERSECOND_URL=user:abc@redis:6379", "a ConfigMap would show this secret"},
		{"config.settings.OTEL_EXPORTER_OTLP_HEADERS=api-key=abc", "a ConfigMap would show this secret"},
		{"config.settings.OTEL_EXPORTER_OTLP_TRACES_HEADERS=api-key=abc", "a ConfigMap would show this secret"},
		{"mode=envoy-gateway,admin.enabled=true", "admin.enabled has no effect in mode envoy-gateway"},
		{"mode=envoy-gateway,replicaCount=0", "replicaCount has no effect in mode envoy-gateway"},
		{"mode=ai-gateway", "must be in the namespace envoy-gateway-system"},
		{"mode=envoy-gateway,store.type=memory", "mode envoy-gateway needs a Redis"},
		{"mode=ai-gateway,config.rules.a=b", "no effect in mode ai-gateway"},
		{"config.rules.r.descriptors[0].value=1", "/config/rules/r/descriptors/0/value"},
		{"config.rules.r.descriptors[0].descriptors[0].values[0]=true", "/config/rules/r/descriptors/0/descriptors/0/values/0"},
		{"config.rules.r.domain=1", "/config/rules/r/domain"},
		{"mode=envoy-gateway,config.overlay.o.descriptors[0].key=true", "/config/overlay/o/descriptors/0/key"},
		{"fullnameOverride=7eleven", "/fullnameOverride"},
		{"podDisruptionBudget.maxUnavailable=some", "/podDisruptionBudget/maxUnavailable"},
		{`podLabels.app\.kubernetes\.io/name=mine`, "invalid propertyName 'app.kubernetes.io/name'"},
		{`podAnnotations.checksum/settings=mine`, "invalid propertyName 'checksum/settings'"},
	} {
		values, err := strvals.Parse(bad.set)
		must.Succeed(t, err)
		_, _, err = renderText(c, "weir", "weir", values)
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.set, err, bad.want)
		}
	}
}

func TestChartAcceptsURLsWithoutPasswords(t *testing.T) {
	for _, values := range []string{
		"{url: 'redis:6379?db=1'}", "{url: 'redis://weir@redis:6379/1'}", "{url: '[::1]:6379'}",
		"{type: cluster, url: 'redis://a:6379,redis://b:6379'}", "{type: cluster, url: 'a:6379,weir@b:6379'}",
		"{type: sentinel, url: 'mymaster,weir@[::1]:26379,weir@[::2]:26379'}",
	} {
		if _, _, err := renderText(loadChart(t), "weir", "weir", valuesOf(t, "store: "+values)); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestChartAcceptsIPv6(t *testing.T) {
	all := render(t, valuesOf(t, "config: {settings: {HOST: '::', GRPC_HOST: '::'}}"))
	if set := settingsOf(t, all, weirOf(t, all)); set["HOST"] != "::" || set["GRPC_HOST"] != "::" {
		t.Errorf("%v", set)
	}
}

func TestChartAcceptsALongerGracePeriod(t *testing.T) {
	for _, values := range []string{
		"{config: {settings: {DRAIN_DELAY: 60s, STOP_TIMEOUT: 500ms}}, terminationGracePeriodSeconds: 61}",
		"{store: {type: memory}, terminationGracePeriodSeconds: 12}",
		"{mode: envoy-gateway, config: {settings: {DRAIN_DELAY: 60s}}}", // Envoy Gateway sets the period
	} {
		if _, _, err := renderText(loadChart(t), "weir", "weir", valuesOf(t, values)); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// A release may have any name that Helm accepts: its labels are texts, and its Services have names
// that Kubernetes accepts.
func TestChartAcceptsNamesOfReleases(t *testing.T) {
	c := loadChart(t)
	for release, name := range map[string]string{"true": "true-weir", "null": "null-weir", "shop.eu": "shop-eu-weir"} {
		for _, values := range valueSets(t) {
			manifest, _, err := renderText(c, release, namespaceOf(values), values)
			must.Succeed(t, err)
			for document := range strings.SplitSeq(manifest, "\n---") {
				object := valuesOf(t, document)
				meta, is := object["metadata"].(map[string]any)
				if !is {
					continue
				}
				labels, _ := meta["labels"].(map[string]any)
				if instance := labels["app.kubernetes.io/instance"]; instance != release {
					t.Errorf("%v %v has the instance %v", object["kind"], meta["name"], instance)
				}
				if strings.Contains(fmt.Sprint(meta["name"]), ".") || object["kind"] == "Deployment" && !strings.HasPrefix(fmt.Sprint(meta["name"]), name) {
					t.Errorf("%v has the name %v", object["kind"], meta["name"])
				}
			}
		}
	}
	_, _, err := renderText(c, "7eleven", "weir", nil)
	if err == nil || !strings.Contains(err.Error(), "7eleven-weir begins with a digit") {
		t.Error(err)
	}
}

// Two releases in one namespace have no object and no selector in common.
func TestChartReleasesAreSeparate(t *testing.T) {
	c := loadChart(t)
	names := func(release string, values map[string]any) map[string]bool {
		manifest, notes, err := renderText(c, release, "weir", values)
		must.Succeed(t, err)
		if !strings.Contains(notes, "installed as") {
			t.Errorf("notes: %s", notes)
		}
		all := map[string]bool{}
		for document := range strings.SplitSeq(manifest, "\n---") {
			object := valuesOf(t, document)
			if meta, is := object["metadata"].(map[string]any); is {
				all[fmt.Sprint(object["kind"], " ", meta["name"])] = true
			}
		}
		if !strings.Contains(manifest, fmt.Sprintf("app.kubernetes.io/instance: %q\n", release)) {
			t.Errorf("no selector of the release %s", release)
		}
		return all
	}
	for _, values := range valueSets(t) {
		if namespaceOf(values) != "weir" || values["serviceAccount"] != nil {
			continue
		}
		one, two := names("checkout", values), names("search", values)
		for name := range one {
			if two[name] || !strings.Contains(name, "checkout-weir") {
				t.Errorf("two releases have %s", name)
			}
		}
	}
}

// An annotation of the user replaces the chart's, and occurs once.
func TestPodAnnotationsReplaceTheCharts(t *testing.T) {
	values := valuesOf(t, "podAnnotations: {prometheus.io/scrape: 'false', team: edge}")
	manifest, _, err := renderText(loadChart(t), "weir", "weir", values)
	must.Succeed(t, err)
	if n := strings.Count(manifest, "prometheus.io/scrape"); n != 1 {
		t.Errorf("prometheus.io/scrape is set %d times", n)
	}
	got := weirOf(t, render(t, values)).Spec.Template.Annotations
	if got["prometheus.io/scrape"] != "false" || got["prometheus.io/port"] != "9090" || got["team"] != "edge" {
		t.Errorf("the annotations are %v", got)
	}
}

// A change of settings restarts pods, a change of rules does not.
func TestChartRestartsPodsOnSettingsOnly(t *testing.T) {
	checksum := func(text string) string {
		d := weirOf(t, render(t, valuesOf(t, text)))
		return d.Spec.Template.Annotations["checksum/settings"]
	}
	if checksum("config: {settings: {LOG_LEVEL: debug}}") == checksum("{}") {
		t.Error("a change of settings does not restart pods")
	}
	if checksum("config: {rules: {a.yaml: {domain: a}}}") != checksum("{}") {
		t.Error("a change of rules restarts pods")
	}
	settings := named[*corev1.ConfigMap](render(t, valuesOf(t, "config: {settings: {MAX_IN_FLIGHT: 1000000, AUTOMEMLIMIT: 0.8, JSON_ENABLED: false}}")), "weir-settings").Data
	if settings["MAX_IN_FLIGHT"] != "1000000" || settings["AUTOMEMLIMIT"] != "0.8" || settings["JSON_ENABLED"] != "false" {
		t.Errorf("%v", settings)
	}
}
