// Package redistest starts real Redis servers for tests, on loopback and on a port of their own, and stops them.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a running redis-server.
type Server struct {
	Addr string // host:port

	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{}
	stop sync.Once
}

// Start starts a Redis that keeps nothing on disk and ends with the test. Further settings are arguments of
// redis-server. A missing server fails the test: $REDIS_SERVER names one that is not on PATH.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := Run(FreeAddr(tb), settings...)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Run starts a Redis on addr, for whoever has no test at hand, and returns once it answers.
func Run(addr string, settings ...string) (*Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	path := os.Getenv("REDIS_SERVER")
	if path == "" {
		path = "redis-server"
	}
	args := append([]string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no"}, settings...)
	s := &Server{Addr: addr, cmd: exec.Command(path, args...), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("no redis-server (make test installs one; $REDIS_SERVER names one that is not on PATH): %w", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	if err := s.awaitPong(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) awaitPong() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer c.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if c.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("redis-server on %s ended: %s", s.Addr, s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s does not answer", s.Addr)
		case <-tick.C:
		}
	}
}

// Client is a plain client of the server, closed with the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Signal sends a signal to the server: SIGSTOP freezes it.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Stop kills the server and waits until it is gone. It may be called twice.
func (s *Server) Stop() {
	s.stop.Do(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
}

// FreeAddr is a loopback address that nothing listens on.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, err := Free()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return addr
}

// Free is a loopback address that nothing listens on.
func Free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), nil
}
