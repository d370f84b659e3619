package memstore

import "slices"

// An index maps hashes of keys to records, by open addressing with linear probing and without
// tombstones. A cell holds a hash and a position, and no pointer. Home cells are ordered by hash,
// so the index is resized in one sequential pass without reading records. An index that is more
// than 4/5 full grows to about 64 %. An index that is less than 2/5 full shrinks.
//
// A Go map from hash to position would be larger and slower, see docs/adr/0007-memory-layout.md. It
// would also have to keep keys with equal hashes.
type index struct {
	cells []uint64 // hash<<32 | position; 0: free
	n     int      // keys
}

// minCells is the number of cells of the smallest index.
const minCells = 8

// indexBytesPerKey approximates the bytes for each key of an index that has just grown.
const indexBytesPerKey = 13

func (x *index) home(hash uint32) int { return int(uint64(hash) * uint64(len(x.cells)) >> 32) }

func (x *index) next(i int) int {
	i++
	if i == len(x.cells) {
		return 0
	}
	return i
}

func (x *index) add(hash uint32, p position) {
	if (x.n+1)*5 > len(x.cells)*4 {
		x.resize(x.n + 1)
	}
	x.insert(uint64(hash)<<32 | uint64(p))
	x.n++
}

func (x *index) insert(cell uint64) {
	i := x.home(uint32(cell >> 32))
	for x.cells[i] != 0 {
		i = x.next(i)
	}
	x.cells[i] = cell
}

// resize makes room for n keys.
func (x *index) resize(n int) {
	old := x.cells
	// The allocator rounds up the capacity; use all of it.
	x.cells = slices.Grow([]uint64(nil), max(minCells, n+n/2+n/16))
	x.cells = x.cells[:cap(x.cells)]
	for _, cell := range old {
		if cell != 0 {
			x.insert(cell)
		}
	}
}

// find returns the cell of an existing record.
func (x *index) find(hash uint32, p position) int {
	cell, i := uint64(hash)<<32|uint64(p), x.home(hash)
	for x.cells[i] != cell {
		i = x.next(i)
	}
	return i
}

// move updates the position of a record.
func (x *index) move(hash uint32, from, to position) {
	x.cells[x.find(hash, from)] = uint64(hash)<<32 | uint64(to)
}

// remove removes a record and shifts following cells toward their home cells.
func (x *index) remove(hash uint32, p position) {
	hole := x.find(hash, p)
	for i := x.next(hole); x.cells[i] != 0; i = x.next(i) {
		if x.distance(x.home(uint32(x.cells[i]>>32)), i) >= x.distance(hole, i) {
			x.cells[hole], hole = x.cells[i], i
		}
	}
	x.cells[hole] = 0
	x.n--
	if x.n*5 < len(x.cells)*2 && len(x.cells) > 2*minCells {
		x.resize(x.n)
	}
}

// distance returns the distance from cell a forward to cell b.
func (x *index) distance(a, b int) int {
	if a > b {
		return b - a + len(x.cells)
	}
	return b - a
}
