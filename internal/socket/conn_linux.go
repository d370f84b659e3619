package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Wrap returns a connection whose Read and Write bypass the scheduler. Each is one system call if
// the socket has data or room, and otherwise waits as in c, up to the deadline of c. Wrap returns c
// itself unless c is a TCP or Unix socket of package net, because a wrapper such as TLS must not be
// bypassed.
func Wrap(c net.Conn) net.Conn {
	var raw syscall.RawConn
	var err error
	switch s := c.(type) {
	case *net.TCPConn:
		raw, err = s.SyscallConn()
	case *net.UnixConn:
		raw, err = s.SyscallConn()
	default:
		return c
	}
	if err != nil {
		return c // it is closed, so its methods return the error
	}
	q := &conn{Conn: c, raw: raw}
	q.reading.call, q.reading.try = read, q.reading.transferOnce
	q.writing.call, q.writing.try = write, q.writing.transferAll
	return q
}

// Reader returns a reader of a non-blocking descriptor, such as a kernel timer, that bypasses the
// scheduler as [Wrap] does.
func Reader(raw syscall.RawConn) io.Reader {
	t := &transfer{call: read}
	t.try = t.transferOnce
	return reader{t, raw}
}

type reader struct {
	*transfer
	raw syscall.RawConn
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) { return r.read(r.raw, b) }

type conn struct {
	net.Conn
	raw              syscall.RawConn
	reading, writing transfer
}

// A transfer is a Read or a Write in progress.
type transfer struct {
	sync.Mutex
	call  func(fd uintptr, b []byte) (int, syscall.Errno)
	try   func(fd uintptr) (done bool)
	bytes []byte // still to transfer
	n     int    // transferred
	err   syscall.Errno
}

// run transfers b. wait calls its function whenever the socket is ready, until it returns true.
func (t *transfer) run(wait func(func(uintptr) bool) error, b []byte) (int, error) {
	t.bytes, t.n, t.err = b, 0, 0
	err := wait(t.try)
	t.bytes = nil
	if err == nil && t.err != 0 {
		err = t.err
	}
	return t.n, err
}

// read reads available data, or waits for some. A read of 0 bytes into a non-empty b is EOF.
func (t *transfer) read(raw syscall.RawConn, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	t.Lock()
	defer t.Unlock()
	n, err := t.run(raw.Read, b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// transferOnce makes one system call. It returns false if the socket is not ready.
func (t *transfer) transferOnce(fd uintptr) (done bool) {
	for {
		n, err := t.call(fd, t.bytes)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		case 0:
			t.n += n
			t.bytes = t.bytes[n:]
		}
		t.err = err
		return true
	}
}

// transferAll transfers all bytes.
func (t *transfer) transferAll(fd uintptr) (done bool) {
	for len(t.bytes) > 0 && t.err == 0 {
		if !t.transferOnce(fd) {
			return false
		}
	}
	return true
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.reading.read(c.raw, b)
	if err != nil {
		err = c.error("read", err)
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.writing.run(c.raw.Write, b)
	if err != nil {
		err = c.error("write", err)
	}
	return n, err
}

// error wraps err as package net does.
func (c *conn) error(call string, err error) error {
	var no syscall.Errno
	var op *net.OpError // from a wait, with the operation raw-read or raw-write
	switch {
	case errors.As(err, &op):
		op.Op = call
	case errors.As(err, &no):
		err = &net.OpError{Op: call, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(call, no)}
	}
	return err
}

// SyscallConn implements [syscall.Conn]. go-redis uses it before each call to check whether the
// peer has closed the connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c.raw}, nil }

type rawConn struct{ syscall.RawConn }

// Read implements [syscall.RawConn]. It calls f only if there is data or the connection is closed.
func (r rawConn) Read(f func(fd uintptr) bool) error {
	return r.RawConn.Read(func(fd uintptr) bool { return wouldBlock(fd) || f(fd) })
}
