// Package redistest runs real Redis servers on loopback for tests.
package redistest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/freeport"
	"github.com/weir-rls/weir/internal/must"
)

// A Server is a running redis-server.
type Server struct {
	Addr string // host:port

	login redis.Options // how to reach it: user, password, TLS
	cmd   *exec.Cmd
	log   bytes.Buffer
	done  chan struct{}
	stop  sync.Once
}

// Start starts a Redis without persistence until the end of the test. settings are arguments of
// redis-server. Without a server on PATH or in $REDIS_SERVER, the test fails.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := Run(FreeAddr(tb), settings...)
	return stopAtCleanup(tb, s, err)
}

// stopAtCleanup stops a server at the end of the test. It fails the test if the server has not
// started.
func stopAtCleanup(tb testing.TB, s *Server, err error) *Server {
	tb.Helper()
	must.Succeed(tb, err)
	tb.Cleanup(s.Stop)
	return s
}

// Run starts a Redis on addr and returns once it answers. It needs no test.
func Run(addr string, settings ...string) (*Server, error) {
	return launch(redis.Options{Addr: addr}, arguments(addr, settings...))
}

// RunLoading is like Run, but returns as soon as Redis replies LOADING.
func RunLoading(addr string, settings ...string) (*Server, error) {
	return launch(redis.Options{Addr: addr}, arguments(addr, settings...), "LOADING")
}

// arguments returns the arguments of a redis-server on addr without persistence.
func arguments(addr string, settings ...string) []string {
	host, port, _ := net.SplitHostPort(addr)
	return append([]string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no"}, settings...)
}

// launch starts a redis-server. It returns once a client with these options gets an answer,
// possibly one of the given errors.
func launch(login redis.Options, args []string, answers ...string) (*Server, error) {
	path := cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server")
	login.MaxRetries = -1
	// The defaults of go-redis are shorter than a busy machine can stop a server. The context of a
	// command ends it earlier.
	login.DialTimeout, login.ReadTimeout, login.WriteTimeout, login.ContextTimeoutEnabled = timeout, timeout, timeout, true
	s := &Server{Addr: login.Addr, login: login, cmd: exec.Command(path, args...), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("no redis-server (make test installs it; set $REDIS_SERVER if it is not on PATH): %w", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	if err := s.awaitPong(append(answers, "NOAUTH")); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// timeout exceeds the duration of any step on a busy machine. The longest step is the promotion of
// a replica. A Sentinel that did not run for 2 s does nothing for 30 s (its TILT mode). It repeats
// a failed election only after twice failover-timeout, here 10 s.
const timeout = 3 * time.Minute

func (s *Server) awaitPong(answers []string) error {
	c := s.newClient()
	defer c.Close()
	err := await(timeout, func(ctx context.Context) error {
		select {
		case <-s.done:
			return fatalError{fmt.Errorf("ended: %s", s.log.String())}
		default:
		}
		err := c.Ping(ctx).Err()
		for _, answer := range answers {
			if redis.HasErrorPrefix(err, answer) {
				return nil
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("redis-server on %s: %w", s.Addr, err)
	}
	return nil
}

// A fatalError ends await.
type fatalError struct{ error }

// await calls ask until it returns no error or a fatal one, for at most a timeout.
func await(timeout time.Duration, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil || errors.As(err, new(fatalError)) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", timeout, err)
		case <-tick.C:
		}
	}
}

// Await calls ask until it returns no error. It fails the test after 3 minutes, or 5 seconds before
// the timeout of go test.
func Await(tb testing.TB, what string, ask func(ctx context.Context) error) {
	tb.Helper()
	if err := await(must.LongestWait(tb, timeout), ask); err != nil {
		tb.Fatalf("redistest: %s: %v", what, err)
	}
}

// Await waits until the server's INFO replication contains a text, such as "role:master".
func (s *Server) Await(tb testing.TB, says string) {
	tb.Helper()
	Await(tb, s.Addr+" to be "+says, func(ctx context.Context) error {
		c := s.newClient()
		defer c.Close()
		info, err := c.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, says) {
			err = fmt.Errorf("INFO replication is %q", info)
		}
		return err
	})
}

func (s *Server) newClient() *redis.Client {
	login := s.login
	return redis.NewClient(&login)
}

// NeedSetting skips the test if the server does not support a setting.
func (s *Server) NeedSetting(tb testing.TB, name string) {
	tb.Helper()
	if known, _ := s.do(tb, "config", "get", name).(map[any]any); len(known) == 0 {
		tb.Skipf("this server has no %s", name)
	}
}

// Client returns a client of the server, which is closed after the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := s.newClient()
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Login sets the user and password of later clients.
func (s *Server) Login(user, password string) { s.login.Username, s.login.Password = user, password }

// CheckMaster returns an error if the server is not a master.
func (s *Server) CheckMaster(ctx context.Context) error {
	c := s.newClient()
	defer c.Close()
	role, err := c.Do(ctx, "role").Slice()
	if err == nil && (len(role) == 0 || role[0] != "master") {
		err = fmt.Errorf("its role is %v", role)
	}
	return err
}

// SetUser creates a user. The rules are those of ACL SETUSER.
func (s *Server) SetUser(tb testing.TB, name string, rules ...string) {
	tb.Helper()
	args := []any{"acl", "setuser", name}
	for _, rule := range rules {
		args = append(args, rule)
	}
	s.do(tb, args...)
}

// do sends a command to the server, which must succeed.
func (s *Server) do(tb testing.TB, args ...any) any {
	tb.Helper()
	c := s.newClient()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	reply, err := c.Do(ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		tb.Fatalf("redistest: %v at %s: %v", args, s.Addr, err)
	}
	return reply
}

// Signal sends a signal to the server: SIGSTOP freezes it.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// PID returns the process ID.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop kills the server and waits for its exit. It is idempotent.
func (s *Server) Stop() {
	s.stop.Do(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
}

func addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.Addr
	}
	return all
}

// FreeAddr returns a loopback address on which nothing listens, and which no other test gets.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, err := FindFreeAddr()
	must.Succeed(tb, err)
	return addr
}

// FindFreeAddr is FreeAddr without a test.
func FindFreeAddr() (string, error) {
	port, err := freeport.Find()
	return freeport.Addr(port), err
}
