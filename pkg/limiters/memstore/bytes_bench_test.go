package memstore

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMemoryPerKey measures the heap per key of 40 bytes, and the accounted bytes per key.
func BenchmarkMemoryPerKey(b *testing.B) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		b.Run(name, func(b *testing.B) {
			keys := benchKeys(b)
			limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 5, Window: time.Hour})
			for b.Loop() {
				before, s := heap(), New(Options{})
				ops, out := make([]limiters.Op, 1), make([]limiters.Verdict, 1)
				for i := range keys {
					ops[0] = limiters.Op{Key: fmt.Sprintf("%040d", i), Limit: limit, Hits: 1}
					must.Succeed(b, s.Take(context.Background(), limiters.Singles(ops...), out))
				}
				b.ReportMetric(float64(heap()-before)/float64(keys), "bytes/key")
				b.ReportMetric(float64(s.Stats().Bytes)/float64(keys), "accounted/key")
				runtime.KeepAlive(s)
			}
		})
	}
}

// BenchmarkMemoryOfALogOfAMillion measures the heap per hit in a full log.
func BenchmarkMemoryOfALogOfAMillion(b *testing.B) {
	const million = 1_000_000
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: million, Window: time.Minute})
	for b.Loop() {
		before, s := heap(), New(Options{})
		ops, out := []limiters.Op{{Key: "k", Limit: limit, Hits: 1}}, make([]limiters.Verdict, 1)
		for i := range million {
			now := time.UnixMicro(1_763_683_200_000_000 + int64(i)*50)
			if err := s.TakeAt(context.Background(), now, limiters.Singles(ops...), out); err != nil || !out[0].Allowed {
				b.Fatal(err, out[0])
			}
		}
		b.ReportMetric(float64(heap()-before)/million, "bytes/hit")
		runtime.KeepAlive(s)
	}
}

// BenchmarkKeyBytes measures the heap per key of 40 bytes, by the number of keys.
func BenchmarkKeyBytes(b *testing.B) {
	for _, c := range limiterstest.SizeCases() {
		b.Run(fmt.Sprintf("%s/%d", c.Name, c.Keys), func(b *testing.B) {
			for b.Loop() {
				before, s := heap(), New(Options{})
				err := c.Fill(c.Keys, func(now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
					return s.TakeAt(b.Context(), now, groups, out)
				})
				must.Succeed(b, err)
				b.ReportMetric(float64(heap()-before)/float64(c.Keys), "bytes/key")
				runtime.KeepAlive(s)
			}
		})
	}
}
