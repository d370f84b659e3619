package suggest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// A key is a key of a target with its requests.
type key struct {
	text string
	*series
}

func sortedKeys(all map[string]*series) []key {
	keys := make([]key, 0, len(all))
	for _, text := range slices.Sorted(maps.Keys(all)) {
		keys = append(keys, key{text, all[text]})
	}
	return keys
}

// each calls do for each cell, on as many goroutines as there are processors, and waits for them.
func each(ctx context.Context, cells []*cell, do func(context.Context, *cell) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, c := range cells {
		group.Go(func() error { return do(ctx, c) })
	}
	return group.Wait()
}

// A measurement has the needs of the keys in a cell. Needs beyond 32 bits are computed again where they are used.
type measurement struct {
	*distribution
	needs []uint32 // in the order of the keys; beyond32: larger
}

const beyond32 = math.MaxUint32

// measure returns the needs of the keys in each cell.
func measure(ctx context.Context, windows []window, keys []key) (map[*cell]*measurement, error) {
	measured := map[*cell]*measurement{}
	var cells []*cell
	for i := range windows {
		for _, c := range windows[i].cells {
			cells, measured[c] = append(cells, c), &measurement{needs: make([]uint32, len(keys))}
		}
	}
	err := each(ctx, cells, func(ctx context.Context, c *cell) error {
		needs := make([]int64, len(keys))
		meter := newRun(c.meter)
		for i := range keys {
			if i%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			needs[i] = c.need(keys[i].series, meter)
			measured[c].needs[i] = uint32(min(needs[i], beyond32))
		}
		measured[c].distribution = newDistribution(needs)
		return nil
	})
	return measured, err
}

// maxLadder is the number of limits of one window for which the denied requests are counted, at most.
const maxLadder = 6

// ladder returns the limits to run in a window: those that are recommended, the smallest that deny nobody, some quantiles,
// and limits between them. All algorithms have the same, so that their effects can be compared.
func (r *Rule) ladder(w *Window, length int) []int64 {
	var wanted []int64
	for i := range r.Recommendations {
		if rec := &r.Recommendations[i]; rec.in(w) {
			wanted = append(wanted, rec.Limit)
		}
	}
	base := w.algorithm("sliding_log").dist
	for i := range w.Algorithms {
		if a := &w.Algorithms[i]; a.Current != nil {
			base = a.dist
		}
	}
	wanted = append(wanted, base.largest(), base.quantile(0.99), base.quantile(0.9), base.quantile(0.999), base.quantile(0.5))
	for i := range w.Algorithms {
		wanted = append(wanted, w.Algorithms[i].dist.largest())
	}
	var limits []int64
	for _, n := range wanted {
		if n > 0 && n != never && len(limits) < length && !slices.Contains(limits, n) {
			limits = append(limits, n)
		}
	}
	slices.Sort(limits)
	for len(limits) > 0 && len(limits) < length {
		at, between := widestGap(limits)
		if slices.Contains(limits, between) {
			break
		}
		limits = slices.Insert(limits, at, between)
	}
	return limits
}

// widestGap returns the geometric mean of the two limits next to each other with the largest ratio, and its index. The first limit
// follows a limit of 1.
func widestGap(limits []int64) (at int, between int64) {
	widest := 0.0
	for i, n := range limits {
		before := int64(1)
		if i > 0 {
			before = limits[i-1]
		}
		if ratio := float64(n) / float64(before); ratio > widest {
			at, between, widest = i, int64(math.Round(math.Sqrt(float64(n)*float64(before)))), ratio
		}
	}
	return at, between
}

// runCandidates counts the denied requests of the limits of each window.
func (c *Collector) runCandidates(ctx context.Context, r *Rule, keys []key) error {
	var cells []*cell
	algorithms := map[*cell]*Algorithm{}
	ladders := map[*cell][]int64{}
	for i := range r.Windows {
		for j := range r.Windows[i].Algorithms {
			a := &r.Windows[i].Algorithms[j]
			cells, algorithms[a.cell] = append(cells, a.cell), a
		}
	}
	length := min(maxLadder, max(1, MaxRuns/len(cells)))
	for i := range r.Windows {
		ladder := r.ladder(&r.Windows[i], length)
		for j := range r.Windows[i].Algorithms {
			ladders[r.Windows[i].Algorithms[j].cell] = ladder
		}
	}
	for len(cells) > MaxRuns {
		cells = cells[:len(cells)-1]
	}
	return each(ctx, cells, func(ctx context.Context, cell *cell) error {
		a := algorithms[cell]
		rec := r.recommendationFor(cell)
		sums, present, err := runCell(ctx, cell, ladders[cell], keys, a.dist.needs, rec)
		for i := range sums {
			a.Candidates = append(a.Candidates, sums[i].candidate(r.Sample))
		}
		if present != nil {
			candidate := present.candidate(r.Sample)
			rec.Present = &candidate
		}
		return err
	})
}

// A sum counts the keys that a limit hits, and their denied requests.
type sum struct {
	limit, keys, denied int64
	squares             float64 // the sum of the squares of the denied requests of each key
	run                 *run
}

func (s *sum) candidate(sample float64) Candidate {
	return Candidate{Limit: s.limit, Keys: estimateKeys(s.keys, sample), Denied: estimateSum(s.denied, s.squares, sample)}
}

// add decides the requests of a key.
func (s *sum) add(k *series) {
	if n := s.run.denied(k); n > 0 {
		s.keys++
		s.denied += n
		s.squares += float64(n) * float64(n)
	}
}

// runCell decides the requests of every key that one of the limits hits. Under a limit that denies no request of a key, there is
// nothing to count, so it needs no run. The keys that the recommendation hits become its outliers. present is the limit in the rule.
func runCell(ctx context.Context, cell *cell, limits []int64, keys []key, needs []uint32, rec *Recommendation) (sums []sum, present *sum, err error) {
	for _, n := range limits {
		if l, err := cell.limit(n); err == nil && n <= cell.most {
			sums = append(sums, sum{limit: n, run: newRun(l)})
		}
	}
	least := int64(never) // a key with at most this need has no request that the limit in the rule denies
	if rec != nil && cell.own != nil {
		present = &sum{limit: cell.own.RequestsPerUnit, run: newRun(cell.own.Limit)}
		if least = present.limit; cell.own.Limit.Capacity() != present.limit {
			least = -1
		}
	}
	meter := newRun(cell.meter)
	for i := range keys {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		k, need := &keys[i], int64(needs[i])
		if need == beyond32 {
			need = cell.need(k.series, meter)
		}
		if rec != nil && need > rec.Limit {
			rec.addOutlier(k.text, need)
		}
		if need > least {
			present.add(k.series)
		}
		for j := range sums {
			if need <= sums[j].limit {
				break // so do all larger limits
			}
			sums[j].add(k.series)
		}
	}
	return sums, present, nil
}

// maxOutliers bounds the keys that a recommendation names.
const maxOutliers = 20

func (r *Recommendation) addOutlier(key string, need int64) {
	larger := func(o Outlier, need int64) int { return cmp.Compare(need, o.need) }
	i, _ := slices.BinarySearchFunc(r.Outliers, need, larger)
	for i < len(r.Outliers) && r.Outliers[i].need == need {
		i++
	}
	if i < maxOutliers {
		r.Outliers = slices.Insert(r.Outliers, i, newOutlier(key, need))
		r.Outliers = r.Outliers[:min(len(r.Outliers), maxOutliers)]
	}
}
