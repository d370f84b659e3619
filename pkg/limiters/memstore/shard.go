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
	latest      int64  // the latest time of a Take, by the store's clock
	order       uint16 // the order of that Take; it wraps after 65,536 Takes at one time
	expiryBound int64  // no record expires before it
	limits      limitTable
	cursor      cursor
	slabs       slabSet
	index       [subindexes]index
	pointers    table[pointers]
	texts       table[[]byte]
	live        atomic.Int64 // number of records: changed under the lock, read without it
	_           [64]byte     // keeps two shards out of one cache line
}

// subindexes is the number of indexes of a shard. They grow separately to bound the pause: with 10
// million keys, an index has about 2,400 and grows in about 20 µs.
const subindexes = 16

// perTableEntry and perText approximate the memory of a table entry and of a text's header, in
// bytes.
const (
	perTableEntry = 20
	perText       = 24
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
	return string(sh.text(r)) == key && sh.limits.get(r.limitIndex()).StateID() == stateID
}

// text returns the key of a record, valid until the record changes.
func (sh *shard) text(r record) []byte {
	n := r.textLen()
	if n == inTable {
		return sh.texts.items[r.word(headLen)]
	}
	return r[headLen : headLen+n]
}

// load reads the state of a record.
func (sh *shard) load(r record, s *limiters.State) {
	s.SetWords(sh.stateWords(r))
	if r.hasPointers() {
		p := &sh.pointers.items[r.pointersID()]
		s.Log, s.Extra = p.log, p.extra
	}
}

// save writes the state of a record. Without pointers it discards the extra state.
func (sh *shard) save(r record, s *limiters.State) {
	s.PutWords(sh.stateWords(r))
	if r.hasPointers() {
		sh.pointers.items[r.pointersID()] = pointers{s.Log, s.Extra}
	}
}

// stateWords returns the words of the state in a record.
func (sh *shard) stateWords(r record) []byte {
	end := len(r)
	if r.hasPointers() {
		end -= 8
	}
	return r[end-8*sh.limits.get(r.limitIndex()).StateWords() : end]
}

// insertRecord adds a record for a new key. It fails if the shard is full, which is far beyond any
// configured bound.
func (s *Store) insertRecord(sh *shard, hash uint32, key string, l *limiters.Limit, hasPointers bool) (position, bool) {
	limit, bytes := sh.limits.acquire(l)
	if limit >= maxLimits {
		sh.limits.release(limit)
		return 0, false
	}
	p, ok := sh.slabs.add(recordLen(key, l, hasPointers))
	if !ok {
		sh.limits.release(limit)
		return 0, false
	}
	r := sh.record(p)
	clear(r)
	r.setHash(hash)
	if len(key) <= maxTextBytes {
		r.setHead(limit, len(key))
		copy(r[headLen:], key)
	} else {
		r.setHead(limit, inTable)
		r.setWord(headLen, int64(sh.texts.add([]byte(key))))
	}
	if hasPointers {
		r.setPointersID(sh.pointers.add(pointers{}))
	}
	sh.index[hash%subindexes].add(hash, p)
	sh.live.Add(1)
	s.keys.Add(1)
	s.bytes.Add(int64(bytes + sh.size(r)))
	return p, true
}

// size returns the memory of a record with its part of the index, in bytes. It excludes up to two
// partly empty slabs for each record length of a shard.
func (sh *shard) size(r record) int {
	n := len(r) + indexPerKey
	if r.textLen() == inTable {
		n += perTableEntry + perText + len(sh.text(r))
	}
	if r.hasPointers() {
		p := &sh.pointers.items[r.pointersID()]
		n += perTableEntry + p.size()
	}
	return n
}

// removeRecord removes a record. The last record of its length moves to its position; from is where
// it was.
func (s *Store) removeRecord(sh *shard, p position) (from position) {
	r := sh.record(p)
	bytes := sh.size(r)
	if r.textLen() == inTable {
		sh.texts.remove(uint32(r.word(headLen)))
	}
	if r.hasPointers() {
		sh.pointers.remove(r.pointersID())
	}
	bytes += sh.limits.release(r.limitIndex())
	sh.index[r.hash()%subindexes].remove(r.hash(), p)

	from = sh.slabs.remove(p)
	if from != p {
		sh.index[r.hash()%subindexes].move(r.hash(), from, p)
	}
	sh.live.Add(-1)
	s.keys.Add(-1)
	s.bytes.Add(-int64(bytes))
	return from
}

// setExpiry sets the expiry of a record.
func (sh *shard) setExpiry(p position, expiry int64) {
	sh.record(p).setExpiry(expiry)
	sh.slabs.lowerBound(p, expiry)
	sh.expiryBound = min(sh.expiryBound, expiry)
}
