package redistest

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// A Proxy is a proxy in front of a Redis. It can cut the connection after Redis has run a script
// and before the reply.
type Proxy struct {
	Addr string

	listener net.Listener
	pumps    sync.WaitGroup

	mu    sync.Mutex
	redis string
	delay time.Duration // added to each request
	cuts  bool
	calls int
	open  map[net.Conn]bool
}

// NewProxy starts a proxy that ends with the test.
func NewProxy(tb testing.TB) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(tb, err)
	p := &Proxy{Addr: l.Addr().String(), listener: l, open: map[net.Conn]bool{}}
	p.pumps.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// SlowProxy starts a proxy in front of a Redis that adds roundTrip to each round trip. It returns
// its address. The proxy ends with the test.
func SlowProxy(tb testing.TB, addr string, roundTrip time.Duration) string {
	tb.Helper()
	p := NewProxy(tb)
	p.SetTarget(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = roundTrip
	return p.Addr
}

// SetTarget sets the address of the Redis for new connections.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redis = addr
}

// Cut sets whether to cut a connection when Redis replies to a script.
func (p *Proxy) Cut(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = is
}

// Calls returns the number of scripts that were sent through the proxy.
func (p *Proxy) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.pumps.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		server, err := net.Dial("tcp", p.redis)
		if err != nil {
			_ = client.Close()
		} else {
			p.open[client], p.open[server] = true, true
			called := make(chan struct{}, 1)
			delay := p.delay
			p.pumps.Go(func() { p.ask(client, server, delay, called) })
			p.pumps.Go(func() { p.answer(client, server, called) })
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) ask(client, server net.Conn, delay time.Duration, called chan<- struct{}) {
	defer server.Close()
	var requests io.Writer = server
	if delay > 0 {
		delayed := newDelayed(server, delay)
		defer delayed.Close()
		requests = delayed
	}
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if calls := countCalls(buf[:n]); calls > 0 {
			p.mu.Lock()
			p.calls += calls
			if p.cuts {
				select {
				case called <- struct{}{}:
				default:
				}
			}
			p.mu.Unlock()
		}
		if _, err := requests.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A delayedWriter is a writer that returns immediately, and writes to another writer after a delay.
type delayedWriter struct {
	delay   time.Duration
	pieces  chan piece
	writing sync.WaitGroup
}

type piece struct {
	data []byte
	due  time.Time
}

func newDelayed(to io.Writer, delay time.Duration) *delayedWriter {
	d := &delayedWriter{delay: delay, pieces: make(chan piece, 1024)}
	d.writing.Go(func() {
		for p := range d.pieces {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.data)
		}
	})
	return d
}

// Write implements [io.Writer].
func (d *delayedWriter) Write(data []byte) (int, error) {
	d.pieces <- piece{bytes.Clone(data), time.Now().Add(d.delay)}
	return len(data), nil
}

// Close waits for the last write.
func (d *delayedWriter) Close() {
	close(d.pieces)
	d.writing.Wait()
}

// countCalls counts the scripts in data from a client, assuming that each command is written at
// once.
func countCalls(said []byte) int {
	said = bytes.ToLower(said)
	return strings.Count(string(said), "\r\nevalsha\r\n") + strings.Count(string(said), "\r\neval\r\n")
}

func (p *Proxy) answer(client, server net.Conn, called <-chan struct{}) {
	defer client.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-called:
			return
		default:
		}
		if _, err := io.Copy(client, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}
