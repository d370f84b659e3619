package descriptors

import "strconv"

// A source is where nodes come from: a file, and the position in an overlay that sets keys of them.
type source struct{ file, overlay string }

// SetSource sets the file and the line of n, from 1. Line 0 is for generated text without lines, such as an xDS resource. Call it
// before SetRule and SetOverlay.
func (n *Node) SetSource(file string, line int) {
	n.from, n.line = n.builder.intern.source(source{file: file}), uint32(line)
}

// SetOverlay sets the position of the overlay entry that sets keys of n's rule. Call it before SetRule.
func (n *Node) SetOverlay(position string) {
	from := source{overlay: position}
	if n.from != nil {
		from.file = n.from.file
	}
	n.from = n.builder.intern.source(from)
}

// Source returns the position of r, such as "rules.yaml:12", or the name of an xDS resource; "" if unknown.
func (r *Rule) Source() string {
	if r == nil {
		return ""
	}
	return r.from.text(r.line)
}

// OverlaySource returns the position of the overlay entry that sets keys of r, such as "overlay.yaml:3"; "" if there is none.
func (r *Rule) OverlaySource() string {
	if r == nil || r.from == nil {
		return ""
	}
	return r.from.overlay
}

func (s *source) text(line uint32) string {
	switch {
	case s == nil:
		return ""
	case line == 0:
		return s.file
	}
	return s.file + ":" + strconv.FormatUint(uint64(line), 10)
}
