package settings

import "math"

// Tracing are the settings of traces.
type Tracing struct {
	TracingEnabled           bool    `env:"TRACING_ENABLED" help:"Send traces with OTLP. OTEL_EXPORTER_OTLP_ENDPOINT names the collector."`
	TracingServiceName       string  `env:"TRACING_SERVICE_NAME" default:"RateLimit" help:"The service.name of the traces."`
	TracingServiceNamespace  string  `env:"TRACING_SERVICE_NAMESPACE" help:"The service.namespace of the traces."`
	TracingServiceInstanceID string  `env:"TRACING_SERVICE_INSTANCE_ID" help:"The service.instance.id of the traces. Default: a random one."`
	TracingExporterProtocol  string  `env:"TRACING_EXPORTER_PROTOCOL" default:"http" placeholder:"http|grpc" help:"The protocol of OTLP."`
	TracingSamplingRate      float64 `env:"TRACING_SAMPLING_RATE" default:"1" help:"The fraction of traces to send, from 0 to 1, if the caller has not decided."`
}

func (t *Tracing) complete(errs *settingErrors) {
	setDefault(&t.TracingExporterProtocol, "http")
	errs.oneOf("TRACING_EXPORTER_PROTOCOL", &t.TracingExporterProtocol, "http", "grpc")
	if math.IsNaN(t.TracingSamplingRate) {
		errs.require("TRACING_SAMPLING_RATE", t.TracingSamplingRate, "be from 0 to 1")
	}
	// As in OpenTelemetry, a rate above 1 counts as 1, and one below 0 as 0.
	t.TracingSamplingRate = max(0, min(t.TracingSamplingRate, 1))
}
