package observe

import (
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

	"github.com/weir-rls/weir/internal/spacesaving"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// windowLength is the interval at which counts age. [Observer.Top] reports the current and the last
// window, which are one to two minutes together.
const windowLength = time.Minute

// topKeys finds the busiest keys. Each key belongs to one shard, and each shard has a lock, so that
// several cores can count.
type topKeys struct {
	hash                      func(key string) uint64
	random                    func() uint64
	shards                    []topShard
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

type topShard struct {
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

func newTopKeys(size int) *topKeys {
	shards := min(maxShards, 1<<bits.Len(uint(2*runtime.GOMAXPROCS(0)-1)))
	seed, now := maphash.MakeSeed(), time.Now()
	t := &topKeys{
		hash: func(key string) uint64 { return maphash.String(seed, key) }, random: rand.Uint64,
		shards: make([]topShard, shards), hitSampler: newSampler(), deniedSampler: newSampler(), began: now, beganLast: now,
	}
	for i := range t.shards {
		for j := range 2 {
			t.shards[i].hitSketches[j], t.shards[i].deniedSketches[j] = spacesaving.New[keyInfo](size), spacesaving.New[keyInfo](size)
		}
	}
	return t
}

func (t *topKeys) add(key string, d *decide.Decision, denied bool) {
	if d.Hits <= 0 && !denied || key == "" {
		return
	}
	n := uint64(max(d.Hits, 0))
	b := bufferedHit{hits: t.hitSampler.weigh(n, t.random)}
	if denied {
		b.denied = t.deniedSampler.weigh(max(n, 1), t.random)
	}
	if b.hits != 0 || b.denied != 0 {
		b.value, b.hash = keyInfoOf(key, d), t.hash(key)
		t.buffer(&b)
	}
}

// keyInfoOf copies the texts of a request except key.
func keyInfoOf(key string, d *decide.Decision) keyInfo {
	if d.Rule == nil {
		return keyInfo{key: key, domain: strings.Clone(d.Domain)}
	}
	return keyInfo{key, d.Rule.Domain, d.Rule.Name}
}

func (t *topKeys) buffer(b *bufferedHit) {
	s := &t.shards[b.hash>>32%uint64(len(t.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := t.current.Load(); current != s.window {
		t.count(s)
		s.beginWindow(current)
	}
	s.buffered[s.bufferedHits] = *b
	s.bufferedHits++
	if s.bufferedHits == maxBuffered {
		t.count(s)
	}
}

// count adds the buffered hits to the sketches of their window. The lock of s must be held.
func (t *topKeys) count(s *topShard) {
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
	t.hitSampler.note(countedHits)
	t.deniedSampler.note(countedDenied)
}

// beginWindow begins a window.
func (t *topKeys) beginWindow(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.beganLast = now, t.began
	current := t.current.Add(1)
	t.hitSampler.beginWindow(current)
	t.deniedSampler.beginWindow(current)
}

// beginWindow clears the windows before the last one. The lock must be held.
func (s *topShard) beginWindow(current uint64) {
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

// Top returns the n busiest keys of a domain, or of all domains if domain is "". Keys are ordered
// by their requested hits or, if denied, by their denied hits, in shadow mode too, with a denied
// peek as one hit. Without sketches the list is empty.
func (o *Observer) Top(denied bool, domain string, n int) api.Top {
	top := api.Top{Keys: []api.TopKey{}}
	if o.top == nil {
		return top
	}
	since, total, maxError, items := o.top.list(denied)
	top.Since, top.Total, top.Error = since, signed(total), signed(maxError)
	for _, item := range items {
		if len(top.Keys) >= n {
			break
		}
		if domain == "" || item.Value.domain == domain {
			top.Keys = append(top.Keys, o.topKey(item))
		}
	}
	return top
}

func (o *Observer) topKey(item spacesaving.Item[keyInfo]) api.TopKey {
	k := api.TopKey{
		Domain: item.Value.domain, Rule: item.Value.rule, Key: []explain.Entry{}, KeyHash: o.hash(item.Value.key),
		Count: signed(item.Count), Error: signed(item.Error),
	}
	if len(o.options.KeyHashSecret) == 0 {
		_, entries, _ := descriptors.ParseKey(item.Value.key)
		k.Key = explain.EntriesOf(entries)
	}
	return k
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// list returns all keys, busiest first, the total of all counts, and the largest error of a count,
// see [api.Top].
func (t *topKeys) list(denied bool) (since time.Time, total, maxError uint64, all []spacesaving.Item[keyInfo]) {
	t.mu.Lock() // no window begins
	defer t.mu.Unlock()
	for i := range t.shards {
		lists := t.lists(&t.shards[i], denied)
		total += lists[0].Total + lists[1].Total
		maxError = max(maxError, lists[0].MaxError+lists[1].MaxError)
		// Each key is in one shard, so its error is that of the shard.
		all = append(all, spacesaving.Top(math.MaxInt, lists[:]...)...)
	}
	slices.SortFunc(all, spacesaving.Compare[keyInfo])
	sample := t.hitSampler
	if denied {
		sample = t.deniedSampler
	}
	weight := sample.largestWeight()
	_, maxError = bounds(0, maxError, weight)
	for i := range all {
		item := &all[i]
		lower, upper := bounds(item.Count-item.Error, item.Count, weight)
		item.Count, item.Error = upper, upper-lower
		maxError = max(maxError, item.Error)
	}
	return t.beganLast, total, maxError, all
}

// lists copies the counts of both windows.
func (t *topKeys) lists(s *topShard, denied bool) (all [2]spacesaving.List[keyInfo]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.count(s)
	s.beginWindow(t.current.Load())
	sketches := &s.hitSketches
	if denied {
		sketches = &s.deniedSketches
	}
	for i := range all {
		all[i] = sketches[i].List()
	}
	return all
}
