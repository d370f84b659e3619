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

// estimateKeys estimates a number of keys, of which a sample with a share of all keys has k.
func estimateKeys(k int64, share float64) Estimate {
	low, high := replay.EstimateKeys(k, share)
	return Estimate{N: int64(math.Round(float64(k) / share)), Low: low, High: high}
}

// estimateSum estimates a sum over keys, of which a sample with a share of all keys has sum. squares is the sum of the squares.
func estimateSum(sum int64, squares, share float64) Estimate {
	low, high := replay.EstimateSum(float64(sum), squares, share)
	return Estimate{N: int64(math.Round(float64(sum) / min(share, 1))), Low: int64(low), High: int64(math.Ceil(high))}
}
