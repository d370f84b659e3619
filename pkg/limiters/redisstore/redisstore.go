// Package redisstore implements [limiters.Store] on Redis or Valkey, for any number of replicas. Redis may be a single
// server, a master watched by Sentinels, or a cluster.
//
// A Take goes through these types:
//
//   - A [queue] makes one call at a time to a Redis server. Takes that arrive during a call share the next one. A cluster
//     has a queue for each node, see [nodes].
//   - A [breaker] rejects hits immediately while Redis does not answer.
//   - A [batch] is the arguments of a call, and a [reply] its verdicts.
//   - A [script] decides all hits of a call at one time, the server's; in a cluster, it decides those of one slot. Its
//     source is in pkg/redisscripts, so this package contains no algorithm. It knows which keys a limit has, and which decider of the
//     scripts takes a hit.
//
// A call carries its deadline in the server's time, see [serverClock], and charges nothing if it runs later.
//
// A call is sent again only if it charged nothing: after NOSCRIPT and, in a cluster, after MOVED, ASK or TRYAGAIN. It is also sent
// again if the script rejected it as late although its deadline has not passed by the local clock. The estimate of the server's clock
// was then wrong. After a lost connection or a timeout, the hits get an error and may have been charged.
package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A Store is a [limiters.Store] on Redis.
type Store struct {
	client      redis.UniversalClient
	address     string // for errors
	script      script
	namer       keyNamer
	timeout     time.Duration // of a Take
	connectTime time.Duration // of a request that may have to connect first
	stats       statCounters
	taker       split.Taker // queue or nodes

	// A single Redis, or a master behind Sentinels, has one queue. In a cluster, these fields are nil.
	queue       *queue
	clock       *serverClock
	reconnector *reconnector
	// A cluster has a queue for each node. Otherwise, these fields are nil.
	cluster *redis.ClusterClient // client
	nodes   *nodes

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	closing sync.RWMutex
	closed  bool
	running sync.WaitGroup // Takes, calls, and goroutines started by them
}

// New returns a Store. The first call connects.
func New(c connect.Options, o Options) *Store {
	c, o = c.WithDefaults(), o.withDefaults()
	s := &Store{
		client:      c.Open(),
		address:     c.String(),
		script:      batchScript(),
		namer:       keyNamer{o.Prefix, o.Tag, newKeyHasher(o.KeySecret)},
		timeout:     c.Timeout,
		connectTime: max(c.Timeout, c.DialTimeout),
	}
	s.cluster, _ = s.client.(*redis.ClusterClient)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	newQueue := func(call callFunc) *queue {
		return &queue{
			call: call, timeout: s.timeout, maxBatch: o.MaxBatch, maxWaiting: o.MaxWaiting, stats: &s.stats, running: &s.running,
		}
	}
	if s.cluster != nil {
		s.nodes = &nodes{store: s, newQueue: newQueue, slots: slotLearner{timeout: s.timeout}, queues: map[string]*queue{}}
		s.taker = s.nodes
	} else {
		s.queue, s.clock, s.reconnector = newQueue(s.decide), newServerClock(), s.newReconnector()
		s.taker = s.queue
	}
	return s
}

func (s *Store) newReconnector() *reconnector {
	return &reconnector{ctx: s.ctx, running: &s.running, timeout: s.connectTime}
}

// Close waits for all Takes in progress and closes the connections. Later Takes fail with ErrClosed.
func (s *Store) Close() error {
	s.closing.Lock()
	s.closed = true
	s.closing.Unlock()
	s.cancel()
	s.running.Wait()
	return s.client.Close()
}

// enter adds a Take to running. It returns false after Close. A Take adds the goroutines that it starts before it leaves, so running
// never rises from 0 while Close waits.
func (s *Store) enter() bool {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// Take implements [limiters.Store]. It returns within Timeout.
func (s *Store) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return limiters.Uncharged(err)
	}
	if len(out) > maxBatchHits && countKeys(groups) > maxIndex {
		return ErrTooManyKeys
	}
	if !s.enter() {
		return ErrClosed
	}
	defer s.running.Done()
	if len(groups) == 0 {
		return nil
	}
	if err := s.taker.Take(ctx, now, groups, out); err != nil {
		return fmt.Errorf("redis at %s: %w", s.address, explainError(err))
	}
	return nil
}

// Stats are the counters of a Store since its creation.
type Stats struct {
	Calls, Hits     int64 // calls, and the hits in them
	QueueRejected   int64 // hits that failed with ErrQueueFull
	TimedOut        int64 // hits that timed out before they were sent; they were not charged
	BreakerRejected int64 // hits that failed with ErrBreakerOpen
	Panics          int64 // calls that failed because of a bug, see split.ErrPanic
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	return Stats{
		Calls: s.stats.calls.Load(), Hits: s.stats.hits.Load(),
		QueueRejected: s.stats.queueRejected.Load(), TimedOut: s.stats.timedOut.Load(),
		BreakerRejected: s.stats.breakerRejected.Load(), Panics: s.stats.panics.Load(),
	}
}

// decide decides groups in one call to a single Redis.
func (s *Store) decide(ctx context.Context, notAfter, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	b := pooledBatch(notAfter, now, groups, s.namer)
	defer b.release()
	r, err := s.script.call(ctx, s.client, s.clock, b)
	if err != nil {
		s.reconnector.afterError(err, s.client)
		return explainClusterError(err)
	}
	return b.read(r, out)
}
