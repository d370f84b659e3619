package rulesimport

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/offline/envoygen"
	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/internal/offline/yamltree"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// EnvoyGateway reads the global limits of BackendTrafficPolicy resources. Each policy is a domain,
// NAMESPACE/NAME.
//
// Weir serves the rules of Envoy Gateway by xDS as they are. The imported rules are for an Envoy
// without Envoy Gateway.
func EnvoyGateway(name string, data []byte) (*Imported, error) {
	documents, err := documentsOf(name, data)
	if err != nil {
		return nil, err
	}
	g := &gateway{&Imported{name: name}}
	policies := 0
	for _, doc := range documents { // a List of kubectl has the resources as its items
		documents = append(documents, doc.Get("items").Items()...)
	}
	for _, doc := range documents {
		if doc.Get("kind").Text() != "BackendTrafficPolicy" {
			continue
		}
		policies++
		metadata := doc.Get("metadata")
		policy := cmp.Or(metadata.Get("namespace").Text(), "default") + "/" + cmp.Or(metadata.Get("name").Text(), "unnamed")
		g.readPolicy(policy, g.checked(doc.Get("spec", "rateLimit"), "type", "global", "local"))
	}
	if policies == 0 {
		return nil, fmt.Errorf("%s has no BackendTrafficPolicy: pass the output of kubectl get backendtrafficpolicies -o yaml", name)
	}
	return g.Imported, nil
}

type gateway struct{ *Imported }

func (g *gateway) readPolicy(policy string, limits yamltree.Tree) {
	if local := limits.Get("local"); local.Exists() {
		g.problem(local.Line(), "the policy %s has local limits, which Envoy decides without a rate limit service: keep them in Envoy", policy)
	}
	global := g.checked(limits.Get("global"), "rules", "shared")
	for n, rule := range global.Get("rules").Items() {
		g.readRule(policy, n, global.Get("shared").IsTrue(), rule)
	}
}

func (g *gateway) readRule(policy string, n int, shared bool, rule yamltree.Tree) {
	before, flags := g.found, len(g.flags)
	f := g.checked(rule, "clientSelectors", "limit", "cost", "shared", "shadowMode", "name")
	fields := g.checked(f.Get("limit"), "requests", "unit", "fromMetadata")
	if from := fields.Get("fromMetadata"); from.Exists() {
		g.problem(from.Line(), "fromMetadata: the limit comes with the request, so no rule has its number; write limit.dynamic_metadata "+
			"in Envoy's rate_limits")
	}
	requests, ok := fields.Get("requests").Number(maxRequests)
	unit := descriptors.ParseUnit(fields.Get("unit").Text())
	if !ok || unit == descriptors.UnitUnknown {
		g.problem(cmp.Or(fields.Line(), rule.Line()), "the limit has no number of requests, or no unit of %s", strings.Join(descriptors.UnitNames(), ", "))
	}
	path := []descriptors.NodeSpec{entry("rule", fmt.Sprintf("%s/%d", policy, n))}
	shared = shared || f.Get("shared").IsTrue()
	if !shared {
		path = append(path, entry("route", ""))
	}
	if selectors := f.Get("clientSelectors").Items(); len(selectors) > 1 {
		g.problem(selectors[1].Line(), "a rule with several clientSelectors: write a rule for each, because each has a counter of its own")
	} else if len(selectors) == 1 {
		path = append(path, g.readSelector(selectors[0])...)
	}
	keys := make([]string, len(path))
	for i, step := range path {
		keys[i] = step.Key
	}
	g.readCost(envoygen.JoinKeys(keys), f.Get("cost"))
	if g.found > before {
		g.flags = g.flags[:flags]
		return // import a rule completely, or not at all
	}
	g.flag("--from rule=constant")
	if !shared {
		g.flag("--route /PREFIX:route=NAME-OF-THE-ROUTE")
	}
	leaf := g.addDomain(policy).rules.At(path)
	leaf.ShadowMode = f.Get("shadowMode").IsTrue()
	addLimit(leaf, rulesyaml.DraftLimit{Unit: unit.String(), RequestsPerUnit: requests})
}

// readCost reads the hits of a request, which are arguments of weir gen.
func (g *gateway) readCost(keys string, cost yamltree.Tree) {
	f := g.checked(cost, "request", "response")
	hits := func(n yamltree.Tree, flag string) {
		fields := g.checked(n, "from", "number", "metadata")
		metadata := fields.Get("metadata")
		switch fields.Get("from").Text() {
		case "Number":
			g.flag("--%s '%s=%s'", flag, keys, fields.Get("number").Text())
		case "Metadata":
			g.flag("--%s '%s=%%DYNAMIC_METADATA(%s:%s)%%'", flag, keys, metadata.Get("namespace").Text(), metadata.Get("key").Text())
		default:
			g.problem(n.Line(), "the cost is from %s: want Number or Metadata", fields.Get("from").Text())
		}
	}
	request, response := f.Get("request"), f.Get("response")
	if response.Exists() {
		if request.Get("number").Text() != "0" {
			g.problem(cmp.Or(request.Line(), response.Line()), "a cost of the request, which is 1 by default, and one of the response: "+
				"weir gen peeks before a cost at the end, so write Envoy's configuration by hand")
		}
		hits(response, "cost")
	} else if request.Exists() {
		hits(request, "hits")
	}
}

// readSelector returns the descriptors of one of the clientSelectors, whose conditions must all
// hold.
func (g *gateway) readSelector(n yamltree.Tree) (path []descriptors.NodeSpec) {
	f := g.checked(n, "headers", "methods", "path", "sourceCIDR", "queryParams")
	for _, h := range f.Get("headers").Items() {
		path = append(path, g.readMatch(h, "header")...)
	}
	for _, q := range f.Get("queryParams").Items() {
		path = append(path, g.readMatch(q, "query")...)
	}
	var methods []string
	for _, m := range f.Get("methods").Items() {
		fields := g.match(m, "value")
		switch value := fields.Get("value").Text(); {
		case value == "" || strings.Contains(value, "*"):
			g.problem(m.Line(), "the method %q: a rule takes an empty value for any, and * for a wildcard", value)
		case !slices.Contains(methods, value):
			methods = append(methods, value)
		}
	}
	switch {
	case len(methods) == 1:
		path = append(path, entry("method", methods[0]))
	case len(methods) > 1:
		path = append(path, descriptors.NodeSpec{Entry: descriptors.Entry{Key: "method"}, Values: methods, ShareThreshold: true})
	}
	if p := f.Get("path"); p.Exists() {
		path = append(path, g.readPath(p)...)
	}
	if cidr := f.Get("sourceCIDR"); cidr.Exists() {
		path = append(path, g.readCIDR(cidr)...)
	}
	return path
}

// match returns a match with the known keys. It records a problem if the match is inverted.
func (g *gateway) match(n yamltree.Tree, known ...string) yamltree.Tree {
	if invert := g.checked(n, append(known, "invert")...).Get("invert"); invert.IsTrue() {
		g.problem(invert.Line(),
			"invert: rules match values, and not their absence; send an entry with Envoy's header_value_match and expect_match: false")
	}
	return n
}

// readMatch reads a match of a header or of a parameter of the query. kind is header or query.
func (g *gateway) readMatch(n yamltree.Tree, kind string) []descriptors.NodeSpec {
	fields := g.match(n, "name", "type", "value")
	name, value := fields.Get("name").Text(), fields.Get("value").Text()
	if kind == "header" {
		name = strings.ToLower(name)
	}
	if name == "" || strings.Contains(name, "*") {
		g.problem(n.Line(), "a %s without a name", kind)
		return nil
	}
	key := g.sourceKey(name, kind, name)
	g.flag("%s", fromFlag(key, kind, name))
	match := fields.Get("type")
	switch match.Text() {
	case "", "Exact":
		if value == "" || strings.Contains(value, "*") {
			g.problem(n.Line(), "the value %q of %s: a rule takes an empty value for any, and * for a wildcard", value, name)
		}
		return []descriptors.NodeSpec{entry(key, value)}
	case "Distinct":
		return []descriptors.NodeSpec{entry(key, "")}
	}
	g.problem(cmp.Or(match.Line(), n.Line()), "%s matches by %s: rules have exact values and wildcards, and no regular expressions",
		name, match.Text())
	return nil
}

// readPath reads a path. The defaults of its fields are those of Envoy Gateway's API.
func (g *gateway) readPath(n yamltree.Tree) []descriptors.NodeSpec {
	fields := g.match(n, "type", "value")
	value := cmp.Or(fields.Get("value").Text(), "/")
	switch kind := cmp.Or(fields.Get("type").Text(), "PathPrefix"); {
	case strings.Contains(value, "*"):
		g.problem(n.Line(), "the path %s has a *, which is a wildcard in a rule", value)
	case kind == "Exact":
		return []descriptors.NodeSpec{entry("path", value)}
	case kind == "PathPrefix" && value == "/":
		return nil
	case kind == "PathPrefix" && strings.HasSuffix(value, "/"):
		return []descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "path", Value: value + "*"}, ShareThreshold: true}}
	case kind == "PathPrefix":
		g.problem(n.Line(), "PathPrefix %s matches %s and %s/..., which no wildcard of a rule can express: write %s/ if that is enough",
			value, value, value, value)
	default:
		g.problem(n.Line(), "the path matches by %s: rules have exact values and wildcards, and no regular expressions", kind)
	}
	return nil
}

func (g *gateway) readCIDR(n yamltree.Tree) []descriptors.NodeSpec {
	fields := g.match(n, "type", "value")
	prefix, err := netip.ParsePrefix(fields.Get("value").Text())
	if err != nil || prefix.Addr().Is4In6() {
		g.problem(n.Line(), "sourceCIDR %s is not a prefix such as 10.0.0.0/8", fields.Get("value").Text())
		return nil
	}
	kind := cmp.Or(fields.Get("type").Text(), "Exact")
	if kind != "Exact" && kind != "Distinct" {
		g.problem(n.Line(), "sourceCIDR matches by %s: want Exact or Distinct", kind)
	}
	address := entry("remote_address", "")
	address.Prefixes, address.ShareThreshold = []netip.Prefix{prefix.Masked()}, kind == "Exact"
	return []descriptors.NodeSpec{address}
}
