// Package envoyactions derives the descriptors that Envoy sends for a request, from the rate_limits
// of a route.
//
//	config, err := envoyactions.Parse("envoy.yaml", data)
//	derived, err := config.Derive(&envoyactions.Request{Method: "GET", Path: "/", Headers: headers})
//
// The package follows the rules of Envoy 1.40. It reports a value as unknown if the value depends
// on more than the configuration and the request, as the value of a CEL expression does.
package envoyactions

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weir-rls/weir/internal/offline/yamltree"
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
	rds      string        // the name of a route configuration that is not in the file
	perRoute yamltree.Tree // typed_per_filter_config of the route configuration
	anyPort  bool          // ignore_port_in_host_matching
}

// A filter is a rate limit filter. Its tree is the zero tree if the file has no filters.
type filter struct {
	name     string
	domain   string
	tree     yamltree.Tree
	elements []element
	disabled bool
}

type host struct {
	tree     yamltree.Tree
	name     string
	domains  []string
	routes   []route
	elements []element
}

type route struct {
	tree     yamltree.Tree
	match    *routev3.RouteMatch
	elements []element
}

// An element is an element of a list rate_limits.
type element struct {
	tree   yamltree.Tree
	config *routev3.RateLimit
	// inFilter reports that the list is that of the filter, or of its settings for a route.
	inFilter bool
}

// Parse reads YAML or JSON of a bootstrap, a listener, a route configuration, a virtual host or a
// route. Sources and errors use the name of the file.
func Parse(name string, data []byte) (*Config, error) {
	documents, err := yamltree.Read(name, data)
	switch {
	case err != nil:
		return nil, err
	case len(documents) == 0:
		return nil, fmt.Errorf("%s: the file is empty: want a bootstrap, a listener, a route configuration, a virtual host or a route", name)
	case len(documents) > 1:
		return nil, documents[1].Errorf("a second document: Envoy reads only one")
	}
	root := documents[0]
	c := &Config{cluster: root.Field("node", "cluster").Text(), clusters: map[string]*corev3.Metadata{}}
	var listeners []yamltree.Tree
	switch {
	case root.Field("static_resources").Exists():
		listeners = root.Field("static_resources", "listeners").Items()
		err = c.readClusters(root.Field("static_resources", "clusters").Items())
	case root.Field("filter_chains").Exists():
		listeners = []yamltree.Tree{root}
	case root.Field("virtual_hosts").Exists():
		err = c.readRoutes(&manager{}, root)
	case root.Field("domains").Exists():
		err = c.readHosts(&manager{}, []yamltree.Tree{root})
	case root.Field("match").Exists():
		var r route
		r, err = readRoute(root)
		c.managers = []manager{{hosts: []host{{domains: []string{"*"}, routes: []route{r}}}}}
	default:
		return nil, root.Errorf("neither a bootstrap (static_resources) nor a listener (filter_chains), a route configuration " +
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
		return nil, root.Errorf("no listener has an HTTP connection manager with a rate limit filter (%s)", filterType)
	}
	return c, nil
}

func (c *Config) readClusters(clusters []yamltree.Tree) error {
	for _, cluster := range clusters {
		metadata := &corev3.Metadata{}
		if m := cluster.Field("metadata"); m.Exists() {
			if err := decode(m, metadata); err != nil {
				return err
			}
		}
		c.clusters[cluster.Field("name").Text()] = metadata
	}
	return nil
}

// readListener reads the connection managers that have a rate limit filter.
func (c *Config) readListener(listener yamltree.Tree) error {
	chains := listener.Field("filter_chains").Items()
	if chain := listener.Field("default_filter_chain"); chain.Exists() {
		chains = append(chains, chain)
	}
	for _, chain := range chains {
		for _, network := range chain.Field("filters").Items() {
			config := network.Field("typed_config")
			if !hasType(config, hcmType) {
				continue
			}
			m := manager{listener: listener.Field("name").Text(), anyPort: config.Field("strip_any_host_port").IsTrue()}
			if err := m.readFilters(config.Field("http_filters").Items()); err != nil {
				return err
			}
			if len(m.filters) == 0 {
				continue
			}
			if rds := config.Field("rds"); rds.Exists() {
				m.rds = rds.Field("route_config_name").Text()
				c.managers = append(c.managers, m)
			} else if err := c.readRoutes(&m, config.Field("route_config")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *manager) readFilters(filters []yamltree.Tree) error {
	for _, f := range filters {
		config := f.Field("typed_config")
		if !hasType(config, filterType) {
			continue
		}
		elements, err := readFilterElements(config.Field("rate_limits"))
		if err != nil {
			return err
		}
		m.filters = append(m.filters, filter{
			name: f.Field("name").Text(), domain: config.Field("domain").Text(), tree: config, elements: elements,
			disabled: f.Field("disabled").IsTrue(),
		})
	}
	return nil
}

func (c *Config) readRoutes(m *manager, config yamltree.Tree) error {
	m.perRoute = config.Field("typed_per_filter_config")
	m.anyPort = m.anyPort || config.Field("ignore_port_in_host_matching").IsTrue()
	if err := checkPerRoute(m.perRoute); err != nil {
		return err
	}
	return c.readHosts(m, config.Field("virtual_hosts").Items())
}

func (c *Config) readHosts(m *manager, hosts []yamltree.Tree) error {
	for _, h := range hosts {
		elements, err := readElements(h.Field("rate_limits"))
		if err == nil {
			err = checkPerRoute(h.Field("typed_per_filter_config"))
		}
		if err != nil {
			return err
		}
		read := host{tree: h, name: h.Field("name").Text(), elements: elements}
		for _, d := range h.Field("domains").Items() {
			read.domains = append(read.domains, strings.ToLower(d.Text()))
		}
		for _, r := range h.Field("routes").Items() {
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

func readRoute(r yamltree.Tree) (route, error) {
	read := route{tree: r, match: &routev3.RouteMatch{}}
	if !r.Field("match").Exists() {
		return read, r.Errorf("the route has no match")
	}
	if err := decode(r.Field("match"), read.match); err != nil {
		return read, err
	}
	var err error
	read.elements, err = readElements(r.Field("route", "rate_limits"))
	if err != nil {
		return read, err
	}
	for _, configs := range append(read.weighted(), r.Field("typed_per_filter_config")) {
		if err := checkPerRoute(configs); err != nil {
			return read, err
		}
	}
	return read, nil
}

// checkPerRoute reads the rate limits in a typed_per_filter_config, so that a fault is reported
// before a request needs them.
func checkPerRoute(configs yamltree.Tree) error {
	for _, config := range configs.Fields() {
		if hasType(config, wrapperType) {
			config = config.Field("config")
		}
		if hasType(config, perRouteType) {
			if _, err := readFilterElements(config.Field("rate_limits")); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFilterElements reads the rate limits of the filter, or of its settings for a route. Envoy
// rejects stage and disable_key there, so readFilterElements does too.
func readFilterElements(list yamltree.Tree) ([]element, error) {
	all, err := readElements(list)
	for i := range all {
		item := all[i].tree
		if item.Field("stage").Exists() || item.Field("disable_key").Exists() {
			return nil, item.Errorf("Envoy rejects stage and disable_key here: remove them, or move the element to rate_limits of the route")
		}
		all[i].inFilter = true
	}
	return all, err
}

// readElements reads a list of rate limits.
func readElements(list yamltree.Tree) ([]element, error) {
	var all []element
	for _, item := range list.Items() {
		read := element{tree: item, config: &routev3.RateLimit{}}
		actions := item.Field("actions").Items()
		for i, a := range actions {
			if err := decode(a, &routev3.RateLimit_Action{}); err != nil {
				return nil, fmt.Errorf("action %d of rate_limits: %w", i+1, err)
			}
		}
		if err := decode(item, read.config); err != nil {
			return nil, err
		}
		for i, a := range read.config.GetActions() {
			if a.GetActionSpecifier() == nil {
				return nil, actions[i].Errorf("action %d of rate_limits is empty: write for example remote_address: {}", i+1)
			}
		}
		if len(actions) == 0 {
			return nil, item.Errorf("Envoy rejects rate_limits without actions")
		}
		all = append(all, read)
	}
	return all, nil
}
