package guard

import (
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

var update = flag.Bool("update", false, "write the shares into docs/design.md")

// exceeded returns the probability that more than m of n trials succeed, by exact fractions.
func exceeded(n, m, replicas int64) float64 {
	q := big.NewRat(1, replicas)
	sum := new(big.Rat)
	for k := m + 1; k <= n; k++ {
		mass := new(big.Rat).SetInt(new(big.Int).Binomial(n, k))
		for range k {
			mass.Mul(mass, q)
		}
		for range n - k {
			mass.Mul(mass, new(big.Rat).Sub(big.NewRat(1, 1), q))
		}
		sum.Add(sum, mass)
	}
	f, _ := sum.Float64()
	return f
}

func TestShareIsTheSmallestThatIsRarelyExceeded(t *testing.T) {
	for _, replicas := range []int64{2, 3, 10, 100} {
		for _, p := range []float64{0.1, 0.001, 1e-9} {
			for _, n := range []int64{1, 2, 3, 5, 10, 30, 60} {
				m, maxTail := share(n, replicas, p), p/float64(replicas)
				if over := exceeded(n, m, replicas); over > maxTail*(1+1e-9) {
					t.Errorf("%d of %d by %d replicas is exceeded with %g, want at most %g", m, n, replicas, over, maxTail)
				}
				if m > n/replicas && m > 0 && exceeded(n, m-1, replicas) <= maxTail*(1-1e-9) {
					t.Errorf("%d of %d by %d replicas: one less would do for %g", m, n, replicas, maxTail)
				}
			}
		}
	}
}

// In an outage every request of another cost needs a share. Computing one for each would take a
// processor for itself.
func TestShareIsNotComputedForEachSizeOfCharges(t *testing.T) {
	const whole, replicas, p = 1_000_000_000, 10, 0.001
	l := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: whole, Window: time.Hour})
	s := shareCache{falseLimitProbability: p}
	for n := int64(1); n < 50_000; n++ {
		if _, err := s.limitFor(l, n, replicas); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.shares.Len(); n > 500 {
		t.Errorf("%d shares computed", n)
	}
}

// Rounding makes no share too small, and none much too large.
func TestShareOfLargeChargesCoversThem(t *testing.T) {
	const replicas, p = 10, 0.001
	for _, whole := range []int64{100, 1000, 12_345, 1_000_000_000} {
		for _, n := range []int64{1, 2, 3, 7, 33, 50, 99, 100, 333, 999, 12_345, 777_777, 1_000_000_000} {
			if n > whole {
				continue
			}
			s := shareCache{falseLimitProbability: p}
			exact := max(share(whole, replicas, p), n*share(whole/n, replicas, p))
			got := s.shareForHits(whole, n, replicas)
			if n > 1 && (got < exact || got > exact+exact/10) || got > whole {
				t.Errorf("charges of %d under %d: got %d, want %d or slightly more", n, whole, got, exact)
			}
		}
	}
}

// For large limits an exact sum takes too long. The normal distribution is close.
func TestShareOfLargeLimitsIsNearTheNormalQuantile(t *testing.T) {
	for _, n := range []int64{1e6, 1e9, math.MaxUint32} {
		for _, replicas := range []int64{2, 50, 1000} {
			q := 1 / float64(replicas)
			mean, deviation := float64(n)*q, math.Sqrt(float64(n)*q*(1-q))
			z := math.Sqrt2 * math.Erfinv(1-2*0.001/float64(replicas))
			if got := (float64(share(n, replicas, 0.001)) - mean) / deviation; math.Abs(got-z) > 0.2 {
				t.Errorf("%d by %d: %.3f deviations above the mean, want about %.3f", n, replicas, got, z)
			}
		}
	}
}

// The share of a limit that is too large for a sum is a bound: it covers the normal distribution,
// and is not much larger.
func TestShareBeyond32BitsCoversTheNormalQuantile(t *testing.T) {
	for _, n := range []int64{maxExactTrials + 1, 1 << 40, limiters.LargestMax} {
		for _, replicas := range []int64{2, 50, 1000} {
			q := 1 / float64(replicas)
			mean, deviation := float64(n)*q, math.Sqrt(float64(n)*q*(1-q))
			z := math.Sqrt2 * math.Erfinv(1-2*0.001/float64(replicas))
			got := float64(share(n, replicas, 0.001))
			if over := (got - mean) / deviation; over < z || over > z+1 || got > 1.01*mean {
				t.Errorf("%d by %d: %.3f deviations above the mean of %.0f, want %.3f to %.3f", n, replicas, over, mean, z, z+1)
			}
		}
	}
}

// A share of a funnel of any valid rate is a valid funnel: its rate is rounded up if need be.
func TestShareOfAFunnelBeyond32BitsIsValid(t *testing.T) {
	for _, spec := range []limiters.Spec{
		{Max: 1_000_000_000_000_000, Window: 24 * time.Hour, Params: limiters.Params{Capacity: 1000}},
		{Max: 6_000_000_000, Window: time.Hour, Params: limiters.Params{Capacity: 4294967295}},
		{Max: 4_294_967_295_000_000, Window: time.Second, Params: limiters.Params{Capacity: 5}},
		{Max: 4_294_967_295_000, Window: time.Minute, Params: limiters.Params{Capacity: 77}},
	} {
		spec.Algorithm = "funnel"
		l, err := limiters.NewLimit(spec)
		must.Succeed(t, err)
		for _, n := range []int64{1, 3} {
			part, err := (&shareCache{falseLimitProbability: 0.001}).limitFor(l, n, 3)
			if err != nil {
				t.Errorf("share of 1 of 3 of %+v: %v", spec, err)
				continue
			}
			if got := float64(part.Spec().Max) / float64(spec.Max); got < 1./3 || got > 0.36 {
				t.Errorf("%+v: the share of charges of %d is %.4f of it, want a little more than a third", spec, n, got)
			}
		}
	}
}

func TestShareIsValidForExtremeLimits(t *testing.T) {
	for _, c := range []struct {
		n, replicas int64
		p           float64
		want        int64
	}{
		{100, 1, 0.001, 100}, {100, 0, 0.001, 100}, {0, 5, 0.001, 0}, {1, 5, 0.001, 1}, {2, 1_000_000, 1e-12, 2}, {5, 3, 1e-300, 5},
		{limiters.MaxHits, 2, math.SmallestNonzeroFloat64, limiters.MaxHits},
	} {
		if got := share(c.n, c.replicas, c.p); got != c.want {
			t.Errorf("share of %d by %d for %g: got %d, want %d", c.n, c.replicas, c.p, got, c.want)
		}
	}
}

// A client uses its limit exactly, and its requests reach replicas at random.
func TestShareRarelyDeniesAClientAtItsLimit(t *testing.T) {
	const n, replicas, p, clients = 50, 4, 0.01, 200_000
	m, limited := share(n, replicas, p), 0
	rnd := rand.New(rand.NewPCG(1, 2))
	for range clients {
		var got [replicas]int64
		over := false
		for range n {
			i := rnd.IntN(replicas)
			got[i]++
			over = over || got[i] > m
		}
		if over {
			limited++
		}
	}
	if rate := float64(limited) / clients; rate > p || rate < p/10 {
		t.Errorf("%.4f of the clients are limited, want at most %g, and not much less", rate, p)
	}
}

// The table of docs/design.md.
func TestSharesOfTheDocsAreCurrent(t *testing.T) {
	const path, begin, end = "../../../docs/design.md", " -update -->\n", "<!-- end -->"
	limits, replicas := []int64{5, 60, 1000, 100_000}, []int64{2, 3, 10, 100}
	var b strings.Builder
	b.WriteString("| limit |")
	for _, r := range replicas {
		fmt.Fprintf(&b, " %d replicas |", r)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(replicas)) + "\n")
	for _, n := range limits {
		fmt.Fprintf(&b, "| %d |", n)
		for _, r := range replicas {
			m := share(n, r, 0.001)
			fmt.Fprintf(&b, " %d each, %.2f |", m, float64(m*r)/float64(n))
		}
		b.WriteString("\n")
	}
	file := must.Read(t, path)
	before, rest, found := strings.Cut(string(file), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("docs/design.md has no markers for the table of shares")
	}
	want := before + begin + b.String() + end + after
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	if want != string(file) {
		t.Errorf("docs/design.md has other shares: go test ./pkg/limiters/guard -run Shares -update\n%s", &b)
	}
}
