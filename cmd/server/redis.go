package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A redisBackend is a backend on one Redis.
type redisBackend struct {
	*redisstore.Store
	timeout time.Duration // STORE_TIMEOUT
	log     *zap.Logger
}

// openRedis makes the store on a Redis whose variables begin with prefix.
func (p *process) openRedis(prefix string, server *settings.RedisServer) (*redisBackend, error) {
	s := p.settings
	c, err := redisOptions(s, prefix, server)
	if err != nil {
		return nil, err
	}
	o := redisstore.Options{
		KeyPrefix: s.CacheKeyPrefix, KeySecret: s.KeyHashSecret, MaxBatch: s.StoreMaxBatch, MaxWaiting: s.StoreMaxWaiting,
	}
	if s.StopCacheKeyIncrementWhenOverlimit && c.Type == connect.Cluster {
		// The keys of a group must be on one node of a cluster.
		o.Tag = descriptors.DomainOf
	}
	r := &redisBackend{Store: redisstore.New(c, o), timeout: s.StoreTimeout, log: p.log.With(zap.String("redis", prefix))}
	p.closers = append(p.closers, r.close)
	p.metrics.RegisterRedis(prefix, func() telemetry.RedisStats { return telemetry.RedisStats(r.Stats()) })
	return r, nil
}

// redisURLOptions parses the address of a Redis whose variables begin with prefix.
func redisURLOptions(prefix string, server *settings.RedisServer) (c connect.Options, err error) {
	kind, err := connect.ParseType(server.Type)
	if err != nil {
		return c, fmt.Errorf("%s_TYPE: %w", prefix, err)
	}
	c, err = connect.ParseURL(kind, server.SocketType, server.URL)
	if err != nil {
		return c, fmt.Errorf("%s_URL: %w", prefix, err)
	}
	return c, nil
}

// redisOptions returns how to connect to a Redis whose variables begin with prefix.
func redisOptions(s *settings.Serve, prefix string, server *settings.RedisServer) (connect.Options, error) {
	c, err := redisURLOptions(prefix, server)
	if err != nil {
		return c, err
	}
	c.Login.Set(server.Auth)
	c.SentinelLogin.Set(server.SentinelAuth)
	if server.AuthFile != "" {
		if err := c.Login.SetFile(server.AuthFile); err != nil {
			return c, fmt.Errorf("%s_AUTH_FILE: %w", prefix, err)
		}
	}
	if server.SentinelFile != "" {
		if err := c.SentinelLogin.SetFile(server.SentinelFile); err != nil {
			return c, fmt.Errorf("%s_SENTINEL_AUTH_FILE: %w", prefix, err)
		}
	}
	if server.TLS || c.TLS != nil {
		files := tlsfiles.Client{Cert: s.RedisCert, Key: s.RedisKey, CA: s.RedisCA, SkipHostname: s.RedisSkipHostname}
		c.TLS, err = files.Config()
		if err != nil {
			return c, fmt.Errorf("%s_TLS: %w", prefix, err)
		}
	}
	c.Timeout = s.StoreTimeout
	c.DialTimeout = server.Timeout
	c.PoolSize = server.PoolSize
	return c, nil
}

// redisBackoff is the wait between checks of a Redis that is not ready.
var redisBackoff = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// run checks Redis until it answers within the timeout, and then calls answered.
func (r *redisBackend) run(ctx context.Context, answered func()) {
	for failures := 0; ; failures++ {
		result, err := r.probe(ctx)
		if err == nil {
			if result.MayEvict() {
				r.log.Warn("redis may evict counters", zap.String("maxmemory_policy", result.EvictionPolicy),
					zap.String("remedy", "set its maxmemory-policy to noeviction"))
			}
			r.log.Info("redis answers", zap.Duration("took_seconds", result.RoundTrip))
			answered()
			return
		}
		if ctx.Err() != nil {
			return
		}
		text := "redis does not answer, not ready"
		switch {
		case errors.Is(err, errRoundTripTooLong):
			text = "redis answers too late, not ready"
		case errors.Is(err, redisstore.ErrAuth):
			text = "redis rejected the password, not ready"
		}
		wait := redisBackoff.Wait(failures)
		r.log.Error(text, zap.Error(err), zap.Duration("retry_seconds", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

var errRoundTripTooLong = errors.New("a call to Redis takes longer than STORE_TIMEOUT")

// probe is [redisstore.Store.Probe], but fails if a round trip takes as long as the timeout.
func (r *redisBackend) probe(ctx context.Context) (redisstore.ProbeResult, error) {
	result, err := r.Probe(ctx)
	if err != nil {
		return result, err
	}
	result.RoundTrip = result.RoundTrip.Round(10 * time.Microsecond)
	if result.RoundTrip >= r.timeout {
		return result, fmt.Errorf("%w: %v, want less than %v: raise STORE_TIMEOUT, and the timeout of Envoy's rate limit filter above it",
			errRoundTripTooLong, result.RoundTrip, r.timeout)
	}
	return result, nil
}

func (r *redisBackend) check(ctx context.Context) error {
	_, err := r.probe(ctx)
	return err
}

func (r *redisBackend) close() {
	if err := r.Close(); err != nil {
		r.log.Warn("redis not closed", zap.Error(err))
	}
}

// A redisPairBackend is a backend on two Redis servers: perSecond has the limits per second, and
// main all others.
type redisPairBackend struct {
	*guard.PerSecond
	main, perSecond *redisBackend
}

// run checks main, and then perSecond, until both have answered.
func (p *redisPairBackend) run(ctx context.Context, answered func()) {
	p.main.run(ctx, func() { p.perSecond.run(ctx, answered) })
}

func (p *redisPairBackend) check(ctx context.Context) error {
	if err := p.main.check(ctx); err != nil {
		return err
	}
	return p.perSecond.check(ctx)
}
