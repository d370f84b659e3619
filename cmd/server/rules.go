package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// A ruleSource reads the rules and the overlay for its ruleLoader, at start and when they change.
type ruleSource struct {
	ruleLoader
	log         *zap.Logger
	file        *sources.File // nil if the rules come by xDS
	xds         *xds.Source
	received    receivedRules // by xDS
	overlayFile *sources.File // nil without an overlay
}

// newRuleSource loads the rules from files. If rules or overlay cannot be read, or have faults, it returns an error, or
// starts without rules if the settings allow it. Rules by xDS arrive later.
func newRuleSource(
	s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics, stats *ratelimitstats.Stats, ready func(),
) (*ruleSource, error) {
	r := &ruleSource{log: log}
	r.merge, r.calendarMonths = s.MergeDomainConfig, s.UseCalendarMonthRateLimit
	r.report = newRuleReport(s, log, metrics, stats, ready)
	if err := r.openOverlay(s.Overlay); err != nil && !s.ForceStartWithoutInitialConfig {
		return nil, err
	}
	if s.ForceStartWithoutInitialConfig && !s.HealthyWithAtLeastOneConfigLoaded {
		ready()
	}
	if s.ConfigType == settings.FromXDS {
		if err := r.overlay.err; err != nil {
			_ = r.load(nil, err)
		}
		var err error
		r.xds, err = newXDS(&s.XDS, log, telemetry.NewXDS(metrics.Registry))
		if err != nil {
			return nil, err
		}
		r.received = receivedRules{path: s.RulesFile, log: log}
		if files := r.received.read(); files != nil && r.load(files, nil) == nil {
			log.Info("saved xDS rules are in force until the control plane answers", zap.String("rules_file", s.RulesFile))
		}
		return r, nil
	}
	r.file = sources.NewFile(s.Path())
	files, err := r.file.Read()
	if err != nil {
		err = fmt.Errorf("no rules: %w (set --config or CONFIG_PATH to a file or folder)", err)
	}
	if s.ForceStartWithoutInitialConfig {
		_ = r.load(files, err)
		return r, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r, r.apply(files, err)
}

// openOverlay reads the overlay, unless path is empty. A missing overlay may be added later.
func (r *ruleSource) openOverlay(path string) error {
	if path == "" {
		return nil
	}
	r.overlayFile = sources.NewFile(path)
	files, err := r.overlayFile.Read()
	if errors.Is(err, sources.ErrNoFile) {
		r.log.Warn("no overlay yet", zap.String("overlay", path))
		err = nil
	}
	r.overlay = newOverlay(path, files, err)
	return r.overlay.err
}

// watch loads the rules and the overlay when they change, until ctx ends. It calls replaced when rules have come into force,
// before it reports them. It calls reloaded after each signal of reload.
func (r *ruleSource) watch(ctx context.Context, reload <-chan os.Signal, replaced, reloaded func()) error {
	r.replaced = func(files []rulesfile.File) {
		replaced()
		if r.xds != nil {
			r.received.save(files)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-reload:
				r.reload()
				reloaded()
			case <-ctx.Done():
				return nil
			}
		}
	})
	if r.overlayFile != nil {
		group.Go(func() error {
			return r.overlayFile.Watch(ctx, func(files []rulesfile.File, err error) { r.loadOverlay(newOverlay(r.overlayFile.Path, files, err)) })
		})
	}
	group.Go(func() error {
		if r.xds != nil {
			return r.xds.Watch(ctx, func(files []rulesfile.File) error { return r.load(files, nil) })
		}
		return r.file.Watch(ctx, func(files []rulesfile.File, err error) { _ = r.load(files, err) })
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return prefixError("rules", err)
	}
	return nil
}

// reload reads the files now. The result is logged even if nothing has changed.
func (r *ruleSource) reload() {
	if r.xds != nil && r.overlayFile == nil {
		r.log.Info("nothing to reload, the rules come from the control plane", zap.String("signal", "SIGHUP"))
		return
	}
	r.log.Info("reloading the rules", zap.String("signal", "SIGHUP"))
	r.logAgain()
	for _, f := range []*sources.File{r.file, r.overlayFile} {
		if f != nil {
			f.Reload()
		}
	}
}
