package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A store is a limiters.Store with its maintenance.
type store struct {
	limiters.Store
	run     func(ctx context.Context, ready func()) // calls ready once the store has answered, and returns when ctx ends, or before
	stopped func()                                  // called when no request is in flight any more
	close   func()
}

func openStore(s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics) (*store, error) {
	if s.BackendType == settings.Memory {
		m := openMemory(s, log)
		metrics.Memory(func() telemetry.MemoryStats { return telemetry.MemoryStats(m.store.Stats()) })
		if m.path != "" {
			metrics.Snapshot(m.snapshotStats)
		}
		return &store{Store: m.store, run: m.run, stopped: m.stopped, close: func() {}}, nil
	}
	if s.MemorySnapshot != "" {
		log.Warn("setting has no effect", zap.String("variable", "MEMORY_SNAPSHOT"), zap.String("reason", "the counters are in Redis"))
	}
	main, err := openRedis(s, redisSettings{
		prefix: "REDIS", kind: s.RedisType, socket: s.RedisSocketType, url: s.RedisURL,
		auth: s.RedisAuth, sentinelAuth: s.RedisSentinelAuth, authFile: s.RedisAuthFile, sentinelFile: s.RedisSentinelFile,
		tls: s.RedisTLS, pool: s.RedisPoolSize, dial: s.RedisTimeout,
	}, log, metrics)
	if err != nil || !s.RedisPerSecond {
		return main, err
	}
	p := &s.PerSecond
	second, err := openRedis(s, redisSettings{
		prefix: "REDIS_PERSECOND", kind: p.Type, socket: p.SocketType, url: p.URL,
		auth: p.Auth, sentinelAuth: p.SentinelAuth, authFile: p.AuthFile, sentinelFile: p.SentinelFile,
		tls: p.TLS, pool: p.PoolSize, dial: p.Timeout,
	}, log, metrics)
	if err != nil {
		main.close()
		return nil, err
	}
	return &store{
		Store: guard.NewPerSecond(main, second),
		run: func(ctx context.Context, ready func()) {
			main.run(ctx, func() { second.run(ctx, ready) })
		},
		stopped: func() {},
		close: func() {
			main.close()
			second.close()
		},
	}, nil
}

// withDenyCache wraps a store on Redis with a deny cache. A store in memory stays as it is. The function drop forgets all
// denials.
// The function stop sends the hits that Redis has not counted yet. It must be called before the store is closed.
func withDenyCache(
	s *settings.Serve, inner limiters.Store, log *zap.Logger, metrics *telemetry.Metrics,
) (outer limiters.Store, drop, stop func()) {
	if s.BackendType != settings.Redis || s.LocalCacheSize == 0 {
		return inner, func() {}, func() {}
	}
	cache := guard.NewDenyCache(inner, guard.DenyOptions{Bytes: s.LocalCacheSize, Max: s.DenyCacheMax})
	metrics.DenyCache(func() telemetry.DenyCacheStats { return telemetry.DenyCacheStats(cache.Stats()) })
	return cache, cache.Drop, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := cache.Close(ctx); err != nil {
			log.Warn("denied hits not counted in redis", zap.Error(err))
		}
	}
}

// withFallback wraps a store with the decisions of on_store_error. For Redis it also keeps counters for the share of this
// replica in memory. sweepLocal removes expired ones until ctx ends.
func withFallback(
	s *settings.Serve, inner limiters.Store, r *replicas, rules *ruleSource, log *zap.Logger, metrics *telemetry.Metrics,
) (f *guard.Fallback, sweepLocal func(ctx context.Context)) {
	o := guard.FallbackOptions{Replicas: r.now, FalseLimit: s.LocalFalseLimit, Changed: telemetry.StoreLog(log)}
	sweepLocal = func(context.Context) {}
	if s.BackendType == settings.Redis {
		local := memstore.New(memoryOptions(s))
		metrics.Memory(func() telemetry.MemoryStats { return telemetry.MemoryStats(local.Stats()) })
		o.Local, sweepLocal = local, func(ctx context.Context) { sweep(ctx, local) }
	}
	f = guard.NewFallback(inner, o)
	metrics.Fallback(func() telemetry.FallbackStats { return telemetry.FallbackStats(f.Stats()) }, rules.live.Load)
	return f, sweepLocal
}

// sweep removes expired keys every second. Once Redis is back, no request does.
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

// canDecideWithoutStore reports whether on_store_error decides every request while the store is unreachable.
func canDecideWithoutStore(rules *descriptors.Rules) bool {
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

// redisSettings are the settings whose variables begin with prefix.
type redisSettings struct {
	prefix, kind, socket, url string
	auth, sentinelAuth        string
	authFile, sentinelFile    string // instead of auth and sentinelAuth
	tls                       bool
	pool                      int
	dial                      time.Duration
}

func openRedis(s *settings.Serve, w redisSettings, log *zap.Logger, metrics *telemetry.Metrics) (*store, error) {
	kind, err := connect.ParseType(w.kind)
	if err != nil {
		return nil, fmt.Errorf("%s_TYPE: %w", w.prefix, err)
	}
	c, err := connect.ParseURL(kind, w.socket, w.url)
	if err != nil {
		return nil, fmt.Errorf("%s_URL: %w", w.prefix, err)
	}
	c.SetAuth(w.auth)
	c.SetSentinelAuth(w.sentinelAuth)
	if err := w.files(&c); err != nil {
		return nil, err
	}
	if w.tls || c.TLS != nil {
		files := tlsfiles.Client{Cert: s.RedisCert, Key: s.RedisKey, CA: s.RedisCA, SkipHostname: s.RedisSkipHostname}
		if c.TLS, err = files.Config(); err != nil {
			return nil, fmt.Errorf("%s_TLS: %w", w.prefix, err)
		}
	}
	c.Timeout, c.DialTimeout, c.PoolSize = s.StoreTimeout, w.dial, w.pool
	o := redisstore.Options{
		Prefix: s.CacheKeyPrefix, KeySecret: s.KeyHashSecret, MaxBatch: s.StoreMaxBatch, MaxWaiting: s.StoreMaxWaiting,
	}
	if s.StopCacheKeyIncrementWhenOverlimit && kind == connect.Cluster {
		// The keys of a group must be on one node of a cluster.
		o.Tag = descriptors.DomainOf
	}
	r := redisstore.New(c, o)
	metrics.Redis(w.prefix, func() telemetry.RedisStats {
		s := r.Stats()
		return telemetry.RedisStats{Calls: s.Calls, Hits: s.Hits, Refused: s.Refused, Left: s.Left, Broken: s.Broken, Panics: s.Panics}
	})
	return &store{
		Store: r,
		run: func(ctx context.Context, ready func()) {
			awaitRedis(ctx, r, s.StoreTimeout, log.With(zap.String("redis", w.prefix)), ready)
		},
		stopped: func() {},
		close: func() {
			if err := r.Close(); err != nil {
				log.Warn("redis not closed", zap.Error(err))
			}
		},
	}, nil
}

// files reads the files with passwords.
func (w redisSettings) files(c *connect.Options) error {
	if w.authFile != "" {
		if err := c.SetAuthFile(w.authFile); err != nil {
			return fmt.Errorf("%s_AUTH_FILE: %w", w.prefix, err)
		}
	}
	if w.sentinelFile != "" {
		if err := c.SetSentinelAuthFile(w.sentinelFile); err != nil {
			return fmt.Errorf("%s_SENTINEL_AUTH_FILE: %w", w.prefix, err)
		}
	}
	return nil
}

// untilReady are the waits between checks of a Redis that is not ready.
var untilReady = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// awaitRedis checks Redis until it answers within timeout, and then calls ready.
func awaitRedis(ctx context.Context, r *redisstore.Store, timeout time.Duration, log *zap.Logger, ready func()) {
	for failures := 0; ; failures++ {
		policy, took, err := askRedis(ctx, r, timeout)
		if err == nil {
			if policy != "" && policy != "noeviction" {
				log.Warn("redis may drop counters: set its maxmemory-policy to noeviction", zap.String("policy", policy))
			}
			log.Info("redis answers", zap.Duration("in", took))
			ready()
			return
		}
		if ctx.Err() != nil {
			return
		}
		text := "redis does not answer, not ready"
		switch {
		case errors.Is(err, errTooFar):
			text = "redis answers too late, not ready"
		case errors.Is(err, redisstore.ErrAuth):
			text = "redis refused the password, not ready"
		}
		wait := untilReady.Wait(failures)
		log.Error(text, zap.Error(err), zap.Duration("retry_in", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

var errTooFar = errors.New("every request would fail: raise STORE_TIMEOUT, and the timeout of Envoy's rate limit filter above it")

func askRedis(ctx context.Context, r *redisstore.Store, timeout time.Duration) (policy string, took time.Duration, err error) {
	if policy, err = r.EvictionPolicy(ctx); err != nil {
		return "", 0, err
	}
	if took, err = r.RoundTrip(ctx); err != nil {
		return "", 0, err
	}
	took = took.Round(10 * time.Microsecond)
	if took >= timeout {
		return "", 0, fmt.Errorf("it answers in %v, and STORE_TIMEOUT is %v: %w", took, timeout, errTooFar)
	}
	return policy, took, nil
}
