package suggest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// never is the need of a key that every limit denies.
const never = math.MaxInt64

// maxFunnel is the largest maximum of a funnel whose capacity is its maximum.
const maxFunnel = 1<<32 - 1

// A cell is an algorithm with a window: a limit without its maximum.
type cell struct {
	spec       limiters.Spec
	unit       descriptors.Unit
	multiplier uint32
	own        *descriptors.RateLimit // the limit of the rule with this algorithm and window, or nil
	most       int64                  // the largest maximum
	peekOver   bool                   // a peek is denied only over the limit
	id         string                 // see [limiters.Limit.ID]
	meter      *limiters.Limit        // the limit with the largest maximum; nil for a funnel
}

// newCell returns the cell of a spec. Its penalty, reservation and capacity are left out.
func newCell(spec limiters.Spec, unit descriptors.Unit, multiplier uint32) (*cell, error) {
	spec.Params.Capacity, spec.Params.Penalty, spec.Params.Reserve = 0, limiters.PenaltySpec{}, limiters.ReserveSpec{}
	c := &cell{spec: spec, unit: unit, multiplier: multiplier, most: limiters.MaxPerWindow}
	switch spec.Algorithm {
	case "sliding_log":
		c.most = limiters.LogMax
	case "funnel":
		c.most = maxFunnel
	}
	largest, err := c.limit(c.most)
	if err != nil {
		return nil, err
	}
	c.id = largest.ID()
	if spec.Algorithm != "funnel" {
		c.meter = largest
	}
	one, err := c.limit(1)
	if err != nil {
		return nil, err
	}
	full, now := newRun(one), int64(1e15)
	full.decide(now, 1)
	c.peekOver = full.decide(now, 0).Allowed
	return c, nil
}

func (c *cell) length() time.Duration { return c.unit.Duration() * time.Duration(c.multiplier) }

// limit returns the limit of the cell with a maximum.
func (c *cell) limit(maximum int64) (*limiters.Limit, error) {
	l, err := descriptors.NewRateLimit(c.spec, maximum, c.unit, c.multiplier)
	return l.Limit, err
}

// need returns the smallest maximum that denies no request of a key, or never.
func (c *cell) need(s *series, meter *run) int64 {
	need := int64(0)
	if c.meter == nil {
		need = c.needOfFunnel(s)
	} else {
		need = c.needByMeter(s, meter)
	}
	if need > c.most {
		return never
	}
	return need
}

// needByMeter decides the requests under the largest maximum. As long as none is denied, the usage does not depend on the maximum.
func (c *cell) needByMeter(s *series, r *run) (need int64) {
	r.reset()
	for at := s.cursor(); at.next(); {
		v := r.decide(at.at, at.hits)
		if !v.Allowed {
			return never
		}
		need = max(need, c.needOf(at.hits, v.Used))
	}
	return need
}

// needOf returns the smallest maximum that admits hits after which the usage is used.
func (c *cell) needOf(hits, used int64) int64 {
	switch {
	case hits < 0:
		return 0
	case hits > 0:
		return used
	case c.peekOver:
		return max(1, used)
	}
	return used + 1
}

func (c *cell) needOfFunnel(s *series) (need int64) {
	h := hull{window: c.length().Microseconds()}
	for at := s.cursor(); at.next(); {
		switch n := at.hits; {
		case n > c.most:
			return never
		case n > 0:
			need = max(need, h.charge(at.at, n))
		case n < 0:
			h.refund(-n)
		case c.peekOver:
			need = max(need, 1, h.need(at.at, h.sum))
		default:
			need = max(need, 1, h.need(at.at, h.sum+1))
		}
	}
	return need
}

// A run decides the requests of one key under one limit.
type run struct {
	state   []limiters.State
	index   []int
	groups  []limiters.Group
	verdict []limiters.Verdict
}

func newRun(l *limiters.Limit) *run {
	return &run{
		state: make([]limiters.State, 1), index: make([]int, 1), verdict: make([]limiters.Verdict, 1),
		groups: limiters.Singles(limiters.Hit{Limit: l}),
	}
}

func (r *run) decide(at, hits int64) limiters.Verdict {
	r.groups[0][0].N = hits
	limiters.Decide(at, r.groups, r.index, r.state, r.verdict)
	return r.verdict[0]
}

func (r *run) reset() { r.state[0] = limiters.State{} }

// denied returns how many requests of a key the limit denies.
func (r *run) denied(s *series) (n int64) {
	r.reset()
	for at := s.cursor(); at.next(); {
		if !r.decide(at.at, at.hits).Allowed {
			n++
		}
	}
	return n
}

// A window is the cells of one window.
type window struct {
	unit       descriptors.Unit
	multiplier uint32
	cells      []*cell
}

// windowsOf returns the windows for a target: a second, a minute, an hour and a day, and those of the rule, with each algorithm. Where
// the rule has a limit, the cell has its settings.
func windowsOf(limits []descriptors.RateLimit) ([]window, error) {
	all := []window{{descriptors.Second, 1, nil}, {descriptors.Minute, 1, nil}, {descriptors.Hour, 1, nil}, {descriptors.Day, 1, nil}}
	var own []*cell
	for i := range limits {
		l := &limits[i]
		c, err := newCell(l.Limit.Spec(), l.Unit, l.UnitMultiplier)
		if err != nil {
			return nil, err
		}
		c.own = l
		own = append(own, c)
		if !slices.ContainsFunc(all, func(w window) bool { return w.unit == l.Unit && w.multiplier == l.UnitMultiplier }) {
			all = append(all, window{l.Unit, l.UnitMultiplier, nil})
		}
	}
	for i := range all {
		w := &all[i]
		for _, algorithm := range []string{"fixed_window", "sliding_log", "funnel"} {
			n := len(w.cells)
			for _, c := range own {
				if c.spec.Algorithm == algorithm && c.unit == w.unit && c.multiplier == w.multiplier {
					w.cells = append(w.cells, c)
				}
			}
			if len(w.cells) > n {
				continue
			}
			c, err := newCell(limiters.Spec{Algorithm: algorithm, CountDenied: limiters.CountsDeniedByDefault(algorithm)}, w.unit, w.multiplier)
			if err != nil {
				return nil, err
			}
			w.cells = append(w.cells, c)
		}
	}
	slices.SortStableFunc(all, func(a, b window) int { return cmp.Compare(a.length(), b.length()) })
	return all, nil
}

func (w *window) length() time.Duration { return w.unit.Duration() * time.Duration(w.multiplier) }

// meterParams returns the settings of the rule that the cell keeps.
func (c *cell) meterParams() limiters.Params {
	l, err := c.limit(1)
	if err != nil {
		return limiters.Params{}
	}
	return l.Spec().Params
}
