// Package memstore is a limiters.Store in the memory of this process: exact, and as fast as a map behind a lock. It
// forgets when the process ends, and knows nothing of other replicas.
//
// Keys are spread over shards, each with a lock of its own. A Take holds the locks of all its keys at once, so that its
// hits are decided at one moment. Keys that are as good as new are dropped by the traffic that passes: every Take looks
// at a few. The number of keys and the bytes they take are bounded; see [Options].
package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
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
	MaxBytes int64 // about how many bytes they may take; default 4 GiB
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

	keys, bytes, dropped, refused atomic.Int64
}

// A bit of a word stands for a shard, so that a set of them is a word, and its order the order of locking.
const shardCount = 64

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
	s := &Store{seed: maphash.MakeSeed(), start: time.Now(), passed: time.Since, max: o}
	for i := range s.shards {
		s.shards[i].entries = make(map[string]*entry)
	}
	return s
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
func (s *Store) Take(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := take{store: s, hits: hits, out: out}
	var entries [8]*entry
	var states [8]limiters.State
	t.entries, t.states = append(entries[:0], make([]*entry, len(hits))...), append(states[:0], make([]limiters.State, len(hits))...)

	shards := t.lock()
	defer t.unlock(shards)
	t.own = s.clock()
	t.now = t.own
	if !now.IsZero() {
		t.now, t.keep = now.UnixMicro(), callerKeep
	}
	for i := range hits {
		t.find(i)
	}
	limiters.Decide(t.now, hits, t.states, out)
	t.settle()
	for rest := shards; rest != 0; rest &= rest - 1 {
		s.sweep(&s.shards[bits.TrailingZeros64(rest)], t.own)
	}
	return nil
}

// A take is one call of Take: the entry and the state of each hit, and the times, in µs since 1970.
type take struct {
	store   *Store
	hits    []limiters.Hit
	out     []limiters.Verdict
	entries []*entry
	states  []limiters.State
	now     int64 // at which hits are decided
	own     int64 // by the store's clock
	keep    int64 // how much longer than its state says a key is kept
}

func (s *Store) shardOf(key string) int { return int(maphash.String(s.seed, key) % shardCount) }

// lock locks the shards of all hits, in order, and tells which.
func (t *take) lock() (shards uint64) {
	for i := range t.hits {
		shards |= 1 << t.store.shardOf(t.hits[i].Key)
	}
	for rest := shards; rest != 0; rest &= rest - 1 {
		t.store.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	return shards
}

func (t *take) unlock(shards uint64) {
	for rest := shards; rest != 0; rest &= rest - 1 {
		t.store.shards[bits.TrailingZeros64(rest)].mu.Unlock()
	}
}

// find finds the state of hit i, and makes room in the store for what the hit will write. Where there is none the hit has
// no state and fails with ErrFull; but one that would be denied is denied, counted or not.
func (t *take) find(i int) {
	h, v := &t.hits[i], &t.out[i]
	*v = limiters.Verdict{}
	shard := &t.store.shards[t.store.shardOf(h.Key)]
	e := shard.find(h)
	for j := 0; e == nil && j < i; j++ {
		if p := t.entries[j]; p != nil && p.is(h) {
			e = p
		}
	}
	if e == nil {
		e = &entry{key: h.Key, limit: h.Limit, state: h.Limit.NewState(), place: nowhere}
	}
	t.entries[i], e.taken = e, true
	isNew := e.place == nowhere
	if (isNew || h.Limit.Grows()) && limiters.Writes(h.Limit, e.state, t.now, h.N) {
		if !t.store.room(shard, t.own, isNew) {
			t.refuse(e, h, v)
			return
		}
		if isNew {
			t.store.insert(shard, e)
		}
	}
	t.states[i] = e.state
}

func (t *take) refuse(e *entry, h *limiters.Hit, v *limiters.Verdict) {
	if denial, sure := limiters.Denial(h.Limit, e.state, t.now, h.N); sure {
		*v = denial
		return
	}
	t.store.refused.Add(1)
	v.Err = ErrFull
}

// settle drops the entries that are as if never seen, and writes down when the others will be as good as new.
func (t *take) settle() {
	for i, e := range t.entries {
		e.taken = false
		if e.place == nowhere {
			continue
		}
		if limiters.Fresh(e.state) {
			t.store.remove(&t.store.shards[t.store.shardOf(e.key)], e)
			continue
		}
		e.tighten(t.hits[i].Limit)
		e.due = t.own + max(0, limiters.Until(e.limit, e.state)-t.now) + t.keep
		bytes := e.size()
		t.store.bytes.Add(int64(bytes) - int64(e.bytes))
		e.bytes = bytes
	}
}
