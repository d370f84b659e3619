package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/pkg/recorder"
)

// RegisterRecording registers the metrics of the recording.
func (m *Metrics) RegisterRecording(stats func() recorder.Stats) {
	all := []stat[recorder.Stats]{
		counterOf("weir_recording_lines_total", "Number of lines that Weir wrote to the recording in RECORD_PATH.",
			func(s recorder.Stats) int64 { return s.Lines }),
		counterOf("weir_recording_bytes_total", "Number of bytes in the lines that Weir wrote to the recording, before compression.",
			func(s recorder.Stats) int64 { return s.Bytes }),
		gaugeOf("weir_recording_failing", "1 while Weir cannot write the recording, for example because the disk is full, else 0. Weir still decides requests.",
			func(s recorder.Stats) int64 { return scrape.Bit(s.Failing) }),
	}
	for _, reason := range recorder.Reasons() {
		all = append(all, labeledCounterOf("weir_recording_dropped_lines_total",
			"Number of lines missing from the recording, by reason: queue_full (the disk is too slow), rate (more than RECORD_PER_SECOND), too_long, or unwritten (a write failed). Weir notes each gap in the recording.",
			prometheus.Labels{"reason": reason.String()}, func(s recorder.Stats) int64 { return s.Dropped[reason] }))
	}
	registerStats(m.Registry, stats, all...)
}
