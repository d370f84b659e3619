package main

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/ruleload"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/shadow"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/rls"
)

// A shadowFile compares requests with the candidate rules of SHADOW_CONFIG. Its errors never fail the server or its start. Nil has
// no candidate.
type shadowFile struct {
	*shadow.Shadow
	path string
	file *ruleload.CandidateFile
}

func openShadow(s *settings.Serve, rules *ruleload.Loader, log *zap.Logger, metrics *telemetry.Metrics) *shadowFile {
	if s.ShadowConfig == "" {
		return nil
	}
	log = log.With(zap.String("shadow_config", s.ShadowConfig))
	panicked := telemetry.PanicLog(telemetry.OncePerSecond(log)) // stats counts panics
	compare := shadow.New(shadow.Options{
		Decide:   decideOptions(s),
		MaxBytes: s.ShadowMaxBytes,
		Secret:   []byte(s.KeyHashSecret),
		Panicked: func(value any) { panicked("shadow", value) },
	})
	f := &shadowFile{Shadow: compare, path: s.ShadowConfig, file: rules.OpenCandidateFile(s.ShadowConfig, compare.Use, log)}
	metrics.RegisterShadow(f.stats)
	return f
}

// reload reads the file now, with the overlay now in force.
func (f *shadowFile) reload() {
	if f != nil {
		f.file.Reload()
	}
}

// run compares requests and reloads the file when it changes, until ctx ends.
func (f *shadowFile) run(ctx context.Context) {
	if f == nil {
		return
	}
	var parts sync.WaitGroup
	parts.Go(func() { f.Run(ctx) })
	parts.Go(func() { f.file.Watch(ctx) })
	parts.Wait()
}

func (f *shadowFile) observe(o *rls.Observation) {
	if f != nil {
		f.Observe(o.Request, &o.Result)
	}
}

func (f *shadowFile) stats() telemetry.ShadowStats {
	c := f.file.State()
	return telemetry.ShadowStats{Report: f.Report(maxShadowSeries, 0), Stats: f.Stats(), Loads: c.Loads, Faults: c.Faults}
}

// maxShadowSeries bounds the limits in the metrics. Each limit has up to four series.
const maxShadowSeries = 1000

// report returns the comparison for the admin API.
func (f *shadowFile) report(limits, keys, replicas int) admin.Shadow {
	r := f.Report(limits, keys)
	r.File, r.Replica, r.Scope, r.Replicas = f.path, hostname(), admin.ScopeReplica, replicas
	if err := f.file.State().Err; err != nil {
		r.Error = err.Error()
	}
	return r
}
