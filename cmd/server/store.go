package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/persecond"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
)

// A store is a limiters.Store with what the process has to do for it.
type store struct {
	limiters.Store
	// await calls ready once the store has answered, does what is to be done from time to time, and returns when ctx ends at
	// the latest.
	await   func(ctx context.Context, ready func())
	stopped func() // called when all servers have stopped, if they ever ran
	close   func()
}

func openStore(s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics) (*store, error) {
	if s.BackendType == settings.Memory {
		m := openMemory(s, log)
		metrics.Memory(m.store.Stats)
		if m.path != "" {
			metrics.Snapshot(m.statsNow)
		}
		return &store{Store: m.store, await: m.await, stopped: m.stopped, close: func() {}}, nil
	}
	if s.MemorySnapshot != "" {
		log.Warn("MEMORY_SNAPSHOT has no effect: the counters are in Redis, which keeps them", zap.String("snapshot", s.MemorySnapshot))
	}
	main, err := openRedis(s, where{
		prefix: "REDIS", kind: s.RedisType, socket: s.RedisSocketType, url: s.RedisURL,
		auth: s.RedisAuth, sentinelAuth: s.RedisSentinelAuth, tls: s.RedisTLS, pool: s.RedisPoolSize, dial: s.RedisTimeout,
	}, log, metrics)
	if err != nil || !s.RedisPerSecond {
		return main, err
	}
	p := &s.PerSecond
	second, err := openRedis(s, where{
		prefix: "REDIS_PERSECOND", kind: p.Type, socket: p.SocketType, url: p.URL,
		auth: p.Auth, sentinelAuth: p.SentinelAuth, tls: p.TLS, pool: p.PoolSize, dial: p.Timeout,
	}, log, metrics)
	if err != nil {
		main.close()
		return nil, err
	}
	return &store{
		Store: persecond.New(main, second),
		await: func(ctx context.Context, ready func()) {
			main.await(ctx, func() { second.await(ctx, ready) })
		},
		stopped: func() {},
		close: func() {
			main.close()
			second.close()
		},
	}, nil
}

// remember puts a deny cache before a store on Redis. Nothing else needs one: then it is the store that it was given, and
// drop does nothing. What is summed is sent when it is closed, before the store is.
func remember(
	s *settings.Serve, inner limiters.Store, log *zap.Logger, metrics *telemetry.Metrics,
) (outer limiters.Store, drop, stop func()) {
	if s.BackendType != settings.Redis || s.LocalCacheSize == 0 {
		return inner, func() {}, func() {}
	}
	cache := guard.NewDenyCache(inner, guard.DenyOptions{Bytes: s.LocalCacheSize, Max: s.DenyCacheMax})
	metrics.DenyCache(cache.Stats)
	return cache, cache.Drop, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := cache.Close(ctx); err != nil {
			log.Warn("not all denied hits were counted", zap.Error(err))
		}
	}
}

// fallBack puts what decides when a store fails before it, by the rules of the moment. What it decides by its share it
// keeps in a memory of its own, which tidy keeps from growing old until ctx ends; a store in memory has no other.
func fallBack(
	s *settings.Serve, inner limiters.Store, r *replicas, rules *ruleSource, log *zap.Logger, metrics *telemetry.Metrics,
) (f *guard.Fallback, tidy func(ctx context.Context)) {
	o := guard.FallbackOptions{Replicas: r.now, FalseLimit: s.LocalFalseLimit, Changed: telemetry.StoreLog(log)}
	tidy = func(context.Context) {}
	if s.BackendType == settings.Redis {
		local := memstore.New(memstore.Options{MaxKeys: s.MemoryMaxKeys, MaxBytes: s.MemoryMaxBytes})
		metrics.Memory(local.Stats)
		o.Local, tidy = local, func(ctx context.Context) { sweep(ctx, local) }
	}
	f = guard.NewFallback(inner, o)
	metrics.Fallback(f.Stats, rules.live.Rules)
	return f, tidy
}

// sweep drops from time to time what is as good as new: nobody asks a local store once the other is back.
func sweep(ctx context.Context, local *memstore.Store) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			local.Sweep()
		case <-ctx.Done():
			return
		}
	}
}

// canDoWithout tells whether no request fails while the store does.
func canDoWithout(rules *descriptors.Rules) bool {
	if rules == nil {
		return false
	}
	for d := range rules.Domains() {
		if slices.Contains(d.OnErrors(), limiters.OnErrorFail) {
			return false
		}
	}
	return true
}

// where is what the variables that begin with prefix say of a Redis.
type where struct {
	prefix, kind, socket, url, auth, sentinelAuth string
	tls                                           bool
	pool                                          int
	dial                                          time.Duration
}

func openRedis(s *settings.Serve, w where, log *zap.Logger, metrics *telemetry.Metrics) (*store, error) {
	kind, err := redisstore.ParseType(w.kind)
	if err != nil {
		return nil, fmt.Errorf("%s_TYPE: %w", w.prefix, err)
	}
	o, err := redisstore.ParseURL(kind, w.socket, w.url)
	if err != nil {
		return nil, fmt.Errorf("%s_URL: %w", w.prefix, err)
	}
	o.SetAuth(w.auth)
	o.SetSentinelAuth(w.sentinelAuth)
	if w.tls || o.TLS != nil {
		files := redisstore.TLSFiles{Cert: s.RedisCert, Key: s.RedisKey, CA: s.RedisCA, SkipHostname: s.RedisSkipHostname}
		if o.TLS, err = files.Config(); err != nil {
			return nil, fmt.Errorf("%s_TLS: %w", w.prefix, err)
		}
	}
	o.Prefix, o.KeySecret = s.CacheKeyPrefix, s.KeyHashSecret
	o.Timeout, o.DialTimeout, o.PoolSize = s.StoreTimeout, w.dial, w.pool
	if s.StopCacheKeyIncrementWhenOverlimit && kind == redisstore.Cluster {
		// What is charged whole or not at all has to be on one node of a cluster.
		o.Tag = descriptors.DomainOf
	}
	r := redisstore.New(o)
	metrics.Redis(w.prefix, r.Stats)
	return &store{
		Store: r,
		await: func(ctx context.Context, ready func()) {
			awaitRedis(ctx, r, log.With(zap.String("redis", w.prefix)), ready)
		},
		stopped: func() {},
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
		log.Error("redis does not answer within STORE_TIMEOUT, not ready", zap.Error(err), zap.Duration("next try in", wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
