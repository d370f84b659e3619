package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// RoundTrip returns the shortest duration of a few calls without hits, in a cluster to the nearest master. If it exceeds the timeout,
// every Take would fail. RoundTrip connects if necessary, and loads the script for the first Take.
func (s *Store) RoundTrip(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connectTime)
	defer cancel()
	var shortest time.Duration
	var err error
	if s.cluster != nil {
		shortest, err = s.clusterRoundTrip(ctx)
	} else {
		shortest, err = s.roundTrip(ctx, s.client, s.clock)
	}
	if err != nil {
		return 0, fmt.Errorf("redisstore: redis at %s: %w", s.address, explainError(err))
	}
	return shortest, nil
}

func (s *Store) clusterRoundTrip(ctx context.Context) (time.Duration, error) {
	var mu sync.Mutex
	var shortest time.Duration
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		took, err := s.roundTrip(ctx, master, newServerClock())
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

// roundTrip connects and loads the script before it measures.
func (s *Store) roundTrip(ctx context.Context, c redis.UniversalClient, clock *serverClock) (time.Duration, error) {
	const calls = 3
	shortest, err := s.script.ping(ctx, c, clock)
	for i := 0; i < calls && err == nil; i++ {
		var took time.Duration
		took, err = s.script.ping(ctx, c, clock)
		shortest = min(shortest, took)
	}
	return shortest, err
}

var errNoMaster = errors.New("no node of the cluster has slots")
