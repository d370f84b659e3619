package memstore

import (
	"encoding/binary"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A record is one key, without pointers: the garbage collector does not scan records.
//
//	 0  the expiry of the key: a time by the store's clock, in µs since 1970
//	 8  the hash of the key
//	12  the length of the key in the record, 9 bits; whether the state may have a heapState, 1 bit; and the number of the limit
//	    in the shard's table, 22
//	16  the key, padded to whole words
//	    the words of the state, 8 bytes each, and the number of its heapState, if it may have one, in the shard's table
//
// A key longer than maxKeyBytes is in a table of the shard. Instead of the key, the record contains
// the number of the key in this table, and its length is longKey.
type record []byte

const (
	headLen       = 16
	maxKeyBytes   = 256
	longKey       = 1<<9 - 1
	heapStateFlag = 1 << 9
	limitShift    = 10
	maxLimits     = 1 << 22
	// lengthCount is the number of possible lengths in words. A state takes at most three words and
	// a heapState.
	lengthCount = headLen/8 + maxKeyBytes/8 + 4 + 1
)

// recordLen returns the length of a record in words.
func recordLen(key string, l *limiters.Limit, hasHeapState bool) int {
	size := len(key)
	if size > maxKeyBytes {
		size = 8
	}
	n := headLen/8 + (size+7)/8 + l.StateWords()
	if hasHeapState {
		n++
	}
	return n
}

// needsHeapState reports whether states under l may have a log or extra state.
func needsHeapState(l *limiters.Limit) bool { return l.Grows() || l.UsesExtraState() }

func (r record) word(offset int) int64       { return int64(binary.LittleEndian.Uint64(r[offset:])) }
func (r record) setWord(offset int, w int64) { binary.LittleEndian.PutUint64(r[offset:], uint64(w)) }

func (r record) expiry() int64          { return r.word(0) }
func (r record) setExpiry(t int64)      { r.setWord(0, t) }
func (r record) hash() uint32           { return binary.LittleEndian.Uint32(r[8:]) }
func (r record) head() uint32           { return binary.LittleEndian.Uint32(r[12:]) }
func (r record) keyLen() int            { return int(r.head() & longKey) }
func (r record) hasHeapState() bool     { return r.head()&heapStateFlag != 0 }
func (r record) limitIndex() uint32     { return r.head() >> limitShift }
func (r record) heapStateIndex() uint32 { return uint32(r.word(len(r) - 8)) }

func (r record) setHash(h uint32) { binary.LittleEndian.PutUint32(r[8:], h) }

// setHead sets the limit index and the key length of a record without a heapState.
func (r record) setHead(limit uint32, keyLen int) {
	binary.LittleEndian.PutUint32(r[12:], limit<<limitShift|uint32(keyLen))
}

func (r record) setLimitIndex(limit uint32) {
	binary.LittleEndian.PutUint32(r[12:], limit<<limitShift|r.head()&(1<<limitShift-1))
}

func (r record) setHeapStateIndex(i uint32) {
	binary.LittleEndian.PutUint32(r[12:], r.head()|heapStateFlag)
	r.setWord(len(r)-8, int64(i))
}

// A heapState holds the parts of a key's state that are pointers: its log and its extra state. The
// record holds the number of this entry in a table of the shard.
type heapState struct {
	log   *limiters.Log
	extra *limiters.ExtraState
}

// size returns the memory that h points to, in bytes.
func (h *heapState) size() int {
	return (&limiters.State{Log: h.log, Extra: h.extra}).HeapBytes()
}
