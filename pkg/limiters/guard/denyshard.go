package guard

import (
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A denyShard holds the denials of some keys. Those whose keys have one hash, as those of one key under several limits,
// are a chain. Each is in one of two lists: those that may go, the oldest first, and those that the store is to be asked of
// again, by since when.
type denyShard struct {
	mu         sync.Mutex
	generation uint32 // changes when something is given back: what was denied before is not remembered after
	entries    map[uint64]*denial
	idle, owe  denial // heads of the lists
	max        int64  // see DenyOptions, in ns
	bytes      int64
	count      int64

	asked, answered, refused int64

	_ [64]byte // locks of neighbours are not in one cache line
}

// A denial is what is remembered of a key under a limit.
type denial struct {
	denied
	key   string
	limit *limiters.Limit
	hash  uint64
	chain *denial

	owes   bool  // it has answered hits since the store was asked
	since  int64 // when the first of them
	counts bool  // denied hits count
	sum    int64 // of those answered, the ones that the store has to count

	before, after *denial // in its list
}

// denied is what a denial says. Its times are on the cache's clock, in ns.
type denied struct {
	least   int64 // hits that are denied
	used    int64 // what the key held
	until   int64 // until when it is sure, and young enough
	retryAt int64 // when the least hits fit, at the latest
	resetAt int64 // when the key is as good as new, at the latest
}

// perDenial is about what a denial takes beside the text of its key: itself, its place in the map, and what allocations
// are rounded up by.
const perDenial = int64(unsafe.Sizeof(denial{})) + 48

func (d *denial) size() int64 { return perDenial + int64(len(d.key)) }

func (s *denyShard) init(longest int64) {
	s.entries, s.max = make(map[uint64]*denial), longest
	for _, list := range []*denial{&s.idle, &s.owe} {
		list.before, list.after = list, list
	}
}

func (d *denial) is(h *limiters.Hit) bool {
	return (d.limit == h.Limit || d.limit.Params() == h.Limit.Params()) && d.key == h.Key
}

func (s *denyShard) find(hash uint64, h *limiters.Hit) *denial {
	d := s.entries[hash]
	for d != nil && !d.is(h) {
		d = d.chain
	}
	return d
}

// answer answers a hit at now, if it is sure to be denied.
func (s *denyShard) answer(now int64, hash uint64, h *limiters.Hit, v *limiters.Verdict) bool {
	d := s.find(hash, h)
	n := max(1, h.N)
	if d == nil || now >= d.until || n < d.least {
		return false
	}
	if d.counts && h.N > 0 {
		if h.N > mostOwed-d.sum {
			return false
		}
		d.sum += h.N
	}
	// A look can renew no denial of several hits: one may fit.
	if !d.owes && d.least == 1 {
		d.owes, d.since = true, now
		d.move(&s.owe)
	}
	retry, reset := up(d.retryAt-now), up(d.resetAt-now)
	used := min(d.used+d.sum, limiters.MaxHits)
	*v = limiters.Verdict{
		Used:       used,
		Remaining:  max(0, h.Limit.Capacity()-used),
		RetryAfter: h.Limit.RetryOf(n, d.least, retry, reset),
		ResetAfter: reset,
		By:         limiters.ByCache,
	}
	return true
}

// up is ns in whole microseconds, rounded up.
func up(ns int64) time.Duration {
	const us = int64(time.Microsecond)
	return time.Duration((ns + us - 1) / us * us)
}

// remember remembers what was denied to h, unless something better is.
func (s *denyShard) remember(now int64, hash uint64, h *limiters.Hit, what denied, budget int64) {
	d := s.find(hash, h)
	if d == nil {
		s.insert(now, hash, h, what, budget)
		return
	}
	if now < d.until && (d.least < what.least || d.least == what.least && d.until > what.until) {
		return
	}
	d.denied = what
	if d.sum == 0 {
		d.owes = false
		d.move(&s.idle)
	}
}

// renew takes what the store said of a debt: it may be that of a denial that has gone, or changed.
func (s *denyShard) renew(debt *debt, what denied, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.find(debt.place.hash, &limiters.Hit{Key: debt.key, Limit: debt.limit})
	switch {
	case d == nil || s.generation != debt.place.generation:
	case !denied:
		s.end(d)
	case d.least == what.least && d.until < what.until:
		d.denied = what
	}
}

func (s *denyShard) insert(now int64, hash uint64, h *limiters.Hit, what denied, budget int64) {
	d := &denial{denied: what, limit: h.Limit, hash: hash, counts: h.Limit.Spec().CountDenied}
	size := d.size() + int64(len(h.Key))
	for s.bytes+size > budget {
		oldest := s.dispensable(now)
		if oldest == nil {
			s.refused++
			return
		}
		s.remove(oldest)
	}
	d.key = strings.Clone(h.Key) // not what it may be a part of
	d.chain = s.entries[hash]
	s.entries[hash] = d
	d.link(&s.idle)
	s.bytes += size
	s.count++
}

// dispensable is the denial to forget first, nil if all are to be asked of the store again.
func (s *denyShard) dispensable(now int64) *denial {
	if d := s.idle.after; d != &s.idle {
		return d
	}
	if d := s.owe.after; d != &s.owe && now >= d.until && !s.asks(d, now) {
		return d
	}
	return nil
}

// remove forgets a denial, and what it owes.
func (s *denyShard) remove(d *denial) {
	d.unlink()
	if head := s.entries[d.hash]; head != d {
		for head.chain != d {
			head = head.chain
		}
		head.chain = d.chain
	} else if d.chain != nil {
		s.entries[d.hash] = d.chain
	} else {
		delete(s.entries, d.hash)
	}
	s.bytes -= d.size()
	s.count--
}

// drop forgets what is remembered of a key, under any limit. What it owes it still owes.
func (s *denyShard) drop(hash uint64, key string) {
	for d := s.entries[hash]; d != nil; {
		next := d.chain
		if d.key == key {
			s.end(d)
		}
		d = next
	}
}

func (s *denyShard) dropAll() {
	for d := s.owe.after; d != &s.owe; d = d.after {
		s.end(d)
	}
	for s.idle.after != &s.idle {
		s.remove(s.idle.after)
	}
}

// ended is until when a denial holds that was dropped, and still owes hits.
const ended = 0

func (s *denyShard) end(d *denial) {
	d.until = ended
	if d.sum == 0 {
		s.remove(d)
	}
}

// settle appends what a key owes, under any limit, and owes it no more.
func (s *denyShard) settle(now int64, hash uint64, key string, debts []debt) []debt {
	for d := s.entries[hash]; d != nil; {
		next := d.chain
		if d.sum > 0 && d.key == key {
			debts = s.pay(now, d, debts)
		}
		d = next
	}
	return debts
}

// asks tells whether the store is to be asked of d: for hits of a window that may be open, or since it may still hold and
// somebody asked not long ago.
func (s *denyShard) asks(d *denial, now int64) bool {
	return d.sum > 0 && now < d.resetAt || now < d.retryAt && now-d.since < s.max
}

// pay appends what d owes, if the store is to be asked. One that is too old to answer waits for what it says.
func (s *denyShard) pay(now int64, d *denial, debts []debt) []debt {
	asks := s.asks(d, now)
	if asks {
		debts = append(debts, debt{d.key, d.limit, d.sum, place{hash: d.hash, generation: s.generation}})
	}
	d.used = min(d.used+d.sum, limiters.MaxHits)
	d.sum, d.owes = 0, false
	if !asks || d.until == ended {
		s.remove(d)
		return debts
	}
	d.move(&s.idle)
	return debts
}

// sweep forgets what is too old to be of use. The lists are nearly by age: what it leaves, it takes next time.
func (s *denyShard) sweep(now int64) {
	for d := s.idle.after; d != &s.idle && now >= d.until; d = s.idle.after {
		s.remove(d)
	}
}

// due appends what has been owed since before a time, up to most debts in all. It tells since when the rest is owed,
// forever if there is none.
func (s *denyShard) due(now, before int64, most int, debts []debt) ([]debt, int64) {
	for d := s.owe.after; d != &s.owe; d = s.owe.after {
		if d.since > before || len(debts) >= most {
			return debts, d.since
		}
		debts = s.pay(now, d, debts)
	}
	return debts, forever
}

func (d *denial) move(to *denial) { d.unlink(); d.link(to) }

func (d *denial) unlink() { d.before.after, d.after.before = d.after, d.before }

// link puts d at the end of a list.
func (d *denial) link(list *denial) {
	d.before, d.after = list.before, list
	d.before.after, list.before = d, d
}
