package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/internal/shadow"
	"github.com/weir-rls/weir/pkg/admin/api"
)

// ShadowStats holds the report of the candidate rules of a shadow file, and counts the loads of the
// file.
type ShadowStats struct {
	Report        api.ShadowReport
	Stats         shadow.Stats
	Loads, Faults int64 // loads without faults, and with faults
}

// RegisterShadow registers the metrics of a shadow file.
func (m *Metrics) RegisterShadow(stats func() ShadowStats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	running := desc("weir_shadow_running", "1 while the candidate of SHADOW_CONFIG decides requests; 0 if its file is missing or has never loaded.")
	loads := desc("weir_shadow_loads_total", "Loads of SHADOW_CONFIG, by result: ok, or error if the file is missing or has faults.", "result")
	requests := desc("weir_shadow_requests_total", "Requests by outcome under the candidate of SHADOW_CONFIG: allowed or denied by both, or newly_denied or newly_allowed "+
		"by the candidate. Restarts from 0 with a new candidate and with new rules.", "outcome")
	denials := desc("weir_shadow_denials_total", "Denials by limit of the candidate: newly_denied, denied or, in shadow mode, shadowed; and by limit in force: newly_allowed. "+
		"A request counts once for each denied descriptor.", "domain", "rule", "limit", "outcome")
	undecided := desc("weir_shadow_undecided_requests_total", "Requests that were not compared, because the store failed, or the candidate had no room.")
	dropped := desc("weir_shadow_dropped_requests_total", "Requests that the candidate missed because its queue was full. Its counters are too low by these requests.")
	panics := desc("weir_shadow_panics_total", "Panics while the candidate decided: bugs in Weir. The rules in force still decide the requests.")
	keys := desc("weir_shadow_keys", "Keys in the memory of the candidate.")
	bytes := desc("weir_shadow_key_bytes", "Approximate memory of the keys of the candidate, in bytes.")
	evicted := desc("weir_shadow_evictions_total", "Keys of the candidate evicted before they expired, and hits for which there was no room.")
	m.Registry.MustRegister(scrape.CollectFunc(func(to chan<- prometheus.Metric) {
		s := stats()
		emit := func(d *prometheus.Desc, kind prometheus.ValueType, n int64, labels ...string) {
			to <- scrape.Metric(d, kind, float64(n), labels...)
		}
		const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
		counts := &s.Report.Requests
		emit(running, gauge, scrape.Bit(s.Report.Running))
		emit(loads, counter, s.Loads, "ok")
		emit(loads, counter, s.Faults, "error")
		emit(requests, counter, counts.BothAllowed, "allowed")
		emit(requests, counter, counts.BothDenied, "denied")
		emit(requests, counter, counts.NewlyDenied, "newly_denied")
		emit(requests, counter, counts.NewlyAllowed, "newly_allowed")
		for i := range s.Report.Limits {
			l := &s.Report.Limits[i]
			for _, c := range []struct {
				outcome string
				n       int64
			}{{"newly_denied", l.NewlyDenied}, {"newly_allowed", l.NewlyAllowed}, {"denied", l.BothDenied}, {"shadowed", l.Shadowed}} {
				if c.n > 0 {
					emit(denials, counter, c.n, l.Domain, l.Rule, l.Limit, c.outcome)
				}
			}
		}
		emit(undecided, counter, counts.Undecided)
		emit(dropped, counter, s.Stats.Dropped)
		emit(panics, counter, s.Stats.Panics)
		emit(keys, gauge, s.Stats.Keys)
		emit(bytes, gauge, s.Stats.Bytes)
		emit(evicted, counter, s.Stats.Evicted+s.Stats.Rejected)
	}))
}
