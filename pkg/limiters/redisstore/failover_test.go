package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A stream is hits from several callers, each on its own key, so the fate of each hit can be checked afterwards.
type stream struct {
	t     *testing.T
	store *Store
	next  atomic.Int64
	stop  atomic.Bool
	runs  sync.WaitGroup

	mu      sync.Mutex
	charged map[int64]bool // by number: whether the hit's Take succeeded
	since   time.Time      // the time of the last error
	first   time.Time      // the first answer after that
	errs    map[string]int
}

func flow(t *testing.T, s *Store) *stream {
	f := &stream{t: t, store: s, charged: map[int64]bool{}, errs: map[string]int{}}
	for range 4 {
		f.runs.Go(f.run)
	}
	t.Cleanup(f.end)
	return f
}

func (f *stream) run() {
	for !f.stop.Load() {
		n := f.next.Add(1)
		out := make([]limiters.Verdict, 1)
		err := f.store.Take(context.Background(), time.Time{}, limiters.Singles(hitsOf(fmt.Sprint("hit ", n))...), out)
		if err == nil {
			err = out[0].Err
		}
		f.record(n, err)
		if err != nil {
			// Callers back off after an error.
			time.Sleep(time.Millisecond)
		}
	}
}

func (f *stream) record(n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.charged[n] = err == nil
	switch {
	case err != nil:
		f.errs[kindOf(err)]++
		f.since, f.first = time.Now(), time.Time{}
	case f.first.IsZero():
		f.first = time.Now()
	}
}

// kindOf returns the text of an error without addresses and numbers.
func kindOf(err error) string {
	if errors.Is(err, ErrBreakerOpen) {
		return "turned away"
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return text[max(0, len(text)-60):]
}

// answered waits until a number of consecutive hits succeed.
func (f *stream) answered(many int64) {
	f.t.Helper()
	f.mu.Lock()
	begin := time.Now()
	f.mu.Unlock()
	target := f.next.Load() + many
	redistest.Await(f.t, "answers", func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.since.After(begin) {
			begin, target = f.since, f.next.Load()+many
		}
		if f.first.IsZero() || f.next.Load() < target {
			return fmt.Errorf("%d hits, %v", f.next.Load(), f.errs)
		}
		return nil
	})
}

func (f *stream) failures() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, charged := range f.charged {
		if !charged {
			n++
		}
	}
	return n
}

func (f *stream) end() {
	f.stop.Store(true)
	f.runs.Wait()
}

// check ends the stream and checks with another store that no hit was charged twice. It returns the number of hits that
// were answered as charged but are not: the master had not replicated them.
func (f *stream) check(now *Store) (lost int) {
	f.t.Helper()
	f.end()
	const many = 1000
	numbers := make([]int64, 0, many)
	for n := int64(1); n <= f.next.Load(); n++ {
		if numbers = append(numbers, n); len(numbers) < many && n < f.next.Load() {
			continue
		}
		hits, out := make([]limiters.Hit, len(numbers)), make([]limiters.Verdict, len(numbers))
		for i, n := range numbers {
			hits[i] = limiters.Hit{Key: fmt.Sprint("hit ", n), Limit: hourly}
		}
		if err := now.Take(context.Background(), time.Time{}, limiters.Singles(hits...), out); err != nil {
			f.t.Fatal(err)
		}
		for i, n := range numbers {
			switch v := out[i]; {
			case v.Err != nil:
				f.t.Fatal(v.Err)
			case v.Used > 1:
				f.t.Errorf("hit %d was charged %d times", n, v.Used)
			case f.charged[n] && v.Used == 0:
				lost++
			}
		}
		numbers = numbers[:0]
	}
	f.t.Logf("%d hits, %d failed, %d lost; errors: %v", f.next.Load(), f.failures(), lost, f.errs)
	return lost
}

// backAfter returns the time from start to the first answer.
func (f *stream) backAfter(start time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, f.first.Sub(start))
}

func awaitMaster(t *testing.T, server *redistest.Server) time.Time {
	t.Helper()
	redistest.Await(t, "the replica to be the master", server.CheckMaster)
	return time.Now()
}

// A master dies with calls in flight. The store follows to the replica that the Sentinels promote.
func TestSentinelFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, w *redistest.SentinelSet){
		"killed": func(t *testing.T, w *redistest.SentinelSet) {
			w.DetectFailures(t)
			w.Master.Stop()
		},
		// It still answers, as a replica once the Sentinels have demoted it.
		"asked for": func(t *testing.T, w *redistest.SentinelSet) {
			if err := w.Sentinels[0].Client(t).Do(t.Context(), "sentinel", "failover", w.Name).Err(); err != nil {
				t.Fatal(err)
			}
		},
		// Neither it nor a Sentinel answers.
		"frozen": func(t *testing.T, w *redistest.SentinelSet) {
			w.DetectFailures(t)
			for _, server := range []*redistest.Server{w.Master, w.Sentinels[0]} {
				if err := server.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := redistest.StartSentinels(t, "mymaster", 3, redistest.Secrets{})
			f := flow(t, openAt(t, connect.Options{
				Type: connect.Sentinel, Master: w.Name, Addrs: w.Addrs()[:1], Timeout: 100 * time.Millisecond, DialTimeout: 10 * time.Second,
			}))
			f.answered(200)
			if n := f.failures(); n > 0 && name != "asked for" {
				t.Logf("%d failed before: %v", n, f.errs)
			}
			fail(t, w)
			promoted := awaitMaster(t, w.Replica)
			// The store asks one Sentinel. Each learns the new master from the others.
			asked := w.Sentinels
			if name == "frozen" {
				asked = asked[1:]
			}
			for _, sentinel := range asked {
				c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
				redistest.Await(t, "the Sentinel to say so", func(ctx context.Context) error {
					master, err := c.GetMasterAddrByName(ctx, w.Name).Result()
					if err == nil && strings.Join(master, ":") != w.Replica.Addr {
						err = fmt.Errorf("it says %s", master)
					}
					return err
				})
				_ = c.Close()
			}
			said := time.Now()
			// Until then the old master continues to answer, and its charges are lost.
			after, there := f.next.Load()+1, w.Replica.Client(t)
			redistest.Await(t, "a hit at the new master", func(ctx context.Context) error {
				for n := after; n <= f.next.Load(); n++ {
					key := keyOf("", &limiters.Hit{Key: fmt.Sprint("hit ", n), Limit: hourly})
					if there.Exists(ctx, key).Val() == 1 {
						return nil
					}
				}
				return errors.New("none")
			})
			if took := time.Since(said); took > soon && name == "asked for" {
				t.Errorf("the old master was left %v after the Sentinels had named the new one", took)
			}
			f.answered(200)
			t.Logf("back %v after the promotion, %v after the Sentinels said so", f.backAfter(promoted), f.backAfter(said))
			if took := f.backAfter(said); took > soon {
				t.Errorf("back %v after the Sentinels had named the master", took)
			}
			f.check(openAt(t, connect.Options{Type: connect.Sentinel, Master: w.Name, Addrs: w.Addrs()[2:]}))
		})
	}
}

// A master of a cluster dies, or hands over, with calls in flight. The store follows to its replica.
func TestClusterFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, master, replica *redistest.Server){
		"killed": func(_ *testing.T, master, _ *redistest.Server) { master.Stop() },
		"frozen": func(t *testing.T, master, _ *redistest.Server) {
			if err := master.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		},
		"handed over": func(t *testing.T, _, replica *redistest.Server) {
			if err := replica.Client(t).ClusterFailover(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings, timeout := []string{"--cluster-node-timeout", "1000"}, 200*time.Millisecond
			if name == "handed over" {
				settings, timeout = nil, longTimeout // meanwhile the master lets all writes wait
			}
			c := redistest.StartCluster(t, 3, settings...)
			replica := c.AddReplica(t, 1, settings...)
			s := openCluster(t, c, func(c *connect.Options, _ *Options) { c.Timeout, c.DialTimeout = timeout, 10*time.Second })
			f := flow(t, s)
			f.answered(200)
			before := f.failures()
			fail(t, c.Servers[1], replica)
			promoted := awaitMaster(t, replica)
			f.answered(200)
			t.Logf("back %v after the promotion", f.backAfter(promoted))
			if took := f.backAfter(promoted); took > soon {
				t.Errorf("back %v after the replica was the master", took)
			}
			lost := f.check(openCluster(t, c, func(c *connect.Options, _ *Options) { c.Addrs = append(c.Addrs[:1], c.Addrs[2:]...) }))
			// For a moment neither node serves the slots. CLUSTERDOWN fails a call and charges nothing.
			if n := f.failures() - before; name == "handed over" && (n > 10 || lost > 0) {
				t.Errorf("%d hits failed and %d were lost while the master handed over: %v", n, lost, f.errs)
			}
		})
	}
}

// A node replies CLUSTERDOWN while other slots are not served, and answers again when they are.
func TestClusterRecoversAfterClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c, func(c *connect.Options, _ *Options) { c.Timeout = time.Second })
	mine, other := newLedger(t, s, keysOn(c, 1, 1)[0]), newLedger(t, s, keysOn(c, 2, 1)[0])
	slot := int(slotOf(keyOf("", &limiters.Hit{Key: keysOn(c, 1, 2)[1], Limit: hourly})))
	for _, l := range []*ledger{mine, other} {
		if err := l.hit(); err != nil {
			t.Fatal(err)
		}
	}
	node := c.Servers[1].Client(t)
	if err := node.ClusterDelSlots(t.Context(), slot).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "CLUSTERDOWN", func(context.Context) error {
		if err := mine.hit(); !redis.IsClusterDownError(err) {
			return errors.Join(errors.New("want CLUSTERDOWN"), err)
		}
		return nil
	})
	mine.refused("CLUSTERDOWN")
	if err := other.hit(); err != nil {
		t.Errorf("of another node: %v", err)
	}
	if err := node.ClusterAddSlots(t.Context(), slot).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the cluster", func(ctx context.Context) error {
		info, err := node.ClusterInfo(ctx).Result()
		if err == nil && !strings.Contains(info, "cluster_state:ok") {
			err = errors.New("it is down")
		}
		return err
	})
	mine.back()
	mine.check()
	other.check()
}

// Connections that were begun while nothing answered are not kept: each would fail one call after a failover.
func TestLateConnectionsAreNotKept(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	server := redistest.StartTLS(t, authority, "127.0.0.1")
	own := authority.Issue(t, "weir")
	config, err := tlsfiles.Client{Cert: own.Cert, Key: own.Key, CA: authority.File}.Config()
	if err != nil {
		t.Fatal(err)
	}
	s := openAt(t, connect.Options{Addr: server.Addr, TLS: config, Timeout: 100 * time.Millisecond, DialTimeout: longTimeout, PoolSize: 10})
	l := newLedger(t, s, "k")
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "connections to be begun", func(context.Context) error {
		if err := l.hit(); err == nil {
			t.Fatal("a frozen Redis has answered")
		}
		if n := s.client.PoolStats().TotalConns; s.Stats().Calls < 10 {
			return fmt.Errorf("%d calls, %d connections", s.Stats().Calls, n)
		}
		return nil
	})
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.back()
	for range 20 {
		if err := l.hit(); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.client.PoolStats().IdleConns; n > 2 {
		t.Errorf("%d connections are kept, want at most 2", n)
	}
	l.check()
}

// go-redis asks for the slots without a deadline. Without a bound, a node that accepts a connection and does not answer
// would delay the question to the next node by DialTimeout.
func TestLoadingSlotsHasATimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := openAt(t, connect.Options{
		Type: connect.Cluster, Addrs: []string{silent.Addr().String()}, TLS: &tls.Config{MinVersion: tls.VersionTLS12},
		Timeout: time.Second, DialTimeout: 3 * longTimeout,
	})
	start := time.Now()
	if err := s.cluster.ForEachMaster(context.Background(), nil); err == nil || time.Since(start) > longTimeout {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// The timeout of a Take includes the reading of slots, however many nodes are asked for them.
func TestTimeoutIncludesLoadingSlotsFromEveryNode(t *testing.T) {
	t.Parallel()
	const nodes, timeout = 30, 500 * time.Millisecond
	var addrs []string
	for range nodes {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		addrs = append(addrs, silent.Addr().String())
	}
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: addrs, Timeout: timeout})
	start := time.Now()
	if _, err := take(t, s, hitsOf("a")...); err == nil || time.Since(start) > nodes*timeout*2/3 {
		t.Errorf("%v after %v, want an error after about %v", err, time.Since(start), timeout)
	}
}
