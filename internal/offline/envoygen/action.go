package envoygen

import (
	"strconv"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	exprv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/rate_limit_descriptors/expr/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// idHeader is the header with the id of a request. A filter overwrites the header of a client.
const idHeader = "x-weir-lease"

// A rateLimit is an element of rate_limits, and the comments above it.
type rateLimit struct {
	comment string
	notes   []string // above each action at the beginning of a request; empty without one
	config  *routev3.RateLimit
}

// rateLimitsOf returns the rate limits of a route: first those of the beginning of a request, then
// those of its end.
func (c *Config) rateLimitsOf(r *route) ([]rateLimit, error) {
	var begin, end []rateLimit
	seen := map[string]bool{}
	for _, d := range r.descriptors {
		first, last, err := c.rateLimitsFor(d)
		if err != nil {
			return nil, err
		}
		begin = append(begin, first)
		// Several values of a status share the rate limit of the end.
		if text := last.config.String(); last.config != nil && !seen[text] {
			seen[text] = true
			end = append(end, last)
		}
	}
	return append(begin, end...), nil
}

// rateLimitsFor returns the rate limits of the beginning and of the end of a request. The second
// has no config if Envoy does not call at the end.
func (c *Config) rateLimitsFor(d *descriptor) (first, last rateLimit, err error) {
	cost, hits := c.cost[d.keys()], c.hits[d.keys()]
	first = rateLimit{comment: "rules: " + firstRules(d), config: &routev3.RateLimit{}}
	last = rateLimit{config: &routev3.RateLimit{ApplyOnStreamDone: true}}
	for _, e := range d.entries {
		begin, err := e.action()
		if err != nil {
			return first, last, err
		}
		end, err := e.actionAtEnd()
		if err != nil {
			return first, last, err
		}
		first.config.Actions, first.notes = append(first.config.Actions, begin), append(first.notes, e.note())
		last.config.Actions = append(last.config.Actions, end)
	}
	marker := func(key string) { last.config.Actions = append(last.config.Actions, constant(key, "1")) }
	switch {
	case d.lease == slotLease:
		first.comment += "; take a slot under the id of the request"
		last.comment = "at the end of the request: release the slot of that id"
		first.config.HitsAddend = hitsAddend(hits)
		marker("release")
	case d.lease == reservation:
		first.comment += "; reserve an estimate under the id of the request"
		last.comment = "at the end of the request: settle the reservation to the actual cost"
		first.config.HitsAddend, last.config.HitsAddend = hitsAddend(hits), hitsAddend(cost)
		marker("settle")
	case c.chargesAtEnd(d):
		first.comment += "; a peek, which charges nothing"
		last.comment = "at the end of the request: charge it"
		first.config.HitsAddend, last.config.HitsAddend = hitsAddend("0"), hitsAddend(cost)
	default:
		first.config.HitsAddend = hitsAddend(hits)
		last.config = nil
	}
	return first, last, nil
}

func hitsAddend(text string) *routev3.RateLimit_HitsAddend {
	if text == "" {
		return nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return &routev3.RateLimit_HitsAddend{Number: wrapperspb.UInt64(n)}
	}
	return &routev3.RateLimit_HitsAddend{Format: text}
}

// firstRules returns the file and line of the first rules that a descriptor is for.
func firstRules(d *descriptor) string {
	const maximum = 3
	var all []string
	for i, rule := range d.rules {
		if i == maximum {
			return strings.Join(all, ", ") + " and " + strconv.Itoa(len(d.rules)-maximum) + " more"
		}
		all = append(all, rule.Source())
	}
	return strings.Join(all, ", ")
}

// note returns a comment for the action of e, or "".
func (e entry) note() string {
	switch s := e.source; {
	case s.kind == fromHeader && !s.isSet && wellKnown[strings.ToLower(e.key)].kind == "":
		return e.key + ": the rules do not name a source, so this is the header " + s.arg
	case s.kind == fromPath:
		return "the path without its query"
	case s.kind == fromSource:
		return "the --service-cluster of Envoy"
	}
	return ""
}

// actionAtEnd returns the action that sends e at the end of a request.
func (e entry) actionAtEnd() (*routev3.RateLimit_Action, error) {
	if e.source.kind == fromStatus {
		return expression(e.key, e.source.statusExpression())
	}
	return e.action()
}

// action returns the action that sends e at the beginning of a request.
func (e entry) action() (*routev3.RateLimit_Action, error) {
	s, a := e.source, &routev3.RateLimit_Action{}
	switch s.kind {
	case fromHeader, fromRequestID:
		return header(e.key, s.arg), nil
	case fromMethod:
		return header(e.key, ":method"), nil
	case fromHost:
		return header(e.key, ":authority"), nil
	case fromPath:
		return expression(e.key, "request.url_path")
	case fromCEL:
		return expression(e.key, s.arg)
	case fromStatus, fromConstant:
		return constant(e.key, e.value), nil
	case fromMatch:
		return headerMatch(e), nil
	case fromAddress, fromMasked:
		return addressAction(e), nil
	case fromQuery:
		a.ActionSpecifier = &routev3.RateLimit_Action_QueryParameters_{
			QueryParameters: &routev3.RateLimit_Action_QueryParameters{QueryParameterName: s.arg, DescriptorKey: e.key}}
	case fromMetadata:
		a.ActionSpecifier = &routev3.RateLimit_Action_Metadata{Metadata: metadata(e)}
	case fromSource:
		a.ActionSpecifier = &routev3.RateLimit_Action_SourceCluster_{SourceCluster: &routev3.RateLimit_Action_SourceCluster{}}
	case fromDestination:
		a.ActionSpecifier = &routev3.RateLimit_Action_DestinationCluster_{DestinationCluster: &routev3.RateLimit_Action_DestinationCluster{}}
	}
	return a, nil
}

func header(key, name string) *routev3.RateLimit_Action {
	return &routev3.RateLimit_Action{ActionSpecifier: &routev3.RateLimit_Action_RequestHeaders_{
		RequestHeaders: &routev3.RateLimit_Action_RequestHeaders{HeaderName: name, DescriptorKey: key}}}
}

func constant(key, value string) *routev3.RateLimit_Action {
	return &routev3.RateLimit_Action{ActionSpecifier: &routev3.RateLimit_Action_GenericKey_{
		GenericKey: &routev3.RateLimit_Action_GenericKey{DescriptorKey: key, DescriptorValue: value}}}
}

func expression(key, text string) (*routev3.RateLimit_Action, error) {
	config, err := anypb.New(&exprv3.Descriptor{DescriptorKey: key, ExprSpecifier: &exprv3.Descriptor_Text{Text: text}})
	if err != nil {
		return nil, err
	}
	return &routev3.RateLimit_Action{ActionSpecifier: &routev3.RateLimit_Action_Extension{
		Extension: &corev3.TypedExtensionConfig{Name: "envoy.rate_limit_descriptors.expr", TypedConfig: config}}}, nil
}

func headerMatch(e entry) *routev3.RateLimit_Action {
	when := e.source.conditions[e.value]
	return &routev3.RateLimit_Action{ActionSpecifier: &routev3.RateLimit_Action_HeaderValueMatch_{
		HeaderValueMatch: &routev3.RateLimit_Action_HeaderValueMatch{
			DescriptorKey: e.key, DescriptorValue: e.value,
			Headers: []*routev3.HeaderMatcher{{Name: when.header, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: when.text}}}}},
		}}}
}

// addressAction sends the address of the client. The actions remote_address and
// masked_remote_address have a fixed key; for another key, a match of every address sends it.
func addressAction(e entry) *routev3.RateLimit_Action {
	a := &routev3.RateLimit_Action{}
	switch {
	case e.source.kind == fromMasked:
		m := &routev3.RateLimit_Action_MaskedRemoteAddress{V4PrefixMaskLen: wrapperspb.UInt32(defaultV4),
			V6PrefixMaskLen: wrapperspb.UInt32(defaultV6)}
		if e.source.v4 != nil {
			m.V4PrefixMaskLen = wrapperspb.UInt32(*e.source.v4)
		}
		if e.source.v6 != nil {
			m.V6PrefixMaskLen = wrapperspb.UInt32(*e.source.v6)
		}
		a.ActionSpecifier = &routev3.RateLimit_Action_MaskedRemoteAddress_{MaskedRemoteAddress: m}
	case e.key == "remote_address":
		a.ActionSpecifier = &routev3.RateLimit_Action_RemoteAddress_{RemoteAddress: &routev3.RateLimit_Action_RemoteAddress{}}
	default:
		a.ActionSpecifier = &routev3.RateLimit_Action_RemoteAddressMatch_{RemoteAddressMatch: &routev3.RateLimit_Action_RemoteAddressMatch{
			DescriptorKey: e.key, DescriptorValue: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
			AddressMatcher: &matcherv3.AddressMatcher{Ranges: []*xdscorev3.CidrRange{
				{AddressPrefix: "0.0.0.0", PrefixLen: wrapperspb.UInt32(0)}, {AddressPrefix: "::", PrefixLen: wrapperspb.UInt32(0)}}},
		}}
	}
	return a
}

// The lengths of the prefixes that Envoy sends without others. One IPv6 client usually has a whole
// /64.
const (
	defaultV4 = 32
	defaultV6 = 64
)

func metadata(e entry) *routev3.RateLimit_Action_MetaData {
	namespace, path, _ := strings.Cut(e.source.arg, ":")
	key := &metadatav3.MetadataKey{Key: namespace}
	for name := range strings.SplitSeq(path, ".") {
		key.Path = append(key.Path, &metadatav3.MetadataKey_PathSegment{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: name}})
	}
	return &routev3.RateLimit_Action_MetaData{DescriptorKey: e.key, MetadataKey: key}
}
