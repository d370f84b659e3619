// Package memstore is a limiters.Store in the memory of this process. It is exact, and about as fast as a map behind a lock.
// Its counters end with the process unless they are saved ([Store.Save], [Load]). Other replicas do not share them.
//
// Keys are divided among shards with a lock each. A Take holds the locks of all its keys at once, so its hits are decided
// at one moment. Every Take checks a few records and removes the expired ones. The number of keys and their memory are
// bounded; see [Options].
//
// A key is a record of bytes without pointers, in a page of records of the same length. An index finds it by a hash. The
// garbage collector scans pages, not keys. docs/adr/0007-memory-layout.md gives the reasons and the measurements.
//
// A time in an int64 is in microseconds since 1970, by the store's clock unless its comment says otherwise.
package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrFull is the error of a hit that needs memory, for a new key or a longer log, while the store is at its bound. No
// sampled record could be evicted. The hit was not charged.
var ErrFull = limiters.Uncharged(errors.New("memstore: store full: no evictable key found (every sampled key is over its limit)"))

// Options configures a Store. A zero field stands for its default.
type Options struct {
	MaxKeys  int64 // maximum number of keys; default 10,000,000
	MaxBytes int64 // approximate memory limit of the keys with their index; default 4 GiB
	// Now is the store's own clock, for a replay. It must never go back. Its first reading is at New. Default: the clock of
	// this machine.
	Now func() time.Time
}

// Stats are the size and the counters of a Store.
type Stats struct {
	Keys, Bytes int64
	Evicted     int64 // keys evicted before they expired
	Rejected    int64 // hits that failed with ErrFull
}

// A Store keeps the states of keys in the memory of this process.
type Store struct {
	seed   maphash.Seed
	start  time.Time
	passed func(since time.Time) time.Duration // time.Since
	max    Options
	shards [shardCount]shard

	// Sums over all shards. Most Takes change none of them: they find their keys.
	_                              [64]byte
	keys, bytes, evicted, rejected atomic.Int64
}

// shardCount is the number of locks. docs/adr/0007 has the reason.
const shardCount = 256

// callerKeep is how much longer a key is kept after a hit with the caller's own time, in µs. That clock may stand still or
// step back, and then a removed state would be missing.
const callerKeep = int64(time.Hour / time.Microsecond)

// New returns an empty Store.
func New(o Options) *Store {
	if o.MaxKeys == 0 {
		o.MaxKeys = 10_000_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	s := &Store{seed: maphash.MakeSeed(), start: time.Now(), passed: time.Since, max: o}
	if o.Now != nil {
		s.start, s.passed = o.Now().Truncate(time.Microsecond), func(since time.Time) time.Duration { return o.Now().Sub(since) }
	}
	return s
}

// Stats returns the current size and counters.
func (s *Store) Stats() Stats {
	return Stats{
		Keys: s.keys.Load(), Bytes: s.bytes.Load(),
		Evicted: s.evicted.Load(), Rejected: s.rejected.Load(),
	}
}

// clock returns the wall clock of the start plus the monotonic clock since, in µs since 1970. So it never steps.
func (s *Store) clock() int64 { return s.start.UnixMicro() + s.passed(s.start).Microseconds() }

// Take implements limiters.Store.
func (s *Store) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := takes.Get().(*take)
	defer t.done()
	t.begin(s, out)
	t.lock(now, groups)
	defer t.unlock()
	for i := range t.slots {
		t.find(i)
	}
	limiters.Decide(t.now, groups, t.stateIndex, t.states, out)
	for i := range out {
		out[i].At = t.now
		if now.IsZero() {
			out[i].Order = t.order
		}
	}
	t.writeBack()
	t.sweep()
	return nil
}
