package loadclient

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

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

// underWay returns the stream with a number, or nil if it has ended.
func (c *conn) underWay(number uint32) *stream {
	if s := c.slot(number); s.number.Load() == number {
		return s
	}
	return nil
}

// answer counts a finished request.
func (c *conn) answer(s *stream, now time.Duration) {
	verdict, err := s.verdict(c.o.Request.byStatus)
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
		c.fail(err)
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

// verdict decodes the code of a response.
func (s *stream) verdict(byStatus bool) (byte, error) {
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
