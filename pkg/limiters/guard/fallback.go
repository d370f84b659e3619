package guard

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A Fallback is a Store that decides operations that the wrapped store failed to decide. It applies
// the OnStoreError of each: it allows the operation, denies it, or decides it under this process's
// share of the limit. Every operation goes to the wrapped store first, so recovery is automatic.
// The only exception is the end of a lease that only the share holds.
//
// Local and remote counts are never merged, so in one window the replicas together admit at most
// the limit through the store plus replicas times the share. The share depends on the size of
// charges, because a few large charges spread less evenly over the replicas than many small ones.
// So charges of several sizes may exceed a replica's share at one instant if the capacity of a
// funnel differs from its limit. The level of a funnel is a time, and for each size, the share
// scales rate and capacity separately.
//
// Once the local store has decided an operation with a lease, all other ends go to both stores,
// because the lease may be in either. Ends are never denied, and FallbackStats does not count them.
// A canceled Take applies no OnStoreError, but the local store still receives its lease ends.
type Fallback struct {
	store             limiters.Store
	local             localFallback
	outages           outageDetector
	opsByOnStoreError [limiters.OnStoreErrorLocal + 1]atomic.Int64
}

// FallbackOptions configures a Fallback. Zero fields have defaults.
type FallbackOptions struct {
	// Local decides operations under this process's share. If nil, operations under
	// OnStoreErrorLocal fail.
	Local limiters.Store
	// Replicas returns the current number of processes that share a limit; default 1.
	Replicas func() int
	// FalseLimitProbability bounds the probability that a client at exactly its limit is denied by
	// some replica; default 0.001.
	FalseLimitProbability float64
	// Failed is called with the reason when the store, or one of several, fails. If the store fails
	// only for some keys, Failed is called for each Take in which on_store_error decides one of
	// them. Failed and Recovered may be called concurrently.
	Failed func(reason error)
	// Recovered is called when the store recovers: it decides an operation and has not failed for a
	// second, or CheckIdle succeeds.
	Recovered func(Outage)
}

// FallbackStats are the state and the counters of a Fallback.
type FallbackStats struct {
	Down bool                                  // the store has failed and not recovered
	Ops  [limiters.OnStoreErrorLocal + 1]int64 // operations that the store failed to decide, by the on_store_error applied
}

// NewFallback returns a Fallback that wraps store. It owns neither store nor the local one.
func NewFallback(store limiters.Store, o FallbackOptions) *Fallback {
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.FalseLimitProbability == 0 {
		o.FalseLimitProbability = 0.001
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Recovered == nil {
		o.Recovered = func(Outage) {}
	}
	return &Fallback{
		store:   store,
		local:   localFallback{store: o.Local, replicas: o.Replicas, shares: shareCache{falseLimitProbability: o.FalseLimitProbability}},
		outages: outageDetector{reportFailure: o.Failed, reportRecovery: o.Recovered},
	}
}

// Stats returns the state and the counters.
func (f *Fallback) Stats() FallbackStats {
	s := FallbackStats{Down: f.outages.isDown()}
	for i := range s.Ops {
		s.Ops[i] = f.opsByOnStoreError[i].Load()
	}
	return s
}

// ForgetShares clears the cached shares. Call it after rules were replaced.
func (f *Fallback) ForgetShares() { f.local.shares.forget() }

// CheckIdle calls check if the store is down and has received no operations for some time, and
// marks it as recovered if check returns nil. Call CheckIdle periodically, because without requests
// nothing else notices a recovery.
func (f *Fallback) CheckIdle(ctx context.Context, check func(context.Context) error) {
	f.outages.checkIdle(ctx, check)
}

// Take implements [limiters.Store].
func (f *Fallback) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if f.local.mayHaveLeases() && slices.ContainsFunc(groups, isLocalEnd) {
		return f.splitLocalEnds(ctx, groups, out)
	}
	err := f.store.Take(ctx, groups, out)
	t := takeResult{groups, out}
	if f.local.mayHaveLeases() {
		f.local.mirrorEnds(ctx, t)
	}
	switch {
	case err == nil && !slices.ContainsFunc(out, isUndecided):
		if f.outages.isDown() && slices.ContainsFunc(out, isByStore) { // a denial by a cache does not show a recovery
			f.outages.noteSuccess()
		}
		return nil
	case ctx.Err() != nil:
		return err
	}
	f.noteOutage(err, t)
	f.decideFailed(ctx, t)
	f.chargeRest(ctx, t)
	if err != nil && !slices.ContainsFunc(out, isDecided) {
		return err
	}
	return nil
}

// A takeResult is a Take of the wrapped store with its verdicts, until on_store_error replaces
// those that failed.
type takeResult struct {
	groups []limiters.Group
	out    []limiters.Verdict
}

func isDecided(v limiters.Verdict) bool    { return v.Err == nil }
func isUndecided(v limiters.Verdict) bool  { return v.Err != nil }
func isNotAllowed(v limiters.Verdict) bool { return !v.Allowed } // denied or undecided
func isByStore(v limiters.Verdict) bool    { return v.By == limiters.ByStore }

// noteOutage notes an outage if the store failed as a whole, with err, or in part. If it failed
// only for some keys, noteOutage reports the first reason why on_store_error decides an operation.
func (f *Fallback) noteOutage(err error, t takeResult) {
	if err != nil {
		f.outages.noteFailure(err)
		return
	}
	var reason error
	for i, op := range limiters.EachOp(t.groups) {
		failure := t.out[i].Err
		if _, isPart := errors.AsType[*split.PartError](failure); isPart {
			f.outages.noteFailure(failure)
			return
		}
		if reason == nil && op.OnStoreError > limiters.OnStoreErrorFail {
			reason = failure
		}
	}
	if reason != nil {
		f.outages.reportFailure(reason)
	}
}

// decideFailed applies on_store_error to the failed operations of t, and counts them.
func (f *Fallback) decideFailed(ctx context.Context, t takeResult) {
	for i, op := range limiters.EachOp(t.groups) {
		allowOrDeny(op, &t.out[i])
	}
	f.local.decideByShare(ctx, t)
	f.count(t)
}

// allowOrDeny replaces a failed verdict if the OnStoreError of op allows or denies operations
// regardless of their keys.
func allowOrDeny(op *limiters.Op, v *limiters.Verdict) {
	if v.Err == nil {
		return
	}
	leaseAt := leaseLocation(v.Err, limiters.LeaseNowhere)
	switch op.OnStoreError {
	case limiters.OnStoreErrorAllow:
		*v = limiters.Verdict{Allowed: true, Remaining: op.Limit.Capacity(), By: limiters.ByPolicy, LeaseAt: leaseAt}
	case limiters.OnStoreErrorDeny:
		// Refunds and ends of leases are never denied.
		*v = limiters.Verdict{Allowed: op.IsRefund() || op.Kind == limiters.OpEnd, By: limiters.ByPolicy, LeaseAt: leaseAt}
	}
}

// leaseLocation returns where a lease is after the store failed with err: in the store, if it may
// have opened the lease, and otherwise local.
func leaseLocation(err error, local limiters.LeaseLocation) limiters.LeaseLocation {
	if limiters.IsUncharged(err) {
		return local
	}
	return limiters.LeaseInStore
}

// count counts the operations of t that the store did not decide, without ends.
func (f *Fallback) count(t takeResult) {
	for i, op := range limiters.EachOp(t.groups) {
		onStoreError := op.OnStoreError
		switch v := &t.out[i]; {
		case op.Kind == limiters.OpEnd:
			continue
		case v.Err != nil:
			onStoreError = limiters.OnStoreErrorFail
		case !v.By.AfterFailure():
			continue
		}
		f.opsByOnStoreError[onStoreError].Add(1)
		f.outages.countOp()
	}
}

// Reset implements [limiters.Store]. It resets local counters even if the store fails.
func (f *Fallback) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	found, err = f.store.Reset(ctx, keys)
	if f.local.store == nil {
		return found, err
	}
	local, localErr := f.local.store.Reset(ctx, keys)
	if err != nil {
		return found, err
	}
	return split.FoundInEither(found, local), localErr
}

// ResetMatching implements [limiters.Store]. The first call of a pass also resets all
// matching local counters, even if the store fails, but not if it rejects the call.
func (f *Fallback) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (limiters.Progress, error) {
	progress, err := f.store.ResetMatching(ctx, match, cursor)
	if f.local.store == nil || cursor != "" || limiters.IsRejectedReset(err) {
		return progress, err
	}
	local, localErr := f.local.store.ResetMatching(ctx, match, "")
	if err != nil {
		return progress, err
	}
	progress.Scanned += local.Scanned
	progress.Reset += local.Reset
	return progress, localErr
}
