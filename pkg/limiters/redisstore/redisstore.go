// Package redisstore is a limiters.Store on Redis or Valkey, shared by any number of replicas and exact across them: all
// hits of a call are decided by one script, at one time, the server's own (TIME). It is one Redis, one that Sentinels
// watch, or a cluster, where the hits of each slot are decided so.
//
// A call is sent at most once. Only what is known not to have run is sent again: a NOSCRIPT, and in a cluster a MOVED,
// an ASK and a TRYAGAIN; after a lost connection or a deadline that passed, the hits are answered with an error and may
// have been charged.
//
// The store knows no algorithm: a limit names its own and gives its numbers, and the script of pkg/redisscripts does the
// rest. What it builds and reads is a batch of hits; that a batch is one Take is the business of Take alone, so that
// batches across requests need no change elsewhere.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// A Store keeps the states of keys in Redis.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the same client, of a cluster
	where   string               // for errors
	script  script
	names   naming
	timeout time.Duration // of a call
	connect time.Duration // of what may have to connect first, and is in no hurry
}

// New makes a Store. It does not connect: the first call does. Close it when no call is under way any more.
func New(o Options) *Store {
	quiet()
	o = o.withDefaults()
	s := &Store{
		where:   o.Addr,
		script:  newScript(redisscripts.Batch(redisscripts.Algorithms...)),
		names:   naming{o.Prefix, o.Tag},
		timeout: o.Timeout,
		connect: max(o.Timeout, o.DialTimeout),
	}
	switch o.Type {
	case Sentinel:
		s.where = "the master " + o.Master + " of the Sentinels " + strings.Join(o.Addrs, ",")
		s.client = redis.NewFailoverClient(o.sentinel())
	case Cluster:
		s.where = "the cluster of " + strings.Join(o.Addrs, ",")
		s.cluster = redis.NewClusterClient(o.cluster())
		s.client = s.cluster
	default:
		s.client = redis.NewClient(o.single())
	}
	return s
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// Take implements limiters.Store. It waits for the timeout of Options at most.
func (s *Store) Take(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	if len(hits) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys := s.names.keys(hits)
	if s.cluster != nil && !sameSlot(keys) {
		return s.takeSlots(ctx, now, hits, keys, out)
	}
	b := newBatch(now, hits, keys)
	reply, err := s.script.run(ctx, s.client, b)
	if err != nil {
		if s.cluster != nil && redis.IsTryAgainError(err) {
			return s.takeParts(ctx, now, ties(now, b), out)
		}
		return s.failed(len(hits), err)
	}
	if err := b.read(reply, out); err != nil {
		return fmt.Errorf("redisstore: reply of %s: %w", s.where, err)
	}
	return nil
}

func (s *Store) failed(hits int, err error) error {
	return fmt.Errorf("redisstore: take of %d hits at %s: %w", hits, s.where, explained(err))
}

// explained says in words what go-redis says with an empty answer: only Sentinels give one.
func explained(err error) error {
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("the Sentinels know no master of that name: %w", err)
	}
	return err
}
