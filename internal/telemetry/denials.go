package telemetry

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

const denialsHelp = "Number of denials by limit, including denied peeks. A request that several limits deny counts once for each of them. " +
	"The label enforced is false if shadow mode or quota mode let the request pass."

// denialMetrics counts denials by limit.
type denialMetrics struct {
	all       *counterMap
	peeks     *counterMap // this and byPenalty are parts of all
	byPenalty *counterMap
	penalties *counterMap // that began
}

func newDenialMetrics(registry prometheus.Registerer) denialMetrics {
	return denialMetrics{
		all: newCounterMap(registry, "weir_denials_total", denialsHelp, "domain", "rule", "limit", "enforced"),
		peeks: newCounterMap(registry, "weir_denied_peeks_total", "Number of denied peeks by limit. A peek is a request with hits_addend 0. weir_denials_total includes denied peeks, whereas weir_hits_total does not.",
			"domain", "rule", "limit"),
		byPenalty: newCounterMap(registry, "weir_penalty_denials_total", "Number of denials by a penalty, by limit. weir_denials_total includes them.",
			"domain", "rule", "limit"),
		penalties: newCounterMap(registry, "weir_penalties_total", "Number of penalties that began, by limit. A penalty is not counted if the limit itself denies the client for longer.",
			"domain", "rule", "limit"),
	}
}

// count counts the limits that deny a descriptor.
func (m *denialMetrics) count(o *rls.Observation, d *decide.Decision) {
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
		labels.enforced = strconv.FormatBool(o.Enforced(d))
		m.all.add(labels, 1)
	}
}

// removeStale drops the series of limits that are not in current. A request that began under the
// old rules may create a dropped series again; the next reload drops it.
func (m *denialMetrics) removeStale(current map[descriptors.RuleID][]*descriptors.Rule) {
	for _, family := range []*counterMap{m.all, m.peeks, m.byPenalty, m.penalties} {
		family.removeStaleLimits(current)
	}
}

// removeStaleLimits drops the counters of limits that are not in current.
func (c *counterMap) removeStaleLimits(current map[descriptors.RuleID][]*descriptors.Rule) {
	c.removeIf(func(l labelSet) bool {
		rules, known := current[l.ruleID()]
		if l.limit == decide.OverrideName {
			return !known
		}
		return !slices.ContainsFunc(rules, func(r *descriptors.Rule) bool { return hasLimit(r, l.limit) })
	})
}

// limitLabel returns the label of limit i of a descriptor, see [decide.Plan.LimitLabel].
func limitLabel(d *decide.Decision, i int) string {
	return boundedLabel(d.LimitLabel(i))
}

// maxLimitNameBytes bounds the label of a limit, because rules do not bound names.
const maxLimitNameBytes = 200

func boundedLabel(name string) string { return descriptors.TruncateWithHash(name, maxLimitNameBytes) }

// hasLimit reports whether a limit of r has a label.
func hasLimit(r *descriptors.Rule, label string) bool {
	for i := range r.Limits {
		if boundedLabel(r.Limits[i].Label(i)) == label {
			return true
		}
	}
	return false
}
