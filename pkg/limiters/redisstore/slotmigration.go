package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// decideByKey decides parts that got TRYAGAIN, which a call over several keys gets while their slot moves to another node.
// It sets their verdicts and errors. A group is charged key by key, and refunded if one of its hits is denied or fails, see
// ADR 5. A group over several keys that both charges and refunds keeps the error, because its refunds could not be undone. A
// hit with a penalty or a reservation has further keys; it keeps the error unless one node has all of them, see ADR 16.
func (s *Store) decideByKey(ctx context.Context, clock *serverClock, parts []*part) {
	if len(parts) == 0 {
		return
	}
	start := time.Now()
	charges, refunds := make([]keyParts, len(parts)), make([]keyParts, len(parts))
	for i, p := range parts {
		charges[i] = chargesOf(p)
	}
	s.sendKeys(ctx, clock, charges)
	for i, p := range parts {
		p.Verdicts = make([]limiters.Verdict, p.Len())
		for hit := range p.Verdicts {
			p.Verdicts[hit].Err = p.err // of hits that are not in charges
		}
		charges[i].scatter(p.Verdicts)
		refunds[i] = refundsOf(p, start)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	s.sendKeys(ctx, clock, refunds)
	for i, p := range parts {
		refunds[i].scatterRefunds(p.Verdicts)
		p.err = errorOfAll(p.Verdicts)
	}
}

// detached returns a context with the deadline of ctx, but not its cancellation: the refund of a charge is due even if the
// client has canceled its request.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !bounded {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// chargesOf returns the hits of p, a part for each key. Hits on one key keep their order and their group.
func chargesOf(p *part) keyParts {
	charges := newKeyParts(p.batch.now)
	p.eachGroup(func(g limiters.Group, first int, keys []string) {
		if isMixed(g) && spansKeys(keys) {
			return
		}
		for i, key := range keys {
			if slices.Index(keys, key) < i {
				continue // added with the first hit on this key
			}
			var own limiters.Group
			var at []int
			for j, hit := range g[i:] {
				if keys[i+j] == key {
					if len(g) > 1 {
						hit.Denied = 0 // ignored in a group, but not in a group of one
					}
					own, at = append(own, hit), append(at, first+i+j)
				}
			}
			charges.of(key).AddHits(own, at...)
		}
	})
	return charges
}

// refundsOf returns the refunds of the hits that were charged, after start, in groups that were denied.
func refundsOf(p *part, start time.Time) keyParts {
	refunds := newKeyParts(p.batch.now)
	p.eachGroup(func(g limiters.Group, first int, keys []string) {
		denied := func(i int) bool { return p.Verdicts[first+i].Err != nil || !p.Verdicts[first+i].Allowed }
		var deniedKeys []string
		for i := range g {
			if denied(i) {
				deniedKeys = append(deniedKeys, keys[i])
			}
		}
		if len(deniedKeys) == 0 || !spansKeys(keys) {
			return
		}
		for i, hit := range g {
			// A reservation with an estimate of 0 is given up too. Under a concurrency limit, which has no window, 0 is a peek.
			opens := hit.N == 0 && !hit.End && hit.Limit.HasLeases() && hit.Limit.Window() > 0
			if (hit.N > 0 || opens) && !slices.Contains(deniedKeys, keys[i]) {
				if hit.N, hit.Denied = -hit.N, 0; hit.Limit.HasLeases() {
					hit.N, hit.End = 0, true // a lease or a reservation is given up
				}
				refund := refunds.of(keys[i])
				refund.AddHits(limiters.Group{hit}, first+i)
				if p.batch.now.IsZero() && !hit.End {
					// In the next fixed window, the refund would admit a hit too many.
					refund.latest = start.Add(p.Verdicts[first+i].ResetAfter)
				}
			}
		}
	})
	return refunds
}

// eachGroup calls f for each group, with the number of its first hit in p, and its keys.
func (p *part) eachGroup(f func(g limiters.Group, first int, keys []string)) {
	first := 0
	for _, g := range p.Groups {
		f(g, first, p.keys[first:first+len(g)])
		first += len(g)
	}
}

// spansKeys reports whether there are several keys.
func spansKeys(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return key != keys[0] })
}

// isMixed reports whether a group has refunds and other hits.
func isMixed(g limiters.Group) bool {
	refunds := func(h limiters.Hit) bool { return h.N < 0 }
	return slices.ContainsFunc(g, refunds) && slices.ContainsFunc(g, func(h limiters.Hit) bool { return !refunds(h) })
}

// errorOfAll returns nil if a verdict has no error, otherwise the first error.
func errorOfAll(verdicts []limiters.Verdict) error {
	if slices.ContainsFunc(verdicts, func(v limiters.Verdict) bool { return v.Err == nil }) {
		return nil
	}
	return verdicts[0].Err
}

// keyParts are hits in a part for each key.
type keyParts struct {
	now   time.Time
	byKey map[string]*part
	parts []*part
}

func newKeyParts(now time.Time) keyParts { return keyParts{now: now, byKey: map[string]*part{}} }

// of returns the part of a key.
func (k *keyParts) of(key string) *part {
	p := k.byKey[key]
	if p == nil {
		p = &part{keys: []string{key}}
		k.byKey[key] = p
		k.parts = append(k.parts, p)
	}
	return p
}

// sendKeys sends all parts and reads their verdicts.
func (s *Store) sendKeys(ctx context.Context, clock *serverClock, all []keyParts) {
	var parts []*part
	for _, k := range all {
		for _, p := range k.parts {
			p.keys = slices.Repeat(p.keys, p.Len())
			p.batch = newBatch(k.now, p.Groups, p.keys)
			p.batch.latest = p.latest
		}
		parts = append(parts, k.parts...)
	}
	s.send(ctx, clock, parts)
	for _, p := range parts {
		p.read()
	}
}

// scatter writes the verdicts of k, or their errors, to those of the whole part.
func (k keyParts) scatter(out []limiters.Verdict) {
	for _, p := range k.parts {
		p.Scatter(out, p.err)
	}
}

// scatterRefunds replaces the verdicts of refunded hits, which were allowed by themselves. If a refund failed, the verdict
// of the charge stands.
func (k keyParts) scatterRefunds(out []limiters.Verdict) {
	for _, p := range k.parts {
		if p.err == nil {
			p.Scatter(out, nil)
		}
	}
}
