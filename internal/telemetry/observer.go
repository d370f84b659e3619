package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/pkg/recorder"
)

// DenialLog returns a function that logs a denial for DENIAL_LOG. A line contains only those values
// of users that the rules name, so that it may be kept and shared.
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

// RegisterObserver registers the metrics of the stream of decisions and of the denial log.
func (m *Metrics) RegisterObserver(stats func() observe.Stats) {
	gauge, counter := registrars(m.Registry, stats, nil)
	gauge("weir_decision_subscribers", "Clients that receive the stream of decisions.",
		func(s observe.Stats) int64 { return s.Subscribers })
	counter("weir_decisions_dropped_total", "Decisions that a client of the stream did not get, because it reads too slowly or there are more than 1,000 a second.",
		func(s observe.Stats) int64 { return s.Dropped })
	counter("weir_denial_log_suppressed_total", "Denials that DENIAL_LOG selects and DENIAL_LOG_PER_SECOND left out of the log.",
		func(s observe.Stats) int64 { return s.Suppressed })
}

// RegisterRecording registers the metrics of the recording.
func (m *Metrics) RegisterRecording(stats func() recorder.Stats) {
	gauge, counter := registrars(m.Registry, stats, nil)
	counter("weir_recording_lines_total", "Lines written to the recording in RECORD_PATH.",
		func(s recorder.Stats) int64 { return s.Lines })
	counter("weir_recording_bytes_total", "Bytes of the lines written to the recording, before compression.",
		func(s recorder.Stats) int64 { return s.Bytes })
	gauge("weir_recording_failing", "1 while the recording cannot be written, for example because the disk is full. Weir still decides requests.",
		func(s recorder.Stats) int64 { return bit(s.Failing) })
	for _, reason := range recorder.Reasons() {
		_, counter := registrars(m.Registry, stats, prometheus.Labels{"reason": reason.String()})
		counter("weir_recording_dropped_lines_total",
			"Lines missing in the recording, by reason: queue_full (the disk is too slow), rate (RECORD_PER_SECOND), too_long, or unwritten (a write failed). The recording contains a note at each gap.",
			func(s recorder.Stats) int64 { return s.Dropped[reason] })
	}
}
