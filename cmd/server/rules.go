package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/ruleload"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// saveRulesTimeout bounds the last save of rules from xDS, so that a hanging disk does not block
// shutdown.
const saveRulesTimeout = 2 * time.Second

// openLoader loads the rules from files. Rules from xDS arrive later.
func (p *process) openLoader() (*ruleload.Loader, error) {
	s := p.settings
	o := ruleload.Options{
		Path:                 s.Path(),
		Remedy:               "set --config or CONFIG_PATH to a file or folder",
		ReceivedPath:         s.RulesFile,
		Overlay:              s.Overlay,
		MergeDomains:         s.MergeDomainConfig,
		CalendarMonths:       s.UseCalendarMonthRateLimit,
		MayStartWithoutRules: s.ForceStartWithoutInitialConfig,
		Log:                  p.log,
		Loaded:               p.rulesLoaded(ruleWarnings(s, p.log)),
	}
	if s.ConfigType == settings.FromXDS {
		source, err := newXDS(&s.XDS, p.metrics.RegisterXDS(), p.log)
		if err != nil {
			return nil, err
		}
		o.XDS = source
	}
	if s.ForceStartWithoutInitialConfig && !s.HealthyWithAtLeastOneConfigLoaded {
		p.ready.setRulesReady()
	}
	loader, err := ruleload.Open(o)
	if s.Config == "" && errors.Is(err, ruleload.ErrNoRules) && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no rules: neither --config nor CONFIG_PATH is set, and %s does not exist\ntry weir --config rules.yaml", s.Path())
	}
	if err != nil {
		return nil, err
	}
	p.flushAtClose(loader.Close, saveRulesTimeout, "last xDS rules not saved")
	return loader, nil
}

// rulesLoaded returns a function that reports rules that have come into force, or the error of a
// failed load.
func (p *process) rulesLoaded(warn func(*descriptors.Rules)) func(*descriptors.Rules, error) {
	return func(rules *descriptors.Rules, err error) {
		p.metrics.Loaded(rules, time.Now(), err)
		p.stats.Loaded(rules, err)
		if err == nil {
			warn(rules)
			p.ready.setRulesReady()
			if p.store != nil { // the first rules are loaded before the store is open, when nothing is cached
				p.rulesReplaced(rules)
			}
		}
	}
}

// rulesReplaced discards everything that was cached under the old rules. The store must be open.
func (p *process) rulesReplaced(rules *descriptors.Rules) {
	p.store.denyCache.DropDenials()
	p.store.fallback.ForgetShares()
	if p.shadow != nil {
		p.shadow.candidate.Reload() // the overlay may have changed
	}
	p.setReadyWithoutStore(rules)
}

// reloadOn reads the files of the rules, the shadow file and the keys of receipts after each
// signal, until ctx ends.
func (p *process) reloadOn(ctx context.Context, signals <-chan os.Signal) {
	message := "reloading files"
	if p.settings.ConfigType == settings.FromXDS && p.settings.Overlay == "" {
		message = "reloading files, but not the rules, which come from the control plane"
	}
	for {
		select {
		case s := <-signals:
			p.log.Info(message, signalField(s))
			p.loader.Reload()
			if p.shadow != nil {
				p.shadow.candidate.Reload()
			}
			if p.receiptKeys != nil {
				p.receiptKeys.Reload()
			}
		case <-ctx.Done():
			return
		}
	}
}

// ruleWarnings returns a function that logs a warning for rules that do not suit the settings. It
// logs each warning once.
func ruleWarnings(s *settings.Serve, log *zap.Logger) func(*descriptors.Rules) {
	warnLocal := s.BackendType == settings.Redis && s.Replicas == nil && s.ReplicasDNS == ""
	warnLeases := s.StoreTimeout > limiters.EndedTTL
	return func(rules *descriptors.Rules) {
		if warnLocal && rules.UsesOnStoreError(limiters.OnStoreErrorLocal) {
			warnLocal = false
			log.Warn("local fallback without a replica count",
				zap.String("remedy", "set REPLICAS or REPLICAS_DNS, or each replica admits the whole limit while Redis is down"))
		}
		if warnLeases && rules.UsesLeases() {
			warnLeases = false
			log.Warn("store timeout too long for leases", zap.String("remedy", fmt.Sprintf(
				"set STORE_TIMEOUT to at most %v, or a request that arrives after its release may hold a slot until its lease expires",
				limiters.EndedTTL)))
		}
	}
}
