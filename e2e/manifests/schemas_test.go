package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

// kubernetesVersions are the oldest version that the tests check, and the newest that the module
// proxy has. testdata holds the schemas of usedKinds, from the OpenAPI description of each version.
var kubernetesVersions = []string{"v1.30.14", "v1.37.2"}

// An operator is a source of custom resource definitions. testdata holds those definitions, because
// its module is large, or its types are a module of their own.
type operator struct{ name, module, version, path string }

var operators = []operator{
	{"keda", "github.com/kedacore/keda/v2", "v2.21.0", "config/crd/bases/keda.sh_scaledobjects.yaml"},
	{"servicemonitors", prometheusOperator, "v0.94.0", "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"},
	{"prometheusrules", prometheusOperator, "v0.94.0", "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
}

const prometheusOperator = "github.com/prometheus-operator/prometheus-operator"

func (o operator) file() string { return "testdata/" + o.name + "-" + o.version + ".json" }

// usedKinds lists the kinds of Kubernetes in the manifests, by apiVersion and kind, with their
// definitions.
var usedKinds = map[string]string{
	"v1 Namespace": "io.k8s.api.core.v1.Namespace", "v1 Service": "io.k8s.api.core.v1.Service",
	"v1 ConfigMap": "io.k8s.api.core.v1.ConfigMap", "v1 ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
	"apps/v1 Deployment": "io.k8s.api.apps.v1.Deployment", "policy/v1 PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
	"autoscaling/v2 HorizontalPodAutoscaler": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
	"networking.k8s.io/v1 NetworkPolicy":     "io.k8s.api.networking.v1.NetworkPolicy",
}

// TestSchemasAreUpToDate writes testdata with -update. Without it, the test needs no network and
// checks that the files are there.
func TestSchemasAreUpToDate(t *testing.T) {
	if *update {
		for _, version := range kubernetesVersions {
			must.Write(t, schemaFile(version), extract(t, filepath.Join(module(t, "k8s.io/kubernetes@"+version), "api/openapi-spec/swagger.json")))
		}
		for _, o := range operators {
			var definition any
			must.Succeed(t, yaml.Unmarshal([]byte(readFile(t, filepath.Join(module(t, o.module+"@"+o.version), o.path))), &definition))
			text, err := json.Marshal(stripped(definition))
			must.Succeed(t, err)
			must.Write(t, o.file(), string(text)+"\n")
		}
	}
	for _, version := range kubernetesVersions {
		if n := len(strictSchemas(t, version)); n != len(usedKinds) {
			t.Errorf("%s: %d schemas", version, n)
		}
	}
}

func schemaFile(version string) string { return "testdata/kubernetes-" + version + ".json" }

// module downloads a module and returns its folder.
func module(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", name).Output()
	var m struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m.Dir
}

// extract returns the definitions of usedKinds and of all that they refer to. A definition with
// properties allows no others, as an API server with strict field validation.
func extract(t *testing.T, swagger string) string {
	t.Helper()
	var whole struct{ Definitions map[string]map[string]any }
	must.Succeed(t, json.Unmarshal([]byte(readFile(t, swagger)), &whole))
	kept := map[string]any{}
	var keep func(name string)
	var walk func(v any)
	keep = func(name string) {
		if kept[name] != nil {
			return
		}
		d := stripped(whole.Definitions[name]).(map[string]any)
		if d["properties"] != nil {
			d["additionalProperties"] = false
		}
		switch name {
		case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
			d = map[string]any{"type": []string{"integer", "string"}}
		case "io.k8s.apimachinery.pkg.api.resource.Quantity":
			d = map[string]any{"type": []string{"string", "number"}}
		}
		kept[name] = d
		walk(d)
	}
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, is := v["$ref"].(string); is {
				keep(strings.TrimPrefix(ref, "#/definitions/"))
			}
			for _, value := range v {
				walk(value)
			}
		case []any:
			for _, value := range v {
				walk(value)
			}
		}
	}
	for _, name := range usedKinds {
		keep(name)
	}
	text, err := json.Marshal(map[string]any{"$schema": "http://json-schema.org/draft-04/schema#", "definitions": kept})
	must.Succeed(t, err)
	return string(text) + "\n"
}

// stripped removes descriptions and extensions.
func stripped(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if _, isText := value.(string); key == "description" && isText || strings.HasPrefix(key, "x-kubernetes-group") {
				delete(v, key)
				continue
			}
			v[key] = stripped(value)
		}
	case []any:
		for i := range v {
			v[i] = stripped(v[i])
		}
	}
	return v
}

// strictSchemas returns the schemas of a version of Kubernetes, by apiVersion and kind.
func strictSchemas(t *testing.T, version string) map[string]*jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(readFile(t, schemaFile(version))))
	must.Succeed(t, err)
	compiler, all := jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
	must.Succeed(t, compiler.AddResource("k8s.json", document))
	for kind, name := range usedKinds {
		if all[kind], err = compiler.Compile("k8s.json#/definitions/" + name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A validator checks objects against the schemas of all versions, and custom resources against
// their definitions.
type validator struct {
	kubernetes map[string]map[string]*jsonschema.Schema // by version
	custom     map[string]validation.SchemaCreateValidator
	objects    int
}

func newValidator(t *testing.T) *validator {
	t.Helper()
	v := &validator{map[string]map[string]*jsonschema.Schema{}, schemas(t), 0}
	for _, version := range kubernetesVersions {
		v.kubernetes[version] = strictSchemas(t, version)
	}
	return v
}

func (v *validator) check(t *testing.T, where string, text []byte) {
	t.Helper()
	var object map[string]any
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if len(object) == 0 {
		return
	}
	v.objects++
	kind := fmt.Sprint(object["apiVersion"], " ", object["kind"])
	for version, all := range v.kubernetes {
		if schema := all[kind]; schema != nil {
			if err := schema.Validate(object); err != nil {
				t.Errorf("%s: %s by Kubernetes %s: %v", where, kind, version, err)
			}
		}
	}
	if schema := v.custom[kind]; schema != nil {
		for _, fault := range validation.ValidateCustomResource(nil, object, schema) {
			t.Errorf("%s: %s: %v", where, kind, fault)
		}
	}
	if usedKinds[kind] == "" && !strings.HasPrefix(kind, "keda.sh/") {
		// The schema of a custom resource allows unknown fields, which an API server removes. The
		// types do not.
		if _, err := decode(text); err != nil {
			t.Errorf("%s: %s: %v", where, kind, err)
		}
	}
}

// Every object of kustomize is valid in all versions.
func TestManifestsMatchKubernetesSchemas(t *testing.T) {
	v := newValidator(t)
	for _, dir := range overlayDirs(t) {
		for _, o := range build(t, dir).objects {
			v.check(t, filepath.Base(dir), o.yaml)
		}
	}
	if v.objects < 80 {
		t.Errorf("%d objects: this test checks too little", v.objects)
	}
	bad := "apiVersion: apps/v1\nkind: Deployment\nspec: {replica: 1}\n"
	for version, all := range v.kubernetes {
		if err := all["apps/v1 Deployment"].Validate(map[string]any(valuesOf(t, bad))); err == nil {
			t.Errorf("Kubernetes %s: a Deployment with an unknown field is valid", version)
		}
	}
}

// toggles are single changes of values. TestChartMatrix renders each on top of each sample value
// set.
var toggles = []string{
	"", "replicaCount=1", "replicaCount=0", "autoscaling.enabled=false", "networkPolicy.enabled=false", "podDisruptionBudget.enabled=false",
	"topologySpread.enabled=false", "serviceAccount.create=false", "admin.enabled=true", "fullnameOverride=edge", "store.memory.existingClaim=counters",
	"monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,monitoring.dashboard.enabled=true",
	"service.selector.app=ratelimit", "config.existingConfigMap=my-rules", "config.overlay.main=domain: a", "envoyGateway.useWeir=false",
	"tls.enabled=true,tls.certManager.enabled=true,tls.certManager.issuerRef.name=corporate,tls.certManager.issuerRef.kind=ClusterIssuer",
	"store.url=redis.data:7000,store.tls.enabled=true,store.tls.systemRoots=true", "extraEnv[0].name=A,extraEnv[0].value=b",
	"networkPolicy.egress[0].ports[0].port=4317,networkPolicy.egress[0].ports[0].protocol=TCP", "image.digest=",
	"autoscaling.type=keda,autoscaling.keda.triggers[0].type=cron,autoscaling.keda.triggers[0].metadata.timezone=UTC",
}

// Every sample value set, with every toggle, is valid in all versions or is rejected with a
// sentence.
func TestChartMatrix(t *testing.T) {
	v, c := newValidator(t), loadChart(t)
	rendered, rejected := 0, 0
	sets := valueSets(t)
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		for _, toggle := range toggles {
			values := valuesOf(t, readFile(t, helmChart+"/ci/"+name+".yaml"))
			must.Succeed(t, strvals.ParseInto(toggle, values))
			where := name + " with " + toggle
			manifest, _, err := renderText(c, "weir", namespaceOf(values), values)
			switch {
			case err == nil:
				rendered++
				for document := range strings.SplitSeq(manifest, "\n---") {
					v.check(t, where, []byte(document))
				}
			case toggle != "" && regexp.MustCompile("no effect|contradict|store.type sentinel needs").MatchString(err.Error()):
				rejected++
			default:
				t.Errorf("%s: %v", where, err)
			}
		}
	}
	t.Logf("%d renderings, %d objects, %d rejected", rendered, v.objects, rejected)
	if rendered < 200 || v.objects < 2000 {
		t.Errorf("%d renderings, %d objects: this test checks too little", rendered, v.objects)
	}
}
