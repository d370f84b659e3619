// Package actions tests package envoyactions against a real Envoy: the descriptors that it derives
// are those that Envoy sends. The package has tests only.
package actions

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/envoyactions"
)

const testTimeout = 2 * time.Minute // longer than any step takes on a busy machine

// A recorder is a rate limit service that admits every request, and keeps its descriptors by
// domain. Each test case has a domain of its own.
type recorder struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	addr string

	mu       sync.Mutex
	byDomain map[string][]string
}

func (r *recorder) ShouldRateLimit(_ context.Context, request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range request.GetDescriptors() {
		r.byDomain[request.GetDomain()] = append(r.byDomain[request.GetDomain()], sentText(d))
	}
	return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
}

// of returns the descriptors of a domain so far, sorted.
func (r *recorder) of(domain string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.byDomain[domain]))
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{byDomain: map[string][]string{}}
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, r)
	r.addr = grpctest.Listen(t, server)
	return r
}

// sentText returns a descriptor that Envoy sent, as a text.
func sentText(d *commonv3.RateLimitDescriptor) string {
	var b strings.Builder
	for _, e := range d.GetEntries() {
		fmt.Fprintf(&b, "(%q,%q)", e.GetKey(), e.GetValue())
	}
	hits := int64(1)
	if n := d.GetHitsAddend(); n != nil {
		hits = int64(n.GetValue())
	}
	if d.GetIsNegativeHits() {
		hits = -hits
	}
	fmt.Fprintf(&b, " hits %d", hits)
	if l := d.GetLimit(); l != nil {
		fmt.Fprintf(&b, " limit %d %v", l.GetRequestsPerUnit(), l.GetUnit())
	}
	return b.String()
}

// derivedText returns a derived descriptor, as sentText does.
func derivedText(r envoyactions.RateLimit) string {
	var b strings.Builder
	for _, e := range r.Entries {
		fmt.Fprintf(&b, "(%q,%q)", e.Key, e.Value)
	}
	fmt.Fprintf(&b, " hits %d", r.Hits)
	if l := r.Override; l != nil {
		fmt.Fprintf(&b, " limit %d %v", l.RequestsPerUnit, strings.ToUpper(l.Unit.String()))
	}
	return b.String()
}

// A check is a request, with the number of descriptors that it makes, so that a test without any
// effect fails.
type check struct {
	domain  string
	request envoyactions.Request
	sends   int
}

// The descriptors that package envoyactions derives are those that Envoy sends: for every action,
// with what it needs and without.
func TestDerivedDescriptorsAreSent(t *testing.T) {
	hosts, checks := actionHosts()
	moreHosts, moreChecks := routeHosts()
	hosts, checks = hosts+moreHosts, append(checks, moreChecks...)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	rec := startRecorder(t)
	dir := t.TempDir()
	envoy := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("testdata", "bootstrap.yaml"), Weir: rec.addr, Upstream: strings.TrimPrefix(upstream.URL, "http://"), Dir: dir,
		Timeout: testTimeout,
		Edit: func(text string) string {
			return strings.Replace(text, "virtual_hosts: [] # those of the test\n", "virtual_hosts:\n"+indent(hosts), 1)
		},
	})
	file := filepath.Join(dir, "envoy.yaml")
	data := must.Read(t, file)
	config, err := envoyactions.Parse("envoy.yaml", data)
	must.Succeed(t, err)
	for _, c := range checks {
		t.Run(c.domain, func(t *testing.T) { c.run(t, envoy, rec, config) })
	}
}

// indent moves virtual hosts to the right, below the key virtual_hosts.
func indent(hosts string) string {
	const columns = "                  "
	return columns + strings.ReplaceAll(strings.TrimSuffix(hosts, "\n"), "\n", "\n"+columns) + "\n"
}

func (c check) run(t *testing.T, envoy *harness.Envoy, rec *recorder, config *envoyactions.Config) {
	before := len(rec.of(c.domain))
	if before > 0 {
		t.Fatal("the domain has been used: name the case otherwise")
	}
	derived, err := config.Derive(&c.request)
	must.Succeed(t, err)
	want := []string{}
	for _, r := range derived.RateLimits {
		if r.Unknown {
			t.Errorf("%s: unknown: %s", r.Source, r.Reasons)
		}
		if !r.Skipped {
			want = append(want, derivedText(r))
		}
	}
	slices.Sort(want)
	if derived.Domain != c.domain && len(want) > 0 || len(want) != c.sends {
		t.Errorf("domain %s, %d descriptors, want %d: %+v", derived.Domain, len(want), c.sends, derived.RateLimits)
	}
	send(t, envoy, c.request)
	deadline := time.Now().Add(testTimeout)
	for len(rec.of(c.domain)) < len(want) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond) // those at the end of the stream arrive after the response
	}
	if got := rec.of(c.domain); !slices.Equal(got, want) {
		t.Errorf("Envoy sent %q, derived %q", got, want)
	}
}

func send(t *testing.T, envoy *harness.Envoy, r envoyactions.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, r.Method, envoy.URL+r.Path, nil)
	must.Succeed(t, err)
	request.Host = r.Host
	for _, h := range r.Headers {
		request.Header.Add(h.Name, h.Value)
	}
	request.Header.Set("X-Forwarded-For", r.RemoteAddress.String())
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
}

var (
	v4 = netip.MustParseAddr("198.51.100.77")
	v6 = netip.MustParseAddr("2001:db8:1:2::33")
)

// metadata is set by the filter set_metadata of the bootstrap. The number is not a string.
var metadata = map[string]string{"app:plan": "gold", "app:user.id": "u1", "app:empty": ""}

// An actionCase is a list of rate_limits and the requests for it. The number is that of the
// descriptors.
type actionCase struct {
	name, limits string
	requests     []actionRequest
}

type actionRequest struct {
	sends   int
	path    string // a query, appended to the path
	headers string // "name: value, name: value"
	address netip.Addr
}

// actions has each action, with what it needs and without. Each case runs as rate_limits of the
// route and as those of RateLimitPerRoute.
var actions = []actionCase{
	{"source_cluster", `[{actions: [{source_cluster: {}}]}]`, []actionRequest{{sends: 1}}},
	{"destination_cluster", `[{actions: [{destination_cluster: {}}]}]`, []actionRequest{{sends: 1}}},
	{"generic_key", `[{actions: [{generic_key: {descriptor_value: a}}, {generic_key: {descriptor_key: k, descriptor_value: "x%REQ(y)%"}}]}]`, []actionRequest{{sends: 1}}},
	{"request_headers", `[{actions: [{generic_key: {descriptor_value: a}}, {request_headers: {header_name: X-User, descriptor_key: user}}]}]`, []actionRequest{
		{sends: 1, headers: "x-user: 42"}, {}, {sends: 1, headers: "x-user: first, x-user: second"}, {sends: 1, headers: "x-user: "},
	}},
	{"skip_if_absent", `[{actions: [{request_headers: {header_name: x-user, descriptor_key: user, skip_if_absent: true}}, {generic_key: {descriptor_value: a}}]}]`, []actionRequest{
		{sends: 1, headers: "x-user: 42"}, {sends: 1},
	}},
	{"all_skipped", `[{actions: [{request_headers: {header_name: x-user, descriptor_key: user, skip_if_absent: true}}]}]`, []actionRequest{{sends: 1}}},
	{"pseudo_headers", `[{actions: [{request_headers: {header_name: ":path", descriptor_key: path}}, {request_headers: {header_name: ":method", descriptor_key: method}},
      {request_headers: {header_name: ":authority", descriptor_key: host}}]}]`, []actionRequest{{sends: 1, path: "?q=%20a"}}},
	{"query_parameters", `[{actions: [{query_parameters: {query_parameter_name: q, descriptor_key: q}}]}]`, []actionRequest{
		{sends: 1, path: "?a=b&q=1&q=2"}, {}, {sends: 1, path: "?q=a%20b+c%2Fd"}, {sends: 1, path: "?q"}, {sends: 1, path: "?q="}, {path: "?Q=1"},
		{sends: 1, path: "?q=a%20b%zz%4"}, {sends: 1, path: "?%71=%C3%BC%25"}, {sends: 1, path: "?&=x&q=1;r=2"}, {sends: 1, path: "?q=a?b=c"}, {sends: 1, path: "?q=1&%zz=2"},
	}},
	{"query_skip_if_absent", `[{actions: [{generic_key: {descriptor_value: a}}, {query_parameters: {query_parameter_name: q, descriptor_key: q, skip_if_absent: true}}]}]`, []actionRequest{
		{sends: 1, path: "?q=1"}, {sends: 1},
	}},
	{"remote_address", `[{actions: [{remote_address: {}}]}]`, []actionRequest{{sends: 1}, {sends: 1, address: v6}}},
	{"masked_remote_address", `[{actions: [{masked_remote_address: {v4_prefix_mask_len: 20, v6_prefix_mask_len: 56}}]}, {actions: [{masked_remote_address: {}}]}]`, []actionRequest{
		{sends: 2}, {sends: 2, address: v6},
	}},
	{"remote_address_match", `[{actions: [{remote_address_match: {descriptor_value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", address_matcher: {ranges: [{address_prefix: 198.51.100.0, prefix_len: 24}]}}}]},
      {actions: [{remote_address_match: {descriptor_key: other, descriptor_value: o, address_matcher: {invert_match: true, ranges: [{address_prefix: 198.51.100.0, prefix_len: 24}]}}}]}]`, []actionRequest{
		{sends: 1}, {sends: 1, address: v6},
	}},
	{"header_value_match", `[{actions: [{header_value_match: {descriptor_value: v, headers: [{name: x-plan, string_match: {prefix: go}}]}}]}]`, []actionRequest{
		{sends: 1, headers: "x-plan: gold"}, {headers: "x-plan: free"}, {}, {sends: 1, headers: "x-plan: go, x-plan: free"},
	}},
	{"expect_match", `[{actions: [{header_value_match: {descriptor_key: k, descriptor_value: v, expect_match: false, headers: [{name: x-plan, string_match: {exact: Gold, ignore_case: true}}]}}]}]`, []actionRequest{
		{headers: "x-plan: gold"}, {sends: 1, headers: "x-plan: free"}, {sends: 1},
	}},
	{"inverted", `[{actions: [{header_value_match: {descriptor_value: a, headers: [{name: x-plan, string_match: {exact: gold}, invert_match: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: b, headers: [{name: x-plan, string_match: {exact: gold}, invert_match: true, treat_missing_header_as_empty: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: c, headers: [{name: x-plan, present_match: true, invert_match: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: d, headers: [{name: x-plan, present_match: false}]}}]},
      {actions: [{header_value_match: {descriptor_value: e, headers: [{name: x-plan}]}}]},
      {actions: [{header_value_match: {descriptor_value: f, headers: [{name: x-plan, present_match: false, invert_match: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: g, headers: [{name: x-plan, present_match: true, treat_missing_header_as_empty: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: h, headers: [{name: x-plan, present_match: false, treat_missing_header_as_empty: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: i, headers: [{name: x-plan, present_match: true, treat_missing_header_as_empty: true, invert_match: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: j, headers: [{name: x-plan, treat_missing_header_as_empty: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: k, headers: [{name: x-plan, range_match: {start: 1, end: 2}, invert_match: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: l, headers: [{name: x-plan, string_match: {exact: ""}}]}}]},
      {actions: [{header_value_match: {descriptor_value: m, headers: [{name: x-plan, string_match: {exact: ""}, treat_missing_header_as_empty: true}]}}]},
      {actions: [{header_value_match: {descriptor_value: o, headers: [{name: host, string_match: {exact: actions.test}}, {name: ":scheme", string_match: {exact: http}}]}}]}]`, []actionRequest{
		{sends: 7}, {sends: 6, headers: "x-plan: gold"}, {sends: 8, headers: "x-plan: free"}, {sends: 10, headers: "x-plan: "},
	}},
	{"matchers", `[{actions: [{header_value_match: {descriptor_value: a, headers: [{name: x-n, range_match: {start: 1, end: 10}}]}}]},
      {actions: [{header_value_match: {descriptor_value: b, headers: [{name: x-n, string_match: {safe_regex: {regex: "1|10"}}}, {name: ":method", string_match: {exact: GET}}]}}]},
      {actions: [{header_value_match: {descriptor_value: c, headers: [{name: x-n, string_match: {contains: "0"}}]}}]},
      {actions: [{header_value_match: {descriptor_value: d, headers: [{name: x-n, string_match: {suffix: "0"}}]}}]}]`, []actionRequest{
		{}, {sends: 2, headers: "x-n: 1"}, {sends: 3, headers: "x-n: 10"}, {sends: 2, headers: "x-n: 100"}, {headers: "x-n: a"},
	}},
	{"query_parameter_value_match", `[{actions: [{query_parameter_value_match: {descriptor_value: v, query_parameters: [{name: q, string_match: {exact: "a b"}}]}}]},
      {actions: [{query_parameter_value_match: {descriptor_key: k, descriptor_value: v, expect_match: false, query_parameters: [{name: q, present_match: true}]}}]},
      {actions: [{query_parameter_value_match: {descriptor_value: w, query_parameters: [{name: q, present_match: false}]}}]},
      {actions: [{query_parameter_value_match: {descriptor_value: x, query_parameters: [{name: q}, {name: r, string_match: {safe_regex: {regex: ".*"}}}]}}]},
      {actions: [{query_parameter_value_match: {descriptor_value: z, query_parameters: [{name: q, string_match: {safe_regex: {regex: "[a-c]%zz"}}}]}}]}]`, []actionRequest{
		{sends: 2}, {sends: 1, path: "?q=a%20b"}, {path: "?q=c"}, {sends: 1, path: "?q=1&r"}, {sends: 1, path: "?q=c%zz"}, {path: "?q=1&q=a%20b"},
	}},
	{"metadata", `[{actions: [{metadata: {descriptor_key: a, metadata_key: {key: app, path: [{key: plan}]}}}]},
      {actions: [{metadata: {descriptor_key: b, metadata_key: {key: app, path: [{key: user}, {key: id}]}}}]},
      {actions: [{metadata: {descriptor_key: c, metadata_key: {key: app, path: [{key: user}, {key: age}]}}}]},
      {actions: [{metadata: {descriptor_key: d, default_value: none, metadata_key: {key: app, path: [{key: missing}]}}}]},
      {actions: [{metadata: {descriptor_key: e, metadata_key: {key: app, path: [{key: missing}]}}}]},
      {actions: [{generic_key: {descriptor_value: f}}, {metadata: {descriptor_key: f, skip_if_absent: true, metadata_key: {key: app, path: [{key: empty}]}}}]},
      {actions: [{metadata: {descriptor_key: g, source: ROUTE_ENTRY, metadata_key: {key: app, path: [{key: team}]}}}]},
      {actions: [{metadata: {descriptor_key: h, source: CLUSTER_ENTRY, metadata_key: {key: app, path: [{key: tier}]}}}]}]`, []actionRequest{{sends: 6}}},
	{"expressions", `[{actions: [{extension: {name: e, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: path, text: request.url_path}}}]},
      {actions: [{extension: {name: e, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: whole, text: request.path}}},
        {extension: {name: e, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: method, text: request.method}}},
        {extension: {name: e, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: host, text: request.host}}}]}]`, []actionRequest{
		{sends: 2}, {sends: 2, path: "?a=b&q=1"}, {sends: 2, path: "?"},
	}},
	{"hits_and_limit", `[{actions: [{generic_key: {descriptor_value: a}}], hits_addend: {number: 5}},
      {actions: [{generic_key: {descriptor_value: b}}], hits_addend: {number: 0}},
      {actions: [{generic_key: {descriptor_value: c}}], hits_addend: {number: 2, is_negative_hits: true}},
      {actions: [{generic_key: {descriptor_value: d}}], limit: {rate_limit: {requests_per_unit: 7, unit: HOUR}}},
      {actions: [{generic_key: {descriptor_value: e}}], apply_on_stream_done: true}]`, []actionRequest{{sends: 5}}},
}

// actionHosts returns a virtual host with a route for each case, and the requests.
func actionHosts() (hosts string, checks []check) {
	hosts = "  - name: actions\n    domains: [actions.test]\n    routes:\n"
	for _, c := range actions {
		for _, level := range []string{"route", "per_route"} {
			for i, r := range c.requests {
				domain := fmt.Sprintf("%s_%s_%d", c.name, level, i)
				own, inRoute := "", ", rate_limits: "+c.limits
				if level == "per_route" {
					own, inRoute = ", rate_limits: "+c.limits, ""
				}
				hosts += fmt.Sprintf("    - {match: {path: /%s}, metadata: {filter_metadata: {app: {team: red}}}, route: {cluster: backend%s}, typed_per_filter_config: {%s}}\n",
					domain, inRoute, perRoute(domain, own))
				checks = append(checks, check{domain: domain, sends: r.sends, request: r.request("actions.test", "/"+domain)})
			}
		}
	}
	return hosts, checks
}

// perRoute returns the settings of the filter for a route.
func perRoute(domain, more string) string {
	return fmt.Sprintf(`envoy.filters.http.ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, domain: %q%s}`, domain, more)
}

func (r actionRequest) request(host, path string) envoyactions.Request {
	made := envoyactions.Request{Method: "GET", Host: host, Path: path + r.path, RemoteAddress: v4, Metadata: metadata}
	if r.address.IsValid() {
		made.RemoteAddress = r.address
	}
	for h := range strings.SplitSeq(r.headers, ", ") {
		if name, value, ok := strings.Cut(h, ": "); ok {
			made.Headers = append(made.Headers, envoyactions.Header{Name: name, Value: value})
		}
	}
	return made
}

// routeHosts returns virtual hosts whose routes differ in how they match. Each route has a domain
// of its own.
func routeHosts() (hosts string, checks []check) {
	add := func(domain string, sends int, method, host, path, headers string) {
		r := actionRequest{headers: headers}.request(host, path)
		r.Method = method
		checks = append(checks, check{domain: domain, sends: sends, request: r})
	}
	const one = "rate_limits: [{actions: [{generic_key: {descriptor_value: a}}]}]"
	for name, domains := range map[string]string{
		"exact": "[a.match.test]", "suffix": `["*.match.test"]`, "long": `["*.b.match.test"]`, "prefix": `["a.match.*"]`, "any": `["*"]`,
	} {
		hosts += fmt.Sprintf("  - {name: %s, domains: %s, routes: [{match: {prefix: /}, route: {cluster: backend, %s}, typed_per_filter_config: {%s}}]}\n",
			name, domains, one, perRoute("host_"+name, ""))
	}
	add("host_exact", 1, "GET", "A.match.test:8080", "/", "")
	add("host_suffix", 1, "GET", "c.match.test", "/", "")
	add("host_long", 1, "GET", "a.b.match.test", "/", "")
	add("host_prefix", 1, "GET", "a.match.com", "/", "")
	add("host_any", 1, "GET", "match.test", "/", "")

	hosts += "  - name: matches\n    domains: [matches.test]\n    routes:\n"
	for _, r := range []struct{ domain, match, method, path, headers string }{
		{"match_path", "{path: /exact}", "GET", "/exact?q=1", ""},
		{"match_case", "{prefix: /UPPER, case_sensitive: false}", "GET", "/upper/x", ""},
		{"match_separated", "{path_separated_prefix: /sep}", "GET", "/sep/x", ""},
		{"match_regex", "{safe_regex: {regex: '/r[0-9]+'}}", "GET", "/r12?x", ""},
		{"match_method", "{prefix: /m, headers: [{name: ':method', string_match: {exact: POST}}]}", "POST", "/m", ""},
		{"match_header", "{prefix: /m, headers: [{name: x-v, string_match: {exact: '2'}}]}", "GET", "/m", "x-v: 2"},
		{"match_query", "{prefix: /m, query_parameters: [{name: q, string_match: {exact: 'a%20b'}}]}", "GET", "/m?q=a%20b", ""},
		{"match_grpc", "{prefix: /grpc, grpc: {}}", "POST", "/grpc", "content-type: application/grpc"},
		{"match_grpcweb", "{prefix: /grpc, headers: [{name: x-n, string_match: {exact: '1'}}]}", "POST", "/grpc", "content-type: application/grpc-web, x-n: 1"},
		{"match_grpcparam", "{prefix: /grpc}", "POST", "/grpc", "content-type: application/grpc; charset=utf-8"},
		{"match_rest", "{prefix: /}", "GET", "/separate", ""},
	} {
		hosts += fmt.Sprintf("    - {match: %s, route: {cluster: backend, %s}, typed_per_filter_config: {%s}}\n", r.match, one, perRoute(r.domain, ""))
		add(r.domain, 1, r.method, "matches.test", r.path, r.headers)
	}

	hosts += "  - name: weighted\n    domains: [weighted.test]\n    routes:\n"
	hosts += fmt.Sprintf("    - {match: {prefix: /}, route: {weighted_clusters: {clusters: [{name: backend, weight: 1, typed_per_filter_config: {%s}}]}, %s}, typed_per_filter_config: {%s}}\n",
		perRoute("weighted_cluster", ""), one, perRoute("weighted_route", ""))
	add("weighted_cluster", 1, "GET", "weighted.test", "/", "")

	const two = "rate_limits: [{actions: [{generic_key: {descriptor_value: b}}]}, {stage: 1, actions: [{generic_key: {descriptor_value: late}}]}]"
	hosts += "  - name: inherited\n    domains: [inherited.test]\n    " + two + "\n    routes:\n"
	for _, r := range []struct {
		domain, route, own string
		sends              int
	}{
		{"vh_empty", "", "", 1}, {"vh_route", ", " + one, "", 1}, {"vh_included", ", include_vh_rate_limits: true, " + one, "", 2},
		{"vh_include", ", " + one, ", vh_rate_limits: INCLUDE", 2}, {"vh_ignore", "", ", vh_rate_limits: IGNORE", 0},
		{"vh_override", ", include_vh_rate_limits: true, " + one, ", " + one, 1},
	} {
		hosts += fmt.Sprintf("    - {match: {path: /%s}, route: {cluster: backend%s}, typed_per_filter_config: {%s}}\n", r.domain, r.route, perRoute(r.domain, r.own))
		add(r.domain, r.sends, "GET", "inherited.test", "/"+r.domain, "")
	}
	return hosts, checks
}
