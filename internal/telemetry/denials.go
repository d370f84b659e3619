package telemetry

import (
	"slices"
	"strconv"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

const denialsHelp = "Denials by limit, peeks included. A request that several limits deny counts once for each. enforced is false " +
	"if shadow mode or quota mode let the request pass."

// countDenials counts the limits that deny a descriptor.
func (m *Metrics) countDenials(o *rls.Observation, d *decide.Decision) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Denied() {
			continue
		}
		labels := labelSet{domain: d.Domain, rule: d.RuleName(), limit: limitLabel(d, i)}
		if d.Hits == 0 {
			m.peeks.add(labels, 1)
		}
		if v.Penalized {
			m.byPenalty.add(labels, 1)
		}
		if v.PenaltyBegan {
			m.penalties.add(labels, 1)
		}
		labels.enforced = strconv.FormatBool(o.Enforces(d))
		m.denials.add(labels, 1)
	}
}

// limitLabel returns the label of limit i of a descriptor, see [decide.Decision.LimitLabel].
func limitLabel(d *decide.Decision, i int) string {
	return descriptors.TruncateWithHash(d.LimitLabel(i), maxLimitNameBytes)
}

// maxLimitNameBytes bounds the label of a limit, because rules do not bound names.
const maxLimitNameBytes = 200

// removeStaleLimits drops the denials of rules and limits that are not in current. A request that
// began under the old rules may create a dropped series again; the next reload drops it.
func (m *Metrics) removeStaleLimits(current map[descriptors.RuleID][]*descriptors.Rule) {
	removed := func(l labelSet) bool {
		rules, known := current[l.ruleID()]
		if l.limit == decide.OverrideName {
			return !known
		}
		return !slices.ContainsFunc(rules, func(r *descriptors.Rule) bool { return hasLimit(r, l.limit) })
	}
	for _, family := range []*counterMap{m.denials, m.peeks, m.penalties, m.byPenalty, m.hits.deniedByLimit} {
		family.removeIf(removed)
	}
}

// hasLimit reports whether a limit of r has a label.
func hasLimit(r *descriptors.Rule, label string) bool {
	d := decide.Decision{Plan: decide.Plan{Limits: r.Limits}}
	for i := range r.Limits {
		if limitLabel(&d, i) == label {
			return true
		}
	}
	return false
}
