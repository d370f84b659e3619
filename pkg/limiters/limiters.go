// Package limiters is the core of Weir: what a limit is, and whether a hit fits under it.
//
// A [Hit] asks to charge a number of hits to a key under a [Limit]; a [Store] keeps the state of every key and answers
// each hit with a [Verdict]. Each algorithm stands once in this package, in a file of its own, as a pure function of a
// small [State], the time and the number of hits, and once in Lua (pkg/redisscripts), for the store on Redis. The suite
// in limiterstest holds every store to the functions here, verdict by verdict.
//
// Time is integer microseconds since 1970, and all arithmetic is in integers, so two implementations agree exactly or
// one of them is wrong. A key's time never runs back: an algorithm counts from the later of now and the newest time in
// the key's state. A state more than a window ahead of now, left by a clock that jumped and was put right, counts as
// absent.
package limiters

import (
	"context"
	"time"
)

// MaxHits is the largest number of hits that is told from a larger one: an addend above it is read as it, and a count
// stops there. Sums of two such numbers are exact in a double, which is what Lua counts with.
const MaxHits = 1 << 52

// A Hit asks to charge N to Key under Limit. N > 0 charges, 0 looks, < 0 gives back.
type Hit struct {
	// Key names who is limited. Its state belongs to the limit's algorithm and window too: the same Key under another
	// algorithm or another window is another state, and under another maximum the same.
	Key   string
	Limit *Limit
	N     int64
	// Denied, of a look outside of groups, are hits that the caller has denied already, since it remembers that they would be.
	// If the look is denied and its limit counts denied hits, they are counted; else nothing is. It is at least 0.
	Denied int64
	// Group ties hits of one Take together: those with the same Group != 0 are charged only if all of them are
	// allowed, and are decided together at the place of the first. Positive hits of one group on the same key are
	// judged by their sum. In a group that is denied, the hits that deny are counted if their limit counts denied
	// hits, and nothing else is charged or given back.
	Group uint16
	// OnError is for whoever stands before the store: what becomes of the hit if the store fails.
	OnError OnError
}

// A Verdict answers one Hit.
type Verdict struct {
	Allowed    bool
	By         Source        // who decided it
	Used       int64         // what the key holds after this hit
	Remaining  int64         // what would still fit
	RetryAfter time.Duration // of a denied hit: until it would fit, were nothing else to come; < 0: never fits
	ResetAfter time.Duration // until the key is as good as new
	Err        error         // this hit could not be decided; the others stand
}

// Store charges hits. It is safe for concurrent use.
type Store interface {
	// Take charges hits in order, all at one now, and writes one verdict per hit to out, which is as long as hits. A
	// zero now means the store's own clock; another must lie after 1970, and is cut to whole microseconds.
	// A hit whose verdict carries an error may or may not have been charged; no hit is ever charged twice.
	// An error returned means that no hit was decided. Take uses neither hits nor out after it has returned.
	Take(ctx context.Context, now time.Time, hits []Hit, out []Verdict) error
}

// A State is what an algorithm remembers of one key: a few words, whose meaning is the algorithm's, and a log where it
// keeps one. The zero State is a key never seen. A store may keep the words in any form, as long as it keeps them all;
// how many there are, [Limit.Words] tells. A State is not safe for concurrent use.
type State struct {
	A, B, C int64
	Log     *Log // changed in place; nil where nothing is logged
}

// Size is the memory that s takes beside its words, in bytes.
func Size(s *State) int {
	if s.Log == nil {
		return 0
	}
	return s.Log.size()
}

// Fresh tells whether s is the state of a key never seen, which a store need not keep.
func Fresh(s *State) bool { return *s == State{} }

// Until is when s is as good as new, in µs since 1970, whatever the maximum of l: a store need not keep it any longer.
func Until(l *Limit, s *State) int64 { return l.kind.until(l, *s) }

// Writes tells whether h at now (µs since 1970), by itself, would change s to hold more.
func Writes(h *Hit, s *State, now int64) bool {
	l, n := h.Limit, clampHits(h.N)
	if n < 0 || n == 0 && h.owed() == 0 || l.spec.Max == 0 {
		return false
	}
	ok, _ := l.kind.judge(l, *s, now, n)
	return ok && n > 0 || !ok && l.spec.CountDenied
}

// Denial is the verdict of n hits at now (µs since 1970) that would be denied, were they not even counted. It tells
// whether they would.
func Denial(l *Limit, s *State, now, n int64) (Verdict, bool) {
	ok, retry := l.kind.judge(l, *s, now, max(0, clampHits(n)))
	return tell(now, l, s, ok, retry), !ok
}

// Decide charges hits in order at now (µs since 1970) and writes their verdicts to out: it is a [Store] without the
// storage. The state of hits[i] is states[of[i]]; hits on one key share one. A hit whose of is negative is undecided:
// its verdict is left as it is, and a group it belongs to is not charged. Decide allocates nothing but what logs do.
func Decide(now int64, hits []Hit, of []int, states []State, out []Verdict) {
	for i := range hits {
		switch {
		case hits[i].Group == 0:
			if of[i] >= 0 {
				decideOne(now, &hits[i], &states[of[i]], &out[i])
			}
		case firstOfGroup(hits, i):
			decideGroup(now, hits, of, states, out, i)
		}
	}
}

func decideOne(now int64, h *Hit, s *State, v *Verdict) {
	n, l := clampHits(h.N), h.Limit
	ok, retry := true, int64(0)
	if n >= 0 {
		ok, retry = l.kind.judge(l, *s, now, n)
	}
	counted := n
	if n == 0 && !ok {
		counted = h.owed()
	}
	switch {
	case counted == 0:
	case ok:
		*s = l.kind.charge(l, *s, now, counted)
	case l.countsDenied():
		*s = l.kind.charge(l, *s, now, counted)
		// Who waits as long as told gets in, with what this hit took.
		_, retry = l.kind.judge(l, *s, now, n)
	}
	*v = tell(now, l, s, ok, retry)
}

// owed is what a look has to count if it is denied.
func (h *Hit) owed() int64 {
	if h.N != 0 || h.Group != 0 {
		return 0
	}
	return clampHits(max(0, h.Denied))
}

func firstOfGroup(hits []Hit, i int) bool {
	for j := range i {
		if hits[j].Group == hits[i].Group {
			return false
		}
	}
	return true
}

// decideGroup decides the group whose first hit is hits[first]. It judges every hit before it charges any: what a
// verdict says of a group that is not charged is what the states held before it.
func decideGroup(now int64, hits []Hit, of []int, states []State, out []Verdict, first int) {
	g := hits[first].Group
	all := true
	for i := first; i < len(hits); i++ {
		if hits[i].Group != g {
			continue
		}
		if of[i] < 0 {
			all = false
			continue
		}
		ok, retry := true, int64(0)
		if hits[i].N >= 0 {
			l := hits[i].Limit
			ok, retry = l.kind.judge(l, states[of[i]], now, groupSum(hits, of, first, i))
		}
		out[i].Allowed, out[i].RetryAfter = ok, micros(retry)
		all = all && ok
	}
	for i := first; i < len(hits); i++ {
		if hits[i].Group != g || of[i] < 0 {
			continue
		}
		n, l, v := clampHits(hits[i].N), hits[i].Limit, &out[i]
		if all && n != 0 || n > 0 && !v.Allowed && l.countsDenied() {
			states[of[i]] = l.kind.charge(l, states[of[i]], now, n)
		}
		if all {
			*v = tell(now, l, &states[of[i]], true, 0)
		}
	}
	if all {
		return
	}
	for i := first; i < len(hits); i++ {
		if hits[i].Group != g || of[i] < 0 {
			continue
		}
		l, v, retry := hits[i].Limit, &out[i], out[i].RetryAfter.Microseconds()
		if !v.Allowed && l.countsDenied() {
			_, retry = l.kind.judge(l, states[of[i]], now, groupSum(hits, of, first, i))
		}
		*v = tell(now, l, &states[of[i]], v.Allowed, retry)
	}
}

// groupSum is how many hits the group of hits[i] would charge to the key of hits[i].
func groupSum(hits []Hit, of []int, first, i int) int64 {
	sum := int64(0)
	for j := first; j < len(hits); j++ {
		if hits[j].Group == hits[i].Group && of[j] == of[i] && hits[j].N > 0 {
			sum = min(sum+clampHits(hits[j].N), MaxHits)
		}
	}
	return sum
}

func tell(now int64, l *Limit, s *State, ok bool, retry int64) Verdict {
	used, reset := l.kind.usage(l, *s, now)
	return Told(l, ok, used, retry, reset)
}

// Told is the verdict that says ok of a key that holds used hits of l, with the times in microseconds.
func Told(l *Limit, ok bool, used, retry, reset int64) Verdict {
	return Verdict{
		Allowed:    ok,
		Used:       used,
		Remaining:  max(0, l.capacity-used),
		RetryAfter: micros(retry),
		ResetAfter: micros(reset),
	}
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func clampHits(n int64) int64 { return max(-MaxHits, min(n, MaxHits)) }
