package descriptors

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
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
		if !old.HasDomain(d.Name()) {
			c.DomainsAdded++
		}
	}
	for d := range old.Domains() {
		if !now.HasDomain(d.Name()) {
			c.DomainsRemoved++
		}
	}
	before := map[string]*Rule{}
	var order []string
	for r := range old.All() {
		before[r.identity()] = r
		order = append(order, r.identity())
	}
	kept := order[:0:0]
	for r := range now.All() {
		id := r.identity()
		was, ok := before[id]
		if !ok {
			c.RulesAdded++
			continue
		}
		delete(before, id)
		kept = append(kept, id)
		if !was.equal(r, old.Domain(r.Domain), now.Domain(r.Domain)) {
			c.RulesModified++
		}
	}
	c.RulesRemoved = len(before)
	order = slices.DeleteFunc(order, func(id string) bool { return before[id] != nil })
	c.Reordered = !slices.Equal(order, kept)
	return c
}

// identity returns a text that is unique among the rules.
func (r *Rule) identity() string {
	parts := make([]string, 1, 1+2*len(r.path))
	parts[0] = r.Domain
	for i := range r.path {
		l := &r.path[i]
		parts = append(parts, string(l.how)+l.key, l.value)
	}
	return strings.Join(parts, "\x00")
}

// equal reports whether two rules of one identity have the same effect in their domains.
func (r *Rule) equal(other *Rule, domain, otherDomain *Domain) bool {
	return r.Unlimited == other.Unlimited && r.ShadowMode == other.ShadowMode && r.QuotaMode == other.QuotaMode &&
		r.DetailedMetric == other.DetailedMetric && r.LimitName == other.LimitName &&
		slices.Equal(r.Replaces, other.Replaces) && slices.EqualFunc(r.path, other.path, level.equal) &&
		reflect.DeepEqual(r.Metadata, other.Metadata) &&
		slices.EqualFunc(r.Limits, other.Limits, func(a, b RateLimit) bool {
			return a.Unit == b.Unit && a.UnitMultiplier == b.UnitMultiplier && a.RequestsPerUnit == b.RequestsPerUnit &&
				a.Name == b.Name && a.Limit.Spec() == b.Limit.Spec() &&
				cmp.Or(a.OnError, domain.onError) == cmp.Or(b.OnError, otherDomain.onError) &&
				cmp.Or(a.OnDeny, domain.OnDeny()).equal(cmp.Or(b.OnDeny, otherDomain.OnDeny()))
		})
}

func (l level) equal(other level) bool {
	same := l
	same.list = other.list
	return same == other && (l.list == nil || slices.Equal(l.list.values, other.list.values) &&
		slices.Equal(l.list.prefixes, other.list.prefixes))
}
