package telemetry

import (
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/decisionstream"
)

// DenialLog returns a function that logs a denial for DENIAL_LOG. A line contains only those values
// of users that the rules name, so that it may be kept and shared.
func DenialLog(log *zap.Logger) func(*decisionstream.Denial) {
	return func(d *decisionstream.Denial) {
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

// RegisterDecisionStream registers the metrics of the stream of decisions and of the denial log.
func (m *Metrics) RegisterDecisionStream(stats func() decisionstream.Stats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_decision_subscribers", "Number of clients that receive the stream of decisions.",
			func(s decisionstream.Stats) int64 { return s.Subscribers }),
		counterOf("weir_decisions_dropped_total", "Number of decisions that a client of the stream missed, because it reads too slowly or there are more than 1,000 decisions a second.",
			func(s decisionstream.Stats) int64 { return s.Dropped }),
		counterOf("weir_denial_log_suppressed_total", "Number of denials that DENIAL_LOG selected, and that Weir did not log because of DENIAL_LOG_PER_SECOND.",
			func(s decisionstream.Stats) int64 { return s.Suppressed }),
	)
}
