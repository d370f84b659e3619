package limiters

import (
	"encoding/binary"
	"time"
)

// AppendScript appends the name and the numbers of the algorithm of l, in the form that the scripts in pkg/redisscripts read. The
// numbers of a limit by the calendar depend on now.
func (l *Limit) AppendScript(b []byte, now time.Time) []byte {
	b = appendNumbers(appendName(b, l.definition.name), l.spec.Max)
	if !l.IsConcurrency() {
		b = appendNumbers(b, l.spec.Window.Microseconds(), flag(l.spec.CountDenied), flag(l.peekOver))
	}
	return l.algorithm.appendScript(b, now.UnixMicro())
}

// AppendPenaltyScript is [Limit.AppendScript] for the penalty of l, which must have one.
func (l *Limit) AppendPenaltyScript(b []byte) []byte {
	p := l.penalty
	return appendNumbers(appendName(b, "penalty"),
		p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Factor, p.Max.Microseconds(), p.Forget.Microseconds())
}

// AppendReserveScript is [Limit.AppendScript] for the reservations of l, which must reserve.
func (l *Limit) AppendReserveScript(b []byte) []byte {
	return appendNumbers(appendName(b, "reserve"), l.ttl, flag(l.refundsExpired))
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
