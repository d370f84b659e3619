package main

import (
	"context"

	"github.com/KimMachineGun/automemlimit/memlimit"

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

// openMemory opens the store in memory, with its snapshot if the settings name one.
func (e *environment) openMemory(st *storeStack) {
	s := e.settings
	if s.MemorySnapshot == "" {
		st.local = memstore.New(memoryOptions(s))
		return
	}
	var file *snapshot.File
	st.local, file = snapshot.Open(s.MemorySnapshot, memoryOptions(s), e.log)
	st.save = file.Save
	e.metrics.RegisterSnapshot(func() telemetry.SnapshotStats { return telemetry.SnapshotStats(file.Stats()) })
	e.tasks = append(e.tasks, func(ctx context.Context) { file.Run(ctx, s.MemorySnapshotInterval) })
}
