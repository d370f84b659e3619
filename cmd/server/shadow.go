package main

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/shadow"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/rls"
)

// A shadowFile compares requests with the candidate rules of SHADOW_CONFIG. Its errors never fail the server or its start. Nil has
// no candidate.
type shadowFile struct {
	*shadow.Shadow
	file    *sources.File
	options func() rulesfile.Options // of the rules in force
	log     *zap.Logger

	mu     sync.Mutex
	err    error // of the last load
	loads  int64
	faults int64 // failed loads
}

func openShadow(s *settings.Serve, options func() rulesfile.Options, log *zap.Logger, metrics *telemetry.Metrics) *shadowFile {
	if s.ShadowConfig == "" {
		return nil
	}
	log = log.With(zap.String("shadow_config", s.ShadowConfig))
	panicked := telemetry.PanicLog(telemetry.OncePerSecond(log)) // stats counts panics
	f := &shadowFile{
		Shadow: shadow.New(shadow.Options{
			Decide: decideOptions(s), MaxBytes: s.ShadowMaxBytes, Secret: []byte(s.KeyHashSecret),
			Panicked: func(value any) { panicked("shadow", value) },
		}),
		file: sources.NewFile(s.ShadowConfig), options: options, log: log,
	}
	metrics.RegisterShadow(f.stats)
	f.load(f.file.Read())
	return f
}

// load makes files the candidate. Files with faults leave the old candidate; a missing file removes it.
func (f *shadowFile) load(files []rulesfile.File, err error) {
	var rules *descriptors.Rules
	if err == nil {
		rules, _, err = rulesfile.ParseWith(f.options(), files...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.err != nil
	logged := failed && err != nil && err.Error() == f.err.Error()
	f.loads++
	f.err = err
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, sources.ErrNoFile)
	switch {
	case err == nil:
		if f.Use(rules) || failed {
			f.log.Info("shadow file loaded", append(countFields(rules), zap.String("candidate_version", rules.Version()))...)
		}
		return
	case missing:
		f.Use(nil)
	}
	f.faults++
	switch {
	case logged:
	case missing:
		f.log.Warn("no shadow file, nothing is compared", zap.Error(err))
	default:
		f.log.Error("shadow file not loaded", faultFields(err)...)
	}
}

// reload reads the file now, with the current options.
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
	parts.Go(func() { _ = f.file.Watch(ctx, f.load) }) // the error is that of ctx
	parts.Wait()
}

func (f *shadowFile) observe(o *rls.Observation) {
	if f != nil {
		f.Observe(o.Request, &o.Result)
	}
}

func (f *shadowFile) state() (loads, faults int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads, f.faults, f.err
}

func (f *shadowFile) stats() telemetry.ShadowStats {
	loads, faults, _ := f.state()
	return telemetry.ShadowStats{Report: f.Report(maxShadowSeries, 0), Loads: loads - faults, Faults: faults}
}

// maxShadowSeries bounds the limits in the metrics. Each limit has up to four series.
const maxShadowSeries = 1000

// report returns the comparison for the admin API.
func (f *shadowFile) report(limits, keys, replicas int) admin.Shadow {
	r := f.Report(limits, keys)
	s := admin.Shadow{
		File: f.file.Path, Running: r.Running, CandidateVersion: r.Version, RulesVersion: r.RulesVersion, Replica: hostname(),
		Scope:    admin.ScopeReplica,
		Replicas: replicas,
		Requests: admin.ShadowRequests{
			Compared: r.Counts.Compared(), BothAllowed: r.Counts.BothAllowed, BothDenied: r.Counts.BothDenied, NewlyDenied: r.Counts.NewlyDenied,
			NewlyAllowed: r.Counts.NewlyAllowed, Undecided: r.Counts.Undecided, Dropped: r.Dropped,
		},
		Limits: r.Limits, LimitsTotal: r.LimitsTotal, Evicted: r.Stats.Evicted + r.Stats.Rejected, Panics: r.Stats.Panics,
		NewlyDeniedKeys: r.NewlyDenied, NewlyAllowedKeys: r.NewlyAllowed,
	}
	if all := r.Dropped + r.Seen; all > 0 {
		s.DroppedShare = float64(r.Dropped) / float64(all)
	}
	if _, _, err := f.state(); err != nil {
		s.Error = err.Error()
	}
	if r.Running {
		s.LoadedAt, s.Since = &r.Loaded, &r.Since
	}
	return s
}
