package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/internal/replicas"
	"github.com/weir-rls/weir/internal/resets"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tracing"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A backend keeps the counters: memory, one Redis, or two.
type backend interface {
	limiters.Store
	// run maintains the backend until ctx ends or no maintenance is left. It calls answered once the backend has answered.
	run(ctx context.Context, answered func())
	// check returns an error if the backend does not answer. It charges nothing.
	check(ctx context.Context) error
	// pubSub returns the channel to the replicas that share the backend; nil if none does.
	pubSub(channel string) (resets.PubSub, error)
	// save saves counters in memory if they have a snapshot. Call it after the last request.
	save()
	close()
}

// A store decides the requests of the process. A call passes its parts in this order:
//
//	fallback    decides by on_store_error if the next part fails
//	ends        retries ends of leases that the next part could not decide
//	denyCache   denies keys over their limits without a call to Redis
//	traces      makes a span for each call to the backend
//	backend     keeps the counters
//
// openStore opens the parts from the backend outwards. close closes them in the order of a call, because closing denyCache
// calls the backend.
type store struct {
	backend   backend
	traces    *tracing.Tracing  // nil if tracing is disabled
	denyCache *guard.DenyCache  // nil without Redis, or if disabled
	ends      *guard.EndRetrier // nil without Redis
	fallback  *guard.Fallback   // receives all calls that on_store_error may decide
	primary   limiters.Store    // the store that fallback wraps, for calls that on_store_error must not decide
	memory    *memstore.Store   // the counters in memory: of backend or, with Redis, of fallback for on_store_error: local
	replicas  *replicas.Counter // the number of replicas, from which fallback computes its share of a limit
	resets    *resets.Service   // nil without ADMIN_ADDR
	log       *zap.Logger
}

// openStore opens all parts of a store or none. rules returns the rules in force, for the metrics of the fallback.
func openStore(
	ctx context.Context, s *settings.Serve, rules func() *descriptors.Rules, log *zap.Logger, metrics *telemetry.Metrics,
	panicked recovery.Report,
) (*store, error) {
	b, err := openBackend(s, log, metrics)
	if err != nil {
		return nil, err
	}
	st := &store{backend: b, replicas: countReplicas(s, log), log: log}
	if m, ok := b.(*memoryBackend); ok {
		st.memory = m.Store
	}
	st.traces, err = tracing.Start(ctx, s.Tracing, func(err error) { log.Warn("tracing failed", zap.Error(err)) })
	if err != nil {
		b.close()
		return nil, err
	}
	calls := st.traces.Store(b)
	options := guard.FallbackOptions{Replicas: st.replicas.Number, FalseLimit: s.LocalFalseLimit}
	options.Failed, options.Recovered = telemetry.StoreLog(log)
	if s.BackendType == settings.Redis {
		if s.LocalCacheSize != 0 {
			st.denyCache = guard.NewDenyCache(calls, guard.DenyCacheOptions{MaxBytes: s.LocalCacheSize, MaxAge: s.DenyCacheMax})
			metrics.RegisterDenyCache(st.denyCache.Stats)
			calls = st.denyCache
		}
		st.ends = guard.NewEndRetrier(calls)
		metrics.RegisterEnds(st.ends.Stats)
		calls = st.ends
		st.memory = memstore.New(memoryOptions(s))
		options.Local = st.memory
	}
	metrics.RegisterMemory(func() telemetry.MemoryStats { return telemetry.MemoryStats(st.memory.Stats()) })
	st.primary, st.fallback = calls, guard.NewFallback(calls, options)
	if s.AdminAddr != "" {
		st.resets, err = newResets(st, log, panicked)
		if err != nil {
			st.close()
			return nil, err
		}
	}
	metrics.RegisterFallback(st.fallback.Stats, rules)
	return st, nil
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
			log.Warn("replicas not counted, their number stays", zap.String("replicas_dns", s.ReplicasDNS),
				zap.Int("replicas", number), zap.Error(err))
		},
	})
}

func newResets(st *store, log *zap.Logger, panicked recovery.Report) (*resets.Service, error) {
	warn := func(what string, err error) {
		fields := []zap.Field{zap.Error(err)}
		if !errors.Is(err, resets.ErrMessage) {
			fields = append(fields, zap.String("remedy", "give Weir's Redis user the permission to publish and subscribe: SECURITY.md lists it"))
		}
		log.Warn(what, fields...)
	}
	pubSub, err := st.backend.pubSub("resets")
	return &resets.Service{
		Store: st.fallback, Local: st.memory, DenyCache: st.denyCache, PubSub: pubSub, Warn: warn, Panicked: panicked,
	}, err
}

func openBackend(s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics) (backend, error) {
	if s.BackendType == settings.Memory {
		m := openMemory(s, log)
		if m.path != "" {
			metrics.RegisterSnapshot(m.snapshotStats)
		}
		return m, nil
	}
	main, err := openRedis(s, "REDIS", &s.Redis, log, metrics)
	if err != nil {
		return nil, err
	}
	if !s.UsePerSecondRedis {
		return main, nil
	}
	perSecond, err := openRedis(s, "REDIS_PERSECOND", &s.PerSecondRedis, log, metrics)
	if err != nil {
		main.close()
		return nil, err
	}
	return &redisPairBackend{PerSecond: guard.NewPerSecond(main, perSecond), main: main, perSecond: perSecond}, nil
}

// run maintains the parts until ctx ends. It calls answered once the backend has answered.
func (s *store) run(ctx context.Context, answered func()) {
	var parts sync.WaitGroup
	parts.Go(func() { s.backend.run(ctx, answered) })
	parts.Go(func() { s.replicas.Run(ctx) })
	// Without requests, only CheckIdle notices that the backend is up again.
	parts.Go(func() { everySecond(ctx, func() { s.fallback.CheckIdle(ctx, s.backend.check) }) })
	if s.ends != nil {
		// While Redis answers, no request accesses the memory, so only Sweep removes its expired keys.
		parts.Go(func() { everySecond(ctx, s.memory.Sweep) })
	}
	parts.Go(func() { s.resets.Run(ctx) })
	parts.Wait()
}

// everySecond calls do every second until ctx ends.
func everySecond(ctx context.Context, do func()) {
	for backoff.Sleep(ctx, time.Second) == nil {
		do()
	}
}

// forget discards everything cached under replaced rules.
func (s *store) forget() {
	s.denyCache.ForgetDenials()
	s.fallback.ForgetShares()
}

// closeTimeout bounds the last writes of each part.
const closeTimeout = time.Second

// close closes the parts in the order of a call. No call may be in flight.
func (s *store) close() {
	s.closePart(s.ends, "leases not ended in redis")
	s.closePart(s.denyCache, "denied hits not counted in redis")
	if err := s.traces.Stop(); err != nil {
		s.log.Warn("last traces not sent", zap.Error(err))
	}
	s.backend.close()
}

// closePart closes a part that writes what it has left. It logs failure if the part could not write all of it.
func (s *store) closePart(part interface{ Close(context.Context) error }, failure string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := part.Close(ctx); err != nil {
		s.log.Warn(failure, zap.Error(err))
	}
}

// canDecideWithoutStore reports whether on_store_error decides every request while the store is unreachable.
func canDecideWithoutStore(rules *descriptors.Rules) bool {
	return rules != nil && !rules.UsesOnError(limiters.OnErrorFail)
}
