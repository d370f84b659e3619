package guard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Fallback is a Store that decides what another could not, as each hit's OnError says: it allows, it denies, or it
// decides in this process by its share of the limit. It goes back by itself: every hit is the other store's first.
//
// What it decides the other store never hears of. Of each limit a process admits its share at most while the store is
// gone, whatever it admitted before: so in any one window replicas admit max together through the store, and
// replicas*share by themselves. The share is reckoned for hits of the hit's own size: five hits of 100 fall on replicas more
// unevenly than five hundred of 1.
//
// Who has gone away is owed no decision: where the context of a Take has ended, its error stands.
type Fallback struct {
	store   limiters.Store
	options FallbackOptions

	lost    atomic.Bool
	decided [limiters.OnErrorLocal + 1]atomic.Int64

	mu       sync.RWMutex
	replicas int64 // that shares are for
	shares   map[shareOf]*limiters.Limit
}

// FallbackOptions are what a Fallback is told. A zero stands for the default.
type FallbackOptions struct {
	// Local decides by this process's share; nil: a hit of OnErrorLocal fails.
	Local limiters.Store
	// Replicas is how many processes share a limit just now; default one.
	Replicas func() int
	// FalseLimit is the probability that a client that uses a limit whole is limited falsely by some replica; default 0.001.
	FalseLimit float64
	// Changed is called when the store is lost, with the reason, and when it is back. It may be called by several at once.
	Changed func(lost bool, why error)
}

// FallbackStats tell what a Fallback has done.
type FallbackStats struct {
	Lost    bool                             // the store failed when it was last asked
	Decided [limiters.OnErrorLocal + 1]int64 // hits that the store failed to decide, by what became of them
}

// A shareOf is what a share is reckoned for: a limit, and hits of n.
type shareOf struct {
	limit *limiters.Limit
	n     int64
}

// mostShares bounds what is remembered; past it all is forgotten and reckoned anew.
const mostShares = 10_000

// NewFallback makes a Fallback before a store. It owns neither that store nor the local one.
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
	return &Fallback{store: store, options: o, shares: map[shareOf]*limiters.Limit{}}
}

// Stats tells what it has done.
func (f *Fallback) Stats() FallbackStats {
	s := FallbackStats{Lost: f.lost.Load()}
	for i := range s.Decided {
		s.Decided[i] = f.decided[i].Load()
	}
	return s
}

// Forget forgets the shares of limits, for rules that have been replaced.
func (f *Fallback) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.shares)
}

// Take implements limiters.Store.
func (f *Fallback) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	err := f.store.Take(ctx, now, groups, out)
	switch {
	case err == nil && !anyFailed(out):
		f.found(out)
		return nil
	case ctx.Err() != nil:
		return err
	case err != nil:
		if f.lost.CompareAndSwap(false, true) {
			f.options.Changed(true, err)
		}
		for i := range out {
			out[i] = limiters.Verdict{Err: err}
		}
	}
	f.decide(ctx, now, groups, out)
	f.takeRest(ctx, now, groups, out)
	if err != nil && allFailed(out) {
		return err
	}
	return nil
}

// takeRest takes again what the store has allowed of groups that it could not decide as a whole, and so has not charged.
// A client below one limit must not pass for free because another limit could not be decided.
func (f *Fallback) takeRest(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	var part limiters.Part
	forGroups(groups, out, func(first int, g limiters.Group, verdicts []limiters.Verdict) {
		var rest limiters.Group
		var at []int
		for i := range g {
			if !verdicts[i].Allowed {
				return
			}
			if verdicts[i].By == limiters.ByStore {
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

// forGroups calls do for each group, with the number of its first hit and the verdicts of its hits.
func forGroups(
	groups []limiters.Group, out []limiters.Verdict, do func(first int, g limiters.Group, verdicts []limiters.Verdict),
) {
	first := 0
	for _, g := range groups {
		do(first, g, out[first:first+len(g)])
		first += len(g)
	}
}

// found notes that the store is back, if it was lost and has decided any of this.
func (f *Fallback) found(out []limiters.Verdict) {
	byStore := func(v limiters.Verdict) bool { return v.By == limiters.ByStore }
	if f.lost.Load() && slices.ContainsFunc(out, byStore) && f.lost.CompareAndSwap(true, false) {
		f.options.Changed(false, nil)
	}
}

// decide decides the hits whose verdicts are errors.
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
				// Refunds nothing and denies no refund, as any limit.
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

// nothing is a limit that denies every hit and is never stored. In a group it keeps the other hits from being charged.
var nothing = func() *limiters.Limit {
	l, err := limiters.New(limiters.Spec{Algorithm: "fixed_window", Window: time.Second})
	if err != nil {
		panic(err)
	}
	return l
}()

// decideLocally decides the hits that the store could not, by this process's share. If that fails too, the error is the
// store's. Nothing is charged for a group that does not pass because of the verdicts of its other hits.
func (f *Fallback) decideLocally(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	var part limiters.Part
	forGroups(groups, out, func(first int, g limiters.Group, verdicts []limiters.Verdict) {
		var own limiters.Group
		var at []int
		stopped := false
		for i, h := range g {
			if verdicts[i].Err == nil || h.OnError != limiters.OnErrorLocal {
				stopped = stopped || !verdicts[i].Allowed
				continue
			}
			var err error
			if h.Limit, err = f.share(h.Limit, h.N); f.options.Local == nil || err != nil {
				f.decided[limiters.OnErrorFail].Add(1)
				stopped = true
				continue
			}
			own, at = append(own, h), append(at, first+i)
		}
		if stopped && len(own) > 0 {
			own, at = append(own, limiters.Hit{Key: own[0].Key, Limit: nothing}), append(at, -1)
		}
		if len(own) > 0 {
			part.AddHits(own, at...)
		}
	})
	if part.Len() == 0 {
		return
	}
	err := part.Take(ctx, f.options.Local, now)
	forGroups(part.Groups, part.Verdicts, func(first int, g limiters.Group, verdicts []limiters.Verdict) {
		for i := range g {
			switch {
			case g[i].Limit == nothing:
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

// share is this process's share of a limit, for hits of n.
func (f *Fallback) share(l *limiters.Limit, n int64) (*limiters.Limit, error) {
	replicas := int64(max(1, f.options.Replicas()))
	if replicas == 1 {
		return l, nil
	}
	of := shareOf{l, max(n, 1)}
	f.mu.RLock()
	own, found := f.shares[of]
	found = found && f.replicas == replicas
	f.mu.RUnlock()
	if found {
		return own, nil
	}
	part := func(whole int64) int64 {
		p := f.options.FalseLimit
		if of.n > whole {
			return whole // it never fits; or a funnel holds it that leaks less in a window, for one hit in several
		}
		return max(share(whole, replicas, p), of.n*share(whole/of.n, replicas, p))
	}
	own, err := limiters.New(l.Spec().Scaled(part))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.replicas != replicas || len(f.shares) >= mostShares {
		clear(f.shares)
		f.replicas = replicas
	}
	f.shares[of] = own
	return own, nil
}

func anyFailed(out []limiters.Verdict) bool {
	for i := range out {
		if out[i].Err != nil {
			return true
		}
	}
	return false
}

func allFailed(out []limiters.Verdict) bool {
	for i := range out {
		if out[i].Err == nil {
			return false
		}
	}
	return true
}
