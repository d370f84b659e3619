package main

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/redisprobe"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// openRedis opens a store on the Redis whose variables begin with prefix, and adds its prober to
// st.
func (e *environment) openRedis(st *storeStack, prefix string, server *settings.RedisServer) (*redisstore.Store, error) {
	s := e.settings
	log := e.log.With(zap.String("redis", prefix))
	c, err := redisOptions(s, prefix, server, log)
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
	store := redisstore.New(c, o)
	e.closers = append(e.closers, func() {
		if err := store.Close(); err != nil {
			log.Warn("redis not closed", zap.Error(err))
		}
	})
	e.metrics.RegisterRedis(prefix, func() telemetry.RedisStats { return telemetry.RedisStats(store.Stats()) })
	st.probers = append(st.probers, &redisprobe.Prober{Store: store, Timeout: s.StoreTimeout, Log: log})
	return store, nil
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
func redisOptions(s *settings.Serve, prefix string, server *settings.RedisServer, log *zap.Logger) (connect.Options, error) {
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
		files := tlsfiles.Client{
			Cert: s.RedisCert, Key: s.RedisKey, CA: s.RedisCA, SkipHostname: s.RedisSkipHostname, Expired: logExpired(log),
		}
		c.CurrentTLS, err = files.Reloading(func(err error) {
			log.Error("CA of Redis not reloaded, the old one stays in use", zap.Error(err))
		})
		if err != nil {
			return c, fmt.Errorf("%s_TLS: %w", prefix, err)
		}
	}
	c.Timeout = s.StoreTimeout
	c.DialTimeout = server.Timeout
	c.PoolSize = server.PoolSize
	return c, nil
}
