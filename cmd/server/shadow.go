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

// openShadow opens the shadow file, if the settings name one.
func (p *process) openShadow() {
	s := p.settings
	if s.ShadowConfig == "" {
		return
	}
	log := p.log.With(zap.String("shadow_config", s.ShadowConfig))
	panicked := telemetry.PanicLog(telemetry.OncePerSecond(log)) // stats counts panics
	compare := shadow.New(shadow.Options{
		Decide:        decideOptions(s),
		MaxBytes:      s.ShadowMaxBytes,
		KeyHashSecret: []byte(s.KeyHashSecret),
		Panicked:      func(value any) { panicked("shadow", value) },
	})
	f := &shadowRules{Comparison: compare, path: s.ShadowConfig, replica: p.hostname}
	f.candidate = p.rules.OpenCandidateFile(s.ShadowConfig, compare.SetCandidate, log)
	p.shadow = f
	p.metrics.RegisterShadow(f.stats)
	p.tasks = append(p.tasks, f.Run, f.candidate.Watch)
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
