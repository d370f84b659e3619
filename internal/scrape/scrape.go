// Package scrape collects Prometheus metrics at each scrape.
package scrape

import "github.com/prometheus/client_golang/prometheus"

// A CollectFunc is an unchecked collector: it collects metrics at each scrape, and describes none.
type CollectFunc func(to chan<- prometheus.Metric)

// Describe implements [prometheus.Collector].
func (CollectFunc) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (f CollectFunc) Collect(to chan<- prometheus.Metric) { f(to) }

// Metric is [prometheus.NewConstMetric], but returns an invalid metric instead of an error, so that
// a bad label fails a scrape and not the process.
func Metric(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

// Bit returns 1 if set, else 0.
func Bit(set bool) int64 {
	if set {
		return 1
	}
	return 0
}
