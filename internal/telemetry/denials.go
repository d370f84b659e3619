package telemetry

import (
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
		labels := labelSet{d.Domain, d.RuleName(), limitLabel(d, i), strconv.FormatBool(o.Enforces(d))}
		m.denials.add(labels, 1) // first, see dropRemovedLimits
		labels[3] = ""
		if d.Hits == 0 {
			m.peeks.add(labels, 1)
		}
		if v.Penalized {
			m.byPenalty.add(labels, 1)
		}
		if v.PenaltyBegan {
			m.penalties.add(labels, 1)
		}
	}
}

// limitLabel returns the label of limit i of a descriptor, see [decide.Decision.LimitLabel].
func limitLabel(d *decide.Decision, i int) string {
	return descriptors.TruncateWithHash(d.LimitLabel(i), maxLimitNameBytes)
}

// maxLimitNameBytes bounds the label of a limit, because rules do not bound names.
const maxLimitNameBytes = 200

// dropRemovedLimits drops the denials of rules and limits that no longer exist. A request that began
// under the old rules may create a dropped series again; the next reload drops it.
func (m *Metrics) dropRemovedLimits(rules *descriptors.Rules) {
	type limit struct {
		rule descriptors.RuleID
		name string
	}
	counted := map[descriptors.RuleID]bool{}
	for _, l := range m.denials.labelSets() {
		counted[l.rule()] = true
	}
	exist := map[limit]bool{}
	for d := range rules.Domains() {
		exist[limit{descriptors.RuleID{Domain: d.Name()}, decide.OverrideName}] = true
	}
	for r := range rules.All() {
		if id := r.ID(); counted[id] {
			exist[limit{id, decide.OverrideName}] = true
			d := decide.Decision{Limits: r.Limits}
			for i := range r.Limits {
				exist[limit{id, limitLabel(&d, i)}] = true
			}
		}
	}
	// Every limit of the other families is in denials too.
	for _, family := range []*counterMap{m.denials, m.peeks, m.penalties, m.byPenalty, m.hits.denied} {
		family.removeIf(func(l labelSet) bool { return !exist[limit{l.rule(), l[2]}] })
	}
}
