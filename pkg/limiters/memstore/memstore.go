// Package memstore is a limiters.Store in the memory of this process: exact, and as fast as a map behind a lock. It
// forgets when the process ends, unless it is saved ([Store.Save], [Load]), and knows nothing of other replicas.
//
// Keys are spread over shards, each with a lock of its own. A Take holds the locks of all its keys at once, so that its
// hits are decided at one moment. Keys that are as good as new are dropped by the traffic that passes: every Take looks
// at a few. The number of keys and the bytes they take are bounded; see [Options].
//
// A key is a record of bytes, without a pointer, in a page of records of the same length, and an index finds it by a
// hash: the garbage collector sees pages, and not keys. docs/adr/0007-memory-layout.md weighs this.
package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrFull is the error of a hit that needs memory, for a new key or for a log to grow, while the store is at its bound
// and a sample of it holds nothing that may be dropped.
var ErrFull = errors.New("memstore: no room: the keys that could make room for this one are denying their owners")

// Options bound a Store. A zero stands for the default.
type Options struct {
	MaxKeys  int64 // how many keys it holds; default 10,000,000
	MaxBytes int64 // about how many bytes they may take, with their share of the index; default 4 GiB
}

// Stats tell what a Store holds and what its bounds made it do.
type Stats struct {
	Keys, Bytes int64
	Dropped     int64 // keys dropped for room that were not yet as good as new
	Refused     int64 // hits that failed with ErrFull
}

// A Store keeps the states of keys in this process.
type Store struct {
	seed   maphash.Seed
	start  time.Time
	passed func(since time.Time) time.Duration // time.Since
	max    Options
	shards [shardCount]shard

	// Of all shards, changed when a record comes or goes and not by every Take.
	_                             [64]byte
	keys, bytes, dropped, refused atomic.Int64
}

// shardCount is how many locks there are. docs/adr/0007 says why so many.
const shardCount = 256

// callerKeep is how much longer a key is kept whose hits came with a time of the caller's: that clock may stand still or
// step back, and a state dropped meanwhile would be missed.
const callerKeep = int64(time.Hour / time.Microsecond)

// New makes an empty Store.
func New(o Options) *Store {
	if o.MaxKeys == 0 {
		o.MaxKeys = 10_000_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	return &Store{seed: maphash.MakeSeed(), start: time.Now(), passed: time.Since, max: o}
}

// Stats tells what the store holds now.
func (s *Store) Stats() Stats {
	return Stats{
		Keys: s.keys.Load(), Bytes: s.bytes.Load(),
		Dropped: s.dropped.Load(), Refused: s.refused.Load(),
	}
}

// clock is the wall clock at the start and the monotonic one since, in µs since 1970: it never steps.
func (s *Store) clock() int64 { return s.start.UnixMicro() + s.passed(s.start).Microseconds() }

// Take implements limiters.Store.
func (s *Store) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := takes.Get().(*take)
	defer t.done()
	t.begin(s, groups, out)
	t.lock(now)
	defer t.unlock()
	for i := range t.slots {
		t.find(i)
	}
	limiters.Decide(t.now, groups, t.of, t.states, out)
	t.settle()
	t.sweep()
	return nil
}
