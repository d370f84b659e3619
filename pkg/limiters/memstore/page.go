package memstore

import "math"

// A place is where a record is among those of a shard: in which page, and the how manieth of it. It is never 0.
type place uint32

const (
	slotBits = 10
	maxPages = 1<<(32-slotBits) - 1
)

func placeOf(page uint32, slot int) place { return place((page+1)<<slotBits | uint32(slot)) }

func (p place) page() uint32 { return uint32(p>>slotBits) - 1 }
func (p place) slot() int    { return int(p & (1<<slotBits - 1)) }

// A page holds records of one length side by side. It never moves.
type page struct {
	bytes   []byte
	soonest int64 // no record here is due before
	n       uint16
	length  uint16 // of a record, in bytes
}

func (g *page) record(slot int) record {
	at := slot * int(g.length)
	return record(g.bytes[at : at+int(g.length)])
}

func (g *page) full() bool { return (int(g.n)+1)*int(g.length) > len(g.bytes) }

// The first pages of a length are small, for there may be many lengths and few keys; the others are large enough for
// their number not to matter, and small enough to be made within a Take.
const (
	smallPage   = 512 // bytes
	doublePages = 5   // how often the length of a page doubles: to 16 KiB
)

func pageLen(i int) int { return smallPage << min(i, doublePages) }

// pages are all pages of a shard. The records of one length have no hole among them: the last one takes the place of one
// that goes. So pages are freed as keys go, whatever the order they go in.
type pages struct {
	table table[page]
	of    [lengths]sameLength
}

// sameLength are the pages of one length. Those before filling are full, and behind it is none, or an empty one.
type sameLength struct {
	pages   []uint32
	filling int
}

func (ps *pages) record(p place) record { return ps.table.items[p.page()].record(p.slot()) }

// add makes room for a record of so many words, whose bytes may be anything. It tells false where there can be no more.
func (ps *pages) add(words int) (place, bool) {
	of := &ps.of[words]
	if of.filling == len(of.pages) {
		if len(ps.table.items) >= maxPages {
			return 0, false
		}
		of.pages = append(of.pages, ps.table.add(page{
			bytes: make([]byte, pageLen(len(of.pages))), soonest: math.MaxInt64, length: uint16(8 * words),
		}))
	}
	number := of.pages[of.filling]
	g := &ps.table.items[number]
	p := placeOf(number, int(g.n))
	if g.n++; g.full() {
		of.filling++
	}
	return p, true
}

// remove gives up the place of a record. The last record of its length comes there: from is where it was.
func (ps *pages) remove(p place) (from place) {
	length := ps.table.items[p.page()].length
	of := &ps.of[length/8]
	if of.filling == len(of.pages) || ps.table.items[of.pages[of.filling]].n == 0 {
		of.filling--
	}
	number := of.pages[of.filling]
	g := &ps.table.items[number]
	g.n--
	from = placeOf(number, int(g.n))
	if from != p {
		r := ps.record(p)
		copy(r, g.record(int(g.n)))
		ps.due(p, r.due())
	}
	if g.n == 0 {
		// One empty page is kept, lest a key that comes and goes at the edge of a page makes and frees it each time.
		if last := len(of.pages) - 1; last > of.filling {
			ps.table.remove(of.pages[last])
			of.pages = of.pages[:last]
		}
	}
	return from
}

// due tells the page of a record that it is due at a time.
func (ps *pages) due(p place, due int64) {
	if g := &ps.table.items[p.page()]; due < g.soonest {
		g.soonest = due
	}
}
