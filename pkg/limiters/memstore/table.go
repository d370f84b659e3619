package memstore

// A table holds values by number, and reuses the numbers of removed values. The tables of a shard
// hold its slabs, limits, long keys and heapStates.
type table[T any] struct {
	items []T
	free  []uint32
}

func (t *table[T]) add(item T) uint32 {
	if last := len(t.free) - 1; last >= 0 {
		i := t.free[last]
		t.free = t.free[:last]
		t.items[i] = item
		return i
	}
	t.items = append(t.items, item)
	return uint32(len(t.items) - 1)
}

func (t *table[T]) remove(i uint32) {
	var none T
	t.items[i] = none
	t.free = append(t.free, i)
	if len(t.free) == len(t.items) {
		*t = table[T]{}
	}
}
