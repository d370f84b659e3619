package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// RegisterXDS registers the metrics of a control plane. The returned function counts an event.
func (m *Metrics) RegisterXDS() func(xds.Event) {
	auto := promauto.With(m.Registry)
	connected := auto.NewGauge(prometheus.GaugeOpts{
		Name: "weir_xds_connected", Help: "1 if a stream to the control plane is open, else 0. Without a stream, the last rules stay in force.",
	})
	pushes := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_xds_pushes_total", Help: "Number of pushes from the control plane, by result: accepted, unchanged or rejected. After a rejected push, the previous rules stay in force.",
	}, []string{"result"})
	for _, result := range []xds.Kind{xds.Accepted, xds.Unchanged, xds.Rejected} {
		pushes.WithLabelValues(result.String())
	}
	return func(e xds.Event) {
		switch e.Kind {
		case xds.Connected:
			connected.Set(1)
		case xds.Disconnected:
			connected.Set(0)
		default:
			pushes.WithLabelValues(e.Kind.String()).Inc()
		}
	}
}
