package descriptors

import "strconv"

// A source is the origin of nodes: the file, and the position of the overlay entry that sets keys
// of their rules.
type source struct{ file, overlay string }

// SetSource sets the file and the line of n, from 1. Line 0 is for generated text without lines,
// such as an xDS resource. Call it before SetOverlay, and before SetRule of n and of the nodes
// below it.
func (n *Node) SetSource(file string, line int) {
	n.from, n.line = n.builder.intern.source(source{file: file}), uint32(line)
}

// SetOverlay sets the position of the overlay entry that sets keys of n's rule. Call it before
// SetRule.
func (n *Node) SetOverlay(position string) {
	from := source{overlay: position}
	if n.from != nil {
		from.file = n.from.file
	}
	n.from = n.builder.intern.source(from)
}

// Source returns the position of r, such as "rules.yaml:12", or the name of an xDS resource; "" if
// unknown.
func (r *Rule) Source() string {
	return r.lastNode().source()
}

// OverlaySource returns the position of the overlay entry that sets keys of r, such as
// "overlay.yaml:3"; "" if there is none.
func (r *Rule) OverlaySource() string {
	if from := r.lastNode().from; from != nil {
		return from.overlay
	}
	return ""
}

func (r *Rule) lastNode() *pathNode {
	if r == nil || len(r.path) == 0 {
		return &pathNode{}
	}
	return &r.path[len(r.path)-1]
}

// source returns the position of n, see [Rule.Source].
func (n *pathNode) source() string {
	switch {
	case n.from == nil:
		return ""
	case n.line == 0:
		return n.from.file
	}
	return n.from.file + ":" + strconv.FormatUint(uint64(n.line), 10)
}
