package guard

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A DenyCache is a Store that answers repeated denials from memory, so that clients over their
// limits cost the wrapped store almost nothing. It never allows an operation. After a certain
// denial (see [limiters.Limit.CertainDenial]), it denies each charge of at least as many hits until
// the denial ends, at most for [DenyCacheOptions].MaxAge. A goroutine renews the denials of keys
// that are still requested. If the limit counts denied hits, a renewal also sends those hits to the
// store, as the key's debt.
//
// A refund through the cache removes the denials of its key, whereas refunds by other replicas,
// raised limits and data loss in the store take effect within MaxAge. Under a limit with leases,
// the cache answers no operation, because a lease may end at any time.
//
// On a nil DenyCache, DropDenials and the Forget methods do nothing.
//
// Take works in three steps: routeOps denies operations from memory, sendToStore sends the others
// to the store, and recordVerdicts keeps the denials of the store. The entries are in denyshard.go,
// and renewals in renewal.go. docs/adr/0008-deny-cache.md gives the reasons.
type DenyCache struct {
	store  limiters.Store
	seed   maphash.Seed
	start  time.Time
	maxAge time.Duration // the longest age of a denial

	shards []denyShard

	sentHits, lostHits atomic.Int64

	worker
}

// DenyCacheOptions configures a DenyCache. Zero fields have defaults.
type DenyCacheOptions struct {
	MaxBytes int64         // approximate memory limit; default 16 MiB
	MaxAge   time.Duration // how long a denial is remembered at most, from the start of the store call; default 1 s
}

// DenyCacheStats are the size and the counters of a DenyCache.
type DenyCacheStats struct {
	Entries, Bytes int64
	Lookups        int64 // charges and peeks
	Answered       int64 // lookups answered from memory
	NotCached      int64 // denials that were not remembered, because the cache was full or the key too long
	SentHits       int64 // denied hits that were sent to the store
	LostHits       int64 // denied hits that may not have been counted: the call that sent them failed, or ForgetAll removed them
}

const (
	maxShards     = 256
	minShardBytes = 8 << 10 // MaxBytes bounds each shard by itself, so a shard must hold several entries
)

// NewDenyCache returns an empty cache that wraps store, without taking ownership, and starts its
// goroutine. Call Close after the last Take.
func NewDenyCache(store limiters.Store, o DenyCacheOptions) *DenyCache {
	if o.MaxBytes == 0 {
		o.MaxBytes = 16 << 20
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Second
	}
	o.MaxAge = min(o.MaxAge, limiters.MaxWindow) // sums of times must not overflow
	shards := 1
	for shards < maxShards && o.MaxBytes/int64(2*shards) >= minShardBytes {
		shards *= 2
	}
	c := &DenyCache{
		store: store, seed: maphash.MakeSeed(), start: time.Now(), maxAge: o.MaxAge, shards: make([]denyShard, shards),
	}
	for i := range c.shards {
		c.shards[i].init(c.maxAge, o.MaxBytes/int64(shards))
	}
	c.startWorker(c.run)
	return c
}

// Close stops the goroutine and sends all debts. It returns shortly after ctx ends, with an error
// if debts were not sent.
func (c *DenyCache) Close(ctx context.Context) error {
	cancelCalls := c.stopWorker(ctx)
	defer cancelCalls()
	c.DropDenials()
	_, err := c.flush(ctx, forever)
	return err
}

// DropDenials removes all denials, including those that calls in flight will return. Debts are
// still sent.
func (c *DenyCache) DropDenials() {
	c.eachShard(func(s *denyShard) {
		s.generation++
		for key := range s.entries {
			s.removeKeyDenials(key)
		}
	})
}

// ForgetAll removes all denials and unsent debts, and counts the debts as lost hits. Call it if
// another process may have reset any key: a debt belongs to the state before the reset.
func (c *DenyCache) ForgetAll() {
	c.eachShard(func(s *denyShard) {
		s.beginReset()
		for key := range s.entries {
			for _, e := range s.entriesOf(key) {
				c.lostHits.Add(e.debt)
				s.remove(e)
			}
		}
	})
}

// eachShard calls f with each shard, locked.
func (c *DenyCache) eachShard(f func(*denyShard)) {
	if c == nil {
		return
	}
	for i := range c.shards {
		c.shards[i].locked(f)
	}
}

// Stats returns the size and the counters.
func (c *DenyCache) Stats() DenyCacheStats {
	stats := DenyCacheStats{SentHits: c.sentHits.Load(), LostHits: c.lostHits.Load()}
	c.eachShard(func(s *denyShard) {
		stats.Entries += s.count
		stats.Bytes += s.bytes
		stats.Lookups += s.lookups
		stats.Answered += s.answered
		stats.NotCached += s.notCached
	})
	return stats
}

// clock returns the monotonic time since the cache was created. It is the time of all entries.
func (c *DenyCache) clock() time.Duration { return time.Since(c.start) }

func (c *DenyCache) shard(hash uint64) *denyShard {
	return &c.shards[hash>>32&uint64(len(c.shards)-1)]
}

func (c *DenyCache) shardOf(key string) *denyShard { return c.shard(maphash.String(c.seed, key)) }

// Take implements [limiters.Store]. If the store fails, verdicts from memory are kept, and the
// others carry the error, in a [split.PartError].
func (c *DenyCache) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return limiters.FailAll(out, limiters.Uncharged(err))
	}
	paths := make([]opPath, len(out))
	began := c.clock()
	toStore, renewals := c.denyOrForwardOps(began, groups, paths, out)
	if toStore == 0 {
		return nil
	}
	var err error
	if toStore == len(out) && len(renewals) == 0 {
		err = c.store.Take(ctx, groups, out) // without the copies of sendToStore
	} else {
		err = c.sendToStore(ctx, groups, paths, out, renewals)
	}
	c.recordVerdicts(began, groups, paths, out)
	if err == nil || toStore == len(out) {
		return err
	}
	for i := range paths {
		if paths[i].toStore {
			out[i].Err = &split.PartError{Err: out[i].Err}
		}
	}
	return nil // the others were answered from memory
}

// An opPath is where one operation is decided, in the cache or by the store.
type opPath struct {
	hash         uint64 // the hash of the key
	toStore      bool   // the store decides the operation; otherwise the cache has denied it
	epoch        epoch  // the epoch of the shard before the store was called
	underMinHits bool   // the operation charges fewer hits than the minHits of a cached denial
}

// denyOrForwardOps denies operations from memory and marks the others with toStore. It returns the
// number of marked operations, and renewals with the debts of their keys.
func (c *DenyCache) denyOrForwardOps(
	now time.Duration, groups []limiters.Group, paths []opPath, out []limiters.Verdict,
) (toStore int, renewals []renewal) {
	for first, g := range limiters.EachGroup(groups) {
		for i := range g {
			op, p := &g[i], &paths[first+i]
			p.hash = maphash.String(c.seed, op.Key)
			// The store decides the operations on a key in order. So if it gets one, it also gets
			// those after it.
			p.toStore = !mayBeCached(g) || keyGoesToStore(paths[:first+i], p.hash)
			c.shard(p.hash).locked(func(s *denyShard) { renewals = s.denyOrForward(now, op, p, &out[first+i], renewals) })
			if p.toStore {
				toStore++
			}
		}
	}
	return toStore, renewals
}

// mayBeCached reports whether g is one charge or peek, so that the cache may answer it and record
// its denial.
func mayBeCached(g limiters.Group) bool { return len(g) == 1 && isLookup(&g[0]) }

// isLookup reports whether [DenyCacheStats].Lookups counts op: a charge or a peek.
func isLookup(op *limiters.Op) bool { return op.Kind == limiters.OpAddHits && !op.IsRefund() }

// keyGoesToStore reports whether the store decides an operation of paths on a key.
func keyGoesToStore(paths []opPath, hash uint64) bool {
	return slices.ContainsFunc(paths, func(p opPath) bool { return p.toStore && p.hash == hash })
}

// sendToStore sends the marked operations to the store, after renewals with the debts of their
// keys.
func (c *DenyCache) sendToStore(
	ctx context.Context, groups []limiters.Group, paths []opPath, out []limiters.Verdict, renewals []renewal,
) error {
	var subset split.Subset
	for i := range renewals {
		subset.AddOps(limiters.Group{renewals[i].op()}, -1)
	}
	for first, g := range limiters.EachGroup(groups) {
		if paths[first].toStore { // the operations of a group are marked all or none
			subset.Add(g, first)
		}
	}
	err := subset.Take(ctx, c.store)
	c.closeDebts(renewals, subset.Verdicts)
	subset.Scatter(out)
	return err
}

// recordVerdicts updates the cache after a call of the store, which started at began. It does so
// even if the call failed, because the store may have applied the operations.
func (c *DenyCache) recordVerdicts(began time.Duration, groups []limiters.Group, paths []opPath, out []limiters.Verdict) {
	ended := c.clock()
	for first, g := range limiters.EachGroup(groups) {
		for i := range g {
			op, p, v := &g[i], &paths[first+i], &out[first+i]
			c.removeOutdated(op, p, v)
			if p.toStore && mayBeCached(g) {
				c.recordDenial(began, ended, op, p, v)
			}
		}
	}
}

// removeOutdated removes the cached denials of a key that the verdict v on op outdates.
func (c *DenyCache) removeOutdated(op *limiters.Op, p *opPath, v *limiters.Verdict) {
	switch {
	case op.IsRefund():
		c.shard(p.hash).locked(func(s *denyShard) {
			s.generation++ // calls in flight record no denial of the old usage
			s.removeKeyDenials(op.Key)
		})
	case p.underMinHits && !v.Denied():
		c.shard(p.hash).locked(func(s *denyShard) { s.removeProlongedDenial(op) })
	}
}

// recordDenial records the verdict v on op, if it is a denial that is certain to last.
func (c *DenyCache) recordDenial(began, ended time.Duration, op *limiters.Op, p *opPath, v *limiters.Verdict) {
	d, certain := c.denialOf(began, ended, op.Limit, op.Hits, v)
	if !certain {
		return
	}
	c.shard(p.hash).locked(func(s *denyShard) {
		if s.mayRecord(p.epoch) {
			s.add(ended, op, d)
		}
	})
}

// denialOf returns the denial to record for the verdict v of n hits, from a call between began and
// ended. It returns false if no further hits are certain to be denied.
func (c *DenyCache) denialOf(began, ended time.Duration, l *limiters.Limit, n int64, v *limiters.Verdict) (d cachedDenial, certain bool) {
	minHits, certain := l.CertainDenial(n, v)
	// The store's clock is truncated to microseconds, so the denial may end one microsecond early.
	expires := began + min(v.RetryAfter-time.Microsecond, c.maxAge)
	if !certain || expires <= ended {
		return cachedDenial{}, false
	}
	offset := time.Duration(0)
	if v.At > 0 {
		offset = time.Duration(v.At)*time.Microsecond - ended
	}
	return cachedDenial{
		recorded: ended, offset: offset,
		minHits: minHits, used: v.Used,
		expires: expires,
		retryAt: ended + v.RetryAfter, resetAt: ended + v.ResetAfter,
	}, true
}

// Reset implements [limiters.Store]. It removes unsent debts, which belong to the old state.
func (c *DenyCache) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	c.ForgetKeys(keys)
	found, err = c.store.Reset(ctx, keys)
	c.ForgetKeys(keys) // again, because calls in flight may have recorded denials
	return found, err
}

// ForgetKeys removes the denials and debts of keys, including denials that calls in flight will
// return. Call it when another process has reset the keys.
func (c *DenyCache) ForgetKeys(keys []limiters.StateName) {
	if c == nil {
		return
	}
	for _, k := range keys {
		c.shardOf(k.Key).locked(func(s *denyShard) {
			s.beginReset()
			s.removeKey(k.Key)
		})
	}
}

// ResetMatching implements [limiters.Store].
func (c *DenyCache) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (limiters.Progress, error) {
	c.ForgetMatching(match)
	progress, err := c.store.ResetMatching(ctx, match, cursor)
	c.ForgetMatching(match)
	return progress, err
}

// ForgetMatching is [DenyCache.ForgetKeys] for all keys that match.
func (c *DenyCache) ForgetMatching(match func(key string) bool) {
	c.eachShard(func(s *denyShard) {
		s.beginReset()
		for key := range s.entries {
			if match(key) {
				s.removeKey(key)
			}
		}
	})
}
