package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

// Fallback tells what decides while the store does not, by the rules of the moment.
func (m *Metrics) Fallback(stats func() guard.FallbackStats, rules func() *descriptors.Rules) {
	m.Registry.MustRegister(&fallback{
		stats: stats, rules: rules,
		mode: prometheus.NewDesc("weir_domain_mode", "1 for what decides the hits of a domain just now: the store, or, while that "+
			"fails, what on_store_error says of its limits.", []string{"domain", "mode"}, nil),
		hits: prometheus.NewDesc("weir_fallback_hits_total", "Decisions that the store failed to make, by what on_store_error made of them.",
			[]string{"mode"}, nil),
	})
}

// A fallback is read whenever it is asked for.
type fallback struct {
	stats      func() guard.FallbackStats
	rules      func() *descriptors.Rules
	mode, hits *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (f *fallback) Describe(to chan<- *prometheus.Desc) { to <- f.mode; to <- f.hits }

// Collect implements prometheus.Collector.
func (f *fallback) Collect(to chan<- prometheus.Metric) {
	stats := f.stats()
	gauge := func(domain, mode string, is bool) {
		value := 0.0
		if is {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(f.mode, prometheus.GaugeValue, value, domain, mode)
	}
	for d := range f.rules().Domains() {
		modes := d.OnErrors()
		if len(modes) == 0 {
			continue
		}
		gauge(d.Name(), "store", !stats.Lost)
		for _, mode := range modes {
			gauge(d.Name(), mode.String(), stats.Lost)
		}
	}
	for mode := limiters.OnErrorFail; mode <= limiters.OnErrorLocal; mode++ {
		to <- prometheus.MustNewConstMetric(f.hits, prometheus.CounterValue, float64(stats.Decided[mode]), mode.String())
	}
}
