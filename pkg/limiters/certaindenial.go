package limiters

import "time"

// CertainDenial reports which further hits are certain to be denied after v, the verdict of n
// ungrouped hits. Until v.RetryAfter has passed, l denies each charge of minHits or more hits to
// the key, unless hits are refunded. If minHits is 0, l denies peeks too. For example, if 1 of 2
// hits is used and 2 hits were denied, minHits is 2: a single hit may still be allowed.
//
// It returns false if nothing is certain: v allows, the hits can never fit, or denied hits prolong
// the denial, as in a sliding log or funnel that counts them. Under a limit with a penalty, only
// denials by the penalty are certain.
func (l *Limit) CertainDenial(n int64, v *Verdict) (minHits int64, certain bool) {
	if l.peekOver && !l.spec.CountDenied {
		minHits = 1 // at the limit, a hit is denied and a peek is allowed
	}
	switch {
	case l.UsesLeases():
		// A lease may end at any time.
		return 0, false
	case v.Allowed || v.Err != nil || v.RetryAfter <= 0 || n < 0:
		return 0, false
	case l.HasPenalty():
		// During a penalty everything is denied and nothing counted. Every other denial is an
		// offense, which the store must count.
		return minHits, v.Penalized && (n > 0 || !l.peekOver)
	case n < minHits:
		return 0, false
	case !l.CountsDenied() && n > 1:
		return n, true
	case !l.CountsDenied():
		return minHits, true
	default:
		// If Used is above Max, the denied hits were counted; otherwise fewer hits may still fit.
		// With an extra wait, each further denied hit would prolong the denial.
		return minHits, l.hits.extraWait(1) == 0 && v.Used > l.spec.Max
	}
}

// MaxRetryAfter returns an upper bound on the wait of n hits after a certain denial (see
// [Limit.CertainDenial]): minHits hits wait for retryAfter, and the key has fully reset after
// resetAfter. The bound is negative if n hits can never fit. For a sliding log it is resetAfter,
// because only its entries would give a tighter bound.
func (l *Limit) MaxRetryAfter(n, minHits int64, retryAfter, resetAfter time.Duration) time.Duration {
	n, minHits = max(1, n), max(1, minHits) // a peek waits as long as one hit
	switch {
	case n > l.capacity:
		return micros(-1)
	case n <= minHits:
		return retryAfter
	case l.UsesLeases():
		return resetAfter // no denial is certain
	case l.HasPenalty():
		// The limit itself may allow minHits hits that its penalty denies.
		return resetAfter
	default:
		return min(resetAfter, retryAfter+micros(l.hits.extraWait(n-minHits)))
	}
}
