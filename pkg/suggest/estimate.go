package suggest

import (
	"math"

	"github.com/weir-rls/weir/pkg/replay"
)

// An Estimate is a number of keys or requests. If the keys were sampled, the true number lies between Low and High with a
// confidence of 95 %. Otherwise all three are equal.
type Estimate struct {
	N    int64 `json:"n"`
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

func exactly(n int64) Estimate { return Estimate{n, n, n} }

// normal95 is the number of standard deviations of a confidence of 95 %.
const normal95 = 1.959963984540054

// estimateKeys estimates a number of keys, of which a sample with a share of all keys has k.
func estimateKeys(k int64, share float64) Estimate {
	low, high := replay.Estimate(k, share)
	return Estimate{N: int64(math.Round(float64(k) / share)), Low: low, High: high}
}

// estimateSum estimates a sum over keys, of which a sample with the part p has sum. squares is the sum of the squares. The estimator
// is that of Horvitz and Thompson, with the normal approximation.
func estimateSum(sum int64, squares, p float64) Estimate {
	if p >= 1 {
		return exactly(sum)
	}
	n, spread := float64(sum)/p, normal95*math.Sqrt((1-p)*squares)/p
	return Estimate{N: int64(math.Round(n)), Low: max(sum, int64(n-spread)), High: int64(math.Ceil(n + spread))}
}
