package suggest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// windowed returns the algorithms whose limits have windows.
func windowed() []string {
	return slices.DeleteFunc(limiters.Algorithms(), func(name string) bool { return !limiters.HasWindow(name) })
}

// never is the need of a key that every limit denies.
const never = math.MaxInt64

// A variant is an algorithm with a window: a limit without its maximum.
type variant struct {
	spec       limiters.Spec
	window     *WindowReport
	configured *descriptors.RateLimit // the limit of the rule with this algorithm and window, or nil
	largestMax int64                  // the largest maximum
	peekOver   bool                   // a peek is denied only above the limit, not at it
	loosest    *limiters.Limit        // the limit with the maximum largestMax; nil if its usage depends on the maximum, as in a funnel
}

// newVariant returns the variant of a spec, without its penalty, reservation and capacity.
func newVariant(spec limiters.Spec, w *WindowReport) (*variant, error) {
	spec.Params.Capacity, spec.Params.Penalty, spec.Params.Reserve = 0, limiters.PenaltySpec{}, limiters.ReserveSpec{}
	v := &variant{spec: spec, window: w, largestMax: limiters.LargestMaxOf(spec.Algorithm)}
	loosest, err := v.limit(v.largestMax)
	if err != nil {
		return nil, err
	}
	v.peekOver = loosest.PeeksOver()
	if !loosest.Drains() {
		v.loosest = loosest
	}
	return v, nil
}

// limit returns the limit of the variant with a maximum.
func (v *variant) limit(maximum int64) (*limiters.Limit, error) {
	l, err := descriptors.NewRateLimit(v.spec, descriptors.Rate{Requests: maximum, Unit: v.window.unit, Multiplier: v.window.Multiplier})
	return l.Limit, err
}

// need returns the smallest maximum that denies no request of a key, or never. s is a store of the
// limit loosest.
func (v *variant) need(h *history, s *keyStore) int64 {
	need := int64(0)
	if v.loosest == nil {
		need = v.needOfFunnel(h)
	} else {
		need = v.needByCounting(h, s)
	}
	if need > v.largestMax {
		return never
	}
	return need
}

// needByCounting counts the requests under the limit loosest. Until a request is denied, the
// usage does not depend on the maximum.
func (v *variant) needByCounting(h *history, s *keyStore) (need int64) {
	s.reset()
	for at, hits := range h.requests() {
		verdict := s.take(at, hits)
		if !verdict.Allowed {
			return never
		}
		need = max(need, v.needOf(hits, verdict.Used))
	}
	return need
}

// needOf returns the smallest maximum that admits n hits, if the usage after them is used.
func (v *variant) needOf(hits, used int64) int64 {
	switch {
	case hits < 0:
		return 0
	case hits > 0:
		return used
	case v.peekOver:
		return max(1, used)
	}
	return used + 1
}

func (v *variant) needOfFunnel(h *history) (need int64) {
	backlog := hull{window: v.window.length.Microseconds()}
	for at, n := range h.requests() {
		switch {
		case n > v.largestMax:
			return never
		case n > 0:
			need = max(need, backlog.charge(at, n))
		case n < 0:
			backlog.refund(-n)
		case v.peekOver:
			need = max(need, 1, backlog.need(at, backlog.sum))
		default:
			need = max(need, 1, backlog.need(at, backlog.sum+1))
		}
	}
	return need
}

// A keyStore counts the requests of one key under one limit.
type keyStore struct {
	states  []*limiters.State
	groups  []limiters.Group
	verdict []limiters.Verdict
}

func newKeyStore(l *limiters.Limit) *keyStore {
	return &keyStore{
		states: []*limiters.State{{}}, verdict: make([]limiters.Verdict, 1),
		groups: limiters.Singles(limiters.Op{Limit: l}),
	}
}

func (s *keyStore) take(at, hits int64) limiters.Verdict {
	s.groups[0][0].Hits = hits
	limiters.Decide(at, s.groups, s.states, s.verdict, nil)
	return s.verdict[0]
}

func (s *keyStore) reset() { *s.states[0] = limiters.State{} }

// denied returns how many requests of a key the limit denies.
func (s *keyStore) denied(h *history) (n int64) {
	s.reset()
	for at, hits := range h.requests() {
		if !s.take(at, hits).Allowed {
			n++
		}
	}
	return n
}

// minRecordedWindow is the smallest fraction of a window that counts as a whole window, because a
// recording of an hour ends with its last request and so is slightly shorter.
const minRecordedWindow = 0.99

// windowsOf returns the windows for a target, each with every algorithm: a second, a minute, an
// hour, a day, and the windows of the rule. A variant takes the settings of the rule's limit with
// this window and algorithm.
func (c *Collector) windowsOf(limits []descriptors.RateLimit) ([]*WindowReport, error) {
	var all []*WindowReport
	window := func(unit descriptors.Unit, multiplier uint32) *WindowReport {
		for _, w := range all {
			if w.unit == unit && w.Multiplier == multiplier {
				return w
			}
		}
		length := unit.Duration() * time.Duration(multiplier)
		recorded := c.length().Seconds() / length.Seconds()
		w := &WindowReport{Unit: unit.String(), Multiplier: multiplier, Recorded: recorded, TooShort: recorded < minRecordedWindow, unit: unit, length: length}
		all = append(all, w)
		return w
	}
	for _, unit := range []descriptors.Unit{descriptors.Second, descriptors.Minute, descriptors.Hour, descriptors.Day} {
		window(unit, 1)
	}
	var configured []*variant
	for i := range limits {
		l := &limits[i]
		v, err := newVariant(l.Spec(), window(l.Unit, l.UnitMultiplier))
		if err != nil {
			return nil, err
		}
		v.configured = l
		configured = append(configured, v)
	}
	for _, w := range all {
		for _, algorithm := range windowed() {
			n := len(w.Algorithms)
			for _, v := range configured {
				if v.spec.Algorithm == algorithm && v.window == w {
					w.Algorithms = append(w.Algorithms, v.report())
				}
			}
			if len(w.Algorithms) > n {
				continue
			}
			v, err := newVariant(limiters.Spec{Algorithm: algorithm, CountDenied: limiters.CountsDeniedByDefault(algorithm)}, w)
			if err != nil {
				return nil, err
			}
			w.Algorithms = append(w.Algorithms, v.report())
		}
	}
	slices.SortStableFunc(all, func(a, b *WindowReport) int { return cmp.Compare(a.length, b.length) })
	return all, nil
}

// report returns the report of a variant without figures.
func (v *variant) report() *AlgorithmReport {
	a := &AlgorithmReport{Algorithm: v.spec.Algorithm, Settings: v.params().String(), Candidates: []LimitEffect{}, variant: v}
	if v.configured != nil {
		a.CurrentLimit = &v.configured.RequestsPerUnit
	}
	return a
}

// params returns the settings of the rule that the variant keeps.
func (v *variant) params() limiters.Params {
	l, err := v.limit(1)
	if err != nil {
		return limiters.Params{}
	}
	return l.Spec().Params
}
