package memstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A take is one call of Take.
type take struct {
	store  *Store
	out    []limiters.Verdict
	slots  []slot           // one for each hit
	states []limiters.State // the same; that of a key is with its first hit
	of     []int            // where the state of a hit is, -1 where it cannot be decided
	locked shardSet
	// The times, in µs since 1970: at which hits are decided, by the store's clock, and how much longer than its state
	// says a key is kept.
	now, own, keep int64
}

// takes are those that are done, to be used again: a Take of known keys makes no garbage.
var takes = sync.Pool{New: func() any { return &take{} }}

// mostKept is for how many hits a take that is kept has room at most.
const mostKept = 256

func (t *take) begin(s *Store, groups []limiters.Group, out []limiters.Verdict) {
	t.store, t.out = s, out
	n := 0
	for _, g := range groups {
		n += len(g)
	}
	if n > cap(t.slots) {
		t.slots, t.states, t.of = make([]slot, n), make([]limiters.State, n), make([]int, n)
	}
	t.slots, t.states, t.of = t.slots[:0], t.states[:n], t.of[:n]
	for _, g := range groups {
		for i := range g {
			t.slots = append(t.slots, slot{hit: &g[i]})
		}
	}
}

// done forgets all that the take points to.
func (t *take) done() {
	if cap(t.slots) > mostKept {
		return
	}
	clear(t.slots)
	clear(t.states)
	t.store, t.out, t.locked = nil, nil, shardSet{}
	takes.Put(t)
}

// A slot is what a take knows of a hit's key.
type slot struct {
	hit   *limiters.Hit
	shard *shard
	hash  uint32
	place place // of the record, 0 while there is none
	first int   // the first hit of the same key: the place and the size are in its slot
	logs  int   // the size of the state's log, as accounted
}

// A shardSet has a bit for each shard. Its order is the order of locking.
type shardSet [shardCount / 64]uint64

// hash is another one for each window of a key, so that no record of the key is in the way of another. The factor is 2^64
// over the golden ratio.
func (s *Store) hash(h *limiters.Hit) uint64 {
	return maphash.String(s.seed, h.Key) ^ uint64(h.Limit.Window())*0x9e3779b97f4a7c15
}

// lock hashes the keys, each once, and locks their shards. It reads the clock before, for a lock is held as short as can
// be, and takes what the shards know to be later: a Take that had to wait must not find the states of its keys to be
// from the future, which by more than a window would make them absent.
func (t *take) lock(now time.Time) {
	for i := range t.slots {
		o := &t.slots[i]
		hash := t.store.hash(o.hit)
		n := hash % shardCount
		o.shard, o.hash = &t.store.shards[n], uint32(hash>>32)
		t.locked[n/64] |= 1 << (n % 64)
	}
	t.own = t.store.clock()
	for i, rest := range t.locked {
		for ; rest != 0; rest &= rest - 1 {
			sh := &t.store.shards[i*64+bits.TrailingZeros64(rest)]
			sh.mu.Lock()
			t.own = max(t.own, sh.latest)
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

// sweep tells the shards how late it is, and drops some of what is as good as new.
func (t *take) sweep() {
	for i, rest := range t.locked {
		for ; rest != 0; rest &= rest - 1 {
			sh := &t.store.shards[i*64+bits.TrailingZeros64(rest)]
			sh.latest = t.own
			t.store.sweep(sh, t.own)
		}
	}
}

// find finds the state of hit i, and makes room in the store for what the hit will write. Where there is none the hit has
// no state and fails with ErrFull; but one that would be denied is denied, counted or not.
func (t *take) find(i int) {
	h, v, first := t.slots[i].hit, &t.out[i], t.firstOf(i)
	o, s := &t.slots[first], &t.states[first]
	*v, t.of[i] = limiters.Verdict{}, first
	isNew := o.place == 0
	if (isNew || h.Limit.Grows()) && limiters.Writes(h, s, t.now) {
		room := t.room(o.shard, isNew)
		if room && isNew {
			o.place, room = t.store.insert(o.shard, o.hash, h.Key, h.Limit)
		}
		if !room {
			t.of[i] = -1
			t.refuse(s, h, v)
		}
	}
}

// firstOf is the first hit of the same key as hit i, whose record and state are read there.
func (t *take) firstOf(i int) int {
	o := &t.slots[i]
	h := o.hit
	for j := range i {
		e := &t.slots[j]
		if e.hash == o.hash && e.first == j && e.hit.Key == h.Key && sameState(e.hit.Limit, h.Limit) {
			o.first = j
			return j
		}
	}
	o.first = i
	if o.place = o.shard.find(o.hash, h.Key, h.Limit); o.place != 0 {
		o.shard.load(o.shard.record(o.place), &t.states[i])
		o.logs = limiters.Size(&t.states[i])
	}
	return i
}

func (t *take) refuse(s *limiters.State, h *limiters.Hit, v *limiters.Verdict) {
	if denial, sure := limiters.Denial(h.Limit, s, t.now, h.N); sure {
		*v = denial
		return
	}
	t.store.refused.Add(1)
	v.Err = ErrFull
}

// settle writes the states back, and when they will be as good as new, and drops those that are as if never seen.
func (t *take) settle() {
	for i := range t.slots {
		l, first := t.slots[i].hit.Limit, t.slots[i].first
		o, s := &t.slots[first], &t.states[first]
		if o.place == 0 {
			continue
		}
		r := o.shard.record(o.place)
		if first != i {
			t.store.keepSmallest(o.shard, r, l, t.own)
			continue
		}
		o.shard.save(r, s)
		if logs := limiters.Size(s); logs != o.logs {
			t.store.bytes.Add(int64(logs - o.logs))
		}
		if limiters.Fresh(s) {
			p := o.place
			o.place = 0
			t.remove(o.shard, p)
			continue
		}
		t.store.keepSmallest(o.shard, r, l, t.own)
		o.shard.due(o.place, t.own+max(0, limiters.Until(l, s)-t.now)+t.keep)
	}
}

// holds tells whether a record is of this take: not to be dropped for room.
func (t *take) holds(sh *shard, p place) bool {
	for i := range t.slots {
		if o := &t.slots[i]; o.place == p && o.shard == sh {
			return true
		}
	}
	return false
}

// remove forgets a record that this take has no use for.
func (t *take) remove(sh *shard, p place) {
	from := t.store.remove(sh, p)
	for i := range t.slots {
		if o := &t.slots[i]; o.place == from && o.shard == sh {
			o.place = p
		}
	}
}
