package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	hitAllowed = iota
	hitDenied
	hitError
	hitDeniedByLimit // denied under a rule with several limits; hitMetrics.deniedByLimit counts them by limit
	hitCounters
)

// verdictNames are the labels of the counters of a rule. deniedByLimit exports hitDeniedByLimit.
var verdictNames = [hitDeniedByLimit]string{"allowed", "denied", "error"}

const (
	hitsName = "weir_hits_total"
	hitsHelp = "Number of hits by rule and verdict, without peeks, refunds, releases and settlements. Hits are denied if any limit of the rule denies them, " +
		"even in shadow mode. For denied hits of a rule with several limits, the label limit names the limit with the longest wait."
)

// hitMetrics collects weir_hits_total: three counters for each rule, by name, so that they survive
// reloads. For a hundred thousand rules they take a few MB instead of a hundred with
// prometheus.Counter.
type hitMetrics struct {
	desc          *prometheus.Desc
	byRule        descriptors.PerRule[ruleHits]
	deniedByLimit *counterMap // denied hits of rules with several limits, by the limit that denies

	mu    sync.RWMutex
	rules map[descriptors.RuleID]*ruleHits // hits of limits in requests that no rule matches have an empty name
}

// A ruleHits counts the hits of a rule by verdict. It fills a cache line, to which Go aligns it,
// because several cores count concurrently.
type ruleHits struct {
	counts [hitCounters]atomic.Uint64
	_      [64 - 8*hitCounters]byte
}

func newHitMetrics(registry prometheus.Registerer) *hitMetrics {
	denied := prometheus.WrapRegistererWith(prometheus.Labels{"verdict": verdictNames[hitDenied]}, registry)
	h := &hitMetrics{
		desc:          prometheus.NewDesc(hitsName, hitsHelp, []string{"domain", "rule", "verdict"}, nil),
		deniedByLimit: newCounterMap(denied, hitsName, hitsHelp, "domain", "rule", "limit"),
		rules:         map[descriptors.RuleID]*ruleHits{},
	}
	registry.MustRegister(h)
	return h
}

// count counts the hits of a descriptor once, however many limits it has.
func (h *hitMetrics) count(d *decide.Decision) {
	verdict := hitAllowed
	switch deciding := &d.Verdicts[d.DecidingLimitIndex]; {
	case deciding.Err != nil:
		verdict = hitError
	case deciding.Denied() && len(d.Verdicts) > 1:
		h.deniedByLimit.add(labelSet{domain: d.Domain, rule: d.RuleName(), limit: limitLabel(d, d.DecidingLimitIndex)}, uint64(d.Hits))
		verdict = hitDeniedByLimit
	case deciding.Denied():
		verdict = hitDenied
	}
	h.of(d).counts[verdict].Add(uint64(d.Hits))
}

// of returns the counters of the rule of d.
func (h *hitMetrics) of(d *decide.Decision) *ruleHits {
	if d.Rule == nil {
		return h.countersOf(descriptors.RuleID{Domain: d.Domain})
	}
	cached := h.byRule.Of(d.Rule)
	if cached == nil {
		return h.countersOf(d.Rule.ID()) // the rules were just replaced
	}
	found := cached.Load()
	if found == nil {
		found = h.countersOf(d.Rule.ID())
		cached.Store(found)
	}
	return found
}

// countersOf returns the counters of a rule, creating them if necessary.
func (h *hitMetrics) countersOf(id descriptors.RuleID) *ruleHits {
	h.mu.RLock()
	found := h.rules[id]
	h.mu.RUnlock()
	if found != nil {
		return found
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	found = h.rules[id]
	if found == nil {
		found = new(ruleHits)
		h.rules[id.Clone()] = found // rules that are replaced later must not stay in memory
	}
	return found
}

// removeStale drops the counters of rules that are not in current. A request that began under the
// old rules may create the counters of a removed rule again; the next reload drops them.
func (h *hitMetrics) removeStale(current map[descriptors.RuleID][]*descriptors.Rule) {
	h.deniedByLimit.removeStaleLimits(current)
	h.mu.RLock()
	ids := slices.Collect(maps.Keys(h.rules))
	h.mu.RUnlock()
	removed := slices.DeleteFunc(ids, func(id descriptors.RuleID) bool { _, known := current[id]; return known })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range removed {
		delete(h.rules, id)
	}
}

// Describe implements prometheus.Collector. It describes nothing, because the label limit is absent
// from most series.
func (h *hitMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It omits counters that are 0.
func (h *hitMetrics) Collect(to chan<- prometheus.Metric) {
	h.mu.RLock()
	all := make([]prometheus.Metric, 0, len(h.rules))
	for id, counted := range h.rules {
		for verdict, name := range verdictNames {
			if n := counted.counts[verdict].Load(); n > 0 {
				all = append(all, scrape.Metric(h.desc, prometheus.CounterValue, float64(n), id.Domain, id.Name, name))
			}
		}
	}
	h.mu.RUnlock() // the receiver may be slow
	for _, m := range all {
		to <- m
	}
}
