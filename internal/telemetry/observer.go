package telemetry

import (
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/observe"
)

// DenialLog returns a function that logs a denial for DENIAL_LOG. A line contains no value that a user sent, except where the rules name
// it, so it may be kept and shared.
func DenialLog(log *zap.Logger) func(*observe.Denial) {
	return func(d *observe.Denial) {
		fields := []zap.Field{
			zap.String("domain", d.Domain), zap.String("rule", d.Rule), zap.String("limit", d.Limit), zap.String("algorithm", d.Algorithm),
			zap.String("key_hash", d.KeyHash), zap.Bool("enforced", d.Enforced), zap.Bool("penalized", d.Penalized), zap.Int64("used", d.Used),
		}
		if d.RetryAfter >= 0 { // else the hits can never fit
			fields = append(fields, zap.Duration("retry_after_seconds", d.RetryAfter))
		}
		fields = append(fields, zap.String("replica", d.Replica), zap.String("rules_version", d.RulesVersion))
		if d.Suppressed > 0 {
			fields = append(fields, zap.Int64("suppressed", d.Suppressed))
		}
		log.Info("request denied", fields...)
	}
}

// ObserverStats holds the counts of the reports about decisions, besides the response.
type ObserverStats struct {
	Subscribers int64 // now
	Dropped     int64 // decisions that subscribers did not get
	Suppressed  int64 // denials that DENIAL_LOG_PER_SECOND left out of the log
}

// Observer registers the metrics of the stream of decisions and of the denial log.
func (m *Metrics) Observer(stats func() ObserverStats) {
	gauge, counter := readers(stats, nil)
	m.Registry.MustRegister(
		gauge("weir_decision_subscribers", "Clients that receive the stream of decisions.",
			func(s ObserverStats) int64 { return s.Subscribers }),
		counter("weir_decisions_dropped_total", "Decisions that a client of the stream did not get, because it reads too slowly or there are more than 1,000 a second.",
			func(s ObserverStats) int64 { return s.Dropped }),
		counter("weir_denial_log_suppressed_total", "Denials that DENIAL_LOG selects and DENIAL_LOG_PER_SECOND left out of the log.",
			func(s ObserverStats) int64 { return s.Suppressed }),
	)
}
