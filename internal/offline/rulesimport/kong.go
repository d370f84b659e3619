package rulesimport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/internal/offline/yamltree"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Kong reads the rate-limiting plugins of a declarative Kong configuration. domain is the domain
// of the rules.
func Kong(name string, data []byte, domain string) (*Imported, error) {
	documents, err := documentsOf(name, data)
	if err != nil {
		return nil, err
	}
	k := &kong{Imported: &Imported{name: name}, names: map[string]string{}, limited: map[string]bool{}, sent: map[string]string{}}
	k.domain = k.addDomain(cmp.Or(domain, "kong"))
	for _, doc := range documents {
		if !doc.IsMap() {
			return nil, doc.Errorf("want a declarative Kong configuration, with _format_version")
		}
		k.readNames(doc)
		k.readEntities("", "", doc)
	}
	k.addAll()
	if len(k.plugins) == 0 && len(k.Problems) == 0 {
		return nil, fmt.Errorf("%s has no plugin rate-limiting: pass the declarative configuration that deck gateway dump writes", name)
	}
	return k.Imported, nil
}

type kong struct {
	*Imported
	domain  *domain
	plugins []*kongPlugin
	paths   []kongPath
	names   map[string]string // the names of services, routes and consumers, by their id
	unnamed int               // services, routes and consumers without a name
	limited map[string]bool   // the scopes that have a rule
	sent    map[string]string // the scope in the --route for a prefix
}

// A kongPath is a path prefix of a route.
type kongPath struct {
	line           int
	prefix         string
	route, service string // their scopes
}

// A kongPlugin is a rate-limiting plugin.
type kongPlugin struct {
	line            int
	scope, consumer string               // "service:NAME", "route:NAME" or ""; the consumer or ""
	by              descriptors.NodeSpec // what the plugin counts by; no key: the scope
	header          string               // the source of by, if it is a header
	limits          []rulesyaml.DraftLimit
	faultTolerant   bool // Kong allows requests while it cannot count
}

// readNames reads the names of the entities that have an id, because a plugin may refer to the id.
func (k *kong) readNames(n yamltree.Tree) {
	for _, kind := range []string{"services", "routes", "consumers"} {
		for _, entity := range n.Get(kind).Items() {
			if id := entity.Get("id").Text(); id != "" {
				k.names[id] = k.nameOf(entity)
			}
			k.readNames(entity)
		}
	}
}

// readEntities reads services, routes, consumers and plugins, which may be nested.
func (k *kong) readEntities(scope, consumer string, n yamltree.Tree) {
	for _, service := range n.Get("services").Items() {
		k.readEntities("service:"+k.nameOf(service), consumer, service)
	}
	for _, route := range n.Get("routes").Items() {
		name := "route:" + k.nameOf(route)
		service := scope
		if of := k.referred(route.Get("service")); of != "" {
			service = "service:" + of
		}
		for _, path := range route.Get("paths").Items() {
			if text := path.Text(); strings.HasPrefix(text, "/") {
				k.paths = append(k.paths, kongPath{route.Line(), text, name, service})
			}
		}
		k.readEntities(name, consumer, route)
	}
	for _, c := range n.Get("consumers").Items() {
		k.readEntities(scope, k.nameOf(c), c)
	}
	for _, group := range n.Get("consumer_groups").Items() {
		for _, plugin := range group.Get("plugins").Items() {
			k.problem(plugin.Line(),
				"a plugin of a consumer group: Weir knows no groups; let a filter send the group as an entry, and write a rule by hand")
		}
	}
	for _, plugin := range n.Get("plugins").Items() {
		k.readPlugin(scope, consumer, plugin)
	}
}

// nameOf returns the name of a service, a route or a consumer. Names are optional in Kong, so an
// entity without a name gets a number.
func (k *kong) nameOf(entity yamltree.Tree) string {
	name := cmp.Or(entity.Get("name").Text(), entity.Get("username").Text(), entity.Get("custom_id").Text(), entity.Get("id").Text())
	if name == "" {
		k.unnamed++
		name = fmt.Sprintf("unnamed-%d", k.unnamed)
	}
	return name
}

// referred returns the name of the entity that a reference names by its name or id, "" without a
// reference.
func (k *kong) referred(reference yamltree.Tree) string {
	name := reference.Text()
	if reference.IsMap() {
		name = k.nameOf(reference)
	}
	return cmp.Or(k.names[name], name)
}

// kongPeriods are the periods of a plugin's limits, with their windows.
var kongPeriods = []struct{ name, start string }{
	{"second", ""}, {"minute", ""}, {"hour", ""}, {"day", ""}, {"month", "calendar"}, {"year", "calendar"},
}

func (k *kong) readPlugin(scope, consumer string, n yamltree.Tree) {
	switch name := n.Get("name").Text(); name {
	case "rate-limiting":
	case "rate-limiting-advanced", "response-ratelimiting", "ai-rate-limiting-advanced", "service-protection":
		k.problem(n.Line(), "the plugin %s is not imported: only rate-limiting is", name)
		return
	default:
		return
	}
	if n.Get("enabled").IsFalse() {
		k.note(n.Line(), "the plugin is disabled, and not imported")
		return
	}
	p := &kongPlugin{line: n.Line(), scope: scope, consumer: consumer}
	for _, of := range []string{"service", "route", "consumer", "consumer_group"} {
		name := k.referred(n.Get(of))
		switch {
		case name == "":
		case of == "consumer_group":
			k.problem(n.Line(), "a plugin of the consumer group %s: Weir knows no groups; write a rule by hand", name)
			return
		case of == "consumer":
			p.consumer = name
		default:
			p.scope = of + ":" + name
		}
	}
	config := k.checked(n.Get("config"), "second", "minute", "hour", "day", "month", "year", "limit_by", "header_name", "path", "policy",
		"fault_tolerant", "hide_client_headers", "error_code", "error_message", "redis", "redis_host", "redis_port", "redis_password",
		"redis_username", "redis_database", "redis_timeout", "redis_ssl", "redis_ssl_verify", "redis_server_name", "sync_rate")
	before := k.found
	k.readConfig(p, config)
	if k.found == before {
		k.plugins = append(k.plugins, p)
	}
}

// readConfig reads the limits of a plugin and what it counts by.
func (k *kong) readConfig(p *kongPlugin, config yamltree.Tree) {
	for _, period := range kongPeriods {
		value := config.Get(period.name)
		if !value.Exists() {
			continue
		}
		n, ok := value.Number(maxRequests)
		if !ok {
			k.problem(value.Line(), "%s is not a whole number from 0 to %d", period.name, int64(maxRequests))
			return
		}
		p.limits = append(p.limits,
			rulesyaml.DraftLimit{Unit: period.name, RequestsPerUnit: n, WindowStart: period.start, CountDenied: uncounted})
	}
	if len(p.limits) == 0 {
		k.problem(p.line, "the plugin has no second, minute, hour, day, month or year")
		return
	}
	policy := cmp.Or(config.Get("policy").Text(), "local")
	p.faultTolerant = !config.Get("fault_tolerant").IsFalse() && (policy == "redis" || policy == "cluster")
	if policy == "local" {
		k.note(p.line, "policy local counts in each Kong node: Weir counts once for all of Envoy")
	}
	for _, name := range []string{"error_code", "error_message", "hide_client_headers"} {
		if v := config.Get(name); v.Text() != "" && v.Text() != "false" && v.Text() != "429" {
			k.note(v.Line(), "%s is not carried over: see rate_limited_status and enable_x_ratelimit_headers of Envoy's filter, and "+
				"on_deny of rules", name)
		}
	}
	k.readLimitBy(p, config)
}

// readLimitBy reads the key by which a plugin counts.
func (k *kong) readLimitBy(p *kongPlugin, config yamltree.Tree) {
	switch by := cmp.Or(config.Get("limit_by").Text(), "consumer"); by {
	case "ip":
		p.by = entry("remote_address", "")
	case "consumer", "credential":
		p.by = entry(by, "")
		k.note(p.line, "limit_by %s: Kong counts a request without one by its address; in Envoy a filter must set the header x-%s for "+
			"each request, for example to the address", by, by)
	case "service":
		if p.scope == "" {
			k.problem(p.line, "limit_by service: Kong counts each service by itself; attach the plugin to each service")
			return
		}
	case "header":
		p.header = strings.ToLower(config.Get("header_name").Text())
		if p.header == "" {
			k.problem(p.line, "limit_by header without header_name")
			return
		}
		if strings.Contains(p.header, "*") {
			k.problem(p.line, "the header_name %s has a *, which is a wildcard in a key", p.header)
			return
		}
		p.by = entry(k.sourceKey(p.header, "header", p.header), "")
		k.note(p.line, "limit_by header: Kong counts a request without %s by its address, and Envoy sends no descriptor for it", p.header)
	case "path":
		path := config.Get("path").Text()
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "*") {
			k.problem(p.line, "limit_by path without a path that begins with / and has no *")
			return
		}
		p.by = entry("path", path)
		k.note(p.line, "limit_by path: Kong counts a request with another path by its address, and the rules do not limit it")
	default:
		k.problem(p.line, "limit_by %s is not imported: write a rule by hand", by)
	}
}

// addAll adds the rules. Kong runs only the most specific plugin for a request. So the scope of a
// request becomes one entry with one value.
func (k *kong) addAll() {
	scoped := slices.ContainsFunc(k.plugins, func(p *kongPlugin) bool { return p.scope != "" })
	for _, p := range k.plugins {
		replaced := func(o *kongPlugin) bool { return o.consumer == "" && (o.by.Key != "consumer" || o.scope != p.scope) }
		if p.consumer != "" && slices.ContainsFunc(k.plugins, replaced) {
			k.problem(p.line, "the plugin of the consumer %s replaces others that count by something else or in another scope: a rule "+
				"for it would add to them", p.consumer)
			continue
		}
		var path []descriptors.NodeSpec
		if scoped {
			path = append(path, entry("scope", cmp.Or(p.scope, "global")))
		}
		if p.consumer != "" {
			path = append(path, entry("consumer", p.consumer))
		}
		if p.by.Key != "" && (p.by.Key != "consumer" || p.consumer == "") {
			path = append(path, p.by)
		}
		if slices.ContainsFunc(path, func(l descriptors.NodeSpec) bool { return strings.Contains(l.Value, "*") }) {
			k.problem(p.line, "a name with a * would be a wildcard in a rule")
			continue
		}
		leaf := k.domain.rules.At(path)
		if len(leaf.Limits) > 0 {
			k.problem(p.line, "another plugin has the same scope, and Kong runs one of them")
			continue
		}
		for _, l := range p.limits {
			addLimit(leaf, l)
		}
		k.limited[cmp.Or(p.scope, "global")] = true
		if p.header != "" {
			k.flag("%s", fromFlag(p.by.Key, "header", p.header))
		}
		if scoped {
			k.scopeFlag(p)
		}
		if p.faultTolerant {
			k.domain.onStoreError = "allow"
		}
	}
	if scoped {
		k.addUnlimited()
	}
	if k.domain.onStoreError != "" && slices.ContainsFunc(k.plugins, func(p *kongPlugin) bool { return !p.faultTolerant }) {
		k.note(k.plugins[0].line, "on_store_error: allow holds for all rules, because some plugins are fault_tolerant")
	}
}

// scopeFlag adds a --route for each prefix of a plugin's scope. weir gen accepts one --route for
// each prefix.
func (k *kong) scopeFlag(p *kongPlugin) {
	scope := cmp.Or(p.scope, "global")
	unknown := "/PREFIX-OF-" + strings.ToUpper(strings.NewReplacer(":", "-", " ", "-").Replace(scope))
	var prefixes []string
	for _, path := range k.paths {
		if path.route == scope {
			prefixes = append(prefixes, path.prefix)
		}
	}
	switch {
	case p.scope == "":
		prefixes = []string{"/"}
	case len(prefixes) == 0:
		prefixes = []string{unknown}
	}
	for _, prefix := range prefixes {
		if k.sent[prefix] != "" && k.sent[prefix] != scope {
			routes := "route for " + scope
			if p.scope == "" {
				routes = "routes without a plugin"
			}
			k.note(p.line, "%s and another --route have the prefix %s: replace %s, or move its rate_limits to the Envoy %s",
				scope, prefix, unknown, routes)
			prefix = unknown
		}
		k.send(p.line, prefix, scope)
	}
}

// send adds the --route that sends a scope.
func (k *kong) send(line int, prefix, scope string) {
	if k.cannotRoute(line, prefix, "scope", scope) {
		return
	}
	k.sent[prefix] = scope
	k.flag("--route %s:scope=%s", prefix, scope)
}

// addUnlimited adds routes for paths of routes without a plugin, if Envoy would otherwise take a
// route with a shorter prefix and another scope. The scope none has no rule. The routes are added
// from the shortest prefix on, because Envoy may take an added one for a longer path.
func (k *kong) addUnlimited() {
	byLength := func(a, b kongPath) int { return len(a.prefix) - len(b.prefix) }
	for _, path := range slices.SortedStableFunc(slices.Values(k.paths), byLength) {
		if k.limited[path.route] {
			continue
		}
		scope := "none"
		if k.limited[path.service] {
			scope = path.service
		} else if k.limited["global"] {
			scope = "global"
		}
		taken := ""
		for end := len(path.prefix); end > 0 && taken == ""; end-- {
			taken = k.sent[path.prefix[:end]]
		}
		switch {
		case taken == "" || taken == scope:
		case k.sent[path.prefix] != "":
			k.note(path.line, "%s and another --route have the prefix %s: give %s an Envoy route with the entry (scope, %s)",
				path.route, path.prefix, path.route, scope)
		default:
			k.send(path.line, path.prefix, scope)
		}
	}
}
