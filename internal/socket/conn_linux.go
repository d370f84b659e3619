package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Quick returns c as a connection whose Read and Write are one system call each, that the scheduler does not see, as long as
// the socket has something to read or room to write; else they wait as those of c do, and no longer than its deadlines. A c
// that is no socket of package net is returned as it is: what others put before one, such as TLS, is not to be gone around.
func Quick(c net.Conn) net.Conn {
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
		return c // it is closed, as whoever uses it will be told
	}
	q := &conn{Conn: c, raw: raw}
	q.reading.call, q.reading.try = read, q.reading.once
	q.writing.call, q.writing.try = write, q.writing.all
	return q
}

// Reader reads raw, which does not block, such as a timer of the kernel, by one system call as [Quick]'s Read does, and waits
// where there is nothing to read.
func Reader(raw syscall.RawConn) io.Reader {
	t := &transfer{call: read}
	t.try = t.once
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

// A transfer is a Read or a Write under way, of which there may be one at a time.
type transfer struct {
	sync.Mutex
	call  func(fd uintptr, b []byte) (int, syscall.Errno)
	try   func(fd uintptr) (done bool)
	bytes []byte // that are to be moved yet
	n     int    // that have been moved
	err   syscall.Errno
}

// run moves bytes, by what waits until the socket is ready and then calls try, again and again until that is done.
func (t *transfer) run(wait func(func(uintptr) bool) error, b []byte) (int, error) {
	t.bytes, t.n, t.err = b, 0, 0
	err := wait(t.try)
	t.bytes = nil
	if err == nil && t.err != 0 {
		err = t.err
	}
	return t.n, err
}

// read moves what there is to read, or waits for it. EOF is no byte of some that were asked for.
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

// once moves what can be moved at once. It is not done if that is nothing.
func (t *transfer) once(fd uintptr) (done bool) {
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

// all moves all bytes.
func (t *transfer) all(fd uintptr) (done bool) {
	for len(t.bytes) > 0 && t.err == 0 {
		if !t.once(fd) {
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

// error is err as package net would say it.
func (c *conn) error(call string, err error) error {
	var no syscall.Errno
	var op *net.OpError // of a wait: raw-read or raw-write
	switch {
	case errors.As(err, &op):
		op.Op = call
	case errors.As(err, &no):
		err = &net.OpError{Op: call, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(call, no)}
	}
	return err
}

// SyscallConn implements [syscall.Conn], for who looks whether the other side has closed the connection before it is used
// again, as go-redis does before each call: there is nothing to see as long as there is nothing to read.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c.raw}, nil }

type rawConn struct{ syscall.RawConn }

// Read implements [syscall.RawConn], but it calls f only if there is something to read, or an end.
func (r rawConn) Read(f func(fd uintptr) bool) error {
	return r.RawConn.Read(func(fd uintptr) bool { return nothing(fd) || f(fd) })
}
