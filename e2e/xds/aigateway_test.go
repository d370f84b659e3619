package xds_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// aiNode is the node id to which Envoy AI Gateway's controller sends the rules of QuotaPolicies.
const aiNode = "envoy-ai-gateway-ratelimit"

// quotas returns the message of Envoy AI Gateway's controller for one backend. The model small has
// a quota, the model big has bucket rules, and all other models have a quota each.
func quotas() *conf.RateLimitConfig {
	limit := func(unit conf.RateLimitUnit, n uint32) *conf.RateLimitPolicy {
		return &conf.RateLimitPolicy{Unit: unit, RequestsPerUnit: n}
	}
	return &conf.RateLimitConfig{Name: "ai-gateway-quota", Domain: "ai-gateway-quota", Descriptors: []*conf.RateLimitDescriptor{{
		Key: "backend_name", Value: "default/openai", Descriptors: []*conf.RateLimitDescriptor{
			{Key: "model_name_override", Value: "small", RateLimit: limit(conf.RateLimitUnit_YEAR, 10), QuotaMode: true},
			{Key: "model_name_override", Value: "big", Descriptors: []*conf.RateLimitDescriptor{
				{Key: "rule-0-x-plan|gold-match-0", Value: "rule-0-x-plan|gold-match-0", Descriptors: []*conf.RateLimitDescriptor{
					{Key: "rule-0-x-user-match-1", RateLimit: limit(conf.RateLimitUnit_YEAR, 8), QuotaMode: true},
				}},
				{Key: "rule-1-x-team-match-0", RateLimit: limit(conf.RateLimitUnit_MINUTE, 3), ShadowMode: true, QuotaMode: true},
				{Key: "rule-2-match--1", Value: "rule-2-match--1", RateLimit: limit(conf.RateLimitUnit_YEAR, 5), QuotaMode: true},
			}},
			{Key: "model_name_override", RateLimit: limit(conf.RateLimitUnit_DAY, 1000), QuotaMode: true},
		},
	}}}
}

// aiWeir starts Weir as Envoy AI Gateway's manifest starts the service: with its arguments and
// variables. Ports and files belong to the test.
func aiWeir(t *testing.T, controller, rulesFile string) (p *harness.Process, grpc, http string) {
	t.Helper()
	ports := harness.MustFreePorts(t, 3)
	cmd := exec.Command(asRatelimit(t), "--quotaRateLimitServiceHost="+aiNode+".envoy-gateway-system")
	cmd.Env = append(os.Environ(),
		"LOG_LEVEL=debug", "USE_STATSD=false", "RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID="+aiNode, "CONFIG_GRPC_XDS_SERVER_URL="+controller,
		"CONFIG_GRPC_XDS_RULES_FILE="+rulesFile,
		"BACKEND_TYPE=memory", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "DRAIN_DELAY=0s",
		fmt.Sprint("GRPC_PORT=", ports[0]), fmt.Sprint("PORT=", ports[1]), fmt.Sprint("DEBUG_PORT=", ports[2]),
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=50ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=100ms")
	grpc, http = fmt.Sprint("127.0.0.1:", ports[0]), fmt.Sprint("http://127.0.0.1:", ports[1])
	return harness.MustStart(t, cmd, harness.Listens(grpc)), grpc, http
}

// healthy reports whether the service wants requests.
func healthy(t *testing.T, url string) bool {
	_, err := harness.Get(t.Context(), url+"/healthcheck")
	return err == nil
}

// aiBootstrap changes a bootstrap file as Envoy AI Gateway's controller changes the configuration
// of its Envoys. Headers replace its external processor: they set the metadata that it sets.
func aiBootstrap(t *testing.T) func(text string) string {
	metadata := func(key, name string) string {
		return fmt.Sprintf("{metadata: {descriptor_key: %s, metadata_key: {key: io.envoy.ai_gateway, path: [{key: %s}]}, source: DYNAMIC}}", key, name)
	}
	var limits []string
	for _, bucket := range []string{
		"",
		`, {header_value_match: {descriptor_key: "rule-0-x-plan|gold-match-0", descriptor_value: "rule-0-x-plan|gold-match-0", expect_match: true,` +
			` headers: [{name: x-plan, string_match: {exact: gold}}]}}, {request_headers: {header_name: x-user, descriptor_key: rule-0-x-user-match-1}}`,
		", {request_headers: {header_name: x-team, descriptor_key: rule-1-x-team-match-0}}",
		", {generic_key: {descriptor_key: rule-2-match--1, descriptor_value: rule-2-match--1}}",
	} {
		actions := "[" + metadata("backend_name", "ai_service_backend_name") + ", " + metadata("model_name_override", "model_name_override") + bucket + "]"
		limits = append(limits, "{actions: "+actions+"}",
			"{actions: "+actions+`, apply_on_stream_done: true, hits_addend: {format: "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%"}}`)
	}
	set := func(header, key, kind string) string {
		return fmt.Sprintf("{header: %s, on_header_present: {metadata_namespace: io.envoy.ai_gateway, key: %s, type: %s}}", header, key, kind)
	}
	return func(text string) string {
		replace := func(old, with string) {
			if strings.Count(text, old) != 1 {
				t.Errorf("%d times in the bootstrap file: %s", strings.Count(text, old), old)
			}
			text = strings.Replace(text, old, with, 1)
		}
		replace("domain: weir ", "domain: ai-gateway-quota ")
		replace("http_filters:\n                  - name: envoy.filters.http.ratelimit\n", `http_filters:
                  - name: envoy.filters.http.header_to_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
                      request_rules: [`+set("x-backend", "ai_service_backend_name", "STRING")+", "+set("x-model", "model_name_override", "STRING")+`]
                      response_rules: [`+set("x-tokens", "llm_total_token", "NUMBER")+`]
                  - name: envoy.filters.http.ratelimit
`)
		replace("                        - match: {prefix: /}\n                          route:\n", `                        - match: {prefix: /}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              domain: ai-gateway-quota
                              rate_limits: [`+strings.Join(limits, ", ")+`]
                          route:
`)
		replace("direct_response: {status: 200,", `response_headers_to_add: [{header: {key: x-tokens, value: "%REQ(x-tokens)%"}}]
                          direct_response: {status: 200,`)
		return text
	}
}

// Weir is the rate limit service of Envoy AI Gateway's QuotaPolicies. A real Envoy with its
// configuration asks at the start of a request, and charges the tokens at the end.
func TestAIGatewayQuotaLimitsTokens(t *testing.T) {
	controller := newServer(t)
	controller.Node = aiNode
	controller.serve("127.0.0.1:0")
	weir, grpcAddr, httpURL := aiWeir(t, controller.address, filepath.Join(t.TempDir(), "rules.json"))
	if r := controller.request(); r.GetNode().GetId() != aiNode {
		t.Errorf("the first request is %v", r)
	}
	if healthy(t, httpURL) {
		t.Error("ready without rules")
	}
	controller.set("1", quotas())
	controller.acknowledged("1")
	must.Until(t, "Weir is ready", func() bool { return healthy(t, httpURL) })
	if !strings.Contains(weir.Log(), "unknown argument --quotaRateLimitServiceHost ignored") {
		t.Errorf("no warning of the unknown argument:\n%s", weir.Log())
	}
	envoy := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("..", "..", "envoy", "bootstrap.yaml"), Weir: grpcAddr, Timeout: stepTimeout, Edit: aiBootstrap(t),
	})

	decided := func() float64 { // requests that Weir has answered
		return harness.MustMetrics(t, httpURL).Sum("weir_requests_total")
	}
	// ask sends one request and waits until its tokens are charged: Envoy asks once at its start
	// and once at its end.
	ask := func(model, tokens string, headers ...string) int {
		t.Helper()
		before := decided()
		ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, envoy.URL, nil)
		must.Succeed(t, err)
		for _, h := range append(headers, "x-backend: default/openai", "x-model: "+model, "x-tokens: "+tokens) {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		if response.StatusCode == http.StatusOK {
			must.Until(t, "the charge at the end", func() bool { return decided() >= before+2 })
		}
		return response.StatusCode
	}
	for i, step := range []struct {
		model, tokens string
		headers       []string
		want          int
	}{
		{"small", "7", nil, 200},  // 1 at the start and 7 at the end: 8 of 10
		{"small", "7", nil, 200},  // 9, and the tokens exceed the quota
		{"small", "7", nil, 429},  // denied
		{"other", "50", nil, 200}, // the quota of all other models
		{"big", "3", nil, 200},    // the default bucket: 4 of 5
		{"big", "3", nil, 200},    // exceeded
		{"big", "3", nil, 429},
		{"big", "2", []string{"x-plan: gold", "x-user: alice"}, 200}, // alice has a bucket: one bucket over is not enough
		{"big", "6", []string{"x-plan: gold", "x-user: alice"}, 200}, // exceeded
		{"big", "1", []string{"x-plan: gold", "x-user: alice"}, 429}, // both are over
		{"big", "1", []string{"x-plan: gold", "x-user: bob"}, 200},   // bob has a bucket of his own
	} {
		if got := ask(step.model, step.tokens, step.headers...); got != step.want {
			t.Errorf("request %d, %s %v: %d, want %d", i+1, step.model, step.headers, got, step.want)
		}
	}
}

// A process that starts while the control plane is unreachable has the rules that an earlier
// process received. The control plane's answer replaces them.
func TestRestartDuringXDSOutageKeepsRules(t *testing.T) {
	controller, file := newServer(t), filepath.Join(t.TempDir(), "rules.json")
	controller.Node = aiNode
	controller.set("1", config("a", 1))
	controller.serve("127.0.0.1:0")
	weir, _, url := aiWeir(t, controller.address, file)
	controller.request()
	controller.acknowledged("1")
	must.Until(t, "Weir is ready", func() bool { return healthy(t, url) })
	controller.stop()
	harness.MustStop(t, weir)

	again, _, url := aiWeir(t, controller.address, file)
	must.Until(t, "Weir is ready with the rules of the file", func() bool { return healthy(t, url) })
	rules := func() float64 { return harness.MustMetrics(t, url)["weir_rules"] }
	if got := rules(); got != 1 {
		t.Errorf("%v rules, want 1", got)
	}
	back := newServer(t)
	back.Node = aiNode
	back.set("1", config("a", 1), config("b", 2))
	back.serve(controller.address)
	must.Until(t, "the control plane's rules", func() bool { return rules() == 2 })
	harness.MustStop(t, again)

	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `domain: \"b\"`) {
		t.Errorf("the file is %s, %v", text, err)
	}
}
