// Package topkeys finds the busiest and the most denied keys, in bounded memory. At high rates it
// counts a sample of the requests.
package topkeys

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/spacesaving"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// windowLength is the interval at which counts age. [Counter.Top] reports the current and the last
// window, which are one to two minutes together.
const windowLength = time.Minute

// A Counter counts the hits of the busiest keys. It is safe for concurrent use. Each key belongs to
// one shard, and each shard has a lock, so that several cores can count.
type Counter struct {
	keyHashSecret             []byte
	hash                      func(key string) uint64
	random                    func() uint64
	shards                    []shard
	current                   atomic.Uint64 // the number of the window
	hitSampler, deniedSampler *sampler

	mu               sync.Mutex
	began, beganLast time.Time // the current window, and the one before
}

// maxShards bounds the memory, because a shard has four sketches.
const maxShards = 8

// maxBuffered is the number of buffered hits of a shard. Counting in batches keeps the sketches in
// the CPU's caches; counting each request would cost several times as much.
const maxBuffered = 64

type shard struct {
	mu                          sync.Mutex
	window                      uint64     // the number of the window that counts last
	bufferedHits                int        // in buffered
	hitSketches, deniedSketches [2]*sketch // by the number of the window, modulo 2
	buffered                    [maxBuffered]bufferedHit
	_                           [64]byte // keeps the next lock out of this cache line
}

// A bufferedHit is the hits of one request on a key.
type bufferedHit struct {
	value              keyInfo
	hash, hits, denied uint64 // the counts are those of the samplers
}

type sketch = spacesaving.Sketch[keyInfo]

// A keyInfo describes a key in a sketch.
type keyInfo struct{ key, domain, rule string }

// New returns a Counter that counts size keys in each sketch. A keyHashSecret that is not empty
// replaces keys by their hashes in the result of [Counter.Top]. [Counter.Run] must be running to
// age the counts.
func New(size int, keyHashSecret []byte) *Counter {
	shards := min(maxShards, 1<<bits.Len(uint(2*runtime.GOMAXPROCS(0)-1)))
	seed, now := maphash.MakeSeed(), time.Now()
	c := &Counter{
		keyHashSecret: keyHashSecret, hash: func(key string) uint64 { return maphash.String(seed, key) }, random: rand.Uint64,
		shards: make([]shard, shards), hitSampler: newSampler(), deniedSampler: newSampler(), began: now, beganLast: now,
	}
	for i := range c.shards {
		for j := range 2 {
			c.shards[i].hitSketches[j], c.shards[i].deniedSketches[j] = spacesaving.New[keyInfo](size), spacesaving.New[keyInfo](size)
		}
	}
	return c
}

// Run ages the counts, and adapts the sample to the rate of requests, until ctx ends.
func (c *Counter) Run(ctx context.Context) {
	for second := 1; backoff.Sleep(ctx, time.Second) == nil; second++ {
		if second%int(windowLength/time.Second) == 0 {
			c.beginWindow(time.Now()) // before adapt, so that the new window has the weight of additions in progress
		}
		c.hitSampler.adapt()
		c.deniedSampler.adapt()
	}
}

// Add counts the hits of a decided request. It does not retain r.
func (c *Counter) Add(r *decide.Result) {
	for i := range r.Decisions {
		if d := &r.Decisions[i]; len(d.Verdicts) > 0 && !d.EndsLease() {
			c.add(d, d.DenyingLimitIndex() >= 0)
		}
	}
}

// maxKeyBytes is the length of the longest counted key. A request that carries its limit can have a
// key of 17 KB.
const maxKeyBytes = 1 << 10

func (c *Counter) add(d *decide.Decision, denied bool) {
	if len(d.Key) > maxKeyBytes {
		return
	}
	if d.Hits <= 0 && !denied {
		return
	}
	n := uint64(max(d.Hits, 0))
	b := bufferedHit{hits: c.hitSampler.weigh(n, c.random)}
	if denied {
		b.denied = c.deniedSampler.weigh(max(n, 1), c.random)
	}
	if b.hits != 0 || b.denied != 0 {
		b.value, b.hash = keyInfoOf(d), c.hash(d.Key)
		c.buffer(&b)
	}
}

// keyInfoOf copies the texts of a request except the key, which is not reused.
func keyInfoOf(d *decide.Decision) keyInfo {
	if d.Rule == nil {
		return keyInfo{key: d.Key, domain: strings.Clone(d.Domain)}
	}
	return keyInfo{d.Key, d.Rule.Domain, d.Rule.Name}
}

func (c *Counter) buffer(b *bufferedHit) {
	s := &c.shards[b.hash>>32%uint64(len(c.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := c.current.Load(); current != s.window {
		c.count(s)
		s.beginWindow(current)
	}
	s.buffered[s.bufferedHits] = *b
	s.bufferedHits++
	if s.bufferedHits == maxBuffered {
		c.count(s)
	}
}

// count adds the buffered hits to the sketches of their window. The lock of s must be held.
func (c *Counter) count(s *shard) {
	hits, denied := s.hitSketches[s.window%2], s.deniedSketches[s.window%2]
	var countedHits, countedDenied uint64
	for i := range s.buffered[:s.bufferedHits] {
		b := &s.buffered[i]
		if b.hits > 0 {
			hits.Add(b.hash, b.value, b.hits)
			countedHits++
		}
		if b.denied > 0 {
			denied.Add(b.hash, b.value, b.denied)
			countedDenied++
		}
	}
	s.bufferedHits = 0
	c.hitSampler.note(countedHits)
	c.deniedSampler.note(countedDenied)
}

// beginWindow begins a window.
func (c *Counter) beginWindow(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.beganLast = now, c.began
	current := c.current.Add(1)
	c.hitSampler.beginWindow(current)
	c.deniedSampler.beginWindow(current)
}

// beginWindow clears the windows before the last one. The lock must be held.
func (s *shard) beginWindow(current uint64) {
	if current == s.window {
		return
	}
	s.hitSketches[current%2].Reset()
	s.deniedSketches[current%2].Reset()
	if current != s.window+1 {
		s.hitSketches[(current+1)%2].Reset()
		s.deniedSketches[(current+1)%2].Reset()
	}
	s.window = current
}

// Top returns the n busiest keys of a domain, or of all domains if domain is "".
func (c *Counter) Top(by api.TopOrder, domain string, n int) api.Top {
	since, total, maxError, items := c.list(by)
	top := api.Top{Since: since, Total: signed(total), Error: signed(maxError), Keys: []api.TopKey{}}
	for _, item := range items {
		if len(top.Keys) >= n {
			break
		}
		if domain == "" || item.Value.domain == domain {
			top.Keys = append(top.Keys, c.topKey(item))
		}
	}
	return top
}

func (c *Counter) topKey(item spacesaving.Item[keyInfo]) api.TopKey {
	k := api.TopKey{
		Domain: item.Value.domain, Rule: item.Value.rule, Key: []explain.Entry{}, KeyHash: descriptors.KeyHash(c.keyHashSecret, item.Value.key),
		Count: signed(item.Count), Error: signed(item.Error),
	}
	if len(c.keyHashSecret) == 0 {
		_, entries, _ := descriptors.ParseKey(item.Value.key)
		k.Key = explain.EntriesOf(entries)
	}
	return k
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// list returns all keys, busiest first, the total of all counts, and the largest error of a count,
// see [api.Top].
func (c *Counter) list(by api.TopOrder) (since time.Time, total, maxError uint64, all []spacesaving.Item[keyInfo]) {
	c.mu.Lock() // no window begins
	defer c.mu.Unlock()
	for i := range c.shards {
		lists := c.lists(&c.shards[i], by)
		total = spacesaving.Sum(total, spacesaving.Sum(lists[0].Total, lists[1].Total))
		maxError = max(maxError, spacesaving.Sum(lists[0].MaxError, lists[1].MaxError))
		// Each key is in one shard, so its error is that of the shard.
		all = append(all, spacesaving.Top(math.MaxInt, lists[:]...)...)
	}
	slices.SortFunc(all, spacesaving.Compare[keyInfo])
	sample := c.hitSampler
	if by == api.ByDenied {
		sample = c.deniedSampler
	}
	weight := sample.largestWeight()
	_, maxError = bounds(0, maxError, weight)
	for i := range all {
		item := &all[i]
		lower, upper := bounds(item.Count-item.Error, item.Count, weight)
		item.Count, item.Error = upper, upper-lower
		maxError = max(maxError, item.Error)
	}
	return c.beganLast, total, maxError, all
}

// lists copies the counts of both windows.
func (c *Counter) lists(s *shard, by api.TopOrder) (all [2]spacesaving.List[keyInfo]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.count(s)
	s.beginWindow(c.current.Load())
	sketches := &s.hitSketches
	if by == api.ByDenied {
		sketches = &s.deniedSketches
	}
	for i := range all {
		all[i] = sketches[i].List()
	}
	return all
}
