package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/internal/must"
)

// An EnvoyFilter that weir gen writes has only fields and values that Istio's types and definitions
// allow, with every kind of patch.
func TestGeneratedEnvoyFilterMatchesItsSchema(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(`domain: d
descriptors:
  - key: user
    descriptors:
      - key: lease
        rate_limit: {algorithm: concurrency, concurrent_requests: 2}
  - key: path
    rate_limit: {unit: day, requests_per_unit: 9}
  - key: generic_key
    value: login
    rate_limit: {unit: day, requests_per_unit: 9}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	schema := schemas(t)["networking.istio.io/v1alpha3 EnvoyFilter"]
	if schema == nil {
		t.Fatal("no definition of EnvoyFilter")
	}
	for _, service := range []string{"weir.weir.svc.cluster.local:8081", "weir.example:8081"} {
		args := []string{"gen", "envoyfilter", "--config", rules, "--service", service, "--route", "login:generic_key=login"}
		text, err := exec.CommandContext(t.Context(), binary(t), args...).Output()
		must.Succeed(t, err)
		if _, err := decode(text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		var object map[string]any
		must.Succeed(t, yaml.Unmarshal(text, &object))
		for _, fault := range validation.ValidateCustomResource(nil, object, schema) {
			t.Errorf("%v\n%s", fault, text)
		}
	}
}
