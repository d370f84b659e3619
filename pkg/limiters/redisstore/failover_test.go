package redisstore

import (
	"cmp"
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
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A stream is operations from several callers, each on its own key, so the fate of each operation
// can be checked afterwards.
type stream struct {
	t     *testing.T
	store *testStore
	next  atomic.Int64
	stop  atomic.Bool
	runs  sync.WaitGroup

	mu        sync.Mutex
	charged   map[int64]bool // by number: whether the operation's Take succeeded
	succeeded int64          // the number of operations that matter and succeeded
	errs      map[string]int

	matters func(n int64) bool // whether an operation is of the node that fails
}

func startStream(t *testing.T, store *testStore, matters func(n int64) bool) *stream {
	s := &stream{t: t, store: store, charged: map[int64]bool{}, errs: map[string]int{}, matters: matters}
	for range 4 {
		s.runs.Go(s.run)
	}
	t.Cleanup(s.end)
	return s
}

func (s *stream) run() {
	for !s.stop.Load() {
		n := s.next.Add(1)
		out := make([]limiters.Verdict, 1)
		err := s.store.Take(context.Background(), limiters.Singles(opsOf(fmt.Sprint("op ", n))...), out)
		if err == nil {
			err = out[0].Err
		}
		s.record(n, err)
		if err != nil {
			// Callers back off after an error.
			time.Sleep(time.Millisecond)
		}
	}
}

func (s *stream) record(n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charged[n] = err == nil
	switch {
	case err != nil:
		s.errs[kindOf(err)]++
	case s.matters(n):
		s.succeeded++
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

// awaitSuccesses waits until a number of further operations that matter succeed.
func (s *stream) awaitSuccesses(many int64) {
	s.t.Helper()
	s.mu.Lock()
	target := s.succeeded + many
	s.mu.Unlock()
	redistest.Await(s.t, "answers", func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.succeeded < target {
			return fmt.Errorf("%d of %d operations, %v", s.succeeded, target, s.errs)
		}
		return nil
	})
}

func (s *stream) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, charged := range s.charged {
		if !charged {
			n++
		}
	}
	return n
}

func (s *stream) end() {
	s.stop.Store(true)
	s.runs.Wait()
}

// check ends the stream and checks with another store that no operation was charged twice. It
// returns the number of operations that were answered as charged but are not: the master had not
// replicated them.
func (s *stream) check(now *testStore) (lost int) {
	s.t.Helper()
	s.end()
	const many = 1000
	numbers := make([]int64, 0, many)
	for n := int64(1); n <= s.next.Load(); n++ {
		numbers = append(numbers, n)
		if len(numbers) < many && n < s.next.Load() {
			continue
		}
		ops, out := make([]limiters.Op, len(numbers)), make([]limiters.Verdict, len(numbers))
		for i, n := range numbers {
			ops[i] = limiters.Op{Key: fmt.Sprint("op ", n), Limit: hourly}
		}
		// A cluster with a short node timeout may be down for a moment on a busy machine.
		redistest.Await(s.t, "the usage of all keys", func(ctx context.Context) error {
			err := now.Take(ctx, limiters.Singles(ops...), out)
			for i := range out {
				err = cmp.Or(err, out[i].Err)
			}
			return err
		})
		for i, n := range numbers {
			switch v := out[i]; {
			case v.Used > 1:
				s.t.Errorf("operation %d was charged %d times", n, v.Used)
			case s.charged[n] && v.Used == 0:
				lost++
			}
		}
		numbers = numbers[:0]
	}
	s.t.Logf("%d operations, %d failed, %d lost; errors: %v", s.next.Load(), s.failures(), lost, s.errs)
	return lost
}

// A request asks for a failover.
type request func(ctx context.Context) error

// awaitMaster waits until a replica is the master. It repeats the request, if any, because a busy
// machine may abort the failover.
func awaitMaster(t *testing.T, replica *redistest.Server, ask request) {
	t.Helper()
	var lastAsk time.Time
	redistest.Await(t, "the replica to be the master", func(ctx context.Context) error {
		err := replica.CheckMaster(ctx)
		if err != nil && ask != nil && time.Since(lastAsk) > 20*time.Second {
			lastAsk = time.Now()
			err = errors.Join(err, ask(ctx))
		}
		return err
	})
}

// A master dies with calls in flight. The store follows to the replica that the Sentinels promote.
// It does not wait for a connection to a server that hangs, which would take an hour.
func TestSentinelFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, w *redistest.SentinelSet) request{
		"killed": func(t *testing.T, w *redistest.SentinelSet) request {
			w.DetectFailures(t)
			w.Master.Stop()
			return nil
		},
		// It still answers, as a replica once the Sentinels have demoted it.
		"asked for": func(t *testing.T, w *redistest.SentinelSet) request {
			c := w.Sentinels[0].Client(t)
			return func(ctx context.Context) error { return c.Do(ctx, "sentinel", "failover", w.Name).Err() }
		},
		// Neither it nor a Sentinel answers.
		"frozen": func(t *testing.T, w *redistest.SentinelSet) request {
			w.DetectFailures(t)
			for _, server := range []*redistest.Server{w.Master, w.Sentinels[0]} {
				must.Succeed(t, server.Signal(syscall.SIGSTOP))
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := redistest.StartSentinels(t, "mymaster", 3, redistest.Secrets{})
			ops := startStream(t, openAt(t, connect.Options{
				Type: connect.Sentinel, Master: w.Name, Addrs: w.Addrs()[:1], Timeout: 100 * time.Millisecond, DialTimeout: time.Hour,
			}), func(int64) bool { return true })
			ops.awaitSuccesses(200)
			awaitMaster(t, w.Replica, fail(t, w))
			// The store asks one Sentinel. Each learns the new master from the others.
			sentinels := w.Sentinels
			if name == "frozen" {
				sentinels = sentinels[1:]
			}
			for _, sentinel := range sentinels {
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
			// Until then the old master continues to answer, and its charges are lost.
			after, there := ops.next.Load()+1, w.Replica.Client(t)
			redistest.Await(t, "an operation at the new master", func(ctx context.Context) error {
				for n := after; n <= ops.next.Load(); n++ {
					key := keyOf("", &limiters.Op{Key: fmt.Sprint("op ", n), Limit: hourly})
					if there.Exists(ctx, key).Val() == 1 {
						return nil
					}
				}
				return errors.New("none")
			})
			ops.awaitSuccesses(200)
			ops.check(openAt(t, connect.Options{Type: connect.Sentinel, Master: w.Name, Addrs: w.Addrs()[2:]}))
		})
	}
}

// A master of a cluster dies, or hands over, with calls in flight. The store follows to its
// replica. Each call that fails lets it read the hash slots, so only a few calls go to the old
// master. By itself, go-redis reads the hash slots once a minute, after hundreds of calls.
func TestClusterFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, c *redistest.Cluster, replica *redistest.Server) request{
		"killed": func(t *testing.T, c *redistest.Cluster, replica *redistest.Server) request {
			c.DetectFailures(t, replica)
			c.Servers[1].Stop()
			return nil
		},
		"frozen": func(t *testing.T, c *redistest.Cluster, replica *redistest.Server) request {
			c.DetectFailures(t, replica)
			must.Succeed(t, c.Servers[1].Signal(syscall.SIGSTOP))
			return nil
		},
		"handed over": func(t *testing.T, _ *redistest.Cluster, replica *redistest.Server) request {
			c := replica.Client(t)
			return func(ctx context.Context) error { return c.ClusterFailover(ctx).Err() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 200 * time.Millisecond
			if name == "handed over" {
				timeout = longTimeout // meanwhile the master lets all writes wait
			}
			c := redistest.StartCluster(t, 3)
			replica := c.AddReplica(t, 1)
			s := openCluster(t, c, func(c *connect.Options, _ *Options) { c.Timeout, c.DialTimeout = timeout, time.Hour })
			ops := startStream(t, s, func(n int64) bool {
				return c.Owner(int(hashSlotOf(keyOf("", &limiters.Op{Key: fmt.Sprint("op ", n), Limit: hourly})))) == 1
			})
			ops.awaitSuccesses(100)
			awaitMaster(t, replica, fail(t, c, replica))
			for _, node := range []*redistest.Server{c.Servers[0], c.Servers[2]} {
				awaitMasterAt(t, node, replica)
			}
			before := failedCalls(s, c.Servers[1].Addr)
			ops.awaitSuccesses(100)
			if n := failedCalls(s, c.Servers[1].Addr) - before; n > 20 {
				t.Errorf("%d calls went to the old master after all nodes had the slots of the new one", n)
			}
			lost := ops.check(openCluster(t, c, func(c *connect.Options, _ *Options) { c.Addrs = append(c.Addrs[:1], c.Addrs[2:]...) }))
			if name == "handed over" && lost > 0 {
				t.Errorf("%d operations were lost while the master handed over: %v", lost, ops.errs)
			}
		})
	}
}

// awaitMasterAt waits until a node of a cluster regards another as a master, and so replies with
// its hash slots.
func awaitMasterAt(t *testing.T, node, master *redistest.Server) {
	t.Helper()
	c := node.Client(t)
	redistest.Await(t, master.Addr+" to be a master at "+node.Addr, func(ctx context.Context) error {
		text, err := c.ClusterNodes(ctx).Result()
		for line := range strings.Lines(text) {
			if strings.Contains(line, master.Addr+"@") && strings.Contains(line, " master ") {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("its nodes are %q", text))
	})
}

// failedCalls returns the number of calls to a node that have failed since its last answer.
func failedCalls(s *testStore, addr string) int {
	c := s.topology.(*cluster)
	c.mu.Lock()
	q := c.nodes[addr].queue
	c.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.breaker.failures
}

// A node replies CLUSTERDOWN while other hash slots are not served, and answers again when they
// are.
func TestClusterRecoversAfterClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	mine, other := newLedger(t, s, keysOn(c, 1, 1)[0]), newLedger(t, s, keysOn(c, 2, 1)[0])
	slot := int(hashSlotOf(keyOf("", &limiters.Op{Key: keysOn(c, 1, 2)[1], Limit: hourly})))
	for _, l := range []*ledger{mine, other} {
		must.Succeed(t, l.charge())
	}
	node := c.Servers[1].Client(t)
	must.Succeed(t, node.ClusterDelSlots(t.Context(), slot).Err())
	must.Until(t, "CLUSTERDOWN", func() bool { return redis.IsClusterDownError(mine.charge()) })
	mine.mustFail("CLUSTERDOWN")
	if err := other.charge(); err != nil {
		t.Errorf("of another node: %v", err)
	}
	must.Succeed(t, node.ClusterAddSlots(t.Context(), slot).Err())
	redistest.Await(t, "the cluster", func(ctx context.Context) error {
		info, err := node.ClusterInfo(ctx).Result()
		if err == nil && !strings.Contains(info, "cluster_state:ok") {
			err = errors.New("it is down")
		}
		return err
	})
	mine.awaitAnswer()
	mine.verify()
	other.verify()
}

// Connections that were begun while nothing answered are not kept: each would fail one call after a
// failover.
func TestLateConnectionsAreNotKept(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	server := redistest.StartTLS(t, authority, "127.0.0.1")
	trusted := authority.Issue(t, "weir")
	config, err := tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File}.Config()
	must.Succeed(t, err)
	s := openAt(t, connect.Options{Addr: server.Addr, TLS: config, Timeout: 100 * time.Millisecond, DialTimeout: longTimeout, PoolSize: 10})
	l := newLedger(t, s, "k")
	must.Succeed(t, server.Signal(syscall.SIGSTOP))
	must.Until(t, "connections are begun", func() bool {
		if err := l.charge(); err == nil {
			t.Fatal("a frozen Redis has answered")
		}
		return s.Stats().Calls >= 10
	})
	must.Succeed(t, server.Signal(syscall.SIGCONT))
	l.awaitAnswer()
	for range 20 {
		l.awaitAnswer()
	}
	if n := s.client.PoolStats().IdleConns; n > 2 {
		t.Errorf("%d connections are kept, want at most 2", n)
	}
	l.verify()
}

// go-redis asks for the hash slots without a deadline. Without a bound, a node that accepts a
// connection and does not answer would delay the question to the next node by DialTimeout.
func TestLoadingSlotsHasATimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer silent.Close()
	s := openAt(t, connect.Options{
		Type: connect.Cluster, Addrs: []string{silent.Addr().String()}, TLS: &tls.Config{MinVersion: tls.VersionTLS12},
		Timeout: time.Second, DialTimeout: time.Hour,
	})
	mustReturn(t, "the request for the slots", func() {
		if _, err := s.topology.masters(context.Background()); err == nil {
			t.Error("want an error")
		}
	})
}

// The timeout of a Take includes the reading of hash slots, however many nodes are asked for them.
func TestTimeoutIncludesLoadingSlotsFromEveryNode(t *testing.T) {
	t.Parallel()
	const nodes, timeout = 30, 500 * time.Millisecond
	var addrs []string
	for range nodes {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		var accepting sync.WaitGroup
		defer accepting.Wait()
		defer silent.Close()
		accepting.Go(func() {
			for {
				conn, err := silent.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
			}
		})
		addrs = append(addrs, silent.Addr().String())
	}
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: addrs, Timeout: timeout})
	start := time.Now()
	if _, err := take(s, opsOf("a")...); err == nil {
		t.Error("want an error")
	}
	// The request to the first node uses up the timeout. A timeout for each node would end after
	// nodes*timeout.
	if elapsed := time.Since(start); elapsed > nodes*timeout/2 {
		t.Errorf("a Take ended after %v, want about %v", elapsed, timeout)
	}
}
