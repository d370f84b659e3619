// Package envoyactions derives the descriptors that Envoy sends for a request, from the rate_limits of a route.
//
//	config, err := envoyactions.Parse("envoy.yaml", data)
//	derived, err := config.Derive(&envoyactions.Request{Method: "GET", Path: "/", Headers: headers})
//
// The package follows the rules of Envoy 1.40. It reports a value as unknown if the value depends on more than the configuration
// and the request, as the value of a CEL expression does.
package envoyactions

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

const (
	hcmType      = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	filterType   = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	perRouteType = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
	wrapperType  = "envoy.config.route.v3.FilterConfig"
	filterName   = "envoy.filters.http.ratelimit"
)

// A Config is the part of Envoy's configuration that makes descriptors.
type Config struct {
	managers []manager
	cluster  string // node.cluster
	clusters map[string]*corev3.Metadata
}

// A manager is an HTTP connection manager: a list of filters and a route configuration.
type manager struct {
	listener string
	filters  []filter
	hosts    []host
	rds      string // the name of a route configuration that is not in the file
	perRoute tree   // typed_per_filter_config of the route configuration
	anyPort  bool   // ignore_port_in_host_matching
}

// A filter is a rate limit filter. Its tree is the zero tree if the file has no filters.
type filter struct {
	name     string
	domain   string
	tree     tree
	elements []element
	disabled bool
}

type host struct {
	tree     tree
	name     string
	domains  []string
	routes   []route
	elements []element
}

type route struct {
	tree     tree
	match    *routev3.RouteMatch
	elements []element
}

// An element is an element of a list rate_limits.
type element struct {
	tree   tree
	config *routev3.RateLimit
}

// Parse reads YAML or JSON of a bootstrap, a listener, a route configuration, a virtual host or a route. Sources and errors use the
// name of the file.
func Parse(name string, data []byte) (*Config, error) {
	root, err := readTree(name, data)
	if err != nil {
		return nil, err
	}
	c := &Config{cluster: root.get("node", "cluster").text(), clusters: map[string]*corev3.Metadata{}}
	var listeners []tree
	switch {
	case root.get("static_resources").exists():
		listeners = root.get("static_resources", "listeners").items()
		err = c.readClusters(root.get("static_resources", "clusters").items())
	case root.get("filter_chains").exists():
		listeners = []tree{root}
	case root.get("virtual_hosts").exists():
		err = c.readRoutes(&manager{}, root)
	case root.get("domains").exists():
		err = c.readHosts(&manager{}, []tree{root})
	case root.get("match").exists():
		var r route
		if r, err = readRoute(root); err == nil {
			c.managers = []manager{{hosts: []host{{tree: tree{file: name}, domains: []string{"*"}, routes: []route{r}}}}}
		}
	default:
		return nil, root.errorf("neither a bootstrap (static_resources) nor a listener (filter_chains), a route configuration " +
			"(virtual_hosts), a virtual host (domains) or a route (match)")
	}
	if err != nil {
		return nil, err
	}
	for _, l := range listeners {
		if err := c.readListener(l); err != nil {
			return nil, err
		}
	}
	if len(c.managers) == 0 {
		return nil, root.errorf("no listener has an HTTP connection manager with a rate limit filter (%s)", filterType)
	}
	return c, nil
}

func (c *Config) readClusters(clusters []tree) error {
	for _, cluster := range clusters {
		metadata := &corev3.Metadata{}
		if m := cluster.get("metadata"); m.exists() {
			if err := m.decode(metadata); err != nil {
				return err
			}
		}
		c.clusters[cluster.get("name").text()] = metadata
	}
	return nil
}

// readListener reads the connection managers that have a rate limit filter.
func (c *Config) readListener(listener tree) error {
	chains := listener.get("filter_chains").items()
	if chain := listener.get("default_filter_chain"); chain.exists() {
		chains = append(chains, chain)
	}
	for _, chain := range chains {
		for _, network := range chain.get("filters").items() {
			config := network.get("typed_config")
			if !config.hasType(hcmType) {
				continue
			}
			m := manager{listener: listener.get("name").text(), anyPort: config.get("strip_any_host_port").text() == "true"}
			if err := m.readFilters(config.get("http_filters").items()); err != nil {
				return err
			}
			if len(m.filters) == 0 {
				continue
			}
			if rds := config.get("rds"); rds.exists() {
				m.rds = rds.get("route_config_name").text()
				c.managers = append(c.managers, m)
			} else if err := c.readRoutes(&m, config.get("route_config")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *manager) readFilters(filters []tree) error {
	for _, f := range filters {
		config := f.get("typed_config")
		if !config.hasType(filterType) {
			continue
		}
		elements, err := readElements(config.get("rate_limits"), true)
		if err != nil {
			return err
		}
		m.filters = append(m.filters, filter{
			name: f.get("name").text(), domain: config.get("domain").text(), tree: config, elements: elements,
			disabled: f.get("disabled").text() == "true",
		})
	}
	return nil
}

func (c *Config) readRoutes(m *manager, config tree) error {
	m.perRoute = config.get("typed_per_filter_config")
	m.anyPort = m.anyPort || config.get("ignore_port_in_host_matching").text() == "true"
	if err := checkPerRoute(m.perRoute); err != nil {
		return err
	}
	return c.readHosts(m, config.get("virtual_hosts").items())
}

func (c *Config) readHosts(m *manager, hosts []tree) error {
	for _, h := range hosts {
		elements, err := readElements(h.get("rate_limits"), false)
		if err == nil {
			err = checkPerRoute(h.get("typed_per_filter_config"))
		}
		if err != nil {
			return err
		}
		read := host{tree: h, name: h.get("name").text(), elements: elements}
		for _, d := range h.get("domains").items() {
			read.domains = append(read.domains, strings.ToLower(d.text()))
		}
		for _, r := range h.get("routes").items() {
			route, err := readRoute(r)
			if err != nil {
				return err
			}
			read.routes = append(read.routes, route)
		}
		m.hosts = append(m.hosts, read)
	}
	c.managers = append(c.managers, *m)
	return nil
}

func readRoute(r tree) (route, error) {
	read := route{tree: r, match: &routev3.RouteMatch{}}
	if !r.get("match").exists() {
		return read, r.errorf("the route has no match")
	}
	if err := r.get("match").decode(read.match); err != nil {
		return read, err
	}
	var err error
	read.elements, err = readElements(r.get("route", "rate_limits"), false)
	if err != nil {
		return read, err
	}
	return read, checkPerRoute(r.get("typed_per_filter_config"))
}

// checkPerRoute reads the rate limits in a typed_per_filter_config, so that a fault is reported before a request needs them.
func checkPerRoute(configs tree) error {
	if !configs.exists() {
		return nil
	}
	for i := 1; i < len(configs.node.Content); i += 2 {
		config := tree{configs.file, configs.node.Content[i]}
		if config.hasType(wrapperType) {
			config = config.get("config")
		}
		if config.hasType(perRouteType) {
			if _, err := readElements(config.get("rate_limits"), true); err != nil {
				return err
			}
		}
	}
	return nil
}

// readElements reads a list of rate limits. Envoy rejects stage and disable_key in the filter and in its settings for a route, so
// readElements does too.
func readElements(list tree, inFilter bool) ([]element, error) {
	var all []element
	for _, item := range list.items() {
		read := element{item, &routev3.RateLimit{}}
		actions := item.get("actions").items()
		for i, a := range actions {
			if err := a.decode(&routev3.RateLimit_Action{}); err != nil {
				return nil, fmt.Errorf("action %d of rate_limits: %w", i+1, err)
			}
		}
		if err := item.decode(read.config); err != nil {
			return nil, err
		}
		for i, a := range read.config.GetActions() {
			if a.GetActionSpecifier() == nil {
				return nil, actions[i].errorf("action %d of rate_limits is empty: write for example remote_address: {}", i+1)
			}
		}
		switch {
		case len(actions) == 0:
			return nil, item.errorf("Envoy rejects rate_limits without actions")
		case inFilter && (item.get("stage").exists() || item.get("disable_key").exists()):
			return nil, item.errorf("Envoy rejects stage and disable_key here: remove them, or move the element to rate_limits of the route")
		}
		all = append(all, read)
	}
	return all, nil
}
