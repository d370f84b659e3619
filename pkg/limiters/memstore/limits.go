package memstore

import "github.com/weir-rls/weir/pkg/limiters"

// limits are the limits that the records of a shard are under. One that was made again, as a reload makes all of them,
// is the same, and one is forgotten with its last record: they are never more than the records.
type limits struct {
	table table[usedLimit]
	of    map[limiters.Spec]uint32
	last  uint32 // the one that was asked for last
}

type usedLimit struct {
	limit   *limiters.Limit
	records int
	hitAt   int64 // when a key was last hit under it, by the store's clock, in µs
}

// perLimit is about what a limit takes that only a record of this shard may refer to, in bytes.
const perLimit = 200

func (ls *limits) get(i uint32) *limiters.Limit { return ls.table.items[i].limit }

// use is the number of a limit that one record more is under, and what that takes.
func (ls *limits) use(l *limiters.Limit) (i uint32, bytes int) {
	if int(ls.last) < len(ls.table.items) && ls.table.items[ls.last].limit == l {
		ls.table.items[ls.last].records++
		return ls.last, 0
	}
	i, found := ls.of[l.Spec()]
	if !found {
		i, bytes = ls.table.add(usedLimit{}), perLimit
		if ls.of == nil {
			ls.of = make(map[limiters.Spec]uint32)
		}
		ls.of[l.Spec()] = i
	}
	used := &ls.table.items[i]
	used.records++
	used.limit = l // the newest of those that are the same
	ls.last = i
	return i, bytes
}

// leave tells that one record less is under a limit, and what that frees.
func (ls *limits) leave(i uint32) (bytes int) {
	used := &ls.table.items[i]
	if used.records--; used.records > 0 {
		return 0
	}
	delete(ls.of, used.limit.Spec())
	ls.table.remove(i)
	return perLimit
}
