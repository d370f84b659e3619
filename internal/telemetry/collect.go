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

// registerStats registers metrics with values of the statistics that read returns. It calls read
// once at each scrape, because reading them may take locks.
func registerStats[S any](registry prometheus.Registerer, read func() S, stats ...stat[S]) {
	registry.MustRegister(scrape.CollectFunc(func(to chan<- prometheus.Metric) {
		all := read()
		for _, s := range stats {
			to <- scrape.Metric(s.desc, s.kind, s.value(all))
		}
	}))
}
