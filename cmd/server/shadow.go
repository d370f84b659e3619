package main

import (
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/ruleload"
	"github.com/weir-rls/weir/internal/shadow"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/admin/api"
)

// A shadowRules compares requests with the candidate rules of SHADOW_CONFIG. Its errors never fail
// the server or its start.
type shadowRules struct {
	*shadow.Comparison
	path      string
	replica   string // the host name
	candidate *ruleload.CandidateFile
}

// openShadow opens the shadow file. It returns nil if the settings name none.
func (e *environment) openShadow(loader *ruleload.Loader) *shadowRules {
	s := e.settings
	if s.ShadowConfig == "" {
		return nil
	}
	log := e.log.With(zap.String("shadow_config", s.ShadowConfig))
	logPanic := telemetry.PanicLog(telemetry.OncePerSecond(log)) // the Comparison counts panics
	comparison := shadow.New(shadow.Options{
		Decide:        decideOptions(s),
		MaxBytes:      s.ShadowMaxBytes,
		KeyHashSecret: []byte(s.KeyHashSecret),
		Panicked:      func(value any) { logPanic("shadow", value) },
	})
	candidate := loader.OpenCandidateFile(s.ShadowConfig, comparison.SetCandidate, log)
	opened := &shadowRules{Comparison: comparison, path: s.ShadowConfig, replica: e.hostname, candidate: candidate}
	e.metrics.RegisterShadow(opened.stats)
	e.tasks = append(e.tasks, comparison.Run, candidate.Watch)
	return opened
}

func (s *shadowRules) stats() telemetry.ShadowStats {
	c := s.candidate.State()
	return telemetry.ShadowStats{Report: s.Report(maxShadowSeries, 0), Stats: s.Stats(), Loads: c.Loads, Faults: c.Faults}
}

// maxShadowSeries bounds the limits in the metrics. Each limit has up to four series.
const maxShadowSeries = 1000

// report returns the comparison for the admin API.
func (s *shadowRules) report(limits, keys, replicas int) api.ShadowReport {
	r := s.Report(limits, keys)
	r.File, r.Replica, r.Scope, r.Replicas = s.path, s.replica, api.ScopeReplica, replicas
	if err := s.candidate.State().Err; err != nil {
		r.Error = err.Error()
	}
	return r
}
