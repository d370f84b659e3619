// Package gctune sets Go's garbage collector for a server whose requests are short-lived and whose counters are not.
package gctune

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryRatio is the part of a cgroup's memory that the collector tries to stay below.
const memoryRatio = 0.9

// LimitMemory sets Go's soft memory limit to nine tenths of the cgroup's, and returns it. It is math.MaxInt64 if there is
// none. GOMEMLIMIT and AUTOMEMLIMIT take precedence.
func LimitMemory() (bytes int64, err error) {
	return memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(memlimit.FromCgroup))
}

// The bounds of garbage. Its amount, and so the CPU of the collector, does not jump while the live bytes grow.
const (
	minGarbage = 128 << 20 // at Go's default and next to no live bytes, the collector takes a third of the CPU of a request
	maxGarbage = 512 << 20 // beside many live bytes, more garbage saves no CPU: it is memory that no CPU cache holds
)

// percent returns the GOGC value for a number of live bytes: how much garbage may accumulate, in percent of them. It is twice the live bytes
// within the bounds, and from half of them to 16 times as much.
func percent(live uint64) int {
	garbage := max(minGarbage, min(2*live, maxGarbage), live/2)
	return int(max(50, min(100*garbage/max(live, 1), 1600)))
}

// Run adjusts GOGC to the live bytes every second, until ctx ends. It then restores the value that it found. It does
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
		// SetGCPercent stops the world, so it is not called for small changes.
		if next := wanted(); max(next, current)-min(next, current) > current/10 {
			current = next
			debug.SetGCPercent(current)
		}
	}
}
