package redisscripts

import (
	"encoding/binary"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// AppendLimit appends the element of ARGV for the algorithm of l. The arguments of a limit by the calendar depend on now.
func AppendLimit(b []byte, l *limiters.Limit, now time.Time) []byte {
	s := l.Spec()
	b = appendName(b, s.Algorithm)
	if l.IsConcurrency() {
		return appendNumbers(b, s.Max, l.LeaseTTL().Microseconds())
	}
	b = appendNumbers(b, s.Max, s.Window.Microseconds(), flag(s.CountDenied))
	switch s.Algorithm {
	case "fixed_window":
		b = appendNumbers(b, windowStarts[s.Params.WindowStart], flag(l.PeekOver()))
		if s.Params.WindowStart == limiters.StartByCalendar {
			starts := l.CalendarWindows(now)
			b = appendNumbers(b, starts[:]...)
		}
	case "sliding_log":
		b = appendNumbers(b, flag(l.PeekOver()))
	case "funnel":
		whole, num, den := l.DrainTime()
		b = appendNumbers(b, l.Capacity(), whole, num, den, flag(l.PeekOver()))
	}
	return b
}

// windowStarts has the argument for each value of Params.WindowStart in [limiters.Limit.Spec], where the default is "".
var windowStarts = map[string]int64{"": 0, limiters.StartByFirstHit: 1, limiters.StartByCalendar: 2}

// AppendPenalty appends the element of ARGV for the penalty of l, which must have one.
func AppendPenalty(b []byte, l *limiters.Limit) []byte {
	p := l.Penalty()
	return appendNumbers(appendName(b, "penalty"),
		p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Factor, p.Max.Microseconds(), p.Forget.Microseconds())
}

// AppendReserve appends the element of ARGV for the reservations of l, which must reserve.
func AppendReserve(b []byte, l *limiters.Limit) []byte {
	return appendNumbers(appendName(b, "reserve"), l.LeaseTTL().Microseconds(), flag(l.ReleasesUnsettled()))
}

func appendName(b []byte, name string) []byte { return append(append(b, name...), 0) }

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
