package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

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
