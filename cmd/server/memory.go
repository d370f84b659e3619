package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/snapshot"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// maxDefaultBudget caps the default of MEMORY_MAX_BYTES.
const maxDefaultBudget = 4 << 30

// memoryBudget returns the bytes that keys in memory may take: configured or, if it is 0, half of
// the memory limit and at most maxDefaultBudget. The other half is for garbage, rules, connections
// and requests.
func memoryBudget(configured int64, limit memlimit.Provider) int64 {
	if configured > 0 {
		return configured
	}
	if all, err := limit(); err == nil && all/2 < maxDefaultBudget {
		return max(1, int64(all/2))
	}
	return maxDefaultBudget
}

func memoryOptions(s *settings.Serve) memstore.Options {
	return memstore.Options{MaxKeys: s.MemoryMaxKeys, MaxBytes: memoryBudget(s.MemoryMaxBytes, memlimit.FromCgroup)}
}

// A memoryBackend is the in-memory backend, with its snapshot file.
type memoryBackend struct {
	*memstore.Store
	path  string // the snapshot file; "" disables snapshots
	every time.Duration
	log   *zap.Logger

	saving sync.Mutex // is held while a snapshot is written

	mu    sync.Mutex // guards stats
	stats telemetry.SnapshotStats
}

// openMemory opens the in-memory backend with the counters of its snapshot, or with none if the
// snapshot cannot be loaded.
func (p *process) openMemory() *memoryBackend {
	s := p.settings
	m := &memoryBackend{path: s.MemorySnapshot, every: s.MemorySnapshotInterval, log: p.log.With(zap.String("snapshot", s.MemorySnapshot))}
	if m.path == "" {
		m.Store = memstore.New(memoryOptions(s))
		return m
	}
	m.Store = m.load(memoryOptions(s))
	if m.path != "" {
		p.metrics.RegisterSnapshot(m.snapshotStats)
	}
	return m
}

// load returns a store with the counters of the snapshot, or an empty one. It clears path if no
// snapshot can be saved.
func (m *memoryBackend) load(o memstore.Options) *memstore.Store {
	since := time.Now()
	store, loaded, err := snapshot.Load(m.path, o)
	rejected, _ := errors.AsType[*snapshot.RejectedError](err)
	switch {
	case err == nil:
		m.stats.Loaded = loaded.Keys
		m.log.Info("counters loaded", zap.Int64("keys", loaded.Keys), zap.Time("saved_at", loaded.SavedAt),
			zap.Int64("expired", loaded.Expired), zap.Int64("left_out", loaded.NotLoaded), zap.Duration("took_seconds", time.Since(since)))
		return store
	case rejected == nil:
		m.log.Info("no snapshot yet, counters start at zero")
	case rejected.RenameErr != nil:
		m.log.Error("snapshot not loaded, counters start at zero and will not be saved", zap.Error(err),
			zap.NamedError("rename_error", rejected.RenameErr),
			zap.String("remedy", "set MEMORY_SNAPSHOT to another path, or remove the file or folder at this path, and restart"))
		m.path = ""
	default:
		m.log.Error("snapshot not loaded, counters start at zero", zap.Error(err), zap.String("kept_as", rejected.KeptAs),
			zap.String("remedy", "if another version of Weir wrote the snapshot, stop Weir, rename the file back and start that version; otherwise remove the file"))
	}
	return memstore.New(o)
}

// run saves a snapshot periodically until ctx ends. It calls answered immediately.
func (m *memoryBackend) run(ctx context.Context, answered func()) {
	answered()
	if m.path == "" {
		return
	}
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.save()
		}
	}
}

// check returns nil: memory always answers.
func (m *memoryBackend) check(context.Context) error { return nil }

// save saves a snapshot, if there is a path for it.
func (m *memoryBackend) save() {
	if m.path == "" {
		return
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	since := time.Now()
	keys, err := snapshot.Save(m.path, m.Store)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.stats.Failures++
		m.log.Error("counters not saved", zap.Error(err),
			zap.String("remedy", "check that the folder of MEMORY_SNAPSHOT exists, is writable and is not full"))
		return
	}
	m.stats.SavedAt, m.stats.Saved = time.Now(), keys
	m.log.Debug("counters saved", zap.Int64("keys", keys), zap.Duration("took_seconds", time.Since(since)))
}

func (m *memoryBackend) snapshotStats() telemetry.SnapshotStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}
