package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// RoundTrip returns the shortest duration of a few calls without hits, in a cluster to the nearest master. If it exceeds the timeout,
// every Take would fail. RoundTrip connects if necessary, and loads the script for the first Take.
func (s *Store) RoundTrip(ctx context.Context) (time.Duration, error) {
	shortest, err := probe(ctx, s, roundTrip)
	if err != nil {
		return 0, err
	}
	return slices.Min(shortest), nil
}

// roundTrip connects and loads the script before it measures.
func roundTrip(ctx context.Context, master server) (time.Duration, error) {
	const calls = 3
	shortest, err := master.ping(ctx)
	for i := 0; i < calls && err == nil; i++ {
		var took time.Duration
		took, err = master.ping(ctx)
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

func policyOf(ctx context.Context, master server) (string, error) {
	if err := master.client.Ping(ctx).Err(); err != nil {
		return "", err
	}
	// An ACL may forbid INFO, which Weir does not need otherwise.
	info, err := master.client.Info(ctx, "memory").Result()
	if err != nil {
		return "", nil
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ := strings.Cut(rest, "\r\n")
	return policy, nil
}

// probe calls f for all masters concurrently, and returns the results. It fails only if each call fails.
func probe[T any](ctx context.Context, s *Store, f func(context.Context, server) (T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connectTimeout)
	defer cancel()
	masters, err := s.servers.masters(ctx)
	var probing sync.WaitGroup
	var mu sync.Mutex
	var results []T
	for _, master := range masters {
		probing.Go(func() {
			result, callErr := f(ctx, master)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case callErr == nil:
				results = append(results, result)
			case master.address != "":
				err = fmt.Errorf("node %s: %w", master.address, callErr)
			default:
				err = callErr
			}
		})
	}
	probing.Wait()
	if len(results) == 0 {
		return nil, s.failure("redis", err)
	}
	return results, nil
}
