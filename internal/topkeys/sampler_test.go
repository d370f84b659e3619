package topkeys

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
)

// fix fixes all randomness of the busiest keys.
func (f *fixture) fix(seed uint64) *rand.Rand {
	random := rand.New(rand.NewPCG(seed, seed))
	f.hash, f.random = xxhash.Sum64String, random.Uint64
	return random
}

func userKey(user uint64) string { return fmt.Sprint("4:shop|7:user_id*7:", 1_000_000+user) }

// The true top ten of a Zipf load are within the stated error, whether all requests are counted or
// a sample of them. So are the other keys of the sketch, except one of 1,000.
func TestTopTenOfAZipfLoadIsWithinTheStatedError(t *testing.T) {
	const size, seconds = 1000, 4
	for _, perSecond := range []int{5_000, 20_000, 80_000} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(perSecond, "/", seed), func(t *testing.T) {
				t.Parallel()
				f := counting(t, size, "")
				zipf := rand.NewZipf(f.fix(seed), 1.1, 1, 1_000_000)
				truth := map[string]int64{}
				for range seconds {
					for range perSecond {
						key := userKey(zipf.Uint64())
						truth[key]++
						f.add(&decide.Decision{Plan: &decide.Plan{Domain: "shop", Key: key, Hits: 1}}, false)
					}
					f.hitSampler.adapt()
				}
				requests := int64(seconds * perSecond)
				top := f.Top(api.ByHits, "", size)
				weight := f.hitSampler.largestWeight()
				if (weight > 1) != (perSecond > countedPerSecond) {
					t.Errorf("weight %d", weight)
				}
				if weight == 1 && (top.Total != requests || top.Error > requests/size) || abs(top.Total-requests) > requests/50 {
					t.Errorf("total %d and error %d, want %d and at most %d", top.Total, top.Error, requests, requests/size)
				}
				outliers := 0
				listed := map[string]api.TopKey{}
				for _, k := range top.Keys {
					key := "4:shop|7:user_id*7:" + k.Key[0][1]
					listed[key] = k
					if !withinBounds(&k, truth[key]) || k.Error > top.Error {
						outliers++
					}
				}
				if outliers > size/1000 || outliers > 0 && weight == 1 {
					t.Errorf("%d of %d keys are outside of their bounds", outliers, size)
				}
				busiest := slices.SortedFunc(maps.Keys(truth), func(a, b string) int { return cmp.Compare(truth[b], truth[a]) })
				for i, key := range busiest[:10] {
					k := listed[key]
					if !withinBounds(&k, truth[key]) {
						t.Errorf("number %d is %s with %d hits, listed as %d ± %d", i+1, key, truth[key], k.Count, k.Error)
					}
					// The key that is listed instead is as heavy, within its error.
					if k := top.Keys[i]; k.Count < truth[key] {
						t.Errorf("number %d of the list has %d ± %d, want at least %d", i+1, k.Count, k.Error, truth[key])
					}
				}
			})
		}
	}
}

// withinBounds reports whether count is within the bounds of k.
func withinBounds(k *api.TopKey, count int64) bool {
	return k.Count-k.Error <= count && count <= k.Count
}

func abs(n int64) int64 { return max(n, -n) }

// A support engineer sees each of five denials, also during a high rate of other requests, and each
// of five requests after it.
func TestFewHitsAreExactBesidesManyOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := counting(t, 100, "")
		f.fix(1)
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { f.Run(ctx) })
		add := func(n int, user func(i int) uint64, denied bool) {
			for i := range n {
				f.add(&decide.Decision{Plan: &decide.Plan{Domain: "shop", Key: userKey(user(i)), Hits: 1}}, denied)
			}
		}
		for range 3 {
			add(100_000, func(i int) uint64 { return uint64(i % 50) }, false)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		add(5, func(int) uint64 { return 99 }, true)
		expect(t, f.list(api.ByDenied, "", 1), "shop  [user_id=1000099] 5±0")
		if weight := f.hitSampler.weight.Load(); weight != 16 {
			t.Errorf("weight %d at 100,000 requests a second, want 16", weight)
		}
		time.Sleep(2 * windowLength)
		synctest.Wait()
		add(5, func(int) uint64 { return 42 }, false)
		expect(t, f.list(api.ByHits, "", 10), "shop  [user_id=1000042] 5±0")
		cancel()
		ended.Wait()
	})
}

// The sketches get about as many additions at any rate.
func TestSampleAdaptsToTheRate(t *testing.T) {
	s, random := newSampler(), rand.New(rand.NewPCG(1, 1))
	second := func(offered int, hits uint64) (additions int) {
		for range offered {
			if s.weigh(hits, random.Uint64) > 0 {
				additions++
				s.note(1)
			}
		}
		s.adapt()
		return additions
	}
	for _, tt := range []struct {
		offered         int
		hits            uint64
		seconds         int
		atLeast, atMost int // additions in the last second
		lowest, highest uint64
	}{
		{countedPerSecond, 1, 1, countedPerSecond, countedPerSecond, 1, 1},
		{400_000, 1, 1, 50_000, 60_000, 32, 32}, // the first second of a load
		{400_000, 1, 3, 4_000, 11_000, 64, 64},
		{40_000, 1, 2, 4_000, 11_000, 4, 8},
		{100, 1, 1, 0, 100, 1, 1},
		{100, 1, 1, 100, 100, 1, 1},
		{50_000, 1_000_000, 30, 4_000, 11_000, 1 << 20, 1 << 23}, // large requests
		{100, 1, 1, 0, 100, 1, 1},
	} {
		additions := 0
		for range tt.seconds {
			additions = second(tt.offered, tt.hits)
		}
		if weight := s.weight.Load(); additions < tt.atLeast || additions > tt.atMost || weight < tt.lowest || weight > tt.highest {
			t.Errorf("%+v: %d additions, weight %d", tt, additions, weight)
		}
	}
}

// The mean of the sample is the true count, so a sum over many keys is right.
func TestSampleHasTheTrueMean(t *testing.T) {
	s, random := newSampler(), rand.New(rand.NewPCG(1, 1))
	s.weight.Store(16)
	for _, hits := range []uint64{1, 3, 15} {
		const requests = 100_000
		sum := uint64(0)
		for range requests {
			sum += s.weigh(hits, random.Uint64)
		}
		deviation := math.Sqrt(float64(16-hits) * float64(hits) * requests)
		if want := requests * hits; math.Abs(float64(sum)-float64(want)) > 4*deviation {
			t.Errorf("%d hits: the sum is %d, want %d ± %.0f", hits, sum, want, deviation)
		}
	}
	for _, hits := range []uint64{0, 16, 17, math.MaxUint64} {
		if got := s.weigh(hits, random.Uint64); got != hits {
			t.Errorf("%d hits count as %d", hits, got)
		}
	}
}

// The bounds hold at each true count, from those of which the sample has nearly nothing on.
func TestSampleBoundsHoldTheTrueCount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	s := newSampler()
	for _, weight := range []uint64{1, 2, 16, 1024} {
		s.weight.Store(weight)
		for _, count := range []uint64{0, 1, 5, 100, 3_000} {
			wrong := 0
			const trials = 1000
			for range trials {
				sum := uint64(0)
				for range count {
					sum += s.weigh(1, random.Uint64)
				}
				if minimum, maximum := bounds(sum, sum, weight); minimum > count || maximum < count {
					wrong++
				}
			}
			if wrong > trials*outsideProbability {
				t.Errorf("weight %d, count %d: outside of the bounds in %d of %d trials", weight, count, wrong, trials)
			}
		}
	}
	if minimum, maximum := bounds(1, math.MaxUint64, 2); minimum != 0 || maximum != math.MaxUint64 {
		t.Errorf("%d to %d", minimum, maximum)
	}
	if minimum, maximum := bounds(3, 7, 1); minimum != 3 || maximum != 7 {
		t.Errorf("%d to %d without a sample", minimum, maximum)
	}
}

// The keys that are kept do not keep the messages that they came with.
func TestBusiestKeysDoNotRetainRequests(t *testing.T) {
	f := counting(t, 10, "")
	r := f.decide(1, "user_id=42")
	if got, want := keyInfoOf(&r.Decisions[0]).domain, r.Decisions[0].Rule.Domain; unsafe.StringData(got) != unsafe.StringData(want) {
		t.Error("the domain is that of the message")
	}
	message := "shop and more"
	if got := keyInfoOf(&decide.Decision{Plan: &decide.Plan{Domain: message[:4]}}); got.domain != "shop" || unsafe.StringData(got.domain) == unsafe.StringData(message) {
		t.Errorf("the domain %q is that of the message", got.domain)
	}
}

// A window that begins at a high rate has the weight of this rate, and so have the lists until it
// is over.
func TestBoundsUseTheWeightOfBothWindows(t *testing.T) {
	s := newSampler()
	s.weight.Store(16)
	for window, want := range []uint64{16, 16, 16, 1} {
		s.beginWindow(uint64(window))
		s.adapt() // without additions, the weight is 1 from now on
		if window == 0 {
			s.weight.Store(16)
		}
		if got := s.largestWeight(); got != want {
			t.Errorf("window %d: the largest weight is %d, want %d", window, got, want)
		}
	}
}

// Additions of the last window may arrive in the current one, and double its weight. The current
// window keeps that weight although the last one is forgotten.
func TestWeightDoubledByLateAdditionsIsKept(t *testing.T) {
	s := newSampler()
	s.beginWindow(1)
	s.note(countedPerSecond + 1) // from now on, additions of window 1 have the weight 2
	s.adapt()
	s.adapt() // a second with few additions: the weight is 1 again
	s.beginWindow(2)
	if got := s.largestWeight(); got != 2 {
		t.Errorf("the largest weight is %d, want 2", got)
	}
	s.beginWindow(3)
	if got := s.largestWeight(); got != 1 {
		t.Errorf("after window 1, the largest weight is %d, want 1", got)
	}
}
