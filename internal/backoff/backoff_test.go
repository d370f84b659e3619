package backoff

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitsDoubleUpToMax(t *testing.T) {
	b := Backoff{Initial: time.Second, Max: 10 * time.Second}
	for failures, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		if got := b.Wait(failures); got != want*time.Second {
			t.Errorf("after %d failures: %v, want %v", failures, got, want*time.Second)
		}
	}
	for _, c := range []struct {
		Backoff
		want time.Duration
	}{
		{Backoff{Initial: time.Minute, Max: time.Second}, time.Second},
		{Backoff{Initial: time.Second, Max: math.MaxInt64}, math.MaxInt64},
		{Backoff{Max: time.Second}, 0},
		{Backoff{Initial: 1, Max: 3, Jitter: -1}, 3},
	} {
		if got := c.Wait(1_000_000); c.want != 0 && got != c.want || got < 0 || got > max(c.Max, 0) {
			t.Errorf("%+v: %v, want %v", c.Backoff, got, c.want)
		}
	}
}

func TestJitterSpreadsWaits(t *testing.T) {
	for _, c := range []struct {
		jitter    float64
		low, high time.Duration
	}{{1, 0, 8}, {2, 0, 8}, {0.5, 4, 8}, {0, 8, 8}} {
		b := Backoff{Initial: 8 * time.Second, Max: 8 * time.Second, Jitter: c.jitter}
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := b.Wait(3)
			low, high = min(low, d), max(high, d)
		}
		// Some of a thousand draws are in the lowest tenth and some in the highest.
		tenth := (c.high - c.low) * time.Second / 10
		if low < c.low*time.Second || low > c.low*time.Second+tenth ||
			high > c.high*time.Second || high < c.high*time.Second-tenth {
			t.Errorf("jitter %v: waits from %v to %v", c.jitter, low, high)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Sleep(t.Context(), time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want no error after 1s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v, want a deadline error after 2s", err, time.Since(start))
		}
	})
}
