package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tracing"
)

// tracesTimeout bounds the export of the last spans.
const tracesTimeout = 5 * time.Second

// openTracing starts tracing. It returns nil unless the settings enable it. It must be called after
// the backend is open, so that the last spans are sent before the backend closes: that may wait for
// a Redis that hangs.
func (e *environment) openTracing(ctx context.Context) (*tracing.Tracing, error) {
	s := e.settings
	if !s.TracingEnabled {
		return nil, nil
	}
	warn := func(log *zap.Logger) func(error) {
		return func(err error) { log.Warn("tracing failed", zap.Error(err)) }
	}
	t, err := tracing.Start(ctx, tracing.Options{
		Protocol:         s.TracingExporterProtocol,
		ServiceName:      s.TracingServiceName,
		ServiceNamespace: s.TracingServiceNamespace,
		InstanceID:       s.TracingServiceInstanceID,
		SamplingRate:     s.TracingSamplingRate,
		Invalid:          warn(e.log),
		Failed:           warn(telemetry.OncePerSecond(e.log)),
	})
	if err != nil {
		return nil, err
	}
	e.flushAtClose(t.Stop, tracesTimeout, "last traces not sent")
	return t, nil
}
