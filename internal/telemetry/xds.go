package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// XDS counts connections to a control plane and its pushes.
type XDS struct {
	connected prometheus.Gauge
	pushes    *prometheus.CounterVec
}

// NewXDS returns registered metrics.
func NewXDS(registry prometheus.Registerer) *XDS {
	auto := promauto.With(registry)
	x := &XDS{
		connected: auto.NewGauge(prometheus.GaugeOpts{
			Name: "weir_xds_connected", Help: "1 if a stream to the control plane is open, else 0. Without a stream the last rules stay in force.",
		}),
		pushes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_xds_pushes_total", Help: "Pushes of the control plane, by result: accepted, unchanged, or rejected. After a rejected push the previous rules stay in force.",
		}, []string{"result"}),
	}
	for _, result := range []string{"accepted", "unchanged", "rejected"} {
		x.pushes.WithLabelValues(result)
	}
	return x
}

// Connected records whether a stream is open.
func (x *XDS) Connected(up bool) { x.connected.Set(float64(bit(up))) }

// Pushed counts a push by its result.
func (x *XDS) Pushed(result string) { x.pushes.WithLabelValues(result).Inc() }
