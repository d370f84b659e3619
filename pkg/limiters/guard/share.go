package guard

import (
	"math"
	"math/bits"
	"sort"
	"sync"

	"github.com/weir-rls/weir/pkg/limiters"
)

// shares computes the shares of limits, and remembers them for one number of replicas.
type shares struct {
	mu       sync.RWMutex
	replicas int64
	limits   map[*limiters.Limit]*limiters.Limit // shares of limits for hits of 1
	counts   map[int64]int64                     // shares of numbers of requests
}

// maxShares bounds each map of shares. A share beyond it replaces another one, which is computed again when needed.
const maxShares = 10_000

func (s *shares) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas, s.limits, s.counts = 0, nil, nil
}

// of returns the share of l for hits of n > 0.
func (s *shares) of(l *limiters.Limit, n, replicas int64, p float64) (*limiters.Limit, error) {
	if n > 1 {
		// Each size of hit would need its own entry, so these shares are not cached.
		return limiters.New(l.Spec().Scaled(func(whole int64) int64 { return s.ofHits(whole, n, replicas, p) }))
	}
	return remembered(s, &s.limits, l, replicas, func() (*limiters.Limit, error) {
		return limiters.New(l.Spec().Scaled(func(whole int64) int64 { return s.ofRequests(whole, replicas, p) }))
	})
}

// ofHits returns the share of whole for hits of n: at least n times the share of whole/n requests.
func (s *shares) ofHits(whole, n, replicas int64, p float64) int64 {
	if n > whole {
		// Such a hit never fits. Or it fits a funnel that leaks less in a window, for one hit in several.
		return whole
	}
	byHits := min(whole, n*s.ofRequests(roundUp(whole/n), replicas, p))
	return max(byHits, s.ofRequests(whole, replicas, p))
}

func (s *shares) ofRequests(n, replicas int64, p float64) int64 {
	m, _ := remembered(s, &s.counts, n, replicas, func() (int64, error) { return share(n, replicas, p), nil })
	return m
}

// remembered returns the value of a key in one of the maps of s, or computes it.
func remembered[K comparable, V any](s *shares, in *map[K]V, key K, replicas int64, compute func() (V, error)) (V, error) {
	s.mu.RLock()
	v, found := (*in)[key]
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
	if len(*in) >= maxShares {
		for other := range *in {
			delete(*in, other)
			break
		}
	}
	(*in)[key] = v
	return v, nil
}

// roundUp rounds n up to a number with at most five significant bits, so that few shares need to be computed. It adds less
// than a sixteenth, and nothing below 32.
func roundUp(n int64) int64 {
	shift := max(0, bits.Len64(uint64(n))-5)
	return (n + 1<<shift - 1) >> shift << shift
}

// Share returns a replica's part of l under [limiters.OnErrorLocal], for hits of 1. p is the probability that some replica denies a
// client which uses its limit exactly.
func Share(l *limiters.Limit, replicas int64, p float64) (*limiters.Limit, error) {
	return limiters.New(l.Spec().Scaled(func(whole int64) int64 { return share(whole, replicas, p) }))
}

// share returns how many requests each of so many replicas may admit by itself, of a limit of n. A client that uses its
// limit exactly, with requests that reach replicas at random, is then denied by any replica with a probability of at most p.
//
// The number of requests that reach one replica is binomial, with a chance of 1/replicas each. The share is the smallest m
// that is exceeded with a probability of at most p/replicas. The mean, n/replicas, is exceeded by some replica nearly
// always. Together the replicas admit replicas*m.
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

// maxExact is the largest number of trials whose tail is summed. The logarithms of larger factorials have too few digits.
const maxExact = 1 << 32

// deviation returns a number by which n trials exceed the mean n*q with a probability of at most p: Bernstein's inequality. It
// is below 1 % of the mean for n above maxExact and up to a thousand replicas.
func deviation(n int64, q, p float64) float64 {
	l := -math.Log(p)
	return l/3 + math.Sqrt(l*l/9+2*float64(n)*q*(1-q)*l)
}

// tailTerms is how many terms of a tail are summed. A geometric series bounds the rest. It is exact for limits up to about a
// thousand, and makes the share of a larger limit larger by a small part of its standard deviation.
const tailTerms = 100

// tail bounds the probability that more than k of n trials succeed, where k is at least n*q: the terms shrink.
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

// mass returns the probability that k of n trials succeed.
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
