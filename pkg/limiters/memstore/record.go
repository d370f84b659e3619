package memstore

import (
	"encoding/binary"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A record is one key, without pointers: the garbage collector does not scan records.
//
//	 0  due: when the key expires, by the store's clock, in µs since 1970
//	 8  the hash of the key
//	12  the length of the key's text in the record, 9 bits; and the number of its limit in the shard's table, 23
//	16  the text, padded to whole words
//	    the words of the state, 8 bytes each, and the number of its log in the shard's table if it has one
//
// A text longer than maxTextLen is in a table of the shard. The record has its number there, and the length elsewhere.
type record []byte

const (
	headLen    = 16
	maxTextLen = 256
	elsewhere  = 1<<9 - 1
	maxLimits  = 1 << 23
	// lengths is the number of possible lengths, in words. No algorithm has more than three words and a log.
	lengths = headLen/8 + maxTextLen/8 + 4 + 1
)

// recordLen returns the length of a record in words, and stateLen that of its state.
func recordLen(key string, l *limiters.Limit) int {
	text := len(key)
	if text > maxTextLen {
		text = 8
	}
	return headLen/8 + (text+7)/8 + stateLen(l)
}

func stateLen(l *limiters.Limit) int {
	if l.Grows() {
		return l.Words() + 1
	}
	return l.Words()
}

func (r record) word(at int) int64       { return int64(binary.LittleEndian.Uint64(r[at:])) }
func (r record) setWord(at int, w int64) { binary.LittleEndian.PutUint64(r[at:], uint64(w)) }

func (r record) due() int64     { return r.word(0) }
func (r record) setDue(t int64) { r.setWord(0, t) }
func (r record) hash() uint32   { return binary.LittleEndian.Uint32(r[8:]) }
func (r record) textLen() int   { return int(binary.LittleEndian.Uint32(r[12:]) & elsewhere) }
func (r record) limit() uint32  { return binary.LittleEndian.Uint32(r[12:]) >> 9 }

func (r record) setHash(h uint32) { binary.LittleEndian.PutUint32(r[8:], h) }
func (r record) setHead(limit uint32, textLen int) {
	binary.LittleEndian.PutUint32(r[12:], limit<<9|uint32(textLen))
}
