package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A serverClock converts our time to a server's time, from the server's last reply.
//
// A frozen server or connection may run a call long after its caller has got an error. Each call therefore carries a
// deadline in the server's time, after which the script charges nothing.
//
// A serverClock is never ahead of the server's, unless that one is set back, because the time in a reply is older than the reply.
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

// chargeBy is the key of a value of a context: the time after which a call must charge nothing.
type chargeBy struct{}

// callContext returns a context for a call whose hits must not be charged after latest. The call itself may take the whole timeout, because
// a connection on which a call has timed out is closed. A client with a short deadline would otherwise cost other clients the connection.
func callContext(latest time.Time, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(context.Background(), chargeBy{}, latest), timeout)
}

// tooLate reports whether the hits of a call must not be charged any more, by our clock.
func tooLate(ctx context.Context) bool {
	by, ok := ctx.Value(chargeBy{}).(time.Time)
	return ok && !time.Now().Before(by)
}

// notAfter returns the earliest of latest, the deadline of ctx and its value of chargeBy, in the server's µs since 1970. A zero latest counts as
// no deadline. It returns 0 if there is no deadline.
func (c *serverClock) notAfter(ctx context.Context, latest time.Time) int64 {
	deadline, bounded := ctx.Deadline()
	if by, ok := ctx.Value(chargeBy{}).(time.Time); ok && (latest.IsZero() || by.Before(latest)) {
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
