package memstore

import "math"

// A position locates a record in its shard: the page number and the row within the page. It is
// never 0.
type position uint32

const (
	rowBits  = 10
	maxPages = 1<<(32-rowBits) - 1
)

func positionOf(page uint32, row int) position { return position((page+1)<<rowBits | uint32(row)) }

func (p position) page() uint32 { return uint32(p>>rowBits) - 1 }
func (p position) row() int     { return int(p & (1<<rowBits - 1)) }

// A page is a contiguous block of records of one length. It never moves.
type page struct {
	bytes       []byte
	expiryBound int64 // no record of the page expires before it
	n           uint16
	length      uint16 // the length of a record, in bytes
}

func (pg *page) record(row int) record {
	start := row * int(pg.length)
	return record(pg.bytes[start : start+int(pg.length)])
}

// earliest returns the expiry of the record that expires first.
func (pg *page) earliest() int64 {
	earliest := int64(math.MaxInt64)
	for row := range int(pg.n) {
		earliest = min(earliest, pg.record(row).expiry())
	}
	return earliest
}

func (pg *page) full() bool { return (int(pg.n)+1)*int(pg.length) > len(pg.bytes) }

// Pages double in size, so that many record lengths with few keys take little memory. The largest
// pages are few enough for the garbage collector, and small enough to allocate within a Take.
const (
	smallPage   = 512 // the length of the smallest page, in bytes
	doublePages = 5   // how often the length of a page doubles: to 16 KiB
)

func pageLen(i int) int { return smallPage << min(i, doublePages) }

// A pageSet holds all pages of a shard. Records of one length have no gaps, because the last one
// moves to the position of a removed one, so pages become empty whichever keys are removed.
type pageSet struct {
	table   table[page]
	classes [lengthCount]sizeClass
}

// A sizeClass is the pages of one record length. Pages before firstOpen are full; at most one page
// after it exists, and is empty.
type sizeClass struct {
	pages     []uint32
	firstOpen int
}

func (ps *pageSet) record(p position) record { return ps.table.items[p.page()].record(p.row()) }

// add makes room for a record of a length in words, without clearing it. It returns false if the
// shard cannot have more pages.
func (ps *pageSet) add(words int) (position, bool) {
	class := &ps.classes[words]
	if class.firstOpen == len(class.pages) {
		if len(ps.table.items) >= maxPages {
			return 0, false
		}
		class.pages = append(class.pages, ps.table.add(page{
			bytes: make([]byte, pageLen(len(class.pages))), expiryBound: math.MaxInt64, length: uint16(8 * words),
		}))
	}
	number := class.pages[class.firstOpen]
	pg := &ps.table.items[number]
	p := positionOf(number, int(pg.n))
	pg.n++
	if pg.full() {
		class.firstOpen++
	}
	return p, true
}

// remove frees a position. The last record of its length moves there; from is where it was.
func (ps *pageSet) remove(p position) (from position) {
	length := ps.table.items[p.page()].length
	class := &ps.classes[length/8]
	if class.firstOpen == len(class.pages) || ps.table.items[class.pages[class.firstOpen]].n == 0 {
		class.firstOpen--
	}
	number := class.pages[class.firstOpen]
	pg := &ps.table.items[number]
	pg.n--
	from = positionOf(number, int(pg.n))
	if from != p {
		r := ps.record(p)
		copy(r, pg.record(int(pg.n)))
		ps.lowerBound(p, r.expiry())
	}
	if pg.n == 0 {
		// One empty page is kept. Otherwise a key that is added and removed at a page boundary
		// would allocate each time.
		if last := len(class.pages) - 1; last > class.firstOpen {
			ps.table.remove(class.pages[last])
			class.pages = class.pages[:last]
		}
	}
	return from
}

// lowerBound lowers the expiryBound of p's page to expiry if it is later.
func (ps *pageSet) lowerBound(p position, expiry int64) {
	pg := &ps.table.items[p.page()]
	pg.expiryBound = min(pg.expiryBound, expiry)
}

// expiryBound returns a time before which no record expires.
func (ps *pageSet) expiryBound() int64 {
	bound := int64(math.MaxInt64)
	for i := range ps.table.items {
		if pg := &ps.table.items[i]; pg.n > 0 {
			bound = min(bound, pg.expiryBound)
		}
	}
	return bound
}
