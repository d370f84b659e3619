package limiters

import "time"

// Foretells tells what v, the verdict of n hits by themselves, says of those that come to the key under the same limit
// before v.RetryAfter has passed: unless something is given back, least hits or more would be denied too, and so would a
// look, if least is 1.
//
// It is false of a verdict that says no such thing: of one that allows, of hits that would never fit, and of a denial that
// each further hit makes longer, as a log and a funnel have it that count denied hits. A fixed window that counts them is
// over its limit until it ends, whatever comes.
func (l *Limit) Foretells(n int64, v *Verdict) (least int64, ok bool) {
	switch {
	case v.Allowed || v.Err != nil || v.RetryAfter <= 0 || n < 0:
		return 0, false
	case !l.countsDenied():
		return max(1, n), true
	default:
		// A denial that could not be counted leaves a window that may have room for less.
		return 1, l.kind.steady && v.Used > l.spec.Max
	}
}

// RetryOf is how long m hits wait where n <= m hits of the key, under the same limit, wait for retry, and the key is as
// good as new after reset; < 0: they never fit. It is no shorter than it has to be, and may be longer: for a log, which
// alone knows when how much of it leaves, it is reset.
func (l *Limit) RetryOf(m, n int64, retry, reset time.Duration) time.Duration {
	switch {
	case m > l.capacity:
		return micros(-1)
	case m <= n:
		return retry
	case l.kind.more == nil:
		return reset
	default:
		return min(reset, retry+micros(l.kind.more(l, m-n)))
	}
}
