package streamdone

import (
	"net"
	"sync"
	"testing"
)

// A gate is a proxy in front of Redis. While it is closed, Redis receives commands, and its replies wait.
type gate struct {
	addr string

	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
	conns  []net.Conn
}

// newGate starts an open gate that ends with the test.
func newGate(t *testing.T, redis string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), opened: make(chan struct{})}
	close(g.opened)
	var pumps sync.WaitGroup
	pumps.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", redis)
			if err != nil {
				_ = client.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, client, server)
			g.mu.Unlock()
			pumps.Go(func() { g.carry(server, client, false) })
			pumps.Go(func() { g.carry(client, server, true) })
		}
	})
	t.Cleanup(func() {
		g.open()
		_ = l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		pumps.Wait()
	})
	return g
}

func (g *gate) carry(to, from net.Conn, replies bool) {
	defer to.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if replies {
			g.mu.Lock()
			opened := g.opened
			g.mu.Unlock()
			<-opened
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// close holds replies from now on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

// open lets the held replies pass. An open gate stays open.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}
