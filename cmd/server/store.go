package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
)

// A store is a limiters.Store with what the process has to do for it.
type store struct {
	limiters.Store
	await func(ctx context.Context, ready func()) // calls ready once the store has answered, or returns when ctx ends
	close func()
}

func openStore(s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics) (*store, error) {
	if s.BackendType == settings.Memory {
		m := memstore.New(memstore.Options{MaxKeys: s.MemoryMaxKeys, MaxBytes: s.MemoryMaxBytes})
		metrics.Memory(m.Stats)
		return &store{m, func(_ context.Context, ready func()) { ready() }, func() {}}, nil
	}
	o, err := redisstore.ParseURL(s.RedisSocketType, s.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	o.Prefix, o.Timeout, o.PoolSize = s.CacheKeyPrefix, s.StoreTimeout, s.RedisPoolSize
	r := redisstore.New(o)
	return &store{
		Store: r,
		await: func(ctx context.Context, ready func()) { awaitRedis(ctx, r, log, ready) },
		close: func() {
			if err := r.Close(); err != nil {
				log.Warn("redis not closed", zap.Error(err))
			}
		},
	}, nil
}

// awaitRedis asks until Redis answers, less and less often.
func awaitRedis(ctx context.Context, r *redisstore.Store, log *zap.Logger, ready func()) {
	const most = 5 * time.Second
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, most) {
		policy, err := r.EvictionPolicy(ctx)
		if err == nil {
			if policy != "" && policy != "noeviction" {
				log.Warn("redis may drop counters: set its maxmemory-policy to noeviction", zap.String("policy", policy))
			}
			log.Info("redis answers")
			ready()
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.Error("redis does not answer, not ready", zap.Error(err), zap.Duration("next try in", wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
