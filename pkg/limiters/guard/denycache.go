package guard

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A DenyCache is a Store that remembers what another has denied, and answers the like from memory: whoever is over a
// limit costs the other store nothing. It never answers "allowed".
//
// It remembers that n hits of a key were denied under a limit, and until when. Until then it answers n hits or more, and a
// look if n is 1. Where denied hits count, as in a fixed window by default, it answers any number, and sums what it has
// answered so: the sum goes to the store with the next call for the key, before it, or by a goroutine of the cache's own,
// half of Max after the first of it. What "until" is counts from before the call that was denied, the wait that is told from
// after it.
//
// The same goroutine asks the store, of many keys at once, whether denials that have answered would still be denied: who asks
// more often than once in Max hardly ever waits for the store.
//
// What it does not remember: a hit that never fits; a log or a funnel that counts denied hits, where each makes the wait
// longer; a group of several hits, which the store decides as a whole. A hit goes to the store if a hit on its key that
// stands in the same call does, so that they are decided in order. A call with a time of the caller's passes it by.
//
// Of what this process does it misses nothing: a refund drops what is remembered of its key, when it comes and again when
// it is done, so that no denial from before it is remembered after it. What another process gives back, raises or loses it
// sees after Max.
//
// What was summed reaches the store at most once, and only as long as the key is over its limit there. Otherwise it would
// be of another window, and deny its owner that one: see debt.
type DenyCache struct {
	store limiters.Store
	seed  maphash.Seed
	start time.Time
	max   int64 // ns

	shards []denyShard
	budget int64 // the bytes of a shard

	sent, lost atomic.Int64

	stop    context.CancelFunc
	stopped chan struct{}
}

// DenyOptions bound a DenyCache. A zero stands for the default.
type DenyOptions struct {
	Bytes int64         // about how many bytes it may take; default 16 MiB
	Max   time.Duration // the longest that a denial is remembered after the store said it; default 1 s
}

// DenyStats tell what a DenyCache holds and what it has done.
type DenyStats struct {
	Entries, Bytes int64
	Asked          int64 // hits that it was asked, of N >= 0
	Answered       int64 // of these, those that it answered
	Refused        int64 // denials not remembered, since there was no room
	Sent           int64 // hits summed and sent to the store
	Lost           int64 // hits summed whose call failed: they may or may not have been counted
}

// The most shards, and the least bytes of one: a bound on bytes is one on each shard.
const (
	mostShards = 256
	leastShard = 8 << 10
)

// NewDenyCache makes an empty cache before a store, which it does not own. Close it once no Take is under way.
func NewDenyCache(store limiters.Store, o DenyOptions) *DenyCache {
	if o.Bytes == 0 {
		o.Bytes = 16 << 20
	}
	if o.Max == 0 {
		o.Max = time.Second
	}
	o.Max = min(o.Max, limiters.MaxWindow) // and no sum of times is too large
	shards := 1
	for shards < mostShards && o.Bytes/int64(2*shards) >= leastShard {
		shards *= 2
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &DenyCache{
		store: store, seed: maphash.MakeSeed(), start: time.Now(), max: int64(o.Max),
		shards: make([]denyShard, shards), budget: o.Bytes / int64(shards),
		stop: stop, stopped: make(chan struct{}),
	}
	for i := range c.shards {
		c.shards[i].init(c.max)
	}
	go c.run(ctx)
	return c
}

// Close sends what is summed. It begins no call after the end of ctx. The error is why not all was sent.
func (c *DenyCache) Close(ctx context.Context) error {
	c.stop()
	<-c.stopped
	c.Drop()
	_, err := c.flush(ctx, forever)
	return err
}

// Drop forgets every denial, and those of calls under way too. What is summed is still sent.
func (c *DenyCache) Drop() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.generation++
		s.dropAll()
		s.mu.Unlock()
	}
}

// Stats tells what the cache holds now, and what it has done.
func (c *DenyCache) Stats() DenyStats {
	all := DenyStats{Sent: c.sent.Load(), Lost: c.lost.Load()}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		all.Entries += s.count
		all.Bytes += s.bytes
		all.Asked += s.asked
		all.Answered += s.answered
		all.Refused += s.refused
		s.mu.Unlock()
	}
	return all
}

// clock is the monotonic clock, in ns.
func (c *DenyCache) clock() int64 { return int64(time.Since(c.start)) }

func (c *DenyCache) shard(hash uint64) *denyShard {
	return &c.shards[hash>>32&uint64(len(c.shards)-1)]
}

// Take implements limiters.Store. If the store fails, the verdicts from memory stand, and the others carry the error.
func (c *DenyCache) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if !now.IsZero() {
		return c.store.Take(ctx, now, groups, out)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// These are passed one by one: in a struct with groups they would not stay on the stack.
	var few [8]place
	places := few[:min(len(out), len(few))]
	if len(out) > len(few) {
		places = make([]place, len(out))
	}
	var debts []debt
	from := c.clock()
	c.see(groups, places)
	asks := c.answer(from, groups, places, out, &debts)
	switch {
	case asks == 0:
		return nil
	case asks == len(out) && len(debts) == 0:
		err := c.store.Take(ctx, time.Time{}, groups, out)
		c.learn(from, groups, places, out, err)
		return err
	}
	err := c.ask(ctx, groups, places, out, debts)
	c.learn(from, groups, places, out, err)
	if asks == len(out) {
		return err
	}
	return nil
}

// A place is what one call of Take knows of a hit.
type place struct {
	hash       uint64 // of its key
	generation uint32 // of its shard, before the store was asked
	asks       bool   // it goes to the store
}

// see hashes the keys, and finds the hits that go to the store whatever is remembered: refunds, groups of several hits, and
// peeks with denied hits to count.
func (c *DenyCache) see(groups []limiters.Group, places []place) {
	for _, g := range groups {
		for i := range g {
			h, p := &g[i], &places[i]
			p.hash = maphash.String(c.seed, h.Key)
			p.asks = h.N < 0 || len(g) > 1 || h.N == 0 && h.Denied > 0
		}
		places = places[len(g):]
	}
}

// keyAsks tells whether place i, or another of its key that was decided upon, goes to the store.
func keyAsks(places []place, i int) bool {
	for j := range places {
		if places[j].asks && places[j].hash == places[i].hash {
			return true
		}
	}
	return false
}

// answer answers from memory what it can, and returns how many hits go to the store. It adds to debts what their keys owe.
func (c *DenyCache) answer(
	now int64, groups []limiters.Group, places []place, out []limiters.Verdict, debts *[]debt,
) (asks int) {
	first := 0
	for _, g := range groups {
		for i := range g {
			if !c.answerHit(now, &g[i], places, first+i, &out[first+i], debts) {
				asks++
			}
		}
		first += len(g)
	}
	return asks
}

func (c *DenyCache) answerHit(
	now int64, h *limiters.Hit, places []place, i int, v *limiters.Verdict, debts *[]debt,
) bool {
	p := &places[i]
	asks := keyAsks(places, i)
	s := c.shard(p.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.N >= 0 {
		s.asked++
		if !asks && s.answer(now, p.hash, h, v) {
			s.answered++
			return true
		}
	}
	p.asks, p.generation = true, s.generation
	*debts = s.settle(now, p.hash, h.Key, *debts)
	if h.N < 0 {
		s.drop(p.hash, h.Key)
	}
	return false
}

// ask has the store decide the hits that memory could not answer, after what their keys owe.
func (c *DenyCache) ask(
	ctx context.Context, groups []limiters.Group, places []place, out []limiters.Verdict, debts []debt,
) error {
	var part limiters.Part
	for i := range debts {
		part.AddHits(limiters.Group{debts[i].hit()}, -1)
	}
	first := 0
	for _, g := range groups {
		// A group of several hits goes to the store as a whole.
		if len(g) > 0 && places[first].asks {
			part.Add(g, first)
		}
		first += len(g)
	}
	err := part.Take(ctx, c.store, time.Time{})
	c.settled(debts, part.Verdicts, err)
	part.Scatter(out, err)
	return err
}

// learn drops what refunds made untrue, whether or not they were heard to succeed, and remembers what was denied to a
// call that began at from.
func (c *DenyCache) learn(from int64, groups []limiters.Group, places []place, out []limiters.Verdict, err error) {
	after, first := int64(0), 0
	for _, g := range groups {
		for i := range g {
			h, p, v := &g[i], &places[first+i], &out[first+i]
			if h.N < 0 {
				c.gaveBack(p.hash, h.Key)
			}
			if err != nil || v.Allowed || v.Err != nil || !p.asks || len(g) > 1 {
				continue
			}
			if after == 0 {
				after = c.clock()
			}
			if what, sure := c.denied(from, after, h.Limit, h.N, v); sure {
				c.remember(p, h, what, after)
			}
		}
		first += len(g)
	}
}

// denied is what is to be remembered of a verdict of n hits, of a call that began at from and ended at after.
func (c *DenyCache) denied(from, after int64, l *limiters.Limit, n int64, v *limiters.Verdict) (what denied, sure bool) {
	least, sure := l.Foretells(n, v)
	return denied{
		least: least, used: v.Used,
		// The store's clock is cut to whole microseconds, so its times are up to one earlier than they are told.
		until:   from + min(int64(v.RetryAfter-time.Microsecond), c.max),
		retryAt: after + int64(v.RetryAfter), resetAt: after + int64(v.ResetAfter),
	}, sure
}

// gaveBack drops what is remembered of a key, and what calls that are under way will hear of it.
func (c *DenyCache) gaveBack(hash uint64, key string) {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.drop(hash, key)
}

func (c *DenyCache) remember(p *place, h *limiters.Hit, d denied, now int64) {
	if d.until <= now {
		return
	}
	s := c.shard(p.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == p.generation {
		s.remember(now, p.hash, h, d, c.budget)
	}
}
