package descriptors

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// A Step explains which node of the rules one entry selects, or why it selects none.
type Step struct {
	Level  int   // the position of the entry, from 1
	Entry  Entry // the request's entry
	Result StepResult

	Node   string // the selected node, such as "path=/a*"; "" if there is none
	Source string // the node's position, as in [Rule.Source]
	Rule   *Rule  // the node's rule; nil: it has no limit
	Hides  *Hidden

	Above        string       // the node at the level above, "" at the top
	Prefix       netip.Prefix // set for MatchedPrefix
	Alternatives []string     // sorted keys or values of nodes, if the entry selects nothing, or the node ends the walk without a rule
}

// A StepResult classifies how an entry selects a node, or the reason why it selects none.
type StepResult uint8

// The results. The first five are selections.
const (
	MatchedValue    StepResult = iota // key and value are equal
	MatchedList                       // the value is in a list of values
	MatchedPrefix                     // the address is in a prefix
	MatchedWildcard                   // the wildcard fits
	MatchedKey                        // the key is equal, and the node has no value
	NoChild                           // the node above has no children, or the domain no nodes
	NoKey                             // no node at this level has the key
	NoValue                           // nodes have the key, each with another value
	NoWildcard                        // as NoValue, and at least one has a wildcard
	NoPrefix                          // as NoValue, and at least one has prefixes
	NoAddress                         // as NoPrefix, and the value is not an address
)

var stepResultNames = [...]string{
	MatchedValue: "value", MatchedList: "list", MatchedPrefix: "prefix", MatchedWildcard: "wildcard", MatchedKey: "key",
	NoChild: "no_child", NoKey: "no_key", NoValue: "no_value", NoWildcard: "no_wildcard", NoPrefix: "no_prefix", NoAddress: "no_address",
}

// String returns the result in snake_case.
func (r StepResult) String() string { return stepResultNames[r] }

// Matched reports whether r is a selection.
func (r StepResult) Matched() bool { return r <= MatchedKey }

// A Hidden is a more general node that leads to a rule. Match does not try it, because its
// selection is final.
type Hidden struct {
	Node, Source string // the more general node and its position
	Rule         *Rule  // at which the request would have ended
}

// A branch is a path from the root to a rule, or to a node that has neither a rule nor nodes below
// it.
type branch struct {
	path []level
	rule *Rule // nil: no limits
}

// branches returns the branches of d, which together are its tree.
func (d *Domain) branches() []branch {
	if d == nil {
		return nil
	}
	var all []branch
	for rule := range d.rules.All() {
		if rule.Domain == d.name {
			all = append(all, branch{rule.path, rule})
		}
	}
	for _, path := range d.empty {
		all = append(all, branch{path, nil})
	}
	return all
}

// A node is a node of the tree that matches an entry, or the root.
type node struct {
	*level
	depth  int
	rule   *Rule // nil: no limits
	below  []branch
	result StepResult
	prefix netip.Prefix // set for MatchedPrefix
}

// Walk explains [Domain.Match]. It returns a step for each entry up to the first that selects
// nothing. If all entries select a node, the Rule of the last step is the result of Match;
// otherwise the result is nil. Walk reads every rule, so it is slow for many rules. Nil has no
// steps.
func (d *Domain) Walk(entries []Entry) []Step {
	if d == nil || len(entries) == 0 {
		return nil
	}
	at := &node{level: &level{}, below: d.branches()}
	var steps []Step
	var general [][]*node // at each level, the nodes that Match does not try
	for i, e := range entries {
		step := Step{Level: i + 1, Entry: e, Above: at.text()}
		candidates := at.childrenMatching(e)
		if len(candidates) == 0 {
			at.explainNone(&step)
			steps = append(steps, step)
			break
		}
		at, general = candidates[0], append(general, candidates[1:])
		step.Result, step.Node, step.Source, step.Rule, step.Prefix = at.result, at.text(), at.source(), at.rule, at.prefix
		steps = append(steps, step)
	}
	last := &steps[len(steps)-1]
	if last.Rule != nil && len(steps) == len(entries) {
		return steps
	}
	if last.Result.Matched() {
		last.Alternatives = at.keysBelow()
	}
	for i, others := range slices.Backward(general) {
		if steps[i].Hides = hidden(others, entries[i+1:]); steps[i].Hides != nil {
			break
		}
	}
	return steps
}

// hidden returns the first node that leads to a rule for entries; nil if there is none.
func hidden(nodes []*node, entries []Entry) *Hidden {
	for _, n := range nodes {
		if rule := n.findAny(entries); rule != nil {
			return &Hidden{n.text(), n.source(), rule}
		}
	}
	return nil
}

// findAny returns a rule that entries reach from n through any matching nodes, not only through
// those that [Domain.Match] selects; nil if there is none.
func (n *node) findAny(entries []Entry) *Rule {
	if len(entries) == 0 {
		return n.rule
	}
	for _, child := range n.childrenMatching(entries[0]) {
		if rule := child.findAny(entries[1:]); rule != nil {
			return rule
		}
	}
	return nil
}

// childrenMatching returns the nodes below n that match e. [Domain.Match] selects the first.
func (n *node) childrenMatching(e Entry) []*node {
	byID := map[uint32]*node{} // the matching nodes, by the id of their level
	for l := range n.levelsBelow() {
		if result := l.match(e); result.Matched() {
			child := &node{level: l, depth: n.depth + 1, result: result}
			if result == MatchedPrefix {
				child.prefix = l.list.longest(e.Value)
			}
			byID[l.id] = child
		}
	}
	for _, b := range n.below {
		child := byID[b.path[n.depth].id]
		switch {
		case child == nil:
		case len(b.path) == child.depth:
			child.rule = b.rule
		default:
			child.below = append(child.below, b)
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.rank(e), b.rank(e)), cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), cmp.Compare(a.id, b.id))
	})
}

// rank returns the result, which is in the order of [Domain.Match]. But the text of a pattern
// itself is matched as a value.
func (n *node) rank(e Entry) StepResult {
	if n.value != "" && n.entry() == e {
		return MatchedValue
	}
	return n.result
}

// match returns how l matches e, or why it does not.
func (l *level) match(e Entry) StepResult {
	switch {
	case l.kind == wildcard:
		return newPattern(l.entry()).result(e)
	case l.key != e.Key:
		return NoKey
	case l.kind == keyOnly:
		return MatchedKey
	case l.kind == exact && l.value == e.Value:
		return MatchedValue
	case l.kind == oneOf && slices.Contains(l.list.values, e.Value):
		return MatchedList
	case l.kind == addresses:
		return l.list.result(e.Value)
	}
	return NoValue
}

func (p pattern) result(e Entry) StepResult {
	switch {
	case !p.key.match(e.Key):
		return NoKey
	case !p.matches(e):
		return NoWildcard
	}
	return MatchedWildcard
}

// result returns how the prefixes of l match a value.
func (l *list) result(value string) StepResult {
	if _, ok := parseAddress(value); !ok {
		return NoAddress
	}
	if !l.longest(value).IsValid() {
		return NoPrefix
	}
	return MatchedPrefix
}

// explainNone sets the reason why the entry of s selects no node below n.
func (n *node) explainNone(s *Step) {
	s.Result = NoChild
	values := map[string]bool{}
	for l := range n.levelsBelow() {
		result := l.match(s.Entry)
		s.Result = max(s.Result, result)
		if result > NoKey {
			for value := range l.values() {
				values[value] = true
			}
		}
	}
	s.Alternatives = slices.Sorted(maps.Keys(values))
	if s.Result == NoKey {
		s.Alternatives = n.keysBelow()
	}
}

// keysBelow returns the sorted keys of the nodes below n.
func (n *node) keysBelow() []string {
	keys := map[string]bool{}
	for l := range n.levelsBelow() {
		keys[l.key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// levelsBelow returns the levels of the nodes below n.
func (n *node) levelsBelow() iter.Seq[*level] {
	return levelsOf(n.below, func(path []level) []level { return path[n.depth : n.depth+1] })
}

// levels returns the levels of all nodes of d.
func (d *Domain) levels() iter.Seq[*level] {
	return levelsOf(d.branches(), func(path []level) []level { return path })
}

// levelsOf returns the levels in a part of each path. It returns a level that several branches
// share once, because a level may have a long list.
func levelsOf(branches []branch, part func(path []level) []level) iter.Seq[*level] {
	return func(yield func(*level) bool) {
		returned := map[uint32]bool{}
		for _, b := range branches {
			levels := part(b.path)
			for i := range levels {
				l := &levels[i]
				if returned[l.id] {
					continue
				}
				returned[l.id] = true
				if !yield(l) {
					return
				}
			}
		}
	}
}

// PrefixKeys returns the keys that nodes of the domain, with or without limits, match with
// prefixes. It reads every rule. Nil has no nodes.
func (d *Domain) PrefixKeys() map[string]bool {
	keys := map[string]bool{}
	for l := range d.levels() {
		if l.kind == addresses {
			keys[l.key] = true
		}
	}
	return keys
}

// ExactValues returns the values that nodes of the domain, with or without limits, have for the
// key, without wildcards. It reads every rule. Nil has no nodes.
func (d *Domain) ExactValues(key string) []string {
	values := map[string]bool{}
	for l := range d.levels() {
		if l.key != key || l.kind == addresses {
			continue
		}
		for value := range l.values() {
			if !strings.Contains(value, "*") {
				values[value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}
