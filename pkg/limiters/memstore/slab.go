package memstore

import "math"

// A position locates a record in its shard: the slab number and the row within the slab. It is
// never 0.
type position uint32

const (
	rowBits  = 10
	maxSlabs = 1<<(32-rowBits) - 1
)

func positionOf(slab uint32, row int) position { return position((slab+1)<<rowBits | uint32(row)) }

func (p position) slab() uint32 { return uint32(p>>rowBits) - 1 }
func (p position) row() int     { return int(p & (1<<rowBits - 1)) }

// A slab is a contiguous block of records of one length. It never moves.
type slab struct {
	bytes       []byte
	expiryBound int64  // no record of the slab expires before it
	rows        uint16 // rows with a record, the first of the slab
	length      uint16 // the length of a record, in bytes
}

func (sl *slab) record(row int) record {
	start := row * int(sl.length)
	return record(sl.bytes[start : start+int(sl.length)])
}

// earliest returns the expiry of the record that expires first.
func (sl *slab) earliest() int64 {
	earliest := int64(math.MaxInt64)
	for row := range int(sl.rows) {
		earliest = min(earliest, sl.record(row).expiry())
	}
	return earliest
}

func (sl *slab) full() bool { return (int(sl.rows)+1)*int(sl.length) > len(sl.bytes) }

// Slabs double in size, so that many record lengths with few keys take little memory. The largest
// slabs are few enough for the garbage collector, and small enough to allocate within a Take.
const (
	smallSlab   = 512 // the length of the smallest slab, in bytes
	doubleSlabs = 5   // how often the length of a slab doubles: to 16 KiB
)

func slabLen(i int) int { return smallSlab << min(i, doubleSlabs) }

// A slabSet holds all slabs of a shard. Records of one length have no gaps, because the last one
// moves to the position of a removed one, so slabs become empty whichever keys are removed.
type slabSet struct {
	table   table[slab]
	classes [lengthCount]sizeClass
}

// A sizeClass is the slabs of one record length. Slabs before firstOpen are full; at most one slab
// after it exists, and is empty.
type sizeClass struct {
	slabs     []uint32
	firstOpen int
}

func (ss *slabSet) record(p position) record { return ss.table.items[p.slab()].record(p.row()) }

// add makes room for a record of a length in words, without clearing it. It returns 0 if the shard
// cannot have more slabs.
func (ss *slabSet) add(words int) position {
	class := &ss.classes[words]
	if class.firstOpen == len(class.slabs) {
		if len(ss.table.items) >= maxSlabs {
			return 0
		}
		class.slabs = append(class.slabs, ss.table.add(slab{
			bytes: make([]byte, slabLen(len(class.slabs))), expiryBound: math.MaxInt64, length: uint16(8 * words),
		}))
	}
	number := class.slabs[class.firstOpen]
	sl := &ss.table.items[number]
	p := positionOf(number, int(sl.rows))
	sl.rows++
	if sl.full() {
		class.firstOpen++
	}
	return p
}

// remove frees a position. The last record of its length moves there; from is where it was.
func (ss *slabSet) remove(p position) (from position) {
	length := ss.table.items[p.slab()].length
	class := &ss.classes[length/8]
	// If firstOpen has no record, the last record is in the full slab before it.
	if class.firstOpen == len(class.slabs) || ss.table.items[class.slabs[class.firstOpen]].rows == 0 {
		class.firstOpen--
	}
	number := class.slabs[class.firstOpen]
	sl := &ss.table.items[number]
	sl.rows--
	from = positionOf(number, int(sl.rows))
	if from != p {
		r := ss.record(p)
		copy(r, sl.record(int(sl.rows)))
		ss.lowerExpiryBound(p, r.expiry())
	}
	if sl.rows == 0 {
		// One empty slab is kept. Otherwise a key that is added and removed at a slab boundary
		// would allocate each time.
		if last := len(class.slabs) - 1; last > class.firstOpen {
			ss.table.remove(class.slabs[last])
			class.slabs = class.slabs[:last]
		}
	}
	return from
}

// lowerExpiryBound lowers the expiryBound of p's slab to expiry if it is later.
func (ss *slabSet) lowerExpiryBound(p position, expiry int64) {
	sl := &ss.table.items[p.slab()]
	sl.expiryBound = min(sl.expiryBound, expiry)
}

// expiryBound returns a time before which no record expires.
func (ss *slabSet) expiryBound() int64 {
	bound := int64(math.MaxInt64)
	for i := range ss.table.items {
		if sl := &ss.table.items[i]; sl.rows > 0 {
			bound = min(bound, sl.expiryBound)
		}
	}
	return bound
}
