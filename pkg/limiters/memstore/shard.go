package memstore

import (
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A shard holds the entries of some keys. Those of one key, under limits that do not share a state, are a chain.
type shard struct {
	mu      sync.Mutex
	entries map[string]*entry
	list    []*entry // the same, to sweep and to sample
	cursor  int      // where the sweep goes on
}

type entry struct {
	key   string
	limit *limiters.Limit // the tightest that the key was hit under
	state limiters.State
	next  *entry
	due   int64 // when the key is as good as new, by the store's clock
	bytes int   // as accounted
	place int32 // in the shard's list
	taken bool  // by the Take that holds the shard's lock: not to be dropped
}

const nowhere = -1

// perEntry is about what an entry takes beside its key and its state: itself, its places in the map and in the list.
const perEntry = int(unsafe.Sizeof(entry{})) + 56

func (e *entry) size() int { return perEntry + len(e.key) + limiters.Size(e.state) }

func (e *entry) is(h *limiters.Hit) bool {
	return e.key == h.Key && (e.limit == h.Limit || e.limit.ID() == h.Limit.ID())
}

// tighten makes sure that whoever is denied under any limit of the key counts as denied. A limit of 0 is none to protect.
func (e *entry) tighten(l *limiters.Limit) {
	if l.Capacity() > 0 && (e.limit.Capacity() == 0 || l.Capacity() < e.limit.Capacity()) {
		e.limit = l
	}
}

func (sh *shard) find(h *limiters.Hit) *entry {
	e := sh.entries[h.Key]
	for e != nil && !e.is(h) {
		e = e.next
	}
	return e
}

func (s *Store) insert(sh *shard, e *entry) {
	e.next = sh.entries[e.key]
	sh.entries[e.key] = e
	e.place = int32(len(sh.list))
	sh.list = append(sh.list, e)
	e.bytes = e.size()
	s.keys.Add(1)
	s.bytes.Add(int64(e.bytes))
}

func (s *Store) remove(sh *shard, e *entry) {
	if head := sh.entries[e.key]; head == e {
		if e.next == nil {
			delete(sh.entries, e.key)
		} else {
			sh.entries[e.key] = e.next
		}
	} else {
		for head.next != e {
			head = head.next
		}
		head.next = e.next
	}
	last := len(sh.list) - 1
	sh.list[e.place] = sh.list[last]
	sh.list[e.place].place = e.place
	sh.list[last] = nil
	sh.list = sh.list[:last]
	e.place = nowhere
	s.keys.Add(-1)
	s.bytes.Add(-int64(e.bytes))
}

// sweepPerTake is how many entries of a shard a Take looks at: more than it adds, as a rule, so that the sweep keeps up.
const sweepPerTake = 2

// sweep drops what it meets that is as good as new.
func (s *Store) sweep(sh *shard, own int64) {
	for range sweepPerTake {
		if len(sh.list) == 0 {
			return
		}
		if sh.cursor >= len(sh.list) {
			sh.cursor = 0
		}
		if e := sh.list[sh.cursor]; e.due <= own {
			s.remove(sh, e)
		} else {
			sh.cursor++
		}
	}
}

const (
	sampleSize   = 8 // entries of a shard that are looked at for one to drop
	sampleShards = 8 // shards that are looked at
)

// room makes room for a new key, or for one that grows, if it must and can. The caller holds the lock of sh.
func (s *Store) room(sh *shard, own int64, isNew bool) bool {
	for range sampleShards {
		if s.hasRoom(isNew) {
			return true
		}
		if s.dropOne(sh, own) {
			continue
		}
		other := &s.shards[rand.IntN(shardCount)]
		// Not Lock: the caller holds others. One that is busy is passed over.
		if other != sh && other.mu.TryLock() {
			s.dropOne(other, own)
			other.mu.Unlock()
		}
	}
	return s.hasRoom(isNew)
}

func (s *Store) hasRoom(isNew bool) bool {
	return (!isNew || s.keys.Load() < s.max.MaxKeys) && s.bytes.Load() < s.max.MaxBytes
}

// dropOne drops, of a sample of the shard, an entry that is as good as new, or else the one nearest to it among those
// that are not denying: a key that denies is never dropped to let its owner back in.
func (s *Store) dropOne(sh *shard, own int64) bool {
	var best *entry
	for range min(sampleSize, len(sh.list)) {
		e := sh.list[rand.IntN(len(sh.list))]
		if e.taken {
			continue
		}
		if e.due <= own {
			best = e
			break
		}
		if best != nil && e.due >= best.due {
			continue
		}
		if _, denying := limiters.Denial(e.limit, e.state, own, 1); !denying {
			best = e
		}
	}
	if best == nil {
		return false
	}
	if best.due > own {
		s.dropped.Add(1)
	}
	s.remove(sh, best)
	return true
}
