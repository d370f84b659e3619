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

// percent returns the GOGC value for a number of live bytes: how much garbage may accumulate, in percent of them. At Go's
// default of 100 and next to no live bytes, the collector takes a third of the CPU of a request, and at 400 a sixth.
// Beside many live bytes, more garbage saves no CPU: it is memory that no CPU cache holds. Garbage is at most 512 MB, or
// half of the live bytes.
func percent(live uint64) int {
	switch {
	case live <= 8<<20:
		return 1600
	case live <= 16<<20:
		return 800
	case live <= 32<<20:
		return 400
	case live <= 256<<20:
		return 200
	case live <= 512<<20:
		return 100
	default:
		return 50
	}
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
		// SetGCPercent stops the world, so it is called for changes only.
		if next := wanted(); next != current {
			current = next
			debug.SetGCPercent(current)
		}
	}
}
