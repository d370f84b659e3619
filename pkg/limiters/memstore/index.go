package memstore

import "slices"

// An index maps hashes of keys to records, by open addressing with linear probing and without tombstones. A slot holds a hash and a
// position, and no pointer. Home slots are ordered by hash, so the index is resized in one sequential pass without reading records.
type index struct {
	slots []uint64 // hash<<32 | position; 0: free
	n     int
}

const (
	// An index that is more than 4/5 full grows to about 64 %. An index that is less than 2/5 full shrinks.
	minSlots = 8
	// indexPerKey approximates the bytes for each key of an index that has just grown.
	indexPerKey = 13
)

func (x *index) home(hash uint32) int { return int(uint64(hash) * uint64(len(x.slots)) >> 32) }

func (x *index) next(i int) int {
	if i++; i == len(x.slots) {
		return 0
	}
	return i
}

func (x *index) add(hash uint32, p position) {
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

// resize makes room for n keys.
func (x *index) resize(n int) {
	old := x.slots
	// The allocator rounds up the capacity; use all of it.
	x.slots = slices.Grow([]uint64(nil), max(minSlots, n+n/2+n/16))
	x.slots = x.slots[:cap(x.slots)]
	for _, slot := range old {
		if slot != 0 {
			x.put(slot)
		}
	}
}

// find returns the slot of an existing record.
func (x *index) find(hash uint32, p position) int {
	slot, i := uint64(hash)<<32|uint64(p), x.home(hash)
	for x.slots[i] != slot {
		i = x.next(i)
	}
	return i
}

// moved updates the position of a record.
func (x *index) moved(hash uint32, from, to position) {
	x.slots[x.find(hash, from)] = uint64(hash)<<32 | uint64(to)
}

// remove removes a record and shifts following slots towards their home slots.
func (x *index) remove(hash uint32, p position) {
	hole := x.find(hash, p)
	for i := x.next(hole); x.slots[i] != 0; i = x.next(i) {
		if x.from(x.home(uint32(x.slots[i]>>32)), i) >= x.from(hole, i) {
			x.slots[hole], hole = x.slots[i], i
		}
	}
	x.slots[hole] = 0
	if x.n--; x.n*5 < len(x.slots)*2 && len(x.slots) > 2*minSlots {
		x.resize(x.n)
	}
}

// from returns the distance from slot a forward to slot b.
func (x *index) from(a, b int) int {
	if b -= a; b < 0 {
		return b + len(x.slots)
	}
	return b
}
