package descriptors

// A Builder builds [Rules]. Nodes must be added in file order, because the first matching wildcard
// wins. Call [NewBuilder]; the zero value is not usable. A Builder is not safe for concurrent use.
type Builder struct {
	domains map[string]*Domain
	roots   map[string]*Node
	intern  interner
	table   *ruleTable
	nodes   []*Node // without the roots, in file order
}

// NewBuilder returns a Builder without domains.
func NewBuilder() *Builder {
	return &Builder{domains: map[string]*Domain{}, roots: map[string]*Node{}, intern: newInterner(), table: &ruleTable{}}
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

// Defaults returns the defaults of a domain, which the caller may set before Build. The domain must
// exist.
func (b *Builder) Defaults(domain string) *Defaults { return &b.domains[domain].defaults }

// Build returns the rules. Afterwards the Builder must not be used, and of its nodes only Exempts.
func (b *Builder) Build() *Rules {
	rules := &Rules{domains: b.domains, table: b.table}
	rules.collectOnStoreErrors()
	rules.version = b.version()
	for name, root := range b.roots {
		d := rules.domains[name]
		d.index, d.rules = newRuleIndex(root, b.table), rules
	}
	for _, n := range b.nodes {
		if n.IsEmpty() {
			d := rules.domains[n.domain]
			d.empty = append(d.empty, n.path())
		}
	}
	return rules
}
