package decide

import (
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// RetryAfter returns how long the client of a denied request should wait: the longest wait under
// the limits that deny it, see [AdvisedWait]. It is 0 if no wait is known.
func (r *Result) RetryAfter() (wait time.Duration) {
	for i := range r.deniers {
		d := &r.Decisions[i]
		for j := range d.Verdicts {
			if v := &d.Verdicts[j]; v.Denied() && v.By != limiters.ByPolicy {
				wait = max(wait, AdvisedWait(&d.Limits[j], v))
			}
		}
	}
	return wait
}

// DenyingDescriptorIndex returns the index of the descriptor that explains why a request is denied:
// the first that no wait can help, or else the one with the longest wait. It is -1 if none denies
// the request.
func (r *Result) DenyingDescriptorIndex() int {
	denier := -1
	for i := range r.deniers {
		if denier < 0 || r.Decisions[i].comparableWait() > r.Decisions[denier].comparableWait() {
			denier = i
		}
	}
	return denier
}

// deniers yields the indices of the descriptors that deny the request. Descriptors in quota mode
// deny it only together, so of these it yields the one with the shortest wait.
func (r *Result) deniers(yield func(int) bool) {
	shortestQuota := -1
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if r.CausesDenial(d) && d.QuotaMode && (shortestQuota < 0 || d.comparableWait() < r.Decisions[shortestQuota].comparableWait()) {
			shortestQuota = i
		}
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if r.CausesDenial(d) && (!d.QuotaMode || i == shortestQuota) && !yield(i) {
			return
		}
	}
}

// comparableWait returns the wait of a denied descriptor, or the longest duration if waiting does
// not help, so that waits compare.
func (d *Decision) comparableWait() time.Duration {
	if d.Reason == BadLeaseID { // it has no verdict
		return math.MaxInt64
	}
	if _, v := d.DecidingLimit(); v != nil {
		return v.ComparableWait()
	}
	return 0
}

// MayFitLater reports whether a denied descriptor may be allowed later.
func (d *Decision) MayFitLater() bool { return d.Reason != NeverFits && d.Reason != BadLeaseID }

// AdvisedWait returns how long a client should wait after limit l denied its hits with v. For hits
// that never fit, it is at least one window, because only changed rules can help.
func AdvisedWait(l *descriptors.RateLimit, v *limiters.Verdict) time.Duration {
	if v.NeverFits() {
		return max(v.ResetAfter, l.Window())
	}
	return v.RetryAfter
}
