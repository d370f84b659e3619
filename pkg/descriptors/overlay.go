package descriptors

import (
	"cmp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/limiters"
)

// An Overlay says how limits are kept that arrive without a word about it: rules by xDS have no field for an algorithm.
// It does not change and may be shared; nil says nothing.
type Overlay struct {
	domains  map[string]*node
	onError  map[string]limiters.OnError // of domains
	policies []*policy
	warnings Faults
}

var (
	overlayTop = &section{id: "overlay", name: "an overlay", keys: top.keys, strict: true}
	// What an overlay has of a descriptor finds the place, and nothing else.
	overlayDescriptor = &section{name: "a descriptor of an overlay", keys: []key{
		*inDescriptor.key("key"), *inDescriptor.key("value"),
		*inDescriptor.key("rate_limit"), *inDescriptor.key("descriptors"),
	}, strict: true}
	overlayLimit = &section{name: "a rate_limit of an overlay", keys: policyKeys, strict: true}
)

// ParseOverlay reads files, one domain each. They have the shape of rules, but a rate_limit may hold algorithm,
// window_start, capacity, count_denied and on_store_error alone. The error is [Faults].
func ParseOverlay(files ...File) (*Overlay, error) {
	o := &Overlay{domains: map[string]*node{}, onError: map[string]limiters.OnError{}}
	homes := map[string]string{}
	var faults Faults
	for _, f := range files {
		p := overlayParser{reader{file: f.Name}, o, homes}
		if root := p.root(f.Data); root != nil {
			p.top(root)
		}
		faults = append(faults, p.faults...)
		o.warnings = append(o.warnings, p.warnings...)
	}
	if len(faults) > 0 {
		faults.sort()
		return nil, faults
	}
	return o, nil
}

// match finds what the overlay says of a rule: by the rule's own keys and values, as a request finds a rule.
func (o *Overlay) match(domain string, path []level) *policy {
	if o == nil {
		return nil
	}
	n := o.domains[domain]
	for i := 0; n != nil && i < len(path); i++ {
		n = n.next(Entry{path[i].key, path[i].value})
	}
	if n == nil {
		return nil
	}
	return n.policy
}

// settle says of domains what their rules leave open.
func (o *Overlay) settle(rules *Rules) {
	if o == nil {
		return
	}
	for name, onError := range o.onError {
		if d := rules.Domain(name); d != nil {
			d.onError = cmp.Or(d.onError, onError)
		}
	}
}

// warn tells what was odd about the overlay, and what of it no rule has matched.
func (o *Overlay) warn(applied map[*policy]bool) Faults {
	if o == nil {
		return nil
	}
	all := slices.Clone(o.warnings)
	for _, p := range o.policies {
		if !applied[p] {
			all = append(all, Fault{p.file, p.at.Line, p.at.Column,
				"the overlay has no effect here: it matches no rate_limit of the rules"})
		}
	}
	return all
}

// An overlayParser adds what one file says to an overlay.
type overlayParser struct {
	reader
	overlay *Overlay
	homes   map[string]string
}

func (p *overlayParser) top(root *yaml.Node) {
	f, ok := p.fields(root, overlayTop)
	if !ok {
		return
	}
	domain, ok := p.text(f["domain"])
	tree := &node{}
	switch first, taken := p.homes[domain]; {
	case !ok:
	case domain == "":
		p.fault(f["domain"].value, noDomain)
	case taken:
		p.fault(f["domain"].value, "duplicate domain '%s' in overlay: %s has it too; put all its descriptors in one file",
			short(domain), first)
	default:
		p.homes[domain], p.overlay.domains[domain] = p.file, tree
		p.overlay.onError[domain] = p.onError(f["on_store_error"])
	}
	p.descriptors(f["descriptors"], tree)
}

func (p *overlayParser) descriptors(f field, at *node) {
	if p.empty(f) {
		return
	}
	p.depth++
	defer func() { p.depth-- }()
	taken := map[step]int{}
	for _, n := range p.maps(f) {
		p.descriptor(n, at, taken)
	}
}

func (p *overlayParser) descriptor(n *yaml.Node, at *node, taken map[step]int) {
	f, ok := p.fields(n, overlayDescriptor)
	if !ok {
		return
	}
	key, keyOK := p.text(f["key"])
	value, valueOK := p.text(f["value"])
	s, child := newStep(Entry{key, value}), &node{}
	switch first := taken[s]; {
	case !keyOK || !valueOK:
	case key == "":
		p.fault(n, "descriptor has empty key: want 'key: <name>'")
	case first > 0:
		p.fault(f["key"].key, "duplicate descriptor '%s': line %d has it too; put what they hold in one",
			short(s.composite()), first)
	default:
		taken[s] = f["key"].key.Line
		at.add(s, child)
	}
	if !p.empty(f["rate_limit"]) {
		p.limit(f["rate_limit"].value, child)
	}
	p.descriptors(f["descriptors"], child)
}

func (p *overlayParser) limit(n *yaml.Node, at *node) {
	f, ok := p.fields(n, overlayLimit)
	if !ok {
		return
	}
	at.policy = p.policy(n, f)
	p.overlay.policies = append(p.overlay.policies, at.policy)
	if at.policy.says["algorithm"] == nil {
		return // the rules may say which
	}
	for key, problem := range at.policy.strays() {
		p.fault(at.policy.says[key], "%s", problem)
	}
}
