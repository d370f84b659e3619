package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/tracing"
	"github.com/weir-rls/weir/pkg/limiters"
)

// tracesTimeout bounds the export of the last spans.
const tracesTimeout = 5 * time.Second

// openTracing returns a store with a span for each call of b, if the settings enable tracing;
// otherwise b. It is called after b was opened, so that the last spans are sent before b closes,
// which may wait for a Redis that hangs.
func (p *process) openTracing(ctx context.Context, b limiters.Store) (limiters.Store, error) {
	s := p.settings
	if !s.TracingEnabled {
		return b, nil
	}
	t, err := tracing.Start(ctx, tracing.Options{
		Protocol:         s.TracingExporterProtocol,
		ServiceName:      s.TracingServiceName,
		ServiceNamespace: s.TracingServiceNamespace,
		InstanceID:       s.TracingServiceInstanceID,
		SamplingRate:     s.TracingSamplingRate,
		Failed:           func(err error) { p.log.Warn("tracing failed", zap.Error(err)) },
	})
	if err != nil {
		return nil, err
	}
	p.tracing = t
	p.flushAtClose(t.Stop, tracesTimeout, "last traces not sent")
	return t.Store(b), nil
}
