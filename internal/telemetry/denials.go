package telemetry

import (
	"strconv"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

const denialsHelp = "Denials by limit, peeks included. A request that several limits deny counts once for each. enforced is false " +
	"if shadow mode or quota mode let the request pass."

// denialDetails counts kinds of denials, all of which weir_denials_total includes.
type denialDetails struct{ peeks, penalties, byPenalty *counterMap }

func newDenialDetails() denialDetails {
	return denialDetails{
		peeks: newCounterMap("weir_denied_peeks_total", "Denied peeks by limit: requests with hits_addend 0. weir_denials_total includes them, weir_hits_total does not.",
			"domain", "rule", "limit"),
		penalties: newCounterMap("weir_penalties_total", "Penalties that began, by limit.", "domain", "rule", "limit"),
		byPenalty: newCounterMap("weir_penalty_denials_total", "Denials by a penalty, by limit. weir_denials_total includes them.",
			"domain", "rule", "limit"),
	}
}

func (c *denialDetails) count(labels labelSet, hits int64, v *limiters.Verdict) {
	labels[3] = ""
	if hits == 0 {
		c.peeks.add(labels, 1)
	}
	if v.Penalized {
		c.byPenalty.add(labels, 1)
	}
	if v.PenaltyBegan {
		c.penalties.add(labels, 1)
	}
}

// countDenials counts the limits that deny a descriptor.
func (m *Metrics) countDenials(o *rls.Observation, d *decide.Decision) {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Denied() {
			labels := labelSet{d.Domain, d.RuleName(), limitLabel(d, i), strconv.FormatBool(o.Enforced(d))}
			m.denials.add(labels, 1)
			m.details.count(labels, d.Hits, v)
		}
	}
}

// limitLabel returns the label of limit i of a descriptor, see [decide.Decision.LimitLabel].
func limitLabel(d *decide.Decision, i int) string {
	return descriptors.TruncateWithHash(d.LimitLabel(i), maxLimitName)
}

// maxLimitName bounds the label of a limit, in bytes, because rules do not bound names.
const maxLimitName = 200

// dropRemovedLimits drops the denials of rules and limits that no longer exist.
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
	for _, family := range []*counterMap{m.denials, m.details.peeks, m.details.penalties, m.details.byPenalty, m.hits.denied} {
		family.removeIf(func(l labelSet) bool { return !exist[limit{l.rule(), l[2]}] })
	}
}
