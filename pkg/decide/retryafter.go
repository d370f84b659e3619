package decide

import (
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// RetryAfter returns how long the client of a denied request should wait, and the index of the
// descriptor with that wait. It is the longest wait of the descriptors that deny the request.
// Descriptors in quota mode deny a request only together, so only the shortest of their waits is
// considered. A wait of 0 is unknown, and the index is -1 if no descriptor denies the request.
func (r *Result) RetryAfter() (wait time.Duration, descriptor int) {
	shortestQuota := -1
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if r.CausesDenial(d) && d.QuotaMode && (shortestQuota < 0 || d.waitOrder() < r.Decisions[shortestQuota].waitOrder()) {
			shortestQuota = i
		}
	}
	descriptor = -1
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if !r.CausesDenial(d) || d.QuotaMode && i != shortestQuota {
			continue
		}
		wait = max(wait, d.longestWait())
		if descriptor < 0 || d.waitOrder() > r.Decisions[descriptor].waitOrder() {
			descriptor = i
		}
	}
	return wait, descriptor
}

// waitOrder returns a wait that orders denied descriptors. It is the longest if waiting does not
// help.
func (d *Decision) waitOrder() time.Duration {
	if !d.MayFitLater() {
		return math.MaxInt64
	}
	return d.RetryAfter
}

// MayFitLater reports whether a denied descriptor may be allowed later.
func (d *Decision) MayFitLater() bool { return d.Reason != NeverFits && d.Reason != BadLeaseID }

// longestWait returns the longest wait among the limits that deny d.
func (d *Decision) longestWait() (wait time.Duration) {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Denied() && v.By != limiters.ByPolicy {
			wait = max(wait, WaitUnder(&d.Limits[i], v))
		}
	}
	return wait
}

// WaitUnder returns how long a client should wait after limit l denied its hits with v. For hits
// that never fit, it is at least one window, because only changed rules can help.
func WaitUnder(l *descriptors.RateLimit, v *limiters.Verdict) time.Duration {
	if v.NeverFits() {
		return max(v.ResetAfter, l.Window())
	}
	return v.RetryAfter
}
