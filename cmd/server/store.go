package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/redisprobe"
	"github.com/weir-rls/weir/internal/replicas"
	"github.com/weir-rls/weir/internal/resets"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tracing"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A storeStack decides the requests of the process. A call passes its parts in this order:
//
//	guard.Fallback    decides by on_store_error if the next part fails
//	guard.EndRetrier  retries ends of leases that the next part could not decide
//	guard.DenyCache   denies keys over their limits without a call to Redis
//	tracing           makes a span for each call to the backend
//	the backend       keeps the counters: memory, one Redis, or two
//
// Memory has no EndRetrier and no DenyCache. The fields are the parts that other code uses.
//
// openStore opens the parts from the backend outwards, because closing the DenyCache and the
// EndRetrier calls the backend.
type storeStack struct {
	local         *memstore.Store      // the counters in this process: all of them or, with Redis, those of on_store_error: local
	save          func()               // saves counters in memory if they have a snapshot; to be called after the last request
	mainRedis     *redisstore.Store    // notifies the replicas that share the backend of resets; nil without Redis
	probers       []*redisprobe.Prober // one for each Redis
	denyCache     *guard.DenyCache     // nil without Redis, or if disabled
	belowFallback limiters.Store       // the store that fallback wraps, for calls that on_store_error must not decide
	tracing       *tracing.Tracing     // nil without TRACING_ENABLED
	fallback      *guard.Fallback      // receives all calls that on_store_error may decide
	replicas      *replicas.Counter    // the number of replicas, from which fallback computes its share of a limit
}

func (e *environment) openStore(ctx context.Context, rules func() *descriptors.Rules, ready *readiness) (*storeStack, error) {
	s := e.settings
	st := &storeStack{replicas: countReplicas(s, e.log), save: func() {}}
	options := guard.FallbackOptions{Replicas: st.replicas.Number, FalseLimitProbability: s.LocalFalseLimit}
	options.Failed, options.Recovered = telemetry.StoreLog(e.log)
	var store limiters.Store
	var err error
	if s.BackendType == settings.Memory {
		e.openMemory(st)
		store = st.local
	} else {
		st.local = memstore.New(memoryOptions(s))
		options.Local = st.local
		store, err = e.openRedisBackend(st)
		if err != nil {
			return nil, err
		}
	}
	st.tracing, err = e.openTracing(ctx)
	if err != nil {
		return nil, err
	}
	if st.tracing != nil {
		store = st.tracing.Store(store)
	}
	if st.mainRedis != nil {
		store = e.wrapRedis(st, store)
	}
	st.belowFallback = store
	st.fallback = guard.NewFallback(store, options)
	e.metrics.RegisterMemory(func() telemetry.MemoryStats { return telemetry.MemoryStats(st.local.Stats()) })
	e.metrics.RegisterFallback(st.fallback.Stats, rules)
	e.tasks = append(e.tasks,
		func(ctx context.Context) {
			if st.everyRedis(ctx, (*redisprobe.Prober).Await) == nil {
				ready.setStoreReady()
			}
		},
		st.replicas.Run,
		// Without requests, only CheckIdle notices that the backend is up again.
		everySecond(func(ctx context.Context) {
			st.fallback.CheckIdle(ctx, func(ctx context.Context) error { return st.everyRedis(ctx, (*redisprobe.Prober).Check) })
		}),
	)
	return st, nil
}

// everyRedis calls f for each Redis until one returns an error.
func (st *storeStack) everyRedis(ctx context.Context, f func(*redisprobe.Prober, context.Context) error) error {
	for _, p := range st.probers {
		if err := f(p, ctx); err != nil {
			return err
		}
	}
	return nil
}

// closeTimeout bounds the last writes of each part.
const closeTimeout = time.Second

// wrapRedis wraps store in the parts between it and the fallback.
func (e *environment) wrapRedis(st *storeStack, store limiters.Store) limiters.Store {
	s := e.settings
	if s.LocalCacheSize != 0 {
		st.denyCache = guard.NewDenyCache(store, guard.DenyCacheOptions{MaxBytes: s.LocalCacheSize, MaxAge: s.DenyCacheMax})
		e.metrics.RegisterDenyCache(st.denyCache.Stats)
		e.flushAtClose(st.denyCache.Close, closeTimeout, "denied hits not counted in redis")
		store = st.denyCache
	}
	endRetrier := guard.NewEndRetrier(store)
	e.metrics.RegisterEndRetrier(endRetrier.Stats)
	e.flushAtClose(endRetrier.Close, closeTimeout, "leases not ended in redis")
	// While Redis answers, no request accesses the memory, so only Sweep removes its expired keys.
	e.tasks = append(e.tasks, everySecond(func(context.Context) { st.local.Sweep() }))
	return endRetrier
}

// openRedisBackend opens the backend of st on one Redis, or on two with REDIS_PERSECOND.
func (e *environment) openRedisBackend(st *storeStack) (limiters.Store, error) {
	mainRedis, err := e.openRedis(st, "REDIS", &e.settings.Redis)
	if err != nil {
		return nil, err
	}
	st.mainRedis = mainRedis
	if !e.settings.UsePerSecondRedis {
		return mainRedis, nil
	}
	perSecond, err := e.openRedis(st, "REDIS_PERSECOND", &e.settings.PerSecondRedis)
	if err != nil {
		return nil, err
	}
	return split.NewPerSecondRouter(mainRedis, perSecond), nil
}

// countReplicas returns the counter of the replicas that share the limits.
func countReplicas(s *settings.Serve, log *zap.Logger) *replicas.Counter {
	changed := func(before, now int) {
		switch {
		case s.BackendType == settings.Memory && now > 1:
			log.Warn("counters in memory are per replica, so limits are multiplied by the replica count", zap.Int("replicas", now),
				zap.String("remedy", "use Redis, or one replica"))
		case before != 0:
			log.Info("replica count changed", zap.Int("replicas", now), zap.Int("replicas_before", before))
		}
	}
	changed(0, s.ReplicaCount())
	return replicas.New(replicas.Options{
		Number: s.ReplicaCount(), Name: s.ReplicasDNS, Changed: changed,
		Failed: func(number int, err error) {
			log.Warn("replica count failed, keeping the last count", zap.String("replicas_dns", s.ReplicasDNS),
				zap.Int("replicas", number), zap.Error(err))
		},
	})
}

// openResets opens the service that resets keys for the admin API.
func (e *environment) openResets(st *storeStack) (*resets.Service, error) {
	warn := func(what string, err error) {
		fields := []zap.Field{zap.Error(err)}
		if !errors.Is(err, resets.ErrMessage) {
			fields = append(fields, zap.String("remedy", "give Weir's Redis user the permission to publish and subscribe: SECURITY.md lists it"))
		}
		e.log.Warn(what, fields...)
	}
	service := &resets.Service{Store: st.fallback, Local: st.local, DenyCache: st.denyCache, Warn: warn, Panicked: e.panicked}
	if st.mainRedis != nil {
		var err error
		service.PubSub, err = st.mainRedis.PubSub("resets")
		if err != nil {
			return nil, err
		}
	}
	e.tasks = append(e.tasks, service.Run)
	return service, nil
}

// everySecond returns a task that calls do every second until its context ends.
func everySecond(do func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		for backoff.Sleep(ctx, time.Second) == nil {
			do(ctx)
		}
	}
}

// canDecideWithoutStore reports whether on_store_error decides every request while the store is
// unreachable.
func canDecideWithoutStore(rules *descriptors.Rules) bool {
	return rules != nil && !rules.UsesOnStoreError(limiters.OnStoreErrorFail)
}
