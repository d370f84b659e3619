package envoyactions

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/internal/offline/yamltree"
)

// selected returns the elements with a name, or all of them for "". It also returns the names of
// all elements, as a text.
func selected[T any](all []T, name string, nameOf func(*T) string) (found []*T, names string) {
	var list []string
	for i := range all {
		list = append(list, nameOf(&all[i]))
		if name == "" || list[i] == name {
			found = append(found, &all[i])
		}
	}
	return found, strings.Join(list, ", ")
}

// manager returns the connection manager of the request's listener.
func (c *Config) manager(r *Request) (*manager, error) {
	found, names := selected(c.managers, r.Listener, func(m *manager) string { return m.listener })
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no listener %s has a rate limit filter; these have one: %s", r.Listener, names)
	case len(found) > 1:
		return nil, fmt.Errorf("%d connection managers have a rate limit filter: set --listener to one of %s", len(found), names)
	case found[0].rds != "":
		return nil, fmt.Errorf("the routes of listener %s come by RDS: pass the route configuration %s as --envoy", found[0].listener,
			found[0].rds)
	}
	return found[0], nil
}

// filter returns the rate limit filter of the request.
func (m *manager) filter(r *Request) (*filter, error) {
	if len(m.filters) == 0 {
		return &filter{name: cmp.Or(r.Filter, filterName)}, nil
	}
	found, names := selected(m.filters, r.Filter, func(f *filter) string { return f.name })
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no rate limit filter has the name %s; these exist: %s", r.Filter, names)
	case len(found) > 1 && r.Filter != "":
		return nil, fmt.Errorf("%d rate limit filters have the name %s: give each a name of its own", len(found), r.Filter)
	case len(found) > 1:
		return nil, fmt.Errorf("%d rate limit filters call one after the other: set --filter to one of %s", len(found), names)
	}
	return found[0], nil
}

// hostOf returns the virtual host of the request: by its exact name, by the longest suffix
// (*.example.com), by the longest prefix (example.*), or by *.
func (m *manager) hostOf(r *Request) *host {
	name := strings.ToLower(r.Host)
	if i := strings.LastIndexByte(name, ':'); i >= 0 && m.anyPort && !strings.HasSuffix(name, "]") {
		name = name[:i]
	}
	var best *host
	rank := 0
	for i := range m.hosts {
		for _, d := range m.hosts[i].domains {
			if got := domainRank(d, name); got > rank {
				best, rank = &m.hosts[i], got
			}
		}
	}
	return best
}

// domainRank returns how specific a matching domain is, or 0 if it does not match.
func domainRank(domain, name string) int {
	const exact, suffix, prefix = 3 << 20, 2 << 20, 1 << 20
	switch {
	case domain == name && name != "":
		return exact
	case domain == "*":
		return 1
	case strings.HasPrefix(domain, "*") && strings.HasSuffix(name, domain[1:]) && len(name) >= len(domain):
		return suffix + len(domain)
	case strings.HasSuffix(domain, "*") && strings.HasPrefix(name, domain[:len(domain)-1]) && len(name) >= len(domain):
		return prefix + len(domain)
	}
	return 0
}

// routeOf returns the first route that matches, or nil. If a route before it is undecidable, the
// error names that route.
func (h *host) routeOf(r *Request) (*route, error) {
	if m := h.tree.Field("matcher"); m.Exists() {
		return nil, m.Errorf("a matcher selects the route, which is not supported: pass the route alone as --envoy")
	}
	for i := range h.routes {
		matches, err := matchRoute(h.routes[i].match, r)
		if err != nil {
			return nil, h.routes[i].tree.Errorf("cannot decide whether the route matches: %w: pass the route alone as --envoy without "+
				"this condition", err)
		}
		if matches {
			return &h.routes[i], nil
		}
	}
	return nil, nil
}

// perRoute returns the settings of the filter for the route: those of its weighted cluster, the
// route, the virtual host or the route configuration. Of several weighted clusters, none may have
// settings, because Envoy chooses a cluster at random.
func (d *deriver) perRoute(m *manager, f *filter) (settings yamltree.Tree, disabled bool, err error) {
	levels := d.route.weighted()
	if len(levels) > 1 {
		for _, configs := range levels {
			if config := configs.Get(f.name); config.Exists() {
				return yamltree.Tree{}, false, config.Errorf("Envoy chooses one of %d weighted clusters at random, and this one has settings of "+
					"the filter %s: pass the route alone as --envoy with only one of the clusters", len(levels), f.name)
			}
		}
	}
	levels = append(levels, d.route.tree.Field("typed_per_filter_config"), d.host.tree.Field("typed_per_filter_config"), m.perRoute)
	for _, all := range levels {
		config := all.Get(f.name)
		if !config.Exists() {
			continue
		}
		if hasType(config, wrapperType) {
			if config.Field("disabled").IsTrue() {
				return yamltree.Tree{}, true, nil
			}
			config = config.Field("config")
			if !config.Exists() {
				continue
			}
		}
		return config, false, nil
	}
	return yamltree.Tree{}, f.disabled, nil
}

// weighted returns typed_per_filter_config of each weighted cluster that Envoy may choose.
func (r *route) weighted() (all []yamltree.Tree) {
	for _, cluster := range r.tree.Field("route", "weighted_clusters", "clusters").Items() {
		if cluster.Field("weight").Text() == "0" {
			continue // Envoy never chooses it
		}
		all = append(all, cluster.Field("typed_per_filter_config"))
	}
	return all
}

func (f *filter) stage() uint32 {
	n, err := strconv.ParseUint(f.tree.Field("stage").Text(), 0, 32)
	if err != nil {
		return 0 // the filter has none
	}
	return uint32(n)
}

// ignoredHostReason returns the reason why the rate limits of the virtual host have no effect, or
// "".
func (d *deriver) ignoredHostReason(settings yamltree.Tree) string {
	include := d.route.tree.Field("route", "include_vh_rate_limits").IsTrue()
	switch mode := settings.Field("vh_rate_limits").Text(); {
	case include || mode == "INCLUDE" || mode == "1":
		return ""
	case mode == "IGNORE" || mode == "2":
		return "vh_rate_limits is IGNORE"
	case len(d.route.elements) > 0:
		return "the route has rate_limits, and include_vh_rate_limits is not set"
	}
	return ""
}
