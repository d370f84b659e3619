package ruleload

import (
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// A connectionLog logs the events of a control plane. It is not safe for concurrent use.
type connectionLog struct {
	log *zap.Logger

	lost     time.Time // when the connection was lost; zero while connected
	attempts int       // failed attempts since lost
	logged   string    // the last logged error
}

// add logs an event.
func (l *connectionLog) add(e xds.Event) {
	switch e.Kind {
	case xds.Connected:
		var fields []zap.Field
		if !l.lost.IsZero() {
			fields = append(fields, zap.Duration("outage_seconds", time.Since(l.lost)), zap.Int("failed_attempts", l.attempts))
		}
		l.log.Info("control plane connected", fields...)
		*l = connectionLog{log: l.log}
	case xds.Disconnected:
		l.addDisconnected(e)
	default:
		detail := zap.Int("resources", e.Files)
		if e.Kind == xds.Rejected {
			detail = zap.Error(e.Err)
		}
		l.log.Debug("control plane sent rules", zap.String("outcome", e.Kind.String()), zap.String("xds_version", e.Version), detail)
	}
}

// addDisconnected logs the first failed attempt of an outage and each new error at level error, and
// all others at debug.
func (l *connectionLog) addDisconnected(e xds.Event) {
	if e.Err == nil {
		return
	}
	if l.lost.IsZero() {
		l.lost = time.Now()
	}
	l.attempts++
	write := l.log.Debug
	if text := e.Err.Error(); text != l.logged {
		l.logged, write = text, l.log.Error
	}
	write("control plane not connected", zap.Error(e.Err), zap.Duration("retry_seconds", e.Retry))
}
