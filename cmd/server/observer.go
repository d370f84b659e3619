package main

import (
	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/telemetry"
)

// openObserver opens the observer of decisions, if the settings or the admin API need one.
func (p *process) openObserver() {
	s := p.settings
	o := observe.Options{
		TopKeys: *s.TopKeys, KeyHashSecret: []byte(s.KeyHashSecret), Replica: p.hostname,
		DenialShare: s.DenialLog, DenialsPerSecond: s.DenialLogPerSecond,
	}
	if o.DenialShare > 0 {
		o.LogDenial = telemetry.DenialLog(p.log)
	}
	if o.TopKeys == 0 && o.LogDenial == nil && s.AdminAddr == "" {
		return
	}
	p.observer = observe.New(o)
	p.metrics.RegisterObserver(p.observer.Stats)
	p.tasks = append(p.tasks, p.observer.Run)
}
