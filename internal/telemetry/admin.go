package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// RegisterAdmin registers the metrics of the admin API. The returned function counts a call.
// Callers must bound the set of routes.
func (m *Metrics) RegisterAdmin() func(route string, code int) {
	calls := promauto.With(m.Registry).NewCounterVec(prometheus.CounterOpts{
		Name: "weir_admin_requests_total",
		Help: "Number of calls to the admin API, by route and HTTP status code. A call without valid credentials has the code 401.",
	}, []string{"route", "code"})
	return func(route string, code int) { calls.WithLabelValues(route, strconv.Itoa(code)).Inc() }
}

// RuleHits returns the allowed and denied hits of a rule, see weir_hits_total.
func (m *Metrics) RuleHits(rule *descriptors.Rule) (allowed, denied uint64) {
	var found *ruleHits
	if cached := m.hits.byRule.Of(rule); cached != nil {
		found = cached.Load()
	}
	if found == nil {
		return 0, 0
	}
	return found.counts[hitAllowed].Load(), found.counts[hitDenied].Load() + found.counts[hitDeniedByLimit].Load()
}

// StoreCalls returns the number of store calls and their total duration in seconds.
func (m *Metrics) StoreCalls() (calls uint64, seconds float64) {
	var read dto.Metric
	if err := m.storeTime.Write(&read); err != nil {
		return 0, 0
	}
	return read.GetHistogram().GetSampleCount(), read.GetHistogram().GetSampleSum()
}
