package redistest

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// A Wire is a proxy in front of a Redis that can be cut between a call and its answer: Redis has run it, and nobody
// hears of it.
type Wire struct {
	Addr string

	listener net.Listener
	pumps    sync.WaitGroup

	mu    sync.Mutex
	redis string
	cuts  bool
	calls int
	open  map[net.Conn]bool
}

// NewWire opens a wire that ends with the test.
func NewWire(tb testing.TB) *Wire {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	w := &Wire{Addr: l.Addr().String(), listener: l, open: map[net.Conn]bool{}}
	w.pumps.Go(w.accept)
	tb.Cleanup(w.close)
	return w
}

// To says where the wire leads.
func (w *Wire) To(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis = addr
}

// Cut cuts every connection from now on when Redis answers to a script, or lets them be.
func (w *Wire) Cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts = is
}

// Calls is how many scripts went through the wire.
func (w *Wire) Calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func (w *Wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for conn := range w.open {
		_ = conn.Close()
	}
	w.mu.Unlock()
	w.pumps.Wait()
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		server, err := net.Dial("tcp", w.redis)
		if err != nil {
			_ = client.Close()
		} else {
			w.open[client], w.open[server] = true, true
			called := make(chan struct{}, 1)
			w.pumps.Go(func() { w.ask(client, server, called) })
			w.pumps.Go(func() { w.answer(client, server, called) })
		}
		w.mu.Unlock()
	}
}

func (w *Wire) ask(client, server net.Conn, called chan<- struct{}) {
	defer server.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if calls := countCalls(buf[:n]); calls > 0 {
			w.mu.Lock()
			w.calls += calls
			if w.cuts {
				select {
				case called <- struct{}{}:
				default:
				}
			}
			w.mu.Unlock()
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// countCalls counts the scripts in what a client says. Clients write a call at once, and begin with its name.
func countCalls(said []byte) int {
	said = bytes.ToLower(said)
	return strings.Count(string(said), "\r\nevalsha\r\n") + strings.Count(string(said), "\r\neval\r\n")
}

func (w *Wire) answer(client, server net.Conn, called <-chan struct{}) {
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
