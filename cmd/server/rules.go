package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
	"github.com/weir-rls/weir/pkg/limiters"
)

// ruleSource loads the rules and the overlay, and loads them again when they change.
type ruleSource struct {
	from       string
	live       atomic.Pointer[descriptors.Rules]
	log        *zap.Logger
	metrics    *telemetry.Metrics
	stats      *ratelimitstats.Stats
	rulesReady func() // called each time rules have come into force
	replaced   func() // called when rules have replaced others; set by watch, nil before

	file    *sources.File // nil if the rules come by xDS
	xds     *xds.Source
	overlay *sources.File // nil without one

	mu         sync.Mutex // guards the fields below, and loads of rules
	options    rulesfile.Options
	overlayErr error            // of an overlay that was faulty at start: without it no rules can be loaded
	files      []rulesfile.File // offered last, with or without faults
	// current is the fingerprint of the files and the overlay of the rules in force. It is "" if there are none, or after a
	// failed load.
	current      string
	overlayFiles string           // fingerprint of the overlay in options
	warnings     rulesfile.Faults // of the rules in force
	warnLocal    bool             // the number of replicas is unknown, and loaded has not warned about it
	logged       string           // the error logged last, which is not logged twice
}

// newRuleSource loads the rules from files. If rules or overlay cannot be read, or have faults, it returns an error, or
// starts without rules if the settings allow it. Rules by xDS arrive later.
func newRuleSource(
	s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics, stats *ratelimitstats.Stats, rulesReady func(),
) (*ruleSource, error) {
	r := &ruleSource{from: s.Path(), log: log, metrics: metrics, stats: stats, rulesReady: rulesReady}
	r.options.MergeDomains = s.MergeDomainConfig
	_, replicas := os.LookupEnv("REPLICAS")
	r.warnLocal = s.BackendType == settings.Redis && s.ReplicasDNS == "" && s.Replicas == 1 && !replicas
	if s.Overlay != "" {
		r.overlay = &sources.File{Path: s.Overlay}
		files, err := r.overlay.Read()
		if errors.Is(err, sources.ErrNoFile) {
			log.Warn("no overlay yet", zap.String("overlay", s.Overlay))
			err = nil
		}
		if r.overlayErr = r.readOverlay(files, err); r.overlayErr != nil && !s.ForceStartWithoutInitialConfig {
			return nil, r.overlayErr
		}
	}
	if s.ForceStartWithoutInitialConfig && !s.HealthyWithAtLeastOneConfigLoaded {
		rulesReady()
	}
	if s.ConfigType == settings.FromXDS {
		if r.overlayErr != nil {
			r.failed(r.overlayErr)
		}
		r.from = s.ServerURL
		var err error
		r.xds, err = newXDS(&s.XDS, log, telemetry.NewXDS(metrics.Registry))
		return r, err
	}
	r.file = &sources.File{Path: s.Path()}
	files, err := r.file.Read()
	if err != nil {
		err = fmt.Errorf("no rules: %w (set --config or CONFIG_PATH to a file or folder)", err)
	}
	if err = r.apply(files, err); err != nil {
		if !s.ForceStartWithoutInitialConfig {
			return nil, err
		}
		r.failed(err)
	}
	return r, nil
}

// load loads rules that a source has reported, or logs why it could not read them. It returns an error if the rules have
// faults. The old rules then stay in force.
func (r *ruleSource) load(files []rulesfile.File, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = r.apply(files, err); err != nil {
		r.failed(err)
	}
	return err
}

// apply puts rules in force, unless they are in force already. After the start, r.mu is held.
func (r *ruleSource) apply(files []rulesfile.File, err error) error {
	if err != nil {
		return err
	}
	r.files = files
	if r.overlayErr != nil {
		return r.overlayErr
	}
	fingerprint := rulesfile.Fingerprint(files) + r.overlayFiles
	if fingerprint == r.current {
		domains, n := r.live.Load().Counts()
		r.log.Info("rules unchanged", zap.Int("domains", domains), zap.Int("rules", n))
		return nil
	}
	rules, warnings, err := rulesfile.ParseWith(r.options, files...)
	if err != nil {
		return fmt.Errorf("the rules of %s have faults:\n%w", r.from, err)
	}
	old := r.live.Swap(rules)
	r.current, r.warnings, r.logged = fingerprint, warnings, ""
	r.loaded(old)
	return nil
}

// readOverlay parses an overlay. If it has faults, nothing changes. After the start, r.mu is held.
func (r *ruleSource) readOverlay(files []rulesfile.File, err error) error {
	var overlay *rulesfile.Overlay
	if err == nil {
		overlay, err = rulesfile.ParseOverlay(files...)
	}
	if err != nil {
		return fmt.Errorf("the overlay %s: %w", r.overlay.Path, err)
	}
	r.options.Overlay, r.overlayFiles = overlay, rulesfile.Fingerprint(files)
	return nil
}

// loaded announces new rules. After the start, r.mu is held.
func (r *ruleSource) loaded(old *descriptors.Rules) {
	if r.replaced != nil {
		r.replaced()
	}
	rules := r.live.Load()
	for _, w := range r.warnings {
		r.log.Warn("suspicious rule", zap.Inline(loggedFault(w)))
	}
	r.metrics.Loaded(rules, time.Now(), nil)
	r.stats.Loaded(rules, nil)
	if r.warnLocal && decidesLocally(rules) {
		r.warnLocal = false
		r.log.Warn("on_store_error: local without REPLICAS or REPLICAS_DNS: while Redis is down, each replica admits the whole limit")
	}
	domains, n := rules.Counts()
	fields := []zap.Field{zap.Int("domains", domains), zap.Int("rules", n)}
	if old != nil {
		c := descriptors.Diff(old, rules)
		fields = append(fields, zap.Bool("rules_changed", c.Any()),
			zap.Int("domains_added", c.DomainsAdded), zap.Int("domains_removed", c.DomainsRemoved),
			zap.Int("rules_added", c.RulesAdded), zap.Int("rules_removed", c.RulesRemoved),
			zap.Int("rules_modified", c.RulesModified), zap.Bool("rules_reordered", c.Reordered))
	}
	r.log.Info("rules loaded", fields...)
	r.rulesReady()
}

// decidesLocally reports whether a rule has on_store_error: local.
func decidesLocally(rules *descriptors.Rules) bool {
	for d := range rules.Domains() {
		if slices.Contains(d.OnErrors(), limiters.OnErrorLocal) {
			return true
		}
	}
	return false
}

// failed counts and logs rules that could not be loaded. It logs each error once. After the start, r.mu is held.
func (r *ruleSource) failed(err error) {
	r.current = ""
	r.metrics.Loaded(nil, time.Now(), err)
	r.stats.Loaded(nil, err)
	if text := err.Error(); text != r.logged {
		r.logged = text
		r.log.Error("rules not loaded", append(faultFields(err), zap.String("source", r.from),
			zap.Bool("old_rules_stay", r.live.Load() != nil))...)
	}
}

// watch loads the rules and the overlay when they change, until ctx ends. It calls replaced when rules have replaced others,
// before rulesReady.
func (r *ruleSource) watch(ctx context.Context, reload <-chan os.Signal, replaced func()) error {
	r.replaced = replaced
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-reload:
				r.reload()
			case <-ctx.Done():
				return nil
			}
		}
	})
	if r.overlay != nil {
		group.Go(func() error { return r.overlay.Watch(ctx, r.overlayChanged) })
	}
	group.Go(func() error {
		if r.xds != nil {
			return r.xds.Watch(ctx, func(files []rulesfile.File) error { return r.load(files, nil) })
		}
		return r.file.Watch(ctx, func(files []rulesfile.File, err error) { _ = r.load(files, err) })
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return named("rules", err)
	}
	return nil
}

// reload reads the files now. The result is logged even if nothing has changed.
func (r *ruleSource) reload() {
	if r.xds != nil && r.overlay == nil {
		r.log.Info("SIGHUP: nothing to read, the rules come by xDS")
		return
	}
	r.log.Info("SIGHUP: reading the rules again")
	r.mu.Lock()
	r.logged = "" // an error that remains is logged again
	r.mu.Unlock()
	for _, f := range []*sources.File{r.file, r.overlay} {
		if f != nil {
			f.Reload()
		}
	}
}

// overlayChanged loads the last rules again with a new overlay.
func (r *ruleSource) overlayChanged(files []rulesfile.File, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	options, overlayFiles, overlayErr := r.options, r.overlayFiles, r.overlayErr
	if err = r.readOverlay(files, err); err == nil {
		r.overlayErr = nil
		if r.files == nil {
			return
		}
		err = r.apply(r.files, nil)
	}
	if err != nil {
		r.options, r.overlayFiles, r.overlayErr = options, overlayFiles, overlayErr
		r.failed(err)
	}
}
