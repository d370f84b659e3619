package descriptors

import (
	"maps"
	"slices"
)

// tree rebuilds the tree of d from the rules, for a [Walker]. It returns the root, and the other
// nodes by fileOrder. They have only a pathNode, a rule and children.
func (d *Domain) tree() (root *Node, byFileOrder map[uint32]*Node) {
	root, byFileOrder = &Node{}, map[uint32]*Node{}
	if d == nil {
		return root, byFileOrder
	}
	add := func(path []pathNode, rule *Rule) {
		n := root
		for i := range path {
			child := byFileOrder[path[i].fileOrder]
			if child == nil {
				child = &Node{pathNode: path[i]}
				byFileOrder[path[i].fileOrder], n.children = child, append(n.children, child)
			}
			n = child
		}
		n.rule = rule
	}
	for rule := range d.rules.All() {
		if rule.Domain == d.name {
			add(rule.path, rule)
		}
	}
	for _, path := range d.empty {
		add(path, nil)
	}
	return root, byFileOrder
}

// PrefixKeys returns the keys that nodes of the domain, with or without limits, match with
// prefixes. It reads every rule. Nil has no nodes.
func (d *Domain) PrefixKeys() map[string]bool {
	keys := map[string]bool{}
	_, nodes := d.tree()
	for _, n := range nodes {
		if n.kind == Prefixes {
			keys[n.key] = true
		}
	}
	return keys
}

// ExactValues returns the values that nodes of the domain, with or without limits, have for the
// key, without wildcards. It reads every rule. Nil has no nodes.
func (d *Domain) ExactValues(key string) []string {
	values := map[string]bool{}
	_, nodes := d.tree()
	for _, n := range nodes {
		if n.key == key && (n.kind == Exact || n.kind == Values) {
			for _, value := range n.values() {
				values[value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}
