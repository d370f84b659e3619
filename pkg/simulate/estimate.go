package simulate

import (
	"math"

	"github.com/weir-rls/weir/pkg/replay"
)

// z is the quantile of the normal distribution for an interval of 95 %.
const z = 1.959964

// estimateKeys estimates the number of all keys from the number in a sample by hash of key.
func estimateKeys(sampled int64, share float64) *Estimate {
	low, high := replay.Estimate(sampled, share)
	return &Estimate{Value: float64(sampled) / share, Low: float64(low), High: float64(high)}
}

// estimateSum estimates a sum over all keys from the sum over a sample, and the sum of the squares of the addends. The interval is that
// of the normal distribution, so it needs many keys of which none dominates.
func estimateSum(sum, squares, share float64) Estimate {
	if share >= 1 {
		return Estimate{sum, sum, sum}
	}
	spread := z * math.Sqrt(squares*(1-share)) / share
	return Estimate{Value: sum / share, Low: max(sum, sum/share-spread), High: sum/share + spread}
}
