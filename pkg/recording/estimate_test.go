package recording

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The interval contains the true number of keys in at least 90 of the samples of seeds 1 to 100. In
// 1,000 samples it does so in nearly 95 %, for few keys and many. It is not much wider than needed.
func TestEstimateContainsTheNumber(t *testing.T) {
	for _, tt := range []struct {
		keys  int64
		share float64
	}{{1, .1}, {10, .1}, {100, .1}, {1000, .1}, {20000, .1}, {50, .5}, {1000, .01}} {
		const runs = 1000
		contained, ofFirst, width := 0, 0, 0.0
		for seed := uint64(1); seed <= runs; seed++ {
			random := rand.New(rand.NewPCG(seed, 0))
			count := int64(0)
			for range tt.keys {
				if random.Float64() < tt.share {
					count++
				}
			}
			low, high := EstimateKeys(count, tt.share)
			if low <= tt.keys && tt.keys <= high {
				contained++
				if seed <= 100 {
					ofFirst++
				}
			}
			width += float64(high-low) / runs
		}
		deviation := math.Sqrt(float64(tt.keys) * (1 - tt.share) / tt.share)
		if contained < 940 || ofFirst < 90 || tt.keys >= 1000 && width > 4.5*deviation {
			t.Errorf("%d keys at %v: %d of %d intervals contain it, %d of the first 100, of a mean width of %.0f with a deviation of %.0f",
				tt.keys, tt.share, contained, runs, ofFirst, width, deviation)
		}
	}
}

func TestEstimateOfExtremeSharesIsBounded(t *testing.T) {
	for _, tt := range []struct {
		count     int64
		share     float64
		low, high int64
	}{{7, 1, 7, 7}, {0, 1, 0, 0}, {0, .1, 0, 50}, {7, 0, 7, math.MaxInt64}, {7, math.NaN(), 7, math.MaxInt64},
		{7, 1e-19, math.MaxInt64, math.MaxInt64}, {7, math.SmallestNonzeroFloat64, math.MaxInt64, math.MaxInt64}} {
		low, high := EstimateKeys(tt.count, tt.share)
		if low != tt.low || high > tt.high || tt.share != .1 && high != tt.high {
			t.Errorf("%d at %v: %d to %d, want %d to %d", tt.count, tt.share, low, high, tt.low, tt.high)
		}
	}
}
