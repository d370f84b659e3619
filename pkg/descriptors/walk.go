package descriptors

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// A Step explains which node of the rules one entry selects, or why it selects none.
type Step struct {
	Position int   // of the entry in the request, from 1
	Entry    Entry // the request's entry
	Result   StepResult

	Node   string  // the selected node, such as "path=/a*"; "" if there is none
	Source string  // the node's position, as in [Rule.Source]
	Rule   *Rule   // the node's rule; nil: it has neither limits nor unlimited: true
	Hides  *Hidden // set if Match finds no rule because of this selection

	Above  string       // the node at the level above, "" at the top
	Prefix netip.Prefix // set for MatchedPrefix
	// Alternatives are sorted: the keys or values at this level, if the entry selects nothing; the
	// keys below the node, if the walk ends there without a rule.
	Alternatives []string
}

// A StepResult classifies how an entry selects a node, or the reason why it selects none.
type StepResult uint8

// The results. The first five are selections, in the order of [Domain.Match].
const (
	MatchedExact    StepResult = iota // key and value are equal
	MatchedValues                     // the value is in a list of values
	MatchedPrefix                     // the address is in a prefix
	MatchedWildcard                   // the wildcard fits
	MatchedKeyOnly                    // the key is equal, and the node has no value
	NoChild                           // the node above has no children, or the domain no nodes
	NoKey                             // no node at this level has the key
	NoValue                           // nodes have the key, each with another value
	NoWildcard                        // as NoValue, and at least one has a wildcard
	NoPrefix                          // as NoValue, and at least one has prefixes
	NoAddress                         // as NoPrefix, and the value is not an address
)

var stepResultNames = [...]string{
	MatchedExact: "value", MatchedValues: "list", MatchedPrefix: "prefix", MatchedWildcard: "wildcard", MatchedKeyOnly: "key",
	NoChild: "no_child", NoKey: "no_key", NoValue: "no_value", NoWildcard: "no_wildcard", NoPrefix: "no_prefix", NoAddress: "no_address",
}

// String returns the result in snake_case.
func (r StepResult) String() string { return stepResultNames[r] }

// Matched reports whether r is a selection.
func (r StepResult) Matched() bool { return r <= MatchedKeyOnly }

// A Hidden is a more general node that leads to a rule. Match does not try it, because its
// selection is final.
type Hidden struct {
	Node, Source string // the more general node and its position
	Rule         *Rule  // at which the request would have ended
}

// A matchingNode is a node that matches an entry.
type matchingNode struct {
	*Node
	result StepResult
	prefix netip.Prefix // set for MatchedPrefix
}

// A Walker explains [Domain.Match] for the descriptors of a request. It is safe for concurrent use.
type Walker struct{ root *Node } // nil without a domain

// Walker returns a Walker of d, which may be nil. It reads every rule, so it is slow for many
// rules.
func (d *Domain) Walker() Walker {
	if d == nil {
		return Walker{}
	}
	root, _ := d.tree()
	return Walker{root}
}

// Walk returns a step for each entry up to the first that selects nothing. If all entries select a
// node, the Rule of the last step is the result of Match; otherwise the result is nil. Without a
// domain or entries, there are no steps.
func (w Walker) Walk(entries []Entry) []Step {
	if w.root == nil || len(entries) == 0 {
		return nil
	}
	at := matchingNode{Node: w.root}
	var steps []Step
	var untried [][]matchingNode // at each level, the nodes that match but that Match does not try
	for i, e := range entries {
		step := Step{Position: i + 1, Entry: e, Above: at.text()}
		candidates := at.childrenMatching(e)
		if len(candidates) == 0 {
			at.explainNone(&step)
			steps = append(steps, step)
			break
		}
		at, untried = candidates[0], append(untried, candidates[1:])
		step.Result, step.Node, step.Source, step.Rule, step.Prefix = at.result, at.text(), at.source(), at.rule, at.prefix
		steps = append(steps, step)
	}
	last := &steps[len(steps)-1]
	if last.Rule != nil { // of the last entry, because only a selected node has a rule
		return steps
	}
	if last.Result.Matched() {
		last.Alternatives = at.keysBelow()
	}
	// Of several selections that hide a rule, the last is the one to report.
	for i, others := range slices.Backward(untried) {
		if found := hidden(others, entries[i+1:]); found != nil {
			steps[i].Hides = found
			break
		}
	}
	return steps
}

// hidden returns the first node that leads to a rule for entries; nil if there is none.
func hidden(nodes []matchingNode, entries []Entry) *Hidden {
	for _, n := range nodes {
		if rule := n.findAny(entries); rule != nil {
			return &Hidden{n.text(), n.source(), rule}
		}
	}
	return nil
}

// findAny returns a rule that entries reach from n through any matching nodes, not only through
// those that [Domain.Match] selects; nil if there is none.
func (n *Node) findAny(entries []Entry) *Rule {
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

// childrenMatching returns the nodes below n that match e, in the order of [Domain.Match], which
// tries only the first.
func (n *Node) childrenMatching(e Entry) (all []matchingNode) {
	for _, child := range n.children {
		if result, prefix := child.match(e); result.Matched() {
			all = append(all, matchingNode{child, result, prefix})
		}
	}
	slices.SortFunc(all, matchingNode.compare)
	return all
}

// compare orders nodes as [Domain.Match] tries them. Of two prefixes, the longer is first.
func (n matchingNode) compare(other matchingNode) int {
	return cmp.Or(cmp.Compare(n.result, other.result), cmp.Compare(other.prefix.Bits(), n.prefix.Bits()), cmp.Compare(n.fileOrder, other.fileOrder))
}

// match returns how n matches e, or why it does not. The prefix is set for MatchedPrefix.
func (n *pathNode) match(e Entry) (StepResult, netip.Prefix) {
	none := netip.Prefix{}
	switch {
	case n.list == nil && n.value != "" && n.entry() == e: // or the text of a wildcard itself
		return MatchedExact, none
	case n.kind == Wildcard:
		return newWildcard(n.entry()).result(e), none
	case n.key != e.Key:
		return NoKey, none
	case n.kind == KeyOnly:
		return MatchedKeyOnly, none
	case n.kind == Values && slices.Contains(n.list.values, e.Value):
		return MatchedValues, none
	case n.kind == Prefixes:
		return n.list.match(e.Value)
	}
	return NoValue, none
}

func (w wildcard) result(e Entry) StepResult {
	switch {
	case !w.key.match(e.Key):
		return NoKey
	case !w.matches(e):
		return NoWildcard
	}
	return MatchedWildcard
}

// match returns how the prefixes of l match a value. The prefix is the longest that matches.
func (l *list) match(value string) (StepResult, netip.Prefix) {
	address, ok := parseAddress(value)
	if !ok {
		return NoAddress, netip.Prefix{}
	}
	result, longest := NoPrefix, netip.Prefix{} // the zero Prefix has -1 bits
	for _, prefix := range l.prefixes {
		if prefix.Contains(address) && prefix.Bits() > longest.Bits() {
			result, longest = MatchedPrefix, prefix
		}
	}
	return result, longest
}

// explainNone sets the reason why the entry of s selects no node below n.
func (n *Node) explainNone(s *Step) {
	s.Result = NoChild
	values := map[string]bool{}
	for _, child := range n.children {
		result, _ := child.match(s.Entry)
		s.Result = max(s.Result, result)
		if result > NoKey {
			for _, value := range child.values() {
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
func (n *Node) keysBelow() []string {
	keys := map[string]bool{}
	for _, child := range n.children {
		keys[child.key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}
