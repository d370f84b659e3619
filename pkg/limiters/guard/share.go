package guard

import (
	"math"
	"math/bits"
	"sort"
	"sync"

	"github.com/weir-rls/weir/pkg/limiters"
)

// shares caches the shares of limits for one number of replicas.
type shares struct {
	mu       sync.RWMutex
	replicas int64
	limits   map[*limiters.Limit]*limiters.Limit // shares of limits for hits of 1
	counts   map[int64]int64                     // shares of numbers of requests
}

// maxShares bounds each cache. Beyond it, a new share evicts another.
const maxShares = 10_000

func (s *shares) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas, s.limits, s.counts = 0, nil, nil
}

// limitFor returns the share of l for hits of n > 0.
func (s *shares) limitFor(l *limiters.Limit, n, replicas int64, p float64) (*limiters.Limit, error) {
	if n > 1 {
		// Shares are cached only for hits of 1, because each size would need its own entry.
		return l.Share(func(maximum int64) int64 { return s.forHits(maximum, n, replicas, p) })
	}
	return cachedShare(s, &s.limits, l, replicas, func() (*limiters.Limit, error) {
		return l.Share(func(maximum int64) int64 { return s.forRequests(maximum, replicas, p) })
	})
}

// forHits returns the share of whole for hits of n: at least n times the share of whole/n requests.
func (s *shares) forHits(whole, n, replicas int64, p float64) int64 {
	if n > whole {
		// Such a hit never fits, or it fits a funnel whose capacity exceeds its rate.
		return whole
	}
	byHits := min(whole, n*s.forRequests(roundUp(whole/n), replicas, p))
	return max(byHits, s.forRequests(whole, replicas, p))
}

func (s *shares) forRequests(n, replicas int64, p float64) int64 {
	m, _ := cachedShare(s, &s.counts, n, replicas, func() (int64, error) { return share(n, replicas, p), nil })
	return m
}

// cachedShare returns the cached value of key, or computes it.
func cachedShare[K comparable, V any](s *shares, cache *map[K]V, key K, replicas int64, compute func() (V, error)) (V, error) {
	s.mu.RLock()
	v, found := (*cache)[key]
	found = found && s.replicas == replicas
	s.mu.RUnlock()
	if found {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return v, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas != replicas {
		s.replicas, s.limits, s.counts = replicas, map[*limiters.Limit]*limiters.Limit{}, map[int64]int64{}
	}
	if len(*cache) >= maxShares {
		for other := range *cache {
			delete(*cache, other)
			break
		}
	}
	(*cache)[key] = v
	return v, nil
}

// roundUp rounds n up to five significant bits, so that few different shares are computed. It adds less than a sixteenth, and
// nothing below 32.
func roundUp(n int64) int64 {
	shift := max(0, bits.Len64(uint64(n))-5)
	return (n + 1<<shift - 1) >> shift << shift
}

// Share returns a replica's share of l under [limiters.OnErrorLocal], for hits of 1. p bounds the probability that a client at
// exactly its limit is denied by some replica.
func Share(l *limiters.Limit, replicas int64, p float64) (*limiters.Limit, error) {
	return l.Share(func(whole int64) int64 { return share(whole, replicas, p) })
}

// share returns the number of requests that each replica may admit by itself, for a limit of n. A client at exactly its limit,
// whose requests are distributed at random, is then denied by some replica with a probability of at most p.
//
// The requests that reach one replica are binomial with probability 1/replicas. The share is the smallest m that is exceeded with a
// probability of at most p/replicas (union bound). The mean n/replicas would nearly always be exceeded at some replica. Together
// the replicas admit replicas*m.
func share(n, replicas int64, p float64) int64 {
	if replicas <= 1 || n <= 0 {
		return max(0, n)
	}
	q, maxTail := 1/float64(replicas), p/float64(replicas)
	mean := int64(float64(n) * q)
	if n > maxExact {
		return min(n, mean+1+int64(deviation(n, q, maxTail)))
	}
	return mean + int64(sort.Search(int(n-mean), func(i int) bool { return tail(n, mean+int64(i), q) <= maxTail }))
}

// maxExact bounds the trials whose tail is summed. Logarithms of larger factorials lack precision.
const maxExact = 1 << 32

// deviation returns an upper bound, by Bernstein's inequality, of the deviation from the mean n*q that is exceeded with probability
// p. It is below 1 % of the mean for n above maxExact and up to a thousand replicas.
func deviation(n int64, q, p float64) float64 {
	l := -math.Log(p)
	return l/3 + math.Sqrt(l*l/9+2*float64(n)*q*(1-q)*l)
}

// tailTerms is the number of summed terms of a tail; a geometric series bounds the rest. The result is exact for limits up to about
// a thousand. For larger limits it exceeds the exact share by a small part of its standard deviation.
const tailTerms = 100

// tail returns an upper bound of the probability that more than k of n trials succeed. k must be at least n*q-1, so that the terms
// decrease.
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
