package guard

import (
	"math"
	"sort"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ShareLimit returns the limit that a replica applies to charges of 1 hit under
// [limiters.OnStoreErrorLocal]. It admits the share of l. See [FallbackOptions] for
// falseLimitProbability.
func ShareLimit(l *limiters.Limit, replicas int64, falseLimitProbability float64) (*limiters.Limit, error) {
	return l.Scaled(func(whole int64) int64 { return share(whole, replicas, falseLimitProbability) })
}

// share returns the number of requests that each replica may admit by itself under a limit of n. A
// client at exactly its limit, whose requests are distributed at random, is then denied by some
// replica with a probability of at most p.
//
// The requests that reach one replica are binomial with probability 1/replicas. The share is the
// smallest m that is exceeded with a probability of at most p/replicas (union bound). The mean
// n/replicas would nearly always be exceeded at some replica. Together the replicas admit
// replicas*m.
func share(n, replicas int64, p float64) int64 {
	if replicas <= 1 || n <= 0 {
		return max(0, n)
	}
	q, maxTail := 1/float64(replicas), p/float64(replicas)
	mean := int64(float64(n) * q)
	if n > maxExactTrials {
		return min(n, mean+1+int64(min(deviation(n, q, maxTail), float64(n)))) // +Inf if maxTail is 0
	}
	return mean + int64(sort.Search(int(n-mean), func(i int) bool { return tail(n, mean+int64(i), q) <= maxTail }))
}

// maxExactTrials bounds the trials whose tail is summed. Logarithms of larger factorials lack
// precision.
const maxExactTrials = 1 << 32

// deviation returns an upper bound, from Bernstein's inequality, of the deviation from the mean n*q
// that is exceeded with probability p. It is below 1 % of the mean for n above maxExactTrials and
// up to a thousand replicas.
func deviation(n int64, q, p float64) float64 {
	l := -math.Log(p)
	return l/3 + math.Sqrt(l*l/9+2*float64(n)*q*(1-q)*l)
}

// tailTerms is the number of summed terms of a tail; a geometric series bounds the rest. The result
// is exact for limits up to about a thousand. For larger limits it exceeds the exact share by a
// small part of its standard deviation.
const tailTerms = 100

// tail returns an upper bound of the probability that more than k of n trials succeed. k must be at
// least n*q-1, so that the terms decrease.
func tail(n, k int64, q float64) float64 {
	sum, term := 0.0, mass(n, k+1, q)
	for i := k + 1; i <= n; i++ {
		ratio := float64(n-i) / float64(i+1) * q / (1 - q)
		if i > k+tailTerms {
			return sum + term/(1-ratio)
		}
		sum += term
		term *= ratio
	}
	return sum
}

// mass returns the probability that exactly k of n trials succeed.
func mass(n, k int64, q float64) float64 {
	if k < 0 || k > n {
		return 0
	}
	choices := logFactorial(n) - logFactorial(k) - logFactorial(n-k)
	return math.Exp(choices + float64(k)*math.Log(q) + float64(n-k)*math.Log1p(-q))
}

// logFactorial returns the logarithm of n!.
func logFactorial(n int64) float64 {
	l, _ := math.Lgamma(float64(n) + 1)
	return l
}
