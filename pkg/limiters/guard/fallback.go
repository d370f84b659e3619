package guard

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Fallback is a Store that decides the hits that another Store could not, by their OnError. It allows, denies, or decides
// in this process by the process's share of the limit. Every hit goes to the other store first, so recovery is automatic.
//
// Local and remote counts are never merged. While the store is down, each process admits at most its share of a limit,
// whatever was admitted before. So in one window the replicas admit at most the limit through the store, and replicas
// times the share by themselves. The share depends on the size of a hit: five hits of 100 spread over replicas less evenly
// than 500 hits of 1.
//
// If the context of a Take has ended, its error stands.
type Fallback struct {
	store   limiters.Store
	options FallbackOptions

	start   time.Time
	lost    atomic.Bool
	failure atomic.Int64 // the time of the last failure of the store, in ns since start
	decided [limiters.OnErrorLocal + 1]atomic.Int64
	shares  shares
}

// FallbackOptions configures a Fallback. A zero field stands for its default.
type FallbackOptions struct {
	// Local decides by this process's share. If it is nil, hits with OnErrorLocal fail.
	Local limiters.Store
	// Replicas returns the number of processes that share a limit now; default one.
	Replicas func() int
	// FalseLimit is the probability that some replica denies a client that uses its limit exactly; default 0.001.
	FalseLimit float64
	// Changed is called when the store is lost, with the reason, and when it is back. It is back when it decides a hit and has not
	// failed for a second. Calls may be concurrent.
	Changed func(lost bool, why error)
}

// FallbackStats are the state and the counters of a Fallback.
type FallbackStats struct {
	Lost    bool                             // the store has failed, and is not back
	Decided [limiters.OnErrorLocal + 1]int64 // hits that the store failed to decide, by the policy applied
}

// NewFallback returns a Fallback that wraps store. It owns neither store nor the local one.
func NewFallback(store limiters.Store, o FallbackOptions) *Fallback {
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.FalseLimit == 0 {
		o.FalseLimit = 0.001
	}
	if o.Changed == nil {
		o.Changed = func(bool, error) {}
	}
	return &Fallback{start: time.Now(), store: store, options: o}
}

// Stats returns the current state and counters.
func (f *Fallback) Stats() FallbackStats {
	s := FallbackStats{Lost: f.lost.Load()}
	for i := range s.Decided {
		s.Decided[i] = f.decided[i].Load()
	}
	return s
}

// Forget forgets the shares of all limits. Call it when rules were replaced.
func (f *Fallback) Forget() { f.shares.forget() }

// Take implements limiters.Store.
func (f *Fallback) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	err := f.store.Take(ctx, now, groups, out)
	switch {
	case err == nil && !slices.ContainsFunc(out, failed):
		f.noteFound(out)
		return nil
	case ctx.Err() != nil:
		return err
	case err != nil:
		f.failure.Store(int64(time.Since(f.start)))
		if f.lost.CompareAndSwap(false, true) {
			f.options.Changed(true, err)
		}
		for i := range out {
			out[i] = limiters.Verdict{Err: err}
		}
	}
	f.decide(ctx, now, groups, out)
	f.takeRest(ctx, now, groups, out)
	if err != nil && !slices.ContainsFunc(out, isDecided) {
		return err
	}
	return nil
}

func failed(v limiters.Verdict) bool    { return v.Err != nil }
func isDecided(v limiters.Verdict) bool { return v.Err == nil }
func isByStore(v limiters.Verdict) bool { return v.By == limiters.ByStore }

// takeRest repeats the hits that the store has allowed in groups with hits that it could not decide: it has not charged
// them. A client must not pass uncharged under one limit because another limit could not be decided.
func (f *Fallback) takeRest(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	var part limiters.Part
	forGroups(groups, out, func(first int, g limiters.Group, verdicts []limiters.Verdict) {
		var rest limiters.Group
		var at []int
		for i := range g {
			if !verdicts[i].Allowed {
				return
			}
			if isByStore(verdicts[i]) {
				rest, at = append(rest, g[i]), append(at, first+i)
			}
		}
		if len(rest) > 0 && len(rest) < len(g) {
			part.AddHits(rest, at...)
		}
	})
	if part.Len() == 0 {
		return
	}
	if err := part.Take(ctx, f.store, now); err != nil {
		for i := range part.Verdicts {
			part.Verdicts[i] = limiters.Verdict{Err: err}
		}
	}
	f.decide(ctx, now, part.Groups, part.Verdicts)
	part.Scatter(out, nil)
}

// forGroups calls do for each group, with the index of its first hit and the verdicts of its hits.
func forGroups(
	groups []limiters.Group, out []limiters.Verdict, do func(first int, g limiters.Group, verdicts []limiters.Verdict),
) {
	first := 0
	for _, g := range groups {
		do(first, g, out[first:first+len(g)])
		first += len(g)
	}
}

// steadyFor is how long a lost store must not fail until it is back. While one node of a cluster is down, the hits on the other
// nodes succeed: without it, the state would change with every few hits.
const steadyFor = time.Second

// noteFound notes that the store is back, if it was lost, decided any of the hits and has not failed for steadyFor.
func (f *Fallback) noteFound(out []limiters.Verdict) {
	if !f.lost.Load() || time.Since(f.start)-time.Duration(f.failure.Load()) < steadyFor || !slices.ContainsFunc(out, isByStore) {
		return
	}
	if f.lost.CompareAndSwap(true, false) {
		f.options.Changed(false, nil)
	}
}

// decide applies the policies of the hits whose verdicts are errors.
func (f *Fallback) decide(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	local := false
	forGroups(groups, out, func(_ int, g limiters.Group, verdicts []limiters.Verdict) {
		for i := range g {
			h, v := &g[i], &verdicts[i]
			if v.Err == nil {
				continue
			}
			switch h.OnError {
			case limiters.OnErrorAllow:
				*v = limiters.Verdict{Allowed: true, Remaining: h.Limit.Capacity(), By: limiters.ByPolicy}
			case limiters.OnErrorDeny:
				// A refund is never denied.
				*v = limiters.Verdict{Allowed: h.N < 0, By: limiters.ByPolicy}
			case limiters.OnErrorLocal:
				local = true
				continue
			}
			f.decided[max(h.OnError, limiters.OnErrorFail)].Add(1)
		}
	})
	if local {
		f.decideLocally(ctx, now, groups, out)
	}
}

// never is a limit that denies every hit and is never stored. In a group it keeps the other hits from being charged.
var never = func() *limiters.Limit {
	l, err := limiters.New(limiters.Spec{Algorithm: "fixed_window", Window: time.Second})
	if err != nil {
		panic(err)
	}
	return l
}()

// decideLocally decides the hits that the store could not, by this process's share. If that fails too, the error is the
// store's. A group that another of its hits denies is not charged.
func (f *Fallback) decideLocally(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	var part limiters.Part
	forGroups(groups, out, func(first int, g limiters.Group, verdicts []limiters.Verdict) {
		var local limiters.Group
		var at []int
		denied := false
		for i, h := range g {
			if verdicts[i].Err == nil || h.OnError != limiters.OnErrorLocal {
				denied = denied || !verdicts[i].Allowed
				continue
			}
			var err error
			if h.Limit, err = f.share(h.Limit, h.N); f.options.Local == nil || err != nil {
				f.decided[limiters.OnErrorFail].Add(1)
				denied = true
				continue
			}
			local, at = append(local, h), append(at, first+i)
		}
		if denied && len(local) > 0 {
			local, at = append(local, limiters.Hit{Key: local[0].Key, Limit: never}), append(at, -1)
		}
		if len(local) > 0 {
			part.AddHits(local, at...)
		}
	})
	if part.Len() == 0 {
		return
	}
	err := part.Take(ctx, f.options.Local, now)
	forGroups(part.Groups, part.Verdicts, func(first int, g limiters.Group, verdicts []limiters.Verdict) {
		for i := range g {
			switch {
			case g[i].Limit == never:
			case err != nil || verdicts[i].Err != nil:
				f.decided[limiters.OnErrorFail].Add(1)
				part.Drop(first + i)
			default:
				verdicts[i].By = limiters.ByShare
				f.decided[limiters.OnErrorLocal].Add(1)
			}
		}
	})
	part.Scatter(out, nil)
}

// share returns this process's share of a limit for hits of n.
func (f *Fallback) share(l *limiters.Limit, n int64) (*limiters.Limit, error) {
	replicas := int64(max(1, f.options.Replicas()))
	if replicas == 1 {
		return l, nil
	}
	return f.shares.of(l, max(n, 1), replicas, f.options.FalseLimit)
}
