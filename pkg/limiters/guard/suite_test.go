package guard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

func cached(t testing.TB, store limiters.Store, o guard.DenyCacheOptions) *guard.DenyCache {
	t.Helper()
	c := guard.NewDenyCache(store, o)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func onRedis(t testing.TB, server *redistest.Server) limiters.Store {
	t.Helper()
	s := redisstore.New(connect.Options{Addr: server.Addr, Timeout: 10 * time.Second}, redisstore.Options{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestDenyCachePassesTheSuite(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		limiterstest.RunOwnClock(t, func(t *testing.T) limiterstest.TimedStore {
			return limiterstest.Decorated(cached(t, memory(), guard.DenyCacheOptions{}))
		})
	})
	// The cache uses the clock of the machine, so at given times it must not remember denials.
	t.Run("without memory", func(t *testing.T) {
		limiterstest.Run(t, func(t *testing.T) limiterstest.TimedStore {
			return limiterstest.Decorated(cached(t, memory(), guard.DenyCacheOptions{MaxAge: time.Nanosecond}))
		})
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		limiterstest.RunOwnClock(t, func(t *testing.T) limiterstest.TimedStore {
			must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
			return limiterstest.Decorated(cached(t, onRedis(t, server), guard.DenyCacheOptions{}))
		})
	})
}

func TestDenyCachesOfReplicasAdmitExactlyTheLimit(t *testing.T) {
	server := redistest.Start(t)
	replica := func() limiters.Store { return cached(t, onRedis(t, server), guard.DenyCacheOptions{}) }
	limiterstest.RunRaces(t, []limiters.Store{replica(), replica(), replica()})
}

// A noDeadlineStore ignores the deadline of its caller, because the deny cache waits for a second
// only, and a busy machine needs longer.
type noDeadlineStore struct{ limiters.Store }

func (s noDeadlineStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	return s.Store.Take(context.WithoutCancel(ctx), groups, out)
}

// Under concurrent use no denied hit is counted twice and none is lost: the count of a window is
// the number of hits sent.
func TestEveryDeniedHitIsCountedOnce(t *testing.T) {
	server := redistest.Start(t)
	for name, store := range map[string]limiters.Store{
		"memory": memstore.New(memstore.Options{}), "redis": noDeadlineStore{onRedis(t, server)},
	} {
		t.Run(name, func(t *testing.T) {
			day := limit(limiters.Spec{Max: 3, Window: 24 * time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}, CountDenied: true})
			o := guard.DenyCacheOptions{MaxAge: 30 * time.Millisecond} // so that many debts are sent
			replicas := []*guard.DenyCache{guard.NewDenyCache(store, o), guard.NewDenyCache(store, o)}
			var want [4]atomic.Int64
			var wg sync.WaitGroup
			for g := range 64 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(g), 0))
					out := make([]limiters.Verdict, 3)
					for range 200 {
						ops := make([]limiters.Op, 1+rnd.IntN(3))
						for i := range ops {
							k, n := rnd.IntN(len(want)), rnd.Int64N(4)
							ops[i] = limiters.Op{Key: fmt.Sprint(k), Limit: day, Hits: n}
							want[k].Add(n)
						}
						if err := replicas[g%2].Take(context.Background(), limiters.Singles(ops...), out[:len(ops)]); err != nil {
							t.Error(err)
						}
						if rnd.IntN(1000) == 0 {
							replicas[g%2].DropDenials()
						}
					}
				})
			}
			wg.Wait()
			var answered int64
			for _, c := range replicas {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
				answered += c.Stats().Answered
			}
			for k := range want {
				if v := take(t, store, limiters.Op{Key: fmt.Sprint(k), Limit: day})[0]; v.Used != want[k].Load() {
					t.Errorf("key %d holds %d, want %d", k, v.Used, want[k].Load())
				}
			}
			if answered < 1000 {
				t.Errorf("%d operations were answered from memory: this tests nothing", answered)
			}
		})
	}
}

// Refunds, charges, peeks, groups and reloads at the same time, for the race detector.
func TestDenyCacheIsSafeForConcurrentUse(t *testing.T) {
	c := cached(t, memstore.New(memstore.Options{}), guard.DenyCacheOptions{MaxAge: 2 * time.Millisecond, MaxBytes: 40 << 10})
	limits := []*limiters.Limit{counted, logOfTwo, limit(limiters.Spec{Algorithm: "funnel", Max: 5, Window: time.Second})}
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 300 {
				ops := make([]limiters.Op, 1+rnd.IntN(12))
				for i := range ops {
					ops[i] = limiters.Op{
						Key: fmt.Sprint(rnd.IntN(200)), Limit: limits[rnd.IntN(3)], Hits: rnd.Int64N(5) - 1,
					}
				}
				groups := limiters.Singles(ops...)
				if rnd.IntN(3) == 0 {
					groups = []limiters.Group{ops}
				}
				for _, v := range takeGroups(t, c, groups...) {
					if v.By == limiters.ByCache && (v.Allowed || v.RetryAfter == 0 || v.ResetAfter <= 0 || v.Err != nil) {
						t.Errorf("got %+v, want a cached verdict to be a denial with RetryAfter, ResetAfter and no error", v)
					}
				}
				switch rnd.IntN(100) {
				case 0:
					c.DropDenials()
				case 1:
					c.Stats()
				}
			}
		})
	}
	wg.Wait()
}

// Lost data of Redis and refunds by another replica are seen after MaxAge.
func TestRefundsAndLossesInRedisAreSeen(t *testing.T) {
	server := redistest.Start(t)
	a, b := cached(t, onRedis(t, server), guard.DenyCacheOptions{MaxAge: 20 * time.Millisecond}), cached(t, onRedis(t, server), guard.DenyCacheOptions{})
	day := limit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: 24 * time.Hour})
	for _, again := range []func(){
		func() { server.Client(t).FlushAll(context.Background()) },
		func() { take(t, b, limiters.Op{Key: "k", Limit: day, Hits: -1}) },
	} {
		take(t, a, limiters.Op{Key: "k", Limit: day, Hits: 1})
		if v := take(t, a, limiters.Op{Key: "k", Limit: day, Hits: 1})[0]; v.Allowed {
			t.Fatal("the second hit of a limit of 1 a day: allowed, want denied")
		}
		again()
		start := time.Now()
		for !take(t, a, limiters.Op{Key: "k", Limit: day, Hits: 1})[0].Allowed {
			if time.Since(start) > 2*time.Minute {
				t.Fatal("after 2 minutes the key is still denied, want allowed once the store has no hits")
			}
		}
		take(t, a, limiters.Op{Key: "k", Limit: day, Hits: -1})
	}
}

// Ten times as many users as the cache has room for are over their limit. The accounted bytes are
// close to the heap.
func TestDenyCacheIsBounded(t *testing.T) {
	const maxBytes = 4 << 20
	c := cached(t, denies{}, guard.DenyCacheOptions{MaxBytes: maxBytes, MaxAge: time.Hour})
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	day := limit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: 24 * time.Hour})
	before := heap()
	ops, out := make([]limiters.Op, 1), make([]limiters.Verdict, 1)
	for i := range 200_000 {
		ops[0] = limiters.Op{Key: fmt.Sprintf("4:shop|user_id=%08d", i), Limit: day, Hits: 1}
		must.Succeed(t, c.Take(context.Background(), limiters.Singles(ops...), out))
	}
	taken, stats := heap()-before, c.Stats()
	runtime.KeepAlive(c)
	t.Logf("%d entries, %d bytes by its account, %d of the heap", stats.Entries, stats.Bytes, taken)
	if stats.Bytes > maxBytes || stats.Bytes < maxBytes*9/10 || stats.Entries < 10_000 || stats.NotCached != 0 {
		t.Errorf("%+v, want at least 10,000 entries in 90 %% to 100 %% of %d bytes, and NotCached 0", stats, maxBytes)
	}
	if taken > maxBytes*5/4 || taken < maxBytes/2 {
		t.Errorf("the heap grew by %d bytes, and Stats reports %d: want 1/2 to 5/4 of MaxBytes on the heap", taken, stats.Bytes)
	}
	// The last are cached, the first are not.
	if v := take(t, c, ops...)[0]; v.By != limiters.ByCache {
		t.Error("the last denial is not cached")
	}
}

// denies is a store that denies every operation.
type denies struct{ limiters.Store }

func (denies) Take(_ context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	for i, op := range slices.Concat(groups...) {
		out[i] = limiters.Verdict{Used: op.Limit.Capacity() + 1, RetryAfter: time.Hour, ResetAfter: time.Hour}
	}
	return nil
}

// Entries with debt are not evicted. New denials are not cached then.
func TestEntriesWithDebtAreNotEvicted(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(guard.DenyCacheOptions{MaxBytes: 16 << 10})
		const keys = 500
		for i := range keys {
			take(f, a, limiters.Op{Key: fmt.Sprint(i), Limit: counted, Hits: 2}, limiters.Op{Key: fmt.Sprint(i), Limit: counted, Hits: 2})
			take(f, a, limiters.Op{Key: fmt.Sprint(i), Limit: counted, Hits: 1})
		}
		full := a.Stats()
		if full.Bytes > 16<<10 || full.NotCached < 100 || full.Answered != full.Entries {
			t.Errorf("%+v, want at most 16 KiB, NotCached of at least 100, and as many lookups answered as entries", full)
		}
		time.Sleep(time.Second)
		for i := range keys {
			f.mustHaveUsage(fmt.Sprint(i), counted, 5)
		}
		time.Sleep(time.Second)
		take(f, a, limiters.Op{Key: "late", Limit: counted, Hits: 2}, limiters.Op{Key: "late", Limit: counted, Hits: 2})
		a.mustTake("late", counted, 1, "cached: denied used=5 remaining=0 retry=58s reset=58s")
	})
}

// While Redis is full it denies hits that it cannot count. Such a denial must not make the cache
// deny hits that fit.
func TestDenyCacheOfAFullRedisDeniesNothingThatFits(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	client := server.Client(t)
	setFull := func(bytes string) {
		t.Helper()
		must.Succeed(t, client.ConfigSet(t.Context(), "maxmemory", bytes).Err())
	}
	for i, together := range []bool{false, true} {
		for _, name := range limiterstest.WindowedAlgorithms() {
			day := limit(limiters.Spec{Algorithm: name, Max: 5, Window: 365 * 24 * time.Hour, CountDenied: name != "sliding_log"})
			key := fmt.Sprint(name, i)
			c := cached(t, onRedis(t, server), guard.DenyCacheOptions{MaxAge: time.Hour})
			of := func(n int64) limiters.Op { return limiters.Op{Key: key, Limit: day, Hits: n} }
			take(t, c, of(3))
			setFull("1")
			if together {
				// On one key in one call, Redis decides all and then saves once.
				take(t, c, of(2), of(1))
			} else {
				take(t, c, of(3))
			}
			setFull("0")
			if v := take(t, c, of(1))[0]; !v.Allowed || v.Used != 4 {
				t.Errorf("%s, two hits in a call: %t: 1 more of 5, after 3: %s by %d", name, together, describe(v), v.By)
			}
		}
	}
}
