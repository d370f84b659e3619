package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/rls"
)

// leaseMetrics counts ends of leases. The hits that open leases are in weir_hits_total.
type leaseMetrics struct {
	ends          *counterMap
	badIDs        *counterMap
	tooMany       *counterMap
	ended, failed prometheus.Counter // leases that Weir ended, or failed to end, of denied or canceled requests
}

func newLeaseMetrics(registry prometheus.Registerer) leaseMetrics {
	l := leaseMetrics{
		ends: newCounterMap(registry, "weir_lease_ends_total", "Number of releases and settlements by rule, including those of unknown ids. The result is error if the store "+
			"failed. If the store is Redis, Weir then retries the release or settlement.", "domain", "rule", "result"),
		badIDs: newCounterMap(registry, "weir_bad_lease_ids_total",
			"Number of descriptors whose lease id is empty or longer than 256 bytes. Weir denies them, except releases, settlements, and descriptors under a rule in shadow mode.", "domain", "rule"),
		tooMany: newCounterMap(registry, "weir_too_many_leases_total",
			"Number of descriptors denied because their key has 10,000 open reservations, including those that shadow mode let pass.", "domain", "rule"),
	}
	givenUp := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "weir_leases_given_up_total",
		Help: "Number of leases and reservations that Weir ended because their request was denied or canceled. The result is error if the " +
			"store failed. If the store is Redis, Weir then retries the end.",
	}, []string{"result"})
	l.ended, l.failed = givenUp.WithLabelValues("ok"), givenUp.WithLabelValues("error")
	return l
}

// count counts a descriptor under a rule with leases.
func (l *leaseMetrics) count(d *decide.Decision) {
	labels := labelSet{domain: d.Domain, rule: d.RuleName()}
	switch {
	case d.Reason == decide.BadLeaseID:
		l.badIDs.add(labels, 1)
	case d.Reason == decide.TooManyLeases:
		l.tooMany.add(labels, 1)
	case d.EndsLease():
		labels.result = "ok"
		if d.Reason == decide.StoreError || d.Reason == decide.StorePolicy {
			labels.result = "error"
		}
		l.ends.add(labels, 1)
	}
}

func (l *leaseMetrics) countGivenUpLeases(o *rls.Observation) {
	switch {
	case o.GivenUpLeases == 0:
	case o.EndErr != nil:
		l.failed.Add(float64(o.GivenUpLeases))
	default:
		l.ended.Add(float64(o.GivenUpLeases))
	}
}

// removeStale drops the series of rules that are not in current or have no leases.
func (l *leaseMetrics) removeStale(current map[descriptors.RuleID][]*descriptors.Rule) {
	removed := func(labels labelSet) bool {
		return !slices.ContainsFunc(current[labels.ruleID()], (*descriptors.Rule).UsesLeases)
	}
	l.ends.removeIf(removed)
	l.badIDs.removeIf(removed)
	l.tooMany.removeIf(removed)
}

// RegisterEndRetrier registers the metrics of a [guard.EndRetrier].
func (m *Metrics) RegisterEndRetrier(stats func() guard.EndRetrierStats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_lease_ends_pending", "Number of releases and settlements that failed, and that Weir retries until the store answers.",
			func(s guard.EndRetrierStats) int64 { return s.Pending }),
		counterOf("weir_lease_ends_repeated_total", "Number of releases and settlements that failed at first, and succeeded when Weir retried them.",
			func(s guard.EndRetrierStats) int64 { return s.Retried }),
		counterOf("weir_lease_ends_lost_total", "Number of failed releases and settlements that Weir does not retry any more, because 50,000 others were pending or the TTL was over.",
			func(s guard.EndRetrierStats) int64 { return s.Lost }),
	)
}
