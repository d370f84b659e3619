package rulesimport

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// EnvoyGateway reads the global limits of BackendTrafficPolicy resources. Each policy is a domain, NAMESPACE/NAME.
//
// Weir serves the rules of Envoy Gateway by xDS as they are. The imported rules are for an Envoy without Envoy Gateway.
func EnvoyGateway(name string, data []byte) (*Imported, error) {
	documents, err := documentsOf(name, data)
	if err != nil {
		return nil, err
	}
	g := &gateway{&Imported{name: name}}
	policies := 0
	for _, doc := range documents {
		f := g.fieldsOf(doc)
		if textOf(f["kind"]) != "BackendTrafficPolicy" {
			continue
		}
		policies++
		metadata := g.fieldsOf(f["metadata"])
		policy := cmp.Or(textOf(metadata["namespace"]), "default") + "/" + cmp.Or(textOf(metadata["name"]), "unnamed")
		g.readPolicy(policy, g.fieldsOf(g.fieldsOf(f["spec"])["rateLimit"], "type", "global", "local"))
	}
	if policies == 0 {
		return nil, fmt.Errorf("%s has no BackendTrafficPolicy: pass the output of kubectl get backendtrafficpolicies -o yaml", name)
	}
	return g.Imported, nil
}

type gateway struct{ *Imported }

func (g *gateway) readPolicy(policy string, limits map[string]*yaml.Node) {
	if local := limits["local"]; local != nil {
		g.problem(local.Line, "the policy %s has local limits, which Envoy decides without a rate limit service: keep them in Envoy", policy)
	}
	global := g.fieldsOf(limits["global"], "rules", "shared")
	for n, rule := range itemsOf(global["rules"]) {
		g.readRule(policy, n, textOf(global["shared"]) == "true", rule)
	}
}

var gatewayUnits = []string{"second", "minute", "hour", "day", "week", "month", "year"}

func (g *gateway) readRule(policy string, n int, shared bool, rule *yaml.Node) {
	before := len(g.Problems)
	f := g.fieldsOf(rule, "clientSelectors", "limit", "cost", "shared", "shadowMode", "name")
	fields := g.fieldsOf(f["limit"], "requests", "unit", "fromMetadata")
	if from := fields["fromMetadata"]; from != nil {
		g.problem(from.Line, "fromMetadata: the limit comes with the request, so no rule has its number; write limit.dynamic_metadata "+
			"in Envoy's rate_limits")
	}
	requests, ok := numberOf(fields["requests"], maxRequests)
	unit := strings.ToLower(textOf(fields["unit"]))
	if !ok || !slices.Contains(gatewayUnits, unit) {
		g.problem(firstLine(f["limit"], rule), "the limit has no number of requests, or no unit of %s", strings.Join(gatewayUnits, ", "))
	}
	path := []descriptors.Level{entry("rule", fmt.Sprintf("%s/%d", policy, n))}
	if shared = shared || textOf(f["shared"]) == "true"; !shared {
		path = append(path, entry("route", ""))
	}
	if selectors := itemsOf(f["clientSelectors"]); len(selectors) > 1 {
		g.problem(selectors[1].Line, "a rule with several clientSelectors: write a rule for each, because each has a counter of its own")
	} else if len(selectors) == 1 {
		path = append(path, g.readSelector(selectors[0])...)
	}
	keys := make([]string, len(path))
	for i, step := range path {
		keys[i] = step.Key
	}
	g.readCost(strings.Join(keys, "."), f["cost"])
	if len(g.Problems) > before {
		return // import a rule completely, or not at all
	}
	g.flag("--from rule=constant")
	if !shared {
		g.flag("--route /PREFIX:route=NAME-OF-THE-ROUTE")
	}
	leaf := g.domain(policy).root.At(path)
	leaf.ShadowMode = textOf(f["shadowMode"]) == "true"
	addLimit(leaf, rulesfile.DraftLimit{Unit: unit, RequestsPerUnit: requests})
}

// readCost reads the hits of a request, which are arguments of weir gen.
func (g *gateway) readCost(keys string, cost *yaml.Node) {
	f := g.fieldsOf(cost, "request", "response")
	hits := func(n *yaml.Node, flag string) {
		fields := g.fieldsOf(n, "from", "number", "metadata")
		metadata := g.fieldsOf(fields["metadata"])
		switch textOf(fields["from"]) {
		case "Number":
			g.flag("--%s %s=%s", flag, keys, textOf(fields["number"]))
		case "Metadata":
			g.flag("--%s '%s=%%DYNAMIC_METADATA(%s:%s)%%'", flag, keys, textOf(metadata["namespace"]), textOf(metadata["key"]))
		default:
			g.problem(n.Line, "the cost is from %s: want Number or Metadata", textOf(fields["from"]))
		}
	}
	request, response := f["request"], f["response"]
	if response != nil {
		number := textOf(g.fieldsOf(request)["number"])
		if request != nil && number != "0" {
			g.problem(request.Line, "a cost of the request and one of the response: weir gen peeks before a cost at the end, so write "+
				"Envoy's configuration by hand")
		}
		hits(response, "cost")
	} else if request != nil {
		hits(request, "hits")
	}
}

// readSelector returns the descriptors of a clientSelector, whose conditions must all hold.
func (g *gateway) readSelector(n *yaml.Node) (path []descriptors.Level) {
	f := g.fieldsOf(n, "headers", "methods", "path", "sourceCIDR", "queryParams")
	for _, h := range itemsOf(f["headers"]) {
		path = append(path, g.readMatch(h, "name", "header")...)
	}
	for _, q := range itemsOf(f["queryParams"]) {
		path = append(path, g.readMatch(q, "name", "query")...)
	}
	var methods []string
	for _, m := range itemsOf(f["methods"]) {
		fields := g.fieldsOf(m, "value", "invert")
		g.noInvert(fields)
		methods = append(methods, textOf(fields["value"]))
	}
	switch {
	case len(methods) == 1:
		path = append(path, entry("method", methods[0]))
	case len(methods) > 1:
		path = append(path, descriptors.Level{Entry: descriptors.Entry{Key: "method"}, Values: methods, ShareThreshold: true})
	}
	if f["path"] != nil {
		path = append(path, g.readPath(f["path"])...)
	}
	if f["sourceCIDR"] != nil {
		path = append(path, g.readCIDR(f["sourceCIDR"])...)
	}
	return path
}

func (g *gateway) noInvert(fields map[string]*yaml.Node) {
	if invert := fields["invert"]; textOf(invert) == "true" {
		g.problem(invert.Line,
			"invert: rules match values, and not their absence; send an entry with Envoy's header_value_match and expect_match: false")
	}
}

// readMatch reads a header or a parameter of the query.
func (g *gateway) readMatch(n *yaml.Node, name, kind string) []descriptors.Level {
	fields := g.fieldsOf(n, name, "type", "value", "invert")
	g.noInvert(fields)
	key, value := strings.ToLower(textOf(fields[name])), textOf(fields["value"])
	if kind == "query" {
		key = textOf(fields[name])
	}
	if key == "" || strings.Contains(key, "*") {
		g.problem(n.Line, "a %s without a name", kind)
		return nil
	}
	g.flag("--from %s=%s:%s", key, kind, key)
	switch textOf(fields["type"]) {
	case "", "Exact":
		if value == "" || strings.Contains(value, "*") {
			g.problem(n.Line, "the value %q of %s: a rule takes an empty value for any, and * for a wildcard", value, key)
		}
		return []descriptors.Level{entry(key, value)}
	case "Distinct":
		return []descriptors.Level{entry(key, "")}
	}
	g.problem(firstLine(fields["type"], n), "%s matches by %s: rules have exact values and wildcards, and no regular expressions", key,
		textOf(fields["type"]))
	return nil
}

func (g *gateway) readPath(n *yaml.Node) []descriptors.Level {
	fields := g.fieldsOf(n, "type", "value", "invert")
	g.noInvert(fields)
	value := textOf(fields["value"])
	switch kind := textOf(fields["type"]); {
	case strings.Contains(value, "*"):
		g.problem(n.Line, "the path %s has a *, which is a wildcard in a rule", value)
	case kind == "" || kind == "Exact":
		return []descriptors.Level{entry("path", value)}
	case kind == "PathPrefix" && value == "/":
		return nil
	case kind == "PathPrefix" && strings.HasSuffix(value, "/"):
		return []descriptors.Level{{Entry: descriptors.Entry{Key: "path", Value: value + "*"}, ShareThreshold: true}}
	case kind == "PathPrefix":
		g.problem(n.Line, "PathPrefix %s matches %s and %s/..., which no wildcard of a rule can express: write %s/ if that is enough",
			value, value, value, value)
	default:
		g.problem(n.Line, "the path matches by %s: rules have exact values and wildcards, and no regular expressions", kind)
	}
	return nil
}

func (g *gateway) readCIDR(n *yaml.Node) []descriptors.Level {
	fields := g.fieldsOf(n, "type", "value", "invert")
	g.noInvert(fields)
	prefix, err := netip.ParsePrefix(textOf(fields["value"]))
	if err != nil || prefix.Addr().Is4In6() {
		g.problem(n.Line, "sourceCIDR %s is not a prefix such as 10.0.0.0/8", textOf(fields["value"]))
		return nil
	}
	kind := cmp.Or(textOf(fields["type"]), "Exact")
	if kind != "Exact" && kind != "Distinct" {
		g.problem(n.Line, "sourceCIDR matches by %s: want Exact or Distinct", kind)
	}
	address := entry("remote_address", "")
	address.Prefixes, address.ShareThreshold = []netip.Prefix{prefix.Masked()}, kind == "Exact"
	return []descriptors.Level{address}
}
