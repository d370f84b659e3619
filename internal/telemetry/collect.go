package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
)

// A stat is a metric with a value of the statistics S.
type stat[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

func gaugeOf[S any](name, help string, value func(S) int64) stat[S] {
	return statOf(prometheus.GaugeValue, name, help, nil, value)
}

func counterOf[S any](name, help string, value func(S) int64) stat[S] {
	return statOf(prometheus.CounterValue, name, help, nil, value)
}

func labeledCounterOf[S any](name, help string, labels prometheus.Labels, value func(S) int64) stat[S] {
	return statOf(prometheus.CounterValue, name, help, labels, value)
}

func statOf[S any](kind prometheus.ValueType, name, help string, labels prometheus.Labels, value func(S) int64) stat[S] {
	return stat[S]{prometheus.NewDesc(name, help, nil, labels), kind, func(s S) float64 { return float64(value(s)) }}
}

// A statsCollector reads the statistics once at each scrape, because reading them may take locks.
type statsCollector[S any] struct {
	read  func() S
	stats []stat[S]
}

func registerStats[S any](registry prometheus.Registerer, read func() S, stats ...stat[S]) {
	registry.MustRegister(&statsCollector[S]{read, stats})
}

// Describe implements prometheus.Collector.
func (c *statsCollector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, s := range c.stats {
		to <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *statsCollector[S]) Collect(to chan<- prometheus.Metric) {
	read := c.read()
	for _, s := range c.stats {
		to <- scrape.Metric(s.desc, s.kind, s.value(read))
	}
}
