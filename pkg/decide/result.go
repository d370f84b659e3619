package decide

import (
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Result holds the decisions of a request, and reports whether it is denied. The zero Result is
// ready for [Decider.Decide].
type Result struct {
	Domain        string             // the domain of the request; empty if the request is invalid
	Rules         *descriptors.Rules // rules that decided; nil if the request is invalid or no rules are loaded
	UnknownDomain bool               // no rules have the domain, so nothing is limited
	Denied        bool               // Weir denies the request
	Shadowed      bool               // Weir allows the request, and would deny it without [Options.ShadowMode]
	// Decisions holds one element for each descriptor, in request order. It is empty if the request
	// is invalid.
	Decisions []Decision
	// StoreErr is the first error of the store, even if the request was decided without that
	// verdict. It may contain keys, and so data of users, and must only be logged.
	StoreErr      error
	Duration      time.Duration // the time from the call of Decide until the store had answered
	StoreDuration time.Duration // the time of the store call; 0: no limit had to be charged
	// GivenUpLeases counts the leases and reservations that Decide has tried to end because the
	// request is denied or canceled.
	GivenUpLeases int
	// EndErr is the first error of these ends, or of an end that was repeated because the request
	// was canceled. It is for logs only. After an error, a lease may last until its TTL.
	EndErr error

	combined CombinedOutcome
	call     storeCall
}

// A storeCall is the store call of a request.
type storeCall struct {
	ops       []limiters.Op
	groups    []limiters.Group // slices of ops
	verdicts  []limiters.Verdict
	hasLeases bool   // an operation has a lease
	key       []byte // scratch space for building keys
}

// groupSince returns the group of the operations from first on.
func (c *storeCall) groupSince(first int) limiters.Group {
	return c.ops[first:len(c.ops):len(c.ops)]
}

// clear clears c and keeps its memory.
func (c *storeCall) clear() {
	clear(c.ops)
	clear(c.groups)
	clear(c.verdicts)
	c.ops, c.groups, c.verdicts, c.hasLeases = c.ops[:0], c.groups[:0], c.verdicts[:0], false
}

// CausesDenial reports whether d, an element of r.Decisions, is a cause of r.Denied or r.Shadowed.
// In quota mode, it is one only if all others in quota mode are denied too.
func (r *Result) CausesDenial(d *Decision) bool {
	return d.Outcome == Denied && (!d.QuotaMode || r.combined.quotasDeny())
}

// Enforces reports whether both d and the request are denied, which metrics and logs call enforced.
// In quota mode, another descriptor may be the cause of the denial.
func (r *Result) Enforces(d *Decision) bool { return r.Denied && d.Outcome == Denied }

// A Decision holds the plan and the outcome of one descriptor.
type Decision struct {
	Plan
	Outcome  Outcome
	Reason   Reason
	Verdicts []limiters.Verdict // the store's verdicts on Limits, in the same order
	// DecidingLimit is the denying limit with the longest wait or, if none denies, the limit with
	// the fewest remaining hits. It is nil if no limit's state is known, see Reason.
	DecidingLimit *descriptors.RateLimit
	Remaining     int64         // further hits that fit under DecidingLimit
	RetryAfter    time.Duration // the wait until denied hits fit; 0 if they fit now or never
	ResetAfter    time.Duration // the time until the key has fully reset
}

// Clear clears r and keeps its memory.
func (r *Result) Clear() {
	r.clearDecisions()
	r.call.clear()
	*r = Result{Decisions: r.Decisions, call: r.call}
}

func (r *Result) clearDecisions() {
	clear(r.Decisions)
	r.Decisions = r.Decisions[:0]
}

// Cap returns the capacity of r in elements, so that pools can discard large Results.
func (r *Result) Cap() int { return max(cap(r.Decisions), cap(r.call.ops)) }

// setOutcomes sets the verdicts and the outcome of each descriptor. From the outcomes it sets
// Denied or, in shadow mode, Shadowed.
func (r *Result) setOutcomes(shadowMode bool) {
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if len(d.Limits) > 0 {
			d.Verdicts = r.call.verdicts[d.firstOp : d.firstOp+len(d.Limits)]
		}
		if r.StoreErr == nil {
			r.StoreErr = d.firstError(i)
		}
		d.setOutcome()
		r.combined.Add(d)
	}
	denied := r.combined.Denied()
	r.Denied, r.Shadowed = denied && !shadowMode, denied && shadowMode
}

// firstError returns the first error of the store for d, which is descriptor i.
func (d *Decision) firstError(i int) error {
	for j := range d.Verdicts {
		if err := d.Verdicts[j].Err; err != nil {
			return fmt.Errorf("descriptors[%d]: %s: %w", i, d.RuleName(), err)
		}
	}
	return nil
}

// Key returns the key of descriptor i, see [descriptors.Key]; "" if it has no limits. The result
// may be retained.
func (r *Result) Key(i int) string {
	d := &r.Decisions[i]
	if len(d.Limits) == 0 {
		return ""
	}
	return r.call.ops[d.firstOp].Key
}

// DenyingIndex returns the index of the denying limit with the longest wait, even in shadow mode;
// -1 if none denies.
func (d *Decision) DenyingIndex() int {
	if len(d.Verdicts) == 0 {
		return -1
	}
	i := decidingVerdict(d.Verdicts)
	if rank(&d.Verdicts[i]) != rankDenied {
		return -1
	}
	return i
}

// OverrideName is the name of a limit that came with the request, in metrics, headers and logs.
const OverrideName = "override"

// LimitLabel returns the name of limit i, its index from 0 if it has none, or [OverrideName] if it
// came with the request.
func (d *Decision) LimitLabel(i int) string {
	if d.HasOverride {
		return OverrideName
	}
	return d.Limits[i].Label(i)
}

// RuleName returns the name of the rule; "" without a rule.
func (d *Decision) RuleName() string {
	if d.Rule == nil {
		return ""
	}
	return d.Rule.Name
}
