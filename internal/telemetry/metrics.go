// Package telemetry contains Weir's own metrics and its log. It observes finished results, and
// imports neither memstore nor redisstore.
//
// All labels come from the rules or from fixed lists, so the number of series is bounded.
package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

// Metrics holds the metrics of one process.
type Metrics struct {
	Registry *prometheus.Registry
	Handler  http.Handler // serves the metrics; all its users share the bound on concurrent scrapes

	requests    *prometheus.CounterVec
	ok, over    prometheus.Counter // requests with the overall code ok or over_limit
	requestTime prometheus.Histogram
	storeTime   prometheus.Histogram
	hits        *hitMetrics
	loads       *prometheus.CounterVec
	lastLoad    prometheus.Gauge
	loaded      prometheus.Gauge
	rules       prometheus.Gauge
	panics      prometheus.Counter
	unmatched   *counterMap
	denials     denialMetrics
	rulesInfo   *prometheus.GaugeVec
	version     string // the label of rulesInfo
	undecodable *prometheus.CounterVec
	leases      leaseMetrics
}

// durationBuckets are the bucket bounds, in seconds. They include the default timeouts, 15 ms of
// Weir and 20 ms of Envoy, and the thresholds of the alerts, so that quantiles near these values
// are exact.
var durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .015, .02, .025, .05, .1, .25, 1}

// NewMetrics returns Metrics with a new registry.
func NewMetrics(version string) *Metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	m := &Metrics{
		Registry: registry,
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_requests_total",
			Help: "Number of requests that Weir answered, by gRPC code. If the code is OK, the label overall is ok or over_limit. Requests that Weir sheds, rejects during shutdown, or fails because of a bug are not counted here.",
		}, []string{"code", "overall"}),
		requestTime: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_request_duration_seconds", Help: "Time in which Weir decides a request, from the decoded request to the last answer of the store. If Weir must end the leases and reservations of a denied or canceled request, this includes the second call.", Buckets: durationBuckets,
		}),
		storeTime: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_store_duration_seconds", Help: "Duration of the calls to the store, and of operations that wait for a call or are rejected without one.", Buckets: durationBuckets,
		}),
		hits: newHitMetrics(registry),
		loads: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_rules_loads_total", Help: "Number of attempts to load rules, by result: ok or error. After an error, the previous rules stay in force.",
		}, []string{"result"}),
		lastLoad: auto.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rules_last_load_successful", Help: "1, or 0 while the last attempt to load rules or an overlay has failed. It is 1 before the first attempt.",
		}),
		loaded: auto.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rules_loaded_timestamp_seconds", Help: "Time at which Weir loaded the rules in force, in Unix seconds.",
		}),
		rules: auto.NewGauge(prometheus.GaugeOpts{Name: "weir_rules", Help: "Number of rules in force."}),
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "weir_panics_total", Help: "Number of failures because of a bug in Weir: requests answered with INTERNAL, or over HTTP with 500, and resets by other replicas that failed here.",
		}),
		unmatched: newCounterMap(registry, "weir_unmatched_descriptors_total",
			"Number of descriptors that no rule of their domain limits, except those under an unlimited rule. With LOG_LEVEL=debug, Weir logs their keys.", "domain"),
		denials: newDenialMetrics(registry),
		rulesInfo: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_rules_info", Help: "Always 1. The label version is the version of the rules in force. Replicas with the same version decide by the same rules.",
		}, []string{"version"}),
		undecodable: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_undecodable_requests_total",
			Help: "Number of messages that Weir could not read as a RateLimitRequest, because they were malformed, compressed, too large or, over HTTP, too slow. weir_requests_total counts them too, under their code.",
		}, []string{"protocol"}),
		leases: newLeaseMetrics(registry),
	}
	auto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "Always 1. The label version is the version of Weir.",
	}, []string{"version"}).WithLabelValues(version).Set(1)
	m.undecodable.WithLabelValues(string(rls.GRPC))
	m.undecodable.WithLabelValues(string(rls.JSON))
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.ok = m.requests.WithLabelValues(codes.OK.String(), "ok")
	m.over = m.requests.WithLabelValues(codes.OK.String(), "over_limit")
	m.loads.WithLabelValues("ok")
	m.loads.WithLabelValues("error")
	m.lastLoad.Set(1)
	m.Handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	return m
}

// maxScrapes bounds concurrent scrapes, each of which holds all series in memory. Further scrapes
// get 503.
const maxScrapes = 4

// Observe counts a finished request.
func (m *Metrics) Observe(o *rls.Observation) {
	switch {
	case o.Code != codes.OK:
		m.requests.WithLabelValues(o.Code.String(), "").Inc()
	case o.Denied:
		m.over.Inc()
	default:
		m.ok.Inc()
	}
	if o.Undecodable() {
		m.undecodable.WithLabelValues(string(o.Protocol)).Inc()
	}
	if !o.Undecoded {
		m.requestTime.Observe(o.Duration.Seconds())
	}
	if o.StoreDuration > 0 && !decidedByCache(o.Decisions) {
		m.storeTime.Observe(o.StoreDuration.Seconds())
	}
	unmatched := 0
	for i := range o.Decisions {
		d := &o.Decisions[i]
		if d.Reason == decide.NoRule {
			unmatched++
		}
		if d.Hits > 0 && len(d.Verdicts) > 0 && !d.EndsLease() {
			m.hits.count(d)
		}
		if d.EndsLease() || d.Reason == decide.BadLeaseID || d.Reason == decide.TooManyLeases {
			m.leases.count(d)
		}
		m.denials.count(o, d)
	}
	m.leases.countGivenUpLeases(o)
	if unmatched > 0 {
		m.unmatched.add(labelSet{domain: o.Domain}, uint64(unmatched))
	}
}

// decidedByCache reports whether the deny cache decided everything, without a store call.
func decidedByCache(decisions []decide.Decision) bool {
	cached := false
	for i := range decisions {
		for j := range decisions[i].Verdicts {
			cached = decisions[i].Verdicts[j].By == limiters.ByCache
			if !cached {
				return false
			}
		}
	}
	return cached
}

// Loaded counts an attempt to load rules. After a successful one, it drops the series of removed
// rules. It is not safe for concurrent use.
func (m *Metrics) Loaded(rules *descriptors.Rules, now time.Time, err error) {
	if err != nil {
		m.loads.WithLabelValues("error").Inc()
		m.lastLoad.Set(0)
		return
	}
	m.loads.WithLabelValues("ok").Inc()
	m.lastLoad.Set(1)
	m.loaded.Set(float64(now.UnixNano()) / 1e9)
	_, n := rules.Counts()
	m.rules.Set(float64(n))
	m.rulesInfo.WithLabelValues(rules.Version()).Set(1)
	if m.version != rules.Version() {
		m.rulesInfo.DeleteLabelValues(m.version)
		m.version = rules.Version()
	}
	current := rules.ByID()
	m.hits.removeStale(current)
	m.hits.byRule.Reset(rules)
	m.denials.removeStale(current)
	m.leases.removeStale(current)
	m.unmatched.removeIf(func(l labelSet) bool { return rules.Domain(l.domain) == nil })
}

// Panicked counts a recovered panic.
func (m *Metrics) Panicked() { m.panics.Inc() }
