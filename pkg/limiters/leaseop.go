package limiters

// mayOpenLease reports whether op may open a lease. A charge of 0 hits is a peek under concurrency,
// and elsewhere a reservation with an estimate of 0.
func (op *Op) mayOpenLease() bool {
	return op.Limit.UsesLeases() && !op.Lease.IsZero() && op.Kind == OpAddHits && (op.Hits > 0 || op.Hits == 0 && op.Limit.Reserves())
}

// A leaseEffect is the effect of an allowed operation on its lease.
type leaseEffect uint8

const (
	leaseNone        leaseEffect = iota // the operation has no lease, or is a peek or a refund
	leaseOpens                          // the operation opens a lease
	leaseAlreadyOpen                    // the id has a lease already, so nothing changes
	leaseEnded                          // the end arrived first: no lease, and a reservation is charged its actual cost
)

// leaseEffect returns the effect of op on its lease. op must not be an end.
func (op *Op) leaseEffect(s *State, now int64) leaseEffect {
	if !op.mayOpenLease() {
		return leaseNone
	}
	leases := &s.extraOrEmpty().leases
	if held, found := leases.open.byID[op.Lease]; found && held.expires > now {
		return leaseAlreadyOpen
	}
	if ended, found := leases.ended.byID[op.Lease]; found && ended.expires > now {
		return leaseEnded
	}
	return leaseOpens
}

// expireLeases removes the expired lease of op and up to [LeasesPerOp] others, the earliest first.
// It settles expired reservations to 0 if the limit releases them. It shortens expiries beyond now
// plus the TTL, which stem from a clock that stepped back or a shortened TTL.
func (op *Op) expireLeases(s *State, now int64) {
	l := op.Limit
	if s.Extra == nil || !l.UsesLeases() {
		return
	}
	leases := &s.Extra.leases
	if l.IsConcurrency() && leases.latest() <= now {
		*leases = keyLeases{} // the key has fully reset
	}
	var expired []correction
	for range LeasesPerOp {
		held, found := leases.open.popExpired(now)
		if !found {
			break
		}
		expired = append(expired, correction{held.chargedAt, -held.n})
	}
	if held, found := leases.open.byID[op.Lease]; found && held.expires <= now {
		leases.open.remove(op.Lease)
		expired = append(expired, correction{held.chargedAt, -held.n})
	}
	if l.refundsExpired && len(expired) > 0 {
		l.hits.settle(s, now, expired)
	}
	for range LeasesPerOp {
		if _, found := leases.ended.popExpired(now); !found {
			break
		}
	}
	leases.open.shorten(now+l.ttl, LeasesPerOp)
	s.removeEmptyExtraState()
}

// apply charges the hits of an allowed operation and opens its lease. It returns the effect on the
// lease.
func (op *Op) apply(s *State, now int64) leaseEffect {
	l, n := op.Limit, ClampHits(op.Hits)
	charged, effect := int64(0), op.leaseEffect(s, now)
	switch effect {
	case leaseNone:
		charged = n
	case leaseAlreadyOpen:
	case leaseEnded:
		ended, _ := s.ensureExtraState().leases.ended.remove(op.Lease)
		s.removeEmptyExtraState()
		charged = ended.n
	case leaseOpens:
		chargedAt := int64(0)
		if l.hits != nil {
			chargedAt = l.hits.reserve(s, now, n)
		}
		s.ensureExtraState().leases.open.set(op.Lease, lease{expires: now + l.ttl, n: n, chargedAt: chargedAt})
	}
	if charged != 0 && l.hits != nil {
		l.hits.charge(s, now, charged)
	}
	return effect
}

// endLease ends the open lease of op, and settles a reservation. It returns false if there is none.
func (op *Op) endLease(s *State, now int64) (found bool) {
	held, found := s.extraOrEmpty().leases.open.remove(op.Lease)
	if found && op.Limit.Reserves() {
		op.Limit.hits.settle(s, now, []correction{{held.chargedAt, max(0, ClampHits(op.Hits)) - held.n}})
	}
	s.removeEmptyExtraState()
	return found
}

// rememberEnd records that the lease of op, which is not open, has ended. It replaces an earlier
// record, and does nothing if [MaxLeases] ids are remembered.
func (op *Op) rememberEnd(s *State, now int64) {
	leases := &s.ensureExtraState().leases
	if _, known := leases.ended.byID[op.Lease]; known || leases.ended.len() < MaxLeases {
		leases.ended.set(op.Lease, lease{expires: now + EndedTTL.Microseconds(), n: max(0, ClampHits(op.Hits))})
	}
}
