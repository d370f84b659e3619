package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/pkg/recorder"
)

// RegisterRecording registers the metrics of the recording.
func (m *Metrics) RegisterRecording(stats func() recorder.Stats) {
	all := []stat[recorder.Stats]{
		counterOf("weir_recording_lines_total", "Lines written to the recording in RECORD_PATH.",
			func(s recorder.Stats) int64 { return s.Lines }),
		counterOf("weir_recording_bytes_total", "Bytes of the lines written to the recording, before compression.",
			func(s recorder.Stats) int64 { return s.Bytes }),
		gaugeOf("weir_recording_failing", "1 while the recording cannot be written, for example because the disk is full. Weir still decides requests.",
			func(s recorder.Stats) int64 { return scrape.Bit(s.Failing) }),
	}
	for _, reason := range recorder.Reasons() {
		all = append(all, labeledCounterOf("weir_recording_dropped_lines_total",
			"Lines missing in the recording, by reason: queue_full (the disk is too slow), rate (RECORD_PER_SECOND), too_long, or unwritten (a write failed). The recording contains a note at each gap.",
			prometheus.Labels{"reason": reason.String()}, func(s recorder.Stats) int64 { return s.Dropped[reason] }))
	}
	registerStats(m.Registry, stats, all...)
}
