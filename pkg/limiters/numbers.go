package limiters

import "time"

// AppendNumbers appends the numbers of l at now, for a store that decides without this package,
// such as a script in Redis. They begin with the maximum. Unless l is a concurrency limit, three
// numbers follow: the window, 1 if denied hits count, and 1 if the limit has peek=over. The numbers
// of the algorithm are last. The Lua file of each algorithm documents the order. Only the numbers
// of a calendar depend on now.
func (l *Limit) AppendNumbers(b []int64, now time.Time) []int64 {
	b = append(b, l.spec.Max)
	if !l.IsConcurrency() {
		b = append(b, l.spec.Window.Microseconds(), flag(l.countsDenied()), flag(l.peekOver))
	}
	return l.algorithm.appendNumbers(b, now.UnixMicro())
}

// AppendPenaltyNumbers is [Limit.AppendNumbers] for the penalty of l, which must have one.
func (l *Limit) AppendPenaltyNumbers(b []int64) []int64 {
	p := l.penalty
	return append(b, p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Factor, p.Longest.Microseconds(), p.Forget.Microseconds())
}

// AppendReserveNumbers is [Limit.AppendNumbers] for the reservations of l, which must reserve.
func (l *Limit) AppendReserveNumbers(b []int64) []int64 {
	return append(b, l.ttl, flag(l.refundsExpired))
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
