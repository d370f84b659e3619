package suggest

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// A history has the requests of one key, in the order of their times. Each is the time since the one before in µs, doubled, and then
// the hits unless they are 1, which the last bit says. Both are varints.
type history struct {
	text []byte
	last int64
}

// historyOverhead is the memory of a key beside its text and its history, in bytes: about what the map and the allocator take.
const historyOverhead = 120

func (h *history) add(at, hits int64) {
	since := uint64(at-h.last) << 1
	h.last = at
	if hits == 1 {
		h.text = binary.AppendUvarint(h.text, since)
		return
	}
	h.text = binary.AppendVarint(binary.AppendUvarint(h.text, since|1), hits)
}

// A cursor reads a history.
type cursor struct {
	rest     []byte
	at, hits int64
}

func (h *history) cursor() cursor { return cursor{rest: h.text} }

// next reads a request into at and hits. It returns false at the end.
func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	since, n := binary.Uvarint(c.rest)
	c.rest, c.at, c.hits = c.rest[n:], c.at+int64(since>>1), 1
	if since&1 != 0 {
		c.hits, n = binary.Varint(c.rest)
		c.rest = c.rest[n:]
	}
	return true
}

// kept reports whether a key belongs to a sample of 1 in 2^halvings. The hash has a prefix, so that it does not depend on any other
// by which a recording may have been sampled.
func kept(key string, halvings uint) bool {
	if halvings == 0 {
		return true
	}
	sum := sha256.Sum256([]byte("weir suggest\x00" + key))
	return uint(bits.TrailingZeros64(binary.BigEndian.Uint64(sum[:]))) >= halvings
}
