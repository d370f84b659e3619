package guard

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A debt is hits that the cache denied and the store has not counted yet.
//
// They must not be counted if the window they belong to has ended by the time they get there: they would deny their owner
// the next. Nobody but the store knows which window it is in, so a debt is put so that it is counted if the key is over
// its limit, and else not. It is a group of two hits on the key. One is the debt, under the limit with a maximum that is
// larger by just the debt: so it is denied, and counted, if the key holds more than the limit, and would be allowed if not.
// The other is a look under a maximum of 0, which is denied always, so that the group never allows and what would be
// allowed is not charged.
type debt struct {
	key   string
	limit *limiters.Limit
	n     int64 // 1 to limiters.MaxPerWindow less the limit's maximum
}

// hitsOfDebt is how many hits a debt is.
const hitsOfDebt = 2

// appendDebts appends the hits of debts, in groups that are none of others'.
func appendDebts(to []limiters.Hit, debts []debt, others []limiters.Hit) []limiters.Hit {
	group := uint16(math.MaxUint16)
	for i := range debts {
		for taken(group, others) {
			group--
		}
		d := &debts[i]
		to = append(to,
			limiters.Hit{Key: d.key, Limit: withMax(d.limit, d.limit.Spec().Max+d.n), N: d.n, Group: group},
			limiters.Hit{Key: d.key, Limit: withMax(d.limit, 0), Group: group})
		group--
	}
	return to
}

func taken(group uint16, by []limiters.Hit) bool {
	for i := range by {
		if by[i].Group == group {
			return true
		}
	}
	return false
}

// withMax is a limit of the same state with another maximum, which is in range.
func withMax(l *limiters.Limit, most int64) *limiters.Limit {
	spec := l.Spec()
	spec.Max = most
	other, err := limiters.New(spec)
	if err != nil {
		panic(fmt.Sprintf("guard: a limit of %d: %v", most, err)) // a bug: most is bounded by limiters.MaxPerWindow
	}
	return other
}

// settled notes what became of debts that were sent.
func (c *DenyCache) settled(debts []debt, out []limiters.Verdict, err error) {
	for i := range debts {
		if err != nil || out[hitsOfDebt*i].Err != nil {
			c.lost.Add(debts[i].n)
		} else {
			c.sent.Add(debts[i].n)
		}
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

// run forgets what is old and sends what has been owed for the longest that it may, until ctx ends. It sleeps until the
// next is due; what comes to be owed meanwhile is due later.
func (c *DenyCache) run(ctx context.Context) {
	defer close(c.stopped)
	timer := time.NewTimer(time.Duration(c.max))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := c.clock()
		// What is nearly due goes along, so that it wakes at most sixteen times in Max.
		next, err := c.flush(ctx, now-c.max+c.max/16)
		wait := max(shortest, min(next, now)+c.max-c.clock())
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
	hits := appendDebts(make([]limiters.Hit, 0, hitsOfDebt*len(debts)), debts, nil)
	out := make([]limiters.Verdict, len(hits))
	err := c.store.Take(ctx, time.Time{}, hits, out)
	c.settled(debts, out, err)
	if err != nil {
		return fmt.Errorf("guard: denied hits of %d keys that may not have been counted: %w", len(debts), err)
	}
	return nil
}
