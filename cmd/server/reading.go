package main

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/socket"
)

// To refuse a request costs half of what it costs to answer one, and those that have been read and wait for a CPU make the
// others dearer. Under clients that ask again at once, little but refusals would be done. So while many requests are under
// way, connections are read little by little, and what they send waits in the sockets, which costs nobody anything.

const (
	leastRead  = 512                    // bytes: a few requests
	perRequest = 64                     // bytes: few requests are shorter
	lookAgain  = time.Millisecond       // after which a connection that waits looks whether it may be read, if nobody has told it
	patience   = 100 * time.Millisecond // after which it is read all the same: it may say that it ends
)

// A crowd tells whether many requests are under way.
type crowd struct {
	bound *inFlight
	conns atomic.Int64
}

// now is how many requests are being decided. Those that have been read begin before it looks: who reads on while they do not
// count yet reads far more than there is room for.
func (c *crowd) now() int64 {
	runtime.Gosched()
	return c.bound.now.Load()
}

// is tells whether n are many.
func (c *crowd) is(n int64) bool { return n > c.bound.many }

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
	return &pacedConn{Conn: socket.Quick(c), crowd: l.crowd}, nil
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
			under = c.wait()
		}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.crowd.share(under))])
	if crowded {
		c.brought += n
	}
	return n, err
}

// wait waits until few are under way, or for as long as patience is, and returns how many there are.
func (c *pacedConn) wait() int64 {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; {
		if under := c.crowd.now(); !c.crowd.is(under) || !time.Now().Before(end) {
			return under
		}
		select {
		case <-c.crowd.bound.room:
		case <-tick.C:
		}
	}
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.closing.Do(func() { c.crowd.conns.Add(-1) })
	return c.Conn.Close()
}
