package memstore

import "slices"

// An index finds records by the hash of their keys: open addressing with linear probing, and no tombstones. A slot holds
// a hash and the place of a record, and nothing that the collector follows. Where a hash belongs grows with the hash, so
// growing to any length is one pass over the old slots and the new, in order, and need not look at a record.
type index struct {
	slots []uint64 // hash<<32 | place; 0: none
	n     int
}

const (
	// An index grows by a quarter when it is fuller than four fifths, so it is at least 64 % full, and shrinks where it
	// is emptier than two fifths.
	leastSlots = 8
	// indexPerKey is about what a key takes in an index that has just grown, in bytes.
	indexPerKey = 13
)

func (x *index) home(hash uint32) int { return int(uint64(hash) * uint64(len(x.slots)) >> 32) }

func (x *index) next(i int) int {
	if i++; i == len(x.slots) {
		return 0
	}
	return i
}

func (x *index) add(hash uint32, p place) {
	if (x.n+1)*5 > len(x.slots)*4 {
		x.resize(x.n + 1)
	}
	x.put(uint64(hash)<<32 | uint64(p))
	x.n++
}

func (x *index) put(slot uint64) {
	i := x.home(uint32(slot >> 32))
	for x.slots[i] != 0 {
		i = x.next(i)
	}
	x.slots[i] = slot
}

// resize makes the index as long as n keys want it.
func (x *index) resize(n int) {
	old := x.slots
	// All that the allocator gives for this length is used.
	x.slots = slices.Grow([]uint64(nil), max(leastSlots, n+n/2+n/16))
	x.slots = x.slots[:cap(x.slots)]
	for _, slot := range old {
		if slot != 0 {
			x.put(slot)
		}
	}
}

// find tells where the slot of a record is that is there.
func (x *index) find(hash uint32, p place) int {
	slot, i := uint64(hash)<<32|uint64(p), x.home(hash)
	for x.slots[i] != slot {
		i = x.next(i)
	}
	return i
}

// moved notes that a record has another place.
func (x *index) moved(hash uint32, from, to place) {
	x.slots[x.find(hash, from)] = uint64(hash)<<32 | uint64(to)
}

// remove forgets a record. Those behind it that had to make way for it go back.
func (x *index) remove(hash uint32, p place) {
	hole := x.find(hash, p)
	for i := x.next(hole); x.slots[i] != 0; i = x.next(i) {
		if x.from(x.home(uint32(x.slots[i]>>32)), i) >= x.from(hole, i) {
			x.slots[hole], hole = x.slots[i], i
		}
	}
	x.slots[hole] = 0
	if x.n--; x.n*5 < len(x.slots)*2 && len(x.slots) > 2*leastSlots {
		x.resize(x.n)
	}
}

// from is how far it is from slot a on to slot b.
func (x *index) from(a, b int) int {
	if b -= a; b < 0 {
		return b + len(x.slots)
	}
	return b
}
