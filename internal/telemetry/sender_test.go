package telemetry

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

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/rls"
)

// A listener collects lines that a sender sends, by name: the sum of counters, and how many times there were.
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

func (l *listener) has(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.lines, line)
}

// until waits for what a listener should have got.
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

// listenTCP accepts connections until the function it gives is called, which closes them too.
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

// sending runs a sender until the test ends, or the function it gives is called.
func sending(t *testing.T, m *Metrics, to Destination, log *zap.Logger) (*Sender, func()) {
	t.Helper()
	if to.Every == 0 {
		to.Every = 10 * time.Millisecond
	}
	s := m.NewSender(to, log)
	s.limits.first, s.limits.max = 5*time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	stop := func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return s, stop
}

func TestStatsdIsTold(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			l := newListener()
			address := ""
			if network == "udp" {
				address = listenUDP(t, l)
			} else {
				address, _ = listenTCP(t, "127.0.0.1:0", l)
			}
			m := NewMetrics("test")
			_, stop := sending(t, m, Destination{Network: network, Address: address,
				Tags: map[string]string{"zone": "a.b:c", "env": "prod", "none": ""}}, zap.NewNop())
			const tags = ".__env=prod.__zone=a_b_c"
			const rate = "ratelimit.service.rate_limit.d.user_10_0_0_1.post."
			total := rate + "total_hits" + tags
			for range 5 {
				m.Answered(hit(nil, "d", "user=10.0.0.1", "post="))
				m.incumbent.methods.called("/s/ShouldRateLimit", 1500*time.Microsecond)
			}
			l.until(t, "five hits", func() bool { return l.sum(total) == 5 })
			m.Answered(hit(nil, "d", "user=10.0.0.1", "post="))
			m.Loaded(nil, time.Now(), nil) // drops the series, and its last hit is not lost
			m.Loaded(nil, time.Now(), fmt.Errorf("a bad file"))
			lost := hit(nil, "d", "user=lost")
			lost.Code = codes.Unavailable
			m.Answered(lost)
			m.Answered(&rls.Answer{DomainNotFound: true, Domain: "unknown"})
			stop()
			l.until(t, "the last hit", func() bool { return l.sum(total) == 6 })
			for name, want := range map[string]int{
				rate + "within_limit" + tags:                                    6,
				"ratelimit.service.config_load_success" + tags:                  1,
				"ratelimit.service.config_load_error" + tags:                    1,
				"ratelimit.service.rate_limit.unknown.domain_not_found" + tags:  1,
				"ratelimit.service.call.should_rate_limit.redis_error" + tags:   1,
				"ratelimit.service.call.should_rate_limit.service_error" + tags: 0,
				"ratelimit_server.ShouldRateLimit.total_requests" + tags:        5,
				"ratelimit_server.ShouldRateLimit.response_time" + tags:         5,
			} {
				if got := l.sum(name); got != want {
					t.Errorf("%s: %d, want %d", name, got, want)
				}
			}
			if want := "ratelimit_server.ShouldRateLimit.response_time" + tags + ":1.5|ms"; !l.has(want) {
				t.Errorf("no %s", want)
			}
			for _, line := range l.lines {
				if strings.Contains(line, ":0|c") || strings.Contains(line, "over_limit") {
					t.Errorf("nothing to tell, and yet %s", line)
				}
			}
		})
	}
}

func TestDogstatsdIsTold(t *testing.T) {
	l := newListener()
	env := map[string]string{
		"DOG_STATSD_MOGRIFIER_A_PATTERN": `^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$`,
		"DOG_STATSD_MOGRIFIER_A_NAME":    "ratelimit.service.rate_limit.$3",
		"DOG_STATSD_MOGRIFIER_A_TAGS":    "domain:$1,descriptor:$2",
		"DOG_STATSD_MOGRIFIER_B_PATTERN": `^ratelimit(.*)$`,
		"DOG_STATSD_MOGRIFIER_B_NAME":    "custom$1",
		"DD_ENV":                         "prod",
	}
	getenv := func(name string) string { return env[name] }
	mogrifiers, err := Mogrifiers("a, B", getenv)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMetrics("test")
	_, stop := sending(t, m, Destination{Network: "udp", Address: listenUDP(t, l), Dog: true, DogTags: DogTags(getenv),
		Tags: map[string]string{"DEPLOY": "67890"}, Mogrifiers: mogrifiers}, zap.NewNop())
	m.Answered(hit(nil, "d", "user=x,evil:tag"))
	m.incumbent.methods.called("/s/ShouldRateLimit", 2*time.Millisecond)
	l.until(t, "a hit", func() bool { return l.sum("ratelimit.service.rate_limit.within_limit") == 1 })
	stop()
	for _, want := range []string{
		"ratelimit.service.rate_limit.total_hits:1|c|#env:prod,DEPLOY:67890,domain:d,descriptor:user_x_evil_tag",
		"custom_server.ShouldRateLimit.response_time:2|ms|#env:prod,DEPLOY:67890",
		"custom_server.ShouldRateLimit.total_requests:1|c|#env:prod,DEPLOY:67890",
	} {
		if !l.has(want) {
			t.Errorf("no %s in\n%s", want, strings.Join(l.lines, "\n"))
		}
	}
}

func TestWhileStatsdIsAwayCountersWait(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := newListener()
	address, stop := listenTCP(t, "127.0.0.1:0", l)
	m := NewMetrics("test")
	s, _ := sending(t, m, Destination{Network: "tcp", Address: address}, zap.New(core))
	const name = "ratelimit.service.rate_limit.d.a_1.total_hits"
	m.Answered(hit(nil, "d", "a=1"))
	l.until(t, "a hit", func() bool { return l.sum(name) == 1 })
	stop()
	l.until(t, "an end", func() bool { return !s.up.Load() })
	for range 100 {
		m.Answered(hit(nil, "d", "a=1"))
		m.incumbent.methods.called("/s/ShouldRateLimit", time.Millisecond)
	}
	l.until(t, "times dropped", func() bool { return s.dropped.Load() >= 100 })
	listenTCP(t, address, l)
	l.until(t, "all hits", func() bool { return l.sum(name) == 101 })
	l.until(t, "up", s.up.Load)
	if n := logs.FilterMessageSnippet("is not reached").Len(); n != 1 {
		t.Errorf("%d lines for one outage: %v", n, logs.All())
	}
	if n := logs.FilterMessageSnippet("is reached").Len(); n != 1 {
		t.Errorf("%d lines for one return: %v", n, logs.All())
	}
}

// To nobody, UDP sends without an error, but for one that comes back later.
func TestUDPToNobodyIsToldOnce(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := conn.LocalAddr().String()
	_ = conn.Close()
	core, logs := observer.New(zapcore.InfoLevel)
	m := NewMetrics("test")
	s, stop := sending(t, m, Destination{Network: "udp", Address: address}, zap.New(core))
	newListener().until(t, "ten connections to nobody", func() bool {
		m.Answered(hit(nil, "d", "a=1"))
		return s.sent.Load() >= 20 // each takes one packet, of two lines
	})
	stop()
	if s.up.Load() {
		t.Error("up")
	}
	if n := logs.FilterMessageSnippet("is not reached").Len(); n != 1 {
		t.Errorf("%d lines for one outage: %v", n, logs.All())
	}
}

// A server that takes connections and reads nothing holds the sender for no longer than its deadline, and nobody else.
func TestAStuckServerHoldsNobody(t *testing.T) {
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listening.Close() })
	m := NewMetrics("test", MaxSeries(1<<20))
	s := m.NewSender(Destination{Network: "tcp", Address: listening.Addr().String(), Every: time.Second}, zap.NewNop())
	s.limits.wait = 50 * time.Millisecond
	for range 100 { // more than the buffers of a connection hold
		for i := range 2000 {
			m.Answered(hit(nil, "d", fmt.Sprintf("user=%d%s", i, strings.Repeat("x", 150))))
		}
		if s.flush(t.Context(), true); s.conn == nil {
			break
		}
	}
	if s.conn != nil || s.dropped.Load() == 0 || s.up.Load() {
		t.Errorf("connected %v, dropped %d, up %v", s.conn != nil, s.dropped.Load(), s.up.Load())
	}
}

// A server behind a name may move, and UDP does not tell.
func TestUDPLooksUpTheNameAgain(t *testing.T) {
	l := newListener()
	m := NewMetrics("test")
	s := m.NewSender(Destination{Network: "udp", Address: listenUDP(t, l), Every: time.Second}, zap.NewNop())
	s.limits.renew = time.Nanosecond
	const name = "ratelimit.service.rate_limit.d.a_1.total_hits"
	var before net.Conn
	for i := range 3 {
		m.Answered(hit(nil, "d", "a=1"))
		if s.flush(t.Context(), true); s.conn == before {
			t.Error("the connection is that of before")
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

func TestMoreThanAPacketIsSeveral(t *testing.T) {
	l := newListener()
	m := NewMetrics("test")
	sending(t, m, Destination{Network: "udp", Address: listenUDP(t, l)}, zap.NewNop())
	for i := range 500 {
		m.Answered(hit(nil, "d", fmt.Sprintf("user=%d", i)))
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

func TestTimesThatStandForMoreSaySo(t *testing.T) {
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
