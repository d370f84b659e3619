package descriptors

import "strings"

// A glob is a pattern in which '*' matches any number of characters. It matches greedily in one
// pass: each text between two stars at its first occurrence.
type glob struct {
	prefix, suffix string
	middle         []string
	star           bool // if false, the prefix is the whole pattern
}

func newGlob(pattern string) glob {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	g := glob{prefix: parts[0]}
	if last == 0 {
		return g
	}
	g.star, g.suffix = true, parts[last]
	for _, p := range parts[1:last] {
		if p != "" {
			g.middle = append(g.middle, p)
		}
	}
	return g
}

func (g *glob) match(s string) bool {
	if !g.star {
		return s == g.prefix
	}
	if len(s) < len(g.prefix)+len(g.suffix) || !strings.HasPrefix(s, g.prefix) || !strings.HasSuffix(s, g.suffix) {
		return false
	}
	s = s[len(g.prefix) : len(s)-len(g.suffix)]
	for _, m := range g.middle {
		i := strings.Index(s, m)
		if i < 0 {
			return false
		}
		s = s[i+len(m):]
	}
	return true
}

// Covers reports whether a node with entry e matches every entry that a node with entry other
// matches. In a node, an empty value matches every value.
func (e Entry) Covers(other Entry) bool {
	if e.Value == "" {
		return covers(e.Key, other.Key)
	}
	if other.Value == "" {
		other.Value = "*"
	}
	return covers(e.Key, other.Key) && covers(e.Value, other.Value)
}

// covers reports whether pattern matches every text that other matches. It tests this by matching
// other with each '*' replaced by a character that is not in pattern, so that only a '*' of pattern
// can match it.
func covers(pattern, other string) bool {
	const fresh = "\x00"
	if !strings.Contains(pattern, "*") || strings.Contains(pattern, fresh) {
		return pattern == other
	}
	g := newGlob(pattern)
	return g.match(strings.ReplaceAll(other, "*", fresh))
}
