package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

// MemoryStats repeats the fields of memstore.Stats, so that one converts to the other. This package
// imports decorators of stores, such as those in guard, but no store.
type MemoryStats struct {
	Keys, Bytes int64
	Evicted     int64 // keys evicted for room before they expired
	Rejected    int64 // operations that failed because there was no room
}

// RegisterMemory registers the metrics of a store in memory.
func (m *Metrics) RegisterMemory(stats func() MemoryStats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_memory_keys", "Keys in memory: of the store, or of the fallback on_store_error: local.",
			func(s MemoryStats) int64 { return s.Keys }),
		gaugeOf("weir_memory_bytes", "Approximate memory of the keys in memory, in bytes.",
			func(s MemoryStats) int64 { return s.Bytes }),
		counterOf("weir_memory_dropped_keys_total", "Keys evicted to make room before they expired.",
			func(s MemoryStats) int64 { return s.Evicted }),
		counterOf("weir_memory_refused_hits_total", "Operations that failed because memory was full, and every key of a sample was in use or over its limit.",
			func(s MemoryStats) int64 { return s.Rejected }),
	)
}

// RedisStats repeats the fields of redisstore.Stats, see [MemoryStats].
type RedisStats struct {
	Calls, Ops      int64
	QueueRejected   int64 // operations that failed because the queue was full
	TimedOut        int64 // operations that were not sent in time
	BreakerRejected int64 // operations that failed because the breaker was open
	Panics          int64 // calls that failed because of a bug
}

// RegisterRedis registers the metrics of a store on Redis, with the label redis=name.
func (m *Metrics) RegisterRedis(name string, stats func() RedisStats) {
	registerStats(prometheus.WrapRegistererWith(prometheus.Labels{"redis": name}, m.Registry), stats,
		counterOf("weir_redis_calls_total", "Batches of operations for Redis, including failed ones. A batch contains the operations that arrived during the previous one. On a cluster, a batch is one script call for each of its hash slots.",
			func(s RedisStats) int64 { return s.Calls }),
		counterOf("weir_redis_hits_total", "Operations in calls to Redis: one for each limit of a descriptor, however many hits it charges. "+
			"Divided by weir_redis_calls_total, it is the mean size of a batch.",
			func(s RedisStats) int64 { return s.Ops }),
		counterOf("weir_redis_refused_hits_total", "Operations that failed immediately because the queue for Redis was full.",
			func(s RedisStats) int64 { return s.QueueRejected }),
		counterOf("weir_redis_broken_hits_total", "Operations rejected because the breaker was open, or opened while they waited.",
			func(s RedisStats) int64 { return s.BreakerRejected }),
		counterOf("weir_redis_left_hits_total", "Operations whose timeout passed, or whose client left, before they were sent to Redis. They charged nothing.",
			func(s RedisStats) int64 { return s.TimedOut }),
		counterOf("weir_redis_panics_total", "Calls to Redis that failed because of a bug in Weir.",
			func(s RedisStats) int64 { return s.Panics }),
	)
}

// RegisterDenyCache registers the metrics of the deny cache.
func (m *Metrics) RegisterDenyCache(stats func() guard.DenyCacheStats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_deny_cache_entries", "Denials in the deny cache.",
			func(s guard.DenyCacheStats) int64 { return s.Entries }),
		gaugeOf("weir_deny_cache_bytes", "Approximate memory of the deny cache, in bytes.",
			func(s guard.DenyCacheStats) int64 { return s.Bytes }),
		counterOf("weir_deny_cache_asked_total", "Charges and peeks that reached the deny cache, including those of rules with several limits, which it never answers.",
			func(s guard.DenyCacheStats) int64 { return s.Lookups }),
		counterOf("weir_deny_cache_answered_total", "Operations that the deny cache denied without a call to the store.",
			func(s guard.DenyCacheStats) int64 { return s.Answered }),
		counterOf("weir_deny_cache_refused_total", "Denials that were not remembered because the deny cache was full.",
			func(s guard.DenyCacheStats) int64 { return s.NotCached }),
		counterOf("weir_deny_cache_sent_hits_total", "Hits that the deny cache denied and then sent to the store to be counted.",
			func(s guard.DenyCacheStats) int64 { return s.SentHits }),
		counterOf("weir_deny_cache_lost_hits_total", "Hits that the deny cache denied and that may not have been counted: their call failed, or a reset could have been missed.",
			func(s guard.DenyCacheStats) int64 { return s.LostHits }),
	)
}

// RegisterShedding registers the metrics of load shedding.
func (m *Metrics) RegisterShedding(stats func() admission.Stats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_requests_in_flight", "Requests that are being decided.", func(s admission.Stats) int64 { return s.InFlight }),
		counterOf("weir_refused_requests_total",
			"Requests shed because MAX_IN_FLIGHT requests were being decided or, by /json, received. weir_requests_total does not include them.",
			func(s admission.Stats) int64 { return s.Shed }),
	)
}

// SnapshotStats describes the snapshots of the store in memory.
type SnapshotStats struct {
	SavedAt       time.Time // the time of the last save; zero: none yet
	Saved, Loaded int64     // keys: in the last save, and at start
	Failures      int64     // saves that failed
}

// savedSeconds returns SavedAt in Unix seconds; 0 if it is zero.
func (s SnapshotStats) savedSeconds() float64 {
	if s.SavedAt.IsZero() {
		return 0
	}
	return float64(s.SavedAt.UnixMilli()) / 1000
}

// RegisterSnapshot registers the metrics of the memory store's snapshots.
func (m *Metrics) RegisterSnapshot(stats func() SnapshotStats) {
	registerStats(m.Registry, stats,
		stat[SnapshotStats]{
			prometheus.NewDesc("weir_memory_snapshot_timestamp_seconds", "Time at which the last snapshot was saved, in Unix seconds. 0: none yet.", nil, nil),
			prometheus.GaugeValue, SnapshotStats.savedSeconds,
		},
		gaugeOf("weir_memory_snapshot_saved_keys", "Keys in the last snapshot.",
			func(s SnapshotStats) int64 { return s.Saved }),
		gaugeOf("weir_memory_snapshot_loaded_keys", "Keys loaded from the snapshot at startup.",
			func(s SnapshotStats) int64 { return s.Loaded }),
		counterOf("weir_memory_snapshot_failures_total", "Snapshots that could not be saved.",
			func(s SnapshotStats) int64 { return s.Failures }),
	)
}
