package limiters

import "time"

// DeniedFrom reports which further hits are sure to be denied, given v, the verdict of n hits by themselves. Until
// v.RetryAfter has passed, minHits hits or more of the key under l are denied, unless hits are refunded. If minHits is 1, so is
// a peek, if [Limit.DeniesPeekWithHit].
//
// It returns false if nothing is sure: v allows, or the hits can never fit, or each further hit makes the denial longer. The
// last is so for a sliding log and a funnel that count denied hits. A fixed window that counts them stays over its limit
// until it ends. Under a limit with a penalty, only the denials of a penalty are sure.
func (l *Limit) DeniedFrom(n int64, v *Verdict) (minHits int64, ok bool) {
	switch {
	case l.HasLeases():
		// A lease may end at any time.
		return 0, false
	case v.Allowed || v.Err != nil || v.RetryAfter <= 0 || n < 0:
		return 0, false
	case l.HasPenalty():
		// A penalty denies everything, and counts nothing that a denial from memory could hide. Every other denial is an offence.
		// Where a peek is allowed at the limit, a hit may have to wait for longer.
		return 1, v.Penalized && (n > 0 || !l.peekOver)
	case n == 0 && !l.DeniesPeekWithHit():
		return 0, false
	case !l.countsDenied():
		return max(1, n), true
	default:
		// If the denied hits were not counted, fewer hits may fit.
		return 1, l.definition.fixedEnd && v.Used > l.spec.Max
	}
}

// DeniesPeekWithHit reports whether a peek is denied while one hit is. It is not if the limit has peek=over and counts no denied
// hits: at its limit, a key has a hit denied and a peek allowed.
func (l *Limit) DeniesPeekWithHit() bool { return !l.peekOver || l.spec.CountDenied }

// RetryBound returns how long m hits of a key wait, if n <= m hits of the key wait for retry and the key has fully reset after
// reset. It is negative if m hits can never fit. It is never too short, and may be too long: a sliding log returns reset,
// because only its entries say when how many hits leave.
func (l *Limit) RetryBound(m, n int64, retry, reset time.Duration) time.Duration {
	switch {
	case m > l.capacity:
		return micros(-1)
	case m <= n:
		return retry
	case l.HasPenalty():
		// The penalty denied n hits, and the limit itself may allow them.
		return reset
	default:
		return min(reset, retry+micros(l.algorithm.extraWait(m-n)))
	}
}
