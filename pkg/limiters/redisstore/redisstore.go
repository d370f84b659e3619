// Package redisstore is a limiters.Store on Redis or Valkey, shared by any number of replicas and exact across them: all
// hits of a call are decided by one script, at one time, the server's own (TIME).
//
// A call is sent at most once. Only what is known not to have run, a NOSCRIPT, is sent again; after a lost connection or
// a deadline that passed, the hits are answered with an error and may have been charged.
//
// The store knows no algorithm: a limit names its own and gives its numbers, and the script of pkg/redisscripts does the
// rest. What it builds and reads is a batch of hits; that a batch is one Take is the business of Take alone, so that
// batches across requests need no change elsewhere.
package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// A Store keeps the states of keys in Redis.
type Store struct {
	client  *redis.Client
	script  script
	prefix  string
	timeout time.Duration
}

// New makes a Store. It does not connect: the first call does. Close it when no call is under way any more.
func New(o Options) *Store {
	quiet()
	o = o.withDefaults()
	return &Store{
		client:  redis.NewClient(o.client()),
		script:  newScript(redisscripts.Batch(redisscripts.Algorithms...)),
		prefix:  o.Prefix,
		timeout: o.Timeout,
	}
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// EvictionPolicy is Redis' maxmemory-policy, "" where it does not tell. Any but noeviction may drop counters. The error
// says that Redis does not answer.
func (s *Store) EvictionPolicy(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Ping(ctx).Err(); err != nil {
		return "", fmt.Errorf("redisstore: redis at %s: %w", s.client.Options().Addr, err)
	}
	// An ACL may well deny this, which is no reason not to serve.
	info, err := s.client.Info(ctx, "memory").Result()
	if err != nil {
		return "", nil
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ := strings.Cut(rest, "\r\n")
	return policy, nil
}

// Take implements limiters.Store. It waits for the timeout of Options at most.
func (s *Store) Take(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	if len(hits) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := newBatch(s.prefix, now, hits)
	reply, err := s.script.run(ctx, s.client, b)
	if err != nil {
		return fmt.Errorf("redisstore: take of %d hits at %s: %w", len(hits), s.client.Options().Addr, err)
	}
	if err := b.read(reply, out); err != nil {
		return fmt.Errorf("redisstore: reply of %s: %w", s.client.Options().Addr, err)
	}
	return nil
}
