package memstore

import "github.com/weir-rls/weir/pkg/limiters"

// limits are the limits of the records of a shard. Limits with equal Specs are one, because a reload makes every limit
// again. A limit is removed with its last record, so there are never more limits than records.
type limits struct {
	table  table[usedLimit]
	bySpec map[limiters.Spec]uint32
	last   uint32 // the limit that was used last
}

type usedLimit struct {
	limit   *limiters.Limit
	records int
	hitAt   int64 // when a key was last hit under it, by the store's clock, in µs
}

// perLimit is the approximate size of a limit to which only this shard refers, in bytes: the limit and its entries in limits.
const perLimit = 400

func (ls *limits) get(i uint32) *limiters.Limit { return ls.table.items[i].limit }

// acquire adds a record to a limit, and returns the limit's number and the bytes that it adds.
func (ls *limits) acquire(l *limiters.Limit) (i uint32, bytes int) {
	if int(ls.last) < len(ls.table.items) && ls.table.items[ls.last].limit == l {
		ls.table.items[ls.last].records++
		return ls.last, 0
	}
	i, found := ls.bySpec[l.Spec()]
	if !found {
		i, bytes = ls.table.add(usedLimit{}), perLimit
		if ls.bySpec == nil {
			ls.bySpec = make(map[limiters.Spec]uint32)
		}
		ls.bySpec[l.Spec()] = i
	}
	used := &ls.table.items[i]
	used.records++
	used.limit = l // the newest of equal limits
	ls.last = i
	return i, bytes
}

// release removes a record from a limit, and returns the bytes that it frees.
func (ls *limits) release(i uint32) (bytes int) {
	used := &ls.table.items[i]
	if used.records--; used.records > 0 {
		return 0
	}
	delete(ls.bySpec, used.limit.Spec())
	ls.table.remove(i)
	return perLimit
}
