package observe

import (
	"errors"
	"fmt"
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
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Window is the interval at which counts age. [Observer.Top] reports the current and the last window, which is one to two minutes.
const Window = time.Minute

// An Order is the order of the heaviest keys.
type Order string

// The orders.
const (
	ByHits   Order = "hits"   // hits that were requested, allowed or denied; peeks and refunds do not count
	ByDenied Order = "denied" // hits that were denied, in shadow mode too; a denied peek counts as one
)

// Errors of [Observer.Top].
var (
	ErrNoTopKeys    = errors.New("no heaviest keys: TOP_KEYS is 0")
	ErrUnknownOrder = fmt.Errorf("unknown order: write %s or %s", ByHits, ByDenied)
)

// A Top is a list of keys, heaviest first. At low rates, counts have only the error of the sketches. At high rates, requests are
// sampled, and each key's bounds hold with a probability of at least 99.9 %.
type Top struct {
	Since time.Time // the counts are those since then
	Total uint64    // of all keys of all domains; an estimate at high rates
	Error uint64    // no count is too high by more; a key that is not kept has at most this true count
	Keys  []TopKey
}

// A TopKey is a key with its count. The true count is at least Count - Error and at most Count.
type TopKey struct {
	Domain, Rule string
	Key          []descriptors.Entry // see [descriptors.ParseKey]; nil if keys are hidden
	KeyHash      string              // see [descriptors.KeyHash]
	Count, Error uint64
}

// topKeys finds the heaviest keys. Each key belongs to one shard, and each shard has a lock, so that several cores can count.
type topKeys struct {
	hash         func(key string) uint64
	random       func() uint64
	shards       []topShard
	current      atomic.Uint64 // the number of the window
	hits, denied *sampler

	mu               sync.Mutex
	began, beganLast time.Time // the current window, and the one before
}

// maxShards bounds the memory, because a shard has four sketches.
const maxShards = 8

// maxPending is the number of buffered hits of a shard. Counting in batches keeps the sketches in the CPU's caches; counting each
// request would cost several times as much.
const maxPending = 64

type topShard struct {
	mu           sync.Mutex
	window       uint64     // of the newest counts
	noted        int        // of pending
	hits, denied [2]*sketch // by the number of the window, modulo 2
	pending      [maxPending]pending
	_            [64]byte // the next lock must not share a cache line
}

// A pending is the hits of one request on a key.
type pending struct {
	value              seen
	hash, hits, denied uint64 // the counts are those of the samplers
}

type sketch = spacesaving.Sketch[seen]

// A seen describes a key in a sketch.
type seen struct{ key, domain, rule string }

func newTopKeys(size int) *topKeys {
	shards := min(maxShards, 1<<bits.Len(uint(2*runtime.GOMAXPROCS(0)-1)))
	seed, now := maphash.MakeSeed(), time.Now()
	t := &topKeys{
		hash: func(key string) uint64 { return maphash.String(seed, key) }, random: rand.Uint64,
		shards: make([]topShard, shards), hits: newSampler(), denied: newSampler(), began: now, beganLast: now,
	}
	for i := range t.shards {
		for j := range 2 {
			t.shards[i].hits[j], t.shards[i].denied[j] = spacesaving.New[seen](size), spacesaving.New[seen](size)
		}
	}
	return t
}

func (t *topKeys) add(key string, d *decide.Decision, denied bool) {
	if d.Hits <= 0 && !denied || key == "" {
		return
	}
	n := uint64(max(d.Hits, 0))
	p := pending{hits: t.hits.weigh(n, t.random)}
	if denied {
		p.denied = t.denied.weigh(max(n, 1), t.random)
	}
	if p.hits != 0 || p.denied != 0 {
		p.value, p.hash = seenOf(key, d), t.hash(key)
		t.note(&p)
	}
}

// seenOf copies the texts of a request except key.
func seenOf(key string, d *decide.Decision) seen {
	if d.Rule == nil {
		return seen{key: key, domain: strings.Clone(d.Domain)}
	}
	return seen{key, d.Rule.Domain, d.Rule.Name}
}

func (t *topKeys) note(p *pending) {
	s := &t.shards[p.hash>>32%uint64(len(t.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := t.current.Load(); current != s.window {
		t.count(s)
		s.age(current)
	}
	s.pending[s.noted] = *p
	if s.noted++; s.noted == maxPending {
		t.count(s)
	}
}

// count adds the buffered hits to the sketches of their window. The lock of s must be held.
func (t *topKeys) count(s *topShard) {
	hits, denied := s.hits[s.window%2], s.denied[s.window%2]
	var countedHits, countedDenied uint64
	for i := range s.pending[:s.noted] {
		p := &s.pending[i]
		if p.hits > 0 {
			hits.Add(p.hash, p.value, p.hits)
			countedHits++
		}
		if p.denied > 0 {
			denied.Add(p.hash, p.value, p.denied)
			countedDenied++
		}
	}
	s.noted = 0
	t.hits.note(countedHits)
	t.denied.note(countedDenied)
}

// age begins a window.
func (t *topKeys) age(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.beganLast = now, t.began
	current := t.current.Add(1)
	t.hits.age(current)
	t.denied.age(current)
}

// age clears windows older than the last one. The lock must be held.
func (s *topShard) age(current uint64) {
	if current == s.window {
		return
	}
	s.hits[current%2].Reset()
	s.denied[current%2].Reset()
	if current != s.window+1 {
		s.hits[(current+1)%2].Reset()
		s.denied[(current+1)%2].Reset()
	}
	s.window = current
}

// Top returns the n heaviest keys of a domain; of all domains if domain is "".
func (o *Observer) Top(by Order, domain string, n int) (Top, error) {
	if o == nil || o.top == nil {
		return Top{}, ErrNoTopKeys
	}
	if by != ByHits && by != ByDenied {
		return Top{}, ErrUnknownOrder
	}
	top, items := o.top.list(by)
	for _, item := range items {
		if len(top.Keys) >= n {
			break
		}
		if domain == "" || item.Value.domain == domain {
			top.Keys = append(top.Keys, o.topKey(item))
		}
	}
	return top, nil
}

func (o *Observer) topKey(item spacesaving.Item[seen]) TopKey {
	k := TopKey{
		Domain: item.Value.domain, Rule: item.Value.rule, Count: item.Count, Error: item.Error,
		KeyHash: descriptors.KeyHash(o.options.Secret, item.Value.key),
	}
	if len(o.options.Secret) == 0 {
		_, k.Key, _ = descriptors.ParseKey(item.Value.key)
	}
	return k
}

// list returns all keys, heaviest first.
func (t *topKeys) list(by Order) (Top, []spacesaving.Item[seen]) {
	t.mu.Lock() // no window begins
	defer t.mu.Unlock()
	top := Top{Since: t.beganLast}
	var all []spacesaving.Item[seen]
	for i := range t.shards {
		lists := t.lists(&t.shards[i], by)
		top.Total += lists[0].Total + lists[1].Total
		top.Error = max(top.Error, lists[0].MaxError+lists[1].MaxError)
		// Each key is in one shard, so its error is that of the shard.
		all = append(all, spacesaving.Top(math.MaxInt, lists[:]...)...)
	}
	slices.SortFunc(all, spacesaving.Compare[seen])
	sample := t.hits
	if by == ByDenied {
		sample = t.denied
	}
	weight := sample.largestWeight()
	_, top.Error = bounds(0, top.Error, weight)
	for i := range all {
		item := &all[i]
		lower, upper := bounds(item.Count-item.Error, item.Count, weight)
		item.Count, item.Error = upper, upper-lower
		top.Error = max(top.Error, item.Error)
	}
	return top, all
}

// lists copies the counts of both windows.
func (t *topKeys) lists(s *topShard, by Order) (all [2]spacesaving.List[seen]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.count(s)
	s.age(t.current.Load())
	sketches := &s.hits
	if by == ByDenied {
		sketches = &s.denied
	}
	for i := range all {
		all[i] = sketches[i].List()
	}
	return all
}
