// Package redisstore implements [limiters.Store] on Redis or Valkey, for any number of replicas.
// Redis may be a single server, a master watched by Sentinels, or a cluster.
//
// A Take goes through these types:
//
//   - A [queue] makes one call at a time to a Redis server. Takes that arrive during a call share
//     the next one. A [singleServer] Redis has one queue. A cluster has one for each [node], and
//     one for Takes that come before the hash slots are known.
//   - A [breaker] rejects operations immediately while Redis does not answer.
//   - A [batch] is the arguments of a call, and a [reply] its verdicts.
//   - A [scriptCaller] calls the script of pkg/redisscripts, which decides all operations of a
//     call, or in a cluster those of one hash slot, by default at the server's time.
//
// This package chooses the keys of a limit and the decider of an operation.
//
// A call carries its deadline in the server's time, see [serverClock], and charges nothing if it
// runs later.
//
// A call is sent again only if it charged nothing, which is certain in two cases:
//
//   - Redis did not run the script: NOSCRIPT and, in a cluster, MOVED, ASK or TRYAGAIN.
//   - The script rejected the call as late, but by the local clock the deadline has not passed. The
//     estimate of the server's clock was then wrong.
//
// After a lost connection or a timeout, the operations get an error, and their hits may have been
// charged.
package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A Store is a [limiters.Store] on Redis.
type Store struct {
	client         redis.UniversalClient
	topology       topology
	address        string // the address that errors name
	namer          keyNamer
	now            func() time.Time // Options.Now
	connectTimeout time.Duration    // the timeout of a request that may have to connect first
	queues         queueConfig
	stats          statCounters

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // Takes, calls, and goroutines started by them
	closing sync.RWMutex   // guards closed
	closed  bool
}

// A topology decides operations on the servers of a Store: a [singleServer] Redis or a [cluster].
type topology interface {
	// Take is [Store.Take] with at least one group. After an error, out is undefined.
	Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error
	// masters returns the servers that have keys, one at least, in the order of their addresses.
	masters(ctx context.Context) ([]master, error)
}

// A master is a Redis server that has keys.
type master struct {
	client redis.UniversalClient
	node   string // the address of the node of a cluster; "" for a singleServer
}

// New returns a Store. The first call connects.
func New(c connect.Options, o Options) *Store {
	c, o = c.WithDefaults(), o.withDefaults()
	batchScript() // so that no call waits until it is built
	s := &Store{
		client:         c.Open(),
		address:        c.String(),
		namer:          keyNamer{o.KeyPrefix, o.Tag, newKeyHasher(o.KeySecret)},
		now:            o.Now,
		connectTimeout: max(c.Timeout, c.DialTimeout),
	}
	s.queues = queueConfig{timeout: c.Timeout, maxBatch: o.MaxBatch, maxWaiting: o.MaxWaiting, stats: &s.stats, running: &s.running}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if client, ok := s.client.(*redis.ClusterClient); ok {
		s.topology = newCluster(s, client)
	} else {
		s.topology = newSingleServer(s)
	}
	return s
}

func (s *Store) newReconnector() *reconnector {
	return &reconnector{ctx: s.ctx, timeout: s.connectTimeout, running: &s.running}
}

// Close waits for all operations in progress and closes the connections. Later operations fail with
// ErrClosed.
func (s *Store) Close() error {
	s.closing.Lock()
	s.closed = true
	s.closing.Unlock()
	s.cancel()
	s.running.Wait()
	return s.client.Close()
}

// enter adds an operation to running. It returns false after Close. A Take adds the goroutines that
// it starts before it leaves, so running never rises from 0 while Close waits.
func (s *Store) enter() bool {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// Take implements [limiters.Store]. It returns about a millisecond after [connect.Options].Timeout
// at the latest. In a cluster, it may take another Timeout if no Take has loaded the hash slots
// yet, and another to refund a charge of a moving hash slot.
func (s *Store) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if err := s.decide(ctx, groups, out); err != nil {
		return limiters.FailAll(out, err)
	}
	return nil
}

// decide is Take, except that out is undefined after an error.
func (s *Store) decide(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return limiters.Uncharged(err)
	}
	if len(out) > maxBatchOps {
		return ErrTooManyOps
	}
	if !s.enter() {
		return ErrClosed
	}
	defer s.running.Done()
	if len(groups) == 0 {
		return nil
	}
	if err := s.topology.Take(ctx, groups, out); err != nil {
		return s.failure("take", err)
	}
	for i := range out {
		if out[i].Err != nil {
			out[i].Err = explainError(out[i].Err)
		}
	}
	return nil
}

// failure explains err, the error of an operation.
func (s *Store) failure(operation string, err error) error {
	return fmt.Errorf("redisstore: %s at %s: %w", operation, s.address, explainError(err))
}

// Stats are the counters of a Store since its creation.
type Stats struct {
	Calls, Ops      int64 // calls, and the operations in them
	QueueRejected   int64 // operations that failed with ErrQueueFull
	Unsent          int64 // operations that timed out or were canceled before they were sent; nothing was charged
	BreakerRejected int64 // operations that failed with ErrBreakerOpen
	Panics          int64 // calls that failed because of a bug, see limiters.ErrPanic
}

// statCounters are the counters behind [Stats], over all queues of a store.
type statCounters struct {
	calls, ops atomic.Int64
	panics     atomic.Int64

	queueRejected, unsent, breakerRejected atomic.Int64 // operations
}

// countCall counts a call with a number of operations.
func (s *statCounters) countCall(ops int) {
	s.calls.Add(1)
	s.ops.Add(int64(ops))
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	return Stats{
		Calls: s.stats.calls.Load(), Ops: s.stats.ops.Load(),
		QueueRejected: s.stats.queueRejected.Load(), Unsent: s.stats.unsent.Load(),
		BreakerRejected: s.stats.breakerRejected.Load(), Panics: s.stats.panics.Load(),
	}
}
