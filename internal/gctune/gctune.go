// Package gctune sets GOGC for a server with short-lived requests and long-lived counters.
package gctune

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryRatio is the fraction of the cgroup's memory used as the soft limit.
const memoryRatio = 0.9

// LimitMemory sets Go's soft memory limit to 90 % of the cgroup's limit and returns it, or
// math.MaxInt64 if there is none. GOMEMLIMIT and AUTOMEMLIMIT take precedence.
func LimitMemory() (bytes int64, err error) { return limitMemory(memlimit.FromCgroup) }

func limitMemory(provider memlimit.Provider) (bytes int64, err error) {
	for _, variable := range []string{"GOMEMLIMIT", "AUTOMEMLIMIT"} {
		if os.Getenv(variable) == "" {
			_ = os.Unsetenv(variable) // memlimit would set no limit because of an empty variable
		}
	}
	return memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(provider))
}

// Bounds of the garbage that accumulates between collections, in bytes.
const (
	minGarbageBytes = 128 << 20 // with few live bytes, Go's default would spend a third of each request's CPU time on collection
	maxGarbageBytes = 512 << 20 // more would save no CPU time, because it exceeds the CPU caches
)

// percent returns GOGC for a number of live bytes. It allows garbage of twice the live bytes,
// within the bounds, and GOGC from 50 to 1600.
func percent(live uint64) int {
	garbage := max(minGarbageBytes, min(2*live, maxGarbageBytes), live/2)
	return int(max(50, min(100*garbage/max(live, 1), 1600)))
}

// Run adjusts GOGC to the live bytes every second until ctx ends, and then restores it. It does
// nothing if the environment sets GOGC.
func Run(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	wanted := func() int {
		metrics.Read(live)
		return percent(live[0].Value.Uint64())
	}
	current := wanted()
	before := debug.SetGCPercent(current)
	defer func() { debug.SetGCPercent(before) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// SetGCPercent stops the world, so small changes are skipped.
		if next := wanted(); max(next, current)-min(next, current) > current/10 {
			current = next
			debug.SetGCPercent(current)
		}
	}
}
