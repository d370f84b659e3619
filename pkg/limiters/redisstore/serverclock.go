package redisstore

import (
	"sync/atomic"
	"time"
)

// A serverClock converts local times to a server's time, based on the last reply. A call carries
// its deadline in the server's time, because a frozen server or connection may run it long after
// its caller got an error. The time in a reply is older than the reply, so a serverClock is behind
// the server's clock. But it is ahead after that clock was set back, or if a redirection in a
// cluster brought the time of a server whose clock is ahead.
type serverClock struct {
	start  time.Time
	offset atomic.Int64 // the server's µs since 1970, minus our µs since start; 0: unknown
}

func (c *serverClock) update(server int64) {
	c.offset.Store(server - time.Since(c.start).Microseconds())
}

// pastDeadline is a deadline in the past. A call with it charges nothing, but returns the server's
// time.
const pastDeadline = 1

// serverTime converts the deadline of a call to µs of the server's time. It returns 0 for the zero
// time, which means no deadline.
func (c *serverClock) serverTime(notAfter time.Time) int64 {
	if notAfter.IsZero() {
		return 0
	}
	offset := c.offset.Load()
	if offset == 0 {
		return pastDeadline
	}
	return max(pastDeadline, offset+notAfter.Sub(c.start).Microseconds())
}
