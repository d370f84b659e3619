package limiters

import (
	"slices"
	"sync"
)

// Check returns the verdict on n hits at now, in µs since 1970, without charging them. Under a
// limit that reserves, the hits would open a reservation.
func (l *Limit) Check(s *State, now, n int64) Verdict {
	ok, retryAfter := l.fits(s, now, max(0, ClampHits(n)))
	v := l.verdict(s, now, ok, retryAfter)
	if ok && n > 0 && l.Reserves() && s.extraOrEmpty().leases.open.len() >= MaxLeases {
		v = l.tooManyLeases(s, now)
	}
	return v.WithPenalty(l.penaltyLeft(s, now))
}

// Denies reports whether l denies a hit at now, in µs since 1970: because of its usage, a penalty,
// or as many open reservations as a key may have.
func (l *Limit) Denies(s *State, now int64) bool { return !l.Check(s, now, 1).Allowed }

// A GrowFunc makes room for operation i of those passed to [Decide] to enlarge its state. It
// returns an error if there is no memory.
type GrowFunc func(i int) error

// Decide decides groups in order at now, in µs since 1970: it is a [Store] without storage.
// Operation i, counted across all groups, has the state states[i] and the verdict out[i].
// Operations on one key share a state. Decide allocates only for sliding logs, leases and
// penalties.
//
// Decide calls grow before it enlarges a state or changes a zero one; nil always succeeds. Without
// memory, a charge fails with the error of grow, a denial is not counted, and the end of an unknown
// lease is not remembered. An end that settles a reservation never needs grow.
func Decide(now int64, groups []Group, states []*State, out []Verdict, grow GrowFunc) {
	if grow == nil {
		grow = func(int) error { return nil }
	}
	i := 0
	for _, g := range groups {
		end := i + len(g)
		if len(g) == 1 && !g[0].Limit.UsesExtraState() && g[0].Kind != OpInspect {
			decideSingle(now, &g[0], states[i], &out[i], i, grow)
		} else {
			d := groupDecision{now: now, group: g, states: states[i:end], out: out[i:end], offset: i, growState: grow}
			d.decide()
		}
		i = end
	}
}

// decideSingle decides operation i, which is ungrouped and under a limit without extra state. Most
// operations are of this kind. With groupDecision instead, memstore's BenchmarkTake uses a third
// more CPU.
func decideSingle(now int64, op *Op, s *State, v *Verdict, i int, grow GrowFunc) {
	l, n := op.Limit, ClampHits(op.Hits)
	checked := n
	if op.Kind == OpCountDenied {
		checked = 0
	}
	ok, retryAfter := l.fits(s, now, checked)
	charged := checked
	if !ok {
		charged = l.countedIfDenied(n)
	}
	if charged > 0 {
		if err := grow(i); err != nil {
			if ok {
				*v = Verdict{Err: err}
				return
			}
			charged = 0
		}
	}
	if charged != 0 {
		l.hits.charge(s, now, charged)
		if !ok {
			// The retry-after must include the hits that were just added.
			_, retryAfter = l.fits(s, now, checked)
		}
	}
	*v = l.verdict(s, now, ok, retryAfter)
}

// fits reports whether n hits fit at now, and otherwise the wait until they would; negative means
// never. A refund always fits. A peek fits if one more hit would, or with peek=over if the usage is
// within the limit.
func (l *Limit) fits(s *State, now, n int64) (ok bool, retryAfter int64) {
	if n < 0 {
		return true, 0
	}
	if n == 0 && !l.peekOver {
		n = 1
	}
	if max(n, 1) > l.capacity { // a limit of 0 denies even a peek
		return false, -1
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

// A groupDecision decides any group, whose operations have the indices 0 to len(group) - 1 here.
type groupDecision struct {
	now       int64
	group     Group
	states    []*State
	out       []Verdict
	offset    int // the index of the first operation among those passed to Decide
	growState GrowFunc
	totals    []keyTotals // of a charge, by the index of the first operation on each key
}

// keyTotals are the hits that a group would charge to a key, and the leases that it would open
// there.
type keyTotals struct {
	hits   int64
	leases int
}

// totalsPool holds *[]keyTotals, because a decision in memory allocates nothing.
var totalsPool = sync.Pool{New: func() any { return new([]keyTotals) }}

// decide checks all operations of the group before it charges any.
func (d *groupDecision) decide() {
	switch {
	case d.group[0].Kind == OpInspect:
		d.inspect()
	case len(d.group) == 1 && d.group[0].Kind == OpEnd:
		d.end()
	default:
		totals := totalsPool.Get().(*[]keyTotals)
		defer totalsPool.Put(totals)
		*totals = slices.Grow((*totals)[:0], len(d.group))[:len(d.group)]
		d.totals = *totals
		d.decideCharge()
	}
}

// decideCharge decides a group of charges, refunds and peeks.
func (d *groupDecision) decideCharge() {
	for i := range d.group {
		d.out[i] = Verdict{}
		d.group[i].expireLeases(d.states[i], d.now)
	}
	d.addTotals()
	if d.check() {
		d.charge()
	} else {
		d.deny()
	}
}

// inspect decides a group of inspections.
func (d *groupDecision) inspect() {
	for i := range d.group {
		op, s := &d.group[i], d.states[i]
		op.expireLeases(s, d.now)
		d.out[i] = op.Limit.Check(s, d.now, 1)
		d.out[i].PenaltyLeft = op.Limit.penaltyLeft(s, d.now)
	}
}

// end decides a group of one end. An unknown id is remembered, because the charge that opens its
// lease may arrive later.
func (d *groupDecision) end() {
	op, s := &d.group[0], d.states[0]
	op.expireLeases(s, d.now)
	known := op.endLease(s, d.now)
	if !known && !op.Lease.IsZero() && d.grow(0) == nil {
		op.rememberEnd(s, d.now)
	}
	d.out[0] = op.Limit.allowedVerdict(s, d.now) // no penalty denies an end
}

// grow makes room for operation i to enlarge its state.
func (d *groupDecision) grow(i int) error { return d.growState(d.offset + i) }

// check sets Allowed and TooManyLeases of each verdict, or its error if the charge has no memory.
// It reports whether the group can be charged.
func (d *groupDecision) check() bool {
	allowed := true
	for i := range d.group {
		d.out[i].Allowed, d.out[i].TooManyLeases = d.checkOp(i)
		allowed = allowed && d.out[i].Allowed
	}
	return allowed && d.growAll()
}

// growAll makes room for the charges of an allowed group. It reports whether all have memory.
func (d *groupDecision) growAll() bool {
	ok := true
	for i := range d.group {
		effect := d.group[i].leaseEffect(d.states[i], d.now)
		if effect == leaseAlreadyOpen || effect == leaseNone && d.group[i].Hits <= 0 {
			continue
		}
		if err := d.grow(i); err != nil {
			d.out[i], ok = Verdict{Err: err}, false
		}
	}
	return ok
}

// checkOp checks operation i.
func (d *groupDecision) checkOp(i int) (ok, tooMany bool) {
	op, s := &d.group[i], d.states[i]
	switch {
	case op.IsRefund():
		return true, false
	case op.Limit.penaltyLeft(s, d.now) > 0:
		return false, false
	}
	effect := op.leaseEffect(s, d.now)
	if effect == leaseAlreadyOpen {
		return true, false
	}
	total := d.totals[d.firstOnKey(i)]
	ok, _ = op.Limit.fits(s, d.now, total.hits)
	tooMany = ok && effect == leaseOpens && s.extraOrEmpty().leases.open.len()+total.leases > MaxLeases
	return ok && !tooMany, tooMany
}

// addTotals computes the totals.
func (d *groupDecision) addTotals() {
	clear(d.totals)
	for i := range d.group {
		total := &d.totals[d.firstOnKey(i)]
		effect := d.group[i].leaseEffect(d.states[i], d.now)
		if effect == leaseOpens {
			if d.sharesEarlierID(i) {
				continue // the earlier operation opens the lease, and this one charges nothing
			}
			total.leases++
		}
		if effect != leaseAlreadyOpen && d.group[i].Hits > 0 {
			total.hits = min(total.hits+ClampHits(d.group[i].Hits), MaxHits)
		}
	}
}

// firstOnKey returns the index of the first operation on the key of operation i.
func (d *groupDecision) firstOnKey(i int) int { return slices.Index(d.states, d.states[i]) }

// sharesEarlierID reports whether an earlier operation of the group may open the lease that
// operation i opens.
func (d *groupDecision) sharesEarlierID(i int) bool {
	for j := range i {
		if d.states[j] == d.states[i] && d.group[j].Lease == d.group[i].Lease && d.group[j].mayOpenLease() {
			return true
		}
	}
	return false
}

// charge charges an allowed group. Each verdict shows the state after its own operation.
func (d *groupDecision) charge() {
	for i := range d.group {
		effect := d.group[i].apply(d.states[i], d.now)
		d.reportAllowed(i, effect)
	}
}

// reportAllowed writes the verdict of operation i, which is allowed, even if its group is not.
func (d *groupDecision) reportAllowed(i int, effect leaseEffect) {
	d.out[i] = d.group[i].Limit.allowedVerdict(d.states[i], d.now)
	d.out[i].LeaseAlreadyOpen = effect == leaseAlreadyOpen
}

// deny charges the denied hits whose limit counts them, records offenses, and completes the
// verdicts.
func (d *groupDecision) deny() {
	for i := range d.group {
		l, s := d.group[i].Limit, d.states[i]
		counted := l.countedIfDenied(ClampHits(d.group[i].Hits))
		if d.out[i].Denied() && counted > 0 && l.penaltyLeft(s, d.now) == 0 && d.grow(i) == nil {
			l.hits.charge(s, d.now, counted)
		}
	}
	for i := range d.group {
		s, l := d.states[i], d.group[i].Limit
		switch {
		case d.out[i].Err != nil:
		case d.out[i].Allowed:
			d.reportAllowed(i, d.group[i].leaseEffect(s, d.now))
		default:
			began := d.recordOffense(i)
			d.out[i] = d.denial(i).WithPenalty(l.penaltyLeft(s, d.now))
			d.out[i].PenaltyBegan = began && d.out[i].Penalized
		}
	}
}

// denial returns the verdict of the denied operation i without its penalty.
func (d *groupDecision) denial(i int) Verdict {
	l, s := d.group[i].Limit, d.states[i]
	if d.out[i].TooManyLeases {
		return l.tooManyLeases(s, d.now)
	}
	_, retryAfter := l.fits(s, d.now, d.totals[d.firstOnKey(i)].hits)
	return l.verdict(s, d.now, false, retryAfter)
}

// recordOffense records the offense of the denied operation i, if it is the first of the group on
// its key and there is memory. It reports whether a penalty began.
func (d *groupDecision) recordOffense(i int) (began bool) {
	if !d.isFirstOffense(i) || d.grow(i) != nil {
		return false
	}
	return d.states[i].ensureExtraState().penalty.addOffense(d.group[i].Limit.penalty, d.now)
}

// isFirstOffense reports whether operation i is the first offense of the group on its key.
func (d *groupDecision) isFirstOffense(i int) bool {
	for j := range i + 1 {
		if d.states[j] == d.states[i] && d.out[j].Denied() && d.group[j].Limit.HasPenalty() {
			return j == i
		}
	}
	return false
}

// allowedVerdict returns the verdict on an allowed operation under l from the state after it.
func (l *Limit) allowedVerdict(s *State, now int64) Verdict { return l.verdict(s, now, true, 0) }

// tooManyLeases returns the denial of hits because the key has too many open reservations.
func (l *Limit) tooManyLeases(s *State, now int64) Verdict {
	v := l.verdict(s, now, false, s.leaseWait(now, l.ttl))
	v.TooManyLeases = true
	return v
}

// verdict returns the verdict on an operation under l from the state after it; retryAfter is in µs.
func (l *Limit) verdict(s *State, now int64, ok bool, retryAfter int64) Verdict {
	used, resetAfter := l.algorithm.usage(s, now)
	return NewVerdict(l, ok, used, retryAfter, resetAfter)
}
