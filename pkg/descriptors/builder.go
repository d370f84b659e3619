package descriptors

import (
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Builder makes [Rules]. Add descriptors in the order of the files: among wildcards the first that matches wins. The
// zero value is not usable; call [NewBuilder]. A Builder is not safe for concurrent use.
type Builder struct {
	domains map[string]*Domain
	roots   map[string]*Node
	intern  intern
	chunks  *chunks
}

// NewBuilder returns a Builder without domains.
func NewBuilder() *Builder {
	return &Builder{domains: map[string]*Domain{}, roots: map[string]*Node{}, intern: newIntern(), chunks: &chunks{}}
}

// Domain returns the root of a domain's tree. The first call for a name adds the domain.
func (b *Builder) Domain(name string) *Node {
	root, found := b.roots[name]
	if !found {
		root = &Node{builder: b, domain: name}
		b.roots[name], b.domains[name] = root, &Domain{name: name}
	}
	return root
}

// SetOnError sets the default of a domain for hits that the store cannot decide. The domain must have been added.
func (b *Builder) SetOnError(domain string, policy limiters.OnError) {
	b.domains[domain].onError = policy
}

// OnError returns what SetOnError set; it is limiters.OnErrorUnsaid if the domain has no default.
func (b *Builder) OnError(domain string) limiters.OnError {
	if d := b.domains[domain]; d != nil {
		return d.onError
	}
	return limiters.OnErrorUnsaid
}

// Build returns the rules added so far. The Builder must not be used afterwards.
func (b *Builder) Build() *Rules {
	rules := &Rules{domains: b.domains, chunks: b.chunks}
	rules.noteOnErrors()
	for name, root := range b.roots {
		rules.domains[name].index = newIndex(root, b.chunks)
	}
	return rules
}

// A Level is one descriptor on the path to a rule: the entry that it matches, and its modifiers. A '*' in the key or in
// the value matches any characters. An empty value matches every value.
type Level struct {
	Entry
	ShareThreshold bool // one counter for all that the wildcard matches
	ValueToMetric  bool // the request's value in the names of metrics
}

// IsWildcard reports whether the key or the value has a '*'.
func (l Level) IsWildcard() bool { return newStep(l.Entry).how == wildcard }

// A Node is one descriptor in the tree of a domain, or the root of the tree.
type Node struct {
	builder *Builder
	domain  string
	parent  *Node // nil at the root
	level   level
	rule    *Rule // nil: no limit here

	exact  map[Entry]*Node
	wild   []wild // in file order
	byName map[string]*Node

	at uint32 // position in an index; 0: not in one yet
}

// A wild is a child of a node whose key or value is a pattern.
type wild struct {
	pattern pattern
	node    *Node
}

// Add adds a descriptor below n. No two descriptors below one node may have the same entry.
func (n *Node) Add(l Level) *Node {
	in := &n.builder.intern
	s := newStep(Entry{in.key(l.Key), in.text(l.Value)})
	child := &Node{builder: n.builder, domain: n.domain, parent: n, level: level{
		step: s, share: l.ShareThreshold, valueToMetric: l.ValueToMetric, text: in.text(s.entry().Joined()),
	}}
	if s.how == wildcard {
		n.wild = append(n.wild, wild{newPattern(s.entry()), child})
	}
	switch {
	case s.value != "":
		// A pattern also matches its own text as an exact value, which wins over the patterns before it.
		if n.exact == nil {
			n.exact = map[Entry]*Node{}
		}
		n.exact[s.entry()] = child
	case s.how == keyOnly:
		if n.byName == nil {
			n.byName = map[string]*Node{}
		}
		n.byName[s.key] = child
	}
	return child
}

// SetRule makes r the rule of n and returns the copy that the Rules will hold. It sets the Domain and the Name of r. It
// may be called once for each Node but the root.
func (n *Node) SetRule(r Rule) *Rule {
	b := n.builder
	r.path = b.intern.path(n.path())
	r.Domain, r.Name = n.domain, b.intern.text(name(r.path))
	r.replacing = len(r.Replaces) > 0
	r.shares = slices.ContainsFunc(r.path, func(l level) bool { return l.share })
	for i := range min(len(r.path), len(r.plain)) {
		if l := &r.path[i]; l.how != wildcard && !l.share {
			r.plain[i] = byte(l.how)
		}
	}
	for i := range r.Limits {
		r.Limits[i].Limit = b.intern.limit(r.Limits[i].Limit)
	}
	if len(r.Limits) == 1 {
		r.Limits = b.intern.only(r.Limits[0])
	}
	n.rule = b.chunks.keep(&r)
	return n.rule
}

func (n *Node) path() []level {
	var path []level
	for ; n.parent != nil; n = n.parent {
		path = append(path, n.level)
	}
	slices.Reverse(path)
	return path
}

// IsEmpty reports whether n has neither a rule nor descriptors below it.
func (n *Node) IsEmpty() bool { return n.rule == nil && len(n.exact)+len(n.wild)+len(n.byName) == 0 }

// Exempts reports whether n takes requests from another descriptor at its level: from a wildcard or from the key alone.
// It is meant for a node that IsEmpty. Where there are more than 100 wildcards it returns true without a search, which
// keeps loading linear.
func (n *Node) Exempts() bool {
	const maxSearched = 100
	siblings := n.parent
	if other := siblings.byName[n.level.key]; other != nil && other != n || len(siblings.wild) > maxSearched {
		return true
	}
	return slices.ContainsFunc(siblings.wild, func(w wild) bool { return w.node != n && w.pattern.matches(n.level.entry()) })
}

// A pattern is a descriptor's key and value, at least one of which has a '*'.
type pattern struct {
	key, value glob
	anyValue   bool
}

func newPattern(e Entry) pattern {
	return pattern{newGlob(e.Key), newGlob(e.Value), e.Value == ""}
}

func (p *pattern) matches(e Entry) bool {
	return p.key.match(e.Key) && (p.anyValue || p.value.match(e.Value))
}
