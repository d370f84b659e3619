package main

import (
	"github.com/weir-rls/weir/internal/decisionstream"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/topkeys"
)

// openTopKeys opens the counter of the busiest keys, which the admin API shows. It returns nil
// without ADMIN_ADDR, or if TOP_KEYS is 0.
func (e *environment) openTopKeys() *topkeys.Counter {
	s := e.settings
	if s.AdminAddr == "" || *s.TopKeys == 0 {
		return nil
	}
	counter := topkeys.New(*s.TopKeys, []byte(s.KeyHashSecret))
	e.tasks = append(e.tasks, counter.Run)
	return counter
}

// openDecisionStream opens the stream of decisions. It returns nil without DENIAL_LOG and
// ADMIN_ADDR.
func (e *environment) openDecisionStream() *decisionstream.Stream {
	s := e.settings
	if s.DenialLog == 0 && s.AdminAddr == "" {
		return nil
	}
	stream := decisionstream.New(decisionstream.Options{
		KeyHashSecret: []byte(s.KeyHashSecret), Replica: e.hostname,
		LogDenial: telemetry.DenialLog(e.log), DeniedKeysFraction: s.DenialLog, DenialsPerSecond: s.DenialLogPerSecond,
	})
	e.metrics.RegisterDecisionStream(stream.Stats)
	return stream
}
