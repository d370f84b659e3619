package telemetry

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// A Destination is a server that understands statsd, or dogstatsd.
type Destination struct {
	Network    string // tcp or udp
	Address    string // host:port
	Every      time.Duration
	Tags       map[string]string // of every metric
	Dog        bool              // tags are tags, and not a part of the name
	DogTags    []string          // of every line, as key:value
	Mogrifiers []Mogrifier       // of dogstatsd
}

// A Sender sends to a statsd server what the incumbent's counters have grown by. A request does nothing for it but to
// leave the time it took in a sample. Nothing waits in a queue for a server that is away: what the counters grow by
// meanwhile is sent when it is back, and the times of that while are dropped.
type Sender struct {
	to      Destination
	in      *incumbent
	log     *zap.Logger
	write   dialect
	limits  limits
	sent    atomic.Uint64
	dropped atomic.Uint64
	up      atomic.Bool

	conn     net.Conn
	proven   bool // something was sent on conn, and no error has come back
	failed   int  // times in a row
	next     time.Time
	deadline time.Time // of the flush under way
	packet   []byte
	lines    int // in packet
	packets  int // of the flush under way
	opened   time.Time
}

// limits are what a sender takes at most.
type limits struct {
	wait       time.Duration // for a connection, and for all that is sent at once
	first, max time.Duration // between attempts to connect
	packet     int           // bytes in one write
	burst      int           // UDP: packets without a pause, so that they fit the buffer of who receives them
	pause      time.Duration
	renew      time.Duration // UDP: after that the name is looked up again, for nobody tells that a server has moved
}

// NewSender makes a Sender, and registers its metrics. There is one at most.
func (m *Metrics) NewSender(to Destination, log *zap.Logger) *Sender {
	s := &Sender{
		to: to, in: m.incumbent, log: log, write: newDialect(&to),
		limits: limits{wait: 2 * time.Second, first: time.Second, max: 30 * time.Second, packet: 1 << 15},
	}
	if to.Network == "udp" {
		// What fits a frame of Ethernet, with room for the headers of tunnels.
		s.limits.packet, s.limits.burst, s.limits.pause = 1432, 32, 10*time.Millisecond
		s.limits.renew = time.Minute
	}
	for _, t := range []*table{&s.in.rates, &s.in.domains} {
		t.mu.Lock()
		t.sending = true
		t.mu.Unlock()
	}
	s.in.methods.sending.Store(true)
	count := func(name, help string, n *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(n.Load()) })
	}
	m.Registry.MustRegister(
		count("weir_statsd_sent_lines_total", "Lines sent to statsd.", &s.sent),
		count("weir_statsd_dropped_lines_total", "Lines that statsd may not have got.", &s.dropped),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_statsd_up", Help: "1 when statsd took what was last sent."},
			func() float64 {
				if s.up.Load() {
					return 1
				}
				return 0
			}),
	)
	return s
}

// Run sends until ctx ends, and then once more.
func (s *Sender) Run(ctx context.Context) {
	every := min(s.to.Every, time.Second) // times are many, and go at least every second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	counters := time.Now().Add(s.to.Every)
	for {
		select {
		case now := <-ticker.C:
			due := !now.Before(counters)
			if due {
				counters = now.Add(s.to.Every)
			}
			s.flush(ctx, due)
		case <-ctx.Done():
			s.flush(context.WithoutCancel(ctx), true)
			if s.conn != nil {
				_ = s.conn.Close()
			}
			return
		}
	}
}

// flush sends the times, and the counters too if they are due.
func (s *Sender) flush(ctx context.Context, counters bool) {
	s.deadline = time.Now().Add(s.limits.wait)
	if !s.connected(ctx) {
		s.in.methods.each(func(m *method) {
			seen, _ := m.times.take()
			s.dropped.Add(uint64(seen))
		})
		return
	}
	s.packets = 0
	s.in.methods.each(s.times)
	if counters {
		for _, c := range s.in.scalars() {
			s.counter(c.statsd, c.n.Load(), &c.sent)
		}
		s.in.methods.each(func(m *method) { s.counter(m.calls.statsd, m.calls.n.Load(), &m.calls.sent) })
		s.series(&s.in.rates, counterNames[:])
		s.series(&s.in.domains, []string{"domain_not_found"})
	}
	s.send()
	if s.conn == nil {
		return
	}
	// That nobody is there, UDP tells after a first packet only.
	if s.proven = s.proven || s.to.Network == "tcp"; !s.proven {
		s.proven = s.packets > 0
		return
	}
	if s.failed > 0 {
		s.log.Info("statsd is reached", zap.String("address", s.to.Address))
	}
	s.failed = 0
	s.up.Store(true)
}

func (s *Sender) times(m *method) {
	seen, times := m.times.take()
	rate := float64(len(times)) / float64(max(seen, 1))
	for i, took := range times {
		if s.conn == nil {
			s.dropped.Add(uint64(len(times) - i))
			return
		}
		s.line(s.write.time(nil, "ratelimit_server."+m.name+".response_time", took, rate))
	}
}

// counter sends what a counter has grown by. What cannot be sent now is sent with the next.
func (s *Sender) counter(name string, n uint64, sent *uint64) {
	if s.conn == nil || n == *sent {
		return
	}
	s.line(s.write.counter(nil, name, n-*sent))
	*sent = n
}

// series sends the counters of a table: the first is counts[0], and so on.
func (s *Sender) series(t *table, names []string) {
	t.sweep()
	for _, one := range append(t.takeRetired(), t.all()...) {
		if one.statsd == "" {
			// The levels are clean, but two of them may look like an address together.
			one.statsd = "ratelimit.service.rate_limit." + string(appendClean(nil, strings.Join(one.labels, ".")))
		}
		counts := one.load()
		for i, name := range names {
			s.counter(one.statsd+"."+name, counts[i], &one.sent[i])
		}
	}
}

func (s *Sender) line(line []byte) {
	if len(s.packet)+len(line) > s.limits.packet {
		s.send()
	}
	s.packet = append(s.packet, line...)
	s.lines++
}

// send writes the packet. One that fails is dropped, since a part of it may have arrived, and ends the connection.
func (s *Sender) send() {
	packet, lines := s.packet, s.lines
	s.packet, s.lines = s.packet[:0], 0
	if lines == 0 {
		return
	}
	if s.conn == nil {
		s.dropped.Add(uint64(lines))
		return
	}
	s.packets++
	if s.to.Network == "udp" {
		packet = bytes.TrimSuffix(packet, []byte{'\n'})
		if s.packets%s.limits.burst == 0 {
			time.Sleep(s.limits.pause)
		}
	}
	err := s.conn.SetWriteDeadline(s.deadline)
	if err == nil {
		_, err = s.conn.Write(packet)
	}
	if err != nil {
		s.dropped.Add(uint64(lines))
		s.fail(err)
		return
	}
	s.sent.Add(uint64(lines))
}

// connected connects where there is no connection, unless it was tried a short while ago.
func (s *Sender) connected(ctx context.Context) bool {
	if s.conn != nil {
		err := s.closed()
		switch {
		case err != nil:
			s.fail(err)
			if s.to.Network == "tcp" {
				s.next = time.Time{} // a server that was restarted is there again
			}
		case s.limits.renew > 0 && time.Since(s.opened) > s.limits.renew:
			_ = s.conn.Close()
			s.conn = nil
		default:
			return true
		}
	}
	now := time.Now()
	if now.Before(s.next) {
		return false
	}
	conn, err := (&net.Dialer{Deadline: s.deadline}).DialContext(ctx, s.to.Network, s.to.Address)
	if err != nil {
		s.fail(err)
		return false
	}
	s.conn, s.proven, s.opened = conn, false, now
	return true
}

// closed tells whether the server has gone since something was last sent. A write would not, and what it takes is lost.
func (s *Sender) closed() error {
	var one [1]byte
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	if _, err := s.conn.Read(one[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

func (s *Sender) fail(err error) {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
	s.up.Store(false)
	if s.failed == 0 {
		s.log.Warn("statsd is not reached: counters wait, times are dropped",
			zap.String("address", s.to.Address), zap.Error(err))
	}
	wait := min(s.limits.max, s.limits.first<<min(s.failed, 16))
	s.next = time.Now().Add(wait/2 + rand.N(wait/2+1))
	s.failed++
}
