package suggest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A key is a key of a target with its requests.
type key struct {
	text string
	*history
}

func sortedKeys(all map[string]*history) []key {
	keys := make([]key, 0, len(all))
	for _, text := range slices.Sorted(maps.Keys(all)) {
		keys = append(keys, key{text, all[text]})
	}
	return keys
}

// A measurement holds the needs of all keys under one algorithm. The report has only their
// distribution.
type measurement struct {
	*AlgorithmReport
	needs []uint32 // in the order of the keys; beyond32: larger
}

// each calls do for each measurement, on as many goroutines as there are processors, and waits for
// them.
func each(ctx context.Context, all []*measurement, do func(context.Context, *measurement) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, m := range all {
		group.Go(func() error { return do(ctx, m) })
	}
	return group.Wait()
}

// beyond32 stands for a need beyond 32 bits, which is computed again where it is used.
const beyond32 = math.MaxUint32

// measure finds the needs of the keys under each algorithm of each window.
func (r *RuleReport) measure(ctx context.Context, keys []key) ([]*measurement, error) {
	var all []*measurement
	for _, w := range r.Windows {
		for _, a := range w.Algorithms {
			all = append(all, &measurement{AlgorithmReport: a, needs: make([]uint32, len(keys))})
		}
	}
	return all, each(ctx, all, func(ctx context.Context, m *measurement) error {
		needs := make([]int64, len(keys))
		store := newKeyStore(m.variant.loosest)
		for i := range keys {
			if i%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			needs[i] = m.variant.need(keys[i].history, store)
			m.needs[i] = uint32(min(needs[i], beyond32))
		}
		m.dist = newDistribution(needs)
		m.Curve = m.dist.curve(1 / r.Sample)
		if need := m.dist.largestNeed(); need != never {
			m.Smallest = &need
		}
		return nil
	})
}

// maxCandidates bounds the limits of one window for which denied requests are counted.
const maxCandidates = 6

// limitsToRun returns at most maximum limits to run in a window: the recommended ones, the smallest
// that deny no request, some quantiles, and limits between them. All algorithms get the same
// limits, so that their effects are comparable.
func (r *RuleReport) limitsToRun(w *WindowReport, maximum int) []int64 {
	var wanted []int64
	for _, rec := range r.Recommendations {
		if rec.window == w {
			wanted = append(wanted, rec.Limit)
		}
	}
	base := w.algorithm("sliding_log").dist
	for _, a := range w.Algorithms {
		if a.CurrentLimit != nil {
			base = a.dist
		}
	}
	wanted = append(wanted, base.largestNeed(), base.quantile(0.99), base.quantile(0.9), base.quantile(0.999), base.quantile(0.5))
	for _, a := range w.Algorithms {
		wanted = append(wanted, a.dist.largestNeed())
	}
	var limits []int64
	for _, n := range wanted {
		if n > 0 && n != never && len(limits) < maximum && !slices.Contains(limits, n) {
			limits = append(limits, n)
		}
	}
	slices.Sort(limits)
	for len(limits) > 0 && len(limits) < maximum {
		i, between := widestGap(limits)
		if slices.Contains(limits, between) {
			break
		}
		limits = slices.Insert(limits, i, between)
	}
	return limits
}

// widestGap returns the two neighboring limits with the largest ratio, as the index of the second
// and their geometric mean. The first limit has the neighbor 1.
func widestGap(limits []int64) (index int, between int64) {
	widest := 0.0
	for i, n := range limits {
		before := int64(1)
		if i > 0 {
			before = limits[i-1]
		}
		if ratio := float64(n) / float64(before); ratio > widest {
			index, between, widest = i, int64(math.Round(math.Sqrt(float64(n)*float64(before)))), ratio
		}
	}
	return index, between
}

// addCandidates counts the denied requests of some limits of each window, and of the limits in the
// rule.
func (r *RuleReport) addCandidates(ctx context.Context, keys []key, all []*measurement) error {
	maximum := min(maxCandidates, max(1, maxRuns/len(all)))
	limits := map[*WindowReport][]int64{}
	for _, w := range r.Windows {
		limits[w] = r.limitsToRun(w, maximum)
	}
	return each(ctx, all[:min(len(all), maxRuns)], func(ctx context.Context, m *measurement) error {
		sums, present, err := m.run(ctx, keys, limits[m.variant.window])
		for i := range sums {
			m.Candidates = append(m.Candidates, sums[i].effect(r.Sample))
		}
		if present != nil {
			m.recommended.Present = new(present.effect(r.Sample))
		}
		return err
	})
}

// A sum counts the keys that a limit denies, and their denied requests.
type sum struct {
	limit, keys, denied int64
	squares             float64 // the sum of the squares of the denied requests of each key
	store               *keyStore
}

func (s *sum) effect(sample float64) LimitEffect {
	return LimitEffect{Limit: s.limit, Keys: estimateKeys(s.keys, sample), Denied: estimateSum(s.denied, s.squares, sample)}
}

// add runs the requests of a key and counts the denied ones.
func (s *sum) add(h *history) {
	if n := s.store.denied(h); n > 0 {
		s.keys++
		s.denied += n
		s.squares += float64(n) * float64(n)
	}
}

// run decides the requests of every key that one of the limits hits. Under a limit that denies no
// request of a key, there is nothing to count, so it needs no run. The keys that the recommendation
// hits become its outliers. present is the sum of the limit in the rule.
func (m *measurement) run(ctx context.Context, keys []key, limits []int64) (sums []sum, present *sum, err error) {
	v, rec := m.variant, m.recommended
	for _, n := range limits {
		if l, err := v.limit(n); err == nil && n <= v.largestMax {
			sums = append(sums, sum{limit: n, store: newKeyStore(l)})
		}
	}
	neverDeniedUpTo := int64(never) // the limit in the rule denies no request of a key with at most this need
	if rec != nil && v.configured != nil {
		present = &sum{limit: v.configured.RequestsPerUnit, store: newKeyStore(v.configured.Limit)}
		neverDeniedUpTo = -1
		if v.configured.Capacity() == present.limit {
			neverDeniedUpTo = present.limit
		}
	}
	store := newKeyStore(v.loosest)
	for i := range keys {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		k, need := &keys[i], int64(m.needs[i])
		if need == beyond32 {
			need = v.need(k.history, store)
		}
		if rec != nil && need > rec.Limit {
			rec.addOutlier(k.text, need)
		}
		if need > neverDeniedUpTo {
			present.add(k.history)
		}
		for j := range sums {
			if need <= sums[j].limit {
				break // no larger limit denies the key either
			}
			sums[j].add(k.history)
		}
	}
	return sums, present, nil
}

// maxOutliers bounds the keys that a recommendation names.
const maxOutliers = 20

// addOutlier adds a key, and keeps those with the largest needs.
func (r *Recommendation) addOutlier(key string, need int64) {
	o := Outlier{Key: descriptors.KeyText(key), need: need}
	if need != never {
		o.Needs = &need
	}
	r.Outliers = append(r.Outliers, o)
	slices.SortStableFunc(r.Outliers, func(a, b Outlier) int { return cmp.Compare(b.need, a.need) })
	r.Outliers = r.Outliers[:min(len(r.Outliers), maxOutliers)]
}
