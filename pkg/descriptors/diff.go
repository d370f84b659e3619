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

// Diff returns the differences between old and now. A rule is identified by its domain and path; a list counts as its smallest
// value or its first prefix.
func Diff(old, now *Rules) Changes {
	var c Changes
	for d := range now.Domains() {
		if old.Domain(d.Name()) == nil {
			c.DomainsAdded++
		}
	}
	for d := range old.Domains() {
		if now.Domain(d.Name()) == nil {
			c.DomainsRemoved++
		}
	}
	before := map[string]*Rule{}
	var order []string
	for r := range old.All() {
		id := string(r.identity())
		before[id], order = r, append(order, id)
	}
	retained := order[:0:0]
	for r := range now.All() {
		id := string(r.identity())
		was, ok := before[id]
		if !ok {
			c.RulesAdded++
			continue
		}
		delete(before, id)
		retained = append(retained, id)
		if !bytes.Equal(was.effect(old.Domain(r.Domain)), r.effect(now.Domain(r.Domain))) {
			c.RulesModified++
		}
	}
	c.RulesRemoved = len(before)
	order = slices.DeleteFunc(order, func(id string) bool { return before[id] != nil })
	c.Reordered = !slices.Equal(order, retained)
	return c
}
