package admission

import (
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/socket"
)

// Shedding a request costs half the CPU time of deciding it, so clients that retry immediately
// could exhaust the server with shed requests. While many requests are in flight, connections are
// therefore read in small steps, and excess bytes stay in the socket buffers.
const (
	minReadBytes    = 512                    // bytes that a read may always take: a few requests
	minRequestBytes = 64                     // bytes; few requests are smaller
	checkInterval   = time.Millisecond       // between checks of the requests in flight
	maxPause        = 100 * time.Millisecond // bounds the wait of a Read, so that it notices a closed connection
)

// A listener divides reading among its connections.
type listener struct {
	net.Listener
	gate  *Gate
	conns atomic.Int64

	mu         sync.Mutex
	handshakes map[*conn]struct{} // connections within their handshake
	closed     bool
}

// NewListener returns a listener for grpc-go that slows down reading while gate is busy. Its Close
// also closes the connections that have not ended their handshake. Otherwise grpc-go would wait for
// them for two minutes before it stops, and meanwhile close no other connection.
func NewListener(inner net.Listener, gate *Gate) net.Listener {
	return &listener{Listener: inner, gate: gate, handshakes: map[*conn]struct{}{}}
}

// load returns the number of requests in flight. It yields first, so that requests already read are
// counted before a connection reads more.
func (l *listener) load() int64 {
	runtime.Gosched()
	return l.gate.inFlight.Load()
}

// busy reports whether n requests in flight are too many to read at full speed.
func (l *listener) busy(n int64) bool { return n > l.gate.busyAbove }

// readLimit returns the bytes that a connection may read at a time with n requests in flight.
func (l *listener) readLimit(n int64) int64 {
	return max(minReadBytes, (l.gate.limit-n)*minRequestBytes/max(1, l.conns.Load()))
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.Add(1)
	accepted := &conn{Conn: socket.Wrap(c), listener: l}
	if !l.beginHandshake(accepted) {
		_ = accepted.Close()
		return nil, net.ErrClosed
	}
	return accepted, nil
}

// beginHandshake returns false if l is closed.
func (l *listener) beginHandshake(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handshakes[c] = struct{}{}
	return !l.closed
}

func (l *listener) endHandshake(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshakes, c)
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	l.closed = true
	unfinished := slices.Collect(maps.Keys(l.handshakes))
	l.mu.Unlock()
	err := l.Listener.Close()
	for _, c := range unfinished {
		_ = c.Close()
	}
	return err
}

type conn struct {
	net.Conn
	listener *listener
	// since is the start, at most maxPause ago, of the period in which the bytes below were read.
	since   time.Time
	read    int
	closing sync.Once
}

// Read implements net.Conn. A connection with little traffic, such as health checks, does not wait.
func (c *conn) Read(b []byte) (int, error) {
	load := c.listener.load()
	busy := c.listener.busy(load)
	if busy {
		if now := time.Now(); now.Sub(c.since) > maxPause {
			c.since, c.read = now, 0
		}
		if c.read >= minReadBytes {
			load = c.pause()
		}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.listener.readLimit(load))])
	if busy {
		c.read += n
	}
	return n, err
}

// pause waits up to maxPause while the server is busy. It returns the number of requests in flight.
func (c *conn) pause() int64 {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for end := time.Now().Add(maxPause); ; {
		if load := c.listener.load(); !c.listener.busy(load) || !time.Now().Before(end) {
			return load
		}
		select {
		case <-c.listener.gate.resume:
		case <-tick.C:
		}
	}
}

// SetDeadline implements net.Conn. grpc-go removes the deadline when the handshake has ended.
func (c *conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.listener.endHandshake(c)
	}
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.listener.conns.Add(-1)
		c.listener.endHandshake(c)
	})
	return c.Conn.Close()
}
