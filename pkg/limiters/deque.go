package limiters

import (
	"slices"
	"unsafe"
)

// A deque is a queue of log entries in chunks. It never moves more than one chunk at once, so that
// no call copies a million entries.
//
// The struct caches all that an operation reads if no entry expires, because reading the chunks of
// one of many logs is a cache miss.
type deque struct {
	chunks  [][]entry // chunks of chunkLen entries; a single chunk may be smaller and still growing
	head, n int32     // head is the index of the first entry in chunks[0], n the number of entries
	oldest  int64     // time of the first entry
	newest  entry     // the last entry
}

const (
	chunkLen  = 512
	firstLen  = 4  // the length of the first chunk before it grows
	keptLen   = 64 // the largest chunk that an empty log keeps
	entrySize = int(unsafe.Sizeof(entry{}))
)

func (d *deque) len() int { return int(d.n) }

// end returns the index after the newest entry, counted from the start of chunks[0].
func (d *deque) end() int { return int(d.head + d.n) }

// capacity returns the number of entries for which the chunks, of which there is at least one, have
// room.
func (d *deque) capacity() int {
	last := len(d.chunks) - 1
	return last*chunkLen + len(d.chunks[last])
}

func (d *deque) get(i int) entry { return *d.pointer(i) }

func (d *deque) pointer(i int) *entry {
	i += int(d.head)
	return &d.chunks[i/chunkLen][i%chunkLen]
}

// setSum changes the sum of the newest entry, which must exist.
func (d *deque) setSum(sum uint32) {
	d.newest.sum = sum
	d.pointer(d.len() - 1).sum = sum
}

func (d *deque) push(e entry) {
	switch {
	case len(d.chunks) == 0:
		d.chunks = [][]entry{make([]entry, firstLen)}
	case d.end() == d.capacity():
		d.grow()
	}
	end := d.end()
	d.chunks[end/chunkLen][end%chunkLen] = e
	d.n++
	if d.n == 1 {
		d.oldest = e.time
	}
	d.newest = e
}

// grow makes room for an entry when the last chunk is full.
func (d *deque) grow() {
	c := d.chunks[0]
	switch {
	case len(d.chunks) == 1 && d.len() <= len(c)/2:
		// A short log at the end of its chunk moves to the start.
		copy(c, c[d.head:])
		d.head = 0
	case len(c) < chunkLen:
		grown := make([]entry, min(2*len(c), chunkLen))
		copy(grown, c)
		d.chunks[0] = grown
	default:
		d.chunks = append(d.chunks, make([]entry, chunkLen))
	}
}

// removeFront removes the n oldest entries.
func (d *deque) removeFront(n int) {
	if n == 0 {
		return
	}
	d.head += int32(n)
	d.n -= int32(n)
	if d.n == 0 {
		if len(d.chunks) > 1 || len(d.chunks[0]) > keptLen {
			*d = deque{}
		}
		return
	}
	d.oldest = d.get(0).time
	d.chunks = slices.Delete(d.chunks, 0, int(d.head)/chunkLen)
	d.head %= chunkLen
}

func (d *deque) removeBack(n int) {
	if n == 0 {
		return
	}
	d.n -= int32(n)
	if d.n == 0 {
		*d = deque{}
		return
	}
	d.newest = d.get(d.len() - 1)
	used := (d.end() + chunkLen - 1) / chunkLen // chunks, rounded up
	d.chunks = slices.Delete(d.chunks, used, len(d.chunks))
}

func (d *deque) size() int {
	if len(d.chunks) == 0 {
		return 0
	}
	return cap(d.chunks)*int(unsafe.Sizeof(d.chunks[0])) + entrySize*d.capacity()
}
