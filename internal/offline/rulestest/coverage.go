package rulestest

import (
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A Coverage counts how often tests have reached each limit, and how often the limit has denied
// them. The zero Coverage is empty. Rules that several files test are counted together.
type Coverage struct {
	limits []*LimitCoverage
	byID   map[limitID]*LimitCoverage
	byRule map[*descriptors.Rule][]*LimitCoverage // one for an unlimited rule
}

// A LimitCoverage is a limit, or an unlimited rule, with these counts.
type LimitCoverage struct {
	Domain    string `json:"domain"`
	Rule      string `json:"rule"`
	Source    string `json:"source"`
	Limit     string `json:"limit"` // the name, or the number within the rule
	Algorithm string `json:"algorithm"`
	Unlimited bool   `json:"unlimited"`
	Reached   int64  `json:"reached"` // descriptors under the limit
	Denied    int64  `json:"denied"`  // descriptors that the limit denied, or would have denied without shadow mode
}

// Covered reports whether the limit has denied a test, or a test has reached the unlimited rule.
func (c *LimitCoverage) Covered() bool { return c.Denied > 0 || c.Unlimited && c.Reached > 0 }

// A limitID identifies a limit across the files of tests, because rules that are loaded twice are
// different values.
type limitID struct {
	source string
	hash   uint64 // [descriptors.Rule.LimitHash]
}

// add adds the limits of rules that c lacks.
func (c *Coverage) add(rules *descriptors.Rules) {
	if c.byID == nil {
		c.byID, c.byRule = map[limitID]*LimitCoverage{}, map[*descriptors.Rule][]*LimitCoverage{}
	}
	for rule := range rules.All() {
		for i := range max(1, len(rule.Limits)) {
			id := limitID{rule.Source(), rule.LimitHash(i)}
			covered := c.byID[id]
			if covered == nil {
				covered = &LimitCoverage{Domain: rule.Domain, Rule: rule.Name, Source: id.source, Unlimited: rule.Unlimited}
				if !rule.Unlimited {
					l := &rule.Limits[i]
					covered.Limit, covered.Algorithm = l.Label(i), l.Algorithm()
				}
				c.byID[id] = covered
				c.limits = append(c.limits, covered)
			}
			c.byRule[rule] = append(c.byRule[rule], covered)
		}
	}
}

func (c *Coverage) observe(r *decide.Result) {
	for i := range r.Decisions {
		d := &r.Decisions[i]
		switch {
		case d.Rule == nil || d.HasOverride:
		case d.Rule.Unlimited:
			c.byRule[d.Rule][0].Reached++
		case len(d.Limits) == len(d.Rule.Limits): // the end of a lease is under some of them, and denied by none
			for j := range d.Verdicts {
				limit := c.byRule[d.Rule][j]
				limit.Reached++
				if d.Verdicts[j].Denied() {
					limit.Denied++
				}
			}
		}
	}
}

// Limits returns every limit and unlimited rule, in the order of the files.
func (c *Coverage) Limits() []*LimitCoverage { return c.limits }

// Counts returns the number of covered limits and unlimited rules, and the number of all of them.
func (c *Coverage) Counts() (covered, all int) {
	for _, l := range c.limits {
		if l.Covered() {
			covered++
		}
	}
	return covered, len(c.limits)
}

// Percent returns the covered part of the limits in percent, 100 without limits.
func (c *Coverage) Percent() float64 {
	covered, all := c.Counts()
	if all == 0 {
		return 100
	}
	return 100 * float64(covered) / float64(all)
}
