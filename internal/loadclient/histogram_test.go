package loadclient

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A quantile is that of the sorted durations, or a little more: at most a 64th. At least the
// fraction q of the durations does not exceed it.
func TestQuantilesExceedSamplesByAtMostA64th(t *testing.T) {
	for _, n := range []int{1, 10, 100000} {
		h := &Histogram{}
		var all []time.Duration
		for range n {
			d := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
			h.record(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0.001, 0.5, 0.99, 0.999, 1} {
			want, got := all[int(math.Ceil(q*float64(n)))-1], h.Quantile(q)
			if got < want || got > want+want/bucketsPerPower+1 {
				t.Errorf("quantile %v of %d durations is %v, want %v", q, n, got, want)
			}
		}
	}
}

// Every duration has a bucket, and none is above its bucket's end.
func TestEveryDurationHasABucket(t *testing.T) {
	last := -1
	for _, d := range []time.Duration{0, 1, 63, 64, 127, 128, 129, 255, 256, 1 << 20, 1<<20 + 1<<14, 1<<63 - 1} {
		b := bucket(uint64(d))
		if b < last || upper(b) < d || b > 0 && upper(b-1) >= d {
			t.Errorf("%d is in bucket %d, which ends at %d", d, b, upper(b))
		}
		last = b
	}
	(&Histogram{}).record(1<<63 - 1)
	(&Histogram{}).record(-1)
}
