package descriptors

import (
	"maps"
	"slices"
)

// A walkNode is a [Node] in the tree that a [Walker] rebuilds from the rules.
type walkNode struct {
	pathNode       // zero at the root
	rule     *Rule // nil if the node has none
	children []*walkNode
}

// tree rebuilds the tree of d. It returns the root, and the other nodes by fileOrder.
func (d *Domain) tree() (root *walkNode, byFileOrder map[uint32]*walkNode) {
	root, byFileOrder = &walkNode{}, map[uint32]*walkNode{}
	if d == nil {
		return root, byFileOrder
	}
	add := func(path []pathNode, rule *Rule) {
		n := root
		for i := range path {
			child := byFileOrder[path[i].fileOrder]
			if child == nil {
				child = &walkNode{pathNode: path[i]}
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
