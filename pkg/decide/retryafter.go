package decide

import (
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// RetryAfter returns how long the client of a denied request should wait, and the index of the
// descriptor that explains the denial: the one with the longest wait. Descriptors in quota mode
// deny a request only together, so the shortest of their waits counts. A wait of 0 is unknown. The
// index is -1 if no descriptor denies the request.
func (r *Result) RetryAfter() (wait time.Duration, descriptor int) {
	descriptor, quota := -1, -1
	longer := func(i, j int) bool { return j < 0 || r.Decisions[i].waitOrder() > r.Decisions[j].waitOrder() }
	add := func(i int) {
		wait = max(wait, r.Decisions[i].longestWait())
		if longer(i, descriptor) {
			descriptor = i
		}
	}
	for i := range r.Decisions {
		switch d := &r.Decisions[i]; {
		case !r.CausesDenial(d):
		case !d.QuotaMode:
			add(i)
		case quota < 0 || longer(quota, i):
			quota = i
		}
	}
	if quota >= 0 {
		add(quota)
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
	if v.RetryAfter < 0 {
		return max(v.ResetAfter, l.Window())
	}
	return v.RetryAfter
}
