// Package limiters is the core of Weir: it decides whether a hit fits under a limit.
//
// A [Hit] asks to charge a number of hits to a key under a [Limit]. A [Store] keeps the state of every key and returns one
// [Verdict] per hit. An algorithm is a pure function of a small [State], the time and the number of
// hits. Concurrency limits and reservations share [Leases]. Each algorithm has a twin in Lua (pkg/redisscripts) for the store on
// Redis. The suite in limiterstest compares every store with the functions here, verdict by verdict.
//
// A time in an int64 is in microseconds since 1970, and a duration in an int64 in microseconds, here and in the stores. Each
// [time.Duration] of a [Spec] or a [Verdict] is a whole number of microseconds. All arithmetic is in integers, so two
// implementations agree exactly, or one of them is wrong.
//
// A key's time never runs back, because an algorithm counts from the later of now and the newest time in the key's state. If
// a state is more than a window ahead of now, a clock jumped and was corrected, so the state counts as absent.
package limiters

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// MaxHits bounds hits and counts, which saturate at it. The sum of two such numbers is exact in a double, Lua's only number type.
const MaxHits = 1 << 52

// A Hit is a request to charge N to Key under Limit. N > 0 charges, N = 0 peeks (checks without charging), N < 0 refunds.
type Hit struct {
	// Key names the client or resource under limit, such as a domain with the entries that matched a rule. A store keeps one state
	// for each key, algorithm and window, so limits that differ only in their maximum share a state.
	Key   string
	Limit *Limit
	N     int64
	// Denied is the number of hits that the caller has already rejected from its cache. They are charged if the peek is denied and
	// the limit counts denied hits. Denied is ignored except in an ungrouped peek (N = 0) under a limit without parts.
	Denied int64
	// Lease identifies the request under a limit with leases, see [Limit.HasLeases]; zero for other limits.
	Lease LeaseID
	// End ends the lease, or settles the reservation to the actual cost N; a lease ignores N. An End hit is always allowed. It must
	// be ungrouped, under a limit with leases. The store remembers the end of an unknown id for [EndedTTL]; a take of the id within
	// that time opens no lease, and a reservation is charged its actual cost.
	End bool
	// Uncharged is, for an End, the Uncharged of the take's verdict. An end that the store cannot decide is then not retried,
	// because the store has no such lease.
	Uncharged bool
}

// A Group is a non-empty list of hits that are charged together or not at all: only if each of them is allowed. Positive hits on
// one key are checked by their sum. If the group is denied, those limits that deny and count denied hits charge their hits; nothing
// else is charged or refunded.
type Group []Hit

// DenyingHit returns a hit that denies its group, because its limit is 0, and writes nothing. The other hits are still checked, and
// counted if their limit counts denied hits. Ignore the verdict of the denying hit.
func DenyingHit(key string) Hit { return Hit{Key: key, Limit: denyingLimit()} }

var denyingLimit = sync.OnceValue(func() *Limit {
	l, err := New(Spec{Algorithm: DefaultAlgorithm, Window: time.Second})
	if err != nil {
		panic(err) // impossible: the spec is a constant
	}
	return l
})

// Singles returns a group for each hit. The groups are slices of hits.
func Singles(hits ...Hit) []Group {
	groups := make([]Group, len(hits))
	for i := range hits {
		groups[i] = hits[i : i+1 : i+1]
	}
	return groups
}

// A Verdict is the result of one Hit.
type Verdict struct {
	Allowed      bool
	Penalized    bool // denied, and the key's penalty ends at RetryAfter
	PenaltyBegan bool // Penalized, and the penalty began with this hit
	// TooManyLeases reports a denial because the key has [MaxLeases] open reservations. RetryAfter is then the time until the first
	// of them expires, at most a second.
	TooManyLeases bool
	Uncharged     bool   // this process decided because the store failed, and the store has certainly not charged the hit
	By            Source // what decided the hit
	// Order orders verdicts of one key with equal At if the store used its own clock.
	Order uint16
	// At is when the hit was decided, by the store's clock, in µs since 1970; 0 if a policy decided or the hit failed.
	At         int64
	Used       int64         // the key's usage after this hit
	Remaining  int64         // how many further hits fit
	RetryAfter time.Duration // of a denied hit: the wait until it fits if nothing else is charged; negative if it never fits
	ResetAfter time.Duration // the time until the key has fully reset
	Err        error         // why this hit was not decided; other verdicts remain valid
}

// A Store charges hits. It is safe for concurrent use.
type Store interface {
	// Take charges groups in order, all at the time now. It writes one verdict for each hit to out, in the order of the hits of all
	// groups; len(out) must be the number of hits. If now is zero, the store uses its own clock. Otherwise now must be after 1970,
	// and is truncated to microseconds. If a verdict has an error, its hit may or may not have been charged, but never twice. If
	// Take returns an error, no hit was decided. Take does not retain groups or out.
	Take(ctx context.Context, now time.Time, groups []Group, out []Verdict) error
}

// A State is the state of a key under one algorithm and window. The meaning of the words A, B and C depends on the algorithm, and a
// store must keep the first [Limit.StateWords] of them. The zero State is that of an unused key. A State is not safe for concurrent
// use.
type State struct {
	A, B, C int64
	Log     *Log   // of a sliding log; changed in place; nil if nothing is logged
	Parts   *Parts // of a limit with parts; changed in place; nil if there are none
}

// A core is the part of a State that an algorithm computes with. It excludes Parts, because the compiler keeps at most four words
// of a struct in registers.
type core struct {
	A, B, C int64
	Log     *Log
}

func (s *State) core() core { return core{s.A, s.B, s.C, s.Log} }

func (s *State) setCore(c core) { s.A, s.B, s.C, s.Log = c.A, c.B, c.C, c.Log }

// charge charges n > 0 hits or refunds -n, whether or not they fit. The limit must have a counter.
func (s *State) charge(l *Limit, now, n int64) { s.setCore(l.counter.charge(s.core(), now, n)) }

// GrownBytes returns the memory of the log and the parts of s, in bytes.
func (s *State) GrownBytes() int {
	if s.Log == nil && s.Parts == nil {
		return 0
	}
	return s.grownBytes()
}

func (s *State) grownBytes() (n int) {
	if s.Log != nil {
		n = s.Log.size()
	}
	if s.Parts != nil {
		n += s.Parts.size()
	}
	return n
}

// IsZero reports whether s is the state of an unused key, which a store need not keep.
func (s *State) IsZero() bool { return *s == State{} }

// ResetTime returns when s has fully reset under every maximum of l, in µs since 1970. A store may then discard s.
func (l *Limit) ResetTime(s *State) int64 {
	reset := int64(0)
	if l.counter != nil {
		reset = l.counter.resetTime(s.core())
	}
	if s.Parts != nil {
		reset = max(reset, s.Parts.expires(l))
	}
	return reset
}

// WouldCharge reports whether h by itself would add to s at now, in µs since 1970.
func (h *Hit) WouldCharge(s *State, now int64) bool {
	if h.Limit.HasParts() {
		return h.wouldWriteParts(s, now)
	}
	l, n := h.Limit, ClampHits(h.N)
	if n < 0 || n == 0 && h.Denied <= 0 || l.spec.Max == 0 {
		return false
	}
	ok, _ := l.fits(s, now, n)
	return ok && n > 0 || !ok && l.spec.CountDenied
}

// Check returns the verdict on n hits at now, in µs since 1970, without charging them.
func (l *Limit) Check(s *State, now, n int64) Verdict {
	ok, retry := l.fits(s, now, max(0, ClampHits(n)))
	if l.penaltyWait(s, now) > 0 {
		ok = false
	}
	v := verdict(now, l, s, ok, retry)
	if !ok {
		v = l.orPenalty(v, s, now)
	}
	return v
}

// Decide charges groups in order at now, in µs since 1970, and writes their verdicts to out: it is a [Store] without storage. Hits,
// stateIndex and out are indexed across all groups. Hit i uses states[stateIndex[i]], and hits on one key share a state. If
// stateIndex[i] is negative, hit i cannot be decided: its verdict is unchanged and its group is not charged. Decide allocates only
// for sliding logs.
func Decide(now int64, groups []Group, stateIndex []int, states []State, out []Verdict) {
	for _, g := range groups {
		switch {
		case g.hasParts():
			decideParts(now, g, stateIndex, states, out)
		case len(g) != 1:
			decideGroup(now, g, stateIndex, states, out)
		case stateIndex[0] >= 0:
			decideOne(now, &g[0], &states[stateIndex[0]], &out[0])
		}
		stateIndex, out = stateIndex[len(g):], out[len(g):]
	}
}

func decideOne(now int64, h *Hit, s *State, v *Verdict) {
	l, n := h.Limit, ClampHits(h.N)
	ok, retry := l.fits(s, now, n)
	if ok {
		if n != 0 {
			s.charge(l, now, n)
		}
	} else if counted := l.countedIfDenied(cmp.Or(n, ClampHits(h.Denied))); counted > 0 {
		s.charge(l, now, counted)
		// The retry time must include what this hit added.
		_, retry = l.fits(s, now, n)
	}
	*v = verdict(now, l, s, ok, retry)
}

// fits reports whether n hits fit at now, and otherwise the wait until they would. A refund always fits.
func (l *Limit) fits(s *State, now, n int64) (ok bool, retry int64) {
	if n < 0 {
		return true, 0
	}
	if l.slots != nil {
		return l.slots.fits(s.Parts, now, n)
	}
	return l.counter.fits(s.core(), now, n)
}

// countedIfDenied returns how many of n hits are charged although they are denied.
func (l *Limit) countedIfDenied(n int64) int64 {
	if !l.countsDenied() {
		return 0
	}
	return max(0, n)
}

// decideGroup checks all hits of g before it charges any. Each verdict of an allowed group shows the state after its own hit.
func decideGroup(now int64, g Group, stateIndex []int, states []State, out []Verdict) {
	if !checkGroup(now, g, stateIndex, states, out) {
		denyGroup(now, g, stateIndex, states, out)
		return
	}
	for i := range g {
		l, s, n := g[i].Limit, &states[stateIndex[i]], ClampHits(g[i].N)
		if n != 0 {
			s.charge(l, now, n)
		}
		out[i] = verdict(now, l, s, true, 0)
	}
}

// checkGroup sets Allowed of each verdict. It reports whether all hits of g are allowed.
func checkGroup(now int64, g Group, stateIndex []int, states []State, out []Verdict) bool {
	all := true
	for i := range g {
		ok := false
		if stateIndex[i] >= 0 {
			if ok = g[i].N < 0; !ok {
				ok, _ = g[i].Limit.fits(&states[stateIndex[i]], now, groupSum(g, stateIndex, i))
			}
			out[i].Allowed = ok
		}
		all = all && ok
	}
	return all
}

// denyGroup charges the denied hits whose limit counts them, and then completes the verdicts.
func denyGroup(now int64, g Group, stateIndex []int, states []State, out []Verdict) {
	for i := range g {
		l, n := g[i].Limit, ClampHits(g[i].N)
		if counted := l.countedIfDenied(n); stateIndex[i] >= 0 && !out[i].Allowed && counted > 0 {
			s := &states[stateIndex[i]]
			s.charge(l, now, counted)
		}
	}
	for i := range g {
		if stateIndex[i] < 0 {
			continue
		}
		l, s, retry := g[i].Limit, &states[stateIndex[i]], int64(0)
		if !out[i].Allowed {
			_, retry = l.fits(s, now, groupSum(g, stateIndex, i))
		}
		out[i] = verdict(now, l, s, out[i].Allowed, retry)
	}
}

// groupSum returns how many hits g would charge to the key of g[i].
func groupSum(g Group, stateIndex []int, i int) int64 {
	sum := int64(0)
	for j := range g {
		if stateIndex[j] == stateIndex[i] && g[j].N > 0 {
			sum = min(sum+ClampHits(g[j].N), MaxHits)
		}
	}
	return sum
}

func verdict(now int64, l *Limit, s *State, ok bool, retry int64) Verdict {
	var used, reset int64
	if l.slots != nil {
		used, reset = l.slots.usage(s.Parts, now)
	} else {
		used, reset = l.counter.usage(s.core(), now)
	}
	return NewVerdict(l, ok, used, retry, reset)
}

// NewVerdict returns the verdict on a hit under l from the key's usage after it and times in µs.
func NewVerdict(l *Limit, allowed bool, used, retry, reset int64) Verdict {
	return Verdict{
		Allowed:    allowed,
		Used:       used,
		Remaining:  max(0, l.capacity-used),
		RetryAfter: micros(retry),
		ResetAfter: micros(reset),
	}
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// ClampHits limits n to the range from -[MaxHits] to MaxHits. Stores and decorators clamp [Hit].N themselves.
func ClampHits(n int64) int64 { return max(-MaxHits, min(n, MaxHits)) }
