package descriptors

import "strconv"

// A source is the file of descriptors, and the position in an overlay that sets keys of them. Descriptors share it.
type source struct{ file, overlay string }

// SetSource sets the position of n: a file and the line, from 1. Line 0 stands for a file that no user sees, such as the
// text of an xDS resource. Call it before SetRule and before SetOverlay.
func (n *Node) SetSource(file string, line int) {
	n.from, n.line = n.builder.intern.source(source{file: file}), uint32(line)
}

// SetOverlay sets the position in an overlay that sets keys of the rule of n. Call it before SetRule.
func (n *Node) SetOverlay(at string) {
	from := source{overlay: at}
	if n.from != nil {
		from.file = n.from.file
	}
	n.from = n.builder.intern.source(from)
}

// Source returns the position of r: "rules.yaml:12", the name of an xDS resource, or "" if it is unknown.
func (r *Rule) Source() string {
	if r == nil {
		return ""
	}
	return r.from.text(r.line)
}

// OverlaySource returns the position in the overlay that sets keys of r, such as "overlay.yaml:3"; "" if there is none.
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
