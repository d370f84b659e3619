package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// A collectFunc collects metrics at each scrape. It describes none.
type collectFunc func(to chan<- prometheus.Metric)

// Describe implements [prometheus.Collector].
func (collectFunc) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (f collectFunc) Collect(to chan<- prometheus.Metric) { f(to) }

// registrars returns functions that register a gauge or a counter. Each reads one field of stats at
// each scrape.
func registrars[S any](registry prometheus.Registerer, stats func() S, labels prometheus.Labels) (
	gauge, counter func(name, help string, value func(S) int64),
) {
	auto := promauto.With(registry)
	read := func(value func(S) int64) func() float64 { return func() float64 { return float64(value(stats())) } }
	gauge = func(name, help string, value func(S) int64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read(value))
	}
	counter = func(name, help string, value func(S) int64) {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, read(value))
	}
	return gauge, counter
}

// constMetric is [prometheus.NewConstMetric], but returns an invalid metric instead of an error, so
// that a bad label fails a scrape and not the process.
func constMetric(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

// bit returns 1 if set, else 0.
func bit(set bool) int64 {
	if set {
		return 1
	}
	return 0
}
