package main

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

func newXDS(s *settings.XDS, log *zap.Logger, metrics *telemetry.XDS) (*xds.Source, error) {
	monitor := &xdsMonitor{log: log.With(zap.String("source", s.ServerURL)), metrics: metrics}
	source := &xds.Source{
		Server:         s.ServerURL,
		NodeID:         s.NodeID,
		NodeMetadata:   s.Metadata(),
		Headers:        s.Headers(),
		MaxMessageSize: s.MaxMessageSize,
		Backoff:        backoff.Backoff{Initial: s.BackoffInitial, Max: s.BackoffMax},
		Notify:         monitor.notify,
	}
	if s.BackoffJitter {
		source.Backoff.Jitter = 1
	}
	if s.UseTLS {
		files := tlsfiles.Client{Cert: s.ClientCert, Key: s.ClientKey, CA: s.ServerCA, ServerName: s.ServerSAN}
		if _, err := files.Config(); err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_USE_TLS: %w", err)
		}
		source.TLS = files.Config
	}
	return source, nil
}

// An xdsMonitor logs and counts the events of one xDS source. It is not safe for concurrent use.
type xdsMonitor struct {
	log     *zap.Logger
	metrics *telemetry.XDS

	lost     time.Time // when the connection was lost; zero while connected
	attempts int       // failed attempts since lost
	logged   string    // the last logged error
}

func (m *xdsMonitor) notify(e xds.Event) {
	switch e.Kind {
	case xds.Connected:
		m.metrics.Connected(true)
		fields := []zap.Field{}
		if !m.lost.IsZero() {
			fields = append(fields, zap.Duration("outage_seconds", time.Since(m.lost)), zap.Int("failed_attempts", m.attempts))
		}
		m.log.Info("control plane connected", fields...)
		m.lost = time.Time{}
		m.attempts = 0
		m.logged = ""
	case xds.Disconnected:
		m.metrics.Connected(false)
		m.disconnected(e)
	default:
		m.metrics.Pushed(e.Kind.String())
		detail := zap.Int("resources", e.Files)
		if e.Kind == xds.Rejected {
			detail = zap.Error(e.Err)
		}
		m.log.Debug("control plane sent rules", zap.String("outcome", e.Kind.String()), zap.String("xds_version", e.Version), detail)
	}
}

// disconnected logs the first failed attempt of an outage and each new error at level error, and
// all others at debug.
func (m *xdsMonitor) disconnected(e xds.Event) {
	if e.Err == nil {
		return
	}
	if m.lost.IsZero() {
		m.lost = time.Now()
	}
	m.attempts++
	write := m.log.Debug
	if text := e.Err.Error(); text != m.logged {
		m.logged, write = text, m.log.Error
	}
	write("control plane not connected", zap.Error(e.Err), zap.Duration("retry_seconds", e.Retry))
}
