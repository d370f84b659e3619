// Package ratelimitstats exports the metrics of envoyproxy/ratelimit under their names, so that its
// dashboards and alerts keep working. Prometheus scrapes them; package statsd sends them.
//
// Some label values come from requests, so the number of series is bounded, and unused series
// expire.
package ratelimitstats

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

// Stats holds the metrics of one process.
type Stats struct {
	nearLimitRatio float32
	byDescriptor   table
	byRule         descriptors.PerRule[series] // caches byDescriptor
	unknownDomains table                       // domains that no rules have; only totalHits counts

	configLoaded, configFailed *scalar
	redisErrors, serviceErrors *scalar
	shadowed                   *scalar
	scalars                    []*scalar // the five above
	methods                    *methods
}

// Options configures Stats.
type Options struct {
	// NearLimitRatio is the fraction of a limit, from 0 to 1, above which allowed hits count as
	// near_limit.
	NearLimitRatio float32
	// Milliseconds makes ratelimit_service_response_time_seconds observe milliseconds.
	Milliseconds bool
	// Statsd keeps what [Stats.Counters] and [Stats.ResponseTimes] send: dropped series until their
	// last counts are sent, and a sample of the response times.
	Statsd bool
}

const (
	maxSeries = 10_000
	// maxDomains bounds the counted domains without rules, because a client can send any domain.
	maxDomains = 100
)

// New returns Stats that are registered with registry.
func New(registry prometheus.Registerer, o Options) *Stats {
	s := &Stats{
		nearLimitRatio: o.NearLimitRatio,
		byDescriptor: table{
			max: maxSeries, sending: o.Statsd, series: map[string]*series{},
			sharedName: func(domain string) (string, []string) { return domain, []string{"other"} },
		},
		unknownDomains: table{
			max: maxDomains, sending: o.Statsd, series: map[string]*series{},
			sharedName: func(string) (string, []string) { return "other", nil },
		},
		methods: newMethods(o),
	}
	s.register(registry)
	return s
}

// A scalar is a counter with constant labels.
type scalar struct {
	n      atomic.Uint64
	statsd string // its name in statsd
	sent   uint64 // the part of n that was sent to statsd
}

func (s *Stats) register(registry prometheus.Registerer) {
	registry.MustRegister(scrape.CollectFunc(s.collectSeries), scrape.CollectFunc(s.methods.collect), s.methods.took)
	auto := promauto.With(registry)
	add := func(statsd, name, help string, labels prometheus.Labels) *scalar {
		c := &scalar{statsd: "ratelimit.service." + statsd}
		s.scalars = append(s.scalars, c)
		o := prometheus.CounterOpts{Name: "ratelimit_service_" + name, Help: help, ConstLabels: labels}
		auto.NewCounterFunc(o, func() float64 { return float64(c.n.Load()) })
		return c
	}
	failed := func(kind string) *scalar {
		return add("call.should_rate_limit."+kind, "should_rate_limit_error",
			"Number of requests that failed. The label err_type is redis_error if the store failed, else service_error.", prometheus.Labels{"err_type": kind})
	}
	s.configLoaded = add("config_load_success", "config_load_success", "Number of successful loads of rules.", nil)
	s.configFailed = add("config_load_error", "config_load_error", "Number of failed loads of rules. The previous rules stay in force.", nil)
	s.redisErrors, s.serviceErrors = failed("redis_error"), failed("service_error")
	s.shadowed = add("global_shadow_mode", "global_shadow_mode", "Number of requests over a limit that Weir answered with OK because of SHADOW_MODE.", nil)
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_metrics_overflow_total",
		Help: `Number of counts that went to key1="other" or domain="other", because the ratelimit_service series reached their bound.`,
	}, func() float64 { return float64(s.byDescriptor.overflows.Load() + s.unknownDomains.overflows.Load()) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_metrics_series", Help: "Number of rules and runtime values with their own ratelimit_service series. The bound is 10,000.",
	}, func() float64 { return float64(s.byDescriptor.len()) })
}

// Observe counts a finished request. The limits of one descriptor count as one hit. Ends of leases,
// which envoyproxy/ratelimit lacks, are not counted.
func (s *Stats) Observe(o *rls.Observation) {
	switch {
	case o.Protocol != rls.GRPC:
	case !o.Undecoded:
		s.methods.count(s.methods.shouldRateLimit, o.Duration)
	default:
		s.methods.shouldRateLimit.calls.n.Add(1)
	}
	switch {
	case o.Code == codes.OK, o.Code == codes.Canceled: // a client that leaves is not an error
	case o.StoreErr != nil:
		s.redisErrors.n.Add(1)
	case o.Code == codes.DeadlineExceeded: // the client was late, which is not an error either
	default: // the request is invalid, or no rules are loaded
		s.serviceErrors.n.Add(1)
	}
	if o.Shadowed {
		s.shadowed.n.Add(1)
	}
	if o.UnknownDomain {
		s.unknownDomains.get(o.Domain, nil, descriptors.RuleID{Domain: o.Domain}).counts[totalHits].Add(1)
	}
	for i := range o.Decisions {
		d := &o.Decisions[i]
		if len(d.Verdicts) == 0 || d.EndsLease() {
			continue
		}
		t := tallyOf(d, 0, s.nearLimitRatio)
		for j := 1; j < len(d.Verdicts); j++ {
			t = worse(t, tallyOf(d, j, s.nearLimitRatio))
		}
		if t != (tally{}) {
			s.seriesOf(d).add(&t)
		}
	}
}

// Panicked counts a call of ShouldRateLimit that panicked before Observe could count it. Its
// duration is not observed.
func (s *Stats) Panicked() { s.methods.shouldRateLimit.calls.n.Add(1) }

// seriesOf returns the series of a decision. It is cached by rule, so that a rule without runtime
// values in its names does not need the descriptor's entries. As in envoyproxy/ratelimit, a limit
// in the request uses the names of the request even if a rule matches.
func (s *Stats) seriesOf(d *decide.Decision) *series {
	var stack [16]string
	if d.HasOverride {
		parts := descriptors.AppendOverrideMetricNames(stack[:0], d.Rule, d.Entries)
		return s.byDescriptor.get(d.Domain, parts, descriptors.RuleID{Domain: d.Domain})
	}
	cached := s.byRule.Of(d.Rule) // nil if the rules were just replaced
	if cached != nil {
		switch known := cached.Load(); {
		case known == nil || known.dropped.Load():
		case !known.isShared:
			return known
		case s.byDescriptor.isFull():
			s.byDescriptor.overflows.Add(1)
			return known
		}
	}
	found := s.byDescriptor.get(d.Domain, d.Rule.AppendMetricNames(stack[:0], d.Entries), d.Rule.ID())
	if cached != nil && d.Rule.HasFixedMetricNames() {
		cached.Store(found)
	}
	return found
}

// Loaded counts an attempt to load rules. After a successful load it drops the series of rules that
// no longer exist.
func (s *Stats) Loaded(rules *descriptors.Rules, err error) {
	if err != nil {
		s.configFailed.n.Add(1)
		return
	}
	s.configLoaded.n.Add(1)
	current := rules.ByID()
	s.byDescriptor.removeStale(func(id descriptors.RuleID) bool { _, known := current[id]; return !known })
	s.byRule.Reset(rules)
	s.unknownDomains.removeStale(func(id descriptors.RuleID) bool { return rules.Domain(id.Domain) != nil })
}
