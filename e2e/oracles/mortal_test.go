package oracles

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A mortal is a connection to Redis whose client dies after a given number of bytes, even in the
// middle of a command. Redis receives these bytes and then the end of the connection.
type mortal struct {
	listener net.Listener
	redis    string
	pumps    sync.WaitGroup

	mu   sync.Mutex
	dies bool
	left int // bytes until the client dies
	said int // bytes sent in all
}

func newMortal(t *testing.T, redis string) *mortal {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	m := &mortal{listener: listener, redis: redis}
	m.pumps.Go(m.accept)
	t.Cleanup(m.close)
	return m
}

func (m *mortal) addr() string { return m.listener.Addr().String() }

// close closes the connection. Close the client first.
func (m *mortal) close() {
	_ = m.listener.Close()
	m.pumps.Wait()
}

// after makes the client die after n more bytes.
func (m *mortal) after(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dies, m.left = true, bytes
}

func (m *mortal) saidSoFar() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said
}

// lets returns how many of n bytes the client still sends, and if it survives.
func (m *mortal) lets(n int) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said += n
	if !m.dies {
		return n, true
	}
	n = min(n, m.left)
	m.left -= n
	return n, m.left > 0
}

func (m *mortal) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", m.redis)
		if err != nil {
			_ = client.Close()
			continue
		}
		m.pumps.Go(func() { m.listen(client, server) })
		m.pumps.Go(func() {
			_, _ = io.Copy(client, server)
			_, _ = io.Copy(io.Discard, server)
			_ = server.Close()
		})
	}
}

// listen forwards the client's bytes while it lives. It closes only its own half, so Redis reads to
// the end.
func (m *mortal) listen(client, server net.Conn) {
	buf := make([]byte, 4096)
	for lives := true; lives; {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		n, lives = m.lets(n)
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = client.Close()
	_ = server.(*net.TCPConn).CloseWrite()
}

// This is the answer to oneCounter: wherever in a call the client dies, either nothing is written
// or the key has an expiry.
func TestNoDyingClientLeavesAKeyWithoutExpiry(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	server := redistest.Start(t)
	specs := []limiters.Spec{
		firstHit(10, day),
		byTheClock(10, day),
		{Algorithm: "sliding_log", Max: 10, Window: day},
		{Algorithm: "funnel", Max: 10, Window: day},
	}
	groupsOn := func(key string) []limiters.Group {
		ops := make([]limiters.Op, len(specs))
		for i, spec := range specs {
			ops[i] = limiters.Op{Key: key, Limit: newLimit(t, spec), Hits: 1}
		}
		return limiters.Singles(ops...)
	}
	// One call on one connection, by Redis' own clock as in production.
	call := func(key string, arm func(*mortal)) error {
		wire := newMortal(t, server.Addr)
		defer wire.close()
		store := redisstore.New(connect.Options{Addr: wire.addr(), Timeout: time.Minute}, redisstore.Options{})
		defer store.Close()
		out := make([]limiters.Verdict, len(specs))
		must.Succeed(t, store.Take(t.Context(), groupsOn("warm"), out))
		arm(wire)
		return store.Take(t.Context(), groupsOn(key), out)
	}

	var wire *mortal
	before := 0
	must.Succeed(t, call("all", func(m *mortal) { wire, before = m, m.saidSoFar() }))
	length := wire.saidSoFar() - before
	for cut := range length {
		if call("cut", func(m *mortal) { m.after(cut) }) == nil {
			t.Fatalf("a client that died %d bytes into %d had an answer", cut, length)
		}
	}

	watch := server.Client(t)
	ends := func() int {
		t.Helper()
		// Redis sees the client's end only after all its bytes.
		for clients := 0; clients != 1; {
			clients = strings.Count(resultOf(t, watch.ClientList(t.Context())), "\n")
		}
		keys := resultOf(t, watch.Keys(t.Context(), "*"))
		for _, key := range keys {
			if resultOf(t, watch.PTTL(t.Context(), key)) < 0 {
				t.Errorf("%q has no end", key)
			}
		}
		return len(keys)
	}
	if got, want := ends(), 2*len(specs); got != want {
		t.Errorf("%d keys, want %d: half a call writes nothing", got, want)
	}
	// With the last byte the call is complete, although no client reads the reply.
	_ = call("cut", func(m *mortal) { m.after(length) })
	if got, want := ends(), 3*len(specs); got != want {
		t.Errorf("%d keys, want %d: a whole call writes all of them", got, want)
	}
}

// dieBeforeExpire is a client of oneCounter, which dies between its two commands.
func dieBeforeExpire(t *testing.T, addr, key string) {
	t.Helper()
	wire := newMortal(t, addr)
	client := redis.NewClient(&redis.Options{Addr: wire.addr(), MaxRetries: -1})
	defer client.Close()
	if n := resultOf(t, client.Incr(t.Context(), key)); n != 1 {
		t.Fatalf("INCR says %d", n)
	}
	wire.after(0)
	if err := client.Expire(t.Context(), key, time.Second).Err(); err == nil {
		t.Fatal("the client lives")
	}
}
