package simulate

import "github.com/weir-rls/weir/pkg/replay"

// estimateKeys estimates the number of all keys from the number in a sample by hash of key.
func estimateKeys(sampled int64, share float64) *Estimate {
	low, high := replay.EstimateKeys(sampled, share)
	return &Estimate{Value: float64(sampled) / share, Low: float64(low), High: float64(high)}
}

// estimateSum estimates a sum over all keys from the sum over a sample, and the sum of the squares of the addends.
func estimateSum(sum, squares, share float64) Estimate {
	low, high := replay.EstimateSum(sum, squares, share)
	return Estimate{Value: sum / min(share, 1), Low: low, High: high}
}
