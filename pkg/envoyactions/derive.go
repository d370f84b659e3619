package envoyactions

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// A Request is a request that a client sends to Envoy, as the rate limit filter sees it.
type Request struct {
	Method, Host, Path string
	Headers            [][2]string // in order; a name may repeat
	// RemoteAddress is the address of the client, after x-forwarded-for. The zero value: not known.
	RemoteAddress netip.Addr
	// Metadata has the texts of dynamic metadata by their paths, such as envoy.filters.http.jwt_authn:claims.sub.
	Metadata map[string]string
	// ServiceCluster is Envoy's --service-cluster. Empty: that of the bootstrap.
	ServiceCluster string
	// Listener and Filter select one of several. Empty: there must be only one.
	Listener, Filter string
}

// Derived has the descriptors that Envoy sends for a request.
type Derived struct {
	Domain     string // empty if the file has no filter
	Route      string // such as "envoy.yaml:48 (virtual host backend)"
	RateLimits []RateLimit
}

// A RateLimit is one element of rate_limits, applied to a request.
type RateLimit struct {
	Source  string // such as envoy.yaml:52
	Entries [][2]string
	// Skipped: Envoy sends no descriptor. Unknown: whether it does, or which, is not known.
	Skipped, Unknown bool
	Reasons          []string // for each action without entry, and for a skipped element
	Ignored          []string // fields that Envoy ignores there
	AtEnd            bool     // Envoy sends the descriptor when the stream ends
	Hits             int64    // below 0: a refund
	Refund           bool     // the hits are refunded, also if they are 0
	Limit            *Limit   // a limit that the descriptor carries, or nil
}

// A Limit is a limit that a descriptor carries.
type Limit struct {
	RequestsPerUnit uint32
	Unit            string // such as SECOND
}

// A deriver evaluates actions for one request and one route.
type deriver struct {
	request  *Request
	host     *host
	route    *route
	source   string
	clusters map[string]*corev3.Metadata
}

// Derive returns the descriptors that Envoy sends for a request. Its error names the choice that the request leaves open.
func (c *Config) Derive(r *Request) (*Derived, error) {
	m, err := c.manager(r)
	if err != nil {
		return nil, err
	}
	f, err := m.filter(r)
	if err != nil {
		return nil, err
	}
	h := m.hostOf(r)
	if h == nil {
		return nil, fmt.Errorf("no virtual host has the host %q: set --host", r.Host)
	}
	route, err := h.routeOf(r)
	if err != nil {
		return nil, err
	}
	if route == nil {
		return nil, fmt.Errorf("no route of virtual host %s matches %s %s: Envoy answers 404", h.name, r.Method, r.Path)
	}
	d := &deriver{r, h, route, cmp.Or(r.ServiceCluster, c.cluster), c.clusters}
	derived := &Derived{Domain: f.domain, Route: route.tree.source()}
	if h.name != "" {
		derived.Route += " (virtual host " + h.name + ")"
	}
	return derived, d.derive(derived, m, f)
}

func (c *Config) manager(r *Request) (*manager, error) {
	var found []*manager
	var names []string
	for i := range c.managers {
		if m := &c.managers[i]; r.Listener == "" || m.listener == r.Listener {
			found = append(found, m)
		}
		names = append(names, c.managers[i].listener)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no listener %s has a rate limit filter; these have one: %s", r.Listener, strings.Join(names, ", "))
	case len(found) > 1:
		return nil, fmt.Errorf("%d connection managers have a rate limit filter: set --listener to one of %s", len(found), strings.Join(names, ", "))
	case found[0].rds != "":
		return nil, fmt.Errorf("the routes of listener %s come by RDS: pass the route configuration %s as --envoy", found[0].listener, found[0].rds)
	}
	return found[0], nil
}

func (m *manager) filter(r *Request) (*filter, error) {
	if len(m.filters) == 0 {
		return &filter{name: cmp.Or(r.Filter, filterName)}, nil
	}
	var found []*filter
	var names []string
	for i := range m.filters {
		if f := &m.filters[i]; r.Filter == "" || f.name == r.Filter {
			found = append(found, f)
		}
		names = append(names, m.filters[i].name)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no rate limit filter has the name %s; these exist: %s", r.Filter, strings.Join(names, ", "))
	case len(found) > 1 && r.Filter != "":
		return nil, fmt.Errorf("%d rate limit filters have the name %s: give each a name of its own", len(found), r.Filter)
	case len(found) > 1:
		return nil, fmt.Errorf("%d rate limit filters call one after the other: set --filter to one of %s", len(found), strings.Join(names, ", "))
	}
	return found[0], nil
}

// perRoute returns the settings of the filter for the route: those of the route, the virtual host or the route configuration.
func (d *deriver) perRoute(m *manager, f *filter) (settings tree, disabled bool) {
	for _, all := range []tree{d.route.tree.get("typed_per_filter_config"), d.host.tree.get("typed_per_filter_config"), m.perRoute} {
		one := all.exactly(f.name)
		if !one.exists() {
			continue
		}
		if one.is(wrapperType) {
			if one.get("disabled").text() == "true" {
				return tree{}, true
			}
			one = one.get("config")
			if !one.exists() {
				continue
			}
		}
		return one, false
	}
	return tree{}, f.disabled
}

// exactly returns the field of a name that is no name of a protobuf field.
func (t tree) exactly(name string) tree {
	if t.node != nil {
		for i := 0; i+1 < len(t.node.Content); i += 2 {
			if t.node.Content[i].Value == name {
				return tree{t.file, t.node.Content[i+1]}
			}
		}
	}
	return tree{file: t.file}
}

// derive applies the rate limits that have effect on the route. The others are reported as skipped.
func (d *deriver) derive(to *Derived, m *manager, f *filter) error {
	settings, disabled := d.perRoute(m, f)
	to.Domain = cmp.Or(settings.get("domain").text(), to.Domain)
	own, err := readLimits(settings.get("rate_limits"), true)
	if err != nil {
		return err
	}
	without := ""
	switch action := d.route.tree.get("route"); {
	case disabled:
		without = "the filter is disabled on this route"
	case !action.exists():
		without = "the filter does nothing on a route that answers by itself: the route has no cluster"
	}
	const replaced = "Envoy ignores this list, because %s has rate_limits"
	by := without
	d.add(to, own, by, true, 0)
	if by == "" && len(own) > 0 {
		by = fmt.Sprintf(replaced, "RateLimitPerRoute")
	}
	d.add(to, f.limits, by, true, 0)
	if by == "" && len(f.limits) > 0 {
		by = fmt.Sprintf(replaced, "the filter")
	}
	stage := f.stage()
	d.add(to, d.route.limits, by, false, stage)
	if by == "" {
		by = d.withoutHost(settings)
	}
	d.add(to, d.host.limits, by, false, stage)
	return nil
}

func (f *filter) stage() uint32 {
	var n uint32
	if _, err := fmt.Sscan(f.tree.get("stage").text(), &n); err != nil {
		return 0
	}
	return n
}

// withoutHost returns why the rate limits of the virtual host have no effect, or "".
func (d *deriver) withoutHost(settings tree) string {
	include := d.route.tree.get("route", "include_vh_rate_limits").text() == "true"
	switch mode := settings.get("vh_rate_limits").text(); {
	case include || mode == "INCLUDE" || mode == "1":
		return ""
	case mode == "IGNORE" || mode == "2":
		return "vh_rate_limits is IGNORE"
	case len(d.route.limits) > 0:
		return "the route has rate_limits, and include_vh_rate_limits is not set"
	}
	return ""
}

func (d *deriver) add(to *Derived, limits []limit, without string, inFilter bool, stage uint32) {
	for _, l := range limits {
		r := RateLimit{Source: l.tree.source(), Entries: [][2]string{}, AtEnd: l.config.GetApplyOnStreamDone(), Hits: 1}
		switch of := l.config.GetStage().GetValue(); {
		case without != "":
			r.Skipped, r.Reasons = true, []string{without}
		case of != stage:
			r.Skipped, r.Reasons = true, []string{fmt.Sprintf("its stage is %d, and that of the filter %d", of, stage)}
		default:
			d.evaluate(&r, l.config)
			d.hits(&r, l.config, inFilter)
			d.limit(&r, l.config)
		}
		to.RateLimits = append(to.RateLimits, r)
	}
}

// evaluate runs the actions of a rate limit, until one drops the descriptor.
func (d *deriver) evaluate(r *RateLimit, config *routev3.RateLimit) {
	for i, a := range config.GetActions() {
		key, value, did, reason := d.act(a)
		named := fmt.Sprintf("action %d: %s", i+1, reason)
		switch did {
		case entry:
			r.Entries = append(r.Entries, [2]string{key, value})
			continue
		case skipped:
			r.Reasons = append(r.Reasons, named+"; skip_if_absent omits the entry")
			continue
		case unknown:
			r.Unknown = true
			r.Reasons = append(r.Reasons, named)
			continue // a later action may drop the descriptor in any case
		}
		r.Skipped, r.Unknown, r.Entries = true, false, [][2]string{}
		r.Reasons = append(r.Reasons, named+"; Envoy sends no descriptor")
		return
	}
	if r.Unknown {
		r.Skipped, r.Entries = true, [][2]string{}
	}
	d.defaults(r, config)
}

// defaults names the default values that have no effect on constants.
func (d *deriver) defaults(r *RateLimit, config *routev3.RateLimit) {
	for i, a := range config.GetActions() {
		var value, text string
		switch {
		case a.GetGenericKey() != nil:
			value, text = a.GetGenericKey().GetDefaultValue(), a.GetGenericKey().GetDescriptorValue()
		case a.GetHeaderValueMatch() != nil:
			value, text = a.GetHeaderValueMatch().GetDefaultValue(), a.GetHeaderValueMatch().GetDescriptorValue()
		case a.GetQueryParameterValueMatch() != nil:
			value, text = a.GetQueryParameterValueMatch().GetDefaultValue(), a.GetQueryParameterValueMatch().GetDescriptorValue()
		default:
			continue
		}
		if value != "" {
			r.Ignored = append(r.Ignored, fmt.Sprintf("default_value of action %d: its value is a constant", i+1))
		}
		if strings.Contains(text, "%") {
			r.Reasons = append(r.Reasons, fmt.Sprintf("action %d: %s is sent as it is, unless the runtime feature enable_formatter_for_ratelimit_action_descriptor_value is on", i+1, text))
		}
	}
}

// hits sets the hits that the descriptor charges.
func (d *deriver) hits(r *RateLimit, config *routev3.RateLimit, inFilter bool) {
	addend := config.GetHitsAddend()
	switch {
	case addend == nil:
		return
	case !inFilter:
		r.Ignored = append(r.Ignored, "hits_addend: it has effect only in RateLimitPerRoute and in the filter")
		return
	}
	n, text := uint64(1), ""
	if number := addend.GetNumber(); number != nil {
		n = number.GetValue()
	} else if text = addend.GetFormat(); text != "" {
		r.Reasons = append(r.Reasons, "the hits are "+text+", which is not known here: they count as 1")
	}
	const maximum = 1_000_000_000
	r.Hits, r.Refund = int64(min(n, maximum)), addend.GetIsNegativeHits()
	if r.Refund {
		r.Hits = -r.Hits
	}
}

// limit sets the limit that the descriptor carries.
func (d *deriver) limit(r *RateLimit, config *routev3.RateLimit) {
	switch {
	case config.GetLimit().GetRateLimit() != nil:
		l := config.GetLimit().GetRateLimit()
		r.Limit = &Limit{l.GetRequestsPerUnit(), l.GetUnit().String()}
	case config.GetLimit().GetDynamicMetadata() != nil:
		r.Reasons = append(r.Reasons, "a limit may come from the dynamic metadata at "+pathOf(config.GetLimit().GetDynamicMetadata().GetMetadataKey())+", which is not known here")
	}
}

// ParseMetadata reads namespace:key.path=value.
func ParseMetadata(text string) (path, value string, err error) {
	path, value, ok := strings.Cut(text, "=")
	namespace, key, colon := strings.Cut(path, ":")
	if !ok || !colon || namespace == "" || key == "" {
		return "", "", errors.New("want namespace:key.path=value, for example envoy.filters.http.jwt_authn:claims.sub=alice")
	}
	return path, value, nil
}
