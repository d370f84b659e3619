package socket_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/socket"
)

// pair returns both sides of a connection.
func pair(network, address string) (a, b net.Conn, err error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var accepting sync.WaitGroup
	var refused error
	accepting.Go(func() { b, refused = l.Accept() })
	a, err = net.Dial(network, l.Addr().String())
	accepting.Wait()
	return a, b, errors.Join(err, refused)
}

func tcp(t *testing.T) (quick, other net.Conn) {
	t.Helper()
	a, b, err := pair("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return socket.Wrap(a), b
}

// The connection behaves like every net.Conn: deadlines, closing during a read, concurrent use.
func TestWrappedConnPassesNettest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ network, address string }{
		{"tcp", "127.0.0.1:0"},
		{"unix", filepath.Join(t.TempDir(), "socket")},
	} {
		t.Run(c.network, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b, err := pair(c.network, c.address)
				if err != nil {
					return nil, nil, nil, err
				}
				a, b = socket.Wrap(a), socket.Wrap(b)
				return a, b, func() {
					_ = a.Close()
					_ = b.Close()
				}, nil
			})
		})
	}
}

// A write that exceeds the buffer of the socket continues as the peer reads.
func TestWriteLargerThanSocketBufferCompletes(t *testing.T) {
	t.Parallel()
	c, other := tcp(t)
	const size = 64 << 20
	var got int64
	var reading sync.WaitGroup
	reading.Go(func() { got, _ = io.Copy(io.Discard, other) })
	n, err := c.Write(make([]byte, size))
	_ = c.Close()
	if reading.Wait(); err != nil || n != size || got != size {
		t.Errorf("wrote %d bytes (%v), %d came, want %d", n, err, got, size)
	}
}

// Errors are those that package net would return.
func TestErrorsMatchPackageNet(t *testing.T) {
	t.Parallel()
	t.Run("the peer has closed", func(t *testing.T) {
		t.Parallel()
		c, other := tcp(t)
		_ = other.Close()
		if n, err := c.Read(make([]byte, 8)); n != 0 || err != io.EOF { //nolint:errorlint // as io.Reader says
			t.Errorf("%d, %v, want EOF", n, err)
		}
	})
	// Each call has its own connection, because the kernel reports a reset only once.
	for name, call := range map[string]func(net.Conn, []byte) (int, error){"read": net.Conn.Read, "write": net.Conn.Write} {
		t.Run("the connection was reset/"+name, func(t *testing.T) {
			t.Parallel()
			c, other := tcp(t)
			_ = other.(*net.TCPConn).SetLinger(0)
			_ = other.Close()
			var op *net.OpError
			_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
			var err error
			for err == nil { // it may not have come yet when the first bytes are written
				_, err = call(c, make([]byte, 8))
			}
			if !errors.As(err, &op) || op.Op != name || op.Addr.String() != c.RemoteAddr().String() || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v (%T), want a reset of the connection to %v", err, err, c.RemoteAddr())
			}
		})
	}
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		c, _ := tcp(t)
		_ = c.Close()
		for name, call := range map[string]func([]byte) (int, error){"read": c.Read, "write": c.Write} {
			var op *net.OpError
			if _, err := call(make([]byte, 8)); !errors.As(err, &op) || op.Op != name || !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v, want %s: %v", err, name, net.ErrClosed)
			}
		}
	})
}

// peek checks a connection as go-redis does before a call. It returns -1 if there is nothing to
// read, 0 if the peer has closed it.
func peek(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	must.Succeed(t, err)
	n = -1
	if err := raw.Read(func(fd uintptr) bool {
		n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// The check before a call sees data, and the end of the connection.
func TestPeekSeesClosedConnection(t *testing.T) {
	t.Parallel()
	c, other := tcp(t)
	if n := peek(t, c); n != -1 {
		t.Errorf("%d bytes, want nothing", n)
	}
	if _, err := other.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	sees := func(want int) {
		t.Helper()
		must.Until(t, fmt.Sprintf("a peek of %d bytes", want), func() bool { return peek(t, c) == want })
	}
	sees(1)
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if n := peek(t, c); n != -1 {
		t.Errorf("%d bytes, want nothing", n)
	}
	_ = other.Close()
	sees(0)
}

// Wrap returns other connections unchanged.
func TestWrapReturnsOtherConnectionsUnchanged(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	quick, _ := tcp(t)
	for _, c := range []net.Conn{a, quick, struct{ net.Conn }{quick}} {
		if got := socket.Wrap(c); got != c {
			t.Errorf("%T, want %T", got, c)
		}
	}
}
