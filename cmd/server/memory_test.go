package main

import (
	"context"
	"math"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// percentNow is what the collector is set to.
func percentNow() int {
	set := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(set)
	return int(set[0].Value.Uint64())
}

func TestGarbageIsBoundedHoweverMuchIsLive(t *testing.T) {
	for live := uint64(1 << 20); live < 1<<36; live += live/7 + 1 {
		percent := gcPercent(live)
		if garbage := live * uint64(percent) / 100; percent < 50 || garbage > max(live/2, 1<<29) {
			t.Fatalf("%d bytes live: %d %%, %d bytes of garbage", live, percent, garbage)
		}
	}
	for live, want := range map[uint64]int{5 << 20: 1600, 12 << 20: 800, 100 << 20: 200, 1 << 30: 50} {
		if p := gcPercent(live); p != want {
			t.Errorf("%d bytes live: %d %%, want %d", live, p, want)
		}
	}
}

func TestTheCollectorIsTuned(t *testing.T) {
	t.Setenv("GOGC", "")
	before := percentNow()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { tuneGC(ctx); close(ended) }()
	for patience := time.Now().Add(10 * time.Second); percentNow() != 1600 && time.Now().Before(patience); {
		time.Sleep(time.Millisecond)
	}
	if got := percentNow(); got != 1600 {
		t.Errorf("%d %%, want 1600", got)
	}
	cancel()
	<-ended
	if got := percentNow(); got != before {
		t.Errorf("%d %% afterwards, want %d", got, before)
	}
}

func TestGOGCIsTheUsersToSet(t *testing.T) {
	t.Setenv("GOGC", "50")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tuneGC(ctx)
	if ctx.Err() != nil {
		t.Error("the collector was tuned all the same")
	}
}

func TestKeysTakeHalfOfAContainersMemoryAtMost(t *testing.T) {
	of := func(bytes uint64, err error) memlimit.Provider { return func() (uint64, error) { return bytes, err } }
	for name, c := range map[string]struct {
		set   int64
		limit memlimit.Provider
		want  int64
	}{
		"as set":           {1 << 20, of(1<<29, nil), 1 << 20},
		"a small one":      {0, of(1<<29, nil), 1 << 28},
		"a large one":      {0, of(64<<30, nil), 4 << 30},
		"none":             {0, of(0, memlimit.ErrNoLimit), 4 << 30},
		"one that is none": {0, of(math.MaxUint64, nil), 4 << 30},
	} {
		if got := keyBytes(c.set, c.limit); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}
