package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// noEviction is the only policy under which Redis never evicts counters.
const noEviction = "noeviction"

// EvictionPolicy returns the maxmemory-policy of Redis, or "" if an ACL hides it. For a cluster, it returns the policy of a master
// that may evict counters, if any. It fails if Redis, or every master, is unreachable. It may connect first.
func (s *Store) EvictionPolicy(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connectTime)
	defer cancel()
	var policy string
	var err error
	if s.cluster != nil {
		policy, err = s.clusterPolicy(ctx)
	} else {
		policy, err = policyOf(ctx, s.client)
	}
	if err != nil {
		return "", fmt.Errorf("redisstore: redis at %s: %w", s.address, explainError(err))
	}
	return policy, nil
}

func (s *Store) clusterPolicy(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var policies []string
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		policy, err := policyOf(ctx, master)
		if err != nil {
			return fmt.Errorf("node %s: %w", master.Options().Addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		policies = append(policies, policy)
		return nil
	})
	if len(policies) == 0 {
		if err == nil {
			err = errNoMaster
		}
		return "", err
	}
	for _, policy := range policies {
		if policy != "" && policy != noEviction {
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
