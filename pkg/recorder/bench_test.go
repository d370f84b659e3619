package recorder

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
)

// BenchmarkRecord measures a line on the goroutine of its request, and BenchmarkWrite on that of
// the writer.
func BenchmarkRecord(b *testing.B) {
	result := newDeciding(b).decide("user-1000000")
	for name, sample := range map[string]float64{"all": 1, "none": 1e-18} {
		b.Run(name, func(b *testing.B) {
			r := New(Options{Path: b.TempDir(), Sample: sample, PerSecond: 1 << 40})
			must.Succeed(b, r.Close(context.Background()))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if r.Record(result); i%4096 == 0 {
					for j := range r.queues {
						r.queues[j].requests = r.queues[j].requests[:0]
					}
				}
			}
		})
	}
}

// BenchmarkWrite has the writer's work at 100,000 lines a second: it empties the queues 20 times a
// second, and writes once a second.
func BenchmarkWrite(b *testing.B) {
	for name, plain := range map[string]bool{"zstd": false, "none": true} {
		b.Run(name, func(b *testing.B) {
			r := New(Options{Path: b.TempDir(), Plain: plain, PerSecond: 1 << 40})
			must.Succeed(b, r.Close(context.Background()))
			const users, perDrain, perWrite = 10_000, 5000, 100_000
			d := newDeciding(b)
			results := make([]decide.Result, users)
			for i := range results {
				d.result = decide.Result{}
				results[i] = *d.decide(fmt.Sprint("user-", 1_000_000+i))
			}
			w, at := newWriter(r), results[0].Decisions[0].Verdicts[0].At
			b.ReportAllocs()
			b.ResetTimer()
			for i := 1; i <= b.N; i++ {
				result := &results[rand.IntN(users)]
				at += 10
				result.Decisions[0].Verdicts[0].At = at
				r.Record(result)
				if i%perDrain == 0 {
					w.drain()
				}
				if i%perWrite == 0 {
					w.write(w.cutoff)
				}
			}
			w.drain()
			w.write(math.MaxInt64)
			w.out.close()
		})
	}
}
