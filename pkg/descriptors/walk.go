package descriptors

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weir-rls/weir/internal/spelling"
)

// A Step explains which descriptor one entry selects, or why it selects none.
type Step struct {
	Level  int   // of the entry, from 1
	Entry  Entry // of the request
	Result StepResult

	Descriptor string // the selected descriptor, such as "path=/a*"; "" if there is none
	Source     string // of the descriptor, as in [Rule.Source]
	Rule       *Rule  // of the descriptor; nil: it has no limit
	Hides      *Hidden

	above string       // the descriptor at the level above, "" at the top
	in    netip.Prefix // of MatchedPrefix
	known known        // if the entry selects nothing, or the descriptor ends the walk without a rule
}

// A StepResult classifies how an entry selects a descriptor, or the reason why it selects none.
type StepResult uint8

// The results. The first five are selections.
const (
	MatchedValue    StepResult = iota // key and value are equal
	MatchedList                       // the value is in a list of values
	MatchedPrefix                     // the address is in a prefix
	MatchedWildcard                   // the wildcard fits
	MatchedKey                        // the key is equal, and the descriptor has no value
	NoChild                           // the descriptor above has none below it, or the domain none at all
	NoKey                             // no descriptor at this level has the key
	NoValue                           // descriptors have the key, each with another value
	NoWildcard                        // as NoValue, and at least one has a wildcard
	NoPrefix                          // as NoValue, and at least one has prefixes
	NoAddress                         // as NoPrefix, and the value is not an address
)

// Matched reports whether r is a selection.
func (r StepResult) Matched() bool { return r <= MatchedKey }

// A Hidden is a more general descriptor that leads to a rule, and that Match does not try because a selection is final.
type Hidden struct {
	Descriptor, Source string // of the more general selection
	Rule               *Rule  // at which the request would have ended
}

// Walk explains [Domain.Match]. It returns a step for each entry up to the first that selects nothing. If all entries select a
// descriptor, the Rule of the last step is the result of Match; otherwise the result is nil. Walk reads every record of the domain,
// so it is slow for many rules. Nil has no steps.
func (d *Domain) Walk(entries []Entry) []Step {
	if d == nil {
		return nil
	}
	x, at, above := d.index, d.index.root, ""
	var steps []Step
	var path []uint32 // the record that each step selects from
	for i, e := range entries {
		step := Step{Level: i + 1, Entry: e, above: above}
		path = append(path, at)
		next := x.next(at, &e)
		if next == 0 {
			x.explainNone(at, &step)
			steps = append(steps, step)
			break
		}
		x.explainSelection(at, next, &step)
		steps = append(steps, step)
		at, above = next, step.Descriptor
	}
	if len(steps) == 0 {
		return nil
	}
	last := &steps[len(steps)-1]
	if last.Rule != nil && len(steps) == len(entries) {
		return steps
	}
	if last.Result.Matched() {
		last.known = x.knownKeys(at, "")
	}
	x.findHidden(entries, path, steps)
	return steps
}

// findHidden sets Hides of the last step whose selection prevents a match.
func (x *index) findHidden(entries []Entry, path []uint32, steps []Step) {
	for i := len(path) - 1; i >= 0; i-- {
		if !steps[i].Result.Matched() {
			continue
		}
		for _, other := range x.selectable(path[i], &entries[i])[1:] {
			if rule := x.findAny(other, entries[i+1:]); rule != nil {
				general := Step{Entry: entries[i]}
				x.explainSelection(path[i], other, &general)
				steps[i].Hides = &Hidden{general.Descriptor, general.Source, rule}
				return
			}
		}
	}
}

// findAny returns a rule that entries would reach from record at if selections were not final; nil if there is none.
func (x *index) findAny(at uint32, entries []Entry) *Rule {
	if len(entries) == 0 {
		return x.ruleAt(at)
	}
	for _, child := range x.selectable(at, &entries[0]) {
		if rule := x.findAny(child, entries[1:]); rule != nil {
			return rule
		}
	}
	return nil
}

// selectable returns the children that match e, in the order of [Domain.Match]; the first is that of next.
func (x *index) selectable(at uint32, e *Entry) []uint32 {
	first := x.next(at, e)
	if first == 0 {
		return nil
	}
	all := []uint32{first}
	add := func(at uint32) {
		if at > 0 && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	rest := x.restOf(at)
	if address, ok := parseAddress(e.Value); ok && rest.byIP[e.Key] != nil {
		var shorter []uint32 // first
		for _, at := range rest.byIP[e.Key].table.Supernets(netip.PrefixFrom(address, address.BitLen())) {
			shorter = append(shorter, at)
		}
		for _, at := range shorter {
			add(at)
		}
	}
	for i := range rest.wild {
		if w := &rest.wild[i]; w.pattern.matches(*e) {
			add(w.at)
		}
	}
	add(rest.byName[e.Key])
	return all
}

func (x *index) target(at uint32) uint32 {
	if r := x.record(at); r.child() == alias {
		return r.rest()
	}
	return at
}

var noRest rest

func (x *index) restOf(at uint32) *rest {
	if more := x.record(x.target(at)).rest(); more > 0 {
		return &x.rest[more-1]
	}
	return &noRest
}

func (x *index) ruleAt(at uint32) *Rule { return x.rules.at(x.record(at).rule()) }

// entryAt returns the key and value of a record; a record with prefixes has none.
func (x *index) entryAt(at uint32) Entry {
	r := x.record(at)
	return Entry{string(r.key()), string(r.value())}
}

// explainSelection fills s with the child that its entry selects.
func (x *index) explainSelection(parent, at uint32, s *Step) {
	var in *list
	s.Rule = x.ruleAt(at)
	if s.Rule != nil {
		s.Source, in = s.Rule.Source(), s.Rule.path[len(s.Rule.path)-1].list
	} else {
		own := x.target(at)
		if i, found := slices.BinarySearchFunc(x.bare, own, func(b bareNode, at uint32) int { return cmp.Compare(b.at, at) }); found {
			b := &x.bare[i]
			if b.source > 0 {
				s.Source = x.sources[b.source-1].text(b.line)
			}
			if b.list > 0 {
				in = x.lists[b.list-1]
			}
		}
	}
	rest, isWild := x.restOf(parent), func(w wildAt) bool { return w.at == at }
	switch {
	case in != nil && in.siblings != nil:
		s.Result, s.Descriptor = MatchedPrefix, s.Entry.Key+"="+in.name()
		if address, ok := parseAddress(s.Entry.Value); ok {
			s.in = longestOf(in.prefixes, address)
		}
	case in != nil:
		s.Result, s.Descriptor = MatchedList, s.Entry.Key+"="+in.name()
	case slices.ContainsFunc(rest.wild, isWild):
		s.Result, s.Descriptor = MatchedWildcard, x.entryAt(at).text()
	case rest.byName[s.Entry.Key] == at:
		s.Result, s.Descriptor = MatchedKey, s.Entry.Key
	default:
		s.Result, s.Descriptor = MatchedValue, x.entryAt(at).text()
	}
}

// longestOf returns the longest of prefixes that contains address.
func longestOf(prefixes []netip.Prefix, address netip.Addr) (longest netip.Prefix) {
	for _, p := range prefixes {
		if p.Contains(address) && (!longest.IsValid() || p.Bits() > longest.Bits()) {
			longest = p
		}
	}
	return longest
}

// text returns "key=value", or the key if the value is empty.
func (e Entry) text() string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "=" + e.Value
}

// A known lists the texts that would have matched.
type known struct {
	texts   []string // sorted, at most maxKnown
	more    int      // further texts
	nearest string   // the suggested spelling, or ""
}

const (
	maxKnown   = 5
	maxNearest = 10_000 // bounds the comparisons with a misspelled text
)

func newKnown(of map[string]bool, misspelled string) known {
	all := make([]string, 0, len(of))
	for text := range of {
		all = append(all, text)
	}
	slices.Sort(all)
	k := known{nearest: spelling.Nearest(misspelled, all[:min(len(all), maxNearest)])}
	k.texts = all[:min(len(all), maxKnown)]
	k.more = len(all) - len(k.texts)
	return k
}

// children returns the records of the children of at. It reads every record of the domain.
func (x *index) children(at uint32) []uint32 {
	at = x.target(at)
	var all []uint32
	for offset := alignment; offset < len(x.records); {
		r := record(x.records[offset:])
		if r.parent() == at {
			all = append(all, uint32(offset/alignment))
		}
		offset += r.len()
	}
	return all
}

// knownKeys returns the keys of the descriptors below at.
func (x *index) knownKeys(at uint32, misspelled string) known {
	keys := map[string]bool{}
	for _, child := range x.children(at) {
		if e := x.entryAt(child); e.Key != "" {
			keys[e.Key] = true
		}
	}
	for key := range x.restOf(at).byIP {
		keys[key] = true
	}
	return newKnown(keys, misspelled)
}

// explainNone sets the reason why the entry of s selects no child of at.
func (x *index) explainNone(at uint32, s *Step) {
	rest, children := x.restOf(at), x.children(at)
	values, keys := map[string]bool{}, false
	s.Result = NoValue
	for _, child := range children {
		if e := x.entryAt(child); e.Key == s.Entry.Key && e.Value != "" {
			values[e.Value], keys = true, true
		}
	}
	for i := range rest.wild {
		w := &rest.wild[i]
		if e := x.entryAt(w.at); w.pattern.key.match(s.Entry.Key) {
			keys, values[e.Value], s.Result = true, true, NoWildcard
		}
	}
	if all := rest.byIP[s.Entry.Key]; all != nil {
		keys, s.Result = true, NoPrefix
		if _, ok := parseAddress(s.Entry.Value); !ok {
			s.Result = NoAddress
		}
		for prefix := range all.table.All() {
			values[prefix.String()] = true
		}
	}
	switch {
	case len(children) == 0:
		s.Result = NoChild
	case !keys:
		s.Result, s.known = NoKey, x.knownKeys(at, s.Entry.Key)
	default:
		s.known = newKnown(values, s.Entry.Value)
	}
}
