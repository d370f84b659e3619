package guard

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A Fallback is a Store that decides the hits that the wrapped Store could not. By their OnError, it allows them, denies them, or
// decides them by this process's share of the limit. Every hit goes to the wrapped store first, so recovery is automatic.
//
// Local and remote counts are never merged. So in one window the replicas together admit at most the limit through the store,
// and replicas times the share by themselves. The share depends on the size of a hit, because five hits of 100 spread over
// replicas less evenly than 500 hits of 1.
//
// Once the local store has decided a hit with a lease, the end of a lease with OnErrorLocal goes to both stores, because the
// lease may be in either. Ends are never denied, and FallbackStats does not count them. If the context of a Take has ended,
// its error stands, but its ends still reach the local store.
type Fallback struct {
	store   limiters.Store
	options FallbackOptions

	start   time.Time
	down    atomic.Bool
	failure atomic.Int64 // the time of the last failure of the store, in ns since start
	decided [limiters.OnErrorLocal + 1]atomic.Int64
	shares  shares
	leases  atomic.Bool // the local store has decided a hit with a lease
}

// FallbackOptions configures a Fallback. A zero field stands for its default.
type FallbackOptions struct {
	// Local decides by this process's share. If it is nil, hits with OnErrorLocal fail.
	Local limiters.Store
	// Replicas returns the number of processes that share a limit now; default one.
	Replicas func() int
	// FalseLimit is the probability that some replica denies a client that uses its limit exactly; default 0.001.
	FalseLimit float64
	// Changed is called when the store is down, with the reason, and when it is back. It is back when it decides a hit and has not
	// failed for a second, or by CheckIdle. Calls may be concurrent.
	Changed func(down bool, why error)
}

// FallbackStats are the state and the counters of a Fallback.
type FallbackStats struct {
	Down    bool                             // the store has failed, and is not back
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
	s := FallbackStats{Down: f.down.Load()}
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
	if f.leases.Load() {
		if ended := ctx.Err() != nil; err == nil || ended {
			f.endLocally(ctx, now, groups, out, ended)
		}
	}
	switch {
	case err == nil && !slices.ContainsFunc(out, failed):
		f.noteRecovery(out)
		return nil
	case ctx.Err() != nil:
		return err
	case err != nil:
		f.failure.Store(int64(time.Since(f.start)))
		if f.down.CompareAndSwap(false, true) {
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
func isDenied(v limiters.Verdict) bool  { return !v.Allowed }
func isByStore(v limiters.Verdict) bool { return v.By == limiters.ByStore }

// takeRest repeats the hits that the store has allowed, but not charged, because it could not decide another hit of their
// group. Otherwise a client would pass uncharged under one limit because another limit could not be decided.
func (f *Fallback) takeRest(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	var part split.Part
	for first, g := range eachGroup(groups) {
		verdicts := out[first : first+len(g)]
		if slices.ContainsFunc(verdicts, isDenied) {
			continue
		}
		var rest limiters.Group
		var at []int
		for i := range g {
			if isByStore(verdicts[i]) {
				rest, at = append(rest, g[i]), append(at, first+i)
			}
		}
		if len(rest) > 0 && len(rest) < len(g) {
			part.AddHits(rest, at...)
		}
	}
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

// eachGroup yields each group with the index of its first hit among all hits.
func eachGroup(groups []limiters.Group) iter.Seq2[int, limiters.Group] {
	return func(yield func(int, limiters.Group) bool) {
		first := 0
		for _, g := range groups {
			if !yield(first, g) {
				return
			}
			first += len(g)
		}
	}
}

// recoveryTime is how long a store that was down must not fail until it counts as back. Without it, the state would flap while one node of
// a cluster is down, because hits on the other nodes succeed.
const recoveryTime = time.Second

// noteRecovery notes that the store is back, if it was down, decided any of the hits and has not failed for recoveryTime.
func (f *Fallback) noteRecovery(out []limiters.Verdict) {
	if !f.down.Load() || time.Since(f.start)-time.Duration(f.failure.Load()) < recoveryTime || !slices.ContainsFunc(out, isByStore) {
		return
	}
	if f.down.CompareAndSwap(true, false) {
		f.options.Changed(false, nil)
	}
}

// idleTime is how long a store that is down must not fail until CheckIdle calls check. With requests, Take notes the recovery earlier, and a
// store that fails only some hits stays down.
const idleTime = 10 * time.Second

// CheckIdle calls check if the store is down and Take has not called it for some time. The store is back if check returns nil. Without
// requests, nothing else notes its recovery. Call CheckIdle regularly.
func (f *Fallback) CheckIdle(ctx context.Context, check func(context.Context) error) {
	failure := f.failure.Load()
	if !f.down.Load() || time.Since(f.start)-time.Duration(failure) < idleTime || check(ctx) != nil {
		return
	}
	if f.failure.Load() == failure && f.down.CompareAndSwap(true, false) {
		f.options.Changed(false, nil)
	}
}

// decide applies the policies of the hits whose verdicts are errors.
func (f *Fallback) decide(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	local := false
	for first, g := range eachGroup(groups) {
		for i := range g {
			h, v := &g[i], &out[first+i]
			if v.Err == nil {
				continue
			}
			uncharged := limiters.IsUncharged(v.Err)
			switch h.OnError {
			case limiters.OnErrorAllow:
				*v = limiters.Verdict{Allowed: true, Remaining: h.Limit.Capacity(), By: limiters.ByPolicy, Uncharged: uncharged}
			case limiters.OnErrorDeny:
				// A refund or the end of a lease is never denied.
				*v = limiters.Verdict{Allowed: h.N < 0 || h.End, By: limiters.ByPolicy, Uncharged: uncharged}
			case limiters.OnErrorLocal:
				local = true
				continue
			}
			f.count(h, max(h.OnError, limiters.OnErrorFail))
		}
	}
	if local {
		f.decideLocally(ctx, now, groups, out)
	}
}

// count counts a hit that the store did not decide, by the policy that did.
func (f *Fallback) count(h *limiters.Hit, policy limiters.OnError) {
	if !h.End {
		f.decided[policy].Add(1)
	}
}

// endLocally ends in the local store the leases that the wrapped store has ended, and with all, also those whose end failed. It
// ignores the verdicts, and the end of ctx, which must not keep a slot held.
func (f *Fallback) endLocally(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict, all bool) {
	var part split.Part
	for first, g := range eachGroup(groups) {
		for i, h := range g {
			if !h.End || h.OnError != limiters.OnErrorLocal || !all && out[first+i].Err != nil {
				continue
			}
			if share, err := f.share(h.Limit, h.N); err == nil {
				h.Limit = share
			}
			part.AddHits(limiters.Group{h}, -1)
		}
	}
	if part.Len() > 0 {
		_ = part.Take(context.WithoutCancel(ctx), f.options.Local, now)
	}
}

// decideLocally decides the hits that the store could not, by this process's share. If the local store fails too, the verdict
// keeps the error of the wrapped store. A group with a hit that is denied elsewhere is not charged.
func (f *Fallback) decideLocally(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) {
	var part split.Part
	for first, g := range eachGroup(groups) {
		f.addLocal(&part, first, g, out[first:first+len(g)])
	}
	if part.Len() == 0 {
		return
	}
	// The local store answers at once, and must end a lease even if ctx ends now.
	err := part.Take(context.WithoutCancel(ctx), f.options.Local, now)
	for first, g := range eachGroup(part.Groups) {
		for i := range g {
			switch v := &part.Verdicts[first+i]; {
			case part.At(first+i) < 0: // the denying hit
			case err != nil || v.Err != nil:
				f.count(&g[i], limiters.OnErrorFail)
				part.Omit(first + i)
			default:
				v.By, v.Uncharged = limiters.ByShare, limiters.IsUncharged(out[part.At(first+i)].Err)
				f.count(&g[i], limiters.OnErrorLocal)
			}
		}
	}
	part.Scatter(out, nil)
}

// addLocal adds the hits of g that this process decides to part, with a denying hit if another hit of g is denied or failed.
func (f *Fallback) addLocal(part *split.Part, first int, g limiters.Group, verdicts []limiters.Verdict) {
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
			f.count(&h, limiters.OnErrorFail)
			denied = true
			continue
		}
		if h.Lease != (limiters.LeaseID{}) && !f.leases.Load() {
			f.leases.Store(true)
		}
		local, at = append(local, h), append(at, first+i)
	}
	if len(local) == 0 {
		return
	}
	if denied {
		local, at = append(local, limiters.DenyingHit(local[0].Key)), append(at, -1)
	}
	part.AddHits(local, at...)
}

// share returns this process's share of a limit for hits of n.
func (f *Fallback) share(l *limiters.Limit, n int64) (*limiters.Limit, error) {
	replicas := int64(max(1, f.options.Replicas()))
	if replicas == 1 {
		return l, nil
	}
	return f.shares.of(l, max(n, 1), replicas, f.options.FalseLimit)
}
