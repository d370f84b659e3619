package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A serverClock converts local times to a server's time, based on the last reply.
//
// A frozen server or connection may run a call long after its caller got an error. So each call carries a deadline in the server's
// time, after which the script charges nothing.
//
// A serverClock is never ahead of the server's clock, because the time in a reply is older than the reply, unless the server's clock is
// set back.
type serverClock struct {
	start  time.Time
	offset atomic.Int64 // the server's µs since 1970, minus our µs since start; 0: unknown
}

func newServerClock() *serverClock { return &serverClock{start: time.Now()} }

func (c *serverClock) update(server int64) {
	c.offset.Store(server - time.Since(c.start).Microseconds())
}

// expired is a deadline in the past: a call with it charges nothing and returns the server's time.
const expired = 1

// chargeDeadline is the context key of the time after which a call must charge nothing.
type chargeDeadline struct{}

// callContext returns a context for a call that must not charge after latest. The call may use the whole timeout even if latest is
// earlier, because a timeout closes the connection, which other clients share.
func callContext(latest time.Time, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(context.Background(), chargeDeadline{}, latest), timeout)
}

// isTooLate reports whether it is too late to charge, by the local clock.
func isTooLate(ctx context.Context) bool {
	by, ok := ctx.Value(chargeDeadline{}).(time.Time)
	return ok && !time.Now().Before(by)
}

// notAfter returns the earliest of latest, ctx's deadline and its chargeDeadline, in µs of the server's time; 0 if there is none. A
// zero latest is ignored.
func (c *serverClock) notAfter(ctx context.Context, latest time.Time) int64 {
	deadline, bounded := ctx.Deadline()
	if by, ok := ctx.Value(chargeDeadline{}).(time.Time); ok && (latest.IsZero() || by.Before(latest)) {
		latest = by
	}
	if !latest.IsZero() && (!bounded || latest.Before(deadline)) {
		deadline, bounded = latest, true
	}
	if !bounded {
		return 0
	}
	offset := c.offset.Load()
	if offset == 0 {
		return expired
	}
	return max(expired, offset+deadline.Sub(c.start).Microseconds())
}
