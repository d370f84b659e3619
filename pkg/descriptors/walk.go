package descriptors

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// A Step explains which node of the rules one entry selects, or why it selects none.
type Step struct {
	Level  int   // of the entry, from 1
	Entry  Entry // of the request
	Result StepResult

	Node   string // the selected node, such as "path=/a*"; "" if there is none
	Source string // of the node, as in [Rule.Source]
	Rule   *Rule  // of the node; nil: it has no limit
	Hides  *Hidden

	Above        string       // the node at the level above, "" at the top
	Prefix       netip.Prefix // of MatchedPrefix
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

// A Hidden is a more general node that leads to a rule. Match does not try it, because its selection is final.
type Hidden struct {
	Node, Source string // of the more general selection
	Rule         *Rule  // at which the request would have ended
}

// Walk explains [Domain.Match]. It returns a step for each entry up to the first that selects nothing. If all entries select a
// node, the Rule of the last step is the result of Match; otherwise the result is nil. Walk reads every record of the domain,
// so it is slow for many rules. Nil has no steps.
func (d *Domain) Walk(entries []Entry) []Step {
	if d == nil {
		return nil
	}
	x, id, above := d.index, d.index.root, ""
	var steps []Step
	var path []recordID // the record that each step selects from
	for i, e := range entries {
		step := Step{Level: i + 1, Entry: e, Above: above}
		path = append(path, id)
		next := x.next(id, &e)
		if next == 0 {
			x.explainNone(id, &step)
			steps = append(steps, step)
			break
		}
		x.explainSelection(id, next, &step)
		steps = append(steps, step)
		id, above = next, step.Node
	}
	if len(steps) == 0 {
		return nil
	}
	last := &steps[len(steps)-1]
	if last.Rule != nil && len(steps) == len(entries) {
		return steps
	}
	if last.Result.Matched() {
		last.Alternatives = x.keysBelow(id)
	}
	x.findHidden(entries, path, steps)
	return steps
}

// findHidden sets Hides of the last step whose selection prevents a match.
func (x *ruleIndex) findHidden(entries []Entry, path []recordID, steps []Step) {
	for i := len(path) - 1; i >= 0; i-- {
		if !steps[i].Result.Matched() {
			continue
		}
		for _, other := range x.selectable(path[i], &entries[i])[1:] {
			if rule := x.findAny(other, entries[i+1:]); rule != nil {
				general := Step{Entry: entries[i]}
				x.explainSelection(path[i], other, &general)
				steps[i].Hides = &Hidden{general.Node, general.Source, rule}
				return
			}
		}
	}
}

// findAny returns a rule that entries reach from a record through any matching children, not only through those that [Domain.Match]
// selects; nil if there is none.
func (x *ruleIndex) findAny(id recordID, entries []Entry) *Rule {
	if len(entries) == 0 {
		return x.ruleOf(id)
	}
	for _, child := range x.selectable(id, &entries[0]) {
		if rule := x.findAny(child, entries[1:]); rule != nil {
			return rule
		}
	}
	return nil
}

// selectable returns the children that match e, in the order of [Domain.Match]; the first is that of next.
func (x *ruleIndex) selectable(id recordID, e *Entry) []recordID {
	first := x.next(id, e)
	if first == 0 {
		return nil
	}
	selected := []recordID{first}
	add := func(child recordID) {
		if child > 0 && !slices.Contains(selected, child) {
			selected = append(selected, child)
		}
	}
	inexact := x.inexactOf(id)
	if address, ok := parseAddress(e.Value); ok && inexact.byIP[e.Key] != nil {
		for _, child := range inexact.byIP[e.Key].table.Supernets(netip.PrefixFrom(address, address.BitLen())) {
			add(child)
		}
	}
	for i := range inexact.wild {
		if w := &inexact.wild[i]; w.pattern.matches(*e) {
			add(w.id)
		}
	}
	add(inexact.keyOnly[e.Key])
	return selected
}

// target returns the record that has the children of a record: the record itself, unless it is an alias.
func (x *ruleIndex) target(id recordID) recordID {
	if r := x.record(id); r.child() == alias {
		return r.original()
	}
	return id
}

var noInexact inexactChildren

func (x *ruleIndex) inexactOf(id recordID) *inexactChildren {
	if number := x.record(x.target(id)).inexact(); number > 0 {
		return &x.inexact[number-1]
	}
	return &noInexact
}

func (x *ruleIndex) ruleOf(id recordID) *Rule { return x.rules.get(x.record(id).rule()) }

// entryOf returns the key and value of a record; a record with prefixes has none.
func (x *ruleIndex) entryOf(id recordID) Entry {
	r := x.record(id)
	return Entry{string(r.key()), string(r.value())}
}

// explainSelection fills s with the child that its entry selects.
func (x *ruleIndex) explainSelection(parent, id recordID, s *Step) {
	var nodeList *list
	s.Rule = x.ruleOf(id)
	if s.Rule != nil {
		s.Source, nodeList = s.Rule.Source(), s.Rule.path[len(s.Rule.path)-1].list
	} else {
		target := x.target(id)
		if i, found := slices.BinarySearchFunc(x.bare, target, func(b bareNode, id recordID) int { return cmp.Compare(b.id, id) }); found {
			b := &x.bare[i]
			if b.source > 0 {
				s.Source = x.sources[b.source-1].text(b.line)
			}
			if b.list > 0 {
				nodeList = x.lists[b.list-1]
			}
		}
	}
	inexact, isWild := x.inexactOf(parent), func(w wildRecord) bool { return w.id == id }
	switch {
	case nodeList != nil && nodeList.siblings != nil:
		s.Result, s.Node = MatchedPrefix, s.Entry.Key+"="+nodeList.name()
		if address, ok := parseAddress(s.Entry.Value); ok {
			s.Prefix = nodeList.siblings.longest(address)
		}
	case nodeList != nil:
		s.Result, s.Node = MatchedList, s.Entry.Key+"="+nodeList.name()
	case slices.ContainsFunc(inexact.wild, isWild):
		s.Result, s.Node = MatchedWildcard, x.entryOf(id).text()
	case inexact.keyOnly[s.Entry.Key] == id:
		s.Result, s.Node = MatchedKey, s.Entry.Key
	default:
		s.Result, s.Node = MatchedValue, x.entryOf(id).text()
	}
}

// text returns "key=value", or the key if the value is empty.
func (e Entry) text() string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "=" + e.Value
}

// children returns the children of a record. It reads every record of the domain.
func (x *ruleIndex) children(id recordID) []recordID {
	id = x.target(id)
	var children []recordID
	for offset := alignment; offset < len(x.records); {
		r := nodeRecord(x.records[offset:])
		if r.parent() == id {
			children = append(children, recordID(offset/alignment))
		}
		offset += r.len()
	}
	return children
}

// PrefixKeys returns the keys that nodes of the domain, with or without limits, match with prefixes. It reads every node. Nil has no
// nodes.
func (d *Domain) PrefixKeys() map[string]bool {
	keys := map[string]bool{}
	if d != nil {
		for _, c := range d.index.inexact {
			for key := range c.byIP {
				keys[key] = true
			}
		}
	}
	return keys
}

// ExactValues returns the values that nodes of the domain, with or without limits, have for the key, without wildcards. It reads every
// node. Nil has no nodes.
func (d *Domain) ExactValues(key string) []string {
	if d == nil {
		return nil
	}
	values := map[string]bool{}
	for offset := alignment; offset < len(d.index.records); {
		r := nodeRecord(d.index.records[offset:])
		if value := string(r.value()); string(r.key()) == key && value != "" && !strings.Contains(value, "*") {
			values[value] = true
		}
		offset += r.len()
	}
	return slices.Sorted(maps.Keys(values))
}

// keysBelow returns the sorted keys of the nodes below a record.
func (x *ruleIndex) keysBelow(id recordID) []string {
	keys := map[string]bool{}
	for _, child := range x.children(id) {
		if e := x.entryOf(child); e.Key != "" {
			keys[e.Key] = true
		}
	}
	for key := range x.inexactOf(id).byIP {
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// explainNone sets the reason why the entry of s selects no child of a record.
func (x *ruleIndex) explainNone(id recordID, s *Step) {
	inexact, children := x.inexactOf(id), x.children(id)
	values, keys := map[string]bool{}, false
	s.Result = NoValue
	for _, child := range children {
		if e := x.entryOf(child); e.Key == s.Entry.Key && e.Value != "" {
			values[e.Value], keys = true, true
		}
	}
	for i := range inexact.wild {
		w := &inexact.wild[i]
		if e := x.entryOf(w.id); w.pattern.key.match(s.Entry.Key) {
			keys, values[e.Value], s.Result = true, true, NoWildcard
		}
	}
	if prefixes := inexact.byIP[s.Entry.Key]; prefixes != nil {
		keys, s.Result = true, NoPrefix
		if _, ok := parseAddress(s.Entry.Value); !ok {
			s.Result = NoAddress
		}
		for prefix := range prefixes.table.All() {
			values[prefix.String()] = true
		}
	}
	switch {
	case len(children) == 0:
		s.Result = NoChild
	case !keys:
		s.Result, s.Alternatives = NoKey, x.keysBelow(id)
	default:
		s.Alternatives = slices.Sorted(maps.Keys(values))
	}
}
