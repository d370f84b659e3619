package main

import (
	"os"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
)

// hostname returns the host name, which names this replica in decisions, or "".
func hostname() string {
	name, _ := os.Hostname()
	return name
}

// newObserver returns the observer of decisions, or nil if the settings and subscribers need none. subscribers reports whether the
// admin API may subscribe to decisions.
func newObserver(s *settings.Serve, subscribers bool, log *zap.Logger, metrics *telemetry.Metrics) *observe.Observer {
	o := observe.Options{
		TopKeys: *s.TopKeys, Secret: []byte(s.KeyHashSecret), Replica: hostname(),
		DenialShare: s.DenialLog, DenialsPerSecond: s.DenialLogPerSecond,
	}
	if o.DenialShare > 0 {
		o.LogDenial = telemetry.DenialLog(log)
	}
	if o.TopKeys == 0 && o.LogDenial == nil && !subscribers {
		return nil
	}
	observer := observe.New(o)
	metrics.RegisterObserver(observer.Stats)
	return observer
}
