package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A shard holds the records of some keys. A record is the state of a key under one algorithm and
// window.
type shard struct {
	mu          sync.Mutex
	latest      int64  // the time of the latest Take or Sweep, by the store's clock
	order       uint16 // the order of the latest Take among those of one time
	expiryBound int64  // no record expires before it
	limits      limitTable
	cursor      cursor
	slabs       slabSet
	index       [subindexes]index
	heapStates  table[heapState]
	longKeys    table[[]byte]
	sampled     limiters.State // scratch space of evictOne, because a local variable would be allocated
	recordCount atomic.Int64   // changed under the lock, read without it
	_           [64]byte       // keeps two shards out of one cache line
}

// subindexes is the number of indexes of a shard. They grow separately to bound the pause: with 10
// million keys, an index has about 2,400.
const subindexes = 16

// tableEntryBytes and longKeyBytes approximate the memory of a table entry and of a long key's
// header.
const (
	tableEntryBytes = 20
	longKeyBytes    = 24
)

func (sh *shard) record(p position) record { return sh.slabs.record(p) }

// find returns the position of the record of a key under the limits with a StateID; 0 if there is
// none.
func (sh *shard) find(hash uint32, key, stateID string) position {
	x := &sh.index[hash%subindexes]
	if x.n == 0 {
		return 0
	}
	for i := x.home(hash); x.cells[i] != 0; i = x.next(i) {
		if cell := x.cells[i]; uint32(cell>>32) == hash && sh.matches(sh.record(position(cell)), key, stateID) {
			return position(cell)
		}
	}
	return 0
}

func (sh *shard) matches(r record, key, stateID string) bool {
	return string(sh.key(r)) == key && sh.limits.get(r.limitIndex()).StateID() == stateID
}

// key returns the key of a record, valid until the record changes.
func (sh *shard) key(r record) []byte {
	n := r.keyLen()
	if n == longKey {
		return sh.longKeys.items[r.word(headLen)]
	}
	return r[headLen : headLen+n]
}

// readState reads the state of a record.
func (sh *shard) readState(r record, s *limiters.State) {
	s.SetWords(sh.stateWords(r))
	if r.hasHeapState() {
		p := &sh.heapStates.items[r.heapStateIndex()]
		s.Log, s.Extra = p.log, p.extra
	}
}

// writeState writes the state of a record. Without a heapState it discards the extra state.
func (sh *shard) writeState(r record, s *limiters.State) {
	s.PutWords(sh.stateWords(r))
	if r.hasHeapState() {
		sh.heapStates.items[r.heapStateIndex()] = heapState{s.Log, s.Extra}
	}
}

// stateWords returns the words of the state in a record.
func (sh *shard) stateWords(r record) []byte {
	end := len(r)
	if r.hasHeapState() {
		end -= 8
	}
	return r[end-8*sh.limits.get(r.limitIndex()).StateWords() : end]
}

// insertRecord adds a record for a new key. It returns 0 if the shard is full, which is far beyond
// any configured bound.
func (s *Store) insertRecord(sh *shard, hash uint32, key string, l *limiters.Limit, hasHeapState bool) position {
	limit, bytes := sh.limits.acquire(l)
	if limit >= maxLimits {
		sh.limits.release(limit)
		return 0
	}
	p := sh.slabs.add(recordLen(key, l, hasHeapState))
	if p == 0 {
		sh.limits.release(limit)
		return 0
	}
	r := sh.record(p)
	clear(r)
	r.setHash(hash)
	if len(key) <= maxKeyBytes {
		r.setHead(limit, len(key))
		copy(r[headLen:], key)
	} else {
		r.setHead(limit, longKey)
		r.setWord(headLen, int64(sh.longKeys.add([]byte(key))))
	}
	if hasHeapState {
		r.setHeapStateIndex(sh.heapStates.add(heapState{}))
	}
	sh.index[hash%subindexes].add(hash, p)
	sh.recordCount.Add(1)
	s.keys.Add(1)
	s.bytes.Add(int64(bytes + sh.size(r)))
	return p
}

// size returns the memory of a record with its part of the index, in bytes. It excludes up to two
// partly empty slabs for each record length of a shard.
func (sh *shard) size(r record) int {
	n := len(r) + indexBytesPerKey
	if r.keyLen() == longKey {
		n += tableEntryBytes + longKeyBytes + len(sh.key(r))
	}
	if r.hasHeapState() {
		p := &sh.heapStates.items[r.heapStateIndex()]
		n += tableEntryBytes + p.size()
	}
	return n
}

// removeRecord removes a record. The last record of its length moves to its position; from is where
// it was.
func (s *Store) removeRecord(sh *shard, p position) (from position) {
	r := sh.record(p)
	bytes := sh.size(r)
	if r.keyLen() == longKey {
		sh.longKeys.remove(uint32(r.word(headLen)))
	}
	if r.hasHeapState() {
		sh.heapStates.remove(r.heapStateIndex())
	}
	bytes += sh.limits.release(r.limitIndex())
	sh.index[r.hash()%subindexes].remove(r.hash(), p)

	from = sh.slabs.remove(p)
	if from != p {
		hash := sh.record(p).hash() // of the record that has moved to p
		sh.index[hash%subindexes].move(hash, from, p)
	}
	sh.recordCount.Add(-1)
	s.keys.Add(-1)
	s.bytes.Add(-int64(bytes))
	return from
}

// setExpiry sets the expiry of a record.
func (sh *shard) setExpiry(p position, expiry int64) {
	sh.record(p).setExpiry(expiry)
	sh.slabs.lowerExpiryBound(p, expiry)
	sh.expiryBound = min(sh.expiryBound, expiry)
}
