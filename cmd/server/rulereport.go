package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A ruleReport reports the results of loads to the log, the metrics and the readiness. Its methods must not be called at the
// same time.
type ruleReport struct {
	source  string // file, folder or xDS server
	log     *zap.Logger
	metrics *telemetry.Metrics
	stats   *ratelimitstats.Stats
	ready   func() // called each time rules have come into force

	warnLeases bool   // STORE_TIMEOUT is too long for leases, and no rules have caused a warning about it
	warnLocal  bool   // the number of replicas is unknown, and no rules have caused a warning about it
	lastError  string // the error logged last, which is not logged twice
}

func newRuleReport(
	s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics, stats *ratelimitstats.Stats, ready func(),
) *ruleReport {
	source := s.Path()
	if s.ConfigType == settings.FromXDS {
		source = s.ServerURL
	}
	_, replicas := os.LookupEnv("REPLICAS")
	return &ruleReport{
		source: source, log: log, metrics: metrics, stats: stats, ready: ready,
		warnLeases: s.StoreTimeout > limiters.EndedTTL,
		warnLocal:  s.BackendType == settings.Redis && s.ReplicasDNS == "" && s.Replicas == 1 && !replicas,
	}
}

// loaded reports that rules have come into force. old is nil if they are the first.
func (r *ruleReport) loaded(old, rules *descriptors.Rules, warnings rulesfile.Faults) {
	r.lastError = ""
	for _, w := range warnings[:min(len(warnings), maxLoggedFaults)] {
		r.log.Warn("suspicious rule", zap.Inline(loggedFault(w)))
	}
	if len(warnings) > maxLoggedFaults {
		r.log.Warn("more suspicious rules", zap.Int("warnings_total", len(warnings)), zap.String("remedy", "run weir check"))
	}
	r.metrics.Loaded(rules, time.Now(), nil)
	r.stats.Loaded(rules, nil)
	if r.warnLocal && decidesLocally(rules) {
		r.warnLocal = false
		r.log.Warn("on_store_error: local without REPLICAS or REPLICAS_DNS: while Redis is down, each replica admits the whole limit")
	}
	if r.warnLeases && haveLeases(rules) {
		r.warnLeases = false
		r.log.Warn("STORE_TIMEOUT is longer than an ended lease is remembered: a late request may hold its slot until the lease expires",
			zap.String("remedy", fmt.Sprintf("set STORE_TIMEOUT to at most %v", limiters.EndedTTL)))
	}
	fields := countFields(rules)
	if old != nil {
		c := descriptors.Diff(old, rules)
		fields = append(fields, zap.Bool("rules_changed", c.Any()),
			zap.Int("domains_added", c.DomainsAdded), zap.Int("domains_removed", c.DomainsRemoved),
			zap.Int("rules_added", c.RulesAdded), zap.Int("rules_removed", c.RulesRemoved),
			zap.Int("rules_modified", c.RulesModified), zap.Bool("rules_reordered", c.Reordered))
	}
	r.log.Info("rules loaded", fields...)
	r.ready()
}

// unchanged reports that the rules were read again and are in force already.
func (r *ruleReport) unchanged(rules *descriptors.Rules) {
	r.log.Info("rules unchanged", countFields(rules)...)
}

// failed reports rules that could not be loaded. It logs each error once, until rules are loaded or logAgain is called.
func (r *ruleReport) failed(err error, oldRulesStay bool) {
	r.metrics.Loaded(nil, time.Now(), err)
	r.stats.Loaded(nil, err)
	if text := err.Error(); text != r.lastError {
		r.lastError = text
		r.log.Error("rules not loaded", append(faultFields(err), zap.String("source", r.source), zap.Bool("old_rules_stay", oldRulesStay))...)
	}
}

// logAgain makes failed log an error that remains.
func (r *ruleReport) logAgain() { r.lastError = "" }

func countFields(rules *descriptors.Rules) []zap.Field {
	domains, n := rules.Counts()
	return []zap.Field{zap.Int("domains", domains), zap.Int("rules", n)}
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

// haveLeases reports whether a rule has leases or reservations.
func haveLeases(rules *descriptors.Rules) bool {
	for r := range rules.All() {
		if r.HasLeases() {
			return true
		}
	}
	return false
}
