package rulesfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

const noDomain = "config file cannot have empty domain: want 'domain: <name>' at the top"

// A home is where a domain was first met, with the root of its tree.
type home struct {
	file    string
	root    location
	taken   siblings
	onError spot // of the domain's on_store_error
}

// siblings are the descriptors of one level, by their entries and by the names that envoyproxy/ratelimit gives them.
type siblings struct {
	entries map[descriptors.Entry]spot
	names   map[string]spot
}

func newSiblings() siblings { return siblings{map[descriptors.Entry]spot{}, map[string]spot{}} }

// A spot is where something stands.
type spot struct {
	file         string
	line, column int
}

func (r *reader) spot(n *yaml.Node) spot { return spot{r.file, n.Line, n.Column} }

func (s spot) String() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

func (p *parser) top(root *yaml.Node) {
	f, ok := p.fields(root, top)
	if !ok {
		return
	}
	domain, ok := p.text(f["domain"])
	// A fault in the domain does not keep its descriptors from being checked.
	to := &home{p.file, location{node: p.builder.Domain(domain), domain: domain}, newSiblings(), spot{}}
	switch first := p.homes[domain]; {
	case !ok:
	case domain == "":
		p.fault(f["domain"].value, noDomain)
	case first == nil:
		p.homes[domain] = to
	case p.options.MergeDomains:
		to = first
	default:
		p.fault(f["domain"].value, "duplicate domain '%s' in config file: %s has it too; put all its descriptors in one "+
			"file, or set MERGE_DOMAIN_CONFIG", short(domain), first.file)
	}
	p.onErrorOf(f["on_store_error"], to)
	p.descriptors(f["descriptors"], to.root, to.taken)
}

// onErrorOf reads what a domain says of a store that fails. Its files may not disagree.
func (p *parser) onErrorOf(f field, of *home) {
	said := p.onError(f)
	if said == limiters.OnErrorUnsaid {
		return
	}
	domain := of.root.domain
	if before := p.builder.OnError(domain); before != limiters.OnErrorUnsaid && before != said {
		p.fault(f.key, "on_store_error '%s' is not what %s says of the domain, '%s': want it once", said, p.where(of.onError), before)
		return
	}
	p.builder.SetOnError(domain, said)
	of.onError = p.spot(f.key)
}

// A location is a node of the tree and the path to it.
type location struct {
	node   *descriptors.Node
	domain string
	path   []descriptors.Entry
}

// composite names a location as the messages of envoyproxy/ratelimit do.
func (at location) composite() string {
	const most = 500
	text := at.domain
	for _, e := range at.path {
		text += "." + e.Joined()
	}
	return cut(text, most)
}

func (p *parser) descriptors(f field, at location, taken siblings) {
	if p.empty(f) {
		return
	}
	for _, n := range p.maps(f) {
		p.descriptor(n, at, taken)
	}
}

func (p *parser) descriptor(n *yaml.Node, at location, taken siblings) {
	f, ok := p.fields(n, inDescriptor)
	if !ok {
		return
	}
	key, keyOK := p.text(f["key"])
	value, valueOK := p.text(f["value"])
	if keyOK && key == "" {
		where := n
		if f["key"].value != nil {
			where = f["key"].value
		}
		p.fault(where, "descriptor has empty key: want 'key: <name>'")
	}
	l := descriptors.Level{
		Entry:          descriptors.Entry{Key: key, Value: value},
		ShareThreshold: p.flag(f["share_threshold"]), ValueToMetric: p.flag(f["value_to_metric"]),
	}
	child := location{at.node.Add(l), at.domain, append(slices.Clip(at.path), l.Entry)}
	p.visits += len(child.path)
	p.depth++
	defer func() { p.depth-- }()
	if l.ShareThreshold && !l.IsWildcard() {
		p.fault(f["share_threshold"].key, "share_threshold can only be used with wildcard values (containing '*'), "+
			"but found key '%s'", short(l.Joined()))
	}
	if keyOK && valueOK && key != "" {
		p.take(f["key"].key, child, taken)
		p.suspect(f["key"].key, l)
	}
	p.rule(f, child)
	p.descriptors(f["descriptors"], child, newSiblings())
	if child.node.IsEmpty() {
		p.later(func() { p.idle(n, child.node) })
	}
}

// rule reads what a descriptor says of the requests that end there.
func (p *parser) rule(f fields, at location) {
	rule := &descriptors.Rule{
		ShadowMode: p.flag(f["shadow_mode"]), QuotaMode: p.flag(f["quota_mode"]), Metadata: p.metadata(f["metadata"]),
		DetailedMetric: p.flag(f["detailed_metric"]),
	}
	if p.limits(f, at, rule) {
		at.node.SetRule(*rule)
		return
	}
	if f["rate_limit"].key != nil || f["rate_limits"].key != nil {
		return // there is a fault, or a warning, already
	}
	for name, set := range map[string]bool{
		"shadow_mode": rule.ShadowMode, "quota_mode": rule.QuotaMode, "detailed_metric": rule.DetailedMetric,
		"metadata": len(rule.Metadata) > 0,
	} {
		if set {
			p.warn(f[name].key, "%s has no effect without a rate_limit beside it: descriptors inherit nothing", name)
		}
	}
}

// take tells of a descriptor that is there already.
func (p *parser) take(key *yaml.Node, at location, taken siblings) {
	e, here := at.path[len(at.path)-1], p.spot(key)
	if first, twice := taken.entries[e]; twice {
		p.fault(key, "duplicate descriptor composite key '%s': %s has it too; put what they hold in one",
			at.composite(), p.where(first))
		return
	}
	taken.entries[e] = here
	if first, twice := taken.names[e.Joined()]; twice {
		p.warn(key, "envoyproxy/ratelimit refuses this as a duplicate of %s, for it joins key and value by '_'; "+
			"here pairs are compared", p.where(first))
		return
	}
	taken.names[e.Joined()] = here
}

// where is a spot as one says it in this file.
func (p *parser) where(s spot) string {
	if s.file == p.file {
		return fmt.Sprintf("line %d", s.line)
	}
	return s.String()
}

// envoysKeys are those that Envoy's actions give to an entry by themselves.
var envoysKeys = []string{"generic_key", "header_match", "query_match", "remote_address", "masked_remote_address",
	"source_cluster", "destination_cluster"}

// suspect warns of what works in the incumbent only because it matches joined text.
func (p *parser) suspect(key *yaml.Node, l descriptors.Level) {
	if l.Value != "" {
		return
	}
	for _, k := range envoysKeys {
		if rest, joined := strings.CutPrefix(l.Key, k+"_"); joined && rest != "" {
			p.warn(key, "a key that begins with '%s_' does not match the key '%s' with a value, as it does in "+
				"envoyproxy/ratelimit: write 'key: %s' and 'value: %s'", k, k, k, short(rest))
		}
	}
	if l.IsWildcard() && !strings.HasSuffix(l.Key, "*") {
		p.warn(key, "the pattern '%s' is matched against keys alone, with any value; envoyproxy/ratelimit matches it "+
			"against key and value joined by '_'", short(l.Key))
	}
}

// idle warns of a descriptor without limits or descriptors, unless it exempts requests from another at its level.
func (p *parser) idle(n *yaml.Node, at *descriptors.Node) {
	if at.Exempts() {
		return
	}
	p.warn(n, "the descriptor has neither a limit nor descriptors, and no effect: "+
		"nothing else at its level matches the same")
}
