package decide

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// MaxLeaseIDBytes is the maximum length of a lease id.
const MaxLeaseIDBytes = 256

// Keys of an entry that makes a descriptor end its lease, if it follows the lease id as the last
// entry, such as (user, alice), (lease, ID), (release, 1). Its value is ignored. Elsewhere they are
// ordinary keys.
const (
	ReleaseKey = "release"
	SettleKey  = "settle"
)

// MayEndLease reports whether the last of entries may end a lease. It does if a rule with leases
// matches the entries before it.
func MayEndLease(entries []descriptors.Entry) bool {
	last := len(entries) - 1
	return last > 0 && (entries[last].Key == ReleaseKey || entries[last].Key == SettleKey)
}

// matchEnd matches an unmatched descriptor without its last entry, if that entry ends a lease.
func (p *Plan) matchEnd(domain *descriptors.Domain) {
	if !MayEndLease(p.Entries) {
		return
	}
	last := len(p.Entries) - 1
	key, rule := p.Entries[last].Key, domain.Match(p.Entries[:last])
	if rule == nil || !rule.UsesLeases() {
		return
	}
	p.Rule, p.Entries = rule, p.Entries[:last]
	if key == SettleKey && p.Kind != Refund {
		p.Kind, p.PlannedReason = EndLease, Settled
	} else {
		p.release()
	}
}

// release makes p end its lease, which charges no hits.
func (p *Plan) release() { p.Kind, p.PlannedReason, p.Hits = EndLease, Released, 0 }

// applyLeaseRules completes the plan of a descriptor under a rule with leases. A refund of any size
// is a release. An end keeps only the limits with leases, so that it refunds nothing else. A
// descriptor whose lease id is empty or too long has no limits.
func (p *Plan) applyLeaseRules() {
	if p.Kind == Refund {
		p.release()
	}
	if p.EndsLease() {
		p.Limits = withLeases(p.Limits)
	}
	if id := p.leaseID(); id == "" || len(id) > MaxLeaseIDBytes {
		p.PlannedReason, p.Limits = BadLeaseID, nil
	}
}

// hasBadLeaseID reports whether the lease id is empty or too long.
func (p *Plan) hasBadLeaseID() bool { return p.PlannedReason == BadLeaseID }

// leaseID returns the lease id of a descriptor under a rule with leases.
func (p *Plan) leaseID() string { return p.Entries[len(p.Entries)-1].Value }

func withLeases(limits []descriptors.RateLimit) []descriptors.RateLimit {
	lacks := func(l descriptors.RateLimit) bool { return !l.UsesLeases() }
	if !slices.ContainsFunc(limits, lacks) {
		return limits
	}
	return slices.DeleteFunc(slices.Clone(limits), lacks)
}

var errNotEnded = errors.New("the store did not decide the end of a lease: on_store_error did")

// endLeases ends the leases that a denied or canceled request may have opened, because Envoy may
// never send the request that ends them. If it is canceled, endLeases also repeats the request's
// own end operations if their outcome is unknown. It waits for the store, and sets GivenUpLeases
// and EndErr.
func (d *Decider) endLeases(ctx context.Context, canceled bool, result *Result) {
	if !result.Denied && !canceled {
		return
	}
	ends := result.endsOfOpened()
	result.GivenUpLeases = len(ends)
	if canceled {
		ends = append(ends, result.undecidedEnds()...)
	}
	if len(ends) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.planner.options.EndTimeout)
	defer cancel()
	verdicts := make([]limiters.Verdict, len(ends))
	called := monotonic()
	err := d.store.Take(ctx, limiters.Singles(ends...), verdicts)
	result.Duration += monotonic() - called
	for i := range verdicts {
		switch v := &verdicts[i]; {
		case err != nil:
		case v.Err != nil:
			err = v.Err
		case v.By.AfterFailure():
			err = errNotEnded
		}
	}
	result.EndErr = err
}

// endsOfOpened returns ends of the leases that r may have opened.
func (r *Result) endsOfOpened() (ends []limiters.Op) {
	for first, g := range limiters.EachGroup(r.groups) {
		verdicts := r.verdicts[first : first+len(g)]
		if slices.ContainsFunc(verdicts, deniedBeforeFallback) {
			continue
		}
		for i := range g {
			if undo, needed := g[i].Undo(&verdicts[i]); needed && undo.Kind == limiters.OpEnd {
				ends = append(ends, undo)
			}
		}
	}
	return ends
}

// undecidedEnds returns the ends of r that the store may not have decided.
func (r *Result) undecidedEnds() (ends []limiters.Op) {
	for i, op := range limiters.EachOp(r.groups) {
		if op.Kind == limiters.OpEnd && r.verdicts[i].Err != nil {
			ends = append(ends, *op)
		}
	}
	return ends
}

// deniedBeforeFallback reports whether the store or the deny cache denied an operation, so that its
// group opened no leases. After a denial by on_store_error, it may have opened them.
func deniedBeforeFallback(v limiters.Verdict) bool {
	return v.Denied() && !v.By.AfterFailure()
}
