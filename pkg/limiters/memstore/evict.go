package memstore

import (
	"math"
	"math/rand/v2"

	"github.com/weir-rls/weir/pkg/limiters"
)

const (
	sampleSize   = 8 // records of a shard that are checked for one to evict
	sampleShards = 8 // shards that are checked
)

// freeMemory frees memory for a new key or a growing one. It evicts records that inUse does not
// contain. It reports whether there is enough memory. The lock of sh must be held.
func (s *Store) freeMemory(sh *shard, isNew bool, storeNow int64, inUse locatedOps) bool {
	for range sampleShards {
		if s.hasMemory(isNew) {
			return true
		}
		if s.evictOne(sh, storeNow, inUse) {
			continue
		}
		other := s.randomShard()
		// The Take holds other locks, so it must not wait for this one.
		if other != sh && other.mu.TryLock() {
			s.evictOne(other, storeNow, inUse)
			other.mu.Unlock()
		}
	}
	return s.hasMemory(isNew)
}

func (s *Store) hasMemory(isNew bool) bool {
	return (!isNew || s.keys.Load() < s.options.MaxKeys) && s.bytes.Load() < s.options.MaxBytes
}

// randomShard returns a random shard with records, if there is one.
func (s *Store) randomShard() *shard {
	first := rand.IntN(shardCount)
	for i := range shardCount {
		if sh := &s.shards[(first+i)%shardCount]; sh.recordCount.Load() > 0 {
			return sh
		}
	}
	return &s.shards[first]
}

// evictOne evicts a record of a sample: an expired one or, among keys not over their limits, the
// one that expires first. Keys over their limits are never evicted, because that would admit their
// clients.
func (s *Store) evictOne(sh *shard, storeNow int64, inUse locatedOps) bool {
	if sh.recordCount.Load() == 0 {
		return false
	}
	var best position
	soonest := int64(math.MaxInt64)
	for range sampleSize {
		p := sh.randomRecord()
		if inUse.contains(sh, p) {
			continue
		}
		r := sh.record(p)
		expiry := r.expiry()
		if expiry <= storeNow {
			best, soonest = p, expiry
			break
		}
		if expiry >= soonest {
			continue
		}
		sh.readState(r, &sh.sampled)
		if !sh.limits.get(r.limitIndex()).Denies(&sh.sampled, storeNow) {
			best, soonest = p, expiry
		}
		sh.sampled = limiters.State{}
	}
	if best == 0 {
		return false
	}
	if soonest > storeNow {
		s.evicted.Add(1)
	}
	inUse.updatePosition(sh, s.removeRecord(sh, best), best)
	return true
}

// randomRecord returns the position of a random record, which must exist.
func (sh *shard) randomRecord() position {
	slabs := sh.slabs.table.items
	slabIndex := rand.IntN(len(slabs))
	for slabs[slabIndex].rows == 0 {
		slabIndex = (slabIndex + 1) % len(slabs)
	}
	return positionOf(uint32(slabIndex), rand.IntN(int(slabs[slabIndex].rows)))
}

// keepTightest makes l, the limit of an operation on r, the limit of r if l denies earlier. A
// record names only one of the limits of its key, and eviction must spare keys over any of them.
func (s *Store) keepTightest(sh *shard, r record, l *limiters.Limit, storeNow int64) {
	entry := &sh.limits.table.items[r.limitIndex()]
	held := entry.limit
	if held == l || fullUsage(held) == fullUsage(l) && held.HasPenalty() == l.HasPenalty() {
		entry.usedAt = storeNow
		return
	}
	// New rules may have raised a limit that had no operations for a window.
	usedInWindow := storeNow-entry.usedAt <= held.Window().Microseconds()
	// Keys under a limit of 0 need no protection.
	if l.Capacity() == 0 || usedInWindow && isTighter(held, l) {
		return
	}
	i, added := sh.limits.acquire(l)
	if i >= maxLimits {
		sh.limits.release(i)
		return
	}
	freed := sh.limits.release(r.limitIndex())
	r.setLimitIndex(i)
	sh.limits.table.items[i].usedAt = storeNow
	if added != freed {
		s.bytes.Add(int64(added - freed))
	}
}

// isTighter reports whether a denies a key at a lower usage than b. A limit with a penalty counts
// as the tighter one, because snapshots and eviction find a penalty only through the limit of the
// record.
func isTighter(a, b *limiters.Limit) bool {
	if a.HasPenalty() != b.HasPenalty() {
		return a.HasPenalty()
	}
	return 0 < a.Capacity() && fullUsage(a) < fullUsage(b)
}

// fullUsage returns the usage of a full key, in the unit of its state: hits or, for a funnel, whose
// state is the time to drain, windows.
func fullUsage(l *limiters.Limit) float64 {
	if l.Drains() {
		return float64(l.Capacity()) / float64(max(1, l.Spec().Max))
	}
	return float64(l.Capacity())
}
