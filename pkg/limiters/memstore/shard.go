package memstore

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A shard holds the records of some keys. A record is the state of a key under one algorithm and window.
type shard struct {
	mu        sync.Mutex
	latest    int64  // the latest time of a Take, by the store's clock
	order     uint16 // of that Take
	soonest   int64  // no record expires before
	limits    limits
	cursor    cursor
	pages     pages
	index     [subindexes]index
	overflows table[overflow]
	texts     table[string]
	live      atomic.Int64 // number of records: changed under the lock, read without it
	_         [64]byte     // keeps two shards out of one cache line
}

// subindexes is the number of indexes of a shard. They grow separately to bound the pause: with 10 million keys, an index has about
// 2,400 and grows in about 20 µs.
const subindexes = 16

// perTableEntry and perString approximate the memory of a table entry and of a text's header, in bytes.
const (
	perTableEntry = 20
	perString     = 16
)

func (sh *shard) record(p position) record { return sh.pages.record(p) }

// find returns the position of the record of a key; 0 if there is none.
func (sh *shard) find(hash uint32, key string, l *limiters.Limit) position {
	x := &sh.index[hash%subindexes]
	if x.n == 0 {
		return 0
	}
	for i := x.home(hash); x.slots[i] != 0; i = x.next(i) {
		if slot := x.slots[i]; uint32(slot>>32) == hash && sh.matches(sh.record(position(slot)), key, l) {
			return position(slot)
		}
	}
	return 0
}

func (sh *shard) matches(r record, key string, l *limiters.Limit) bool {
	if n := r.textLen(); n == inTable {
		if sh.texts.items[r.word(headLen)] != key {
			return false
		}
	} else if string(r[headLen:headLen+n]) != key {
		return false
	}
	return sameState(sh.limits.get(r.limit()), l)
}

func sameState(a, b *limiters.Limit) bool { return a == b || a.ID() == b.ID() }

// load reads the state of a record.
func (sh *shard) load(r record, s *limiters.State) {
	l := sh.limits.get(r.limit())
	n := l.StateWords()
	at := len(r) - 8*n
	if r.hasOverflow() {
		at -= 8
		o := &sh.overflows.items[r.overflow()]
		s.Log, s.Parts = o.log, o.parts
	}
	if n > 0 {
		s.A = r.word(at)
	}
	if n > 1 {
		s.B = r.word(at + 8)
	}
	if n > 2 {
		s.C = r.word(at + 16)
	}
}

// save writes the state of a record. Without an overflow it discards parts.
func (sh *shard) save(r record, s *limiters.State) {
	l := sh.limits.get(r.limit())
	n := l.StateWords()
	at := len(r) - 8*n
	if r.hasOverflow() {
		at -= 8
		sh.overflows.items[r.overflow()] = overflow{s.Log, s.Parts}
	}
	if n > 0 {
		r.setWord(at, s.A)
	}
	if n > 1 {
		r.setWord(at+8, s.B)
	}
	if n > 2 {
		r.setWord(at+16, s.C)
	}
}

// insert adds a record for a new key. It fails if the shard is full, which is far beyond any configured bound.
func (s *Store) insert(sh *shard, hash uint32, key string, l *limiters.Limit, hasOverflow bool) (position, bool) {
	limit, bytes := sh.limits.acquire(l)
	if limit >= maxLimits {
		sh.limits.release(limit)
		return 0, false
	}
	p, ok := sh.pages.add(recordLen(key, l, hasOverflow))
	if !ok {
		sh.limits.release(limit)
		return 0, false
	}
	r := sh.record(p)
	clear(r)
	r.setHash(hash)
	if len(key) <= maxTextLen {
		r.setHead(limit, len(key))
		copy(r[headLen:], key)
	} else {
		r.setHead(limit, inTable)
		r.setWord(headLen, int64(sh.texts.add(strings.Clone(key))))
	}
	if hasOverflow {
		r.setOverflow(sh.overflows.add(overflow{}))
	}
	sh.index[hash%subindexes].add(hash, p)
	sh.live.Add(1)
	s.keys.Add(1)
	s.bytes.Add(int64(bytes + sh.size(r)))
	return p, true
}

// size returns the memory of a record with its part of the index, in bytes. It excludes up to two partly empty pages for each
// record length of a shard.
func (sh *shard) size(r record) int {
	n := len(r) + indexPerKey
	if r.textLen() == inTable {
		n += perTableEntry + perString + len(sh.texts.items[r.word(headLen)])
	}
	if r.hasOverflow() {
		o := &sh.overflows.items[r.overflow()]
		n += perTableEntry + (&limiters.State{Log: o.log, Parts: o.parts}).GrownBytes()
	}
	return n
}

// remove removes a record. The last record of its length moves to its position; from is where it was.
func (s *Store) remove(sh *shard, p position) (from position) {
	r := sh.record(p)
	bytes := sh.size(r)
	if r.textLen() == inTable {
		sh.texts.remove(uint32(r.word(headLen)))
	}
	if r.hasOverflow() {
		sh.overflows.remove(r.overflow())
	}
	bytes += sh.limits.release(r.limit())
	sh.index[r.hash()%subindexes].remove(r.hash(), p)

	if from = sh.pages.remove(p); from != p {
		sh.index[r.hash()%subindexes].moved(r.hash(), from, p)
		sh.soonest = min(sh.soonest, r.expiry())
	}
	sh.live.Add(-1)
	s.keys.Add(-1)
	s.bytes.Add(-int64(bytes))
	return from
}

// keepSmallest makes l the limit of a record if it is smaller than the record's, so that eviction spares a client that is over any
// of its limits. A limit without hits for a window is replaced, because new rules may have raised it. A limit of 0 needs no
// protection.
func (s *Store) keepSmallest(sh *shard, r record, l *limiters.Limit, own int64) {
	used := &sh.limits.table.items[r.limit()]
	held := used.limit
	// Snapshots and eviction find the penalty of a key only through its limit.
	penalty := held.HasPenalty() != l.HasPenalty()
	if held == l || held.Capacity() == l.Capacity() && !penalty {
		used.hitAt = own
		return
	}
	keeps := held.Capacity() != 0 && held.Capacity() < l.Capacity()
	if penalty {
		keeps = held.HasPenalty()
	}
	if l.Capacity() == 0 || keeps && own-used.hitAt <= held.Window().Microseconds() {
		return
	}
	i, more := sh.limits.acquire(l)
	if i >= maxLimits {
		sh.limits.release(i)
		return
	}
	less := sh.limits.release(r.limit())
	r.setLimit(i)
	sh.limits.table.items[i].hitAt = own
	if more != less {
		s.bytes.Add(int64(more - less))
	}
}

// setExpiry sets the expiry of a record.
func (sh *shard) setExpiry(p position, expiry int64) {
	sh.record(p).setExpiry(expiry)
	sh.pages.lowerSoonest(p, expiry)
	sh.soonest = min(sh.soonest, expiry)
}

// A cursor is the progress of a sweep: its position, and the earliest expiry of the records already checked.
//
// Invariant: every record on a page before the cursor expires at the soonest of the shard or of the cursor, or later. Every record
// before the cursor on its page expires at the soonest of that page or at inPage, or later.
type cursor struct {
	sweeping bool // a sweep of the shard is in progress
	begun    bool // a sweep of the current page is in progress
	page     uint32
	slot     uint16
	inPage   int64 // the earliest expiry that the sweep found before the slot, on the page
	soonest  int64 // the earliest expiry that the sweep found on the pages before the page
}

// sweepPerTake is the number of records that a Take checks while its shard has expired ones. A Take adds one or two records, so the
// sweep keeps up if one in eight has expired.
const sweepPerTake = 8

// Sweep removes some expired records of each shard, as Takes do. Call it periodically if Takes may stop.
func (s *Store) Sweep() {
	for i := range s.shards {
		sh := &s.shards[i]
		if sh.live.Load() == 0 {
			continue
		}
		sh.mu.Lock()
		sh.latest = s.clock()
		for range sweepsPerSweep {
			if s.sweep(sh, sh.latest); !sh.cursor.sweeping {
				break
			}
		}
		sh.mu.Unlock()
	}
}

// sweepsPerSweep bounds the work of Sweep in a shard, so that it holds the lock for about 10 µs.
const sweepsPerSweep = 64

// sweep removes some expired records. It skips pages and shards that have none.
func (s *Store) sweep(sh *shard, own int64) {
	c := &sh.cursor
	if !c.sweeping {
		if sh.soonest > own {
			return
		}
		// The cursor is before all records, so the invariant holds. setExpiry and remove lower the shard's soonest.
		*c, sh.soonest = cursor{sweeping: true, soonest: math.MaxInt64}, math.MaxInt64
	}
	for range sweepPerTake {
		if int(c.page) >= len(sh.pages.table.items) {
			sh.soonest = min(sh.soonest, c.soonest)
			c.sweeping = false
			return
		}
		pg := &sh.pages.table.items[c.page]
		switch {
		case !c.begun && pg.soonest > own:
			c.soonest = min(c.soonest, pg.soonest)
			c.page++
		case !c.begun:
			// The cursor is before all records of the page, so the invariant holds. setExpiry lowers the page's soonest.
			c.begun, c.slot, c.inPage, pg.soonest = true, 0, math.MaxInt64, math.MaxInt64
		case c.slot >= pg.n:
			pg.soonest = min(pg.soonest, c.inPage)
			c.soonest = min(c.soonest, pg.soonest)
			c.page, c.begun = c.page+1, false
		default:
			if expiry := pg.record(int(c.slot)).expiry(); expiry > own {
				c.inPage = min(c.inPage, expiry)
				c.slot++
			} else {
				s.remove(sh, positionOf(c.page, int(c.slot)))
			}
		}
	}
}

const (
	sampleSize   = 8 // records of a shard that are checked for one to evict
	sampleShards = 8 // shards that are checked
)

// makeRoom makes room for a new key or a growing one. It reports whether there is room. The lock of sh must be held.
func (t *take) makeRoom(sh *shard, isNew bool) bool {
	s := t.store
	for range sampleShards {
		if s.hasRoom(isNew) {
			return true
		}
		if t.evictOne(sh) {
			continue
		}
		other := s.another()
		// The Take holds other locks, so it must not wait for this one.
		if other != sh && other.mu.TryLock() {
			t.evictOne(other)
			other.mu.Unlock()
		}
	}
	return s.hasRoom(isNew)
}

func (s *Store) hasRoom(isNew bool) bool {
	return (!isNew || s.keys.Load() < s.max.MaxKeys) && s.bytes.Load() < s.max.MaxBytes
}

// another returns a random shard with records, if there is one.
func (s *Store) another() *shard {
	first := rand.IntN(shardCount)
	for i := range shardCount {
		if sh := &s.shards[(first+i)%shardCount]; sh.live.Load() > 0 {
			return sh
		}
	}
	return &s.shards[first]
}

// evictOne evicts a record of a sample: an expired one or, among keys not over their limits, the one that expires first. Keys over
// their limits are never evicted, because that would admit their clients.
func (t *take) evictOne(sh *shard) bool {
	var best position
	soonest := int64(math.MaxInt64)
	if sh.live.Load() == 0 {
		return false
	}
	for range sampleSize {
		p := sh.pick()
		if t.holds(sh, p) {
			continue
		}
		r := sh.record(p)
		expiry := r.expiry()
		if expiry <= t.own {
			best, soonest = p, expiry
			break
		}
		if expiry >= soonest {
			continue
		}
		var state limiters.State
		sh.load(r, &state)
		if sh.limits.get(r.limit()).Check(&state, t.own, 1).Allowed {
			best, soonest = p, expiry
		}
	}
	if best == 0 {
		return false
	}
	if soonest > t.own {
		t.store.evicted.Add(1)
	}
	t.remove(sh, best)
	return true
}

// pick returns the position of a random record, which must exist.
func (sh *shard) pick() position {
	all := sh.pages.table.items
	n := rand.IntN(len(all))
	for all[n].n == 0 {
		n = (n + 1) % len(all)
	}
	return positionOf(uint32(n), rand.IntN(int(all[n].n)))
}
