package main

import (
	"context"
	"runtime/metrics"
	"testing"
	"time"
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
