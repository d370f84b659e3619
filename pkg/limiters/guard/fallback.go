package guard

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A Fallback decides hits for which the wrapped Store failed. By their on_store_error, it allows them, denies them, or decides them
// by this process's share of the limit. Every hit goes to the wrapped store first, so recovery is automatic.
//
// Local and remote counts are never merged. In one window, the replicas together admit at most the limit through the store plus
// replicas times the share. The share depends on the size of hits, because few large hits are distributed less evenly over replicas
// than many small ones.
//
// Once the local store has decided a hit with a lease, ends under OnErrorLocal go to both stores, because the lease may be in
// either. Ends are never denied and not counted in FallbackStats. If the context of a Take has ended, Take fails, but its ends
// still reach the local store.
type Fallback struct {
	store   limiters.Store
	options FallbackOptions

	start          time.Time
	downSince      atomic.Pointer[time.Time] // nil while the store works
	failure        atomic.Int64              // the time of the last failure of the store, in ns since start
	decided        [limiters.OnErrorLocal + 1]atomic.Int64
	outageHits     atomic.Int64 // hits that the store failed to decide while it was down, and that no Outage has reported yet
	shares         shareCache
	localHasLeases atomic.Bool // the local store has decided a hit with a lease
}

// FallbackOptions configures a Fallback. Zero fields have defaults.
type FallbackOptions struct {
	// Local decides by this process's share. If nil, hits under OnErrorLocal fail.
	Local limiters.Store
	// Replicas returns the current number of processes that share a limit; default 1.
	Replicas func() int
	// FalseLimit bounds the probability that a client at exactly its limit is denied by some replica; default 0.001.
	FalseLimit float64
	// Failed is called with the reason when the store fails. Failed and Recovered may be called concurrently.
	Failed func(reason error)
	// Recovered is called when the store recovers: it decides a hit and has not failed for a second, or CheckIdle succeeds.
	Recovered func(Outage)
}

// An Outage is the time from a failure of the store to its recovery.
type Outage struct {
	Duration     time.Duration
	FallbackHits int64 // hits that the store failed to decide, including those that fail
}

// FallbackStats are the state and the counters of a Fallback.
type FallbackStats struct {
	Down    bool                             // the store has failed and not recovered
	Decided [limiters.OnErrorLocal + 1]int64 // hits that the store failed to decide, by the on_store_error applied
}

// NewFallback returns a Fallback that wraps store. It owns neither store nor the local one.
func NewFallback(store limiters.Store, o FallbackOptions) *Fallback {
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.FalseLimit == 0 {
		o.FalseLimit = 0.001
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Recovered == nil {
		o.Recovered = func(Outage) {}
	}
	return &Fallback{start: time.Now(), store: store, options: o, shares: shareCache{p: o.FalseLimit}}
}

// Stats returns the state and the counters.
func (f *Fallback) Stats() FallbackStats {
	s := FallbackStats{Down: f.downSince.Load() != nil}
	for i := range s.Decided {
		s.Decided[i] = f.decided[i].Load()
	}
	return s
}

// Forget clears the cached shares. Call it after rules were replaced.
func (f *Fallback) Forget() { f.shares.forget() }

// Take is Take of [limiters.Store] with an on_store_error for each hit, in the order of the hits of all groups.
func (f *Fallback) Take(
	ctx context.Context, now time.Time, groups []limiters.Group, onErrors []limiters.OnError, out []limiters.Verdict,
) error {
	err := f.store.Take(ctx, now, groups, out)
	t := fallbackTake{now, groups, onErrors, out}
	if f.localHasLeases.Load() {
		if ended := ctx.Err() != nil; err == nil || ended {
			f.mirrorEnds(ctx, t, ended)
		}
	}
	switch {
	case err == nil && !slices.ContainsFunc(out, isUndecided):
		f.noteRecovery(out)
		return nil
	case ctx.Err() != nil:
		return err
	case err != nil:
		f.failure.Store(int64(time.Since(f.start)))
		f.markDown(err)
		limiters.FailAll(out, err)
	}
	f.decide(ctx, t)
	f.chargeAllowed(ctx, t)
	if err != nil && !slices.ContainsFunc(out, isDecided) {
		return err
	}
	return nil
}

// A fallbackTake has the arguments of a Take.
type fallbackTake struct {
	now      time.Time
	groups   []limiters.Group
	onErrors []limiters.OnError
	out      []limiters.Verdict
}

func isDecided(v limiters.Verdict) bool    { return v.Err == nil }
func isUndecided(v limiters.Verdict) bool  { return v.Err != nil }
func isNotAllowed(v limiters.Verdict) bool { return !v.Allowed } // denied or undecided
func isByStore(v limiters.Verdict) bool    { return v.By == limiters.ByStore }

// chargeAllowed retries hits that the store allowed but did not charge because another hit of their group failed. Otherwise one
// failing limit would let a client pass uncharged under the others.
func (f *Fallback) chargeAllowed(ctx context.Context, t fallbackTake) {
	var retried split.Subset
	var onErrors []limiters.OnError
	for first, g := range limiters.EachGroup(t.groups) {
		verdicts := t.out[first : first+len(g)]
		if slices.ContainsFunc(verdicts, isNotAllowed) {
			continue
		}
		var allowed limiters.Group
		var indices []int
		for i := range g {
			if isByStore(verdicts[i]) {
				allowed, indices = append(allowed, g[i]), append(indices, first+i)
			}
		}
		if len(allowed) == 0 || len(allowed) == len(g) {
			continue
		}
		retried.AddHits(allowed, indices...)
		for _, i := range indices {
			onErrors = append(onErrors, t.onErrors[i])
		}
	}
	if retried.Len() == 0 {
		return
	}
	if err := retried.Take(ctx, f.store, t.now); err != nil {
		limiters.FailAll(retried.Verdicts, err)
	}
	f.decide(ctx, fallbackTake{t.now, retried.Groups, onErrors, retried.Verdicts})
	retried.Scatter(t.out, nil)
}

// recoveryTime is how long a failed store must work without errors to count as recovered. Without it, the state would flap while
// one node of a cluster is down.
const recoveryTime = time.Second

// noteRecovery marks the store as recovered if it was down, decided a hit, and has not failed for recoveryTime.
func (f *Fallback) noteRecovery(out []limiters.Verdict) {
	if f.downSince.Load() == nil || time.Since(f.start)-time.Duration(f.failure.Load()) < recoveryTime || !slices.ContainsFunc(out, isByStore) {
		return
	}
	f.markUp()
}

// markDown marks the store as down. A Take that fails calls it before it counts its hits, so the outage has all of them.
func (f *Fallback) markDown(reason error) {
	if f.downSince.Load() != nil {
		return
	}
	now := time.Now()
	if f.downSince.CompareAndSwap(nil, &now) {
		f.options.Failed(reason)
	}
}

func (f *Fallback) markUp() {
	if since := f.downSince.Swap(nil); since != nil {
		f.options.Recovered(Outage{time.Since(*since), f.outageHits.Swap(0)})
	}
}

// idleTime is the time since the last failure after which CheckIdle calls check. With requests, Take notices the recovery earlier,
// and a store that fails only some hits stays down.
const idleTime = 10 * time.Second

// CheckIdle calls check if the store is down and has received no hits for some time, and marks it as recovered if check returns nil.
// Call CheckIdle periodically, because without requests nothing else notices a recovery.
func (f *Fallback) CheckIdle(ctx context.Context, check func(context.Context) error) {
	failure := f.failure.Load()
	if f.downSince.Load() == nil || time.Since(f.start)-time.Duration(failure) < idleTime || check(ctx) != nil {
		return
	}
	if f.failure.Load() == failure {
		f.markUp()
	}
}

// decide applies on_store_error to hits whose verdicts are errors.
func (f *Fallback) decide(ctx context.Context, t fallbackTake) {
	local := false
	for first, g := range limiters.EachGroup(t.groups) {
		for i := range g {
			h, onError, v := &g[i], t.onErrors[first+i], &t.out[first+i]
			if v.Err == nil {
				continue
			}
			uncharged := limiters.IsUncharged(v.Err)
			switch onError {
			case limiters.OnErrorAllow:
				*v = limiters.Verdict{Allowed: true, Remaining: h.Limit.Capacity(), By: limiters.ByPolicy, StoreUncharged: uncharged}
			case limiters.OnErrorDeny:
				// Refunds and ends of leases are never denied.
				*v = limiters.Verdict{Allowed: h.N < 0 || h.End, By: limiters.ByPolicy, StoreUncharged: uncharged}
			case limiters.OnErrorLocal:
				local = true
				continue
			}
			f.count(h, max(onError, limiters.OnErrorFail))
		}
	}
	if local {
		f.decideLocally(ctx, t)
	}
}

// count counts a hit decided by onError.
func (f *Fallback) count(h *limiters.Hit, onError limiters.OnError) {
	if h.End {
		return
	}
	f.decided[onError].Add(1)
	if f.downSince.Load() != nil {
		f.outageHits.Add(1)
	}
}

// mirrorEnds ends leases in the local store that the wrapped store has ended or, with all, that it failed to end.
func (f *Fallback) mirrorEnds(ctx context.Context, t fallbackTake, all bool) {
	var ends []limiters.Hit
	for first, g := range limiters.EachGroup(t.groups) {
		for i, h := range g {
			if !h.End || t.onErrors[first+i] != limiters.OnErrorLocal || !all && t.out[first+i].Err != nil {
				continue
			}
			ends = append(ends, h)
		}
	}
	f.EndLocally(ctx, t.now, ends)
}

// EndLocally ends leases in the local store only. It is for leases that the wrapped store has certainly not charged, so that nothing
// retries their ends there. It ignores a canceled ctx, which must not keep a slot occupied.
func (f *Fallback) EndLocally(ctx context.Context, now time.Time, ends []limiters.Hit) {
	if len(ends) == 0 || f.options.Local == nil {
		return
	}
	ends = slices.Clone(ends) // they belong to the caller
	for i := range ends {
		if share, err := f.localLimit(ends[i].Limit, ends[i].N); err == nil {
			ends[i].Limit = share
		}
	}
	// The local store fails only a hit that needs memory, which the end of a lease does not.
	_ = f.options.Local.Take(context.WithoutCancel(ctx), now, limiters.Singles(ends...), make([]limiters.Verdict, len(ends)))
}

// decideLocally decides failed hits by this process's share. If the local store fails too, the verdict keeps the error of the
// wrapped store. A hit of a group that is denied elsewhere denies the group here too.
func (f *Fallback) decideLocally(ctx context.Context, t fallbackTake) {
	var local split.Subset
	for first, g := range limiters.EachGroup(t.groups) {
		f.addLocal(&local, first, g, t)
	}
	if local.Len() == 0 {
		return
	}
	// The local store does not block, and must end a lease even if ctx is canceled.
	err := local.Take(context.WithoutCancel(ctx), f.options.Local, t.now)
	for first, g := range limiters.EachGroup(local.Groups) {
		for i := range g {
			switch v, index := &local.Verdicts[first+i], local.Index(first+i); {
			case index < 0: // the denying hit
			case err != nil || v.Err != nil:
				f.count(&g[i], limiters.OnErrorFail)
				local.Omit(first + i)
			default:
				v.By, v.StoreUncharged = limiters.ByShare, limiters.IsUncharged(t.out[index].Err)
				f.count(&g[i], limiters.OnErrorLocal)
			}
		}
	}
	local.Scatter(t.out, nil)
}

// addLocal adds the hits of g that this process decides to local. It adds a denying hit if another hit of g was denied or failed.
func (f *Fallback) addLocal(local *split.Subset, first int, g limiters.Group, t fallbackTake) {
	var undecided limiters.Group
	var indices []int
	denied := false
	for i, h := range g {
		if v := &t.out[first+i]; v.Err == nil || t.onErrors[first+i] != limiters.OnErrorLocal {
			denied = denied || !v.Allowed
			continue
		}
		var err error
		h.Limit, err = f.localLimit(h.Limit, h.N)
		if f.options.Local == nil || err != nil {
			f.count(&h, limiters.OnErrorFail)
			denied = true
			continue
		}
		if h.Lease != (limiters.LeaseID{}) && !f.localHasLeases.Load() {
			f.localHasLeases.Store(true)
		}
		undecided, indices = append(undecided, h), append(indices, first+i)
	}
	if len(undecided) == 0 {
		return
	}
	if denied {
		undecided, indices = append(undecided, limiters.DenyingHit(undecided[0].Key)), append(indices, -1)
	}
	local.AddHits(undecided, indices...)
}

// localLimit returns this process's share of a limit for hits of n.
func (f *Fallback) localLimit(l *limiters.Limit, n int64) (*limiters.Limit, error) {
	replicas := int64(max(1, f.options.Replicas()))
	if replicas == 1 {
		return l, nil
	}
	return f.shares.replicaLimit(l, max(n, 1), replicas)
}
