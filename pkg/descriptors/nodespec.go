package descriptors

import (
	"net/netip"
	"strings"
)

// A NodeSpec configures a node: the entries that it matches, and its modifiers. At most one of
// Value, Values and Prefixes is set; without any, the node matches every value. A '*' in Key or
// Value matches any characters. With Values or Prefixes, Key has no '*'.
type NodeSpec struct {
	Entry
	Values         []string       // each an exact value, not empty
	Prefixes       []netip.Prefix // each masked, and IPv4 if it is IPv4-mapped
	ShareThreshold bool           // one counter for all matches of the wildcard or the values, or of each prefix
	ValueToMetric  bool           // the request's value in the names of metrics
}

// A MatchKind classifies how a node matches an entry. It is the byte for this match in a [Key].
type MatchKind byte

// The kinds of nodes.
const (
	Exact    MatchKind = '=' // the key and the value
	Values   MatchKind = ',' // the key and one of NodeSpec.Values
	Prefixes MatchKind = '/' // the key and an address in one of NodeSpec.Prefixes
	Wildcard MatchKind = '~' // a key or a value with a '*'
	KeyOnly  MatchKind = '*' // the key and any value
	unruled  MatchKind = '?' // no rule has a node for the entry
)

// Kind returns how a node with s matches an entry.
func (s NodeSpec) Kind() MatchKind {
	switch {
	case len(s.Values) > 0:
		return Values
	case len(s.Prefixes) > 0:
		return Prefixes
	case strings.Contains(s.Key, "*") || strings.Contains(s.Value, "*"):
		return Wildcard
	case s.Value == "":
		return KeyOnly
	}
	return Exact
}

// IsShareable reports whether s may have ShareThreshold: it must have a '*', Values or Prefixes.
func (s NodeSpec) IsShareable() bool {
	kind := s.Kind()
	return kind != Exact && kind != KeyOnly
}
