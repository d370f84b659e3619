package envoyactions

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A Request is a request that a client sends to Envoy, as the rate limit filter sees it.
type Request struct {
	Method, Host, Path string
	Headers            []Header   // in order; a name may repeat
	RemoteAddress      netip.Addr // after Envoy has read x-forwarded-for; the zero value: unknown
	// Metadata maps the paths of dynamic metadata, such as envoy.filters.http.jwt_authn:claims.sub,
	// to texts.
	Metadata map[string]string
	// ServiceCluster is Envoy's --service-cluster. It defaults to node.cluster of the bootstrap.
	ServiceCluster string
	// Listener and Filter select a listener and a filter by name. They may be empty if there is
	// only one.
	Listener, Filter string
}

// A Header is a header of a [Request].
type Header struct{ Name, Value string }

// Derived holds the descriptors that Envoy sends for a request.
type Derived struct {
	Domain     string // empty if the file has no filter
	Route      string // such as "envoy.yaml:48 (virtual host backend)"
	RateLimits []RateLimit
}

// A RateLimit is the outcome of one element of rate_limits for a request.
type RateLimit struct {
	decide.Descriptor        // that Envoy sends; without entries if Skipped
	Source            string // such as envoy.yaml:52
	// Skipped reports that Envoy sends no descriptor. Unknown reports that the configuration and
	// the request do not decide this.
	Skipped, Unknown bool
	Reasons          []string // one for each action without an entry, and one for a skipped element
	Ignored          []string // fields of the element that Envoy ignores
	AtEnd            bool     // Envoy sends the descriptor at the end of the stream
}

// A deriver evaluates actions for one request and one route.
type deriver struct {
	request       *Request
	host          *host
	route         *route
	sourceCluster string
	stage         uint32 // of the filter
	clusters      map[string]*corev3.Metadata
}

// Derive returns the descriptors that Envoy sends for a request. If the request fits several
// listeners or filters, or no host or route, the error names them.
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
		return nil, fmt.Errorf("no route of virtual host %s matches %s %s: Envoy answers 404", cmp.Or(h.name, h.tree.Source()), r.Method, r.Path)
	}
	d := &deriver{r, h, route, cmp.Or(r.ServiceCluster, c.cluster), f.stage(), c.clusters}
	derived := &Derived{Domain: f.domain, Route: route.tree.Source()}
	if h.name != "" {
		derived.Route += " (virtual host " + h.name + ")"
	}
	return derived, d.derive(derived, m, f)
}

// derive applies the rate limits that have an effect on the route, and reports the others as
// skipped.
func (d *deriver) derive(to *Derived, m *manager, f *filter) error {
	settings, disabled, err := d.perRoute(m, f)
	if err != nil {
		return err
	}
	to.Domain = cmp.Or(settings.Field("domain").Text(), to.Domain)
	perRoute, err := readFilterElements(settings.Field("rate_limits"))
	if err != nil {
		return err
	}
	ignored := "" // why the next list has no effect
	switch action := d.route.tree.Field("route"); {
	case disabled:
		ignored = "the filter is disabled on this route"
	case !action.Exists():
		ignored = "the filter does nothing on a route that answers by itself: the route has no cluster"
	}
	const replaced = "Envoy ignores this list, because %s has rate_limits"
	d.add(to, perRoute, ignored)
	if ignored == "" && len(perRoute) > 0 {
		ignored = fmt.Sprintf(replaced, "RateLimitPerRoute")
	}
	d.add(to, f.elements, ignored)
	if ignored == "" && len(f.elements) > 0 {
		ignored = fmt.Sprintf(replaced, "the filter")
	}
	d.add(to, d.route.elements, ignored)
	if ignored == "" {
		ignored = d.ignoredHostReason(settings)
	}
	d.add(to, d.host.elements, ignored)
	return nil
}

// add adds the elements of a list to the descriptors. ignored is the reason why the list has no
// effect, or "".
func (d *deriver) add(to *Derived, elements []element, ignored string) {
	for _, e := range elements {
		r := RateLimit{Source: e.tree.Source(), AtEnd: e.config.GetApplyOnStreamDone(), Descriptor: decide.Descriptor{Hits: 1}}
		switch stage := e.config.GetStage().GetValue(); {
		case ignored != "":
			r.Skipped, r.Reasons = true, []string{ignored}
		case !e.inFilter && stage != d.stage:
			r.Skipped, r.Reasons = true, []string{fmt.Sprintf("its stage is %d, and that of the filter %d", stage, d.stage)}
		default:
			d.evaluate(&r, e.config)
			r.setHits(&e)
			r.setOverride(e.config)
		}
		to.RateLimits = append(to.RateLimits, r)
	}
}

// evaluate runs the actions of an element, until one drops the descriptor.
func (d *deriver) evaluate(r *RateLimit, config *routev3.RateLimit) {
	for i, a := range config.GetActions() {
		e := d.act(a)
		named := fmt.Sprintf("action %d: %s", i+1, e.reason)
		switch e.actionResult {
		case added:
			r.Entries = append(r.Entries, descriptors.Entry{Key: e.key, Value: e.value})
			continue
		case skipped:
			r.Reasons = append(r.Reasons, named+"; skip_if_absent omits the entry")
			continue
		case unknown:
			r.Unknown = true
			r.Reasons = append(r.Reasons, named)
			continue // a later action may drop the descriptor in any case
		}
		r.Skipped, r.Unknown, r.Entries = true, false, nil
		r.Reasons = append(r.Reasons, named+"; Envoy sends no descriptor")
		return
	}
	if r.Unknown {
		r.Skipped, r.Entries = true, nil
	}
	r.explainConstants(config)
}

// explainConstants reports default values that have no effect, and values that look like formats.
func (r *RateLimit) explainConstants(config *routev3.RateLimit) {
	for i, a := range config.GetActions() {
		var constant interface {
			GetDefaultValue() string
			GetDescriptorValue() string
		}
		switch {
		case a.GetGenericKey() != nil:
			constant = a.GetGenericKey()
		case a.GetHeaderValueMatch() != nil:
			constant = a.GetHeaderValueMatch()
		case a.GetQueryParameterValueMatch() != nil:
			constant = a.GetQueryParameterValueMatch()
		default:
			continue
		}
		if constant.GetDefaultValue() != "" {
			r.Ignored = append(r.Ignored, fmt.Sprintf("default_value of action %d: its value is a constant", i+1))
		}
		if text := constant.GetDescriptorValue(); strings.Contains(text, "%") {
			r.Reasons = append(r.Reasons, fmt.Sprintf("action %d: %s is sent as it is, unless the runtime feature "+
				"enable_formatter_for_ratelimit_action_descriptor_value is on", i+1, text))
		}
	}
}

// setHits sets the hits that the descriptor charges.
func (r *RateLimit) setHits(e *element) {
	addend := e.config.GetHitsAddend()
	switch {
	case addend == nil:
		return
	case !e.inFilter:
		r.Ignored = append(r.Ignored, "hits_addend: it has effect only in RateLimitPerRoute and in the filter")
		return
	}
	n := uint64(1)
	if number := addend.GetNumber(); number != nil {
		n = number.GetValue()
	} else if text := addend.GetFormat(); text != "" {
		r.Reasons = append(r.Reasons, "the hits are "+text+", which is not known here: they count as 1")
	}
	const maximum = 1_000_000_000
	r.Hits, r.Refund = int64(min(n, maximum)), addend.GetIsNegativeHits()
	if r.Refund {
		r.Hits = -r.Hits
	}
}

// setOverride sets the limit that the descriptor carries.
func (r *RateLimit) setOverride(config *routev3.RateLimit) {
	switch {
	case config.GetLimit().GetRateLimit() != nil:
		l := config.GetLimit().GetRateLimit()
		r.Override = &decide.Override{RequestsPerUnit: l.GetRequestsPerUnit(), Unit: descriptors.ParseUnit(l.GetUnit().String())}
	case config.GetLimit().GetDynamicMetadata() != nil:
		r.Reasons = append(r.Reasons,
			"a limit may come from the dynamic metadata at "+pathOf(config.GetLimit().GetDynamicMetadata().GetMetadataKey())+
				", which is not known here")
	}
}

// ParseMetadata reads namespace:key.path=value.
func ParseMetadata(text string) (path, value string, err error) {
	path, value, ok := strings.Cut(text, "=")
	namespace, key, colon := strings.Cut(path, ":")
	if !ok || !colon || namespace == "" || key == "" {
		return "", "", errors.New("write namespace:key.path=value, for example envoy.filters.http.jwt_authn:claims.sub=alice")
	}
	return path, value, nil
}
