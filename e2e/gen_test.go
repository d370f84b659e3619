package e2e_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// generatedFlags are the arguments of weir gen for pages whose rules do not state where Envoy finds
// a value.
var generatedFlags = map[string][]string{
	"allow-list.md":    {"--trusted-hops", "1", "--from", "client=match:monitor=x-api-key:KEY-OF-THE-MONITOR", "--from", "client=match:partner=x-api-key:KEY-OF-THE-PARTNER"},
	"bandwidth.md":     {"--from", "tenant=header:x-tenant-id", "--cost", "tenant=%BYTES_SENT%"},
	"big-customer.md":  {"--from", "customer=header:x-customer-id"},
	"cost.md":          {"--cost", "user_id=%RESP(x-cost)%"},
	"login-lockout.md": {"--from", "outcome=status:401,403"},
	"monthly-quota.md": {"--from", "customer=header:x-customer-id"},
	"org-team-user.md": {"--from", "org=header:x-org-id", "--from", "team=header:x-team-id"},
	"soft-budget.md": {
		"--from", "soft_limit=constant", "--hits", "soft_limit=0",
		"--from", "tenant=header:x-tenant-id", "--hits", "tenant.lease=100", "--cost", "tenant.lease=%RESP(x-cost)%",
		"--from", "soft_tenant=header:x-tenant-id", "--hits", "soft_tenant.lease=100", "--cost", "soft_tenant.lease=%RESP(x-cost)%",
	},
	"token-budget.md":  {"--from", "tenant=header:x-tenant-id", "--hits", "tenant.lease=100", "--cost", "tenant.lease=%RESP(x-cost)%"},
	"trial.md":         {"--from", "trial_user_id=header:x-user-id"},
	"upstream-time.md": {"--from", "tenant=header:x-tenant-id", "--cost", "tenant=%COMMON_DURATION(US_TX_BEG:US_RX_END:ms)%"},
}

// exampleSteps are requests under the rules of examples, with the expected verdicts.
var exampleSteps = map[string][]docStep{
	"../envoy/rules.yaml": {
		upTo(3, "'localhost:10000/?[1-4]' -H 'x-user-id: a' -H 'x-action: login'"),
		upTo(3, "'localhost:10000/?[1-4]' -H 'x-user-id: a' -H 'x-action: reply'"),
		upTo(3, "'localhost:10000/?[1-4]' -H 'x-user-id: a' -H 'x-action: post'"),
		{commands: "curl -s -o /dev/null -w '%{http_code}\n' 'localhost:10000/?[1-4]' -H 'x-user-id: a' -H 'x-action: other' | sort -u\n", output: "200\n"},
	},
	"../deploy/k8s/base/rules.yaml": {
		upTo(5, "'localhost:10000/?[1-6]' -H 'x-user-id: a' -H 'x-action: login'"),
		upTo(5, "'localhost:10000/?[1-6]' -H 'x-user-id: b' -H 'x-action: login'"),
		{commands: "curl -s -o /dev/null -w '%{http_code}\n' 'localhost:10000/?[1-80]' | sort -u\n", output: "200\n"},
		{commands: "curl -s -o /dev/null -w '%{http_code}\n' 'localhost:10000/?[1-1500]' | sort -u\n", output: "200\n429\n"},
	},
}

// upTo returns n requests that are admitted, and one that is denied.
func upTo(n int, arguments string) docStep {
	return docStep{commands: "curl -s -o /dev/null -w '%{http_code}\n' " + arguments + "\n", output: strings.Repeat("200\n", n) + "429\n"}
}

// genPages returns the recipes and examples. Settings of one recipe hold for all. The windows of
// envoy/rules.yaml last hours instead of seconds, so that none ends between two requests.
func genPages(t *testing.T) (frame string, pages []recipe) {
	t.Helper()
	frame, pages = readRecipes(t)
	for path, steps := range exampleSteps {
		text := must.Read(t, path)
		name := strings.ReplaceAll(strings.TrimPrefix(path, "../"), "/", "-")
		rules := strings.NewReplacer("domain: weir ", "domain: "+name+" ", "unit: second", "unit: hour").Replace(string(text))
		pages = append(pages, recipe{page: name, rules: rules, steps: steps})
	}
	for i := range pages {
		pages[i].settings = "RESPONSE_DYNAMIC_METADATA=true STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"
		if pages[i].page == "soft-budget.md" {
			// The page's Envoy copies metadata into a header, which weir gen does not write.
			for j, step := range pages[i].steps {
				pages[i].steps[j].output = strings.NewReplacer(" within", "", " exceeded", "").Replace(step.output)
			}
		}
	}
	return frame, pages
}

// weirGen runs weir gen for the rules of a page.
func weirGen(t *testing.T, kind string, r recipe, arguments ...string) string {
	t.Helper()
	bin := binary(t)
	rules := must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), r.rules)
	c := exec.CommandContext(t.Context(), bin, append([]string{"gen", kind, "--config", rules}, arguments...)...)
	var notes bytes.Buffer
	c.Stderr = &notes
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: weir gen %s: %v\n%s", r.page, kind, err, notes.String())
	}
	return string(out)
}

// Envoy accepts what weir gen writes for each recipe and example, and limits as the page shows.
func TestGeneratedEnvoyEnforcesRules(t *testing.T) {
	t.Parallel()
	frame, pages := genPages(t)
	for i, r := range pages {
		pages[i].listener = weirGen(t, "envoy", r, append(generatedFlags[r.page], "--upstream", "127.0.0.1:10001", "--service", "127.0.0.1:8081")...)
		if err := harness.Validate(t.Context(), must.Write(t, filepath.Join(t.TempDir(), "envoy.yaml"), pages[i].listener)); err != nil {
			t.Errorf("%s: %v", r.page, err)
		}
	}
	if t.Failed() {
		return
	}
	expectShownOutput(t, stores[0].redis, frame, pages)
}

// A patch is an element of configPatches of an EnvoyFilter.
type patch struct {
	ApplyTo string `yaml:"applyTo"`
	Patch   struct {
		Operation string         `yaml:"operation"`
		Value     map[string]any `yaml:"value"`
	} `yaml:"patch"`
}

// Envoy accepts the patches of each EnvoyFilter where Istio would insert them.
func TestGeneratedEnvoyFiltersAreAccepted(t *testing.T) {
	t.Parallel()
	_, pages := genPages(t)
	var listeners, clusters []any
	for i, r := range pages {
		flags := generatedFlags[r.page]
		if r.page == "allow-list.md" {
			flags = flags[2:] // Istio sets the number of trusted proxies for the mesh
		}
		text := weirGen(t, "envoyfilter", r, append(flags, "--service", "weir.example:8081")...)
		var filter struct {
			Spec struct {
				Patches []patch `yaml:"configPatches"`
			} `yaml:"spec"`
		}
		if err := yaml.Unmarshal([]byte(text), &filter); err != nil {
			t.Fatalf("%s: %v", r.page, err)
		}
		manager := map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in"}
		filters := []any{map[string]any{"name": "router", "typed_config": map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}}
		host := map[string]any{"name": "backend", "domains": []any{"*"}, "routes": []any{map[string]any{"match": map[string]any{"prefix": "/"}, "route": map[string]any{"cluster": "weir"}}}}
		for _, p := range filter.Spec.Patches {
			switch p.ApplyTo {
			case "NETWORK_FILTER":
				for key, value := range p.Patch.Value["typed_config"].(map[string]any) {
					manager[key] = value
				}
			case "HTTP_FILTER":
				filters = append(filters[:len(filters)-1], p.Patch.Value, filters[len(filters)-1])
			case "VIRTUAL_HOST":
				for key, value := range p.Patch.Value {
					host[key] = value
				}
			case "CLUSTER":
				clusters = []any{p.Patch.Value}
			default:
				t.Errorf("%s: a patch applies to %s", r.page, p.ApplyTo)
			}
		}
		manager["http_filters"] = filters
		manager["route_config"] = map[string]any{"virtual_hosts": []any{host}}
		listeners = append(listeners, map[string]any{
			"name": r.page, "address": map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 20000 + i}},
			"filter_chains": []any{map[string]any{"filters": []any{map[string]any{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}}}},
		})
	}
	text, err := yaml.Marshal(map[string]any{"static_resources": map[string]any{"listeners": listeners, "clusters": clusters}})
	must.Succeed(t, err)
	if err := harness.Validate(t.Context(), must.Write(t, filepath.Join(t.TempDir(), "envoy.yaml"), string(text))); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
