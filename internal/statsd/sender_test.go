package statsd

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A listener collects the lines that a sender sends. sums has, by name, the sum of a counter or the number of times.
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

func (l *listener) has(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.lines, line)
}

// until waits until is returns true.
func (l *listener) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(10 * time.Second)
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
	if err != nil {
		t.Fatal(err)
	}
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

// listenTCP accepts connections. The function that it returns closes the listener and all connections.
func listenTCP(t *testing.T, address string, l *listener) (string, func()) {
	t.Helper()
	listening, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
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

// sending runs a sender until the test ends or the function that it returns is called.
func sending(t *testing.T, m *fixture, to Destination, log *zap.Logger) (*Sender, func()) {
	t.Helper()
	if to.Every == 0 {
		to.Every = 10 * time.Millisecond
	}
	s := New(to, m, m.registry, log)
	s.limits.connect.Initial, s.limits.connect.Max = 5*time.Millisecond, 20*time.Millisecond
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
	l.until(t, "a hit", func() bool { return l.sum(name) == 1 })
	stop()
	l.until(t, "an end", func() bool { return !s.up.Load() })
	for range 100 {
		m.hit("d", "a=1")
		m.call(0)
	}
	l.until(t, "times dropped", func() bool { return s.dropped.Load() >= 100 })
	listenTCP(t, address, l)
	l.until(t, "all hits", func() bool { return l.sum(name) == 101 })
	l.until(t, "up", s.up.Load)
	if n := logs.FilterMessageSnippet("not connected").Len(); n != 1 {
		t.Errorf("%d lines for one outage: %v", n, logs.All())
	}
	if n := logs.FilterMessageSnippet("statsd: connected").Len(); n != 1 {
		t.Errorf("%d lines for one return: %v", n, logs.All())
	}
}

// Without a server, UDP reports an error only on the packet after the first.
func TestUDPWithoutServerIsLoggedOnce(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := conn.LocalAddr().String()
	_ = conn.Close()
	core, logs := observer.New(zapcore.InfoLevel)
	m := newFixture()
	s, stop := sending(t, m, Destination{Network: "udp", Address: address}, zap.New(core))
	newListener().until(t, "ten connections to nobody", func() bool {
		m.hit("d", "a=1")
		return s.sent.Load() >= 20 // each takes one packet, of two lines
	})
	stop()
	if s.up.Load() {
		t.Error("up")
	}
	if n := logs.FilterMessageSnippet("not connected").Len(); n != 1 {
		t.Errorf("%d lines for one outage: %v", n, logs.All())
	}
}

// A server that accepts connections and reads nothing blocks a flush for limits.wait at most.
func TestStuckStatsdServerTimesOut(t *testing.T) {
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listening.Close() })
	f := newFake(2000)
	s := New(Destination{Network: "tcp", Address: listening.Addr().String(), Every: time.Second}, f,
		prometheus.NewRegistry(), zap.NewNop())
	s.limits.wait = 50 * time.Millisecond
	for range 100 { // more than the buffers of a connection hold
		f.total++
		if s.flush(t.Context(), true); s.conn == nil {
			break
		}
	}
	if s.conn != nil || s.dropped.Load() == 0 || s.up.Load() {
		t.Errorf("connected %v, dropped %d, up %v", s.conn != nil, s.dropped.Load(), s.up.Load())
	}
}

// 10,000 series with names as long as those of Envoy Gateway, of which three counters change, are 30,000 lines. On UDP they
// need pauses of more than limits.wait together, which must not count as a failure of the server.
func TestManyLongSeriesReachAHealthyServer(t *testing.T) {
	const series = 30_000
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			l := newListener()
			address := ""
			if network == "udp" {
				address = listenUDP(t, l)
			} else {
				address, _ = listenTCP(t, "127.0.0.1:0", l)
			}
			core, logs := observer.New(zapcore.InfoLevel)
			f := newFake(series)
			s := New(Destination{Network: network, Address: address, Every: time.Second}, f, prometheus.NewRegistry(), zap.New(core))
			f.calls, f.times = 1, []time.Duration{time.Second}
			s.flush(t.Context(), false) // UDP: the first packet proves the connection
			f.total = 1
			s.flush(t.Context(), true)
			if sent, dropped := s.sent.Load(), s.dropped.Load(); sent != series+1 || dropped > 0 || !s.up.Load() || logs.Len() > 0 {
				t.Errorf("sent %d, dropped %d, up %v, logged %v; want %d sent, none dropped", sent, dropped, s.up.Load(), logs.All(), series+1)
			}
			if s.conn != nil {
				_ = s.conn.Close()
			}
			if network == "udp" {
				return // the kernel may drop datagrams on a busy machine
			}
			l.until(t, "all counters", func() bool { return l.total() == series+1 })
		})
	}
}

// A flush that is interrupted keeps the increments that it has not sent, and the next flush sends them.
func TestInterruptedFlushKeepsIncrements(t *testing.T) {
	l := newListener()
	f := newFake(1000)
	s := New(Destination{Network: "udp", Address: listenUDP(t, l), Every: time.Second}, f, prometheus.NewRegistry(), zap.NewNop())
	s.flush(t.Context(), false) // connects
	s.limits.burst, s.limits.pause = 1, time.Hour
	f.total = 1
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan struct{})
	go func() { defer close(flushed); s.flush(ctx, true) }()
	cancel()
	<-flushed
	if s.dropped.Load() > 0 || s.sent.Load() > 100 {
		t.Errorf("sent %d, dropped %d after the interruption", s.sent.Load(), s.dropped.Load())
	}
	s.limits.burst, s.limits.pause = 32, 10*time.Millisecond
	s.flush(t.Context(), true)
	if sent := s.sent.Load(); sent != 1000 {
		t.Errorf("sent %d lines, want 1000", sent)
	}
	_ = s.conn.Close()
}

// A server behind a name may move, and UDP does not report it.
func TestUDPResolvesNameAgain(t *testing.T) {
	l := newListener()
	m := newFixture()
	s := New(Destination{Network: "udp", Address: listenUDP(t, l), Every: time.Second}, m, m.registry, zap.NewNop())
	s.limits.renew = time.Nanosecond
	const name = "ratelimit.service.rate_limit.d.a_1.total_hits"
	var before net.Conn
	for i := range 3 {
		m.hit("d", "a=1")
		if s.flush(t.Context(), true); s.conn == before {
			t.Error("the connection was not renewed")
		}
		before = s.conn
		l.until(t, "a hit", func() bool { return l.sum(name) == i+1 })
	}
	s.limits.renew = time.Hour
	if s.flush(t.Context(), true); s.conn != before || s.dropped.Load() > 0 {
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
	l.until(t, "all", func() bool {
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
	if got := string(d.time(nil, "t", 1234*time.Microsecond, .25)); got != "t:1.234|ms|@0.250000\n" {
		t.Errorf("%q", got)
	}
}

func TestMogrifiersAreChecked(t *testing.T) {
	for _, c := range []struct{ pattern, name, tags, want string }{
		{"", "n", "", "no PATTERN specified for mogrifier TAG"},
		{"(", "n", "", "failed to compile pattern for TAG: (: error parsing regexp"},
		{"a", "", "", "no NAME specified for mogrifier TAG"},
		{"a", "n", ":5", "no key specified for tag"},
		{"a", "n", "domain:", "no value specified for tag"},
		{"a", "n", "domain", "invalid map item"},
		{"a", "n", "a:b:c", "invalid map item"},
		{"a", "n$1", "", "$1 for mogrifier TAG: the pattern has 0 groups"},
		{"(a)", "n$1", "t:$2", "$2 for mogrifier TAG: the pattern has 1 groups"},
		{"(a)", "n$1", "t:$0", ""},
	} {
		_, err := Mogrifiers("TAG", func(name string) string {
			return map[string]string{"DOG_STATSD_MOGRIFIER_TAG_PATTERN": c.pattern,
				"DOG_STATSD_MOGRIFIER_TAG_NAME": c.name, "DOG_STATSD_MOGRIFIER_TAG_TAGS": c.tags}[name]
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if made, err := Mogrifiers("", nil); len(made) != 0 || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	if _, err := Mogrifiers("A,B", func(string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), "mogrifier A") || !strings.Contains(err.Error(), "mogrifier B") {
		t.Errorf("not all that is wrong: %v", err)
	}
}
