package main

import (
	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/telemetry"
)

// openObserver opens the observer of decisions. It returns nil unless the settings or the admin API
// need one.
func (e *environment) openObserver() *observe.Observer {
	s := e.settings
	o := observe.Options{
		TopKeys: *s.TopKeys, KeyHashSecret: []byte(s.KeyHashSecret), Replica: e.hostname,
		DenialShare: s.DenialLog, DenialsPerSecond: s.DenialLogPerSecond,
	}
	if o.DenialShare > 0 {
		o.LogDenial = telemetry.DenialLog(e.log)
	}
	if o.TopKeys == 0 && o.LogDenial == nil && s.AdminAddr == "" {
		return nil
	}
	observer := observe.New(o)
	e.metrics.RegisterObserver(observer.Stats)
	e.tasks = append(e.tasks, observer.Run)
	return observer
}
