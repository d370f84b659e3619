package suggest

import (
	"math"
	"slices"
	"sort"
)

// A distribution counts keys by their need: the smallest limit that denies none of their requests.
type distribution struct {
	steps []step // by need
	keys  int64
}

// A step is the keys of one need.
type step struct{ need, keys int64 }

// newDistribution sorts the needs.
func newDistribution(needs []int64) *distribution {
	slices.Sort(needs)
	d := &distribution{keys: int64(len(needs))}
	for i, need := range needs {
		if i == 0 || need != needs[i-1] {
			d.steps = append(d.steps, step{need: need})
		}
		d.steps[len(d.steps)-1].keys++
	}
	return d
}

// largestNeed returns the largest need of a key, which may be never; 0 without keys.
func (d *distribution) largestNeed() int64 {
	if len(d.steps) == 0 {
		return 0
	}
	return d.steps[len(d.steps)-1].need
}

// above returns the number of keys that a limit denies at least once.
func (d *distribution) above(limit int64) (keys int64) {
	from := sort.Search(len(d.steps), func(i int) bool { return d.steps[i].need > limit })
	for _, s := range d.steps[from:] {
		keys += s.keys
	}
	return keys
}

// quantile returns the smallest limit that denies at most the part 1 - p of the keys.
func (d *distribution) quantile(p float64) int64 {
	rest := d.keys
	for _, s := range d.steps {
		rest -= s.keys
		if float64(rest) <= (1-p)*float64(d.keys)+1e-9 {
			return s.need
		}
	}
	return 0
}

// maxCurve bounds the points of a curve.
const maxCurve = 200

// A Point is a limit with the number of keys that it denies at least once.
type Point struct {
	Limit int64   `json:"limit"`
	Keys  float64 `json:"keys_hit"`
}

// curve returns the keys denied at each need. If there are more needs than points, the needs are at
// equal ratios, and the number of each point is exact.
func (d *distribution) curve(scale float64) []Point {
	points := []Point{}
	add := func(limit int64) {
		if limit != never && (len(points) == 0 || points[len(points)-1].Limit < limit) {
			points = append(points, Point{limit, math.Round(float64(d.above(limit)) * scale)})
		}
	}
	if len(d.steps) <= maxCurve {
		for _, s := range d.steps {
			add(s.need)
		}
		return points
	}
	first, last := max(1, d.steps[0].need), d.steps[len(d.steps)-1].need
	if last == never {
		last = d.steps[len(d.steps)-2].need
	}
	ratio := float64(last) / float64(first)
	for i := range maxCurve {
		at := sort.Search(len(d.steps), func(j int) bool {
			return float64(d.steps[j].need) >= float64(first)*math.Pow(ratio, float64(i)/(maxCurve-1))*(1-1e-12)
		})
		add(d.steps[min(at, len(d.steps)-1)].need)
	}
	return points
}

// The conditions of outliers.
const (
	outlierRatio = 3   // an outlier needs at least this many times as much as the busiest ordinary key
	outlierPart  = 100 // at most 1 key in this many is an outlier
	outlierNeed  = 10  // the smallest need of an outlier, at least
	outlierKeys  = 20  // fewer keys have no outlier
)

// A split divides the keys into ordinary keys and outliers.
type split struct {
	ordinary int64 // the largest need of an ordinary key
	least    int64 // the smallest need of an outlier; 0 without outliers
	outliers int64 // keys
}

// ratio returns how many times as much as an ordinary key an outlier needs, at least.
func (s *split) ratio() float64 { return float64(s.least) / float64(max(1, s.ordinary)) }

// splitOutliers finds the widest gap between two needs next to each other, above which there are
// few keys.
func (d *distribution) splitOutliers() split {
	s := split{ordinary: d.largestNeed()}
	widest, above := float64(outlierRatio), int64(0)
	for i := len(d.steps) - 1; i > 0; i-- {
		above += d.steps[i].keys
		if d.keys < outlierKeys || above > max(1, d.keys/outlierPart) {
			break
		}
		lower, upper := max(1, d.steps[i-1].need), d.steps[i].need
		if ratio := float64(upper) / float64(lower); upper >= outlierNeed && ratio >= widest {
			widest, s = ratio, split{ordinary: lower, least: upper, outliers: above}
		}
	}
	return s
}

// withHeadroom returns the recommended limit: above the ordinary keys, below the outliers, and with
// two digits before zeros.
func (s *split) withHeadroom(headroom float64) int64 {
	limit := max(s.ordinary, 1)
	if headroom > 0 {
		with := math.Ceil(float64(limit)*(1+headroom) - 1e-9)
		for unit := 1.0; unit < 1e16; unit *= 10 {
			if with < 100*unit {
				with = math.Ceil(with/unit) * unit
				break
			}
		}
		limit = int64(min(with, aboveAnyLimit))
	}
	if s.outliers > 0 {
		limit = max(s.ordinary, min(limit, s.least-1))
	}
	return limit
}

// aboveAnyLimit is more than the maximum of any limit, and exact in a float64.
const aboveAnyLimit = 1 << 53
