package guard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// allows is a store that costs nothing. So a miss costs what the cache adds.
type allows struct{ limiters.Store }

func (allows) Take(_ context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	for i := range out {
		out[i] = limiters.Verdict{Allowed: true}
	}
	return nil
}

func BenchmarkDenyCache(b *testing.B) {
	counts := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: 24 * time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}, CountDenied: true})
	log := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: 24 * time.Hour})
	const keys = 1000
	full := func(b *testing.B, limit *limiters.Limit) (*guard.DenyCache, [][]limiters.Group) {
		// Long enough that nothing ends while it is measured.
		c := guard.NewDenyCache(memstore.New(memstore.Options{}), guard.DenyCacheOptions{MaxAge: time.Hour})
		b.Cleanup(func() { _ = c.Close(context.Background()) })
		all := make([][]limiters.Group, keys)
		for i := range all {
			all[i] = []limiters.Group{{{Key: fmt.Sprintf("4:shop|user_id=%030d", i), Limit: limit, Hits: 1}}}
			for range 2 {
				takeGroups(b, c, all[i]...)
			}
		}
		return c, all
	}
	for name, limit := range map[string]*limiters.Limit{"hit/log": log, "hit/counted": counts} {
		b.Run(name, func(b *testing.B) {
			c, all := full(b, limit)
			out := make([]limiters.Verdict, 1)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_ = c.Take(context.Background(), all[i%keys], out)
				if out[0].By != limiters.ByCache {
					b.Fatal("not from the cache")
				}
				i++
			}
		})
		b.Run(name+" in parallel", func(b *testing.B) {
			c, all := full(b, limit)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				out := make([]limiters.Verdict, 1)
				for i := 0; pb.Next(); i++ {
					_ = c.Take(context.Background(), all[i%keys], out)
				}
			})
		})
		b.Run(name+" of one key in parallel", func(b *testing.B) {
			c, all := full(b, limit)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				out := make([]limiters.Verdict, 1)
				for pb.Next() {
					_ = c.Take(context.Background(), all[0], out)
				}
			})
		})
	}
	b.Run("miss", func(b *testing.B) {
		c := guard.NewDenyCache(allows{}, guard.DenyCacheOptions{})
		b.Cleanup(func() { _ = c.Close(context.Background()) })
		groups := []limiters.Group{{{Key: fmt.Sprintf("4:shop|user_id=%030d", 1), Limit: log, Hits: 1}}}
		out := make([]limiters.Verdict, 1)
		b.ReportAllocs()
		for b.Loop() {
			_ = c.Take(context.Background(), groups, out)
		}
	})
}

// While the store works, a Fallback must cost nearly nothing.
func BenchmarkFallback(b *testing.B) {
	f := guard.NewFallback(allows{}, guard.FallbackOptions{Local: memory()})
	op, out := op("k"), make([]limiters.Verdict, 1)
	op.OnStoreError = limiters.OnStoreErrorLocal
	groups := limiters.Singles(op)
	b.ReportAllocs()
	for b.Loop() {
		_ = f.Take(context.Background(), groups, out)
	}
}
