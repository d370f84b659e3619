package loadclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-rls/weir/internal/socket"
)

const (
	frameHeader   = 9
	maxFrame      = 16 << 10 // bytes of a payload: the default of HTTP/2
	streamWindow  = 1 << 20  // no response is longer, so no stream ever waits for a window
	defaultWindow = 1<<16 - 1
	maxWindow     = 1<<31 - 1
	giveBack      = 1 << 29 // bytes between updates of the connection's window, as in proxies
	maxStream     = 1<<31 - 1
	lastAnswers   = 5 * time.Second // bounds the wait for responses at the end of a run
	minTable      = 1 << 10         // bytes: no template uses more of HPACK's table
)

// A conn is a connection. Its goroutine receives and, without a rate, also sends. With a rate, pace sends for all connections.
type conn struct {
	o     *Options
	net   net.Conn
	phase *atomic.Int32
	base  time.Time // of all connections: times count from here

	// Used by the receiver only.
	in               []byte
	begin, end       int // the unread part of in
	acks             []byte
	headers          *headers
	consumed         uint32 // bytes of DATA without a window update yet
	resting          rest
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

// A stream is an unanswered request.
type stream struct {
	number atomic.Uint32 // 0: none
	start  time.Duration // when it was sent, or due, since base
	said   said
	reset  bool
	head   [8]byte // the first bytes of the response
	n      int     // the bytes of head that have arrived
}

func dial(ctx context.Context, o *Options, base time.Time, number int, phase *atomic.Int32) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	c := &conn{
		o: o, net: socket.Quick(nc), phase: phase, base: base,
		in: make([]byte, 4*maxFrame), headers: newHeaders(), out: make([]byte, 0, 1<<16), random: rand.NewPCG(uint64(number), 1),
		maximum: maxStream / 2,
	}
	if o.Count > 0 {
		c.maximum = uint32(min((o.Count+uint64(o.Conns)-1)/uint64(o.Conns), uint64(c.maximum)))
	}
	c.window.Store(defaultWindow)
	deadline, _ := ctx.Deadline()
	_ = nc.SetDeadline(deadline)
	if err := c.greet(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("no HTTP/2: %w", err)
	}
	_ = nc.SetDeadline(time.Time{})
	return c, nil
}

// greet exchanges the HTTP/2 preface and settings.
func (c *conn) greet() error {
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

// run receives and, without a rate, sends. It returns when the run has ended and all requests are answered, or when the connection
// fails.
func (c *conn) run() {
	if err := c.serve(); err != nil {
		c.fail(err)
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

func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// refill sends one request for each response.
func (c *conn) refill() error {
	c.out = append(c.out, c.acks...)
	c.acks = c.acks[:0]
	now := c.now()
	c.resting.wake(now)
	for !c.finished.Load() && c.mayOpen() {
		c.open(now)
	}
	return c.send()
}

func (c *conn) mayOpen() bool {
	n := c.sent.Load()
	return n-c.answered.Load()+uint32(c.resting.n) < uint32(c.o.InFlight) && c.window.Load() >= int64(c.o.Request.data()) &&
		c.slot(2*n+1).number.Load() == 0 && n < c.maximum
}

func (c *conn) slot(stream uint32) *stream { return &c.streams[stream/2%maxInFlight] }

// underWay returns the stream with a number, or nil if it has ended.
func (c *conn) underWay(number uint32) *stream {
	if s := c.slot(number); s.number.Load() == number {
		return s
	}
	return nil
}

// open appends a request to the output buffer.
func (c *conn) open(start time.Duration) {
	n, r := c.sent.Load(), c.o.Request
	next := c.o.Users.pick(c.random)
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

// receive waits for frames and reads all available ones.
func (c *conn) receive() error {
	last := c.o.Backoff == 0 // whether the end of a wait ends the run
	if !last {
		// The wait ends in time for the next client with a backoff.
		until := time.Time{}
		switch {
		case c.phase.Load() == stopping:
			until, last = time.Now().Add(lastAnswers), true
		case c.resting.n > 0:
			until = c.base.Add(c.resting.first())
		}
		if err := c.net.SetReadDeadline(until); err != nil {
			return err
		}
	}
	n, err := c.net.Read(c.in[c.end:])
	if !last && errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // also if the wait began before the load stopped
	}
	if err != nil {
		return err
	}
	c.end += n
	now := c.now()
	for c.end-c.begin >= frameHeader {
		h := c.in[c.begin:c.end]
		size := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if size > maxFrame {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		if len(h) < frameHeader+size {
			break
		}
		stream := binary.BigEndian.Uint32(h[5:]) & maxStream
		payload := h[frameHeader : frameHeader+size]
		if err := c.frame(http2.FrameType(h[3]), http2.Flags(h[4]), stream, payload, now); err != nil {
			return err
		}
		c.begin += frameHeader + size
	}
	if c.begin == c.end {
		c.begin, c.end = 0, 0
	} else if c.end > len(c.in)/2 {
		c.begin, c.end = 0, copy(c.in, c.in[c.begin:c.end])
	}
	return nil
}

// frame handles a frame.
func (c *conn) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte, now time.Duration) error {
	switch kind {
	case http2.FrameData:
		if c.consumed += uint32(len(payload)); c.consumed > giveBack {
			c.acks, c.consumed = appendWindow(c.acks, c.consumed), 0
		}
		payload, err := unpadded(kind, flags, payload)
		if err != nil {
			return err
		}
		if s := c.underWay(stream); s != nil {
			s.n += copy(s.head[s.n:], payload)
			if flags.Has(http2.FlagDataEndStream) {
				c.answer(s, now)
			}
		}
	case http2.FrameHeaders:
		payload, err := unpadded(kind, flags, payload)
		if err != nil {
			return err
		}
		if !flags.Has(http2.FlagHeadersEndHeaders) {
			return errors.New("headers of more than one frame")
		}
		said, err := c.headers.read(payload)
		if err != nil {
			return err
		}
		if s := c.underWay(stream); s != nil {
			s.said |= said
			if flags.Has(http2.FlagHeadersEndStream) {
				c.answer(s, now)
			}
		}
	case http2.FrameRSTStream:
		if s := c.underWay(stream); s != nil {
			s.reset = true
			c.answer(s, now)
		}
	case http2.FrameSettings:
		if flags.Has(http2.FlagSettingsAck) {
			return nil
		}
		c.acks = appendFrame(c.acks, http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
		return c.settings(payload)
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			c.acks = appendFrame(c.acks, http2.FramePing, http2.FlagPingAck, 0, payload)
		}
	case http2.FrameWindowUpdate:
		if stream == 0 && len(payload) == 4 {
			c.window.Add(int64(binary.BigEndian.Uint32(payload) & maxWindow))
		}
	case http2.FrameGoAway:
		return fmt.Errorf("the server ends the connection: %q", payload[min(8, len(payload)):])
	}
	return nil
}

func (c *conn) settings(payload []byte) error {
	for ; len(payload) >= 6; payload = payload[6:] {
		id, value := http2.SettingID(binary.BigEndian.Uint16(payload)), binary.BigEndian.Uint32(payload[2:])
		switch {
		case id == http2.SettingMaxConcurrentStreams && value < uint32(c.o.InFlight):
			return fmt.Errorf("the server takes %d requests at once on a connection, not %d", value, c.o.InFlight)
		case id == http2.SettingHeaderTableSize && value < minTable:
			return fmt.Errorf("the server's table of headers has %d bytes", value)
		case id == http2.SettingInitialWindowSize && value < uint32(c.o.Request.data()):
			return fmt.Errorf("the server takes %d bytes of a request", value)
		}
	}
	return nil
}

// answer counts a finished request.
func (c *conn) answer(s *stream, now time.Duration) {
	verdict, err := s.verdict(c.o.Request.byStatus)
	switch {
	case c.o.Backoff > 0 && s.said&grpcExhausted != 0 && !s.reset:
		c.resting.add(now + c.o.Backoff)
		if c.phase.Load() == measuring {
			c.shed++
		}
	case err != nil:
		c.errors++
		if errors.Is(err, errFailed) && c.err == nil {
			err = fmt.Errorf("%w: %s", err, c.headers.complaint)
		}
		c.fail(err)
	case c.phase.Load() != measuring:
	case verdict == ok:
		c.ok++
		c.latency.record(now - s.start)
	default:
		c.over++
		c.latency.record(now - s.start)
	}
	s.said, s.reset, s.n = 0, false, 0
	s.number.Store(0)
	c.answered.Add(1)
}

// The codes of a RateLimitResponse.
const (
	ok   = 1
	over = 2
)

var (
	errReset  = errors.New("the server has reset a stream")
	errFailed = errors.New("an answer that is an error")
	errCode   = errors.New("an answer that is neither OK nor OVER_LIMIT")
)

// verdict decodes the code of a response.
func (s *stream) verdict(byStatus bool) (byte, error) {
	// Every encoder writes fields in order, so the code is the first field.
	const tag, code = grpcPrefix, grpcPrefix + 1
	switch {
	case s.reset:
		return 0, errReset
	case byStatus && s.said == status200:
		return ok, nil
	case byStatus && s.said == status429:
		return over, nil
	case byStatus || s.said != status200|grpcOK:
		return 0, errFailed
	case s.n > code && s.head[tag] == 1<<3 && (s.head[code] == ok || s.head[code] == over):
		return s.head[code], nil
	}
	return 0, errCode
}

func appendWindow(b []byte, bytes uint32) []byte {
	return appendFrame(b, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, bytes))
}

// unpadded returns a payload without padding.
func unpadded(kind http2.FrameType, flags http2.Flags, payload []byte) ([]byte, error) {
	padding := 0
	if flags.Has(http2.FlagDataPadded) && len(payload) > 0 {
		padding, payload = int(payload[0]), payload[1:]
	}
	if kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersPriority) {
		payload = payload[min(5, len(payload)):]
	}
	if padding > len(payload) {
		return nil, errors.New("a frame that is nothing but padding")
	}
	return payload[:len(payload)-padding], nil
}

// A rest is a queue of the next requests of shed clients, in order of time.
type rest struct {
	until   [maxInFlight]time.Duration
	from, n int
}

func (r *rest) first() time.Duration { return r.until[r.from%maxInFlight] }

func (r *rest) add(until time.Duration) {
	r.until[(r.from+r.n)%maxInFlight] = until
	r.n++
}

func (r *rest) wake(now time.Duration) {
	for r.n > 0 && r.first() <= now {
		r.from++
		r.n--
	}
}
