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
	Evicted     int64 // keys that a full store evicted before they expired
	Rejected    int64 // operations that failed because the store was full
}

// RegisterMemory registers the metrics of a store in memory.
func (m *Metrics) RegisterMemory(stats func() MemoryStats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_memory_keys", "Number of keys in memory. If the store is Redis, these are the keys of on_store_error: local.",
			func(s MemoryStats) int64 { return s.Keys }),
		gaugeOf("weir_memory_bytes", "Approximate size of the keys in memory, in bytes.",
			func(s MemoryStats) int64 { return s.Bytes }),
		counterOf("weir_memory_dropped_keys_total", "Number of keys that Weir evicted before they expired, to make room for others.",
			func(s MemoryStats) int64 { return s.Evicted }),
		counterOf("weir_memory_refused_hits_total", "Number of operations that failed because memory was full, and every key in a sample was in use or over its limit.",
			func(s MemoryStats) int64 { return s.Rejected }),
	)
}

// RedisStats repeats the fields of redisstore.Stats, see [MemoryStats].
type RedisStats struct {
	Calls, Ops      int64
	QueueRejected   int64 // operations that failed because the queue was full
	Unsent          int64 // operations that timed out or were canceled before they were sent
	BreakerRejected int64 // operations that failed because the breaker was open
	Panics          int64 // calls that failed because of a bug
}

// RegisterRedis registers the metrics of a store on Redis, with the label redis=name.
func (m *Metrics) RegisterRedis(name string, stats func() RedisStats) {
	registerStats(prometheus.WrapRegistererWith(prometheus.Labels{"redis": name}, m.Registry), stats,
		counterOf("weir_redis_calls_total", "Number of batches of operations for Redis, including failed batches. A batch contains the operations that arrived during the previous batch. In a cluster, a batch is one script call for each of its hash slots.",
			func(s RedisStats) int64 { return s.Calls }),
		counterOf("weir_redis_hits_total", "Number of operations in the batches of weir_redis_calls_total. Each limit of a descriptor is one operation, "+
			"however many hits it charges.",
			func(s RedisStats) int64 { return s.Ops }),
		counterOf("weir_redis_refused_hits_total", "Number of operations that failed immediately because the queue for Redis was full.",
			func(s RedisStats) int64 { return s.QueueRejected }),
		counterOf("weir_redis_broken_hits_total", "Number of operations that failed because the breaker was open, or opened while they waited.",
			func(s RedisStats) int64 { return s.BreakerRejected }),
		counterOf("weir_redis_left_hits_total", "Number of operations that Weir did not send to Redis, because their timeout passed or their client left while they waited. They charged nothing.",
			func(s RedisStats) int64 { return s.Unsent }),
		counterOf("weir_redis_panics_total", "Number of calls to Redis that failed because of a bug in Weir.",
			func(s RedisStats) int64 { return s.Panics }),
	)
}

// RegisterDenyCache registers the metrics of the deny cache.
func (m *Metrics) RegisterDenyCache(stats func() guard.DenyCacheStats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_deny_cache_entries", "Number of denials in the deny cache.",
			func(s guard.DenyCacheStats) int64 { return s.Entries }),
		gaugeOf("weir_deny_cache_bytes", "Approximate size of the deny cache, in bytes.",
			func(s guard.DenyCacheStats) int64 { return s.Bytes }),
		counterOf("weir_deny_cache_asked_total", "Number of charges and peeks that reached the deny cache. They include those of rules with several limits, which the cache never answers.",
			func(s guard.DenyCacheStats) int64 { return s.Lookups }),
		counterOf("weir_deny_cache_answered_total", "Number of operations that the deny cache denied without a call to the store.",
			func(s guard.DenyCacheStats) int64 { return s.Answered }),
		counterOf("weir_deny_cache_refused_total", "Number of denials that the deny cache could not remember because it was full or the key too long.",
			func(s guard.DenyCacheStats) int64 { return s.NotCached }),
		counterOf("weir_deny_cache_sent_hits_total", "Number of hits that the deny cache denied, and then sent to the store to be counted.",
			func(s guard.DenyCacheStats) int64 { return s.SentHits }),
		counterOf("weir_deny_cache_lost_hits_total", "Number of hits that the deny cache denied, but that the store may not have counted, because the call failed or Weir could have missed a reset.",
			func(s guard.DenyCacheStats) int64 { return s.LostHits }),
	)
}

// RegisterShedding registers the metrics of load shedding.
func (m *Metrics) RegisterShedding(stats func() admission.Stats) {
	registerStats(m.Registry, stats,
		gaugeOf("weir_requests_in_flight", "Number of requests that Weir is deciding now.", func(s admission.Stats) int64 { return s.InFlight }),
		counterOf("weir_refused_requests_total",
			"Number of requests that Weir shed, because it was already deciding, or over /json receiving, MAX_IN_FLIGHT requests. weir_requests_total does not count them.",
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
			prometheus.NewDesc("weir_memory_snapshot_timestamp_seconds", "Time at which Weir last saved a snapshot, in Unix seconds. It is 0 before the first snapshot.", nil, nil),
			prometheus.GaugeValue, SnapshotStats.savedSeconds,
		},
		gaugeOf("weir_memory_snapshot_saved_keys", "Number of keys in the last snapshot.",
			func(s SnapshotStats) int64 { return s.Saved }),
		gaugeOf("weir_memory_snapshot_loaded_keys", "Number of keys that Weir loaded from a snapshot at startup.",
			func(s SnapshotStats) int64 { return s.Loaded }),
		counterOf("weir_memory_snapshot_failures_total", "Number of snapshots that Weir could not save.",
			func(s SnapshotStats) int64 { return s.Failures }),
	)
}
