package limiters

import (
	"iter"
	"unsafe"
)

// deque is a queue of log entries in chunks: it grows and shrinks without ever moving more than one chunk, so that a
// log of a million entries makes no call wait for a copy.
type deque struct {
	chunks [][]entry // all of chunkLen but a first one, alone, that is still growing; the last may be empty
	head   int       // of the first entry, in chunks[0]
	n      int
}

const (
	chunkLen  = 512
	firstLen  = 4
	keptLen   = 64 // of a chunk that an empty log keeps, at most
	entrySize = int(unsafe.Sizeof(entry{}))
)

func (d *deque) len() int { return d.n }

func (d *deque) get(i int) entry { return *d.at(i) }

func (d *deque) at(i int) *entry {
	i += d.head
	return &d.chunks[i/chunkLen][i%chunkLen]
}

// all yields the entries in order, a stretch of them at a time.
func (d *deque) all() iter.Seq[[]entry] {
	return func(yield func([]entry) bool) {
		head, left := d.head, d.n
		for _, c := range d.chunks {
			c = c[head:min(len(c), head+left)]
			if head, left = 0, left-len(c); len(c) > 0 && !yield(c) {
				return
			}
		}
	}
}

// last is the newest entry, to be changed in place. There must be one.
func (d *deque) last() *entry { return d.at(d.n - 1) }

func (d *deque) push(e entry) {
	end := d.head + d.n
	switch {
	case len(d.chunks) == 0:
		d.chunks = [][]entry{make([]entry, firstLen)}
	case end == chunkLen*(len(d.chunks)-1)+len(d.chunks[len(d.chunks)-1]):
		end = d.room(end)
	}
	d.chunks[end/chunkLen][end%chunkLen] = e
	d.n++
}

// room makes room for an entry behind the last chunk, which is full, and tells where it now goes.
func (d *deque) room(end int) int {
	c := d.chunks[0]
	switch {
	case len(d.chunks) == 1 && d.n <= len(c)/2:
		// A short log that has moved through its chunk goes back to the start of it.
		copy(c, c[d.head:end])
		d.head = 0
	case len(c) < chunkLen:
		grown := make([]entry, min(2*len(c), chunkLen))
		copy(grown, c)
		d.chunks[0] = grown
	default:
		d.chunks = append(d.chunks, make([]entry, chunkLen))
	}
	return d.head + d.n
}

// dropFront drops the oldest. What they took is kept for those to come where it is little: a log that is in use, and
// does not grow, takes no new memory.
func (d *deque) dropFront(n int) {
	d.head += n
	d.n -= n
	if d.n == 0 {
		if len(d.chunks) > 1 || len(d.chunks) == 1 && len(d.chunks[0]) > keptLen {
			*d = deque{}
		}
		return
	}
	gone := d.head / chunkLen
	if gone == 0 {
		return
	}
	spare, hasSpare := d.chunks[0], d.head+d.n <= chunkLen*(len(d.chunks)-1)
	left := copy(d.chunks, d.chunks[gone:])
	clear(d.chunks[left:])
	d.chunks = d.chunks[:left]
	if !hasSpare {
		d.chunks = append(d.chunks, spare)
	}
	d.head -= gone * chunkLen
}

func (d *deque) dropBack(n int) {
	d.n -= n
	if d.n == 0 {
		*d = deque{}
		return
	}
	used := (d.head + d.n + chunkLen - 1) / chunkLen
	clear(d.chunks[used:])
	d.chunks = d.chunks[:used]
}

func (d *deque) size() int {
	if len(d.chunks) == 0 {
		return 0
	}
	return cap(d.chunks)*24 + entrySize*(len(d.chunks[0])+(len(d.chunks)-1)*chunkLen)
}
