package envoyactions

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

var listenerBlock = regexp.MustCompile("(?ms)^```yaml envoy.yaml\n(.*?)^```$")

// Envoy's configuration in every recipe and example is read, and a request to it is derived without
// a fault and without an unknown descriptor.
func TestExamplesDerive(t *testing.T) {
	files := map[string]string{}
	for _, pattern := range []string{"../../../envoy/bootstrap*.yaml", "../../../docs/recipes/listeners/*.yaml", "../../../docs/*.md", "../../../e2e/streamdone/testdata/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("glob %s: got %v, error %v, want files", pattern, paths, err)
		}
		for _, path := range paths {
			data := must.Read(t, path)
			if strings.HasSuffix(path, ".yaml") {
				files[path] = string(data)
				continue
			}
			for _, block := range listenerBlock.FindAllStringSubmatch(string(data), -1) {
				if strings.Contains(block[1], "rate_limits") {
					files[path] = block[1]
				}
			}
		}
	}
	if len(files) < 15 {
		t.Errorf("%d examples: this test no longer finds them", len(files))
	}
	for path, text := range files {
		config, err := Parse(path, []byte(text))
		if err != nil {
			t.Errorf("%v, want no fault", err)
			continue
		}
		derived := 0
		for _, m := range config.managers {
			for _, h := range m.hosts {
				for _, r := range h.routes {
					request := &Request{Method: "GET", Path: r.match.GetPrefix() + r.match.GetPath(), RemoteAddress: netip.MustParseAddr("192.0.2.1"), Listener: m.listener}
					got, err := config.Derive(request)
					if err != nil {
						t.Errorf("derive from %s: %v", path, err)
						continue
					}
					derived += len(got.RateLimits)
					for _, l := range got.RateLimits {
						if l.Unknown {
							t.Errorf("%s: unknown: %v", l.Source, l.Reasons)
						}
					}
				}
			}
		}
		if derived == 0 {
			t.Errorf("%s: no rate limits", path)
		}
	}
}

const oneRoute = "match: {prefix: /}\nroute:\n  cluster: backend\n  rate_limits:\n"

func TestFaultsNameTheirPosition(t *testing.T) {
	const tooLarge = "the file is too large or too deep, with its aliases replaced: pass only the part that has the limits"
	for text, want := range map[string]string{
		"":                                  "f.yaml: the file is empty",
		"{":                                 "f.yaml:1:1: '{' is not closed: add '}'",
		"a: b":                              "f.yaml:1: neither a bootstrap",
		"[1]":                               "f.yaml:1: neither a bootstrap",
		"match: {prefix: /}\n---\na: b\n":   "f.yaml:3: a second document",
		"domain: shop\ndescriptors: []\n":   "f.yaml:1: neither a bootstrap",
		"static_resources: {listeners: []}": "no listener has an HTTP connection manager with a rate limit filter",
		oneRoute + "  - actions:\n    - remote_adress: {}\n":              `action 1 of rate_limits: f.yaml:6: no valid envoy.config.route.v3.RateLimit.Action: unknown field "remote_adress"`,
		oneRoute + "  - actions:\n    - {}\n":                             "f.yaml:6: action 1 of rate_limits is empty",
		oneRoute + "  - actions: []\n":                                    "f.yaml:5: Envoy rejects rate_limits without actions",
		oneRoute + "  - actions: [{remote_address: {}}]\n    stages: 1\n": `f.yaml:5: no valid envoy.config.route.v3.RateLimit: unknown field "stages"`,
		"match: {prefx: /}\nroute: {cluster: a}\n":                        `f.yaml:1: no valid envoy.config.route.v3.RouteMatch: unknown field "prefx"`,
		"domains: ['*']\nroutes:\n- {route: {}}\n":                        "f.yaml:3: the route has no match",
		"match: {prefix: /}\ntyped_per_filter_config:\n  a:\n    '@type': x/" + perRouteType + "\n    rate_limits: [{stage: 1, actions: [{remote_address: {}}]}]\n": "f.yaml:5: Envoy rejects stage and disable_key here",
		"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n": tooLarge,
		"a: &a [*a]\n": tooLarge,
	} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Envoy 1.40 does the same: e2e/actions has these cases, and compares them with the descriptors
// that Envoy sends.
func TestDerivationFollowsEnvoy(t *testing.T) {
	for _, c := range []struct {
		what, limit, path string
		sends             bool
	}{
		{"an inverted matcher does not match a missing header",
			`actions: [{header_value_match: {descriptor_value: a, headers: [{name: x-plan, string_match: {exact: gold}, invert_match: true}]}}]`, "/", false},
		{"a parameter of the query is decoded before it is compared",
			`actions: [{query_parameter_value_match: {descriptor_value: v, query_parameters: [{name: q, string_match: {exact: "a b"}}]}}]`, "/?q=a%20b", true},
		{"the hits_addend of a route is ignored", `actions: [{generic_key: {descriptor_value: a}}], hits_addend: {number: 5}`, "/", true},
	} {
		config, err := Parse("f.yaml", []byte(oneRoute+"  - {"+c.limit+"}\n"))
		must.Succeed(t, err)
		derived, err := config.Derive(&Request{Method: "GET", Path: c.path})
		must.Succeed(t, err)
		if l := derived.RateLimits[0]; l.Skipped == c.sends || l.Unknown || !l.Skipped && l.Hits != 1 {
			t.Errorf("%s: got %+v, want a known descriptor of 1 hit that is sent: %t", c.what, l, c.sends)
		}
	}
}

// Other content types that begin with application/grpc, such as that of gRPC-Web, are not gRPC.
func TestOnlyContentTypesOfGRPCMatch(t *testing.T) {
	config, err := Parse("f.yaml", []byte(`
domains: ["*"]
routes:
- {match: {prefix: /, grpc: {}}, route: {cluster: c, rate_limits: [{actions: [{generic_key: {descriptor_value: grpc}}]}]}}
- {match: {prefix: /}, route: {cluster: c, rate_limits: [{actions: [{generic_key: {descriptor_value: other}}]}]}}
`))
	must.Succeed(t, err)
	for contentType, want := range map[string]string{
		"application/grpc": "grpc", "application/grpc+proto": "grpc", "application/grpc-web": "other", "application/grpc-web+proto": "other",
		"application/grpc; charset=utf-8": "other", "application/json": "other",
	} {
		derived, err := config.Derive(&Request{Method: "POST", Path: "/", Headers: []Header{{"Content-Type", contentType}}})
		must.Succeed(t, err)
		if got := derived.RateLimits[0].Entries[0].Value; got != want {
			t.Errorf("%s: route %s, want %s", contentType, got, want)
		}
	}
}

// weightedRoute has the settings of the filter for each cluster.
const weightedRoute = `
match: {prefix: /}
typed_per_filter_config: {envoy.filters.http.ratelimit: {"@type": x/` + perRouteType + `, rate_limits: [{actions: [{generic_key: {descriptor_value: route}}]}]}}
route:
  weighted_clusters:
    clusters:
    - {name: c, weight: 1, typed_per_filter_config: {envoy.filters.http.ratelimit: {"@type": x/` + perRouteType + `, rate_limits: [{actions: [ACTION]}]}}}
`

func TestSettingsOfAWeightedClusterComeFirst(t *testing.T) {
	weighted := strings.Replace(weightedRoute, "ACTION", "{generic_key: {descriptor_value: weighted}}", 1)
	config, err := Parse("f.yaml", []byte(weighted))
	must.Succeed(t, err)
	derived, err := config.Derive(&Request{Method: "GET", Path: "/"})
	must.Succeed(t, err)
	if l := derived.RateLimits; len(l) != 1 || l[0].Skipped || l[0].Entries[0].Value != "weighted" {
		t.Errorf("got %+v, want the descriptor of the weighted cluster", l)
	}
	// The chosen cluster is unknown.
	config, err = Parse("f.yaml", []byte(weighted+"    - {name: d, weight: 1}\n"))
	must.Succeed(t, err)
	if _, err := config.Derive(&Request{Method: "GET", Path: "/"}); err == nil || !strings.Contains(err.Error(), "f.yaml:7: Envoy chooses one of 2 weighted clusters") {
		t.Errorf("two clusters: got error %v, want the settings of one of them", err)
	}
	if _, err := Parse("f.yaml", []byte(strings.Replace(weightedRoute, "ACTION", "{remote_adress: {}}", 1))); err == nil || !strings.Contains(err.Error(), "remote_adress") {
		t.Errorf("an invalid action: got error %v, want its name", err)
	}
}

// The keys of typed_per_filter_config are names of filters, so they have no second spelling.
func TestSettingsOfAnotherFilterDoNotApply(t *testing.T) {
	text := "filter_chains: [{filters: [{typed_config: {'@type': x/" + hcmType + ", http_filters: [{name: my_rl, typed_config: {'@type': x/" +
		filterType + ", domain: d}}], route_config: {virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, " +
		"route: {cluster: c}, typed_per_filter_config: {NAME: {'@type': x/" + perRouteType + ", domain: other}}}]}]}}}]}]\n"
	for name, want := range map[string]string{"my_rl": "other", "myRl": "d"} {
		config, err := Parse("f.yaml", []byte(strings.Replace(text, "NAME", name, 1)))
		must.Succeed(t, err)
		derived, err := config.Derive(&Request{Method: "GET", Path: "/", Host: "a.test"})
		must.Succeed(t, err)
		if derived.Domain != want {
			t.Errorf("settings of %s: the domain is %s, want %s", name, derived.Domain, want)
		}
	}
}

// Values that the file and the request do not determine are named, and not guessed.
func TestUnknownIsNamed(t *testing.T) {
	for actions, want := range map[string]string{
		`[{remote_address: {}}]`:        "action 1: remote_address needs the address of the client: set --remote-address",
		`[{masked_remote_address: {}}]`: "set --remote-address",
		`[{source_cluster: {}}]`:        "set --service-cluster",
		`[{extension: {name: my.action, typed_config: {"@type": type.googleapis.com/my.Type, a: 1}}}]`:                                         "action 1: the extension my.action is not supported",
		`[{metadata: {descriptor_key: k, source: CLUSTER_LOCALITY_ENTRY, metadata_key: {key: a, path: [{key: b}]}}}]`:                          "metadata from CLUSTER_LOCALITY_ENTRY is not supported",
		`[{metadata: {descriptor_key: k, source: CLUSTER_ENTRY, metadata_key: {key: a, path: [{key: b}]}}}]`:                                   "the cluster of the route is not in the file",
		`[{header_value_match: {descriptor_value: v, headers: [{name: a, string_match: {safe_regex: {regex: "("}}}]}}]`:                        "missing closing )",
		`[{header_value_match: {descriptor_value: v, headers: [{name: a, string_match: {custom: {name: c, typed_config: {"@type": x/y}}}}]}}]`: "custom one, which is not supported",
	} {
		config, err := Parse("f.yaml", []byte(oneRoute+"  - actions: "+actions+"\n"))
		if err != nil {
			t.Errorf("parse %s: %v", actions, err)
			continue
		}
		derived, err := config.Derive(&Request{Method: "GET", Path: "/", Headers: []Header{{"a", "b"}}})
		if err != nil {
			t.Errorf("derive from %s: %v", actions, err)
			continue
		}
		l := derived.RateLimits[0]
		if !l.Unknown || !l.Skipped || len(l.Entries) > 0 || !strings.Contains(strings.Join(l.Reasons, "; "), want) {
			t.Errorf("%s: %+v, want %s", actions, l, want)
		}
	}
}

// An action that drops the descriptor in any case makes it known. Without the header no matcher
// matches, not even an inverted one that is not supported.
func TestDroppedDescriptorIsKnown(t *testing.T) {
	for _, actions := range []string{
		`[{remote_address: {}}, {request_headers: {header_name: x, descriptor_key: x}}]`,
		`[{header_value_match: {descriptor_value: v, headers: [{name: x, invert_match: true, string_match: {custom: {name: c, typed_config: {"@type": x/y}}}}]}}]`,
	} {
		config, err := Parse("f.yaml", []byte(oneRoute+"  - actions: "+actions+"\n"))
		must.Succeed(t, err)
		if derived, err := config.Derive(&Request{Method: "GET", Path: "/"}); err != nil || derived.RateLimits[0].Unknown || !derived.RateLimits[0].Skipped {
			t.Errorf("%s: got %+v, error %v, want a skipped descriptor that is known", actions, derived, err)
		}
	}
}

// A route or a filter that the request does not determine is a fault that names it.
func TestUndecidedRouteIsAFault(t *testing.T) {
	const inFile, byRDS = "route_config: {virtual_hosts: []}", "rds: {route_config_name: rc}"
	manager := func(routes string, filters ...string) string {
		named := ""
		for _, name := range filters {
			named += "{name: " + name + ", typed_config: {'@type': x/" + filterType + ", domain: d}}, "
		}
		return "{filters: [{typed_config: {'@type': x/" + hcmType + ", http_filters: [" + named + "], " + routes + "}}]}"
	}
	route := func(matcher string) string {
		return "domains: ['*']\nroutes:\n- {match: {prefix: /, " + matcher + "}, route: {cluster: c}}\n"
	}
	for text, want := range map[string]string{
		"domains: [a.test]\n":           `no virtual host has the host "b.test": set --host`,
		"domains: ['*']\nname: v\n":     "no route of virtual host v matches GET /p: Envoy answers 404",
		"domains: ['*']\n":              "no route of virtual host f.yaml:1 matches GET /p: Envoy answers 404",
		"domains: ['*']\nmatcher: {}\n": "f.yaml:2: a matcher selects the route",
		route("runtime_fraction: {default_value: {numerator: 50}}"): "f.yaml:3: cannot decide whether the route matches: " +
			"runtime_fraction selects requests at random",
		route("cookies: [{name: a, string_match: {exact: b}}]"):                       "f.yaml:3: cannot decide whether the route matches: cookies",
		"filter_chains: [" + manager(inFile, "a", "b") + "]":                          "set --filter to one of a, b",
		"filter_chains: [" + manager(inFile, "a") + ", " + manager(inFile, "a") + "]": "2 connection managers have a rate limit filter: set --listener",
		"name: in\nfilter_chains: [" + manager(byRDS, "a") + "]":                      "the routes of listener in come by RDS: pass the route configuration rc",
	} {
		config, err := Parse("f.yaml", []byte(text))
		if err != nil {
			t.Errorf("parse %q: %v", text, err)
			continue
		}
		if got, err := config.Derive(&Request{Method: "GET", Path: "/p", Host: "b.test"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %s", text, got, err, want)
		}
	}
}

// No file and no request makes the parser or the derivation fail otherwise than with an error.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"../../../envoy/bootstrap.yaml", "../../../e2e/streamdone/testdata/bootstrap.yaml"} {
		data := must.Read(f, path)
		f.Add(data, "/", "x-user-id")
	}
	f.Add([]byte(oneRoute+"  - actions: [{masked_remote_address: {v4_prefix_mask_len: 99}}]\n"), "/?a=%zz&b", "a")
	f.Add([]byte("match: {prefix: /}\nroute: {rate_limits: [{actions: [{metadata: {}}, {header_value_match: {headers: [{}]}}], limit: {}}]}\ntyped_per_filter_config: x\n"), "#?", "")
	f.Fuzz(func(t *testing.T, data []byte, path, header string) {
		config, err := Parse("f", data)
		if err != nil {
			return
		}
		for _, address := range []string{"192.0.2.1", "::1"} {
			derived, err := config.Derive(&Request{Method: "GET", Path: path, Headers: []Header{{header, path}}, RemoteAddress: netip.MustParseAddr(address)})
			if err != nil {
				continue
			}
			for _, l := range derived.RateLimits {
				if l.Skipped && (len(l.Entries) > 0 || len(l.Reasons) == 0) || l.Source == "" {
					t.Errorf("%+v, want a source, and for a skipped element a reason and no entries", l)
				}
			}
		}
	})
}

// Envoy reads YAML 1.1, in which yes, no, on, off, y and n without quotes are booleans.
func TestWordsWithoutQuotesAreBooleans(t *testing.T) {
	const route = `{match: {prefix: /}, route: {cluster: c, include_vh_rate_limits: %, rate_limits: [{actions: [{source_cluster: {}}]}]}}`
	for word, want := range map[string]bool{"yes": true, "On": true, "Y": true, "True": true, "no": false, "OFF": false, "false": false} {
		text := `{name: v, domains: ["*"], rate_limits: [{actions: [{remote_address: {}}]}], routes: [` + strings.Replace(route, "%", word, 1) + `]}`
		config, err := Parse("host.yaml", []byte(text))
		if err != nil {
			t.Fatalf("parse with the boolean %s: %v", word, err)
		}
		derived, err := config.Derive(&Request{Method: "GET", Path: "/", ServiceCluster: "s", RemoteAddress: netip.MustParseAddr("192.0.2.1")})
		if err != nil {
			t.Fatalf("derive with the boolean %s: %v", word, err)
		}
		if got := !derived.RateLimits[1].Skipped; got != want {
			t.Errorf("include_vh_rate_limits: %s is %t: %+v, want %t", word, got, derived.RateLimits, want)
		}
	}
	const value = `{match: {prefix: /}, route: {cluster: c, rate_limits: [{actions: [{generic_key: {descriptor_value: %}}]}]}}`
	if _, err := Parse("route.yaml", []byte(strings.Replace(value, "%", "no", 1))); err == nil {
		t.Error("the value no without quotes is read as a text, and Envoy rejects it")
	}
	if _, err := Parse("route.yaml", []byte(strings.Replace(value, "%", `"no"`, 1))); err != nil {
		t.Error(err)
	}
}

// An API version is often a date. Envoy has no type for dates.
func TestDatesWithoutQuotesAreTexts(t *testing.T) {
	const text = `{match: {prefix: /, headers: [{name: api-version, string_match: {exact: 2024-06-01}}]}, route: {cluster: c, ` +
		`rate_limits: [{actions: [{generic_key: {descriptor_value: 2024-06-01}}]}]}}`
	config, err := Parse("route.yaml", []byte(text))
	must.Succeed(t, err)
	derived, err := config.Derive(&Request{Method: "GET", Path: "/", Headers: []Header{{"api-version", "2024-06-01"}}})
	must.Succeed(t, err)
	if got := derived.RateLimits[0].Entries; len(got) != 1 || got[0].Value != "2024-06-01" {
		t.Errorf("got the entries %v, want the value 2024-06-01", got)
	}
}
