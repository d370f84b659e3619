// Package telemetry is what Weir tells of itself: metrics and the log. It reads both off values that others hand it
// when they are done, and decides nothing. Label values come from the rules, so they are bounded; those that come from
// requests are in a table with a bound.
package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/rls"
)

// Metrics are the metrics of a process.
type Metrics struct {
	Registry *prometheus.Registry

	requests *prometheus.CounterVec
	ok, over prometheus.Counter // of requests
	took     prometheus.Histogram
	store    prometheus.Histogram
	hits     *hits
	loads    *prometheus.CounterVec
	loaded   prometheus.Gauge
	rules    prometheus.Gauge
	panics   prometheus.Counter
	nobody   *prometheus.CounterVec // descriptors that no rule limits

	incumbent *incumbent
}

var seconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}

// NewMetrics makes the metrics and registers them.
func NewMetrics(version string, with ...Option) *Metrics {
	m := &Metrics{
		Registry:  prometheus.NewRegistry(),
		incumbent: newIncumbent(newOptions(with)),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_requests_total", Help: "Requests answered, by gRPC code; those of OK by overall code.",
		}, []string{"code", "overall"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_request_duration_seconds", Help: "From the decoded request until it was decided.", Buckets: seconds,
		}),
		store: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_store_duration_seconds", Help: "Calls of the store.", Buckets: seconds,
		}),
		hits: newHits(),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_rules_loads_total", Help: "Times that rules were read, by result: ok, or error (the old ones stay).",
		}, []string{"result"}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rules_loaded_timestamp_seconds", Help: "When the rules in force were loaded.",
		}),
		rules: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_rules", Help: "Rules in force."}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_panics_total", Help: "Requests that met a bug and were answered INTERNAL. Please report it.",
		}),
	}
	m.nobody = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_unmatched_descriptors_total",
		Help: "Descriptors of a domain that the rules have, which none of its rules limits. LOG_LEVEL=debug shows them.",
	}, []string{"domain"})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_build_info", Help: "Always 1."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.Registry.MustRegister(m.requests, m.took, m.store, m.hits, m.loads, m.loaded, m.rules, m.panics, m.nobody, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.incumbent.register(m.Registry)
	m.ok = m.requests.WithLabelValues(codes.OK.String(), "ok")
	m.over = m.requests.WithLabelValues(codes.OK.String(), "over_limit")
	m.loads.WithLabelValues("ok")
	m.loads.WithLabelValues("error")
	return m
}

// Answered counts an answer.
func (m *Metrics) Answered(a *rls.Answer) {
	m.answered(a)
	switch {
	case a.Code != codes.OK:
		m.requests.WithLabelValues(a.Code.String(), "").Inc()
	case a.Denied:
		m.over.Inc()
	default:
		m.ok.Inc()
	}
	if n := len(a.Unmatched); n > 0 {
		m.nobody.WithLabelValues(a.Domain).Add(float64(n))
	}
	m.took.Observe(a.Took.Seconds())
	if a.StoreTook > 0 && !remembered(a.Decisions) {
		m.store.Observe(a.StoreTook.Seconds())
	}
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if d.Hits <= 0 {
			continue
		}
		verdict := hitAllowed
		switch {
		case d.Verdict.Err != nil:
			verdict = hitError
		case !d.Verdict.Allowed:
			verdict = hitDenied
		}
		m.hitsOf(d)[verdict].Add(uint64(d.Hits))
	}
}

// remembered tells whether the deny cache answered all, so that the store was not asked.
func remembered(decisions []rls.Decision) bool {
	for i := range decisions {
		if decisions[i].Verdict.By != limiters.ByCache {
			return false
		}
	}
	return len(decisions) > 0
}

// Loaded counts an attempt to load rules. After one that succeeded, the series of rules that are gone are dropped. It
// is for one caller at a time.
func (m *Metrics) Loaded(rules *descriptors.Rules, now time.Time, err error) {
	if err != nil {
		m.loads.WithLabelValues("error").Inc()
		m.incumbent.configFailed.n.Add(1)
		return
	}
	m.loads.WithLabelValues("ok").Inc()
	m.loaded.Set(float64(now.UnixNano()) / 1e9)
	_, n := rules.Counts()
	m.rules.Set(float64(n))
	m.hits.keep(rules)
	m.incumbent.loaded(rules)
}

// Panicked counts a request that met a bug.
func (m *Metrics) Panicked() { m.panics.Inc() }

// DenyCache tells of the cache of denials.
func (m *Metrics) DenyCache(stats func() guard.DenyStats) {
	gauge, counter := readBy(stats, nil)
	m.Registry.MustRegister(
		gauge("weir_deny_cache_entries", "Denials remembered.", func(s guard.DenyStats) int64 { return s.Entries }),
		gauge("weir_deny_cache_bytes", "About the bytes that they take.", func(s guard.DenyStats) int64 { return s.Bytes }),
		counter("weir_deny_cache_asked_total", "Decisions that the deny cache was asked for. Refunds are none.",
			func(s guard.DenyStats) int64 { return s.Asked }),
		counter("weir_deny_cache_answered_total", "Of these, those that it answered: the store was spared them.",
			func(s guard.DenyStats) int64 { return s.Answered }),
		counter("weir_deny_cache_refused_total", "Denials not remembered, since there was no room.",
			func(s guard.DenyStats) int64 { return s.Refused }),
		counter("weir_deny_cache_sent_hits_total", "Hits that it denied and sent to be counted later.",
			func(s guard.DenyStats) int64 { return s.Sent }),
		counter("weir_deny_cache_lost_hits_total", "Hits that it denied and sent in calls that failed: they may not have been counted.",
			func(s guard.DenyStats) int64 { return s.Lost }),
	)
}

// PanickedAsked counts a call of the rate limit service that met a bug, and that Answered was not told of. What it took
// says nothing of how fast answers are.
func (m *Metrics) PanickedAsked() {
	m.Panicked()
	m.incumbent.methods.asked.calls.n.Add(1)
}

// Redis tells of the store on Redis; which tells it from another, if there are two.
func (m *Metrics) Redis(which string, stats func() redisstore.Stats) {
	_, counter := readBy(stats, prometheus.Labels{"redis": which})
	m.Registry.MustRegister(
		counter("weir_redis_calls_total", "Calls of Redis. Requests that come while one is under way travel together in the next.",
			func(s redisstore.Stats) int64 { return s.Calls }),
		counter("weir_redis_hits_total", "Hits in these calls: by the number of calls, what a call decides on average.",
			func(s redisstore.Stats) int64 { return s.Hits }),
		counter("weir_redis_refused_hits_total", "Hits that failed at once, since too many were waiting.",
			func(s redisstore.Stats) int64 { return s.Refused }),
		counter("weir_redis_broken_hits_total", "Hits that failed at once, since the calls before them had all failed.",
			func(s redisstore.Stats) int64 { return s.Broken }),
		counter("weir_redis_left_hits_total", "Hits that failed after they had waited for their time, and were not charged.",
			func(s redisstore.Stats) int64 { return s.Left }),
	)
}

// Load is how many requests there are.
type Load struct{ InFlight, Refused int64 }

// Load tells of the requests that are being decided.
func (m *Metrics) Load(stats func() Load) {
	gauge, counter := readBy(stats, nil)
	m.Registry.MustRegister(
		gauge("weir_requests_in_flight", "Requests that are being decided.", func(l Load) int64 { return l.InFlight }),
		counter("weir_refused_requests_total", "Requests refused at once, since MAX_IN_FLIGHT were being decided. They are not in weir_requests_total.",
			func(l Load) int64 { return l.Refused }),
	)
}

// Memory tells of the store in memory.
func (m *Metrics) Memory(stats func() memstore.Stats) {
	gauge, counter := readBy(stats, nil)
	m.Registry.MustRegister(
		gauge("weir_memory_keys", "Keys in memory: of the store, or of on_store_error: local.", func(s memstore.Stats) int64 { return s.Keys }),
		gauge("weir_memory_bytes", "About the bytes that keys in memory take.",
			func(s memstore.Stats) int64 { return s.Bytes }),
		counter("weir_memory_dropped_keys_total", "Keys dropped for room that were not yet as good as new.",
			func(s memstore.Stats) int64 { return s.Dropped }),
		counter("weir_memory_refused_hits_total", "Hits that failed since there was no room.",
			func(s memstore.Stats) int64 { return s.Refused }),
	)
}

// SnapshotStats tell of the file that the counters in memory are kept in.
type SnapshotStats struct {
	SavedAt       time.Time // for the last time; zero: not yet
	Saved, Loaded int64     // keys: the last time, and at start
	Failures      int64     // of saving
}

// Snapshot tells of the snapshot of the store in memory.
func (m *Metrics) Snapshot(stats func() SnapshotStats) {
	gauge, counter := readBy(stats, nil)
	m.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_memory_snapshot_timestamp_seconds", Help: "When the keys in memory were saved for the last time; 0: not yet.",
		}, func() float64 {
			at := stats().SavedAt
			if at.IsZero() {
				return 0
			}
			return float64(at.UnixMilli()) / 1000
		}),
		gauge("weir_memory_snapshot_saved_keys", "Keys that were saved the last time.",
			func(s SnapshotStats) int64 { return s.Saved }),
		gauge("weir_memory_snapshot_loaded_keys", "Keys that were loaded at start.",
			func(s SnapshotStats) int64 { return s.Loaded }),
		counter("weir_memory_snapshot_failures_total", "How often the keys in memory could not be saved.",
			func(s SnapshotStats) int64 { return s.Failures }),
	)
}

// readBy makes gauges and counters of what stats tells, read whenever they are asked for.
func readBy[S any](stats func() S, labels prometheus.Labels) (
	gauge, counter func(name, help string, value func(S) int64) prometheus.Collector,
) {
	read := func(value func(S) int64) func() float64 { return func() float64 { return float64(value(stats())) } }
	gauge = func(name, help string, value func(S) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read(value))
	}
	counter = func(name, help string, value func(S) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, read(value))
	}
	return gauge, counter
}
