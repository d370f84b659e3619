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

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// soon is how late a Redis that is back may be noticed: a pause of the breaker, or two, and what a busy machine adds. What is
// not followed by itself takes ten seconds, a minute, or for ever.
const soon = 5 * time.Second

// many is a limit that is not reached: what is used of it is what was charged.
var many = limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1 << 30, Window: 24 * time.Hour, Params: "window_start=first_hit"})

// A ledger is hits on one key of a store, and what has become of them.
type ledger struct {
	t     *testing.T
	store *Store
	key   string

	mu     sync.Mutex
	told   int64 // charged, as their Takes were told
	unsure int64 // an error that does not say that nothing was charged
	errs   map[string]int
	last   int64 // used, as the last was told
}

func newLedger(t *testing.T, s *Store, key string) *ledger {
	return &ledger{t: t, store: s, key: key, errs: map[string]int{}}
}

// hit makes one hit.
func (l *ledger) hit() error {
	out := make([]limiters.Verdict, 1)
	err := l.store.Take(context.Background(), time.Time{}, []limiters.Group{{{Key: l.key, Limit: many, N: 1}}}, out)
	if err == nil {
		err = out[0].Err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.told++
		l.last = out[0].Used
		return nil
	}
	l.errs[err.Error()]++
	if answer := redis.Error(nil); !errors.As(err, &answer) && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrBusy) {
		l.unsure++
	}
	return err
}

// refused makes a hit that fails with this text, or is turned away since others have.
func (l *ledger) refused(want string) {
	l.t.Helper()
	if err := l.hit(); err == nil || !strings.Contains(err.Error(), want) && !errors.Is(err, ErrBroken) {
		l.t.Errorf("%v, want %q", err, want)
	}
}

// back makes hits until one is answered, which has to be soon.
func (l *ledger) back() {
	l.t.Helper()
	start := time.Now()
	redistest.Await(l.t, "an answer", func(context.Context) error { return l.hit() })
	if took := time.Since(start); took > soon {
		l.t.Errorf("back after %v", took)
	}
}

// used looks at what is charged.
func (l *ledger) used() int64 {
	l.t.Helper()
	out, err := take(l.t, openAt(l.t, connect.Options{Addr: l.store.address}), limiters.Hit{Key: l.key, Limit: many})
	if err != nil || out[0].Err != nil {
		l.t.Fatal(out, err)
	}
	return out[0].Used
}

// settle requires that what is in Redis is what Takes were told, and of those that were not told at most once each.
func (l *ledger) settle() {
	l.t.Helper()
	l.mu.Lock()
	told, unsure := l.told, l.unsure
	l.mu.Unlock()
	if err := l.hit(); err != nil {
		l.t.Fatal(err)
	}
	if used := l.last - 1; used < told || used > told+unsure {
		l.t.Errorf("%d are charged, want the %d that were told, and at most %d more; errors: %v", used, told, unsure, l.errs)
	}
}

// A Redis that has been started and reads its file answers LOADING, and counts on from what was in it when it has.
func TestLoadingRedisFailsAtOnce(t *testing.T) {
	dir := t.TempDir()
	addr := redistest.FreeAddr(t)
	settings := []string{"--dir", dir, "--save", "3600 1000000", "--rdbcompression", "no"}
	server, err := redistest.Run(addr, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	l := newLedger(t, openAt(t, connect.Options{Addr: addr}), "k")
	if err := l.hit(); err != nil {
		t.Fatal(err)
	}
	// What makes it long: each of these keys takes 400 µs to load. Redis looks who is there after each 2 MB.
	c := server.Client(t)
	_, err = c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 3_000 {
			p.Set(t.Context(), fmt.Sprint("other ", i), strings.Repeat("x", 10_000), 0)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	again, err := redistest.RunLoading(addr, append(settings, "--key-load-delay", "400")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	loading := false
	redistest.Await(t, "LOADING", func(context.Context) error {
		err := l.hit()
		loading = redis.IsLoadingError(err)
		if loading || err == nil {
			return nil
		}
		return err
	})
	if !loading {
		t.Fatalf("it did not say LOADING: %v", l.errs)
	}
	l.refused("is loading the dataset in memory")
	if _, err := l.store.EvictionPolicy(t.Context()); !redis.IsLoadingError(err) {
		t.Errorf("%v, want a Redis that loads not to be ready", err)
	}
	redistest.Await(t, "the end of loading", func(ctx context.Context) error { return c.Ping(ctx).Err() })
	l.back()
	l.settle()
}

// behindName is a store that knows its Redis by a name, which leads to another when to is called.
func behindName(t *testing.T, to string) (*Store, *redistest.Wire) {
	t.Helper()
	name := redistest.NewWire(t)
	name.To(to)
	return openAt(t, connect.Options{Addr: name.Addr, Timeout: time.Second}), name
}

// A replica that serves nothing while it has no master says MASTERDOWN. Its connection is left, for the name may by now lead
// to one that is a master.
func TestReplicaWithoutMasterIsLeft(t *testing.T) {
	old, master := redistest.Start(t, "--replica-serve-stale-data", "no"), redistest.Start(t)
	s, name := behindName(t, old.Addr)
	l := newLedger(t, s, "k")
	if err := l.hit(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(redistest.FreeAddr(t))
	if err := old.Client(t).Do(t.Context(), "replicaof", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	l.refused("MASTERDOWN Link with MASTER is down")
	s.running.Wait()
	name.To(master.Addr)
	l.told = 0 // the new one has nothing of the old
	l.back()
	l.settle()
}

// A master that shall not go on without its replica (min-replicas-to-write) refuses what would write, and denies all the same.
func TestMasterWithoutReplicaChargesNothing(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	one := limiters.Hit{Key: "k", Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Hour}), N: 1}
	if _, err := take(t, s, one); err != nil {
		t.Fatal(err)
	}
	c.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	out, err := take(t, s, one, hitsOf("other")[0])
	if err != nil || out[0].Err != nil || out[0].Allowed || out[1].Err == nil || !strings.Contains(out[1].Err.Error(), "NOREPLICAS") {
		t.Errorf("%+v, %v: want a denial, and NOREPLICAS", out, err)
	}
	c.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	if out, err := take(t, s, hitsOf("other")...); err != nil || out[0].Used != 1 {
		t.Errorf("afterwards: %+v, %v", out, err)
	}
}

// Another client's script holds Redis: calls fail at their deadline, and after busy-reply-threshold, which was lua-time-limit, with
// BUSY, until it ends or is killed. None of them is charged.
func TestBusyRedisRecoversAfterScriptKill(t *testing.T) {
	server := redistest.Start(t, "--lua-time-limit", "200")
	l := newLedger(t, openAt(t, connect.Options{Addr: server.Addr, Timeout: 100 * time.Millisecond}), "k")
	l.back()
	before := l.used()
	var slow sync.WaitGroup
	slow.Go(func() {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: -1, MaxRetries: -1})
		defer c.Close()
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	})
	// A hit that was there before the script may be charged, and its answer come behind it.
	c := server.Client(t)
	redistest.Await(t, "BUSY", func(ctx context.Context) error {
		if err := c.Ping(ctx).Err(); !redis.HasErrorPrefix(err, "BUSY") {
			return errors.Join(errors.New("want BUSY"), err)
		}
		return nil
	})
	for range 2 * failuresToOpen {
		l.refused("is busy running a script")
	}
	if err := c.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	slow.Wait()
	if after := l.used(); after != before {
		t.Errorf("%d were charged that were told of an error: %v", after-before, l.errs)
	}
	l.back()
	l.settle()
}

// A script of ours that takes so long that somebody kills it charges nothing, fails the hits of that call, and no others. It
// can be killed as long as it has written nothing.
func TestKilledScriptChargesNothing(t *testing.T) {
	server := redistest.Start(t, "--lua-time-limit", "1")
	s := open(t, server)
	l := newLedger(t, s, "k")
	l.back()
	looks := make([]limiters.Hit, mostHits)
	for i := range looks {
		looks[i] = limiters.Hit{Key: fmt.Sprint("other ", i), Limit: many}
	}
	c := server.Client(t)
	killed := fmt.Errorf("no call was killed")
	for range 20 {
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
		err := s.Take(t.Context(), time.Time{}, limiters.Singles(looks...), make([]limiters.Verdict, len(looks)))
		close(done)
		kills.Wait()
		if err != nil {
			killed = err
			break
		}
	}
	if !strings.Contains(killed.Error(), "killed by user") {
		t.Fatalf("%v: want it to say that the script was killed", killed)
	}
	l.back()
	l.settle()
}

// Scripts are flushed again and again while hits arrive: no hit fails, and none is charged twice.
func TestScriptFlushUnderTrafficLosesNoHit(t *testing.T) {
	server := redistest.Start(t)
	l := newLedger(t, open(t, server), "k")
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				if err := l.hit(); err != nil {
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
	l.settle()
}

func TestRedisThatStartsLaterIsFound(t *testing.T) {
	addr := redistest.FreeAddr(t)
	l := newLedger(t, openAt(t, connect.Options{Addr: addr, Timeout: 100 * time.Millisecond}), "k")
	for range 2 * failuresToOpen {
		l.refused("connection refused")
	}
	server, err := redistest.Run(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	l.back()
	l.settle()
}

// A unix socket is a Redis as any other, and is found again when it has been made anew.
func TestUnixSocketPassesTheSuite(t *testing.T) {
	socket := filepath.Join(shortDir(t), "redis.sock")
	addr := redistest.FreeAddr(t)
	start := func() *redistest.Server {
		server, err := redistest.Run(addr, "--unixsocket", socket, "--unixsocketperm", "700")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		return server
	}
	server := start()
	o, err := connect.ParseURL(connect.Single, "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	limiterstest.Run(t, func(t *testing.T) limiters.Store {
		if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		return openAt(t, o)
	})
	l := newLedger(t, openAt(t, o), "over a socket")
	l.back()
	server.Stop()
	l.refused(socket)
	start()
	l.told = 0
	l.back()
	l.settle()
}

// shortDir is a folder whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") //nolint:usetesting // t.TempDir has the name of the test in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A Redis that is nearly as far away as a call may take, and one more round trip further than a new connection may: a
// connection that is lost is made again all the same.
func TestDistantRedisRecoversAfterLostConnection(t *testing.T) {
	server := redistest.Start(t)
	const roundTrip, timeout = 60 * time.Millisecond, 100 * time.Millisecond
	far := redistest.Far(t, server.Addr, roundTrip)
	l := newLedger(t, openAt(t, connect.Options{Addr: far, Timeout: timeout}), "k")
	redistest.Await(t, "a first answer", func(context.Context) error { return l.hit() })
	if took, err := l.store.RoundTrip(t.Context()); err != nil || took < roundTrip || took > roundTrip+soon {
		t.Errorf("%v, %v: want the %v that it takes", took, err, roundTrip)
	}
	for range 3 {
		disconnect(t, server)
		l.back()
	}
	l.settle()
}
