// Package relay forwards TCP connections for tests, which may delay or change their bytes.
package relay

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A Wrap returns the writers through which the requests and the replies of a connection pass. It
// gets the connection to the server and that to the client. An error of a writer ends both. If
// requests is an [io.Closer], it is closed after the last request.
type Wrap func(server, client io.Writer) (requests, replies io.Writer)

// Start forwards connections until the test ends, and returns the address that clients connect to.
// server returns the address for a new connection. It is not called concurrently.
func Start(tb testing.TB, server func() string, wrap Wrap) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(tb, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to := server()
			running.Go(func() { forward(ctx, client, to, wrap) })
		}
	})
	tb.Cleanup(func() {
		stop()
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// forward forwards one connection until either side or ctx ends.
func forward(ctx context.Context, client net.Conn, to string, wrap Wrap) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	requests, replies := wrap(server, client)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(replies, server)
		_ = client.Close()
	})
	_, _ = io.Copy(requests, client)
	if c, is := requests.(io.Closer); is {
		_ = c.Close()
	}
	_ = server.Close()
	back.Wait()
}

// A WriteFunc is an [io.Writer].
type WriteFunc func(data []byte) (int, error)

// Write implements [io.Writer].
func (f WriteFunc) Write(data []byte) (int, error) { return f(data) }
