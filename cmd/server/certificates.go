package main

import (
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/telemetry"
)

// logExpired returns a function that logs that a certificate has expired, at most one line in a
// second, because clients load theirs for each connection.
func logExpired(log *zap.Logger) func(path string, notAfter time.Time) {
	log = telemetry.OncePerSecond(log)
	return func(path string, notAfter time.Time) {
		log.Warn("certificate expired", zap.String("certificate", path), zap.Time("not_after", notAfter))
	}
}
