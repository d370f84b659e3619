package memstore

import "github.com/weir-rls/weir/pkg/limiters"

// limits holds the limits of a shard's records, deduplicated by Spec, because a reload of rules creates equal limits. A limit is
// removed with its last record, so there are at most as many limits as records.
type limits struct {
	table  table[limitEntry]
	bySpec map[limiters.Spec]uint32
	last   uint32 // the limit that was used last
}

type limitEntry struct {
	limit   *limiters.Limit
	records int
	usedAt  int64 // time of the last operation under it, by the store's clock, in µs
}

// limitBytes approximates the memory of a limit that only this shard refers to, in bytes.
const limitBytes = 400

func (ls *limits) get(i uint32) *limiters.Limit { return ls.table.items[i].limit }

// acquire adds a reference to a limit. It returns the limit's number and the added bytes.
func (ls *limits) acquire(l *limiters.Limit) (i uint32, bytes int) {
	if int(ls.last) < len(ls.table.items) && ls.table.items[ls.last].limit == l {
		ls.table.items[ls.last].records++
		return ls.last, 0
	}
	i, found := ls.bySpec[l.Spec()]
	if !found {
		i, bytes = ls.table.add(limitEntry{}), limitBytes
		if ls.bySpec == nil {
			ls.bySpec = make(map[limiters.Spec]uint32)
		}
		ls.bySpec[l.Spec()] = i
	}
	entry := &ls.table.items[i]
	entry.records++
	entry.limit = l // the newest of equal limits
	ls.last = i
	return i, bytes
}

// release removes a reference to a limit. It returns the freed bytes.
func (ls *limits) release(i uint32) (bytes int) {
	entry := &ls.table.items[i]
	entry.records--
	if entry.records > 0 {
		return 0
	}
	delete(ls.bySpec, entry.limit.Spec())
	ls.table.remove(i)
	return limitBytes
}
