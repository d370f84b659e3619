package guard

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A renewal asks the store whether it still denies a key. It also carries the debt of the key: hits
// that the cache has denied and the store has not counted, or 0 if the limit does not count denied
// hits.
//
// A debt must be counted only while its window is current, and only the store knows the window. So
// a renewal is a [limiters.OpCountDenied]: the store counts the debt if it denies a peek.
type renewal struct {
	entry   *denyEntry
	debt    int64         // removed from entry
	resetAt time.Duration // when the window of the debt ends at the latest
	epoch   epoch         // the epoch of the shard when the renewal was made
}

// maxDebtHits bounds a debt: further hits go to the store. A restored debt may double it, which is
// far below limiters.MaxHits.
const maxDebtHits = 1<<32 - 1

func (r *renewal) op() limiters.Op {
	return limiters.Op{Key: r.entry.key, Limit: r.entry.limit, Kind: limiters.OpCountDenied, Hits: r.debt}
}

// closeDebts counts the debts of a call as sent or lost. A debt that the store certainly did not
// charge is restored, if its window is still open.
func (c *DenyCache) closeDebts(renewals []renewal, out []limiters.Verdict) {
	for i := range renewals {
		r, err := &renewals[i], out[i].Err
		if err == nil {
			c.sentHits.Add(r.debt)
			continue
		}
		restored := false
		if limiters.IsUncharged(err) {
			c.shardOf(r.entry.key).locked(func(s *denyShard) { restored = s.restoreDebt(c.clock(), r) })
		}
		if !restored {
			c.lostHits.Add(r.debt)
		}
	}
}

// renewDenials renews or removes denials, depending on the verdicts on their renewals. The call of
// the store started at began.
func (c *DenyCache) renewDenials(began time.Duration, renewals []renewal, out []limiters.Verdict) {
	now := c.clock()
	for i := range renewals {
		r, v := &renewals[i], &out[i]
		if v.Err != nil {
			continue
		}
		d, certain := c.denialOf(began, now, r.entry.limit, 0, v)
		c.shardOf(r.entry.key).locked(func(s *denyShard) { s.renewDenial(r, d, certain) })
	}
}

const (
	forever = time.Duration(math.MaxInt64)
	// renewalsPerCall bounds the renewals in one call.
	renewalsPerCall = 50
	// minSleep is the shortest sleep of the goroutine, whatever MaxAge is.
	minSleep = time.Millisecond
)

// renewalDelay returns how long a renewal waits: half of MaxAge, so that a denial is renewed before
// it expires.
func (c *DenyCache) renewalDelay() time.Duration { return c.maxAge / 2 }

// run removes expired denials and sends renewals after renewalDelay, until ctx ends.
func (c *DenyCache) run(ctx context.Context) {
	timer := time.NewTimer(c.renewalDelay())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := c.clock()
		// Renewals that are nearly due are sent too, so that the goroutine wakes at most sixteen
		// times in MaxAge.
		next, err := c.flush(ctx, now-c.renewalDelay()+c.maxAge/16)
		sleep := min(next, now) + c.renewalDelay() - c.clock()
		if err != nil {
			sleep = c.maxAge / 4
		}
		timer.Reset(max(minSleep, sleep))
	}
}

// flush removes expired denials and sends the renewals of entries whose queuedAt is at most
// before. It stops when ctx ends and at the first call that fails. Without an error, oldest is the
// earliest queuedAt of the remaining entries, or forever.
func (c *DenyCache) flush(ctx context.Context, before time.Duration) (oldest time.Duration, err error) {
	oldest = forever
	var renewals []renewal
	for i := range c.shards {
		for ctx.Err() == nil {
			var since time.Duration
			c.shards[i].locked(func(s *denyShard) {
				now := c.clock()
				s.sweep(now)
				renewals, since = s.popDue(now, before, renewalsPerCall, renewals)
			})
			if len(renewals) < renewalsPerCall {
				oldest = min(oldest, since)
				break
			}
			if err := c.sendRenewals(renewals); err != nil {
				return 0, err
			}
			renewals = renewals[:0]
		}
	}
	if err := c.sendRenewals(renewals); err != nil {
		return 0, err
	}
	return oldest, ctx.Err()
}

// sendRenewals sends renewals in one call.
func (c *DenyCache) sendRenewals(renewals []renewal) error {
	if len(renewals) == 0 {
		return nil
	}
	ops := make([]limiters.Op, len(renewals))
	for i := range renewals {
		ops[i] = renewals[i].op()
	}
	began := c.clock()
	out, err := c.send(c.store, ops)
	c.closeDebts(renewals, out)
	if err != nil {
		return fmt.Errorf("guard: denied hits of %d keys may not have been counted: %w", len(renewals), err)
	}
	c.renewDenials(began, renewals, out)
	return nil
}

// popDebts appends renewals with the debts of a key, under all limits.
func (s *denyShard) popDebts(now time.Duration, key string, renewals []renewal) []renewal {
	for _, e := range s.entriesOf(key) {
		if e.debt > 0 {
			renewals = s.popRenewal(now, e, renewals)
		}
	}
	return renewals
}

// needsStore reports whether the store must be called for e: to count its debt while the window may
// be open, or to renew a denial that is still requested.
func (s *denyShard) needsStore(e *denyEntry, now time.Duration) bool {
	return e.debt > 0 && now < e.resetAt || now < e.retryAt && now-e.queuedAt < s.maxAge
}

// popRenewal appends a renewal with the debt of e if e needsStore. If e does not need the store, or
// has no denial, popRenewal removes it.
func (s *denyShard) popRenewal(now time.Duration, e *denyEntry, renewals []renewal) []renewal {
	needed := s.needsStore(e, now)
	if needed {
		renewals = append(renewals, renewal{e, e.debt, e.resetAt, s.epoch})
	}
	e.used = min(e.used+e.debt, limiters.MaxHits)
	e.debt = 0
	if !needed || e.expires == noDenial {
		s.remove(e)
	} else {
		s.makeIdle(e)
	}
	return renewals
}

// popDue appends the renewals of entries whose queuedAt is at most before, up to maximum in
// total. It returns the queuedAt of the first remaining entry, or forever.
func (s *denyShard) popDue(now, before time.Duration, maximum int, renewals []renewal) ([]renewal, time.Duration) {
	for e := s.toRenew.next; e != &s.toRenew; e = s.toRenew.next {
		if e.queuedAt > before || len(renewals) >= maximum {
			return renewals, e.queuedAt
		}
		renewals = s.popRenewal(now, e, renewals)
	}
	return renewals, forever
}

// renewDenial applies the store's verdict on r, whose entry may have been removed or changed
// meanwhile.
func (s *denyShard) renewDenial(r *renewal, d cachedDenial, certain bool) {
	e := s.find(r.entry.key, r.entry.limit)
	switch {
	case e == nil || !s.mayRecord(r.epoch):
	case !certain:
		s.removeDenial(e)
	case e.minHits == d.minHits && e.expires < d.expires:
		e.cachedDenial = d
	}
}

// restoreDebt returns the debt of r to the entry of its key, if there is one. A debt must not count
// after its window has ended, or after a reset. The shard does not know the keys of earlier resets,
// so a reset of any key counts.
func (s *denyShard) restoreDebt(now time.Duration, r *renewal) bool {
	e := s.find(r.entry.key, r.entry.limit)
	if e == nil || !s.mayRestore(r.epoch) || now >= r.resetAt {
		return false
	}
	s.addDebt(now, e, r.debt)
	e.used = max(0, e.used-r.debt)
	return true
}
