package statsd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/weir-rls/weir/internal/must"
)

// A listener collects the lines that a sender sends. sums has, by name, the sum of a counter or the
// number of times.
type listener struct {
	mu    sync.Mutex
	lines []string
	sums  map[string]int
	came  chan struct{}
}

func newListener() *listener { return &listener{sums: map[string]int{}, came: make(chan struct{}, 1)} }

func (l *listener) take(text string) {
	l.mu.Lock()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		l.lines = append(l.lines, line)
		name, rest, _ := strings.Cut(line, ":")
		value, kind, _ := strings.Cut(rest, "|")
		if strings.HasPrefix(kind, "c") {
			n, _ := strconv.Atoi(value)
			l.sums[name] += n
		} else {
			l.sums[name]++
		}
	}
	l.mu.Unlock()
	select {
	case l.came <- struct{}{}:
	default:
	}
}

func (l *listener) sum(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums[name]
}

// total returns the sum of all counters.
func (l *listener) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sum := range l.sums {
		n += sum
	}
	return n
}

func (l *listener) received(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.lines, line)
}

// all waits until each line that s sent has arrived.
func (l *listener) all(t *testing.T, s *Sender) {
	t.Helper()
	l.await(t, "all lines", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lines) == int(s.sent.Load())
	})
}

// await waits until is returns true.
func (l *listener) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !is() {
		select {
		case <-l.came:
		case <-time.After(20 * time.Millisecond):
		case <-late:
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("%s: have\n%s", what, strings.Join(l.lines, "\n"))
		}
	}
}

func listenUDP(t *testing.T, l *listener) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if n > 1432 || n > 0 && buffer[n-1] == '\n' {
				t.Errorf("a packet of %d bytes that ends with %q", n, buffer[n-1])
			}
			l.take(string(buffer[:n]))
		}
	}()
	return conn.LocalAddr().String()
}

// listenTCP accepts connections. The function that it returns closes the listener and all
// connections.
func listenTCP(t *testing.T, address string, l *listener) (string, func()) {
	t.Helper()
	listening, err := net.Listen("tcp", address)
	must.Succeed(t, err)
	var mu sync.Mutex
	var conns []net.Conn
	stop := sync.OnceFunc(func() {
		_ = listening.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	t.Cleanup(stop)
	go func() {
		for {
			conn, err := listening.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			go func() {
				var rest []byte
				buffer := make([]byte, 1<<16)
				for {
					n, err := conn.Read(buffer)
					if rest = append(rest, buffer[:n]...); n > 0 {
						end := bytes.LastIndexByte(rest, '\n') + 1
						l.take(string(rest[:end]))
						rest = slices.Clone(rest[end:])
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return listening.Addr().String(), stop
}

// newTestSender returns a sender that does not take a busy machine for a failure of the server.
func newTestSender(to Destination, from Source, registry prometheus.Registerer, log *zap.Logger) *Sender {
	s := New(to, from, registry, log)
	s.bounds.timeout, s.bounds.lastFlush = 2*time.Minute, 2*time.Minute
	return s
}

// sending runs a sender until the test ends or the function that it returns is called.
func sending(t *testing.T, m *fixture, to Destination, log *zap.Logger) (*Sender, func()) {
	t.Helper()
	if to.FlushInterval == 0 {
		to.FlushInterval = 10 * time.Millisecond
	}
	s := newTestSender(to, m, m.registry, log)
	s.bounds.connect.Initial, s.bounds.connect.Max = 5*time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	stop := func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return s, stop
}

func TestCountersSurviveStatsdOutage(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := newListener()
	address, stop := listenTCP(t, "127.0.0.1:0", l)
	m := newFixture()
	s, _ := sending(t, m, Destination{Network: "tcp", Address: address}, zap.New(core))
	const name = "ratelimit.service.rate_limit.d.a_1.total_hits"
	m.hit("d", "a=1")
	l.await(t, "a hit", func() bool { return l.sum(name) == 1 })
	l.await(t, "up", s.up.Load) // the hit may arrive before its flush ends
	stop()
	l.await(t, "an end", func() bool { return !s.up.Load() })
	for range 100 {
		m.hit("d", "a=1")
		m.call(0)
	}
	l.await(t, "times dropped", func() bool { return s.dropped.Load() >= 100 })
	listenTCP(t, address, l)
	l.await(t, "all hits", func() bool { return l.sum(name) == 101 })
	l.await(t, "up", s.up.Load)
	if n := logs.FilterMessageSnippet("not connected").Len(); n != 1 {
		t.Errorf("%d lines for one outage: %v, want 1", n, logs.All())
	}
	if n := logs.FilterMessageSnippet("statsd connected").Len(); n != 1 {
		t.Errorf("%d lines for one return: %v, want 1", n, logs.All())
	}
}

// Without a server, UDP reports an error only after the first packet. The kernel may take its time
// for that, so the test waits for the error between two flushes.
func TestUDPWithoutServerIsLoggedOnce(t *testing.T) {
	// A socket with a peer refuses the packets of all others, and keeps the port from other
	// programs.
	nobody, err := net.Dial("udp", "127.0.0.1:9")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = nobody.Close() })
	core, logs := observer.New(zapcore.InfoLevel)
	m := newFixture()
	s := newTestSender(Destination{Network: "udp", Address: nobody.LocalAddr().String(), FlushInterval: time.Second}, m, m.registry, zap.New(core))
	s.bounds.connect.Initial, s.bounds.connect.Max = time.Hour, time.Hour // one connection for each round
	for range 10 {
		s.retryAt = time.Time{}
		m.hit("d", "a=1")
		if s.flush(t.Context(), s.sendTimes, s.sendCounters); s.conn == nil {
			t.Fatal("the first packet was refused")
		}
		awaitError(t, s.conn)
		m.hit("d", "a=1")
		if s.flush(t.Context(), s.sendTimes, s.sendCounters); s.conn != nil {
			t.Fatal("the connection was kept after a refused packet")
		}
	}
	if s.up.Load() {
		t.Error("up is true after a failed flush, want false")
	}
	if n := logs.FilterMessageSnippet("not connected").Len(); n != 1 || logs.Len() != 1 {
		t.Errorf("%d lines for one outage: %v", n, logs.All())
	}
}

// A proxy may accept connections for a server that is down, and close them.
func TestTCPServerThatClosesConnectionsIsLoggedOnce(t *testing.T) {
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listening.Close() })
	go func() {
		for {
			conn, err := listening.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	core, logs := observer.New(zapcore.InfoLevel)
	m := newFixture()
	s := newTestSender(Destination{Network: "tcp", Address: listening.Addr().String(), FlushInterval: time.Second}, m, m.registry, zap.New(core))
	for range 10 {
		s.retryAt = time.Time{}
		s.flush(t.Context(), s.sendTimes, s.sendCounters)
		if s.conn != nil {
			must.Succeed(t, s.conn.SetReadDeadline(time.Now().Add(2*time.Minute)))
			_, _ = s.conn.Read(make([]byte, 1)) // waits for the end
		}
	}
	s.flush(t.Context(), s.sendTimes, s.sendCounters)
	if s.up.Load() || logs.FilterMessageSnippet("not connected").Len() != 1 || logs.Len() != 1 {
		t.Errorf("up %v, logged %v, want one line for one outage", s.up.Load(), logs.All())
	}
	if s.failures < 5 || time.Until(s.retryAt) <= 0 {
		t.Errorf("%d failures in a row, next attempt in %v, want a backoff", s.failures, time.Until(s.retryAt))
	}
}

// awaitError waits until the socket of conn has an error, and leaves the error for the next read or
// write.
func awaitError(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	must.Succeed(t, err)
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); {
		var n int
		var failed error
		events := []unix.PollFd{{}}
		must.Succeed(t, raw.Control(func(fd uintptr) { events[0].Fd = int32(fd); n, failed = unix.Poll(events, 1000) }))
		if failed != nil && !errors.Is(failed, unix.EINTR) {
			t.Fatal(failed)
		}
		if n == 1 && events[0].Revents&unix.POLLERR != 0 {
			return
		}
	}
	t.Fatal("no packet was refused")
}

// A server that accepts connections and reads nothing blocks a flush for bounds.timeout at most.
func TestStuckStatsdServerTimesOut(t *testing.T) {
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listening.Close() })
	f := newFake(2000)
	s := newTestSender(Destination{Network: "tcp", Address: listening.Addr().String(), FlushInterval: time.Second}, f,
		prometheus.NewRegistry(), zap.NewNop())
	if s.flush(t.Context(), s.sendTimes); s.conn == nil {
		t.Fatal("not connected")
	}
	s.bounds.timeout = 50 * time.Millisecond
	for range 100 { // more than the buffers of a connection hold
		f.total++
		if s.flush(t.Context(), s.sendTimes, s.sendCounters); s.conn == nil {
			break
		}
	}
	if s.conn != nil || s.dropped.Load() == 0 || s.up.Load() {
		t.Errorf("connected %v, dropped %d, up %v", s.conn != nil, s.dropped.Load(), s.up.Load())
	}
}

// manySeries are the lines of 10,000 series with names as long as those of Envoy Gateway, of which
// three counters change.
const manySeries = 30_000

func TestManyLongSeriesReachAHealthyServer(t *testing.T) {
	l := newListener()
	address, _ := listenTCP(t, "127.0.0.1:0", l)
	core, logs := observer.New(zapcore.InfoLevel)
	f := newFake(manySeries)
	s := newTestSender(Destination{Network: "tcp", Address: address, FlushInterval: time.Second}, f, prometheus.NewRegistry(), zap.New(core))
	s.flush(t.Context(), s.sendTimes) // connects
	f.total = 1
	s.flush(t.Context(), s.sendTimes, s.sendCounters)
	if sent, dropped := s.sent.Load(), s.dropped.Load(); sent != manySeries || dropped > 0 || !s.up.Load() || logs.Len() > 0 {
		t.Errorf("sent %d, dropped %d, up %v, logged %v; want %d sent, none dropped", sent, dropped, s.up.Load(), logs.All(), manySeries)
	}
	l.await(t, "all counters", func() bool { return l.total() == manySeries })
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// On UDP, many series need pauses of more than bounds.timeout together, which must not count as a
// failure of the server.
func TestPausesBetweenPacketsAreNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		f := newFake(manySeries)
		s := New(Destination{Network: "udp", FlushInterval: time.Second}, f, prometheus.NewRegistry(), zap.New(core))
		conn := &idleConn{}
		s.conn, s.opened = conn, time.Now()
		f.calls, f.times = 1, []time.Duration{time.Second}
		s.flush(t.Context(), s.sendTimes) // the first packet proves the connection
		f.total = 1
		start := time.Now()
		s.flush(t.Context(), s.sendTimes, s.sendCounters)
		pauses := time.Duration(s.packets/s.bounds.burst) * s.bounds.pause
		if took := time.Since(start); took != pauses || took <= s.bounds.timeout {
			t.Fatalf("the pauses took %v together, want %v, and more than %v", took, pauses, s.bounds.timeout)
		}
		const want = manySeries + 1
		if sent, dropped := s.sent.Load(), s.dropped.Load(); sent != want || dropped > 0 || !s.up.Load() || logs.Len() > 0 {
			t.Errorf("sent %d, dropped %d, up %v, logged %v; want %d sent, none dropped", sent, dropped, s.up.Load(), logs.All(), want)
		}
		if conn.longest > 1432 {
			t.Errorf("a packet of %d bytes", conn.longest)
		}
	})
}

// A timedSource reports when its counters are sent.
type timedSource struct {
	*fake
	sent func()
}

func (s timedSource) Counters(func(string, uint64, *uint64)) { s.sent() }

func TestCountersAreSentAtTheirInterval(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 1500 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start, sent := time.Now(), []time.Duration(nil)
			from := timedSource{newFake(0), func() { sent = append(sent, time.Since(start)) }}
			s := New(Destination{Network: "tcp", FlushInterval: every}, from, prometheus.NewRegistry(), zap.NewNop())
			s.conn = &idleConn{}
			ctx, cancel := context.WithTimeout(t.Context(), 4*every+every/2)
			defer cancel()
			s.Run(ctx)
			if want := []time.Duration{every, 2 * every, 3 * every, 4 * every, 4*every + every/2}; !slices.Equal(sent, want) {
				t.Errorf("every %v: sent after %v, want %v", every, sent, want)
			}
		})
	}
}

// An idleConn takes all packets at once, and receives none. A write after its deadline fails.
type idleConn struct {
	net.Conn
	deadline time.Time // for writes
	longest  int       // packet, in bytes
	closed   bool
}

func (c *idleConn) Write(b []byte) (int, error) {
	if !time.Now().Before(c.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	c.longest = max(c.longest, len(b))
	return len(b), nil
}

func (c *idleConn) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }
func (*idleConn) SetReadDeadline(time.Time) error      { return nil }
func (*idleConn) Read([]byte) (int, error)             { return 0, os.ErrDeadlineExceeded }
func (c *idleConn) Close() error                       { c.closed = true; return nil }

// A flush that is interrupted keeps the increments that it has not sent, and the next flush sends
// them.
func TestInterruptedFlushKeepsIncrements(t *testing.T) {
	l := newListener()
	f := newFake(1000)
	s := newTestSender(Destination{Network: "udp", Address: listenUDP(t, l), FlushInterval: time.Second}, f, prometheus.NewRegistry(), zap.NewNop())
	s.flush(t.Context(), s.sendTimes) // connects
	s.bounds.burst, s.bounds.pause = 1, time.Hour
	f.total = 1
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan struct{})
	go func() { defer close(flushed); s.flush(ctx, s.sendTimes, s.sendCounters) }()
	cancel()
	<-flushed
	if s.dropped.Load() > 0 || s.sent.Load() > 100 {
		t.Errorf("sent %d, dropped %d after the interruption", s.sent.Load(), s.dropped.Load())
	}
	s.bounds.burst, s.bounds.pause = 32, 10*time.Millisecond
	s.flush(t.Context(), s.sendTimes, s.sendCounters)
	if sent := s.sent.Load(); sent != 1000 {
		t.Errorf("sent %d lines, want 1000", sent)
	}
	_ = s.conn.Close()
}

// A server behind a name may move, and UDP does not report it.
func TestUDPResolvesNameAgain(t *testing.T) {
	l := newListener()
	m := newFixture()
	s := newTestSender(Destination{Network: "udp", Address: listenUDP(t, l), FlushInterval: time.Second}, m, m.registry, zap.NewNop())
	s.bounds.renew = time.Nanosecond
	const name = "ratelimit.service.rate_limit.d.a_1.total_hits"
	var before net.Conn
	for i := range 3 {
		m.hit("d", "a=1")
		if s.flush(t.Context(), s.sendTimes, s.sendCounters); s.conn == before {
			t.Error("the connection was not renewed")
		}
		before = s.conn
		l.await(t, "a hit", func() bool { return l.sum(name) == i+1 })
	}
	s.bounds.renew = time.Hour
	if s.flush(t.Context(), s.sendTimes, s.sendCounters); s.conn != before || s.dropped.Load() > 0 {
		t.Errorf("another connection, or %d lines dropped", s.dropped.Load())
	}
	_ = s.conn.Close()
}

func TestLinesAreSplitIntoPackets(t *testing.T) {
	l := newListener()
	m := newFixture()
	sending(t, m, Destination{Network: "udp", Address: listenUDP(t, l)}, zap.NewNop())
	for i := range 500 {
		m.hit("d", fmt.Sprintf("user=%d", i))
	}
	l.await(t, "all", func() bool {
		for i := range 500 {
			if l.sum(fmt.Sprintf("ratelimit.service.rate_limit.d.user_%d.total_hits", i)) != 1 {
				return false
			}
		}
		return true
	})
}

func TestSampledTimesCarryTheirRate(t *testing.T) {
	d := newDialect(&Destination{})
	if got := d.time("t", 1234*time.Microsecond, .25); got != "t:1.234|ms|@0.250000\n" {
		t.Errorf("%q, want 1.234 ms with a rate of 0.25", got)
	}
}

func TestMogrifiersAreChecked(t *testing.T) {
	for _, c := range []struct{ pattern, name, tags, want string }{
		{"", "n", "", "DOG_STATSD_MOGRIFIER_TAG_PATTERN: is empty"},
		{"(", "n", "", "DOG_STATSD_MOGRIFIER_TAG_PATTERN: error parsing regexp"},
		{"a", "", "", "DOG_STATSD_MOGRIFIER_TAG_NAME: is empty"},
		{"a", "n", ":5", `DOG_STATSD_MOGRIFIER_TAG_TAGS: cannot read ":5": want key:value`},
		{"a", "n", "domain:", `DOG_STATSD_MOGRIFIER_TAG_TAGS: cannot read "domain:": want key:value`},
		{"a", "n", "domain", `DOG_STATSD_MOGRIFIER_TAG_TAGS: cannot read "domain"`},
		{"a", "n", "a:b:c", `DOG_STATSD_MOGRIFIER_TAG_TAGS: cannot read "a:b:c"`},
		{"a", "n$1", "", "$1 names no group: DOG_STATSD_MOGRIFIER_TAG_PATTERN has 0"},
		{"(a)", "n$1", "t:$2", "$2 names no group: DOG_STATSD_MOGRIFIER_TAG_PATTERN has 1"},
		{"(a)", "n$1", "t:$0", ""},
	} {
		_, err := Mogrifiers("TAG", func(name string) string {
			return map[string]string{"DOG_STATSD_MOGRIFIER_TAG_PATTERN": c.pattern,
				"DOG_STATSD_MOGRIFIER_TAG_NAME": c.name, "DOG_STATSD_MOGRIFIER_TAG_TAGS": c.tags}[name]
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got error %v, want %q", c, err, c.want)
		}
	}
	if made, err := Mogrifiers("", nil); len(made) != 0 || err != nil {
		t.Errorf("no mogrifiers: got %v, error %v, want neither", made, err)
	}
	if _, err := Mogrifiers("A,B", func(string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), "DOG_STATSD_MOGRIFIER_A_") || !strings.Contains(err.Error(), "DOG_STATSD_MOGRIFIER_B_") {
		t.Errorf("not all that is wrong: %v", err)
	}
}

// A brokenConn fails the writes after the first good ones.
type brokenConn struct {
	idleConn
	good int
	text string // of the good writes
}

func (c *brokenConn) Write(b []byte) (int, error) {
	if c.good--; c.good < 0 {
		return 0, errors.New("connection reset by peer")
	}
	c.text += string(b)
	return len(b), nil
}

// A failed write loses the lines of its packet only: the next flush sends all later increments, and
// the later response times count as dropped.
func TestFailedWriteLosesOnePacket(t *testing.T) {
	f := newFake(100)
	s := New(Destination{Network: "tcp", FlushInterval: time.Second}, f, prometheus.NewRegistry(), zap.NewNop())
	s.bounds.packetBytes = 1000 // two counters
	s.conn = &brokenConn{good: 2}
	f.total = 1
	s.flush(t.Context(), s.sendTimes, s.sendCounters)
	if s.sent.Load() != 4 || s.dropped.Load() != 2 || s.conn != nil || s.up.Load() {
		t.Errorf("sent %d, dropped %d, connected %v, up %v; want 4 sent and 2 dropped", s.sent.Load(), s.dropped.Load(), s.conn != nil, s.up.Load())
	}
	s.conn, s.proven = &idleConn{}, true
	s.flush(t.Context(), s.sendTimes, s.sendCounters)
	if s.sent.Load() != 98 || s.dropped.Load() != 2 || !s.up.Load() {
		t.Errorf("sent %d, dropped %d, up %v after the outage, want 98 sent", s.sent.Load(), s.dropped.Load(), s.up.Load())
	}

	s.conn = &brokenConn{}
	f.calls, f.times = 500, make([]time.Duration, 250)
	if s.flush(t.Context(), s.sendTimes, s.sendCounters); s.sent.Load() != 98 || s.dropped.Load() != 2+250 {
		t.Errorf("sent %d, dropped %d, want all 250 sampled times to be dropped", s.sent.Load()-98, s.dropped.Load()-2)
	}
	f.calls, f.times = 500, make([]time.Duration, 250)
	if s.flush(t.Context(), s.sendTimes); s.dropped.Load() != 2+500 {
		t.Errorf("dropped %d while not connected, want all 250 sampled times", s.dropped.Load()-252)
	}
}

// Each outage is logged once, and the backoff starts again. A broken connection is closed.
func TestEachOutageIsLogged(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	registry := prometheus.NewRegistry()
	f := newFake(1)
	s := New(Destination{Network: "tcp", FlushInterval: time.Second}, f, registry, zap.New(core))
	s.bounds.connect.Jitter = 0
	up := func() float64 { return metric(t, registry, "weir_statsd_up") }
	for outage := range uint64(3) {
		conn := &brokenConn{good: 1}
		s.conn, s.proven = conn, true
		f.total++
		if s.flush(t.Context(), s.sendTimes, s.sendCounters); up() != 1 || s.conn == nil {
			t.Errorf("up %v, connected %v after a flush, want both", up(), s.conn != nil)
		}
		f.total++
		if s.flush(t.Context(), s.sendTimes, s.sendCounters); up() != 0 || s.conn != nil || !conn.closed {
			t.Errorf("up %v, connected %v, closed %v after a failed write", up(), s.conn != nil, conn.closed)
		}
		if wait := time.Until(s.retryAt); wait <= 0 || wait > time.Second {
			t.Errorf("the next attempt is in %v, want the first wait of the backoff", wait)
		}
		s.flush(t.Context(), s.sendTimes, s.sendCounters)
		if down, back := logs.FilterMessageSnippet("not connected").Len(), logs.FilterMessage("statsd connected").Len(); down != int(outage)+1 || back != int(outage) {
			t.Errorf("after outage %d: %d lines of outages and %d of returns", outage+1, down, back)
		}
	}
	if sent, dropped := metric(t, registry, "weir_statsd_sent_lines_total"), metric(t, registry, "weir_statsd_dropped_lines_total"); sent != 3 || dropped != 3 {
		t.Errorf("counted %v lines sent and %v dropped, want 3 and 3", sent, dropped)
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must.Succeed(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.Metric[0].GetGauge().GetValue() + family.Metric[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Over UDP, a name that can no longer be resolved leaves no connection.
func TestConnectionWithAnUnknownNameIsClosed(t *testing.T) {
	s := New(Destination{Network: "udp", Address: "127.0.0.1:no-port", FlushInterval: time.Second}, newFake(0), prometheus.NewRegistry(), zap.NewNop())
	conn := &idleConn{}
	s.conn, s.opened, s.proven = conn, time.Now().Add(-2*s.bounds.renew), true
	if s.flush(t.Context(), s.sendTimes); s.conn != nil || !conn.closed || s.failures != 1 || s.up.Load() {
		t.Errorf("connected %v, closed %v, %d failures, up %v", s.conn != nil, conn.closed, s.failures, s.up.Load())
	}
}

// A stop interrupts an attempt to connect, which is no failure of the server.
func TestInterruptedConnectIsNoFailure(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	s := New(Destination{Network: "tcp", Address: "127.0.0.1:1", FlushInterval: time.Second}, newFake(0), prometheus.NewRegistry(), zap.New(core))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.flush(ctx, s.sendTimes, s.sendCounters); s.failures != 0 || !s.retryAt.IsZero() || logs.Len() > 0 {
		t.Errorf("%d failures, logged %v, want none", s.failures, logs.All())
	}
}

// A line that fits no datagram is dropped, and all others are sent.
func TestLineLongerThanADatagramIsDropped(t *testing.T) {
	f := newFake(3)
	f.names[1] = strings.Repeat("x", maxDatagramBytes)
	s := New(Destination{Network: "udp", FlushInterval: time.Second}, f, prometheus.NewRegistry(), zap.NewNop())
	conn := &idleConn{}
	s.conn, s.opened, s.proven, f.total = conn, time.Now(), true, 1
	for range 2 { // the line is dropped once
		s.flush(t.Context(), s.sendTimes, s.sendCounters)
	}
	if s.sent.Load() != 2 || s.dropped.Load() != 1 || conn.longest > 1432 {
		t.Errorf("sent %d, dropped %d, a packet of %d bytes; want 2 sent and 1 dropped", s.sent.Load(), s.dropped.Load(), conn.longest)
	}
}

func TestTimesCarryTheFractionOfTheirSample(t *testing.T) {
	f := newFake(0)
	s := New(Destination{Network: "tcp", FlushInterval: time.Second}, f, prometheus.NewRegistry(), zap.NewNop())
	conn := &brokenConn{good: 1}
	s.conn, f.calls, f.times = conn, 8, []time.Duration{time.Millisecond, 2 * time.Millisecond}
	s.flush(t.Context(), s.sendTimes)
	const want = "response_time:1|ms|@0.250000\nresponse_time:2|ms|@0.250000\n"
	if conn.text != want {
		t.Errorf("sent %q, want %q", conn.text, want)
	}
	full := &idleConn{}
	s.conn, s.bounds.packetBytes = full, len(want)
	f.calls, f.times = 8, []time.Duration{time.Millisecond, 2 * time.Millisecond}
	if s.flush(t.Context(), s.sendTimes); full.longest != len(want) {
		t.Errorf("a packet of %d bytes, want both lines in one of %d", full.longest, len(want))
	}
}

// An endedConn is a connection that the server has closed.
type endedConn struct{ idleConn }

func (*endedConn) Read([]byte) (int, error) { return 0, io.EOF }

func TestRestartedServerIsConnectedWithoutAWait(t *testing.T) {
	address, _ := listenTCP(t, "127.0.0.1:0", newListener())
	s := newTestSender(Destination{Network: "tcp", Address: address, FlushInterval: time.Second}, newFake(0), prometheus.NewRegistry(), zap.NewNop())
	ended := &endedConn{}
	s.conn, s.proven = ended, true
	s.up.Store(true)
	if s.flush(t.Context(), s.sendTimes); !ended.closed || s.conn == nil {
		t.Fatalf("closed %v, connected again %v, want both", ended.closed, s.conn != nil)
	}
	_ = s.conn.Close()
}
