package limiters

// A leaseStep is what the lease of a hit changes if the hit is allowed.
type leaseStep uint8

const (
	leaseNone  leaseStep = iota // the hit has no lease, or is a peek or a refund
	leaseOpens                  // the hit opens a lease
	leaseHeld                   // the id is held: nothing changes
	leaseEnded                  // the id ended before: the hit opens nothing
)

// step returns what the lease of h changes in s. Expired leases must have been dropped.
func (h *Hit) step(s *State) leaseStep {
	if !h.Limit.HasLeases() || h.Lease == (LeaseID{}) || h.N <= 0 {
		return leaseNone
	}
	if s.Parts != nil {
		if _, held := s.Parts.Leases.open.get(h.Lease); held {
			return leaseHeld
		}
		if _, ended := s.Parts.Leases.ended.get(h.Lease); ended {
			return leaseEnded
		}
	}
	return leaseOpens
}

// openLeases returns the number of open leases of s.
func (s *State) openLeases() int {
	if s.Parts == nil {
		return 0
	}
	return s.Parts.Leases.open.len()
}

// expireLeases drops what has expired at now.
func (l *Limit) expireLeases(s *State, now int64) {
	if s.Parts == nil || !l.HasLeases() {
		return
	}
	leases := &s.Parts.Leases
	for expired := true; expired; {
		_, expired = leases.open.popExpired(now)
	}
	for expired := true; expired; {
		_, expired = leases.ended.popExpired(now)
	}
	s.dropEmptyParts()
}

// take charges an allowed hit under a limit with or without parts.
func (h *Hit) take(s *State, now int64) {
	l, n := h.Limit, clampHits(h.N)
	switch h.step(s) {
	case leaseNone:
		if n != 0 {
			*s = l.algorithm.charge(*s, now, n)
		}
	case leaseHeld:
	case leaseEnded:
		s.Parts.Leases.ended.remove(h.Lease)
		s.dropEmptyParts()
	case leaseOpens:
		s.parts().Leases.open.put(h.Lease, lease{expires: now + l.ttl, n: n})
	}
}

// end ends the lease of h. The end of an unknown id is remembered, because its take may follow.
func (h *Hit) end(s *State, now int64) {
	l := h.Limit
	if !l.HasLeases() || h.Lease == (LeaseID{}) {
		return
	}
	l.expireLeases(s, now)
	leases := &s.parts().Leases
	if _, held := leases.open.remove(h.Lease); !held {
		leases.remember(h.Lease, lease{expires: now + EndedFor.Microseconds()})
	}
	s.dropEmptyParts()
}

// remember records that an id has ended. A second end of an id replaces the first. Beyond [MaxLeases] ids it does nothing.
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

// dropEmptyParts makes a state without parts equal to one that never had any.
func (s *State) dropEmptyParts() {
	if s.Parts != nil && s.Parts.isEmpty() {
		s.Parts = nil
	}
}
