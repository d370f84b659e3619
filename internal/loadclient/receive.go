package loadclient

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// receive waits for frames and reads all available ones.
func (c *conn) receive() error {
	last := c.o.Backoff == 0 // whether the end of a wait ends the run
	if !last {
		// The wait ends in time for the next client with a backoff.
		until := time.Time{}
		switch {
		case c.phase.Load() == stopping:
			until, last = time.Now().Add(lastAnswers), true
		case c.backoffs.n > 0:
			until = c.base.Add(c.backoffs.first())
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
		if size > maxFrameBytes {
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
		return c.data(flags, stream, payload, now)
	case http2.FrameHeaders:
		return c.block(flags, stream, payload, now)
	case http2.FrameRSTStream:
		if s := c.openStream(stream); s != nil {
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

// data reads a part of a response.
func (c *conn) data(flags http2.Flags, stream uint32, payload []byte, now time.Duration) error {
	if c.consumed += uint32(len(payload)); c.consumed > windowStep {
		c.acks, c.consumed = appendWindow(c.acks, c.consumed), 0
	}
	payload, err := unpadded(http2.FrameData, flags, payload)
	if err != nil {
		return err
	}
	if s := c.openStream(stream); s != nil {
		s.n += copy(s.head[s.n:], payload)
		if flags.Has(http2.FlagDataEndStream) {
			c.answer(s, now)
		}
	}
	return nil
}

// block reads headers or trailers.
func (c *conn) block(flags http2.Flags, stream uint32, payload []byte, now time.Duration) error {
	payload, err := unpadded(http2.FrameHeaders, flags, payload)
	if err != nil {
		return err
	}
	if !flags.Has(http2.FlagHeadersEndHeaders) {
		return errors.New("headers of more than one frame")
	}
	status, err := c.headers.read(payload)
	if err != nil {
		return err
	}
	if s := c.openStream(stream); s != nil {
		s.status |= status
		if flags.Has(http2.FlagHeadersEndStream) {
			c.answer(s, now)
		}
	}
	return nil
}

// settings reports a server that cannot serve the load.
func (c *conn) settings(payload []byte) error {
	for ; len(payload) >= 6; payload = payload[6:] {
		id, value := http2.SettingID(binary.BigEndian.Uint16(payload)), binary.BigEndian.Uint32(payload[2:])
		switch {
		case id == http2.SettingMaxConcurrentStreams && value < uint32(c.o.InFlight):
			return fmt.Errorf("the server takes %d requests at the same time on a connection, not %d", value, c.o.InFlight)
		case id == http2.SettingHeaderTableSize && value < minTableBytes:
			return fmt.Errorf("the server's table of headers has %d bytes", value)
		case id == http2.SettingInitialWindowSize && value < uint32(c.o.Request.data()):
			return fmt.Errorf("the server takes %d bytes of a request", value)
		}
	}
	return nil
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

// A stream is an unanswered request.
type stream struct {
	number atomic.Uint32 // 0: none
	start  time.Duration // when it was sent, or due, since base
	status status
	reset  bool
	head   [8]byte // the first bytes of the response
	n      int     // the bytes of head that have arrived
}

func (c *conn) slot(stream uint32) *stream { return &c.streams[stream/2%maxInFlight] }

// openStream returns the stream with a number, or nil if it has ended.
func (c *conn) openStream(number uint32) *stream {
	if s := c.slot(number); s.number.Load() == number {
		return s
	}
	return nil
}

// answer counts a finished request.
func (c *conn) answer(s *stream, now time.Duration) {
	verdict, err := s.responseCode(c.o.Request.byStatus)
	switch {
	case c.o.Backoff > 0 && s.status&grpcExhausted != 0 && !s.reset:
		c.backoffs.add(now + c.o.Backoff)
		if c.phase.Load() == measuring {
			c.shed++
		}
	case err != nil:
		c.errors++
		if errors.Is(err, errFailed) && c.err == nil {
			err = fmt.Errorf("%w: %s", err, c.headers.firstError)
		}
		c.err = cmp.Or(c.err, err)
	case c.phase.Load() != measuring:
	case verdict == ok:
		c.ok++
		c.latency.record(now - s.start)
	default:
		c.over++
		c.latency.record(now - s.start)
	}
	s.status, s.reset, s.n = 0, false, 0
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

// responseCode decodes the code of a response.
func (s *stream) responseCode(byStatus bool) (byte, error) {
	// Every encoder writes fields in order, so the code is the first field.
	const tag, code = grpcPrefix, grpcPrefix + 1
	switch {
	case s.reset:
		return 0, errReset
	case byStatus && s.status == status200:
		return ok, nil
	case byStatus && s.status == status429:
		return over, nil
	case byStatus || s.status != status200|grpcOK:
		return 0, errFailed
	case s.n > code && s.head[tag] == 1<<3 && (s.head[code] == ok || s.head[code] == over):
		return s.head[code], nil
	}
	return 0, errCode
}
