package guard

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A debt is hits that the cache denied and the store has not counted yet; or none, where denied hits do not count.
//
// They must not be counted if the window they belong to has ended by the time they get there: they would deny their owner
// the next. Nobody but the store knows which window it is in, so it looks whether the key is over its limit, and counts
// them if it is. What the look says renews the denial.
type debt struct {
	key   string
	limit *limiters.Limit
	n     int64
	place place // of the key, when it was taken from the shard
}

// mostOwed is how many hits a debt is at most: a sum of two is far from limiters.MaxHits.
const mostOwed = limiters.MaxPerWindow

func (d *debt) hit() limiters.Hit {
	return limiters.Hit{Key: d.key, Limit: d.limit, Denied: d.n}
}

// settled notes what became of debts that were sent.
func (c *DenyCache) settled(debts []debt, out []limiters.Verdict, err error) {
	for i := range debts {
		if err != nil || out[i].Err != nil {
			c.lost.Add(debts[i].n)
		} else {
			c.sent.Add(debts[i].n)
		}
	}
}

// renew makes denials younger, by the verdicts of their debts, of a call that began at from; or it forgets them.
func (c *DenyCache) renew(from int64, debts []debt, out []limiters.Verdict) {
	now := c.clock()
	for i := range debts {
		d, v := &debts[i], &out[i]
		if v.Err != nil {
			continue
		}
		what, sure := c.denied(from, now, d.limit, 0, v)
		c.shard(d.place.hash).renew(d, what, sure && what.until > now)
	}
}

const (
	forever = int64(math.MaxInt64)
	// debtsInCall is how many debts go to the store in one call, and patience how long that may take.
	debtsInCall = 50
	patience    = time.Second
	// shortest is the least that the cache sleeps, however small Max is.
	shortest = int64(time.Millisecond)
)

// owedFor is how long a debt waits, of the Max that a denial is remembered: it is renewed before it is too old.
func (c *DenyCache) owedFor() int64 { return c.max / 2 }

// run forgets what is old and sends what has been owed for long enough, until ctx ends. It sleeps until the next is due;
// what comes to be owed meanwhile is due later.
func (c *DenyCache) run(ctx context.Context) {
	defer close(c.stopped)
	timer := time.NewTimer(time.Duration(c.owedFor()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := c.clock()
		// What is nearly due goes along, so that it wakes at most sixteen times in Max.
		next, err := c.flush(ctx, now-c.owedFor()+c.max/16)
		wait := max(shortest, min(next, now)+c.owedFor()-c.clock())
		if err != nil {
			// What was sent is lost; the rest waits for a store that answers.
			wait = max(shortest, c.max/4)
		}
		timer.Reset(time.Duration(wait))
	}
}

// flush sends what has been owed since before a time, and forgets what is old. It ends with the first call that fails, of
// which it tells, and begins none after the end of ctx. It tells since when the rest is owed, forever if there is none.
func (c *DenyCache) flush(ctx context.Context, before int64) (rest int64, err error) {
	rest = forever
	var debts []debt
	for i := 0; i < len(c.shards) && ctx.Err() == nil; {
		s := &c.shards[i]
		s.mu.Lock()
		now := c.clock()
		s.sweep(now)
		var since int64
		debts, since = s.due(now, before, debtsInCall, debts)
		s.mu.Unlock()
		full := len(debts) >= debtsInCall
		if !full || since > before {
			rest = min(rest, since)
			i++
		}
		if full {
			if err := c.send(ctx, debts); err != nil {
				return rest, err
			}
			debts = debts[:0]
		}
	}
	if err := c.send(ctx, debts); err != nil {
		return rest, err
	}
	return rest, ctx.Err()
}

// send sends debts in one call, which the end of ctx does not break off. They are not sent again, whatever becomes of it.
func (c *DenyCache) send(ctx context.Context, debts []debt) error {
	if len(debts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	hits := make([]limiters.Hit, len(debts))
	for i := range debts {
		hits[i] = debts[i].hit()
	}
	out := make([]limiters.Verdict, len(hits))
	from := c.clock()
	err := c.store.Take(ctx, time.Time{}, limiters.Singles(hits...), out)
	c.settled(debts, out, err)
	if err != nil {
		return fmt.Errorf("guard: denied hits of %d keys that may not have been counted: %w", len(debts), err)
	}
	c.renew(from, debts, out)
	return nil
}
