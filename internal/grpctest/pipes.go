package grpctest

import (
	"net"
	"sync"
)

// Pipes is a listener of connections in memory. It needs no network, so that it can be in a bubble
// of synctest. Unlike bufconn, it connects before Accept, and returns that connection after Close
// too.
type Pipes struct {
	conns   chan net.Conn
	closing sync.Once
	closed  chan struct{}
}

// NewPipes returns a Pipes without connections.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn, 1), closed: make(chan struct{})} }

// Connect returns the client of a connection that Accept returns. It waits while another connection
// is not accepted.
func (p *Pipes) Connect() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// Accept implements net.Listener. It returns a waiting connection even after Close, because the
// network may do so too.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	default:
	}
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	p.closing.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{} }
