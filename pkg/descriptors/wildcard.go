package descriptors

import "strings"

// A wildcard is the key and the value of a node of the kind [Wildcard].
type wildcard struct {
	key, value starText
	anyValue   bool // the node has no value
}

func newWildcard(e Entry) wildcard {
	return wildcard{newStarText(e.Key), newStarText(e.Value), e.Value == ""}
}

func (w *wildcard) matches(e Entry) bool {
	return w.key.match(e.Key) && (w.anyValue || w.value.match(e.Value))
}

// A starText is a text in which '*' matches any number of characters. It matches greedily in one
// pass: each text between two stars at its first occurrence.
type starText struct {
	start, end string
	middle     []string
	hasStar    bool // if false, start is the whole text
}

func newStarText(text string) starText {
	parts := strings.Split(text, "*")
	last := len(parts) - 1
	t := starText{start: parts[0]}
	if last == 0 {
		return t
	}
	t.hasStar, t.end = true, parts[last]
	for _, p := range parts[1:last] {
		if p != "" {
			t.middle = append(t.middle, p)
		}
	}
	return t
}

func (t *starText) match(s string) bool {
	if !t.hasStar {
		return s == t.start
	}
	if len(s) < len(t.start)+len(t.end) || !strings.HasPrefix(s, t.start) || !strings.HasSuffix(s, t.end) {
		return false
	}
	s = s[len(t.start) : len(s)-len(t.end)]
	for _, m := range t.middle {
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
	return covers(e.Key, other.Key) && covers(e.Value, other.Value)
}

// covers reports whether text, as a [starText], matches every text that other matches. It tests
// this by matching other with each '*' replaced by a character that is not in text, so that only a
// '*' of text can match it.
func covers(text, other string) bool {
	const fresh = "\x00"
	if !strings.Contains(text, "*") || strings.Contains(text, fresh) {
		return text == other
	}
	t := newStarText(text)
	return t.match(strings.ReplaceAll(other, "*", fresh))
}
