package descriptors

import "slices"

// A Node is one item of descriptors in a rules file, in the tree of its domain, or the root of the
// tree. Build replaces the nodes by a ruleIndex, which takes less memory.
type Node struct {
	builder  *Builder
	domain   string
	parent   *Node    // nil at the root
	pathNode          // zero at the root
	rule     *Rule    // nil if n has neither limits nor unlimited: true
	children []*Node  // in file order
	record   recordID // in the index of Build; 0: not in it yet
}

// Add adds a node below n. Siblings must not have the same entry, including those of Values, or the
// same key and prefix.
func (n *Node) Add(s NodeSpec) *Node {
	b := n.builder
	intern := &b.intern
	added := &Node{builder: b, domain: n.domain, parent: n, pathNode: pathNode{
		kind: s.Kind(), isShared: s.ShareThreshold, valueToMetric: s.ValueToMetric, fileOrder: uint32(len(b.nodes) + 1),
		key: intern.key(s.Key), value: intern.string(s.Value),
	}}
	n.children, b.nodes = append(n.children, added), append(b.nodes, added)
	switch added.kind {
	case Values:
		added.list, added.value = &list{values: slices.Clone(s.Values)}, intern.string(slices.Min(s.Values))
	case Prefixes:
		added.list, added.value = &list{prefixes: slices.Clone(s.Prefixes)}, intern.string(s.Prefixes[0].String())
	}
	if added.list == nil {
		added.metricName = intern.string(added.entry().Joined())
	} else {
		added.metricName = intern.string(added.key + "_" + added.list.name())
	}
	return added
}

// SetRule sets the rule of n, with its Domain and Name, and returns the copy that the Rules will
// hold. Call it at most once for each Node, and not for the root.
func (n *Node) SetRule(r Rule) *Rule {
	b := n.builder
	r.path = b.intern.path(n.path())
	r.Domain, r.Name = n.domain, b.intern.string(ruleName(r.path))
	for i := range min(len(r.path), len(r.keyKinds)) {
		r.keyKinds[i] = r.path[i].keyKind()
	}
	for i := range r.Limits {
		r.Limits[i].Limit = b.intern.limit(r.Limits[i].Limit)
		r.hasLeases = r.hasLeases || r.Limits[i].UsesLeases()
	}
	if len(r.Limits) == 1 {
		r.Limits = b.intern.singleton(r.Limits[0])
	}
	n.rule = b.table.add(&r)
	return n.rule
}

func (n *Node) path() []pathNode {
	var path []pathNode
	for ; n.parent != nil; n = n.parent {
		path = append(path, n.pathNode)
	}
	slices.Reverse(path)
	return path
}

// IsEmpty reports whether n has neither a rule nor nodes below it.
func (n *Node) IsEmpty() bool {
	return n.rule == nil && len(n.children) == 0
}

// Exempts reports whether n matches requests that prefixes, a wildcard or a key-only node would
// otherwise match at its level. It is meant for a node that IsEmpty, after Build. With more than
// 100 wildcards, and for lists, it returns true without a complete search, so that loading stays
// linear.
func (n *Node) Exempts() bool {
	const maxSearched = 100
	index := n.builder.domains[n.domain].index
	general := index.inexactOf(index.record(n.parent.record))
	if general == nil {
		return false
	}
	keyOnly, prefixes := general.keyOnly[n.key], general.prefixesByKey[n.key]
	switch {
	case len(general.wildcards) > maxSearched, keyOnly > 0 && keyOnly != n.record:
		return true
	case prefixes != nil && (n.list == nil || prefixes.records.Size() > len(n.list.prefixes)): // some are not those of n
		return true
	}
	return slices.ContainsFunc(general.wildcards, func(w wildcardRecord) bool {
		matches := w.wildcard.matches(n.entry()) || n.list != nil && w.wildcard.key.match(n.key)
		return w.record != n.record && matches
	})
}
