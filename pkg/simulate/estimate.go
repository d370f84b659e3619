package simulate

import "math"

// z is the quantile of the normal distribution for an interval of 95 %.
const z = 1.959964

// EstimateKeys estimates the number of all keys from the number in a sample. Each key is in the sample with a probability of share, which
// is above 0 and at most 1, independently of all others. The interval has every number N of keys for which the sample is no surprise: the
// score interval, with a correction for continuity.
func EstimateKeys(sampled int64, share float64) Estimate {
	k := float64(sampled)
	if share >= 1 {
		return Estimate{k, k, k}
	}
	// |k - N*share| - 1/2 = z * sqrt(N * share * (1-share)), solved for N*share.
	spread := z * z * (1 - share)
	solve := func(k, sign float64) float64 {
		if k < 0 {
			return 0
		}
		return (k + spread/2 + sign*math.Sqrt(spread*k+spread*spread/4)) / share
	}
	return Estimate{Value: k / share, Low: max(k, solve(k-0.5, -1)), High: solve(k+0.5, 1)}
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
