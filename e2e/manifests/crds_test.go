package manifests

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

// definitions lists the files with custom resource definitions, by module. See operators for
// others.
var definitions = map[string]string{
	"github.com/cert-manager/cert-manager": "deploy/crds/cert-manager.io_*.yaml",
	"github.com/projectcontour/contour":    "examples/contour/01-crds.yaml",
	"istio.io/api":                         "kubernetes/customresourcedefinitions.gen.yaml",
	"github.com/envoyproxy/gateway":        "charts/gateway-helm/charts/crds/crds/generated/*.yaml",
}

// schemas returns the schemas by which an API server validates objects, by "apiVersion kind".
func schemas(t *testing.T) map[string]validation.SchemaCreateValidator {
	t.Helper()
	all := map[string]validation.SchemaCreateValidator{}
	for module, pattern := range definitions {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatalf("%s: %v", module, err)
		}
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no %s: %v", module, pattern, err)
		}
		for _, f := range files {
			for document := range strings.SplitSeq(readFile(t, f), "\n---\n") {
				define(t, all, document)
			}
		}
	}
	for _, o := range operators {
		define(t, all, readFile(t, o.file()))
	}
	return all
}

func define(t *testing.T, all map[string]validation.SchemaCreateValidator, document string) {
	t.Helper()
	var d apiextensionsv1.CustomResourceDefinition
	must.Succeed(t, yaml.Unmarshal([]byte(document), &d))
	if d.Kind != "CustomResourceDefinition" {
		return
	}
	for _, v := range d.Spec.Versions {
		var schema apiextensions.JSONSchemaProps
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &schema, nil)
		if err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		validator, _, err := validation.NewSchemaValidator(&schema)
		if err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		all[d.Spec.Group+"/"+v.Name+" "+d.Spec.Names.Kind] = validator
	}
}

// Custom resources have only values that their definitions allow: enumerations, patterns, required
// fields.
func TestCustomResourcesMatchTheirSchemas(t *testing.T) {
	all, n := schemas(t), 0
	check := func(where string, text []byte) {
		t.Helper()
		var object map[string]any
		must.Succeed(t, yaml.Unmarshal(text, &object))
		kind := object["apiVersion"].(string) + " " + object["kind"].(string)
		schema, found := all[kind]
		if !found {
			if group, _, _ := strings.Cut(kind, "/"); strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
				t.Errorf("%s: no definition of %s", where, kind)
			}
			return
		}
		n++
		for _, fault := range validation.ValidateCustomResource(nil, object, schema) {
			t.Errorf("%s: %s: %v", where, kind, fault)
		}
	}
	for _, dir := range overlayDirs(t) {
		for _, o := range build(t, dir).objects {
			check(dir, o.yaml)
		}
	}
	for _, b := range blocks(t, "yaml apply") {
		for document := range strings.SplitSeq(b.text, "\n---\n") {
			check(b.page, []byte(document))
		}
	}
	if n < 8 {
		t.Errorf("%d objects: this test checks too little", n)
	}
}
