package memstore

import (
	"encoding/binary"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A record is one key, without pointers: the garbage collector does not scan records.
//
//	 0  the expiry of the key: a time by the store's clock, in µs since 1970
//	 8  the hash of the key
//	12  the length of the key's text in the record, 9 bits; whether the state may have pointers, 1 bit; and the number of the
//	    limit in the shard's table, 22
//	16  the text, padded to whole words
//	    the words of the state, 8 bytes each, and the number of its pointers, if it may have any, in the shard's table
//
// A text longer than maxTextBytes is in a table of the shard. The record contains its number there,
// and the length inTable.
type record []byte

const (
	headLen      = 16
	maxTextBytes = 256
	inTable      = 1<<9 - 1
	pointersFlag = 1 << 9
	limitShift   = 10
	maxLimits    = 1 << 22
	// lengthCount is the number of possible lengths in words. A state takes at most three words and
	// pointers.
	lengthCount = headLen/8 + maxTextBytes/8 + 4 + 1
)

// recordLen returns the length of a record in words.
func recordLen(key string, l *limiters.Limit, hasPointers bool) int {
	text := len(key)
	if text > maxTextBytes {
		text = 8
	}
	n := headLen/8 + (text+7)/8 + l.StateWords()
	if hasPointers {
		n++
	}
	return n
}

// needsPointers reports whether states under l may have a log or extra state.
func needsPointers(l *limiters.Limit) bool { return l.Grows() || l.UsesExtraState() }

func (r record) word(offset int) int64       { return int64(binary.LittleEndian.Uint64(r[offset:])) }
func (r record) setWord(offset int, w int64) { binary.LittleEndian.PutUint64(r[offset:], uint64(w)) }

func (r record) expiry() int64      { return r.word(0) }
func (r record) setExpiry(t int64)  { r.setWord(0, t) }
func (r record) hash() uint32       { return binary.LittleEndian.Uint32(r[8:]) }
func (r record) head() uint32       { return binary.LittleEndian.Uint32(r[12:]) }
func (r record) textLen() int       { return int(r.head() & inTable) }
func (r record) hasPointers() bool  { return r.head()&pointersFlag != 0 }
func (r record) limitIndex() uint32 { return r.head() >> limitShift }
func (r record) pointersID() uint32 { return uint32(r.word(len(r) - 8)) }

func (r record) setHash(h uint32) { binary.LittleEndian.PutUint32(r[8:], h) }

// setHead sets the limit and the text length of a record without pointers.
func (r record) setHead(limit uint32, textLen int) {
	binary.LittleEndian.PutUint32(r[12:], limit<<limitShift|uint32(textLen))
}

func (r record) setLimitID(limit uint32) {
	binary.LittleEndian.PutUint32(r[12:], limit<<limitShift|r.head()&(1<<limitShift-1))
}

func (r record) setPointersID(i uint32) {
	binary.LittleEndian.PutUint32(r[12:], r.head()|pointersFlag)
	r.setWord(len(r)-8, int64(i))
}

// pointers holds the log and the extra state of a key. A record holds no pointers: it holds the
// number of this entry in a table of the shard.
type pointers struct {
	log   *limiters.Log
	extra *limiters.ExtraState
}

// size returns the memory that p points to, in bytes.
func (p *pointers) size() int {
	return (&limiters.State{Log: p.log, Extra: p.extra}).HeapBytes()
}
