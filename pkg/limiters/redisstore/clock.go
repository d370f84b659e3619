package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A clock tells a server's time by ours, as the server's last reply had it. A server that was frozen, or a connection that
// was, may run a call long after its caller was told that it had failed: with a time by the server's own clock in it, the
// script then charges nothing.
//
// It never runs ahead of the server's, unless that is set back: the time in a reply is older than the reply.
type clock struct {
	start  time.Time
	offset atomic.Int64 // the server's µs since 1970 less ours since start; 0: not known
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) learn(server int64) { c.offset.Store(server - time.Since(c.start).Microseconds()) }

// atOnce is a time that has passed: a call with it charges nothing, and brings the server's time.
const atOnce = 1

// notAfter is the deadline of ctx by the server's clock, in µs since 1970; 0 without a deadline.
func (c *clock) notAfter(ctx context.Context) int64 {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return 0
	}
	offset := c.offset.Load()
	if offset == 0 {
		return atOnce
	}
	return max(atOnce, offset+deadline.Sub(c.start).Microseconds())
}
