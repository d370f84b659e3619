// Package statsd sends counters and response times to a statsd or dogstatsd server.
package statsd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/scrape"
)

// A Source supplies the metrics of a Sender.
type Source interface {
	// Counters calls send for each counter with its name, its total, and the part of the total sent
	// before, which send updates.
	Counters(send func(name string, total uint64, sent *uint64))
	// ResponseTimes calls send for each kind of call with the number of calls since the last time
	// and a sample of their response times.
	ResponseTimes(send func(name string, calls int, sample []time.Duration))
}

// A Destination is a statsd or dogstatsd server.
type Destination struct {
	Network       string            // tcp or udp
	Address       string            // host:port
	FlushInterval time.Duration     // between two sends of the counters
	Tags          map[string]string // added to every metric
	Dog           bool              // dogstatsd: tags follow the value instead of the name
	DogTags       []string          // added to every line, as key:value
	Mogrifiers    []Mogrifier       // for dogstatsd
}

// A Sender sends increments of counters, and response times, to a Destination. While the server is
// unreachable, nothing is queued: increments are sent after it returns, and response times are
// dropped.
type Sender struct {
	to      Destination
	from    Source
	log     *zap.Logger
	dialect dialect
	bounds  bounds
	sent    atomic.Uint64
	dropped atomic.Uint64
	up      atomic.Bool

	conn     net.Conn
	proven   bool // a flush on conn has succeeded, over UDP with a packet
	failures int  // failures in a row
	retryAt  time.Time
	timeLeft time.Duration // for writes of the flush under way
	packet   []byte
	lines    int // in packet
	packets  int // UDP: packets written
	opened   time.Time
}

// bounds are the bounds on the times and the packets of a Sender.
type bounds struct {
	timeout     time.Duration   // for a connection, and for all the writes of one flush together
	lastFlush   time.Duration   // for the last flush as a whole
	connect     backoff.Backoff // between attempts to connect
	packetBytes int             // of one write
	burst       int             // UDP: packets between two pauses, so that they fit the receiver's buffer
	pause       time.Duration
	renew       time.Duration // UDP: age after which the name is resolved again, because UDP does not report a moved server
}

// maxDatagramBytes is the maximum size of a UDP payload.
const maxDatagramBytes = 65_507

// New returns a Sender and registers its metrics.
func New(to Destination, from Source, registry prometheus.Registerer, log *zap.Logger) *Sender {
	s := &Sender{
		to: to, from: from, log: log, dialect: newDialect(&to),
		bounds: bounds{timeout: 2 * time.Second, lastFlush: 5 * time.Second,
			connect: backoff.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .5}, packetBytes: 1 << 15},
	}
	if to.Network == "udp" {
		// A packet fits one Ethernet frame, with room for tunnel headers.
		s.bounds.packetBytes, s.bounds.burst, s.bounds.pause = 1432, 32, 10*time.Millisecond
		s.bounds.renew = time.Minute
	}
	auto := promauto.With(registry)
	count := func(name, help string, n *atomic.Uint64) {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(n.Load()) })
	}
	count("weir_statsd_sent_lines_total", "Number of lines that Weir sent to the statsd server.", &s.sent)
	count("weir_statsd_dropped_lines_total", "Number of lines that the statsd server may not have received.", &s.dropped)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_statsd_up", Help: "1 if the last send to the statsd server succeeded, else 0.",
	}, func() float64 { return float64(scrape.Bit(s.up.Load())) })
	return s
}

// Run sends until ctx ends, and then once more.
func (s *Sender) Run(ctx context.Context) {
	counters := time.NewTicker(s.to.FlushInterval)
	defer counters.Stop()
	times := time.NewTicker(time.Second) // response times are many: they are sent at least every second
	defer times.Stop()
	for {
		select {
		case <-counters.C:
			s.flush(ctx, s.sendTimes, s.sendCounters)
		case <-times.C:
			s.flush(ctx, s.sendTimes)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.bounds.lastFlush)
			defer cancel()
			s.flush(last, s.sendTimes, s.sendCounters)
			if last.Err() != nil {
				s.log.Warn("statsd stopped before all counters were sent", zap.String("address", s.to.Address))
			}
			if s.conn != nil {
				_ = s.conn.Close()
			}
			return
		}
	}
}

// flush calls each of sends with a connection, and sends the last packet. Without a connection it
// drops the response times.
func (s *Sender) flush(ctx context.Context, sends ...func(context.Context)) {
	s.timeLeft = s.bounds.timeout
	if !s.ensureConnected(ctx) {
		s.from.ResponseTimes(func(_ string, _ int, sample []time.Duration) { s.dropped.Add(uint64(len(sample))) })
		return
	}
	before := s.sent.Load()
	for _, send := range sends {
		send(ctx)
	}
	s.sendPacket(ctx)
	if s.conn == nil {
		return
	}
	// UDP reports a missing server only after the first packet. Over TCP, a proxy may accept a
	// connection for a missing server, and then close it.
	if !s.proven {
		s.proven = s.to.Network == "tcp" || s.sent.Load() > before
		return
	}
	if s.failures > 0 {
		s.log.Info("statsd connected", zap.String("address", s.to.Address))
	}
	s.failures = 0
	s.up.Store(true)
}

func (s *Sender) sendTimes(ctx context.Context) {
	s.from.ResponseTimes(func(name string, calls int, sample []time.Duration) {
		rate := float64(len(sample)) / float64(max(calls, 1))
		for i, took := range sample {
			if !s.addLine(ctx, s.dialect.time(name, took, rate)) {
				s.dropped.Add(uint64(len(sample) - i))
				return
			}
		}
	})
}

// sendCounters sends the increments of the counters. If sending fails or ctx ends, unsent
// increments remain for the next flush.
func (s *Sender) sendCounters(ctx context.Context) {
	s.from.Counters(func(name string, total uint64, sent *uint64) {
		if ctx.Err() == nil && total != *sent && s.addLine(ctx, s.dialect.counter(name, total-*sent)) {
			*sent = total
		}
	})
}

// addLine adds a line to the packet. It sends the packet first if the line does not fit. It returns
// false without a connection, or if that send fails. It drops a line that no packet can hold.
func (s *Sender) addLine(ctx context.Context, line string) bool {
	if len(s.packet)+len(line) > s.bounds.packetBytes {
		s.sendPacket(ctx)
	}
	switch {
	case s.conn == nil:
		return false
	case s.to.Network == "udp" && len(line) > maxDatagramBytes:
		s.dropped.Add(1)
	default:
		s.packet = append(s.packet, line...)
		s.lines++
	}
	return true
}

// sendPacket writes the packet. If it fails, sendPacket drops the packet, because a part may have
// arrived, and closes the connection.
func (s *Sender) sendPacket(ctx context.Context) {
	packet, lines := s.packet, s.lines
	s.packet, s.lines = s.packet[:0], 0
	if lines == 0 {
		return
	}
	if s.to.Network == "udp" {
		packet = bytes.TrimSuffix(packet, []byte{'\n'})
		s.packets++
		if s.packets%s.bounds.burst == 0 {
			_ = backoff.Sleep(ctx, s.bounds.pause)
		}
	}
	if err := s.writePacket(packet); err != nil {
		s.dropped.Add(uint64(lines))
		s.fail(err)
		return
	}
	s.sent.Add(uint64(lines))
}

// writePacket writes within the remaining time for the writes of this flush. Pauses between packets
// do not count.
func (s *Sender) writePacket(packet []byte) error {
	start := time.Now()
	if err := s.conn.SetWriteDeadline(start.Add(s.timeLeft)); err != nil {
		return err
	}
	_, err := s.conn.Write(packet)
	s.timeLeft -= time.Since(start)
	return err
}

// ensureConnected connects unless there is a connection, subject to the backoff. It reports whether
// there is a connection afterwards.
func (s *Sender) ensureConnected(ctx context.Context) bool {
	if s.conn != nil {
		err := s.checkOpen()
		switch {
		case err != nil:
			wasUp := s.up.Load()
			s.fail(err)
			if s.to.Network == "tcp" && wasUp {
				s.retryAt = time.Time{} // a restarted server may accept connections already
			}
		case s.bounds.renew > 0 && time.Since(s.opened) > s.bounds.renew:
			_ = s.conn.Close()
			s.conn = nil
		default:
			return true
		}
	}
	now := time.Now()
	if now.Before(s.retryAt) {
		return false
	}
	conn, err := (&net.Dialer{Timeout: s.bounds.timeout}).DialContext(ctx, s.to.Network, s.to.Address)
	if err != nil && ctx.Err() != nil {
		return false // interrupted: no failure of the server
	}
	if err != nil {
		s.fail(err)
		return false
	}
	s.conn, s.proven, s.opened = conn, false, now
	return true
}

// checkOpen returns an error if the server has closed the connection. A write might not report
// that, and its data would be lost.
func (s *Sender) checkOpen() error {
	var one [1]byte
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	switch _, err := s.conn.Read(one[:]); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("the server closed the connection")
	default:
		return err
	}
}

// fail closes the connection and schedules the next attempt.
func (s *Sender) fail(err error) {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
	s.up.Store(false)
	if s.failures == 0 {
		s.log.Warn("statsd not connected, response times are dropped",
			zap.String("address", s.to.Address), zap.Error(err))
	}
	s.retryAt = time.Now().Add(s.bounds.connect.Wait(s.failures))
	s.failures++
}
