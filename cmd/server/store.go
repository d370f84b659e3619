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
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
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
	memory        *memstore.Store      // the counters in this process: all of them or, with Redis, those of on_store_error: local
	save          func()               // saves counters in memory if they have a snapshot; to be called after the last request
	mainRedis     *redisstore.Store    // notifies the replicas that share the backend of resets; nil without Redis
	probers       []*redisprobe.Prober // one for each Redis
	denyCache     *guard.DenyCache     // nil without Redis, or if disabled
	belowFallback limiters.Store       // the store that fallback wraps, for calls that on_store_error must not decide
	fallback      *guard.Fallback      // receives all calls that on_store_error may decide
	replicas      *replicas.Counter    // the number of replicas, from which fallback computes its share of a limit
}

func (p *process) openStore(ctx context.Context) (err error) {
	s := p.settings
	st := &storeStack{replicas: countReplicas(s, p.log), save: func() {}}
	options := guard.FallbackOptions{Replicas: st.replicas.Number, FalseLimitProbability: s.LocalFalseLimit}
	options.Failed, options.Recovered = telemetry.StoreLog(p.log)
	if s.BackendType == settings.Memory {
		p.openMemory(st)
		st.belowFallback, err = p.openTracing(ctx, st.memory)
	} else {
		st.memory = memstore.New(memoryOptions(s))
		options.Local = st.memory
		err = p.openRedisStore(ctx, st)
	}
	if err != nil {
		return err
	}
	p.metrics.RegisterMemory(st.memory.Stats)
	st.fallback = guard.NewFallback(st.belowFallback, options)
	p.metrics.RegisterFallback(st.fallback.Stats, p.rules.Rules)
	p.tasks = append(p.tasks,
		func(ctx context.Context) {
			if st.awaitRedis(ctx) == nil {
				p.ready.setStoreReady()
			}
		},
		st.replicas.Run,
		// Without requests, only CheckIdle notices that the backend is up again.
		everySecond(func(ctx context.Context) { st.fallback.CheckIdle(ctx, st.checkRedis) }),
	)
	p.store = st
	return nil
}

// awaitRedis returns once every Redis has answered. Its error is that of ctx.
func (st *storeStack) awaitRedis(ctx context.Context) error {
	for _, p := range st.probers {
		if err := p.Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkRedis returns an error unless every Redis answers. It charges nothing.
func (st *storeStack) checkRedis(ctx context.Context) error {
	for _, p := range st.probers {
		if err := p.Check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// closeTimeout bounds the last writes of each part.
const closeTimeout = time.Second

// openRedisStore opens the backend of st on Redis, and the parts between it and the fallback.
func (p *process) openRedisStore(ctx context.Context, st *storeStack) error {
	s := p.settings
	backend, err := p.openRedisBackend(st)
	if err != nil {
		return err
	}
	store, err := p.openTracing(ctx, backend)
	if err != nil {
		return err
	}
	if s.LocalCacheSize != 0 {
		st.denyCache = guard.NewDenyCache(store, guard.DenyCacheOptions{MaxBytes: s.LocalCacheSize, MaxAge: s.DenyCacheMax})
		p.metrics.RegisterDenyCache(st.denyCache.Stats)
		p.flushAtClose(st.denyCache.Close, closeTimeout, "denied hits not counted in redis")
		store = st.denyCache
	}
	endRetrier := guard.NewEndRetrier(store)
	p.metrics.RegisterEndRetrier(endRetrier.Stats)
	p.flushAtClose(endRetrier.Close, closeTimeout, "leases not ended in redis")
	st.belowFallback = endRetrier
	// While Redis answers, no request accesses the memory, so only Sweep removes its expired keys.
	p.tasks = append(p.tasks, everySecond(func(context.Context) { st.memory.Sweep() }))
	return nil
}

// openRedisBackend opens the backend of st on one Redis, or on two with REDIS_PERSECOND.
func (p *process) openRedisBackend(st *storeStack) (limiters.Store, error) {
	mainRedis, err := p.openRedis(st, "REDIS", &p.settings.Redis)
	if err != nil {
		return nil, err
	}
	st.mainRedis = mainRedis
	if !p.settings.UsePerSecondRedis {
		return mainRedis, nil
	}
	perSecond, err := p.openRedis(st, "REDIS_PERSECOND", &p.settings.PerSecondRedis)
	if err != nil {
		return nil, err
	}
	return guard.NewPerSecond(mainRedis, perSecond), nil
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
func (p *process) openResets() (*resets.Service, error) {
	warn := func(what string, err error) {
		fields := []zap.Field{zap.Error(err)}
		if !errors.Is(err, resets.ErrMessage) {
			fields = append(fields, zap.String("remedy", "give Weir's Redis user the permission to publish and subscribe: SECURITY.md lists it"))
		}
		p.log.Warn(what, fields...)
	}
	st := p.store
	service := &resets.Service{Store: st.fallback, Local: st.memory, DenyCache: st.denyCache, Warn: warn, Panicked: p.panicked}
	if st.mainRedis != nil {
		var err error
		service.PubSub, err = st.mainRedis.PubSub("resets")
		if err != nil {
			return nil, err
		}
	}
	p.tasks = append(p.tasks, service.Run)
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
	return rules != nil && !rules.UsesOnError(limiters.OnErrorFail)
}
