package descriptors

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/limiters"
)

const noDomain = "config file cannot have empty domain: want 'domain: <name>' at the top"

// A home is where a domain was first met, with the tree that it has.
type home struct {
	file    string
	domain  *Domain
	tree    *node
	taken   siblings
	onError spot // where the domain's on_store_error stands
}

// siblings are the descriptors of one level: the steps that are taken, and the incumbent's names for them.
type siblings struct {
	steps map[step]spot
	names map[string]spot
}

func newSiblings() siblings { return siblings{map[step]spot{}, map[string]spot{}} }

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
	// What is read under a bad domain goes into a tree that nobody sees.
	to := &home{p.file, &Domain{name: domain}, &node{}, newSiblings(), spot{}}
	switch first := p.homes[domain]; {
	case !ok:
	case domain == "":
		p.fault(f["domain"].value, noDomain)
	case first == nil:
		p.homes[domain] = to
		p.rules.domains[domain] = to.domain
	case p.options.MergeDomains:
		to = first
	default:
		p.fault(f["domain"].value, "duplicate domain '%s' in config file: %s has it too; put all its descriptors in one "+
			"file, or set MERGE_DOMAIN_CONFIG", short(domain), first.file)
	}
	p.onErrorOf(f["on_store_error"], to)
	p.descriptors(f["descriptors"], place{node: to.tree, domain: domain}, to.taken)
}

// onErrorOf reads what a domain says of a store that fails. Its files may not disagree.
func (p *parser) onErrorOf(f field, of *home) {
	said := p.onError(f)
	if said == limiters.OnErrorUnsaid {
		return
	}
	if d := of.domain; d.onError != limiters.OnErrorUnsaid && d.onError != said {
		p.fault(f.key, "on_store_error '%s' is not what %s says of the domain, '%s': want it once", said, p.where(of.onError), d.onError)
		return
	}
	of.domain.onError, of.onError = said, p.spot(f.key)
}

// A place is a node of the tree with the way to it.
type place struct {
	node   *node
	domain string
	path   []level
}

// composite is the incumbent's name of a place, which its messages tell.
func (at place) composite() string {
	const most = 500
	text := at.domain
	for _, l := range at.path {
		text += "." + l.step.composite()
	}
	return cut(text, most)
}

func (p *parser) descriptors(f field, at place, taken siblings) {
	if p.empty(f) {
		return
	}
	for _, n := range p.maps(f) {
		p.descriptor(n, at, taken)
	}
}

func (p *parser) descriptor(n *yaml.Node, at place, taken siblings) {
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
	l := p.level(key, value)
	l.share, l.valueToMetric = p.flag(f["share_threshold"]), p.flag(f["value_to_metric"])
	child := place{&node{}, at.domain, append(slices.Clip(at.path), l)}
	p.visits += len(child.path)
	p.depth++
	defer func() { p.depth-- }()
	if l.share && l.how != wildcard {
		p.fault(f["share_threshold"].key, "share_threshold can only be used with wildcard values (containing '*'), "+
			"but found key '%s'", short(l.composite()))
	}
	if keyOK && valueOK && key != "" {
		p.take(f["key"].key, child, taken)
		at.node.add(l.step, child.node)
		p.suspect(f["key"].key, l.step)
	}
	p.rule(f, child)
	p.descriptors(f["descriptors"], child, newSiblings())
	if child.node.rule == nil && !child.node.inner() {
		p.later(func() { p.idle(n, at.node, child) })
	}
}

// rule reads what a descriptor says of the requests that end there.
func (p *parser) rule(f fields, at place) {
	rule := &Rule{
		Domain: at.domain, Name: name(at.path), path: at.path,
		ShadowMode: p.flag(f["shadow_mode"]), QuotaMode: p.flag(f["quota_mode"]), Metadata: p.metadata(f["metadata"]),
		detailed: p.flag(f["detailed_metric"]),
		shares:   slices.ContainsFunc(at.path, func(l level) bool { return l.share }),
	}
	for i := range min(len(rule.path), len(rule.plain)) {
		if l := &rule.path[i]; l.how != wildcard && !l.share {
			rule.plain[i] = byte(l.how)
		}
	}
	if p.limits(f, rule) {
		if len(rule.Limits) == 1 {
			rule.Limits = p.shared.only(rule.Limits[0])
		}
		rule.Name, rule.path = p.shared.text(rule.Name), p.shared.path(rule.path)
		at.node.rule = p.chunks.keep(rule)
		p.rules.rules = append(p.rules.rules, at.node.rule)
		return
	}
	if f["rate_limit"].key != nil || f["rate_limits"].key != nil {
		return // there is a fault, or a warning, already
	}
	for name, set := range map[string]bool{
		"shadow_mode": rule.ShadowMode, "quota_mode": rule.QuotaMode, "detailed_metric": rule.detailed,
		"metadata": len(rule.Metadata) > 0,
	} {
		if set {
			p.warn(f[name].key, "%s has no effect without a rate_limit beside it: descriptors inherit nothing", name)
		}
	}
}

// take tells of a descriptor that is there already.
func (p *parser) take(key *yaml.Node, at place, taken siblings) {
	s, here := at.path[len(at.path)-1].step, p.spot(key)
	if first, twice := taken.steps[s]; twice {
		p.fault(key, "duplicate descriptor composite key '%s': %s has it too; put what they hold in one",
			at.composite(), p.where(first))
		return
	}
	taken.steps[s] = here
	if first, twice := taken.names[s.composite()]; twice {
		p.warn(key, "envoyproxy/ratelimit refuses this as a duplicate of %s, for it joins key and value by '_'; "+
			"here pairs are compared", p.where(first))
		return
	}
	taken.names[s.composite()] = here
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
func (p *parser) suspect(key *yaml.Node, s step) {
	if s.value != "" {
		return
	}
	for _, k := range envoysKeys {
		if rest, joined := strings.CutPrefix(s.key, k+"_"); joined && rest != "" {
			p.warn(key, "a key that begins with '%s_' does not match the key '%s' with a value, as it does in "+
				"envoyproxy/ratelimit: write 'key: %s' and 'value: %s'", k, k, k, short(rest))
		}
	}
	if s.how == wildcard && !strings.HasSuffix(s.key, "*") {
		p.warn(key, "the pattern '%s' is matched against keys alone, with any value; envoyproxy/ratelimit matches it "+
			"against key and value joined by '_'", short(s.key))
	}
}

// idle warns of a descriptor without limits or descriptors, unless it keeps requests from another one at its level.
func (p *parser) idle(n *yaml.Node, parent *node, at place) {
	const most = 100 // patterns to look through, lest many make a reload slow
	s := at.path[len(at.path)-1].step
	if other := parent.byName[s.key]; other != nil && other != at.node || len(parent.wild) > most {
		return
	}
	for i := range parent.wild {
		w := &parent.wild[i]
		if w.node != at.node && w.key.match(s.key) && (w.anyValue || w.value.match(s.value)) {
			return
		}
	}
	p.warn(n, "the descriptor has neither a limit nor descriptors, and no effect: "+
		"nothing else at its level matches the same")
}
