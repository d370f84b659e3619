package suggest

import (
	"math"
	"math/bits"
	"sort"
)

// A hull finds the smallest funnel that denies no request of a key. A funnel of N hits in a window
// W holds N hits, and N hits leak in W. It admits a request at time t if the following holds for
// every earlier request at time s. The hits from s to t, both included, are at most N + N·(t -
// s)/W. So the smallest N is the maximum of hits·W/(W + t - s) over all pairs of s and t, rounded
// up.
//
// If y is the sum of all hits so far, each pair gives a slope: from (s, the sum before s) to (t +
// W, the sum after t). Only points on the lower convex hull of the points to the left can give the
// largest slope, and a binary search finds it. The hull of a key usually has about ten points.
//
// A refund lowers the sum. The level of a funnel is never negative, so the next request starts at a
// lower point.
type hull struct {
	window int64 // in µs
	points []point
	sum    int64
}

type point struct{ x, y int64 }

// charge adds n > 0 hits and returns the smallest N under which they are admitted.
func (h *hull) charge(t, n int64) int64 {
	h.push(point{t, h.sum})
	h.sum += n
	return h.need(t, h.sum)
}

// refund takes n > 0 hits back.
func (h *hull) refund(n int64) {
	if len(h.points) == 0 || n >= h.sum-h.points[0].y {
		// The funnel is empty for every N.
		h.points, h.sum = h.points[:0], 0
		return
	}
	h.sum -= n
	for h.points[len(h.points)-1].y >= h.sum {
		h.points = h.points[:len(h.points)-1]
	}
}

// push adds a point to the right of all others. Along the points both coordinates increase, and so
// do the slopes between neighbors.
func (h *hull) push(c point) {
	n := len(h.points)
	if n > 0 && h.points[n-1].x == c.x {
		return // the last point is lower, and so gives the larger slope
	}
	for ; n >= 2 && !isBelow(h.points[n-2], h.points[n-1], c); n-- {
	}
	h.points = append(h.points[:n], c)
}

// isBelow reports whether b is below the line from a to c.
func isBelow(a, b, c point) bool {
	return less128(b.y-a.y, c.x-a.x, c.y-a.y, b.x-a.x)
}

// need returns the smallest N for which the funnel holds at most N hits, when the sum of all hits
// is y.
func (h *hull) need(t, y int64) int64 {
	n := len(h.points)
	if n == 0 {
		return 0
	}
	x := t + h.window
	best := h.points[sort.Search(n-1, func(i int) bool {
		p, next := h.points[i], h.points[i+1]
		return less128(y-next.y, x-p.x, y-p.y, x-next.x) // p gives the larger slope
	})]
	hi, lo := bits.Mul64(uint64(y-best.y), uint64(h.window))
	den := uint64(x - best.x)
	if hi >= den {
		return math.MaxInt64
	}
	quotient, rest := bits.Div64(hi, lo, den)
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// less128 reports whether a·b is less than c·d. All are at least 0.
func less128(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}
