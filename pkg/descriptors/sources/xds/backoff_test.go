package xds

import (
	"math"
	"testing"
	"time"
)

func TestWaitsGrowToTheLongest(t *testing.T) {
	b := Backoff{Initial: time.Second, Max: 10 * time.Second}
	for failures, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		if got := b.wait(failures); got != want*time.Second {
			t.Errorf("after %d failures %v, want %v", failures, got, want*time.Second)
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
		if got := c.wait(1_000_000); c.want != 0 && got != c.want || got < 0 || got > max(c.Max, 0) {
			t.Errorf("%+v waits %v, want %v", c.Backoff, got, c.want)
		}
	}
}

func TestJitterTakesItsShare(t *testing.T) {
	for _, c := range []struct {
		jitter      float64
		least, most time.Duration
	}{{1, 0, 8}, {2, 0, 8}, {0.5, 4, 8}, {0, 8, 8}} {
		b := Backoff{Initial: 8 * time.Second, Max: 8 * time.Second, Jitter: c.jitter}
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := b.wait(3)
			least, most = min(least, d), max(most, d)
		}
		// Of a thousand draws some are in the lowest tenth, and some in the highest.
		tenth := (c.most - c.least) * time.Second / 10
		if least < c.least*time.Second || least > c.least*time.Second+tenth ||
			most > c.most*time.Second || most < c.most*time.Second-tenth {
			t.Errorf("jitter %v gives %v to %v", c.jitter, least, most)
		}
	}
}
