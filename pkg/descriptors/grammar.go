package descriptors

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A section is a kind of map in a file, and the keys it may have. The incumbent takes its own keys in any map, where
// they then mean nothing: for those, a wrong place is no fault here either. The keys that are new are strict.
type section struct {
	name      string
	keys, new []string
}

var (
	top          = &section{"the file", []string{"domain", "descriptors"}, nil}
	inDescriptor = &section{
		"a descriptor",
		[]string{"key", "value", "rate_limit", "descriptors"},
		[]string{"rate_limits"},
	}
	inRateLimit = &section{
		"a rate_limit",
		[]string{"unit", "requests_per_unit"},
		[]string{"unit_multiplier", "algorithm", "window_start", "capacity", "count_denied"},
	}
)

func (s *section) has(key string) bool {
	return slices.Contains(s.keys, key) || slices.Contains(s.new, key)
}

func (s *section) String() string { return strings.Join(slices.Concat(s.keys, s.new), ", ") }

// knows tells whether key may stand in a map of this section, and if not, what is wrong with it.
func (r *reader) knows(key *yaml.Node, in *section) bool {
	switch {
	case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
		r.fault(key, "config error, key is not of type string: %s: want one of %s", quoted(key), in)
		return false
	case in.has(key.Value):
		return true
	}
	for _, other := range []*section{top, inDescriptor, inRateLimit} {
		switch {
		case slices.Contains(other.keys, key.Value):
			r.warn(key, "key '%s' has no effect in %s: it belongs in %s", key.Value, in.name, other.name)
			return false
		case slices.Contains(other.new, key.Value):
			r.fault(key, "config error, unknown key '%s' in %s: it belongs in %s", key.Value, in.name, other.name)
			return false
		}
	}
	r.fault(key, "config error, unknown key '%s': want one of %s", short(key.Value), in)
	return false
}

const noDomain = "config file cannot have empty domain: want 'domain: <name>' at the top"

func (p *parser) top(root *yaml.Node) {
	f, ok := p.fields(root, top)
	if !ok {
		return
	}
	domain, ok := p.text(f["domain"])
	tree := &node{}
	switch home, taken := p.homes[domain]; {
	case !ok:
	case domain == "":
		p.fault(f["domain"].value, noDomain)
	case taken:
		p.fault(f["domain"].value, "duplicate domain '%s' in config file: %s has it too; put all its descriptors in one file",
			short(domain), home)
	default:
		p.homes[domain] = p.file
		p.rules.domains[domain] = tree
	}
	p.descriptors(f["descriptors"], place{node: tree, domain: domain})
}

// A place is a node of the tree with the way to it.
type place struct {
	node   *node
	domain string
	path   []step
}

// composite is the incumbent's name of a place, which its messages tell.
func (at place) composite() string {
	text := at.domain
	for _, s := range at.path {
		text += "." + s.key
		if s.value != "" {
			text += "_" + s.value
		}
	}
	return short(text)
}

func (p *parser) descriptors(f field, at place) {
	if p.empty(f) {
		return
	}
	taken := map[step]*yaml.Node{}
	for _, n := range p.maps(f) {
		p.descriptor(n, at, taken)
	}
}

func (p *parser) descriptor(n *yaml.Node, at place, taken map[step]*yaml.Node) {
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
	s := newStep(Entry{key, value})
	child := place{&node{}, at.domain, append(slices.Clip(at.path), s)}
	p.visits += len(child.path)
	p.depth++
	defer func() { p.depth-- }()
	if keyOK && valueOK && key != "" {
		if first := taken[s]; first != nil {
			p.fault(f["key"].key, "duplicate descriptor composite key '%s': line %d has it too; put what they hold in one",
				child.composite(), first.Line)
		} else {
			taken[s] = f["key"].key
		}
		at.node.add(s, child.node)
	}
	if limits := p.limits(f); len(limits) > 0 {
		child.node.rule = &Rule{at.domain, name(child.path), limits, child.path}
		p.rules.rules = append(p.rules.rules, child.node.rule)
	}
	p.descriptors(f["descriptors"], child)
}

func (p *parser) limits(f fields) []RateLimit {
	one, many := f["rate_limit"], f["rate_limits"]
	if one.key != nil && many.key != nil {
		p.fault(many.key, "rate_limits stands in place of rate_limit: put that limit in the list too")
	}
	var limits []RateLimit
	if !p.empty(one) {
		if l, ok := p.limit(one.value); ok {
			limits = append(limits, l)
		}
	}
	if many.key == nil {
		return limits
	}
	if n, ok := p.visit(many.value); ok && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		p.fault(n, "rate_limits is empty: want at least one limit")
	}
	return append(limits, p.list(many)...)
}

// list reads limits that are one group: no two may share a counter.
func (p *parser) list(f field) []RateLimit {
	var limits []RateLimit
	ids := map[string]bool{}
	for _, n := range p.maps(f) {
		l, ok := p.limit(n)
		if !ok {
			continue
		}
		if ids[l.Limit.ID()] {
			p.fault(n, "duplicate limit in rate_limits: it would share a counter with one above of the same algorithm and "+
				"window; keep the lower, or change the unit or the unit_multiplier")
		}
		ids[l.Limit.ID()] = true
		limits = append(limits, l)
	}
	return limits
}

const (
	defaultAlgorithm = "fixed_window"
	funnelAlgorithm  = "funnel"
)

func (p *parser) limit(n *yaml.Node) (RateLimit, bool) {
	before := len(p.faults)
	f, ok := p.fields(n, inRateLimit)
	if !ok {
		return RateLimit{}, false
	}
	unit := p.unit(n, f["unit"])
	multiplier := p.number(f["unit_multiplier"], 1, 1)
	requests := p.number(f["requests_per_unit"], 0, 0)
	if f["requests_per_unit"].key == nil {
		p.warn(n, "requests_per_unit is missing: it is 0, which denies every hit")
	}
	spec := p.spec(f)
	if len(p.faults) > before || p.stopped {
		return RateLimit{}, false
	}
	l, err := newRateLimit(spec, requests, unit, multiplier)
	if err != nil {
		p.fault(n, "%v", err)
	}
	return l, err == nil
}

func (p *parser) unit(limit *yaml.Node, f field) Unit {
	text, ok := p.text(f)
	unit := parseUnit(text)
	if ok && unit == UnitUnknown {
		if f.value != nil {
			limit = f.value
		}
		p.fault(limit, "invalid rate limit unit '%s': want one of %s", short(text), unitNames)
	}
	return unit
}

// spec reads all of a limit that is not its rate.
func (p *parser) spec(f fields) limiters.Spec {
	algorithms := limiters.Algorithms()
	algorithm, known := p.word(f["algorithm"], algorithms...)
	for name, only := range map[string]string{"window_start": defaultAlgorithm, "capacity": funnelAlgorithm} {
		if key := f[name].key; key != nil && known && algorithm != only {
			p.fault(key, "%s has no meaning for the algorithm %s: remove it, or set algorithm: %s", name, algorithm, only)
		}
	}
	start, _ := p.word(f["window_start"], "clock", "first_hit")
	return limiters.Spec{
		Algorithm:   algorithm,
		Capacity:    int64(p.number(f["capacity"], 1, 0)),
		FirstHit:    start == "first_hit",
		CountDenied: p.boolean(f["count_denied"], algorithm == defaultAlgorithm),
	}
}
