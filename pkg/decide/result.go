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
	PlannedRequest
	Denied   bool // Weir denies the request
	Shadowed bool // Weir allows the request, and would deny it without [Options.ShadowMode]
	// Decisions holds one element for each descriptor, in request order. It is empty if the request
	// is invalid.
	Decisions []Decision
	// StoreErr is the first error of the store, even if the request was decided without that
	// verdict. It may contain keys, and so data of users, and must only be logged.
	StoreErr      error
	Duration      time.Duration // from the start of Decide until the store had answered, plus the store call that ended leases
	StoreDuration time.Duration // the time of the first store call; 0: no limit had to be charged
	// GivenUpLeases counts the leases that Decide has tried to end because the request is denied or
	// canceled.
	GivenUpLeases int
	// EndErr is the first error of these ends, or of an end that was repeated because the request
	// was canceled. It is for logs only. After an error, a lease may last until its TTL.
	EndErr error

	verdicts []limiters.Verdict // of all operations of the store call
	combined CombinedOutcome
}

// CausesDenial reports whether d, an element of r.Decisions, is a cause of r.Denied or r.Shadowed.
// A denied descriptor in quota mode is a cause only if all others in quota mode are denied too.
func (r *Result) CausesDenial(d *Decision) bool {
	return d.Outcome == Denied && (!d.QuotaMode || r.combined.quotasDeny())
}

// Enforced reports whether d is enforced: the request and d are denied. In quota mode, another
// descriptor may be the cause of the denial.
func (r *Result) Enforced(d *Decision) bool { return r.Denied && d.Outcome == Denied }

// A Decision holds the plan and the outcome of one descriptor.
type Decision struct {
	*Plan
	Outcome  Outcome
	Reason   Reason
	Verdicts []limiters.Verdict // the store's verdicts on Limits, in the same order
	// DecidingLimitIndex is the index of the limit whose verdict decides the outcome: the denial
	// with the longest wait, else the first error, else the verdict with the fewest remaining hits.
	// Among equal verdicts the first decides. Without limits, the index is 0.
	DecidingLimitIndex int
}

// DecidingLimit returns the limit at DecidingLimitIndex and its verdict. It returns nil if no
// limit's state is known, see Reason.
func (d *Decision) DecidingLimit() (*descriptors.RateLimit, *limiters.Verdict) {
	if len(d.Verdicts) == 0 {
		return nil, nil
	}
	v := &d.Verdicts[d.DecidingLimitIndex]
	if v.Err != nil || v.By == limiters.ByPolicy {
		return nil, nil
	}
	return &d.Limits[d.DecidingLimitIndex], v
}

// DenyingLimitIndex returns the index of the denying limit with the longest wait, even in shadow
// mode; -1 if none denies.
func (d *Decision) DenyingLimitIndex() int {
	if len(d.Verdicts) == 0 || !d.Verdicts[d.DecidingLimitIndex].Denied() {
		return -1
	}
	return d.DecidingLimitIndex
}

// Remaining returns how many further hits fit under the deciding limit: [limiters.MaxHits] if the
// rule is unlimited, and 0 if no limit's state is known.
func (d *Decision) Remaining() int64 {
	if _, v := d.DecidingLimit(); v != nil {
		return v.Remaining
	}
	if d.Reason == Unlimited {
		return limiters.MaxHits
	}
	return 0
}

// Reset clears r and keeps its memory, so that a pooled Result refers to no request. Only the owner
// of r may call it.
func (r *Result) Reset() {
	r.PlannedRequest.clear()
	clear(r.Decisions)
	clear(r.verdicts)
	*r = Result{PlannedRequest: r.PlannedRequest, Decisions: r.Decisions[:0], verdicts: r.verdicts[:0]}
}

// classifyAll sets the verdicts and the outcome of each descriptor. From the outcomes it sets
// Denied or, in shadow mode, Shadowed.
func (r *Result) classifyAll(shadowMode bool) {
	r.Decisions = resized(r.Decisions, len(r.Plans))
	for i := range r.Decisions {
		d := &r.Decisions[i]
		d.Plan = &r.Plans[i]
		if len(d.Limits) > 0 {
			d.Verdicts = r.verdicts[d.firstOp : d.firstOp+len(d.Limits)]
		}
		if r.StoreErr == nil {
			r.StoreErr = d.firstError(i)
		}
		d.classify()
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
