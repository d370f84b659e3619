package limiters

// A leaseStep is the effect of an allowed hit on its lease.
type leaseStep uint8

const (
	leaseNone  leaseStep = iota // the hit has no lease, or is a peek or a refund
	leaseOpens                  // the hit opens a lease
	leaseHeld                   // the id has a lease already, so nothing changes
	leaseEnded                  // the end arrived first: no lease, and a reservation is charged its actual cost
)

// step returns the effect of h on its lease. Expired leases must have been removed from s.
func (h *Hit) step(s *State, now int64) leaseStep {
	if !h.Limit.HasLeases() || h.Lease == (LeaseID{}) || h.N < 0 || h.N == 0 && h.Limit.reserver == nil {
		return leaseNone
	}
	if s.holds(h.Lease) {
		return leaseHeld
	}
	if s.Parts != nil {
		if ended, found := s.Parts.Leases.ended.get(h.Lease); found && ended.expires > now {
			return leaseEnded
		}
	}
	return leaseOpens
}

func (s *State) holds(id LeaseID) bool {
	if s.Parts == nil {
		return false
	}
	_, held := s.Parts.Leases.open.get(id)
	return held
}

func (s *State) openLeases() int {
	if s.Parts == nil {
		return 0
	}
	return s.Parts.Leases.open.len()
}

// expireLeases removes the expired lease of h and up to [leasesPerHit] others, the earliest first. It settles expired reservations to 0
// if the limit releases them. It shortens expiries beyond now plus the TTL, which stem from a clock that stepped back or a shortened TTL.
func (h *Hit) expireLeases(s *State, now int64) {
	l := h.Limit
	if s.Parts == nil || !l.HasLeases() {
		return
	}
	leases := &s.Parts.Leases
	if l.slots != nil && leases.latest() <= now {
		*leases = Leases{} // the key has fully reset
	}
	var lapsed []correction
	for range leasesPerHit {
		r, expired := leases.open.popExpired(now)
		if !expired {
			break
		}
		lapsed = append(lapsed, correction{r.at, -r.n})
	}
	if r, found := leases.open.get(h.Lease); found && r.expires <= now {
		leases.open.remove(h.Lease)
		lapsed = append(lapsed, correction{r.at, -r.n})
	}
	if l.releases && len(lapsed) > 0 {
		s.setCore(l.reserver.settle(s.core(), now, lapsed))
	}
	for range leasesPerHit {
		if _, expired := leases.ended.popExpired(now); !expired {
			break
		}
	}
	leases.open.shorten(now+l.ttl, leasesPerHit)
	s.removeEmptyParts()
}

// take charges an allowed hit and opens its lease.
func (h *Hit) take(s *State, now int64) {
	l, n := h.Limit, ClampHits(h.N)
	switch h.step(s, now) {
	case leaseNone:
		if n != 0 && l.counter != nil {
			s.charge(l, now, n)
		}
	case leaseHeld:
	case leaseEnded:
		ended, _ := s.Parts.Leases.ended.remove(h.Lease)
		s.removeEmptyParts()
		if ended.n > 0 && l.counter != nil {
			s.charge(l, now, ended.n)
		}
	case leaseOpens:
		opened := lease{expires: now + l.ttl, n: n}
		if l.reserver != nil {
			reserved, at := l.reserver.reserve(s.core(), now, n)
			s.setCore(reserved)
			opened.at = at
		}
		s.parts().Leases.open.put(h.Lease, opened)
	}
}

// end ends the lease of h or settles its reservation. It remembers the end of an unknown id, because its take may arrive later.
func (h *Hit) end(s *State, now int64) {
	l := h.Limit
	h.expireLeases(s, now)
	if !l.HasLeases() || h.Lease == (LeaseID{}) {
		return
	}
	actual := int64(0)
	if l.reserver != nil {
		actual = max(0, ClampHits(h.N))
	}
	leases := &s.parts().Leases
	r, held := leases.open.remove(h.Lease)
	switch {
	case !held:
		leases.remember(h.Lease, lease{expires: now + EndedTTL.Microseconds(), n: actual})
	case l.reserver != nil:
		s.setCore(l.reserver.settle(s.core(), now, []correction{{r.at, actual - r.n}}))
	}
	s.removeEmptyParts()
}

// remember records the end of an id, replacing an earlier one. It does nothing if [MaxLeases] ids are remembered.
func (ls *Leases) remember(id LeaseID, l lease) {
	if _, known := ls.ended.get(id); known || ls.ended.len() < MaxLeases {
		ls.ended.put(id, l)
	}
}

func (s *State) parts() *Parts {
	if s.Parts == nil {
		s.Parts = &Parts{}
	}
	return s.Parts
}

// removeEmptyParts makes a state whose parts are empty equal to one that never had any.
func (s *State) removeEmptyParts() {
	if s.Parts != nil && s.Parts.isEmpty() {
		s.Parts = nil
	}
}
