package limiters

// Check returns the verdict on n hits at now, in µs since 1970, without charging them.
func (l *Limit) Check(s *State, now, n int64) Verdict {
	ok, retryAfter := l.fits(s, now, max(0, ClampHits(n)))
	return l.verdict(s, now, ok, retryAfter).WithPenalty(l.penaltyLeft(s, now))
}

// Denies reports whether l denies a hit at now, in µs since 1970: because of its usage, a penalty,
// or as many open reservations as a key may have.
func (l *Limit) Denies(s *State, now int64) bool {
	return !l.Check(s, now, 1).Allowed || l.Reserves() && s.extraOrEmpty().leases.open.len() >= MaxLeases
}

// DecideWithoutMemory returns the verdict on op at now, in µs since 1970, for a store without
// memory for its result: nothing is charged, and an end is not remembered. It removes expired
// leases of s, as every decision does.
func (op *Op) DecideWithoutMemory(s *State, now int64) Verdict {
	op.expireLeases(s, now)
	if op.Kind == OpEnd {
		return op.Limit.allowedVerdict(s, now) // no penalty denies an end
	}
	return op.Limit.Check(s, now, op.checkedHits())
}

// checkedHits returns how many hits must fit for op to be allowed; 0 for a peek.
func (op *Op) checkedHits() int64 {
	if op.Kind == OpCountDenied {
		return 0
	}
	return ClampHits(op.N)
}

// NeedsMemory reports whether s may need more memory after Decide has decided op at now, in µs since
// 1970. For the end of an open reservation, it returns false even if the actual cost exceeds the
// estimate, because an end must not fail for lack of memory.
//
// NeedsMemory must change together with checkOp, charge and deny. It does not decide on a copy of s,
// because that would copy the log and all leases of the key.
func (op *Op) NeedsMemory(s *State, now int64) bool {
	l, n := op.Limit, op.checkedHits()
	switch {
	case op.Kind == OpEnd:
		return !op.Lease.IsZero() && !s.hasOpenLease(op.Lease)
	case op.Kind == OpInspect || n < 0:
		return false
	}
	effect := op.leaseEffect(s, now)
	if effect == leaseAlreadyOpen {
		return false
	}
	growsIfAllowed := n > 0 || effect != leaseNone
	if fits, _ := l.fits(s, now, n); fits {
		return growsIfAllowed
	}
	if l.HasPenalty() || l.countedIfDenied(op.N) > 0 {
		return true
	}
	// The decision first removes expired leases, so the hits may fit then.
	mayFit := l.UsesLeases() && l.spec.Max > 0 && s.hasExpiredLease(now)
	return mayFit && growsIfAllowed
}

// Decide decides groups in order at now, in µs since 1970, and writes their verdicts to out: it is
// a [Store] without storage. Operations, stateIndex and out are indexed across all groups.
// Operation i uses states[stateIndex[i]], and operations on one key share a state. If stateIndex[i]
// is negative, operation i cannot be decided: its verdict is unchanged, and it denies its group.
// Decide allocates only for sliding logs, leases and penalties.
func Decide(now int64, groups []Group, stateIndex []int, states []State, out []Verdict) {
	for _, g := range groups {
		if len(g) == 1 && !g[0].Limit.UsesExtraState() && g[0].Kind != OpInspect {
			if stateIndex[0] >= 0 {
				decideSingle(now, &g[0], &states[stateIndex[0]], &out[0])
			}
		} else {
			d := groupDecision{now, g, stateIndex, states, out}
			d.decide()
		}
		stateIndex, out = stateIndex[len(g):], out[len(g):]
	}
}

// decideSingle decides an ungrouped operation under a limit without extra state. Most operations
// are of this kind, and groupDecision would use a third more CPU for a Take in memory.
func decideSingle(now int64, op *Op, s *State, v *Verdict) {
	l, n := op.Limit, op.checkedHits()
	ok, retryAfter := l.fits(s, now, n)
	if ok {
		if n != 0 {
			l.hits.charge(s, now, n)
		}
	} else if counted := l.countedIfDenied(ClampHits(op.N)); counted > 0 {
		l.hits.charge(s, now, counted)
		// The retry-after must include the hits that were just added.
		_, retryAfter = l.fits(s, now, n)
	}
	*v = l.verdict(s, now, ok, retryAfter)
}

// fits reports whether n hits fit at now, and otherwise the wait until they would. A refund always
// fits. A peek fits if one more hit would, or with peek=over if the usage is within the limit.
func (l *Limit) fits(s *State, now, n int64) (ok bool, retryAfter int64) {
	if n < 0 {
		return true, 0
	}
	if n == 0 && !l.peekOver {
		n = 1
	}
	return l.algorithm.fits(s, now, n)
}

// countedIfDenied returns how many of n hits are charged although they are denied.
func (l *Limit) countedIfDenied(n int64) int64 {
	if !l.CountsDenied() {
		return 0
	}
	return max(0, n)
}

// A groupDecision decides any group. Its fields are the arguments of [Decide] for this group.
type groupDecision struct {
	now        int64
	group      Group
	stateIndex []int
	states     []State
	out        []Verdict
}

// decide checks all operations of the group before it charges any.
func (d *groupDecision) decide() {
	switch {
	case d.group[0].Kind == OpInspect:
		d.inspect()
	case len(d.group) == 1 && d.group[0].Kind == OpEnd:
		d.end()
	case d.check():
		d.charge()
	default:
		d.deny()
	}
}

// inspect decides a group of inspections.
func (d *groupDecision) inspect() {
	for i := range d.group {
		if op, s := &d.group[i], d.state(i); s != nil {
			op.expireLeases(s, d.now)
			d.out[i] = op.Limit.Check(s, d.now, 1)
			d.out[i].PenaltyLeft = op.Limit.penaltyLeft(s, d.now)
		}
	}
}

// end decides a group of one end.
func (d *groupDecision) end() {
	if s := d.state(0); s != nil {
		d.group[0].end(s, d.now)
		d.out[0] = d.group[0].Limit.allowedVerdict(s, d.now)
	}
}

// state returns the state of operation i; nil if it cannot be decided.
func (d *groupDecision) state(i int) *State {
	if d.stateIndex[i] < 0 {
		return nil
	}
	return &d.states[d.stateIndex[i]]
}

// check sets Allowed and TooManyLeases of each verdict. It reports whether all operations are
// allowed.
func (d *groupDecision) check() bool {
	for i := range d.group {
		if s := d.state(i); s != nil {
			d.out[i] = Verdict{}
			d.group[i].expireLeases(s, d.now)
		}
	}
	allowed := true
	for i := range d.group {
		if s := d.state(i); s != nil {
			d.out[i].Allowed, d.out[i].TooManyLeases = d.checkOp(i, s)
		}
		allowed = allowed && d.out[i].Allowed && d.stateIndex[i] >= 0
	}
	return allowed
}

// checkOp checks operation i. If it changes, NeedsMemory must change too.
func (d *groupDecision) checkOp(i int, s *State) (ok, tooMany bool) {
	op := &d.group[i]
	effect := op.leaseEffect(s, d.now)
	switch {
	case op.N < 0:
		return true, false
	case op.Limit.penaltyLeft(s, d.now) > 0:
		return false, false
	case effect == leaseAlreadyOpen:
		return true, false
	}
	sum, opens := d.sums(i)
	ok, _ = op.Limit.fits(s, d.now, sum)
	tooMany = ok && effect == leaseOpens && s.extraOrEmpty().leases.open.len()+opens > MaxLeases
	return ok && !tooMany, tooMany
}

// sums returns how many hits the group would charge to the key of operation i, and how many leases
// it would open.
func (d *groupDecision) sums(i int) (sum int64, opens int) {
	s := d.state(i)
	for j := range d.group {
		if d.stateIndex[j] != d.stateIndex[i] {
			continue
		}
		effect := d.group[j].leaseEffect(s, d.now)
		if effect != leaseAlreadyOpen && d.group[j].N > 0 {
			sum = min(sum+ClampHits(d.group[j].N), MaxHits)
		}
		if effect == leaseOpens {
			opens++
		}
	}
	return sum, opens
}

// charge charges an allowed group. Each verdict shows the state after its own operation.
func (d *groupDecision) charge() {
	for i := range d.group {
		s := d.state(i)
		d.group[i].apply(s, d.now)
		d.out[i] = d.group[i].Limit.allowedVerdict(s, d.now)
	}
}

// deny charges the denied hits whose limit counts them, records offences, and completes the
// verdicts.
func (d *groupDecision) deny() {
	for i := range d.group {
		op, s := &d.group[i], d.state(i)
		if s == nil || d.out[i].Allowed || op.Limit.penaltyLeft(s, d.now) > 0 {
			continue
		}
		if counted := op.Limit.countedIfDenied(ClampHits(op.N)); counted > 0 {
			op.Limit.hits.charge(s, d.now, counted)
		}
	}
	for i := range d.group {
		s, l := d.state(i), d.group[i].Limit
		switch {
		case s == nil:
		case d.out[i].Allowed:
			d.out[i] = l.allowedVerdict(s, d.now)
		default:
			began := d.isFirstOffence(i) && s.ensureExtraState().penalty.addOffence(l.penalty, d.now)
			d.out[i] = d.denial(i, s).WithPenalty(l.penaltyLeft(s, d.now))
			d.out[i].PenaltyBegan = began && d.out[i].Penalized
		}
	}
}

// denial returns the verdict of the denied operation i without its penalty.
func (d *groupDecision) denial(i int, s *State) Verdict {
	l := d.group[i].Limit
	if d.out[i].TooManyLeases {
		v := l.verdict(s, d.now, false, s.leaseWait(d.now, l.ttl))
		v.TooManyLeases = true
		return v
	}
	sum, _ := d.sums(i)
	_, retryAfter := l.fits(s, d.now, sum)
	return l.verdict(s, d.now, false, retryAfter)
}

// isFirstOffence reports whether operation i is the first offence of the group on its key.
func (d *groupDecision) isFirstOffence(i int) bool {
	for j := range i + 1 {
		if d.stateIndex[j] == d.stateIndex[i] && d.state(j) != nil && !d.out[j].Allowed && d.group[j].Limit.HasPenalty() {
			return j == i
		}
	}
	return false
}

// allowedVerdict returns the verdict on an allowed operation under l from the state after it.
func (l *Limit) allowedVerdict(s *State, now int64) Verdict { return l.verdict(s, now, true, 0) }

// verdict returns the verdict on an operation under l from the state after it; retryAfter is in µs.
func (l *Limit) verdict(s *State, now int64, ok bool, retryAfter int64) Verdict {
	used, resetAfter := l.algorithm.usage(s, now)
	return NewVerdict(l, ok, used, retryAfter, resetAfter)
}
