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

// redisSettings are the settings whose variables begin with prefix.
type redisSettings struct {
	prefix, kind, socket, url string
	auth, sentinelAuth        string
	authFile, sentinelFile    string // instead of auth and sentinelAuth
	tls                       bool
	pool                      int
	dial                      time.Duration
}

// mainRedis returns the settings of the Redis for all limits, or for all but those per second.
func mainRedis(s *settings.Store) redisSettings {
	return redisSettings{
		prefix: "REDIS", kind: s.RedisType, socket: s.RedisSocketType, url: s.RedisURL,
		auth: s.RedisAuth, sentinelAuth: s.RedisSentinelAuth, authFile: s.RedisAuthFile, sentinelFile: s.RedisSentinelFile,
		tls: s.RedisTLS, pool: s.RedisPoolSize, dial: s.RedisTimeout,
	}
}

// perSecondRedis returns the settings of the Redis for limits per second.
func perSecondRedis(s *settings.PerSecond) redisSettings {
	return redisSettings{
		prefix: "REDIS_PERSECOND", kind: s.Type, socket: s.SocketType, url: s.URL,
		auth: s.Auth, sentinelAuth: s.SentinelAuth, authFile: s.AuthFile, sentinelFile: s.SentinelFile,
		tls: s.TLS, pool: s.PoolSize, dial: s.Timeout,
	}
}

// A redisBackend is a backend on one Redis.
type redisBackend struct {
	*redisstore.Store
	timeout time.Duration // STORE_TIMEOUT
	log     *zap.Logger
}

func openRedis(s *settings.Serve, of redisSettings, log *zap.Logger, metrics *telemetry.Metrics) (*redisBackend, error) {
	kind, err := connect.ParseType(of.kind)
	if err != nil {
		return nil, fmt.Errorf("%s_TYPE: %w", of.prefix, err)
	}
	c, err := connect.ParseURL(kind, of.socket, of.url)
	if err != nil {
		return nil, fmt.Errorf("%s_URL: %w", of.prefix, err)
	}
	c.SetAuth(of.auth)
	c.SetSentinelAuth(of.sentinelAuth)
	if err := of.setFiles(&c); err != nil {
		return nil, err
	}
	if of.tls || c.TLS != nil {
		files := tlsfiles.Client{Cert: s.RedisCert, Key: s.RedisKey, CA: s.RedisCA, SkipHostname: s.RedisSkipHostname}
		if c.TLS, err = files.Config(); err != nil {
			return nil, fmt.Errorf("%s_TLS: %w", of.prefix, err)
		}
	}
	c.Timeout, c.DialTimeout, c.PoolSize = s.StoreTimeout, of.dial, of.pool
	o := redisstore.Options{
		Prefix: s.CacheKeyPrefix, KeySecret: s.KeyHashSecret, MaxBatch: s.StoreMaxBatch, MaxWaiting: s.StoreMaxWaiting,
	}
	if s.StopCacheKeyIncrementWhenOverlimit && kind == connect.Cluster {
		// The keys of a group must be on one node of a cluster.
		o.Tag = descriptors.DomainOf
	}
	r := &redisBackend{Store: redisstore.New(c, o), timeout: s.StoreTimeout, log: log.With(zap.String("redis", of.prefix))}
	metrics.Redis(of.prefix, func() telemetry.RedisStats { return telemetry.RedisStats(r.Stats()) })
	return r, nil
}

// run checks Redis until it answers.
func (r *redisBackend) run(ctx context.Context, answered func()) {
	awaitRedis(ctx, r.Store, r.timeout, r.log, answered)
}

func (r *redisBackend) check(ctx context.Context) error {
	_, _, err := probeRedis(ctx, r.Store, r.timeout)
	return err
}

func (r *redisBackend) requestsEnded() {}

func (r *redisBackend) close() {
	if err := r.Close(); err != nil {
		r.log.Warn("redis not closed", zap.Error(err))
	}
}

// A redisPair is a backend on two: second has the limits per second, and main all others.
type redisPair struct {
	*guard.PerSecond
	main, second *redisBackend
}

// run checks main, and then second, until both have answered.
func (p *redisPair) run(ctx context.Context, answered func()) {
	p.main.run(ctx, func() { p.second.run(ctx, answered) })
}

func (p *redisPair) check(ctx context.Context) error {
	if err := p.main.check(ctx); err != nil {
		return err
	}
	return p.second.check(ctx)
}

func (p *redisPair) requestsEnded() {}

func (p *redisPair) close() {
	p.main.close()
	p.second.close()
}

// setFiles sets the passwords from files.
func (r redisSettings) setFiles(c *connect.Options) error {
	if r.authFile != "" {
		if err := c.SetAuthFile(r.authFile); err != nil {
			return fmt.Errorf("%s_AUTH_FILE: %w", r.prefix, err)
		}
	}
	if r.sentinelFile != "" {
		if err := c.SetSentinelAuthFile(r.sentinelFile); err != nil {
			return fmt.Errorf("%s_SENTINEL_AUTH_FILE: %w", r.prefix, err)
		}
	}
	return nil
}

// redisBackoff is the wait between checks of a Redis that is not ready.
var redisBackoff = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// awaitRedis checks Redis until it answers within timeout, and then calls ready.
func awaitRedis(ctx context.Context, r *redisstore.Store, timeout time.Duration, log *zap.Logger, ready func()) {
	for failures := 0; ; failures++ {
		policy, took, err := probeRedis(ctx, r, timeout)
		if err == nil {
			if policy != "" && policy != "noeviction" {
				log.Warn("redis may drop counters: set its maxmemory-policy to noeviction", zap.String("maxmemory_policy", policy))
			}
			log.Info("redis answers", zap.Duration("took_seconds", took))
			ready()
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
		log.Error(text, zap.Error(err), zap.Duration("retry_seconds", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

var errRoundTripTooLong = errors.New("every request would fail: raise STORE_TIMEOUT, and the timeout of Envoy's rate limit filter above it")

func probeRedis(ctx context.Context, r *redisstore.Store, timeout time.Duration) (policy string, took time.Duration, err error) {
	if policy, err = r.EvictionPolicy(ctx); err != nil {
		return "", 0, err
	}
	if took, err = r.RoundTrip(ctx); err != nil {
		return "", 0, err
	}
	took = took.Round(10 * time.Microsecond)
	if took >= timeout {
		return "", 0, fmt.Errorf("it answers in %v, and STORE_TIMEOUT is %v: %w", took, timeout, errRoundTripTooLong)
	}
	return policy, took, nil
}
