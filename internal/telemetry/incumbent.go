package telemetry

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

// incumbent holds the metrics of envoyproxy/ratelimit, by its names, for the dashboards and alerts made for it.
type incumbent struct {
	ratio   float32
	rates   table // by rule
	byRule  descriptors.PerRule[counting]
	domains table // hits of domains that no file has, as totalHits

	configLoaded, configFailed scalar
	redisErrors, serviceErrors scalar
	shadowed                   scalar
	methods                    methods
}

// A scalar is a counter without labels that change. Prometheus reads it; whoever sends differences keeps what it sent.
type scalar struct {
	n      atomic.Uint64
	statsd string
	sent   uint64
}

func (s *scalar) counter(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return float64(s.n.Load()) })
}

func (in *incumbent) scalars() []*scalar {
	return []*scalar{&in.configLoaded, &in.configFailed, &in.redisErrors, &in.serviceErrors, &in.shadowed}
}

// maxDomains bounds the domains that are counted though no file has them: clients make them up.
const maxDomains = 100

func newIncumbent(o *options) *incumbent {
	in := &incumbent{
		ratio: o.nearLimitRatio,
		rates: table{
			max: o.maxSeries, idle: o.idle, now: o.now, series: map[string]*series{},
			other: func(domain string) (string, []string) { return domain, []string{"other"} },
		},
		domains: table{
			max: maxDomains, idle: o.idle, now: o.now, series: map[string]*series{},
			other: func(string) (string, []string) { return "other", nil },
		},
		configLoaded:  scalar{statsd: "ratelimit.service.config_load_success"},
		configFailed:  scalar{statsd: "ratelimit.service.config_load_error"},
		redisErrors:   scalar{statsd: "ratelimit.service.call.should_rate_limit.redis_error"},
		serviceErrors: scalar{statsd: "ratelimit.service.call.should_rate_limit.service_error"},
		shadowed:      scalar{statsd: "ratelimit.service.global_shadow_mode"},
		methods:       newMethods(o.milliseconds),
	}
	return in
}

func (in *incumbent) register(registry *prometheus.Registry) {
	const failed = "ratelimit_service_should_rate_limit_error"
	const help = "Requests that failed, by what failed: the store, or another."
	registry.MustRegister(
		seriesCollector{in}, &in.methods, in.methods.took,
		in.configLoaded.counter("ratelimit_service_config_load_success", "Times that rules were loaded.", nil),
		in.configFailed.counter("ratelimit_service_config_load_error", "Times that rules had faults; the old ones stay.",
			nil),
		in.redisErrors.counter(failed, help, prometheus.Labels{"err_type": "redis_error"}),
		in.serviceErrors.counter(failed, help, prometheus.Labels{"err_type": "service_error"}),
		in.shadowed.counter("ratelimit_service_global_shadow_mode", "Denials that SHADOW_MODE turned into OK.", nil),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "weir_metrics_overflow_total",
			Help: `Times that something was counted as key1="other", or domain="other", since there were too many series.`,
		}, func() float64 { return float64(in.rates.overflows.Load() + in.domains.overflows.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_metrics_series", Help: "Rules and values counted apart."},
			func() float64 { return float64(in.rates.len()) }),
	)
}

// answered counts an answer. Several limits of one descriptor are one hit.
func (m *Metrics) answered(a *rls.Answer) {
	in := m.incumbent
	if a.GRPC {
		in.methods.count(in.methods.asked, a.Took)
	}
	switch {
	case a.Code == codes.OK || a.Code == codes.Canceled: // who no longer waits has not met an error
	case len(a.Decisions) > 0:
		in.redisErrors.n.Add(1)
	default: // the store was not asked
		in.serviceErrors.n.Add(1)
	}
	if a.GlobalShadow {
		in.shadowed.n.Add(1)
	}
	if a.DomainNotFound {
		in.domains.get(a.Domain, nil, owner{domain: a.Domain}).counts[totalHits].Add(1)
	}
	for i := 0; i < len(a.Decisions); {
		d := &a.Decisions[i]
		t := tallyOf(d, in.ratio)
		for i++; i < len(a.Decisions) && sameDescriptor(d, &a.Decisions[i]); i++ {
			t = worse(t, tallyOf(&a.Decisions[i], in.ratio))
		}
		if t != (tally{}) {
			in.of(d).add(&t)
		}
	}
}

// of finds the series of a decision, and notes it with the rule. What a rule without runtime values in its names counts on
// is found without a look at them.
func (in *incumbent) of(d *rls.Decision) *series {
	var stack [16]string
	if d.Override || d.Rule == nil {
		return in.rates.get(d.Domain, appendLevels(stack[:0], d), owner{domain: d.Domain})
	}
	cached := in.byRule.Of(d.Rule)
	if cached == nil { // of rules that have just been replaced
		s := in.rates.get(d.Domain, appendLevels(stack[:0], d), ownerOf(d.Rule))
		if !s.other {
			in.rates.own(s, ownerOf(d.Rule))
		}
		return s
	}
	known := cached.Load()
	if known != nil && known.levels == nil && known.holds() {
		return known.series
	}
	levels := appendLevels(stack[:0], d)
	if known != nil && sameTexts(known.levels, levels) && known.holds() {
		return known.series
	}
	by, drops := ownerOf(d.Rule), in.rates.drops.Load()
	s := in.rates.get(d.Domain, levels, by)
	if known != nil && !known.series.gone.Load() && !known.series.other {
		return s // the rule has noted one that stays, of other values
	}
	if !s.other {
		in.rates.own(s, by)
	}
	next := &s.alone
	switch fixed := d.Rule.HasFixedStatLevels(); {
	case !fixed && s.other:
		return s // it may have been the only one without room
	case !fixed:
		next = &counting{series: s, levels: cloned(levels)}
	case s.other:
		next = s.fullAsOf(drops)
	}
	cached.CompareAndSwap(known, next)
	return s
}

// loaded counts a load of rules, and drops the series of rules that are gone.
func (in *incumbent) loaded(rules *descriptors.Rules) {
	in.configLoaded.n.Add(1)
	kept := map[owner]bool{}
	for r := range rules.All() {
		kept[ownerOf(r)] = true
	}
	in.rates.forget(func(o owner) bool {
		if o.rule == "" {
			return !rules.HasDomain(o.domain)
		}
		return !kept[o]
	})
	in.byRule.Reset(rules)
	in.domains.forget(func(o owner) bool { return rules.HasDomain(o.domain) })
}

// seriesCollector collects the series. Its metrics have as many labels as their rule has levels: the domain and key1,
// key2 and so on. To Prometheus a label that is absent and one that is empty are the same, and so the incumbent's own
// exporter does. As the labels vary, it is what client_golang calls an unchecked collector: one that describes nothing.
type seriesCollector struct{ in *incumbent }

// Describe describes nothing.
func (seriesCollector) Describe(chan<- *prometheus.Desc) {}

// Collect drops what is idle, and collects the rest. The counters that few have are there when they are not 0.
func (c seriesCollector) Collect(to chan<- prometheus.Metric) {
	c.in.rates.sweep()
	c.in.domains.sweep()
	descs := map[int]*[counters]*prometheus.Desc{}
	for _, s := range c.in.rates.all() {
		depth := len(s.labels) - 1
		if descs[depth] == nil {
			descs[depth] = descsOf(depth)
		}
		for i, n := range s.load() {
			if n > 0 || i < overLimitWithLocalCache {
				to <- metric(descs[depth][i], n, s.labels)
			}
		}
	}
	unknown := prometheus.NewDesc("ratelimit_service_rate_limit_domain_not_found",
		"Requests for domains that no rules have.", []string{"domain"}, nil)
	for _, s := range c.in.domains.all() {
		to <- metric(unknown, s.counts[totalHits].Load(), s.labels)
	}
}

func metric(desc *prometheus.Desc, n uint64, labels []string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

func descsOf(depth int) *[counters]*prometheus.Desc {
	labels := []string{"domain"}
	for i := range depth {
		labels = append(labels, "key"+strconv.Itoa(i+1))
	}
	descs := &[counters]*prometheus.Desc{}
	for i, name := range counterNames {
		descs[i] = prometheus.NewDesc("ratelimit_service_rate_limit_"+name, counterHelp[i], labels, nil)
	}
	return descs
}
