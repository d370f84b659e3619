// Package spacesaving finds the busiest keys of a stream in bounded memory. It implements the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and
// Top-k Elements in Data Streams" (ICDT 2005).
//
// A [Sketch] of size m counts m keys. A new key replaces the key with the smallest count and adds
// to that count. So a count is never too low, and has a known error:
//
//	Count - Error <= true count <= Count
//
// An error, and the true count of a key that is not in the sketch, is at most the smallest count,
// and so at most the total divided by m. Every key with a larger true count is in the sketch.
package spacesaving

import (
	"cmp"
	"math"
	"slices"
)

// A Sketch counts keys, which the caller identifies by 64-bit hashes. V is the caller's data for a
// key. Keys with equal hashes are the same key. A Sketch is not safe for concurrent use.
type Sketch[V any] struct {
	heap      []counter // a min-heap by count, in which each counter has arity children
	keys      []trackedKey[V]
	heapIndex []int32          // index in keys -> index in heap; apart from keys, so that a move in the heap writes few cache lines
	indexOf   map[uint64]int32 // hash -> index in keys
	total     uint64
}

// arity is the number of children in the heap. Eight children fill two cache lines, and a heap of
// 1,000 keys has four levels.
const arity = 8

// A counter holds the fields that the heap compares, so that a search for the smallest count reads
// no key.
type counter struct {
	count uint64
	key   int32
}

type trackedKey[V any] struct {
	hash, overestimate uint64
	value              V
}

// An Item is a key of a sketch with its count. The true count is at least Count - Error and at most
// Count.
type Item[V any] struct {
	Hash  uint64
	Value V
	Count uint64
	Error uint64
}

// New returns a sketch of size keys, at least 1.
func New[V any](size int) *Sketch[V] {
	size = max(1, size)
	return &Sketch[V]{
		heap: make([]counter, 0, size), keys: make([]trackedKey[V], 0, size), heapIndex: make([]int32, size), indexOf: make(map[uint64]int32, size),
	}
}

// Add counts n for a key in O(log size) without allocating. It stores value only for a new key.
// Counts saturate at 2^64 - 1.
func (s *Sketch[V]) Add(hash uint64, value V, n uint64) {
	if n == 0 {
		return
	}
	s.total = Sum(s.total, n)
	if i, found := s.indexOf[hash]; found {
		at := s.heapIndex[i]
		s.heap[at].count = Sum(s.heap[at].count, n)
		s.down(at)
		return
	}
	if len(s.keys) < cap(s.keys) {
		i := int32(len(s.keys))
		s.keys = append(s.keys, trackedKey[V]{hash: hash, value: value})
		s.heap = append(s.heap, counter{n, i})
		s.indexOf[hash] = i
		s.up(i)
		return
	}
	smallest := &s.heap[0]
	evicted := &s.keys[smallest.key]
	delete(s.indexOf, evicted.hash)
	s.indexOf[hash] = smallest.key
	evicted.hash, evicted.value, evicted.overestimate = hash, value, smallest.count
	smallest.count = Sum(smallest.count, n)
	s.down(0)
}

// MaxError bounds the error of a count, and the true count of a key that is not in the sketch. It
// is 0 until the sketch is full, and at most the sum of all counts divided by the size.
func (s *Sketch[V]) MaxError() uint64 {
	if len(s.keys) < cap(s.keys) {
		return 0
	}
	return s.heap[0].count
}

// Reset clears the counts and keeps the memory.
func (s *Sketch[V]) Reset() {
	clear(s.keys) // values may hold memory
	clear(s.indexOf)
	s.heap, s.keys, s.total = s.heap[:0], s.keys[:0], 0
}

// A List is an unordered copy of the counts of a sketch.
type List[V any] struct {
	Items           []Item[V]
	Total, MaxError uint64
}

// List returns a copy of the counts, for [Top].
func (s *Sketch[V]) List() List[V] {
	l := List[V]{Items: make([]Item[V], len(s.keys)), Total: s.total, MaxError: s.MaxError()}
	for i := range s.keys {
		from := &s.keys[i]
		l.Items[i] = Item[V]{from.hash, from.value, s.heap[s.heapIndex[i]].count, from.overestimate}
	}
	return l
}

// Top returns the k keys with the highest counts over all lists, highest first and then by hash.
// The lists must be of disjoint parts of a stream. Counts and errors of a key are added; a list
// without the key adds its MaxError to both. So an error is at most the sum of the lists' MaxError.
func Top[V any](k int, lists ...List[V]) []Item[V] {
	var all []Item[V]
	missing := uint64(0) // the sum of MaxError
	index := map[uint64]int{}
	for _, list := range lists {
		missing = Sum(missing, list.MaxError)
	}
	for _, list := range lists {
		for _, item := range list.Items {
			i, found := index[item.Hash]
			if !found {
				i = len(all)
				index[item.Hash] = i
				all = append(all, Item[V]{item.Hash, item.Value, missing, missing})
			}
			all[i].Count = Sum(all[i].Count-list.MaxError, item.Count)
			all[i].Error = Sum(all[i].Error-list.MaxError, item.Error)
		}
	}
	slices.SortFunc(all, Compare[V])
	return all[:min(k, len(all))]
}

// Compare orders items by count, highest first, and then by hash.
func Compare[V any](a, b Item[V]) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Hash, b.Hash))
}

// down restores the heap property below i.
func (s *Sketch[V]) down(i int32) {
	n := int32(len(s.heap))
	moved := s.heap[i]
	for first := arity*i + 1; first < n; first = arity*i + 1 {
		child := first
		for other := first + 1; other < min(first+arity, n); other++ {
			if s.heap[other].count < s.heap[child].count {
				child = other
			}
		}
		if s.heap[child].count >= moved.count {
			break
		}
		s.set(i, s.heap[child])
		i = child
	}
	s.set(i, moved)
}

// up restores the heap property above i.
func (s *Sketch[V]) up(i int32) {
	moved := s.heap[i]
	for i > 0 {
		parent := (i - 1) / arity
		if s.heap[parent].count <= moved.count {
			break
		}
		s.set(i, s.heap[parent])
		i = parent
	}
	s.set(i, moved)
}

func (s *Sketch[V]) set(i int32, c counter) {
	s.heap[i] = c
	s.heapIndex[c.key] = i
}

// Sum returns a + b, at most 2^64 - 1.
func Sum(a, b uint64) uint64 {
	if c := a + b; c >= a {
		return c
	}
	return math.MaxUint64
}
