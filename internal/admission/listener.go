package admission

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/socket"
)

// To shed a request costs half as much CPU as an answer. Under clients that retry at once, a server would do little else.
// So while many requests are in flight, connections are read in small steps. Unread bytes stay in the sockets, where
// they cost nothing.
const (
	minRead       = 512                    // bytes that a connection may always read at a time: a few requests
	perRequest    = 64                     // bytes; few requests are shorter
	checkInterval = time.Millisecond       // how often a waiting connection checks the load if nothing wakes it
	maxPause      = 100 * time.Millisecond // the longest wait of a Read; then it reads, because the connection may have ended
)

// A pacer shares the reading between all connections of a listener.
type pacer struct {
	requests *InFlight
	conns    atomic.Int64
}

// load returns the number of requests in flight. Requests that have been read are decided first: a connection that read on
// before they are counted would read far more than the limit allows.
func (p *pacer) load() int64 {
	runtime.Gosched()
	return p.requests.count.Load()
}

// busy reports whether n requests in flight are too many to read on at full speed.
func (p *pacer) busy(n int64) bool { return n > p.requests.busy }

// share returns how many bytes a connection may read at a time while n requests are in flight.
func (p *pacer) share(n int64) int64 {
	return max(minRead, (p.requests.limit-n)*perRequest/max(1, p.conns.Load()))
}

// NewListener returns a listener whose connections are read at the pace at which requests are decided.
func NewListener(inner net.Listener, requests *InFlight) net.Listener {
	return listener{inner, &pacer{requests: requests}}
}

type listener struct {
	net.Listener
	pacer *pacer
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.pacer.conns.Add(1)
	return &conn{Conn: socket.Quick(c), pacer: l.pacer}, nil
}

type conn struct {
	net.Conn
	pacer *pacer
	// While the server is busy: the bytes read since a time not longer than maxPause ago.
	since   time.Time
	read    int
	closing sync.Once
}

// Read implements net.Conn. A connection with little to send, such as one with health checks, does not wait.
func (c *conn) Read(b []byte) (int, error) {
	load := c.pacer.load()
	busy := c.pacer.busy(load)
	if busy {
		if now := time.Now(); now.Sub(c.since) > maxPause {
			c.since, c.read = now, 0
		}
		if c.read >= minRead {
			load = c.pause()
		}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.pacer.share(load))])
	if busy {
		c.read += n
	}
	return n, err
}

// pause waits until the server is no longer busy, at most maxPause. It returns the number of requests in flight.
func (c *conn) pause() int64 {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for end := time.Now().Add(maxPause); ; {
		if load := c.pacer.load(); !c.pacer.busy(load) || !time.Now().Before(end) {
			return load
		}
		select {
		case <-c.pacer.requests.freed:
		case <-tick.C:
		}
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() { c.pacer.conns.Add(-1) })
	return c.Conn.Close()
}
