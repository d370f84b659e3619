package loadclient

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-rls/weir/internal/socket"
)

const (
	frameHeader   = 9
	maxFrameBytes = 16 << 10 // the largest payload of a frame: the default of HTTP/2
	streamWindow  = 1 << 20  // no response is longer, so no stream ever waits for a window
	defaultWindow = 1<<16 - 1
	maxWindow     = 1<<31 - 1
	windowStep    = 1 << 29 // bytes between updates of the connection's window, as in proxies
	maxStream     = 1<<31 - 1
	lastAnswers   = 5 * time.Second // bounds the wait for responses at the end of a run
	minTableBytes = 1 << 10         // no template uses more of HPACK's table
)

// A conn is a connection. Its goroutine receives and, without a rate, also sends. With a rate, pace
// sends for all connections.
type conn struct {
	o     *Options
	net   net.Conn
	phase *atomic.Int32
	base  time.Time // the zero of all times, equal for all connections

	// Used by the receiver only.
	in               []byte
	begin, end       int // the unread part of in
	acks             []byte
	headers          *headers
	consumed         uint32 // bytes of DATA without a window update yet
	backoffs         backoffs
	shed             uint64
	streams          [maxInFlight]stream
	ok, over, errors uint64
	err              error // the first one
	latency          Histogram

	// Used by the sender only.
	out     []byte
	random  *rand.PCG
	times   timetable // if there is a rate
	maximum uint32    // requests to send

	// Used by both.
	writing  sync.Mutex
	window   atomic.Int64  // bytes of DATA that may be sent
	sent     atomic.Uint32 // requests
	answered atomic.Uint32
	finished atomic.Bool // no more requests are sent
}

func dial(ctx context.Context, o *Options, base time.Time, number int, phase *atomic.Int32) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	c := &conn{
		o: o, net: socket.Wrap(nc), phase: phase, base: base,
		in: make([]byte, 4*maxFrameBytes), headers: newHeaders(), out: make([]byte, 0, 1<<16), random: rand.NewPCG(uint64(number), 1),
		maximum: maxStream / 2,
	}
	if o.Count > 0 {
		c.maximum = uint32(min((o.Count+uint64(o.Conns)-1)/uint64(o.Conns), uint64(c.maximum)))
	}
	c.window.Store(defaultWindow)
	deadline, _ := ctx.Deadline()
	_ = nc.SetDeadline(deadline)
	if err := c.handshake(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("no HTTP/2: %w", err)
	}
	_ = nc.SetDeadline(time.Time{})
	return c, nil
}

// handshake exchanges the HTTP/2 preface and settings.
func (c *conn) handshake() error {
	settings := binary.BigEndian.AppendUint16(nil, uint16(http2.SettingInitialWindowSize))
	settings = binary.BigEndian.AppendUint32(settings, streamWindow)
	hello := appendFrame([]byte(http2.ClientPreface), http2.FrameSettings, 0, 0, settings)
	hello = appendWindow(hello, maxWindow-defaultWindow)
	if err := c.write(hello); err != nil {
		return err
	}
	for len(c.acks) == 0 {
		if err := c.receive(); err != nil {
			return err
		}
	}
	return c.acknowledge()
}

// run receives and, without a rate, sends. It returns when the run has ended and all requests are
// answered, or when the connection fails.
func (c *conn) run() {
	if err := c.serve(); err != nil {
		c.err = cmp.Or(c.err, err)
		_ = c.net.Close() // pace notices it
	}
}

func (c *conn) serve() error {
	for {
		if c.o.Rate == 0 {
			c.finished.Store(c.phase.Load() == stopping || c.sent.Load() == c.maximum)
			if err := c.refill(); err != nil {
				return err
			}
		}
		if c.finished.Load() && c.answered.Load() == c.sent.Load() {
			return nil
		}
		if err := c.receive(); err != nil {
			if c.finished.Load() && c.answered.Load() == c.sent.Load() {
				return nil // pace has ended the wait
			}
			return err
		}
		if c.o.Rate == 0 {
			continue // refill sends them
		}
		if err := c.acknowledge(); err != nil {
			return err
		}
	}
}

// acknowledge sends pending acknowledgements and window updates.
func (c *conn) acknowledge() error {
	if len(c.acks) == 0 {
		return nil
	}
	err := c.write(c.acks)
	c.acks = c.acks[:0]
	return err
}

// refill sends one request for each response.
func (c *conn) refill() error {
	c.out = append(c.out, c.acks...)
	c.acks = c.acks[:0]
	now := c.now()
	c.backoffs.wake(now)
	for !c.finished.Load() && c.mayOpen() {
		c.open(now)
	}
	return c.send()
}

func (c *conn) mayOpen() bool {
	n := c.sent.Load()
	return n-c.answered.Load()+uint32(c.backoffs.n) < uint32(c.o.InFlight) && c.window.Load() >= int64(c.o.Request.data()) &&
		c.slot(2*n+1).number.Load() == 0 && n < c.maximum
}

// open appends a request to the output buffer.
func (c *conn) open(start time.Duration) {
	n, r := c.sent.Load(), c.o.Request
	next := c.o.Users.choose(c.random)
	t := r.template(next, n == 0)
	c.out = t.append(c.out, 2*n+1, next)
	if r.Spread {
		t.spread(c.out[len(c.out)-len(t.frames):], c.o.Users, c.random)
	}
	c.window.Add(-int64(t.data))
	s := c.slot(2*n + 1)
	s.start = start
	s.number.Store(2*n + 1)
	c.sent.Store(n + 1)
}

func (c *conn) send() error {
	if len(c.out) == 0 {
		return nil
	}
	err := c.write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *conn) write(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.net.Write(b)
	return err
}

// now returns the time since base.
func (c *conn) now() time.Duration { return time.Since(c.base) }
