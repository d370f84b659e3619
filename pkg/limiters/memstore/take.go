package memstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A take is the state of one Take.
type take struct {
	store      *Store
	out        []limiters.Verdict
	slots      []slot           // one for each hit
	states     []limiters.State // one for each hit; the state of a key is that of its first hit
	stateIndex []int            // index of each hit's state; -1: the hit cannot be decided
	locked     shardSet
	// Times in µs: of the decision, of the store's own clock, and the extension of expiries.
	now, own, keep int64
	// order exceeds that of every earlier Take of these shards with the same own.
	order uint16
}

// takes is a pool, so that a Take of known keys does not allocate.
var takes = sync.Pool{New: func() any { return &take{} }}

// maxKept bounds the hits of a take that is reused.
const maxKept = 256

func (t *take) begin(s *Store, out []limiters.Verdict) {
	t.store, t.out = s, out
	n := len(out)
	if n > cap(t.slots) {
		t.slots, t.states, t.stateIndex = make([]slot, n), make([]limiters.State, n), make([]int, n)
	}
	t.slots, t.states, t.stateIndex = t.slots[:n], t.states[:n], t.stateIndex[:n]
}

// done clears the take and returns it to the pool.
func (t *take) done() {
	if cap(t.slots) > maxKept {
		return
	}
	clear(t.slots)
	clear(t.states)
	t.store, t.out, t.locked = nil, nil, shardSet{}
	takes.Put(t)
}

// A slot is the state of one hit.
type slot struct {
	hit           *limiters.Hit
	shard         *shard
	hash          uint32
	position      position // of the record; 0: there is none
	first         int      // the first hit of the same key, whose slot has the position and the size
	overflowBytes int      // the size of the state's log and parts when it was read
}

// A shardSet is a bit set of shards. Its order is the locking order.
type shardSet [shardCount / 64]uint64

func (s *Store) hash(h *limiters.Hit) uint64 { return s.hashOf(h.Key, h.Limit.Window()) }

// hashOf returns a hash of key and window. The factor, 2^64 over the golden ratio, separates the records of one key.
func (s *Store) hashOf(key string, window time.Duration) uint64 {
	return maphash.String(s.seed, key) ^ uint64(window)*0x9e3779b97f4a7c15
}

// lock hashes the keys and locks their shards. It reads the clock before locking, to hold locks briefly, and then uses the latest
// time of the shards if that is later. Otherwise a Take that waited for a lock could find states from the future, and discard those
// more than a window ahead.
func (t *take) lock(now time.Time, groups []limiters.Group) {
	slots := t.slots
	for _, g := range groups {
		for i := range g {
			sl := &slots[i]
			hash := t.store.hash(&g[i])
			n := hash % shardCount
			sl.hit, sl.shard, sl.hash = &g[i], &t.store.shards[n], uint32(hash>>32)
			t.locked[n/64] |= 1 << (n % 64)
		}
		slots = slots[len(g):]
	}
	t.own, t.order = t.store.clock(), 0
	for i, rest := range t.locked {
		for ; rest != 0; rest &= rest - 1 {
			sh := &t.store.shards[i*64+bits.TrailingZeros64(rest)]
			sh.mu.Lock()
			switch {
			case sh.latest > t.own:
				t.own, t.order = sh.latest, sh.order+1
			case sh.latest == t.own:
				t.order = max(t.order, sh.order+1)
			}
		}
	}
	t.now, t.keep = t.own, 0
	if !now.IsZero() {
		t.now, t.keep = now.UnixMicro(), callerKeep
	}
}

func (t *take) unlock() {
	for i, rest := range t.locked {
		for ; rest != 0; rest &= rest - 1 {
			t.store.shards[i*64+bits.TrailingZeros64(rest)].mu.Unlock()
		}
	}
}

// sweep sets the latest time and order of the shards, and removes some expired records.
func (t *take) sweep() {
	for i, rest := range t.locked {
		for ; rest != 0; rest &= rest - 1 {
			sh := &t.store.shards[i*64+bits.TrailingZeros64(rest)]
			sh.latest, sh.order = t.own, t.order
			t.store.sweep(sh, t.own)
		}
	}
}

// find reads the state of hit i and makes room for its result. If there is no room, a hit that would be allowed fails with ErrFull.
func (t *take) find(i int) {
	h, v, first := t.slots[i].hit, &t.out[i], t.firstOf(i)
	sl, s := &t.slots[first], &t.states[first]
	*v, t.stateIndex[i] = limiters.Verdict{}, first
	isNew := sl.position == 0
	if h.Limit.HasParts() && !isNew {
		t.ensureOverflow(sl, h)
	}
	if (isNew || h.Limit.Grows()) && h.WouldCharge(s, t.now) {
		room := t.makeRoom(sl.shard, isNew)
		if room && isNew {
			sl.position, room = t.store.insert(sl.shard, sl.hash, h.Key, h.Limit, needsOverflow(h.Limit))
		}
		if !room {
			t.stateIndex[i] = -1
			t.decideWithoutRoom(s, h, v)
		}
	}
}

// ensureOverflow gives the record of sl an overflow if the limit of h needs one. It replaces a record that another limit made
// without one. writeBack writes the words that were read before.
func (t *take) ensureOverflow(sl *slot, h *limiters.Hit) {
	old := sl.position
	if sl.shard.record(old).hasOverflow() {
		return
	}
	p, ok := t.store.insert(sl.shard, sl.hash, h.Key, h.Limit, true)
	if !ok {
		return
	}
	sl.position = p
	sl.shard.setExpiry(p, sl.shard.record(old).expiry())
	t.remove(sl.shard, old)
}

// firstOf returns the first hit on the key of hit i. If it is hit i, firstOf reads the record and the state.
func (t *take) firstOf(i int) int {
	sl := &t.slots[i]
	h := sl.hit
	for j := range i {
		e := &t.slots[j]
		if e.hash == sl.hash && e.first == j && e.hit.Key == h.Key && sameState(e.hit.Limit, h.Limit) {
			sl.first = j
			return j
		}
	}
	sl.first = i
	if sl.position = sl.shard.find(sl.hash, h.Key, h.Limit); sl.position != 0 {
		sl.shard.load(sl.shard.record(sl.position), &t.states[i])
		sl.overflowBytes = t.states[i].GrownBytes()
	}
	return i
}

// decideWithoutRoom decides a hit for whose result there is no room.
func (t *take) decideWithoutRoom(s *limiters.State, h *limiters.Hit, v *limiters.Verdict) {
	checked := h.Limit.Check(s, t.now, h.N)
	if h.End {
		// The end of an unknown id is not remembered.
		checked.Allowed, checked.RetryAfter = true, 0
	}
	if !checked.Allowed || h.End {
		*v = checked
		return
	}
	t.store.rejected.Add(1)
	v.Err = ErrFull
}

// writeBack writes states and expiries, and removes records of zero states.
func (t *take) writeBack() {
	for i := range t.slots {
		l, first := t.slots[i].hit.Limit, t.slots[i].first
		sl, s := &t.slots[first], &t.states[first]
		if sl.position == 0 {
			continue
		}
		r := sl.shard.record(sl.position)
		if first != i {
			t.store.keepSmallest(sl.shard, r, l, t.own)
			continue
		}
		sl.shard.save(r, s)
		if size := s.GrownBytes(); size != sl.overflowBytes {
			t.store.bytes.Add(int64(size - sl.overflowBytes))
		}
		if s.IsZero() {
			p := sl.position
			sl.position = 0
			t.remove(sl.shard, p)
			continue
		}
		t.store.keepSmallest(sl.shard, r, l, t.own)
		expiry := t.own + max(0, l.ResetTime(s)-t.now) + t.keep
		if s.Parts != nil {
			// Another limit may need the parts for longer.
			expiry = max(expiry, r.expiry())
		}
		sl.shard.setExpiry(sl.position, expiry)
	}
}

// holds reports whether the take uses a record, which must not be evicted.
func (t *take) holds(sh *shard, p position) bool {
	for i := range t.slots {
		if sl := &t.slots[i]; sl.position == p && sl.shard == sh {
			return true
		}
	}
	return false
}

// remove removes a record that this take does not use.
func (t *take) remove(sh *shard, p position) {
	from := t.store.remove(sh, p)
	for i := range t.slots {
		if sl := &t.slots[i]; sl.position == from && sl.shard == sh {
			sl.position = p
		}
	}
}
