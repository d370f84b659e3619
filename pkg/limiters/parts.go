package limiters

import (
	"time"
	"unsafe"
)

// Parts are the optional parts of a [State]: its penalty and its leases. They are modified in place.
type Parts struct {
	Penalty Penalty
	Leases  Leases
}

const partsSize = int(unsafe.Sizeof(Parts{}))

func (p *Parts) isEmpty() bool { return p.Penalty == Penalty{} && p.Leases.isEmpty() }

// expires returns when limit l no longer needs p, in µs since 1970.
func (p *Parts) expires(l *Limit) int64 {
	expires := p.Leases.latest()
	if l.penalty == nil {
		return max(expires, p.Penalty.Until)
	}
	return max(expires, l.penalty.resetTime(p.Penalty))
}

func (p *Parts) size() int { return partsSize + p.Leases.size() }

// HasParts reports whether l uses the Parts of a State. Other limits ignore them.
func (l *Limit) HasParts() bool { return l.hasParts }

// HasLeases reports whether hits under l have a [LeaseID]: the algorithm is concurrency, or the limit reserves.
func (l *Limit) HasLeases() bool { return l.hasLeases }

// IsConcurrency reports whether l bounds the slots held at one time: its leases are its whole state, and it has no window.
func (l *Limit) IsConcurrency() bool { return l.slots != nil }

// TakesLease reports whether h may open a lease or a reservation. A hit of 0 is a peek under concurrency, and elsewhere a
// reservation with an estimate of 0.
func (h *Hit) TakesLease() bool {
	return h.Limit.HasLeases() && h.Lease != LeaseID{} && !h.End && (h.N > 0 || h.N == 0 && !h.Limit.IsConcurrency())
}

// LeaseTTL returns the TTL of a lease or reservation under l; 0 if l has none.
func (l *Limit) LeaseTTL() time.Duration { return micros(l.ttl) }

func (g Group) hasParts() bool {
	for i := range g {
		if g[i].Limit.HasParts() {
			return true
		}
	}
	return false
}

// decideParts is [Decide] for a group in which a limit has parts. It checks all hits before it charges any.
func decideParts(now int64, g Group, stateIndex []int, states []State, out []Verdict) {
	if len(g) == 1 && g[0].End {
		if stateIndex[0] >= 0 {
			s := &states[stateIndex[0]]
			g[0].end(s, now)
			out[0] = verdict(now, g[0].Limit, s, true, 0)
		}
		return
	}
	p := partsGroup{now, g, stateIndex, states, out}
	if p.check() {
		p.charge()
	} else {
		p.deny()
	}
}

// A partsGroup is a group being decided.
type partsGroup struct {
	now        int64
	g          Group
	stateIndex []int
	states     []State
	out        []Verdict
}

// state returns the state of hit i; nil if the hit cannot be decided.
func (p *partsGroup) state(i int) *State {
	if p.stateIndex[i] < 0 {
		return nil
	}
	return &p.states[p.stateIndex[i]]
}

// check sets Allowed and TooManyLeases of each verdict. It reports whether all hits are allowed.
func (p *partsGroup) check() bool {
	for i := range p.g {
		if p.stateIndex[i] >= 0 {
			p.out[i] = Verdict{}
			p.g[i].expireLeases(&p.states[p.stateIndex[i]], p.now)
		}
	}
	all := true
	for i := range p.g {
		if s := p.state(i); s != nil {
			p.out[i].Allowed, p.out[i].TooManyLeases = p.checkHit(i, s)
		}
		all = all && p.out[i].Allowed && p.stateIndex[i] >= 0
	}
	return all
}

func (p *partsGroup) checkHit(i int, s *State) (ok, tooMany bool) {
	h := &p.g[i]
	step := h.step(s, p.now)
	switch {
	case h.N < 0:
		return true, false
	case h.Limit.penaltyWait(s, p.now) > 0:
		return false, false
	case step == leaseHeld:
		return true, false
	}
	sum, opens := p.sums(i)
	ok, _ = h.Limit.fits(s, p.now, sum)
	tooMany = ok && step == leaseOpens && s.openLeases()+opens > MaxLeases
	return ok && !tooMany, tooMany
}

// sums returns how many hits the group would charge to the key of hit i, and how many leases it would open.
func (p *partsGroup) sums(i int) (sum int64, opens int) {
	s := &p.states[p.stateIndex[i]]
	for j := range p.g {
		if p.stateIndex[j] != p.stateIndex[i] {
			continue
		}
		step := p.g[j].step(s, p.now)
		if step != leaseHeld && p.g[j].N > 0 {
			sum = min(sum+ClampHits(p.g[j].N), MaxHits)
		}
		if step == leaseOpens {
			opens++
		}
	}
	return sum, opens
}

// charge charges an allowed group. Each verdict shows the state after its own hit.
func (p *partsGroup) charge() {
	for i := range p.g {
		s := p.state(i)
		p.g[i].take(s, p.now)
		p.out[i] = verdict(p.now, p.g[i].Limit, s, true, 0)
	}
}

// deny charges the denied hits whose limit counts them, records offences, and completes the verdicts.
func (p *partsGroup) deny() {
	for i := range p.g {
		h, s := &p.g[i], p.state(i)
		if s == nil || p.out[i].Allowed || h.Limit.penaltyWait(s, p.now) > 0 {
			continue
		}
		if counted := h.Limit.countedIfDenied(ClampHits(h.N)); counted > 0 {
			s.charge(h.Limit, p.now, counted)
		}
	}
	for i := range p.g {
		if p.isFirstOffence(i) {
			p.out[i].PenaltyBegan = p.state(i).offend(p.g[i].Limit.penalty, p.now)
		}
	}
	for i := range p.g {
		s, l := p.state(i), p.g[i].Limit
		switch {
		case s == nil:
		case p.out[i].Allowed:
			p.out[i] = verdict(p.now, l, s, true, 0)
		default:
			began := p.out[i].PenaltyBegan
			p.out[i] = l.orPenalty(p.denial(i, s), s, p.now)
			p.out[i].PenaltyBegan = began && p.out[i].Penalized
		}
	}
}

// denial returns the verdict of the denied hit i without its penalty.
func (p *partsGroup) denial(i int, s *State) Verdict {
	l := p.g[i].Limit
	if p.out[i].TooManyLeases {
		v := verdict(p.now, l, s, false, max(1, min(s.Parts.Leases.open.earliest()-p.now, l.ttl, maxLeaseRetry)))
		v.TooManyLeases = true
		return v
	}
	sum, _ := p.sums(i)
	_, retry := l.fits(s, p.now, sum)
	return verdict(p.now, l, s, false, retry)
}

// isFirstOffence reports whether hit i is the first offence of the group on its key.
func (p *partsGroup) isFirstOffence(i int) bool {
	for j := range i + 1 {
		if p.stateIndex[j] == p.stateIndex[i] && p.state(j) != nil && !p.out[j].Allowed && p.g[j].Limit.HasPenalty() {
			return j == i
		}
	}
	return false
}

// wouldWriteParts is [Hit.WouldCharge] for a limit with parts.
func (h *Hit) wouldWriteParts(s *State, now int64) bool {
	l, n := h.Limit, ClampHits(h.N)
	if h.End {
		return l.HasLeases() && h.Lease != LeaseID{} && !s.holds(h.Lease)
	}
	if n < 0 || h.step(s, now) == leaseHeld {
		return false
	}
	ok, _ := l.fits(s, now, n)
	if !ok && l.HasPenalty() {
		return true
	}
	if l.spec.Max == 0 {
		return false
	}
	if !ok {
		return l.spec.CountDenied && n > 0
	}
	return n > 0 || h.step(s, now) == leaseOpens
}
