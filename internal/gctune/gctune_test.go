package gctune

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/weir-rls/weir/internal/must"
)

// currentPercent returns the GOGC value in effect.
func currentPercent() int {
	set := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(set)
	return int(set[0].Value.Uint64())
}

// Garbage is at most half of the live bytes or 512 MiB, whichever is more. GOGC is never below 50,
// because more collections would cost too much.
func TestGCPercentBoundsGarbage(t *testing.T) {
	last := uint64(0)
	for live := uint64(1 << 20); live < 1<<36; live += live/7 + 1 {
		p := percent(live)
		if garbage := live * uint64(p) / 100; garbage < last-last/50 {
			t.Fatalf("%d live bytes: %d bytes of garbage, and %d beside fewer", live, garbage, last)
		}
		last = live * uint64(p) / 100
		if garbage := live * uint64(p) / 100; p < 50 || garbage > max(live/2, 1<<29) {
			t.Fatalf("%d live bytes: %d %%, %d bytes of garbage", live, p, garbage)
		}
	}
	for live, want := range map[uint64]int{5 << 20: 1600, 16 << 20: 800, 32 << 20: 400, 100 << 20: 200, 512 << 20: 100, 1 << 30: 50} {
		if p := percent(live); p != want {
			t.Errorf("%d live bytes: %d %%, want %d", live, p, want)
		}
	}
}

// Charts render unset variables as empty ones.
func TestEmptyVariablesLeaveTheDefaultMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("AUTOMEMLIMIT", "")
	t.Setenv("GOMEMLIMIT", "")
	bytes, err := limitMemory(memlimit.Limit(1000))
	if err != nil || bytes != 900 || debug.SetMemoryLimit(-1) != 900 {
		t.Errorf("%d bytes, %v, want 900 of 1000", bytes, err)
	}
}

func TestRunSetsAndRestoresGCPercent(t *testing.T) {
	t.Setenv("GOGC", "")
	before := currentPercent()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { Run(ctx); close(ended) }()
	must.Until(t, "1600 %", func() bool { return currentPercent() == 1600 })
	cancel()
	<-ended
	if got := currentPercent(); got != before {
		t.Errorf("%d %% afterwards, want %d", got, before)
	}
}

func TestRunDoesNotChangeSetGOGC(t *testing.T) {
	t.Setenv("GOGC", "50")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	Run(ctx)
	if ctx.Err() != nil {
		t.Error("Run adjusts GOGC although the environment sets it")
	}
}
