package limiters

import "time"

// AppendScriptArgs appends the arguments that the Lua script of redisstore takes for l at now. They
// begin with the maximum. Unless l is a concurrency limit, three arguments follow: the window, 1 if
// denied hits count, and 1 if the limit has peek=over. The arguments of the algorithm are last. The
// Lua file of each algorithm documents the order. Only those of a calendar depend on now.
func (l *Limit) AppendScriptArgs(b []int64, now time.Time) []int64 {
	b = append(b, l.spec.Max)
	if !l.IsConcurrency() {
		b = append(b, l.spec.Window.Microseconds(), flag(l.countsDenied()), flag(l.peekOver))
	}
	return l.algorithm.appendScriptArgs(b, now.UnixMicro())
}

// AppendPenaltyScriptArgs is [Limit.AppendScriptArgs] for the penalty of l, which must have one.
func (l *Limit) AppendPenaltyScriptArgs(b []int64) []int64 {
	p := l.penalty
	return append(b, p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Factor, p.Longest.Microseconds(), p.Forget.Microseconds())
}

// AppendReservationScriptArgs is [Limit.AppendScriptArgs] for the reservations of l, which must
// reserve.
func (l *Limit) AppendReservationScriptArgs(b []int64) []int64 {
	return append(b, l.ttl, flag(l.refundsExpired))
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
