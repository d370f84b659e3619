package guard

import (
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A denyShard holds the denials of some keys. Each entry is in one of two lists: in toRenew if the
// store must be called for it, and otherwise in idle. Both have the order in which entries were
// added to them. Only queueRenewal and makeIdle move an entry. Call the methods within locked.
//
// The lock is not held during a call of the store, so the reply may be outdated. Each opPath and
// renewal keeps the epoch from before its call, and a change of a counter cancels what the reply
// would do, for all keys of the shard:
//
//	event                        removes              increments           cancels, of calls in flight
//	refund, before its call      denials of its key   -                    -
//	refund, after its call       denials of its key   generation           recordDenial, renewDenial
//	DropDenials                  all denials          generation           recordDenial, renewDenial
//	reset (each Forget method)   denials, debts       generation, resets   recordDenial, renewDenial, restoreDebt
//	allowed charge of few hits   its denial           -                    -
//
// The last event is the reply to a charge below the minHits of a denial. If a denial is removed
// from an entry with a debt, the entry stays with noDenial until popRenewal takes its debt.
type denyShard struct {
	mu            sync.Mutex
	epoch                               // see the table
	entries       map[string]*denyEntry // the first entry of each key, see nextOfKey
	idle, toRenew denyEntry             // heads of the lists
	maxAge        time.Duration         // DenyCacheOptions.MaxAge
	maxBytes      int64
	bytes         int64
	count         int64

	lookups, answered, notCached int64

	_ [64]byte // keeps the locks of two shards out of one cache line
}

// An epoch counts the events that outdate replies, see the table of denyShard.
type epoch struct{ generation, resets uint32 }

// mayRecord reports whether a call that began at the epoch before may record or renew a denial.
func (e epoch) mayRecord(before epoch) bool { return e.generation == before.generation }

// mayRestore reports whether a call that began at the epoch before may restore a debt.
func (e epoch) mayRestore(before epoch) bool { return e.resets == before.resets }

// A denyEntry is the denial of a key under a limit.
type denyEntry struct {
	cachedDenial
	key       string
	limit     *limiters.Limit
	nextOfKey *denyEntry // the next entry of the key, under another limit

	queued    bool          // the entry is in the list toRenew: it has answered operations since the last renewal
	queuedAt  time.Duration // when it was put into the list
	keepsDebt bool          // answered hits add to the debt: the limit counts denied hits and has no penalty
	debt      int64         // answered hits that the store has not counted; 0 unless queued

	prev, next *denyEntry // the neighbors in its list
}

// A cachedDenial denies minHits or more hits until expires. Times are by the cache's clock.
type cachedDenial struct {
	minHits  int64         // 0: peeks are denied too
	used     int64         // the key's usage
	expires  time.Duration // at most MaxAge after the store's verdict
	retryAt  time.Duration // upper bound of the time when minHits hits, at least one, fit if nothing else is charged
	resetAt  time.Duration // upper bound of the time when the key has fully reset
	recorded time.Duration // when the denial was recorded
	offset   time.Duration // lower bound of the store's clock minus the cache's; 0 if the store does not report its time
}

// entryBytes approximates the memory of an entry and its map slot, without the text of its key.
const entryBytes = int64(unsafe.Sizeof(denyEntry{})) + 56

func (e *denyEntry) size() int64 { return entryBytes + int64(len(e.key)) }

// locked calls f with the locked shard.
func (s *denyShard) locked(f func(s *denyShard)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *denyShard) init(maxAge time.Duration, maxBytes int64) {
	s.entries, s.maxAge, s.maxBytes = make(map[string]*denyEntry), maxAge, maxBytes
	for _, list := range []*denyEntry{&s.idle, &s.toRenew} {
		list.prev, list.next = list, list
	}
}

// find returns the entry of a key under a limit; nil if there is none.
func (s *denyShard) find(key string, l *limiters.Limit) *denyEntry {
	e := s.entries[key]
	for e != nil && e.limit != l && e.limit.Spec() != l.Spec() {
		e = e.nextOfKey
	}
	return e
}

// entriesOf returns the entries of a key under all limits.
func (s *denyShard) entriesOf(key string) (entries []*denyEntry) {
	for e := s.entries[key]; e != nil; e = e.nextOfKey {
		entries = append(entries, e)
	}
	return entries
}

// denyOrForward denies op from its entry, unless p already has toStore. Otherwise it forwards op to
// the store.
func (s *denyShard) denyOrForward(now time.Duration, op *limiters.Op, p *opPath, v *limiters.Verdict, renewals []renewal) []renewal {
	if isLookup(op) {
		s.lookups++
	}
	e := s.find(op.Key, op.Limit)
	if !p.toStore && e != nil && s.denyFromEntry(now, e, op, v) {
		return renewals
	}
	return s.forward(now, e, op, p, renewals)
}

// denyFromEntry denies op from its entry e, and updates the debt and the renewal of e. It returns
// false if e does not deny op.
func (s *denyShard) denyFromEntry(now time.Duration, e *denyEntry, op *limiters.Op, v *limiters.Verdict) bool {
	if !e.denies(now, op.Hits) {
		return false
	}
	s.answered++
	if e.keepsDebt {
		s.addDebt(now, e, op.Hits)
	}
	// The store renews a denial with its verdict on a peek. It may allow a peek and deny several
	// hits, so only a denial that covers peeks (minHits 0) is renewed. Under a penalty none is,
	// because a denied peek could be an offense.
	if e.minHits == 0 && !op.Limit.HasPenalty() {
		s.queueRenewal(now, e)
	}
	*v = e.verdict(now, op)
	return true
}

// forward marks p, the path of op, with toStore. e is the entry of op, or nil. It moves the debts
// of the key to renewals, and a refund removes the key's denials.
func (s *denyShard) forward(now time.Duration, e *denyEntry, op *limiters.Op, p *opPath, renewals []renewal) []renewal {
	p.toStore, p.epoch = true, s.epoch
	p.underMinHits = e != nil && 0 < op.Hits && op.Hits < e.minHits
	renewals = s.popDebts(now, op.Key, renewals)
	if op.IsRefund() {
		s.removeKeyDenials(op.Key)
	}
	return renewals
}

// denies reports whether the store would certainly deny n hits, and e can hold them as its debt.
func (e *denyEntry) denies(now time.Duration, n int64) bool {
	return now < e.expires && n >= e.minHits && (!e.keepsDebt || n == 0 || n <= maxDebtHits-e.debt)
}

// verdict returns the verdict on op, which e denies.
func (e *denyEntry) verdict(now time.Duration, op *limiters.Op) limiters.Verdict {
	l := op.Limit
	retryAfter, resetAfter := ceilMicros(e.retryAt-now), ceilMicros(e.resetAt-now)
	used := min(e.used+e.debt, limiters.MaxHits)
	v := limiters.Verdict{
		Used:       used,
		Remaining:  max(0, l.Capacity()-used),
		RetryAfter: l.MaxRetryAfter(op.Hits, e.minHits, retryAfter, resetAfter),
		ResetAfter: resetAfter,
		By:         limiters.ByCache,
	}
	if e.offset != 0 {
		// now was read before the lock was taken, so the denial may be newer.
		v.At, v.Order = (e.offset + max(now, e.recorded)).Microseconds(), limiters.OrderAfterStore
	}
	if !l.HasPenalty() {
		return v
	}
	// Under a limit with a penalty, only denials by the penalty are cached, so this denial ends no
	// later than the penalty.
	if max(1, op.Hits) <= v.Remaining {
		v.RetryAfter = 0 // the limit itself may allow the hits
	}
	return v.WithPenalty(retryAfter)
}

// addDebt adds n hits to the debt of e, which the next renewal of e sends.
func (s *denyShard) addDebt(now time.Duration, e *denyEntry, n int64) {
	e.debt += n
	s.queueRenewal(now, e)
}

// queueRenewal moves e to the end of toRenew, unless e is in this list already.
func (s *denyShard) queueRenewal(now time.Duration, e *denyEntry) {
	if !e.queued {
		e.queued, e.queuedAt = true, now
		e.move(&s.toRenew)
	}
}

// makeIdle moves e, which must have no debt, to the end of idle.
func (s *denyShard) makeIdle(e *denyEntry) {
	e.queued = false
	e.move(&s.idle)
}

// beginReset makes calls in flight record no denials and restore no debts.
func (s *denyShard) beginReset() {
	s.generation++
	s.resets++
}

// ceilMicros rounds d up to microseconds.
func ceilMicros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

// add records the denial d of op. It keeps a recorded denial instead that has a smaller minHits, or
// the same minHits and a later expiry.
func (s *denyShard) add(now time.Duration, op *limiters.Op, d cachedDenial) {
	e := s.find(op.Key, op.Limit)
	if e == nil {
		s.insert(now, op, d)
		return
	}
	if now < e.expires && (e.minHits < d.minHits || e.minHits == d.minHits && e.expires > d.expires) {
		return
	}
	e.cachedDenial = d
	if e.debt == 0 {
		s.makeIdle(e)
	}
}

func (s *denyShard) insert(now time.Duration, op *limiters.Op, d cachedDenial) {
	e := &denyEntry{
		cachedDenial: d, key: strings.Clone(op.Key), // which may be part of a larger string
		limit: op.Limit, keepsDebt: op.Limit.CountsDenied() && !op.Limit.HasPenalty(),
	}
	for s.bytes+e.size() > s.maxBytes {
		victim := s.victim(now)
		if victim == nil || e.size() > s.maxBytes { // evicting all others would not be enough
			s.notCached++
			return
		}
		s.remove(victim)
	}
	e.nextOfKey = s.entries[e.key]
	s.entries[e.key] = e
	e.link(&s.idle)
	s.bytes += e.size()
	s.count++
}

// victim returns the entry to evict. It returns nil if no entry is idle and the first of toRenew
// needs the store.
func (s *denyShard) victim(now time.Duration) *denyEntry {
	if e := s.idle.next; e != &s.idle {
		return e
	}
	if e := s.toRenew.next; e != &s.toRenew && now >= e.expires && !s.needsStore(e, now) {
		return e
	}
	return nil
}

// remove removes an entry and its debt.
func (s *denyShard) remove(e *denyEntry) {
	e.unlink()
	switch before := s.entries[e.key]; {
	case before != e:
		for before.nextOfKey != e {
			before = before.nextOfKey
		}
		before.nextOfKey = e.nextOfKey
	case e.nextOfKey != nil:
		s.entries[e.key] = e.nextOfKey
	default:
		delete(s.entries, e.key)
	}
	s.bytes -= e.size()
	s.count--
}

// removeKey removes the entries of a key under all limits.
func (s *denyShard) removeKey(key string) {
	for _, e := range s.entriesOf(key) {
		s.remove(e)
	}
}

// removeKeyDenials removes the denials of a key under all limits, but not their debts.
func (s *denyShard) removeKeyDenials(key string) {
	for _, e := range s.entriesOf(key) {
		s.removeDenial(e)
	}
}

// removeProlongedDenial removes the denial of op's key if its minHits is above the hits that op has
// charged. The charge prolongs that denial, so its recorded times are too early.
func (s *denyShard) removeProlongedDenial(op *limiters.Op) {
	if e := s.find(op.Key, op.Limit); e != nil && e.minHits > op.Hits {
		s.removeDenial(e)
	}
}

// noDenial is the expiry of an entry without a denial, which stays for its debt.
const noDenial = 0

func (s *denyShard) removeDenial(e *denyEntry) {
	e.expires = noDenial
	if e.debt == 0 {
		s.remove(e)
	}
}

// sweep removes expired entries of the idle list. Its order is only nearly that of expiry, because
// some denials are short, so an entry may stay until a later sweep.
func (s *denyShard) sweep(now time.Duration) {
	for e := s.idle.next; e != &s.idle && now >= e.expires; e = s.idle.next {
		s.remove(e)
	}
}

func (e *denyEntry) move(to *denyEntry) { e.unlink(); e.link(to) }

func (e *denyEntry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

// link appends e to a list.
func (e *denyEntry) link(list *denyEntry) {
	e.prev, e.next = list.prev, list
	e.prev.next, list.prev = e, e
}
