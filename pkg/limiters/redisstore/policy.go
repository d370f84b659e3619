package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// noEviction is the policy under which Redis drops no counters.
const noEviction = "noeviction"

// EvictionPolicy is Redis' maxmemory-policy, "" where it does not tell. Any but noeviction may drop counters. Of a
// cluster it is that of a master that may, if one does. The error says that Redis does not answer: no master of it. As it
// is what a process asks first, it may take as long as connecting does.
func (s *Store) EvictionPolicy(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connect)
	defer cancel()
	var policy string
	var err error
	if s.cluster != nil {
		policy, err = s.clusterPolicy(ctx)
	} else {
		policy, err = policyOf(ctx, s.client)
	}
	if err != nil {
		return "", fmt.Errorf("redisstore: redis at %s: %w", s.where, explained(err))
	}
	return policy, nil
}

// RoundTrip is how long a call takes at least: the shortest of a few that charge nothing, and of a cluster that of its
// nearest master. Where it is more than the timeout of Options every Take fails. It may itself take as long as connecting
// does; after it the next Take finds a connection, and the script, there.
func (s *Store) RoundTrip(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connect)
	defer cancel()
	var shortest time.Duration
	var err error
	if s.cluster != nil {
		shortest, err = s.clusterRoundTrip(ctx)
	} else {
		shortest, err = s.roundTrip(ctx, s.client, s.clock)
	}
	if err != nil {
		return 0, fmt.Errorf("redisstore: redis at %s: %w", s.where, explained(err))
	}
	return shortest, nil
}

func (s *Store) clusterRoundTrip(ctx context.Context) (time.Duration, error) {
	var mu sync.Mutex
	var shortest time.Duration
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		took, err := s.roundTrip(ctx, master, newClock())
		if err != nil {
			return fmt.Errorf("node %s: %w", master.Options().Addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if shortest == 0 || took < shortest {
			shortest = took
		}
		return nil
	})
	if shortest > 0 {
		return shortest, nil
	}
	if err == nil {
		err = errNoMaster
	}
	return 0, err
}

// roundTrip makes a connection, and brings the script there, before it takes the time.
func (s *Store) roundTrip(ctx context.Context, c processor, clock *clock) (time.Duration, error) {
	const calls = 3
	shortest, err := s.script.greet(ctx, c, clock)
	for i := 0; i < calls && err == nil; i++ {
		var took time.Duration
		took, err = s.script.greet(ctx, c, clock)
		shortest = min(shortest, took)
	}
	return shortest, err
}

var errNoMaster = errors.New("no node has slots")

func (s *Store) clusterPolicy(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var told []string
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		policy, err := policyOf(ctx, master)
		if err != nil {
			return fmt.Errorf("node %s: %w", master.Options().Addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, policy)
		return nil
	})
	if len(told) == 0 {
		if err == nil {
			err = errNoMaster
		}
		return "", err
	}
	for _, policy := range told {
		if policy != "" && policy != noEviction {
			return policy, nil
		}
	}
	return told[0], nil
}

func policyOf(ctx context.Context, c redis.UniversalClient) (string, error) {
	if err := c.Ping(ctx).Err(); err != nil {
		return "", err
	}
	// An ACL may well deny this, which is no reason not to serve.
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return "", nil
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ := strings.Cut(rest, "\r\n")
	return policy, nil
}
