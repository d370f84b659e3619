package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

// RegisterFallback registers the metrics of the fallback. rules returns the rules in force, whose
// domains are reported with their modes.
func (m *Metrics) RegisterFallback(stats func() guard.FallbackStats, rules func() *descriptors.Rules) {
	modeDesc := prometheus.NewDesc("weir_domain_mode", "1 if this mode now decides hits of the domain, else 0. The mode is store or, "+
		"while the store fails, the on_store_error of a limit.", []string{"domain", "mode"}, nil)
	hitsDesc := prometheus.NewDesc("weir_fallback_hits_total", "Number of operations that the store failed to decide, by the on_store_error that decided them instead.",
		[]string{"mode"}, nil)
	m.Registry.MustRegister(scrape.CollectFunc(func(to chan<- prometheus.Metric) {
		now := stats()
		gauge := func(domain, name string, active bool) {
			to <- scrape.Metric(modeDesc, prometheus.GaugeValue, float64(scrape.Bit(active)), domain, name)
		}
		for d := range rules().Domains() {
			modes := d.OnStoreErrors()
			if len(modes) == 0 {
				continue
			}
			gauge(d.Name(), "store", !now.Down)
			for _, mode := range modes {
				gauge(d.Name(), mode.String(), now.Down)
			}
		}
		for mode := limiters.OnStoreErrorFail; mode <= limiters.OnStoreErrorLocal; mode++ {
			to <- scrape.Metric(hitsDesc, prometheus.CounterValue, float64(now.Ops[mode]), mode.String())
		}
	}))
}
