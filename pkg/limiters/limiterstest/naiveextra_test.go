package limiterstest

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A naiveLeases is a list of leases, and the model of the algorithm that they charge.
type naiveLeases struct {
	counter        hitCounter
	ttl            int64
	reserves       bool
	refundsExpired bool // what expires is settled to 0
	open, ended    []naiveLease
}

type naiveLease struct {
	id         limiters.LeaseID
	expires, n int64
	chargedAt  int64
}

// A hitCounter is a model whose charges can be corrected.
type hitCounter interface {
	model
	fits(now, n int64) limiters.Verdict // as take, and charges nothing
	time(now int64) int64               // identifies a charge at now
	charge(now, n int64)                // whether or not it fits
	settle(now, at, change int64)       // changes the charge that at identifies
}

func (m *naiveLeases) take(now int64, op limiters.Op) limiters.Verdict {
	m.expire(now, op.Lease)
	is := func(l naiveLease) bool { return l.id == op.Lease }
	open, ended := slices.IndexFunc(m.open, is), slices.IndexFunc(m.ended, is)
	n, none := clamp(op.Hits), op.Lease == limiters.LeaseID{}
	switch {
	case op.Kind == limiters.OpEnd && none:
	case op.Kind == limiters.OpEnd && open >= 0:
		l := m.open[open]
		m.open = slices.Delete(m.open, open, open+1)
		m.counter.settle(now, l.chargedAt, max(0, n)-l.n)
	case op.Kind == limiters.OpEnd:
		m.ended = append(slices.DeleteFunc(m.ended, is),
			naiveLease{id: op.Lease, expires: now + limiters.EndedTTL.Microseconds(), n: max(0, n)})
	case none || n < 0 || n == 0 && !m.reserves:
		return m.counter.take(now, op.Hits, 0)
	case open >= 0:
	default:
		if v := m.counter.fits(now, n); !v.Allowed {
			return v
		}
		if ended < 0 {
			m.open = append(m.open, naiveLease{op.Lease, now + m.ttl, n, m.counter.time(now)})
			m.counter.charge(now, n)
			break
		}
		if actual := m.ended[ended].n; actual > 0 {
			m.counter.charge(now, actual)
		}
		m.ended = slices.Delete(m.ended, ended, ended+1)
	}
	v := m.counter.fits(now, 0)
	v.Allowed, v.RetryAfter, v.LeaseAlreadyOpen = true, 0, open >= 0 && op.Kind == limiters.OpAddHits
	return v
}

// expire removes the first limiters.LeasesPerOp expired leases and the one of id. A key of leases
// alone is empty once all has expired.
func (m *naiveLeases) expire(now int64, id limiters.LeaseID) {
	expired := func(l naiveLease) bool { return l.expires <= now }
	isOver := !m.reserves && !slices.ContainsFunc(slices.Concat(m.open, m.ended), func(l naiveLease) bool { return !expired(l) })
	slices.SortFunc(m.open, func(a, b naiveLease) int {
		return cmp.Or(cmp.Compare(a.expires, b.expires), bytes.Compare(a.id[:], b.id[:]))
	})
	var remaining []naiveLease
	for i, l := range m.open {
		switch {
		case !expired(l):
			l.expires = min(l.expires, now+m.ttl)
			remaining = append(remaining, l)
		case i >= limiters.LeasesPerOp && l.id != id && !isOver:
			remaining = append(remaining, l)
		case m.refundsExpired:
			m.counter.settle(now, l.chargedAt, -l.n)
		}
	}
	m.open = remaining
	m.ended = slices.DeleteFunc(m.ended, expired)
}

// A naiveSlots is concurrency: it counts the open leases.
type naiveSlots struct {
	limiters.Spec
	leases *naiveLeases
}

func (s *naiveSlots) fits(now, n int64) limiters.Verdict { return s.take(now, n, 0) }

func (s *naiveSlots) take(now, n, _ int64) limiters.Verdict {
	n = clamp(n)
	slots, first, last := int64(0), int64(1_000_000), int64(0)
	for _, l := range s.leases.open {
		untilExpiry := max(1, min(l.expires-now, s.leases.ttl))
		slots, first, last = slots+l.n, min(first, untilExpiry), max(last, untilExpiry)
	}
	switch {
	case n < 0 || slots+max(n, 1) <= s.Max:
		return verdict(true, slots, s.Max, 0, last)
	case max(n, 1) > s.Max:
		first = -1
	}
	return verdict(false, slots, s.Max, first, last)
}

func (s *naiveSlots) time(int64) int64           { return 0 }
func (s *naiveSlots) charge(int64, int64)        {}
func (s *naiveSlots) settle(int64, int64, int64) {}

func (w *naiveWindow) fits(now, n int64) limiters.Verdict {
	copied := *w
	return copied.take(now, n, 0)
}

func (w *naiveWindow) time(now int64) int64 {
	start, _, open, at := w.current(now)
	if !open {
		return at
	}
	return start
}

func (w *naiveWindow) charge(now, n int64) {
	start := w.time(now)
	_, count, _, _ := w.current(now)
	w.open, w.start, w.count = true, start, min(count+n, limiters.MaxHits)
}

func (w *naiveWindow) settle(now, at, change int64) {
	start, count, open, _ := w.current(now)
	if open && start == at && change != 0 && (change > 0 || count > 0) {
		w.open, w.start, w.count = true, start, max(0, min(count+change, limiters.MaxHits))
	}
}

func (l *naiveLog) fits(now, n int64) limiters.Verdict {
	copied := naiveLog{l.Spec, slices.Clone(l.hits)}
	return copied.take(now, n, 0)
}

func (l *naiveLog) time(now int64) int64 {
	_, at := l.live(now)
	return at
}

func (l *naiveLog) charge(now, n int64) {
	if n == 0 {
		return
	}
	live, at := l.live(now)
	l.hits = slices.Clone(live)
	for range min(n, 2*l.Max) {
		l.hits = append(l.hits, at)
	}
	l.hits = l.hits[max(0, len(l.hits)-int(2*l.Max)):]
}

func (l *naiveLog) settle(now, at, change int64) {
	live, newest := l.live(now)
	window := l.Window.Microseconds()
	if at <= newest-window || at-window > now {
		return
	}
	live = slices.Clone(live)
	before := len(live)
	for ; change > 0 && int64(len(live)) < 2*l.Max; change-- {
		live = append(live, at)
	}
	slices.Sort(live)
	for ; change < 0 && slices.Contains(live, at); change++ {
		i := slices.Index(live, at)
		live = slices.Delete(live, i, i+1)
	}
	if len(live) != before {
		l.hits = live
	}
}

func (f *naiveFunnel) fits(now, n int64) limiters.Verdict {
	copied := *f
	copied.held = new(big.Rat).Set(f.held)
	return copied.take(now, n, 0)
}

func (f *naiveFunnel) time(int64) int64            { return 0 }
func (f *naiveFunnel) settle(now, _, change int64) { f.charge(now, change) }

func (f *naiveFunnel) charge(now, n int64) {
	held, at := f.level(now)
	if f.Max == 0 || n == 0 || n < 0 && held.Sign() == 0 {
		return
	}
	held.Add(held, new(big.Rat).SetInt64(n))
	if twice := new(big.Rat).SetInt64(2 * f.capacity); held.Cmp(twice) > 0 {
		held = twice
	}
	f.at, f.held = at, held
	if held.Sign() <= 0 {
		f.at, f.held = 0, new(big.Rat)
	}
}

func newNaiveLeases(s limiters.Spec) *naiveLeases {
	ttl := s.Params.Reserve.TTL
	m := &naiveLeases{reserves: ttl != 0}
	if s.Algorithm == "concurrency" {
		ttl = s.Params.LeaseTTL
		m.counter = &naiveSlots{s, m}
	} else {
		m.counter = naiveModels[s.Algorithm](s)
	}
	m.ttl, m.refundsExpired = ttl.Microseconds(), s.Params.Reserve.Unsettled == limiters.UnsettledRelease
	return m
}

func TestLeasesAgreeWithNaiveModels(t *testing.T) {
	for _, name := range limiters.Algorithms() {
		t.Run(name, func(t *testing.T) {
			agreeWithModels(t, name, 40_000, 120, NewLeaseGenerator, func(spec limiters.Spec) decideNaively { return newNaiveLeases(spec).take })
		})
	}
}
