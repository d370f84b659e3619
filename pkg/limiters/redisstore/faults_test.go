package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// many is a limit that is never reached, so its usage is the number of charged hits.
var many = limiterstest.MustLimit(limiters.Spec{
	Algorithm: "fixed_window", Max: 1 << 30, Window: 24 * time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit},
})

// A ledger charges one key of a store, and records the results.
type ledger struct {
	t     *testing.T
	store *testStore
	key   string

	mu      sync.Mutex
	charged int64 // hits whose Take succeeded
	unsure  int64 // hits that may have been charged despite an error
	errs    map[string]int
	last    int64 // Used of the last verdict
}

func newLedger(t *testing.T, s *testStore, key string) *ledger {
	return &ledger{t: t, store: s, key: key, errs: map[string]int{}}
}

// charge charges one hit and records the result.
func (l *ledger) charge() error {
	out := make([]limiters.Verdict, 1)
	err := l.store.Take(context.Background(), []limiters.Group{{{Key: l.key, Limit: many, Hits: 1}}}, out)
	if err == nil {
		err = out[0].Err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.charged++
		l.last = out[0].Used
		return nil
	}
	l.errs[err.Error()]++
	if answer := redis.Error(nil); !errors.As(err, &answer) && !errors.Is(err, ErrBreakerOpen) && !errors.Is(err, ErrQueueFull) {
		l.unsure++
	}
	return err
}

// mustFail makes a charge that must fail with this text, or with ErrBreakerOpen after earlier
// failures.
func (l *ledger) mustFail(want string) {
	l.t.Helper()
	if err := l.charge(); err == nil || !strings.Contains(err.Error(), want) && !errors.Is(err, ErrBreakerOpen) {
		l.t.Errorf("%v, want %q", err, want)
	}
}

// awaitAnswer makes charges until one is answered.
func (l *ledger) awaitAnswer() {
	l.t.Helper()
	redistest.Await(l.t, "an answer", func(context.Context) error { return l.charge() })
}

// usage returns the key's usage.
func (l *ledger) usage() int64 {
	l.t.Helper()
	out, err := take(openAt(l.t, connect.Options{Addr: l.store.address}), limiters.Op{Key: l.key, Limit: many})
	if err != nil || out[0].Err != nil {
		l.t.Fatal(out, err)
	}
	return out[0].Used
}

// verify compares the usage in Redis with the results: it has all hits that succeeded, and perhaps
// some that failed.
func (l *ledger) verify() {
	l.t.Helper()
	l.awaitAnswer()
	if l.last < l.charged || l.last > l.charged+l.unsure {
		l.t.Errorf("%d are charged, want the %d that succeeded, and at most %d more; errors: %v", l.last, l.charged, l.unsure, l.errs)
	}
}

// A Redis that is loading its file replies LOADING. Afterwards it continues with the counters of
// the file.
func TestLoadingRedisFailsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	addr := redistest.FreeAddr(t)
	settings := []string{"--dir", dir, "--save", "3600 1000000", "--rdbcompression", "no"}
	server, err := redistest.Run(addr, settings...)
	must.Succeed(t, err)
	t.Cleanup(server.Stop)
	l := newLedger(t, openAt(t, connect.Options{Addr: addr}), "k")
	must.Succeed(t, l.charge())
	// Each of these keys takes 3 ms to load, until the test sets the delay to 0. Redis accepts
	// connections after every 2 MB.
	c := server.Client(t)
	_, err = c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 3_000 {
			p.Set(t.Context(), fmt.Sprint("other ", i), strings.Repeat("x", 10_000), 0)
		}
		return nil
	})
	must.Succeed(t, err)
	must.Succeed(t, c.Save(t.Context()).Err())
	server.Stop()
	again, err := redistest.RunLoading(addr, append(settings, "--key-load-delay", "3000")...)
	must.Succeed(t, err)
	t.Cleanup(again.Stop)
	loading := false
	must.Until(t, "LOADING", func() bool {
		err := l.charge()
		loading = redis.IsLoadingError(err)
		return loading || err == nil
	})
	if !loading {
		t.Fatalf("it did not say LOADING: %v", l.errs)
	}
	l.mustFail("is loading the dataset in memory")
	if _, err := l.store.Probe(t.Context()); !redis.IsLoadingError(err) {
		t.Errorf("%v, want a Redis that loads not to be ready", err)
	}
	again.Client(t).ConfigSet(t.Context(), "key-load-delay", "0")
	redistest.Await(t, "the end of loading", func(ctx context.Context) error { return c.Ping(ctx).Err() })
	l.awaitAnswer()
	l.verify()
}

// openByName returns a store whose Redis is behind a proxy, which can be pointed at another Redis.
func openByName(t *testing.T, to string) (*testStore, *redistest.Proxy) {
	t.Helper()
	name := redistest.NewProxy(t)
	name.SetTarget(to)
	return openAt(t, connect.Options{Addr: name.Addr}), name
}

// A replica without its master replies MASTERDOWN. The store drops the connection, because the name
// may resolve to a master by now.
func TestConnectionToReplicaWithoutMasterIsDropped(t *testing.T) {
	old, master := redistest.Start(t, "--replica-serve-stale-data", "no"), redistest.Start(t)
	s, name := openByName(t, old.Addr)
	l := newLedger(t, s, "k")
	must.Succeed(t, l.charge())
	host, port, _ := net.SplitHostPort(redistest.FreeAddr(t))
	must.Succeed(t, old.Client(t).Do(t.Context(), "replicaof", host, port).Err())
	l.mustFail("MASTERDOWN Link with MASTER is down")
	s.running.Wait()
	name.SetTarget(master.Addr)
	l.charged = 0 // the new one has nothing of the old
	l.awaitAnswer()
	l.verify()
}

// A master without its replica (min-replicas-to-write) rejects charges, and still denies
// operations.
func TestMasterWithoutReplicaChargesNothing(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	one := limiters.Op{Key: "k", Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Hour}), Hits: 1}
	if _, err := take(s, one); err != nil {
		t.Fatal(err)
	}
	c.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	out, err := take(s, one, opsOf("other")[0])
	if err != nil || out[0].Err != nil || out[0].Allowed || out[1].Err == nil || !strings.Contains(out[1].Err.Error(), "NOREPLICAS") {
		t.Errorf("%+v, %v: want a denial, and NOREPLICAS", out, err)
	}
	c.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	if out, err := take(s, opsOf("other")...); err != nil || out[0].Used != 1 {
		t.Errorf("afterwards: %+v, %v", out, err)
	}
}

// Another client's script blocks Redis. After busy-reply-threshold, calls fail with BUSY until the
// script ends. None of them is charged.
func TestBusyRedisRecoversAfterScriptKill(t *testing.T) {
	server := redistest.Start(t, "--lua-time-limit", "200")
	l := newLedger(t, openAt(t, connect.Options{Addr: server.Addr}), "k")
	l.awaitAnswer()
	before := l.usage()
	var slow sync.WaitGroup
	slow.Go(func() {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: -1, MaxRetries: -1})
		defer c.Close()
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	})
	c := server.Client(t)
	must.Until(t, "BUSY", func() bool { return redis.HasErrorPrefix(c.Ping(t.Context()).Err(), "BUSY") })
	for range 2 * failuresToOpen {
		l.mustFail("is busy running a script")
	}
	must.Succeed(t, c.ScriptKill(t.Context()).Err())
	slow.Wait()
	if after := l.usage(); after != before {
		t.Errorf("%d were charged that got an error: %v", after-before, l.errs)
	}
	l.awaitAnswer()
	l.verify()
}

// Weir's script can be killed as long as it has written nothing. It then charges nothing, and fails
// the operations of that call only.
func TestKilledScriptChargesNothing(t *testing.T) {
	server := redistest.Start(t, "--lua-time-limit", "1")
	s := open(t, server)
	l := newLedger(t, s, "k")
	l.awaitAnswer()
	peeks := make([]limiters.Op, maxBatchOps)
	for i := range peeks {
		peeks[i] = limiters.Op{Key: fmt.Sprint("other ", i), Limit: many}
	}
	c := server.Client(t)
	redistest.Await(t, "a call to be killed", func(context.Context) error {
		done := make(chan struct{})
		var kills sync.WaitGroup
		kills.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = c.ScriptKill(context.Background()).Err()
				}
			}
		})
		err := s.Take(t.Context(), limiters.Singles(peeks...), make([]limiters.Verdict, len(peeks)))
		close(done)
		kills.Wait()
		if err == nil {
			return errors.New("the script ended before it")
		}
		if !strings.Contains(err.Error(), "killed by user") {
			t.Fatalf("%v: want it to say that the script was killed", err)
		}
		return nil
	})
	l.awaitAnswer()
	l.verify()
}

// While scripts are flushed repeatedly, no operation fails and none is charged twice.
func TestScriptFlushUnderTrafficLosesNoHit(t *testing.T) {
	server := redistest.Start(t)
	l := newLedger(t, open(t, server), "k")
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				if err := l.charge(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	c := server.Client(t)
	for range 200 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	callers.Wait()
	l.verify()
}

func TestRedisThatStartsLaterIsFound(t *testing.T) {
	t.Parallel()
	addr := redistest.FreeAddr(t)
	l := newLedger(t, openAt(t, connect.Options{Addr: addr}), "k")
	for range 2 * failuresToOpen {
		l.mustFail("connection refused")
	}
	server, err := redistest.Run(addr)
	must.Succeed(t, err)
	t.Cleanup(server.Stop)
	l.awaitAnswer()
	l.verify()
}

// A Redis on a unix socket is found again after it has been restarted.
func TestUnixSocketPassesTheSuite(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "redis.sock")
	addr := redistest.FreeAddr(t)
	start := func() *redistest.Server {
		server, err := redistest.Run(addr, "--unixsocket", socket, "--unixsocketperm", "700")
		must.Succeed(t, err)
		t.Cleanup(server.Stop)
		return server
	}
	server := start()
	o, err := connect.ParseURL(connect.Single, "unix", socket)
	must.Succeed(t, err)
	limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
		return openAt(t, o)
	})
	l := newLedger(t, openAt(t, o), "over a socket")
	l.awaitAnswer()
	server.Stop()
	l.mustFail(socket)
	start()
	l.charged = 0
	l.awaitAnswer()
	l.verify()
}

// shortDir returns a folder with a short path, because the path of a socket has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") //nolint:usetesting // t.TempDir has the name of the test in it
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The round trip takes nearly the whole timeout, so connecting takes longer than a call may. A lost
// connection must be replaced all the same.
func TestDistantRedisRecoversAfterLostConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const roundTrip, timeout = 60 * time.Millisecond, 100 * time.Millisecond
	far := redistest.SlowProxy(t, server.Addr, roundTrip)
	l := newLedger(t, openAt(t, connect.Options{Addr: far, Timeout: timeout, DialTimeout: longTimeout}), "k")
	l.awaitAnswer()
	// Probe fails if a busy machine delays one of its round trips by a second. Its result is the
	// shortest of several, which are made one after the other.
	redistest.Await(t, "a probe", func(ctx context.Context) error {
		start := time.Now()
		r, err := l.store.Probe(ctx)
		if err == nil && (r.RoundTrip < roundTrip || r.RoundTrip > time.Since(start)/3) {
			t.Errorf("%v, want the %v that it takes", r.RoundTrip, roundTrip)
		}
		return err
	})
	for range 3 {
		disconnect(t, server)
		l.awaitAnswer()
	}
	l.verify()
}
