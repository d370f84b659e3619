package memstore

import "github.com/weir-rls/weir/pkg/limiters"

// A limitTable holds the limits of a shard's records, deduplicated by Spec, because a reload of
// rules creates equal limits. A limit is removed with its last record, so there are at most as many
// limits as records.
type limitTable struct {
	table  table[limitEntry]
	bySpec map[limiters.Spec]uint32
	last   uint32 // the last limit used: a new key under it needs no hash of its Spec
}

type limitEntry struct {
	limit   *limiters.Limit
	records int
	usedAt  int64 // time of the last operation under it, by the store's clock, in µs
}

// limitBytes approximates the memory of a limit that only this shard refers to, in bytes.
const limitBytes = 400

func (lt *limitTable) get(i uint32) *limiters.Limit { return lt.table.items[i].limit }

// acquire adds a reference to a limit. It returns the limit's number and the added bytes.
func (lt *limitTable) acquire(l *limiters.Limit) (i uint32, bytes int) {
	if int(lt.last) < len(lt.table.items) && lt.table.items[lt.last].limit == l {
		lt.table.items[lt.last].records++
		return lt.last, 0
	}
	i, found := lt.bySpec[l.Spec()]
	if !found {
		i, bytes = lt.table.add(limitEntry{}), limitBytes
		if lt.bySpec == nil {
			lt.bySpec = make(map[limiters.Spec]uint32)
		}
		lt.bySpec[l.Spec()] = i
	}
	entry := &lt.table.items[i]
	entry.records++
	entry.limit = l // the newest of equal limits
	lt.last = i
	return i, bytes
}

// release removes a reference to a limit. It returns the freed bytes.
func (lt *limitTable) release(i uint32) (bytes int) {
	entry := &lt.table.items[i]
	entry.records--
	if entry.records > 0 {
		return 0
	}
	delete(lt.bySpec, entry.limit.Spec())
	lt.table.remove(i)
	return limitBytes
}
