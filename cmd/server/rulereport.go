package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A ruleReport reports loads of rules to the log, the metrics and the readiness. It is not safe for concurrent use.
type ruleReport struct {
	source  string // file, folder or control plane
	log     *zap.Logger
	metrics *telemetry.Metrics
	stats   *ratelimitstats.Stats
	ready   func() // called after each load that succeeds

	warnLeases bool   // STORE_TIMEOUT is too long for leases, and the log has no warning yet
	warnLocal  bool   // the number of replicas is unknown, and the log has no warning yet
	lastError  string // the last logged error
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

// loaded reports rules that have come into force. old is nil for the first rules.
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
	if r.warnLocal && usesOnError(rules, limiters.OnErrorLocal) {
		r.warnLocal = false
		r.log.Warn("local fallback without a replica count",
			zap.String("remedy", "set REPLICAS or REPLICAS_DNS, or each replica admits the whole limit while Redis is down"))
	}
	if r.warnLeases && hasLeases(rules) {
		r.warnLeases = false
		r.log.Warn("store timeout too long for leases", zap.String("remedy", fmt.Sprintf(
			"set STORE_TIMEOUT to at most %v, or a request that arrives after its release may hold a slot until its lease expires",
			limiters.EndedTTL)))
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

// failed reports a failed load. It logs an error once, until a load succeeds or logAgain is called.
func (r *ruleReport) failed(err error, oldRulesStay bool) {
	r.metrics.Loaded(nil, time.Now(), err)
	r.stats.Loaded(nil, err)
	text := err.Error()
	if text == r.lastError {
		return
	}
	r.lastError = text
	source := r.source
	if overlay, ok := errors.AsType[*overlayError](err); ok {
		source = overlay.path
	}
	r.log.Error("rules not loaded", append(faultFields(err), zap.String("source", source), zap.Bool("old_rules_stay", oldRulesStay))...)
}

func (r *ruleReport) logAgain() { r.lastError = "" }

func countFields(rules *descriptors.Rules) []zap.Field {
	domains, n := rules.Counts()
	return []zap.Field{zap.Int("domains", domains), zap.Int("rules", n)}
}

// hasLeases reports whether a rule has leases or reservations.
func hasLeases(rules *descriptors.Rules) bool {
	for r := range rules.All() {
		if r.UsesLeases() {
			return true
		}
	}
	return false
}
