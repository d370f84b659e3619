package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// RoundTrip returns the shortest duration of a few calls without hits, in a cluster to the nearest master. If it exceeds the timeout,
// every Take would fail. RoundTrip connects if necessary, and loads the script for the first Take.
func (s *Store) RoundTrip(ctx context.Context) (time.Duration, error) {
	shortest, err := probe(ctx, s, s.roundTrip)
	if err != nil {
		return 0, err
	}
	return slices.Min(shortest), nil
}

// roundTrip connects and loads the script before it measures.
func (s *Store) roundTrip(ctx context.Context, c redis.UniversalClient) (time.Duration, error) {
	const calls = 3
	clock := s.clock
	if clock == nil { // in a cluster
		clock = newServerClock()
	}
	shortest, err := s.script.ping(ctx, c, clock)
	for i := 0; i < calls && err == nil; i++ {
		var took time.Duration
		took, err = s.script.ping(ctx, c, clock)
		shortest = min(shortest, took)
	}
	return shortest, err
}

// noEviction is the only policy under which Redis never evicts counters.
const noEviction = "noeviction"

// MayEvict reports whether Redis may evict counters under a maxmemory-policy. It returns false for "", an unknown policy.
func MayEvict(policy string) bool { return policy != "" && policy != noEviction }

// EvictionPolicy returns the maxmemory-policy of Redis, or "" if an ACL hides it. For a cluster, it returns the policy of a master
// that may evict counters, if any. It fails if Redis, or every master, is unreachable. It may connect first.
func (s *Store) EvictionPolicy(ctx context.Context) (string, error) {
	policies, err := probe(ctx, s, policyOf)
	if err != nil {
		return "", err
	}
	for _, policy := range policies {
		if MayEvict(policy) {
			return policy, nil
		}
	}
	return policies[0], nil
}

func policyOf(ctx context.Context, c redis.UniversalClient) (string, error) {
	if err := c.Ping(ctx).Err(); err != nil {
		return "", err
	}
	// An ACL may forbid INFO, which Weir does not need otherwise.
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return "", nil
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ := strings.Cut(rest, "\r\n")
	return policy, nil
}

// probe calls f for Redis, or for all masters of a cluster concurrently, and returns the results. It fails only if each call fails.
func probe[T any](ctx context.Context, s *Store, f func(context.Context, redis.UniversalClient) (T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connectTime)
	defer cancel()
	var mu sync.Mutex
	var results []T
	call := func(ctx context.Context, c redis.UniversalClient) error {
		result, err := f(ctx, c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		results = append(results, result)
		return nil
	}
	var err error
	if s.cluster == nil {
		err = call(ctx, s.client)
	} else {
		err = s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			if err := call(ctx, master); err != nil {
				return fmt.Errorf("node %s: %w", master.Options().Addr, err)
			}
			return nil
		})
	}
	if len(results) > 0 {
		return results, nil
	}
	if err == nil {
		err = errNoMaster
	}
	return nil, fmt.Errorf("redisstore: redis at %s: %w", s.address, explainError(err))
}

var errNoMaster = errors.New("no node of the cluster has slots")
