package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ShadowStats holds the counts of the candidate rules of a shadow file.
type ShadowStats struct {
	Running       bool
	Loads, Faults int64 // of the file
	// Requests by their outcomes under the rules in force and under the candidate.
	BothAllowed, BothDenied, NewlyDenied, NewlyAllowed int64
	Undecided, Dropped, Panics                         int64
	Keys, Bytes, Evicted, Rejected                     int64
	Limits                                             []ShadowLimit
}

// A ShadowLimit is a limit of a ShadowStats.
type ShadowLimit struct {
	Domain, Rule, Limit                             string
	NewlyDenied, NewlyAllowed, BothDenied, Shadowed int64
}

// Shadow registers the metrics of a shadow file.
func (m *Metrics) Shadow(stats func() ShadowStats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.Registry.MustRegister(&shadow{
		stats:   stats,
		running: desc("weir_shadow_running", "1 while the candidate of SHADOW_CONFIG decides requests; 0 if its file is missing or never was free of faults."),
		loads:   desc("weir_shadow_loads_total", "Loads of SHADOW_CONFIG, by result: ok, or error if the file is missing or has faults.", "result"),
		requests: desc("weir_shadow_requests_total", "Requests that the candidate of SHADOW_CONFIG decided, by outcome: allowed or denied by both, newly_denied by the "+
			"candidate alone, or newly_allowed by the candidate. Restarts from 0 with a new candidate and with new rules.", "outcome"),
		denials: desc("weir_shadow_denials_total", "Denials by limit: newly_denied and denied by limits of the candidate, newly_allowed by limits of the rules in force, "+
			"shadowed by limits of the candidate in shadow mode. A request counts once for each descriptor that is denied.", "domain", "rule", "limit", "outcome"),
		undecided: desc("weir_shadow_undecided_requests_total", "Requests that were not compared, because the store failed, or the candidate had no room."),
		dropped:   desc("weir_shadow_dropped_requests_total", "Requests that the candidate missed because its queue was full. Its counters are too low by these requests."),
		panics:    desc("weir_shadow_panics_total", "Panics while the candidate decided. Requests are answered all the same. Please report it."),
		keys:      desc("weir_shadow_keys", "Keys in the memory of the candidate."),
		bytes:     desc("weir_shadow_key_bytes", "Approximate memory of the keys of the candidate, in bytes."),
		evicted:   desc("weir_shadow_evictions_total", "Keys of the candidate evicted before they expired, and hits without room: raise SHADOW_MAX_BYTES."),
	})
}

// A shadow collects its metrics at each scrape.
type shadow struct {
	stats                                                 func() ShadowStats
	running, loads, requests, denials, undecided, dropped *prometheus.Desc
	panics, keys, bytes, evicted                          *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *shadow) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.running, s.loads, s.requests, s.denials, s.undecided, s.dropped, s.panics, s.keys, s.bytes, s.evicted} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *shadow) Collect(to chan<- prometheus.Metric) {
	stats := s.stats()
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, n int64, labels ...string) {
		to <- constMetric(d, kind, float64(n), labels...)
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	running := int64(0)
	if stats.Running {
		running = 1
	}
	emit(s.running, gauge, running)
	emit(s.loads, counter, stats.Loads, "ok")
	emit(s.loads, counter, stats.Faults, "error")
	emit(s.requests, counter, stats.BothAllowed, "allowed")
	emit(s.requests, counter, stats.BothDenied, "denied")
	emit(s.requests, counter, stats.NewlyDenied, "newly_denied")
	emit(s.requests, counter, stats.NewlyAllowed, "newly_allowed")
	for i := range stats.Limits {
		l := &stats.Limits[i]
		for _, c := range []struct {
			outcome string
			n       int64
		}{{"newly_denied", l.NewlyDenied}, {"newly_allowed", l.NewlyAllowed}, {"denied", l.BothDenied}, {"shadowed", l.Shadowed}} {
			if c.n > 0 {
				emit(s.denials, counter, c.n, l.Domain, l.Rule, l.Limit, c.outcome)
			}
		}
	}
	emit(s.undecided, counter, stats.Undecided)
	emit(s.dropped, counter, stats.Dropped)
	emit(s.panics, counter, stats.Panics)
	emit(s.keys, gauge, stats.Keys)
	emit(s.bytes, gauge, stats.Bytes)
	emit(s.evicted, counter, stats.Evicted+stats.Rejected)
}
