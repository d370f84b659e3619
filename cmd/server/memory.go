package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// memoryRatio is the part of a cgroup's memory that the collector tries to stay below.
const memoryRatio = 0.9

// limitMemory has the collector work harder before the cgroup's limit ends the process. GOMEMLIMIT goes before it.
func limitMemory(log *zap.Logger) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(memlimit.FromCgroup))
	switch {
	case err != nil:
		log.Debug("no memory limit taken from a cgroup", zap.Error(err))
	case limit < math.MaxInt64:
		log.Info("memory limit", zap.Int64("bytes", limit))
	}
}

// mostKeyBytes is what keys in memory may take where nothing says less.
const mostKeyBytes = 4 << 30

// keyBytes is what keys in memory may take: as set, or 0: half of what the process may, as limit tells, if it does. The other half
// is for what the collector has not collected, rules, connections and requests.
func keyBytes(set int64, limit memlimit.Provider) int64 {
	if set > 0 {
		return set
	}
	if all, err := limit(); err == nil && all/2 < mostKeyBytes {
		return max(1, int64(all/2))
	}
	return mostKeyBytes
}

// gcPercent is how much garbage may lie beside live bytes before it is collected. Requests are small and short-lived: at
// Go's own 100 % collecting takes a third of their CPU, and where next to nothing is live a sixth at 400 % too. Keys and
// rules in memory are long-lived, and more garbage beside them saves no CPU: what is written then is memory that no cache
// holds, and for the first seconds memory that the kernel has yet to give. It is half a gigabyte at most, or half of what
// is live; with less there are as many collections of a gigabyte of keys as one in a thousand requests feels.
func gcPercent(live uint64) int {
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

// tuneGC keeps the collector at gcPercent until ctx ends, unless GOGC says otherwise.
func tuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	wanted := func() int {
		metrics.Read(live)
		return gcPercent(live[0].Value.Uint64())
	}
	percent := wanted()
	before := debug.SetGCPercent(percent)
	defer func() { debug.SetGCPercent(before) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Setting it stops the world, so only what changes is set.
		if now := wanted(); now != percent {
			percent = now
			debug.SetGCPercent(percent)
		}
	}
}
