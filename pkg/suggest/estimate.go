package suggest

import "math"

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

// estimateKeys estimates a number of keys, of which a sample with the part p has k. The interval is Wilson's score interval, solved
// for the number: no number in it is more than 1.96 standard deviations of a binomial distribution away from k.
func estimateKeys(k int64, p float64) Estimate {
	if p >= 1 {
		return exactly(k)
	}
	x, z := float64(k), normal95*normal95*(1-p)
	root := math.Sqrt((2*x+z)*(2*x+z) - 4*x*x)
	return Estimate{
		N:    int64(math.Round(x / p)),
		Low:  max(k, int64(math.Ceil((2*x+z-root)/(2*p)))),
		High: int64(math.Floor((2*x + z + root) / (2 * p))),
	}
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
