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
	running := desc("weir_shadow_running", "1 while the candidate rules of SHADOW_CONFIG decide requests. It is 0 if the file is missing or has never loaded.")
	loads := desc("weir_shadow_loads_total", "Number of attempts to load SHADOW_CONFIG, by result: ok, or error if the file is missing or has faults.", "result")
	requests := desc("weir_shadow_requests_total", "Number of requests that both the rules in force and the candidate of SHADOW_CONFIG decided. The outcome is allowed or denied if both agree, "+
		"and newly_denied or newly_allowed if the candidate differs. The counter restarts from 0 with a new candidate and with new rules.", "outcome")
	denials := desc("weir_shadow_denials_total", "Number of denied descriptors by limit. With the outcome newly_denied, denied or, in shadow mode, shadowed, "+
		"the limit is one of the candidate. With newly_allowed, it is one of the rules in force.", "domain", "rule", "limit", "outcome")
	undecided := desc("weir_shadow_undecided_requests_total", "Number of requests that Weir could not compare, because the store failed or the candidate had no room.")
	dropped := desc("weir_shadow_dropped_requests_total", "Number of requests that the candidate missed because its queue was full. Its counters are too low by these requests.")
	panics := desc("weir_shadow_panics_total", "Number of panics while the candidate decided. Each is a bug in Weir. The rules in force still decide the requests.")
	keys := desc("weir_shadow_keys", "Number of keys that the candidate holds in memory.")
	bytes := desc("weir_shadow_key_bytes", "Approximate size of the keys that the candidate holds in memory, in bytes.")
	evicted := desc("weir_shadow_evictions_total", "Number of keys of the candidate that Weir evicted before they expired, plus the number of operations for which it had no room.")
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
