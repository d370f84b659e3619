// Package limiters is the core of Weir: it decides whether a hit fits under a limit.
//
// A [Hit] asks to charge a number of hits to a key under a [Limit]. A [Store] keeps the state of every key and returns one
// [Verdict] per hit. Each algorithm has one file in this package, as a pure function of a small [State], the time and the
// number of hits. It has a twin in Lua (pkg/redisscripts) for the store on Redis. The suite in limiterstest compares every
// store with the functions here, verdict by verdict.
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

// MaxHits is the largest number of hits: larger numbers are cut to it, and counts stop there. The sum of two such numbers
// is exact in a double, the only number type of Lua.
const MaxHits = 1 << 52

// A Hit asks to charge N to Key under Limit. N > 0 charges, N = 0 peeks (it checks and charges nothing), N < 0 refunds.
type Hit struct {
	// Key names the client or resource under limit, such as a domain with the entries that matched a rule. A store keeps one
	// state for each key, algorithm and window, so limits that differ only in their maximum share a state.
	Key   string
	Limit *Limit
	N     int64
	// Denied is the number of hits that the caller has already rejected from its cache. They are counted if the peek is denied
	// and its limit counts denied hits. Denied is at least 0, and ignored except in a peek (N = 0) that is a group by itself,
	// under a limit without parts.
	Denied int64
	// Lease names the request under a limit with leases, see [Limit.HasLeases]. It is zero elsewhere.
	Lease LeaseID
	// End ends the lease, or settles the reservation to the actual cost N; a lease ignores N. The hit is allowed and changes
	// nothing else. The store remembers the end of an unknown id for [EndedTTL]. A take of the id in that time holds nothing,
	// and is charged the actual cost. An End hit must be a group by itself, under a limit with leases.
	End bool
	// Uncharged says, of an End, that a policy decided the take, so the store has not charged it; see [Verdict].Uncharged. The
	// end then matters only to the local store of guard.Fallback, and guard.EndQueue does not repeat it.
	Uncharged bool
	// OnError is the policy if the store fails. guard.Fallback applies it; the stores ignore it. It is a field of Hit because
	// the hits of one call may have several policies.
	OnError OnError
}

// A Group is hits that are charged together or not at all: they are charged only if each of them is allowed. Positive hits
// on the same key are checked by their sum. If the group is denied, the hits that deny it are counted where their limit
// counts denied hits; nothing else is charged or refunded. A group of one hit is that hit by itself. No group is empty.
type Group []Hit

// DenyingHit returns a hit on key that denies its group: its limit of 0 denies every hit and never writes. The other hits of the
// group are then checked, and counted where their limit counts denied hits, but not charged. Ignore its own verdict.
func DenyingHit(key string) Hit { return Hit{Key: key, Limit: denyingLimit()} }

var denyingLimit = sync.OnceValue(func() *Limit {
	l, err := New(Spec{Algorithm: DefaultAlgorithm, Window: time.Second})
	if err != nil {
		panic(err) // impossible: the spec is a constant
	}
	return l
})

// Singles returns groups of one hit each, slices of hits.
func Singles(hits ...Hit) []Group {
	groups := make([]Group, len(hits))
	for i := range hits {
		groups[i] = hits[i : i+1 : i+1]
	}
	return groups
}

// A Verdict answers one Hit.
type Verdict struct {
	Allowed      bool
	Penalized    bool // denied, and the key's penalty ends at RetryAfter
	PenaltyBegan bool // Penalized, and the penalty began with this hit
	// TooManyLeases says that the hit is denied because its key has [MaxLeases] open reservations. RetryAfter is then the time until
	// the first of them expires, and at most a second.
	TooManyLeases bool
	Uncharged     bool   // By is ByShare or ByPolicy, and the store has certainly not charged the hit
	By            Source // what decided the hit
	// Order is the order of the verdicts of one key whose At is equal, if the store's own clock counts. It has no meaning across keys.
	Order uint16
	// At is when the hit was decided by the clock of the store, in µs since 1970; 0 if a policy decided or the hit failed.
	At         int64
	Used       int64         // the key's usage after this hit
	Remaining  int64         // how many further hits fit
	RetryAfter time.Duration // of a denied hit: when it fits if nothing else is charged; negative if it can never fit
	ResetAfter time.Duration // when the key has fully reset
	Err        error         // why this hit could not be decided; the other verdicts stand
}

// Store charges hits. It is safe for concurrent use.
type Store interface {
	// Take charges groups in order, all at one now. It writes one verdict for each hit to out: the verdicts of the first group
	// in the order of its hits, then those of the second, and so on. The length of out must be the number of all hits.
	// If now is zero, the store's own clock counts; otherwise now must be after 1970, and is cut to whole microseconds.
	// A hit whose verdict has an error may or may not have been charged. No hit is charged twice.
	// If Take returns an error, no hit was decided. Take does not use groups or out after it has returned.
	Take(ctx context.Context, now time.Time, groups []Group, out []Verdict) error
}

// A State is a store's memory of a key under one algorithm and window. The algorithm defines the words A, B and C, of which a
// store must keep [Limit.StateWords], in any form. The zero State is that of a key never hit. A State is not safe for
// concurrent use.
type State struct {
	A, B, C int64
	Log     *Log   // of a sliding log; changed in place; nil if nothing is logged
	Parts   *Parts // of a limit with parts; changed in place; nil if there are none
}

// A core is the part of a State that an algorithm computes with. It has no Parts, because the compiler keeps at most four words
// of a struct in registers.
type core struct {
	A, B, C int64
	Log     *Log
}

func (s *State) core() core { return core{s.A, s.B, s.C, s.Log} }

func (s *State) setCore(c core) { s.A, s.B, s.C, s.Log = c.A, c.B, c.C, c.Log }

// charge charges n > 0 hits or refunds -n, whether or not they fit.
func (s *State) charge(l *Limit, now, n int64) { s.setCore(l.algorithm.charge(s.core(), now, n)) }

// GrownBytes returns the memory of the log and the parts of s, in bytes. It is 0 without them.
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

// IsZero reports whether s is the state of a key never hit, which a store need not keep.
func (s *State) IsZero() bool { return *s == State{} }

// ResetTime returns when s has fully reset under every maximum of l, in µs since 1970. A store need not keep s after that.
func (l *Limit) ResetTime(s *State) int64 {
	reset := l.algorithm.resetTime(s.core())
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

// Check returns the verdict on n hits at now, in µs since 1970, and charges nothing.
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

// Decide charges groups in order at now (µs since 1970) and writes their verdicts to out. It is a [Store] without the storage.
// Hits, stateIndex and out are numbered through all groups. The state of hit i is states[stateIndex[i]], and hits on one key
// share a state. If stateIndex[i] is negative, hit i cannot be decided, so its verdict is left as it is and its group is not
// charged. Decide allocates only what sliding logs need.
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
		// The retry time must allow for what this hit added.
		_, retry = l.fits(s, now, n)
	}
	*v = verdict(now, l, s, ok, retry)
}

// fits reports whether n hits fit at now, and otherwise in how many µs they would. A refund always fits.
func (l *Limit) fits(s *State, now, n int64) (ok bool, retry int64) {
	if n < 0 {
		return true, 0
	}
	if l.slots != nil {
		return l.slots.fitsBeside(s.Parts, now, n)
	}
	return l.algorithm.fits(s.core(), now, n)
}

// countedIfDenied returns how many of n hits are charged although they are denied.
func (l *Limit) countedIfDenied(n int64) int64 {
	if !l.countsDenied() {
		return 0
	}
	return max(0, n)
}

// decideGroup checks every hit of g before it charges any. Each verdict of an allowed group shows the state after its own hit.
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

// checkGroup sets Allowed of each verdict, and reports whether all hits of g are allowed.
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

// denyGroup counts the denied hits of g where their limit counts them. Then it completes the verdicts, which show the states
// after that.
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
	used, reset := l.algorithm.usage(s.core(), now)
	if l.slots != nil {
		used, reset = l.slots.usageOf(s.Parts, now)
	}
	return NewVerdict(l, ok, used, retry, reset)
}

// NewVerdict returns the verdict on a hit under l, from the key's usage after it and times in microseconds.
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

// ClampHits returns n cut to the range from -[MaxHits] to MaxHits. Stores and decorators need not call it for the N of a [Hit].
func ClampHits(n int64) int64 { return max(-MaxHits, min(n, MaxHits)) }
