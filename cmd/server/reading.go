package main

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// To refuse a request costs half of what it costs to answer one, and those that have been read and wait for a CPU make the
// others dearer. Under clients that ask again at once, little but refusals would be done. So while many requests are under
// way, connections are read little by little, and what they send waits in the sockets, which costs nobody anything.

const (
	leastRead  = 512                    // bytes: a few requests
	perRequest = 64                     // bytes: few requests are shorter
	lookAgain  = time.Millisecond       // after which a connection that waits looks whether it may be read
	patience   = 100 * time.Millisecond // after which it is read all the same: it may say that it ends
	ofLate     = 20 * time.Millisecond
)

// The goroutines that gRPC has for a connection: to read, to write, and to look whether it still lives.
const perConn = 3

// A crowd tells whether many requests are under way. It costs a request nothing.
type crowd struct {
	bound *inFlight
	conns atomic.Int64
	usual int64 // goroutines, without connections and requests

	start  time.Time
	waited atomic.Int64 // when a quarter of MAX_IN_FLIGHT were being decided for the last time, since start; 0: not of late
}

func newCrowd(bound *inFlight, workers int) *crowd {
	return &crowd{bound: bound, usual: int64(runtime.NumGoroutine() + workers), start: time.Now().Add(-time.Second)}
}

// now is how many requests are being decided, or wait for their turn: each has a goroutine. Where only few have been decided
// at a time of late, nobody waits for a store, and the others only for a CPU, which to read them more slowly would not give
// them.
func (c *crowd) now() int64 {
	deciding, waited := c.bound.now.Load(), c.waited.Load()
	many := 4*deciding >= c.bound.most
	if !many && waited == 0 {
		return deciding // as nearly always: without a look at the clock, which costs more than all else here
	}
	switch at := int64(time.Since(c.start)); {
	case many:
		c.waited.Store(at)
	case at-waited > int64(ofLate):
		c.waited.CompareAndSwap(waited, 0)
		return deciding
	}
	return max(deciding, int64(runtime.NumGoroutine())-c.usual-perConn*c.conns.Load())
}

// is tells whether n are more than half of MAX_IN_FLIGHT.
func (c *crowd) is(n int64) bool { return n > c.bound.most/2 }

// share is how many bytes a connection may bring while n are under way.
func (c *crowd) share(n int64) int64 {
	return max(leastRead, (c.bound.most-n)*perRequest/max(1, c.conns.Load()))
}

// A pacedListener accepts connections that are read at the pace of the answers.
type pacedListener struct {
	net.Listener
	crowd *crowd
}

func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.crowd.conns.Add(1)
	return &pacedConn{Conn: c, crowd: l.crowd}, nil
}

type pacedConn struct {
	net.Conn
	crowd   *crowd
	since   time.Time // for patience from here on, it has brought so many bytes into a crowd
	brought int
	closing sync.Once
}

// Read implements net.Conn. A connection with little to say, such as one of health checks, does not wait.
func (c *pacedConn) Read(b []byte) (int, error) {
	under := c.crowd.now()
	crowded := c.crowd.is(under)
	if crowded {
		if now := time.Now(); now.Sub(c.since) > patience {
			c.since, c.brought = now, 0
		}
		if c.brought >= leastRead {
			c.wait()
			under = c.crowd.now()
		}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.crowd.share(under))])
	if crowded {
		c.brought += n
	}
	return n, err
}

func (c *pacedConn) wait() {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for range patience / lookAgain {
		<-tick.C
		if !c.crowd.is(c.crowd.now()) {
			return
		}
	}
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.closing.Do(func() { c.crowd.conns.Add(-1) })
	return c.Conn.Close()
}
