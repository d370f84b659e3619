package recording

import "math"

// normal95 is the quantile of the normal distribution for an interval of 95 %.
const normal95 = 1.959963984540054

// EstimateKeys returns the 95 % confidence interval of the number of keys, from the number count in
// a sample. The sample has the fraction share of all keys, chosen by hash.
//
// Each key is in the sample with the probability share, independently of the others. So count is
// binomial, and the interval has each N whose score (count ± ½ − N·share)² / (N·share·(1−share)) is
// at most 1.96²: the score interval with a correction for continuity. A share of 1 or more returns
// count, and a share of 0 or less returns no upper bound.
func EstimateKeys(count int64, share float64) (low, high int64) {
	switch {
	case share >= 1:
		return count, count
	case !(share > 0):
		return count, math.MaxInt64
	}
	edge := func(c, sign float64) float64 {
		q := normal95 * normal95 * (1 - share)
		return (2*c + q + sign*math.Sqrt(q*(4*c+q))) / (2 * share)
	}
	n := float64(count)
	low = count
	if n > .5 {
		low = max(count, saturated(math.Ceil(edge(n-.5, -1))))
	}
	return low, max(count, saturated(math.Floor(edge(n+.5, 1))))
}

// saturated returns x as an integer, or the largest int64 if x is above it. The result of a mere
// conversion depends on the processor.
func saturated(x float64) int64 {
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(x)
}

// EstimateSum returns the 95 % confidence interval of a sum over all keys, from the sum over such a
// sample and the sum of the squares of its addends. It uses the Horvitz-Thompson estimator with the
// normal approximation, so it needs many keys, none of which dominates.
func EstimateSum(sum, squares, share float64) (low, high float64) {
	if share >= 1 {
		return sum, sum
	}
	spread := normal95 * math.Sqrt(squares*(1-share)) / share
	return max(sum, sum/share-spread), sum/share + spread
}
