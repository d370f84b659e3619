package redisstore

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A client that gives up early costs other clients nothing: the connection to Redis stays open. Its
// operations are not charged if they reach Redis too late.
func TestShortDeadlinesKeepTheConnection(t *testing.T) {
	t.Parallel()
	const roundTrip = 20 * time.Millisecond
	server := redistest.Start(t)
	s := openAt(t, connect.Options{Addr: redistest.SlowProxy(t, server.Addr, roundTrip)})
	op := limiters.Op{Key: "k", Limit: hourly, Hits: 1}
	if _, err := take(s, op); err != nil {
		t.Fatal(err)
	}
	connected := scriptConnection(t, server)
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), roundTrip/4)
		var out [1]limiters.Verdict
		err := s.Take(ctx, limiters.Singles(op), out[:])
		if cancel(); err == nil && out[0].Err == nil {
			t.Fatalf("an operation with a deadline of %v is decided after a round trip of %v: %+v", roundTrip/4, roundTrip, out[0])
		}
	}
	v, err := take(s, op)
	if err != nil || v[0].Used != 2 {
		t.Errorf("%+v, %v, want 2 used: late hits are not charged", v, err)
	}
	if now := scriptConnection(t, server); now != connected {
		t.Errorf("the script runs on connection %s, and ran on %s before the short deadlines", now, connected)
	}
}

// In a cluster too, operations that reach their node after the deadline of their client are not
// charged, with one hash slot and with several.
func TestLateHitsAreNotChargedInACluster(t *testing.T) {
	t.Parallel()
	const roundTrip = 20 * time.Millisecond
	var far string
	c := redistest.StartClusterBehind(t, 1, func(addr string) string {
		far = redistest.SlowProxy(t, addr, roundTrip)
		return far
	})
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: []string{far}})
	keys := keysOn(c, 0, 2)
	if _, err := take(s, opsOf(keys...)...); err != nil {
		t.Fatal(err)
	}
	for _, ops := range [][]limiters.Op{opsOf(keys[0]), opsOf(keys...)} {
		ctx, cancel := context.WithTimeout(context.Background(), roundTrip/4)
		out := make([]limiters.Verdict, len(ops))
		if err := s.Take(ctx, limiters.Singles(ops...), out); err == nil {
			t.Errorf("%d operations with a deadline of %v are decided after a round trip of %v: %+v", len(ops), roundTrip/4, roundTrip, out)
		}
		cancel()
	}
	out, err := take(s, opsOf(keys...)...)
	for i, v := range out {
		if err != nil || v.Err != nil || v.Used != 2 {
			t.Errorf("%s: %+v, %v, want 2 used", keys[i], v, err)
		}
	}
}

// A call that is too late for its client is not sent again: the second call would be later still,
// and others wait for it.
func TestLateCallIsSentOnce(t *testing.T) {
	t.Parallel()
	const roundTrip, takes = 20 * time.Millisecond, 10
	server := redistest.Start(t)
	s := openAt(t, connect.Options{Addr: redistest.SlowProxy(t, server.Addr, roundTrip)})
	op := limiters.Op{Key: "k", Limit: hourly, Hits: 1}
	if _, err := take(s, op); err != nil {
		t.Fatal(err)
	}
	before := scriptCalls(t, server)
	for range takes {
		ctx, cancel := context.WithTimeout(context.Background(), roundTrip/4)
		var out [1]limiters.Verdict
		if err := s.Take(ctx, limiters.Singles(op), out[:]); err == nil && out[0].Err == nil {
			t.Errorf("%+v: the operation is decided after its deadline", out[0])
		}
		cancel()
	}
	if n := scriptCalls(t, server) - before; n > takes {
		t.Errorf("%d Takes made %d calls", takes, n)
	}
}

// The same holds for the calls of several hash slots, which share a pipeline.
func TestLateSlotsAreSentOnce(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	n := nodeOf(openCluster(t, c))
	groups := limiters.Singles(opsOf(keysOn(c, 0, 3)...)...)
	out := make([]limiters.Verdict, len(groups))
	must.Succeed(t, n.call(t.Context(), time.Now().Add(longTimeout), groups, out))
	before := scriptCalls(t, c.Servers[0])
	err := n.call(t.Context(), time.Now().Add(-time.Second), groups, out)
	if !errors.Is(err, errLate) || !limiters.IsUncharged(err) {
		t.Errorf("%v, want %v", err, errLate)
	}
	if n := scriptCalls(t, c.Servers[0]) - before; n != len(groups) {
		t.Errorf("%d calls for %d slots", n, len(groups))
	}
}

func scriptCalls(t *testing.T, server *redistest.Server) int {
	t.Helper()
	text, err := server.Client(t).Info(context.Background(), "commandstats").Result()
	must.Succeed(t, err)
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no calls of the script in %s", text)
	}
	n, err := strconv.Atoi(found[1])
	must.Succeed(t, err)
	return n
}

// The breaker opens although the deadlines of the clients are too short to judge Redis by: each
// call has the whole timeout.
func TestFrozenRedisOpensBreakerForShortDeadlines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, connect.Options{Addr: server.Addr, Timeout: 200 * time.Millisecond})
	op := limiters.Op{Key: "k", Limit: hourly, Hits: 1}
	redistest.Await(t, "a decision", func(context.Context) error {
		_, err := take(s, op)
		return err
	})
	must.Succeed(t, server.Signal(syscall.SIGSTOP))
	defer func() { _ = server.Signal(syscall.SIGCONT) }()
	must.Until(t, "the breaker opens", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		return errors.Is(s.Take(ctx, limiters.Singles(op), make([]limiters.Verdict, 1)), ErrBreakerOpen)
	})
}

// scriptConnection returns the server's id of the connection that runs the script.
func scriptConnection(t *testing.T, server *redistest.Server) string {
	t.Helper()
	text, err := server.Client(t).ClientList(context.Background()).Result()
	must.Succeed(t, err)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "cmd=evalsha") {
			id, _, _ := strings.Cut(line, " ")
			return id
		}
	}
	return "none"
}
