// Package memstore implements [limiters.Store] in memory, for one process. Counters end with the
// process unless they are saved, see [Store.Save] and [Load].
//
// Keys are divided among shards, each with a lock. A Take locks the shards of all its keys, so its
// operations are decided atomically. Every Take also checks a few records for expiry. [Options]
// bounds the number of keys and their memory.
//
// A key is a record in a slab of records of the same length, and an index of hashes finds it.
// Records have no pointers, so the garbage collector scans slabs instead of keys.
// docs/adr/0007-memory-layout.md gives the reasons and measurements.
//
// A time in an int64 is in µs since 1970, by the store's clock unless noted.
package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrFull is the error of an operation that needs memory while the store is at a bound and eviction
// frees too little. A new key, a longer log and extra state need memory. The operation has charged
// nothing.
var ErrFull = limiters.Uncharged(errors.New("memory is full, and eviction freed too little: raise MEMORY_MAX_BYTES or MEMORY_MAX_KEYS"))

// Options configures a Store. Zero fields have defaults.
type Options struct {
	MaxKeys  int64 // maximum number of keys; default 10,000,000
	MaxBytes int64 // approximate memory limit of the keys with their index; default 4 GiB
	// Now replaces the clock of the machine, for a replay. It must never step back.
	Now func() time.Time
}

// Stats are the size and the counters of a Store.
type Stats struct {
	Keys, Bytes int64
	Evicted     int64 // keys evicted before they expired
	Rejected    int64 // operations that failed with ErrFull
}

// A Store is a [limiters.Store] in memory.
type Store struct {
	seed    maphash.Seed
	start   time.Time
	options Options
	shards  [shardCount]shard

	// Sums over all shards, which most Takes do not change.
	_                              [64]byte
	keys, bytes, evicted, rejected atomic.Int64
}

// shardCount is the number of locks, see docs/adr/0007.
const shardCount = 256

// callerExpiryMargin is added to the expiry of a key after an operation with the caller's own time,
// in µs. The caller's clock may stop or step back, and would then miss the state if it had expired.
const callerExpiryMargin = int64(time.Hour / time.Microsecond)

// New returns an empty Store.
func New(o Options) *Store {
	if o.MaxKeys == 0 {
		o.MaxKeys = 10_000_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	return &Store{seed: maphash.MakeSeed(), start: time.Now(), options: o}
}

// Stats returns the current size and counters.
func (s *Store) Stats() Stats {
	return Stats{
		Keys: s.keys.Load(), Bytes: s.bytes.Load(),
		Evicted: s.evicted.Load(), Rejected: s.rejected.Load(),
	}
}

// clock returns the time in µs since 1970, by default the wall-clock time of the start plus the
// monotonic time since, which never steps.
func (s *Store) clock() int64 {
	if s.options.Now != nil {
		return s.options.Now().UnixMicro()
	}
	return s.start.UnixMicro() + time.Since(s.start).Microseconds()
}

// Take implements [limiters.Store].
func (s *Store) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	return s.TakeAt(ctx, time.Time{}, groups, out)
}

// TakeAt is Take at the time now, for tests. The time must be after 1970, and is truncated to
// microseconds. If now is zero, TakeAt is Take.
func (s *Store) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return limiters.FailAll(out, limiters.Uncharged(err))
	}
	t := transactionPool.Get().(*transaction)
	defer t.release()
	t.begin(s, len(out))
	t.findShards(groups)
	t.lock(now)
	defer t.unlock()
	t.loadStates()
	limiters.Decide(t.decidedAt, groups, t.stateOf, out, t.growFunc)
	for i := range out {
		if out[i].Err != nil {
			s.rejected.Add(1)
			continue
		}
		out[i].At = t.decidedAt
		if now.IsZero() {
			out[i].Order = t.order
		}
	}
	t.writeBack()
	t.updateShards()
	return nil
}
