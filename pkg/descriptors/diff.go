package descriptors

import (
	"bytes"
	"slices"
)

// Changes counts the differences between two sets of rules.
type Changes struct {
	DomainsAdded, DomainsRemoved            int
	RulesAdded, RulesRemoved, RulesModified int
	Reordered                               bool // the same rules in another order, which matters to wildcards
}

// Any reports whether there is a difference.
func (c Changes) Any() bool { return c != Changes{} }

// Diff returns the differences between two sets of rules. A rule is identified by its domain and
// path; a list counts as its smallest value or its first prefix.
func Diff(before, after *Rules) Changes {
	var c Changes
	for d := range after.Domains() {
		if before.Domain(d.Name()) == nil {
			c.DomainsAdded++
		}
	}
	for d := range before.Domains() {
		if after.Domain(d.Name()) == nil {
			c.DomainsRemoved++
		}
	}
	unmatched := map[string]*Rule{} // rules in before that after lacks
	var order, retained []string
	for r := range before.All() {
		id := string(r.identity())
		unmatched[id], order = r, append(order, id)
	}
	for r := range after.All() {
		id := string(r.identity())
		was, ok := unmatched[id]
		if !ok {
			c.RulesAdded++
			continue
		}
		delete(unmatched, id)
		retained = append(retained, id)
		if !bytes.Equal(was.effect(before.Domain(r.Domain)), r.effect(after.Domain(r.Domain))) {
			c.RulesModified++
		}
	}
	c.RulesRemoved = len(unmatched)
	order = slices.DeleteFunc(order, func(id string) bool { return unmatched[id] != nil })
	c.Reordered = !slices.Equal(order, retained)
	return c
}
