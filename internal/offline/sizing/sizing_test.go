package sizing

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// exact returns the probability that more than limit of the requests reach a given replica, by
// fractions.
func exact(requests, replicas, limit int64) float64 {
	sum, all := new(big.Int), new(big.Int).Exp(big.NewInt(replicas), big.NewInt(requests), nil)
	for k := limit + 1; k <= requests; k++ {
		others := new(big.Int).Exp(big.NewInt(replicas-1), big.NewInt(requests-k), nil)
		sum.Add(sum, others.Mul(others, new(big.Int).Binomial(requests, k)))
	}
	p, _ := new(big.Rat).SetFrac(sum, all).Float64()
	return p
}

func TestExceedsIsTheExactTail(t *testing.T) {
	for _, c := range []struct{ requests, replicas int64 }{{1, 2}, {5, 3}, {60, 10}, {300, 100}, {300, 2}, {300, 999}} {
		mean := c.requests / c.replicas
		for _, limit := range []int64{0, mean, mean + 1, 2*mean + 1, 3*mean + 2, c.requests - 1} {
			if limit >= c.requests {
				continue
			}
			want := exact(c.requests, c.replicas, limit)
			if got := exceeds(c.requests, c.replicas, limit); math.Abs(got-want) > 1e-9*want {
				t.Errorf("more than %d of %d at 1/%d: got %g, want %g", limit, c.requests, c.replicas, got, want)
			}
		}
	}
}

// For many requests the normal distribution is close, and the sum must not lose its digits.
func TestTailOfManyRequestsIsAccurate(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int64{2, 100, 1000} {
		q := 1 / float64(replicas)
		mean, sd := maxRequests*q, math.Sqrt(maxRequests*q*(1-q))
		for _, z := range []float64{-2, 0, 1, 3, 5} {
			got, want := exceeds(maxRequests, replicas, int64(mean+z*sd)), math.Erfc(z/math.Sqrt2)/2
			if math.Abs(got-want) > 0.03*want {
				t.Errorf("%g deviations above the mean of %d replicas: got %g, want about %g", z, replicas, got, want)
			}
		}
	}
}

func TestLocalLimitIsTheSmallest(t *testing.T) {
	for _, requests := range []int64{1, 2, 5, 120} {
		for _, replicas := range []int64{1, 2, 3, 10, 100} {
			for _, p := range []float64{0.3, 0.01, 1e-6} {
				local, err := Local(requests, replicas, p)
				must.Succeed(t, err)
				for _, c := range []struct {
					limit int64
					p     float64
				}{{local.One.Limit, p}, {local.Any.Limit, p / float64(replicas)}} {
					if got := exact(requests, replicas, c.limit); got > c.p {
						t.Errorf("%d of %d by %d replicas is exceeded with %g, want at most %g", c.limit, requests, replicas, got, c.p)
					}
					if c.limit > 0 && exact(requests, replicas, c.limit-1) <= c.p*(1-rounding) {
						t.Errorf("%d of %d by %d replicas: one less would do for %g", c.limit, requests, replicas, c.p)
					}
				}
			}
		}
	}
}

// simulate spreads the requests over the replicas at random, many times. It returns how often the
// first replica and how often any replica exceeds the limit, and the part of all requests that is
// denied.
func simulate(requests, replicas, limit int64, times int) (one, anyOne, denied float64) {
	rnd, counts := rand.New(rand.NewPCG(16, 1)), make([]int64, replicas)
	for range times {
		clear(counts)
		some := false
		for range requests {
			to := rnd.Int64N(replicas)
			if counts[to]++; counts[to] > limit {
				some = true
				denied++
			}
		}
		if counts[0] > limit {
			one++
		}
		if some {
			anyOne++
		}
	}
	n := float64(times)
	return one / n, anyOne / n, denied / n / float64(requests)
}

// The worked example of docs/plan.md: 100 machines share 1000 requests a second.
func TestHundredMachinesShareAThousandRequests(t *testing.T) {
	t.Parallel()
	local, err := Local(1000, 100, 0.001)
	must.Succeed(t, err)
	t.Logf("\n%+v", local)
	if local.EqualPart.Limit != 10 || local.One.Limit != 21 || local.Any.Limit != 26 || local.Any.Together != 2600 || local.Any.Over != 1600 {
		t.Errorf("got %+v, want local limits of 10, 21 and 26, and 2600 together", local)
	}
	const times = 3_000
	for _, c := range []LocalChoice{local.EqualPart, local.One, local.Any, newLocalChoice(1000, 100, 18)} {
		one, anyOne, denied := simulate(1000, 100, c.Limit, times)
		near := func(what string, got, low, high float64) {
			// Five standard deviations of the simulation, which the seed makes repeatable.
			slack := 5*math.Sqrt(high*(1-min(high, 0.999))/times) + 1e-4
			if got < low-slack || got > high+slack {
				t.Errorf("a limit of %d: %s %g in the simulation, want %g to %g", c.Limit, what, got, low, high)
			}
		}
		near("one replica exceeds it", one, c.OneExceeds, c.OneExceeds)
		near("any replica exceeds it", anyOne, c.AnyExceedsLow, c.AnyExceeds)
		if math.Abs(denied-c.Denied) > 1e-3 || (c.Denied > 0.001 && math.Abs(denied-c.Denied) > 0.02*c.Denied) {
			t.Errorf("a limit of %d: %g denied in the simulation, want %g", c.Limit, denied, c.Denied)
		}
	}
}

func TestInvalidQuestionsAreFaults(t *testing.T) {
	for _, c := range []struct {
		requests, replicas int64
		p                  float64
	}{
		{0, 1, 0.1}, {-1, 1, 0.1}, {maxRequests + 1, 1, 0.1}, {1, 0, 0.1}, {1, maxReplicas + 1, 0.1},
		{1, 1, 0}, {1, 1, 1}, {1, 1, -0.1}, {1, 1, 2}, {1, 1, math.NaN()}, {1, 1, math.Inf(1)},
	} {
		if local, err := Local(c.requests, c.replicas, c.p); err == nil {
			t.Errorf("%+v: got %+v, want an error", c, local)
		}
	}
	for _, c := range []struct{ requests, replicas int64 }{{maxRequests, maxReplicas}, {maxRequests, 2}, {maxRequests, 1}, {1, maxReplicas}} {
		if _, err := Local(c.requests, c.replicas, 1e-300); err != nil {
			t.Error(err)
		}
	}
}
