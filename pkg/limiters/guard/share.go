package guard

import (
	"math"
	"sort"
)

// share is what each of so many replicas may admit by itself of a limit of n requests, so that a client that uses the
// limit whole, its requests falling on replicas at random, is limited falsely by any of them with a probability of p at
// most.
//
// What one replica gets of n requests is binomial, with a chance of 1/replicas each: it is the least m that is exceeded
// with a probability of p/replicas at most, for then any of them exceeds it with p at most. (n/replicas, the mean, is
// exceeded by some replica nearly always.) Together the replicas admit replicas*m.
func share(n, replicas int64, p float64) int64 {
	if replicas <= 1 || n <= 0 {
		return max(0, n)
	}
	q, most := 1/float64(replicas), p/float64(replicas)
	mean := int64(float64(n) * q)
	// Chernoff's bound, which is never below the quantile, is near it.
	m := mean + int64(sort.Search(int(n-mean), func(i int) bool {
		return chernoff(float64(n), float64(mean)+float64(i)+1, q) <= most
	}))
	// From there down, as long as what is exceeded stays rare enough.
	above := tail(n, m, q)
	for at := mass(n, m, q); m > mean && above+at <= most; {
		above += at
		at *= float64(m) / float64(n-m+1) * (1 - q) / q // the mass at m-1
		m--
	}
	return m
}

// chernoff bounds the probability that of n trials k or more succeed, k being more than n*q.
func chernoff(n, k, q float64) float64 {
	a := k / n
	if a <= q {
		return 1
	}
	divergence := a * math.Log(a/q)
	if a < 1 {
		divergence += (1 - a) * math.Log((1-a)/(1-q))
	}
	return math.Exp(-n * divergence)
}

// mass is the probability that of n trials k succeed.
func mass(n, k int64, q float64) float64 {
	if k < 0 || k > n {
		return 0
	}
	choices := lgamma(n) - lgamma(k) - lgamma(n-k)
	return math.Exp(choices + float64(k)*math.Log(q) + float64(n-k)*math.Log1p(-q))
}

// lgamma is the logarithm of n!.
func lgamma(n int64) float64 {
	l, _ := math.Lgamma(float64(n) + 1)
	return l
}

// tail is the probability that of n trials more than k succeed, k being n*q or more: the masses there shrink.
func tail(n, k int64, q float64) float64 {
	sum, at := 0.0, mass(n, k+1, q)
	for k++; k <= n && at > sum*1e-12; k++ {
		sum += at
		at *= float64(n-k) / float64(k+1) * q / (1 - q)
	}
	return sum
}
