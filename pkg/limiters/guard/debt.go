package guard

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A debt is the number of hits of a key that the cache has denied and the store has not counted. If
// the limit does not count denied hits, the debt is 0, and sending it only renews the denial.
//
// A debt must be counted only while its window is current, and only the store knows the window. So
// the cache sends it with [limiters.OpCountDenied]: the store counts the debt if it denies a peek.
type debt struct {
	key        string
	limit      *limiters.Limit
	n          int64
	resetAt    time.Duration // when its window ends at the latest
	generation uint32        // the generation of the shard when the debt was removed from it
}

// maxDebtHits bounds a debt: further hits go to the store. A restored debt may double it, which is
// far below limiters.MaxHits.
const maxDebtHits = 1<<32 - 1

func (d *debt) op() limiters.Op {
	return limiters.Op{Key: d.key, Limit: d.limit, Kind: limiters.OpCountDenied, N: d.n}
}

// countSent updates the statistics after a call. It restores debts that the store certainly did not
// charge.
func (c *DenyCache) countSent(debts []debt, out []limiters.Verdict) {
	for i := range debts {
		d, err := &debts[i], out[i].Err
		if err == nil {
			c.sentHits.Add(d.n)
			continue
		}
		restored := false
		if limiters.IsUncharged(err) {
			c.shardOf(d.key).locked(func(s *denyShard) { restored = s.restore(c.clock(), d) })
		}
		if !restored {
			c.lostHits.Add(d.n)
		}
	}
}

// applyVerdicts renews or removes denials by the verdicts on their debts, from a call that began at
// the time began.
func (c *DenyCache) applyVerdicts(began time.Duration, debts []debt, out []limiters.Verdict) {
	now := c.clock()
	for i := range debts {
		d, v := &debts[i], &out[i]
		if v.Err != nil {
			continue
		}
		denial, certain := c.denialOf(began, now, d.limit, 0, v)
		c.shardOf(d.key).locked(func(s *denyShard) { s.renew(d, denial, certain) })
	}
}

const (
	forever = time.Duration(math.MaxInt64)
	// debtsPerCall bounds the debts in one call.
	debtsPerCall = 50
	// minSleep is the shortest sleep of the goroutine, whatever MaxAge is.
	minSleep = time.Millisecond
)

// debtDelay returns how long a debt waits: half of MaxAge, so that a denial is renewed before it
// expires.
func (c *DenyCache) debtDelay() time.Duration { return c.maxAge / 2 }

// run removes expired denials and sends debts after debtDelay, until ctx ends.
func (c *DenyCache) run(ctx context.Context) {
	timer := time.NewTimer(c.debtDelay())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := c.clock()
		// Debts that are nearly due are sent too, so that the goroutine wakes at most sixteen times
		// in MaxAge.
		next, err := c.flush(ctx, now-c.debtDelay()+c.maxAge/16)
		sleep := min(next, now) + c.debtDelay() - c.clock()
		if err != nil {
			sleep = c.maxAge / 4
		}
		timer.Reset(max(minSleep, sleep))
	}
}

// flush removes expired denials and sends the debts that began no later than before. It stops when
// ctx ends and at the first call that fails. Without an error, oldest is when the oldest remaining
// debt began, or forever.
func (c *DenyCache) flush(ctx context.Context, before time.Duration) (oldest time.Duration, err error) {
	oldest = forever
	var debts []debt
	for i := range c.shards {
		var since time.Duration
		for full := true; full && ctx.Err() == nil; {
			c.shards[i].locked(func(s *denyShard) {
				now := c.clock()
				s.sweep(now)
				debts, since = s.popDue(now, before, debtsPerCall, debts)
			})
			full = len(debts) >= debtsPerCall
			if full {
				if err := c.sendDebts(debts); err != nil {
					return 0, err
				}
				debts = debts[:0]
			}
		}
		oldest = min(oldest, since)
	}
	if err := c.sendDebts(debts); err != nil {
		return 0, err
	}
	return oldest, ctx.Err()
}

// sendDebts sends debts in one call.
func (c *DenyCache) sendDebts(debts []debt) error {
	if len(debts) == 0 {
		return nil
	}
	ops := make([]limiters.Op, len(debts))
	for i := range debts {
		ops[i] = debts[i].op()
	}
	began := c.clock()
	out, err := c.send(c.store, ops)
	c.countSent(debts, out)
	if err != nil {
		return fmt.Errorf("guard: denied hits of %d keys may not have been counted: %w", len(debts), err)
	}
	c.applyVerdicts(began, debts, out)
	return nil
}

// popDebts moves the debts of a key, under all limits, to debts.
func (s *denyShard) popDebts(now time.Duration, key string, debts []debt) []debt {
	for _, e := range s.entriesOf(key) {
		if e.debt > 0 {
			debts = s.popDebt(now, e, debts)
		}
	}
	return debts
}

// needsStore reports whether the store must be called for e: to count its debt while the window may
// be open, or to renew a denial that is still requested.
func (s *denyShard) needsStore(e *denyEntry, now time.Duration) bool {
	return e.debt > 0 && now < e.resetAt || now < e.retryAt && now-e.pendingSince < s.maxAge
}

// popDebt moves the debt of e to debts if e needsStore. If e does not need the store, or has no
// denial, popDebt removes it.
func (s *denyShard) popDebt(now time.Duration, e *denyEntry, debts []debt) []debt {
	needed := s.needsStore(e, now)
	if needed {
		debts = append(debts, debt{e.key, e.limit, e.debt, e.resetAt, s.generation})
	}
	e.used = min(e.used+e.debt, limiters.MaxHits)
	e.debt, e.pending = 0, false
	if !needed || e.expires == noDenial {
		s.remove(e)
		return debts
	}
	e.move(&s.idle)
	return debts
}

// popDue moves the debts that began no later than before to debts, up to limit in total. It returns
// when the oldest remaining debt began, or forever.
func (s *denyShard) popDue(now, before time.Duration, limit int, debts []debt) ([]debt, time.Duration) {
	for e := s.pending.next; e != &s.pending; e = s.pending.next {
		if e.pendingSince > before || len(debts) >= limit {
			return debts, e.pendingSince
		}
		debts = s.popDebt(now, e, debts)
	}
	return debts, forever
}

// renew applies the store's verdict on a removed debt, whose entry may have been removed or changed
// meanwhile.
func (s *denyShard) renew(removed *debt, d denial, denied bool) {
	e := s.find(removed.key, removed.limit)
	switch {
	case e == nil || s.generation != removed.generation:
	case !denied:
		s.removeDenial(e)
	case e.minHits == d.minHits && e.expires < d.expires:
		e.denial = d
	}
}

// restore returns a removed debt to its entry, if it still exists. A debt whose window has ended
// must not count in the next one.
func (s *denyShard) restore(now time.Duration, removed *debt) bool {
	e := s.find(removed.key, removed.limit)
	if e == nil || now >= removed.resetAt {
		return false
	}
	e.debt += removed.n
	e.used = max(0, e.used-removed.n)
	if !e.pending {
		s.markPending(e, now)
	}
	return true
}
