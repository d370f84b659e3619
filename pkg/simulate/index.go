package simulate

import (
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// An index numbers the limits of rules: the slots.
type index struct {
	slots []slot
	of    map[*descriptors.Rule]int // the first slot of a rule
}

// A slot is a limit of a rule. The last slot of a rule, with limit nil, is for the limits of requests. So is the last slot of all, for
// requests without a rule.
type slot struct {
	rule   *descriptors.Rule
	limit  *descriptors.RateLimit
	number int // of the limit within the rule
}

func newIndex(rules *descriptors.Rules) *index {
	x := &index{of: map[*descriptors.Rule]int{}}
	for rule := range rules.All() {
		x.of[rule] = len(x.slots)
		for i := range rule.Limits {
			x.slots = append(x.slots, slot{rule, &rule.Limits[i], i})
		}
		x.slots = append(x.slots, slot{rule: rule})
	}
	x.slots = append(x.slots, slot{})
	return x
}

// slot returns the number of the slot of limit i of a decision.
func (x *index) slot(d *decide.Decision, i int) int {
	if d.Rule == nil {
		return len(x.slots) - 1
	}
	first := x.of[d.Rule]
	switch {
	case d.Override:
		return first + len(d.Rule.Limits)
	case len(d.Limits) == len(d.Rule.Limits):
		return first + i
	}
	// The end of a lease is under some of the limits only.
	for j := range d.Rule.Limits {
		if d.Rule.Limits[j].Limit == d.Limits[i].Limit {
			return first + j
		}
	}
	return first
}
