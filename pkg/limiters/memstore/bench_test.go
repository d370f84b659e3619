package memstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// WEIR_BENCH_KEYS is the number of keys in the benchmarks of large stores. 10 million take about a
// gigabyte.
func benchKeys(b *testing.B) int {
	n := 1_000_000
	if text := os.Getenv("WEIR_BENCH_KEYS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must.Succeed(b, err)
	}
	return n
}

// A keyOf is a key of 40 bytes whose digits are overwritten for each operation. So its text is in
// the processor's cache, as that of a request is.
type keyOf [40]byte

func newKey() *keyOf {
	k := new(keyOf)
	copy(k[:], "3:ugc 7:user_id=12:user        6:action=")
	return k
}

func (k *keyOf) of(i int) string {
	for at := 30; at >= 23; at-- {
		k[at] = byte('0' + i%10)
		i /= 10
	}
	return unsafe.String(&k[0], len(k))
}

func charge(b *testing.B, s *Store, groups []limiters.Group, out []limiters.Verdict) {
	if err := s.Take(context.Background(), groups, out); err != nil || out[0].Err != nil {
		b.Fatal(err, out[0].Err)
	}
}

// fill charges each of n keys, every eighth under a funnel.
func fill(b *testing.B, s *Store, n int) {
	ops, out, k := make([]limiters.Op, 1), make([]limiters.Verdict, 1), newKey()
	groups := limiters.Singles(ops...)
	for i := range n {
		ops[0] = limiters.Op{Key: string([]byte(k.of(i))), Limit: limitOf(i), Hits: 1}
		charge(b, s, groups, out)
	}
}

var (
	benchWindow = limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 100, Window: 24 * time.Hour, CountDenied: true})
	benchFunnel = limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 100, Window: 24 * time.Hour})
)

func limitOf(i int) *limiters.Limit {
	if i%8 == 0 {
		return benchFunnel
	}
	return benchWindow
}

// BenchmarkTake is an operation on a known key.
func BenchmarkTake(b *testing.B) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		b.Run(name, func(b *testing.B) {
			limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 100, Window: time.Minute})
			s, k := New(Options{}), newKey()
			ops, out := make([]limiters.Op, 1), make([]limiters.Verdict, 1)
			groups := limiters.Singles(ops...)
			for i := range 10_000 {
				ops[0] = limiters.Op{Key: string([]byte(k.of(i))), Limit: limit, Hits: 1}
				charge(b, s, groups, out)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				ops[0] = limiters.Op{Key: k.of(i), Limit: limit, Hits: 1}
				charge(b, s, groups, out)
				if i++; i == 10_000 {
					i = 0
				}
			}
		})
	}
}

// BenchmarkTakeOfMovingLog is an operation on a log that older hits leave.
func BenchmarkTakeOfMovingLog(b *testing.B) {
	for _, held := range []int{1, 5, 2000} {
		b.Run(strconv.Itoa(held), func(b *testing.B) {
			limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 5000, Window: time.Second})
			s := New(Options{})
			groups, out := []limiters.Group{{{Key: "k", Limit: limit, Hits: 1}}}, make([]limiters.Verdict, 1)
			now := time.UnixMicro(1_763_683_200_000_000)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second / time.Duration(held))
				if err := s.TakeAt(context.Background(), now, groups, out); err != nil || !out[0].Allowed {
					b.Fatal(err, out[0])
				}
			}
		})
	}
}

// BenchmarkFiveOps is one call with five known keys, alone and as a group.
func BenchmarkFiveOps(b *testing.B) {
	for _, together := range []bool{false, true} {
		b.Run(fmt.Sprint("group ", together), func(b *testing.B) {
			s := New(Options{})
			fill(b, s, 10_000)
			ops, out := make([]limiters.Op, 5), make([]limiters.Verdict, 5)
			groups := limiters.Singles(ops...)
			if together {
				groups = []limiters.Group{ops}
			}
			var keys [5]*keyOf
			for j := range keys {
				keys[j] = newKey()
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				for j := range ops {
					ops[j] = limiters.Op{Key: keys[j].of(i), Limit: limitOf(i), Hits: 1}
					if i++; i == 10_000 {
						i = 0
					}
				}
				charge(b, s, groups, out)
			}
		})
	}
}

// BenchmarkHotKey is one key of all goroutines. It measures how long a Take holds the lock of a
// shard.
func BenchmarkHotKey(b *testing.B) {
	s := New(Options{})
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		groups, out := []limiters.Group{{{Key: newKey().of(1), Limit: benchWindow, Hits: 1}}}, make([]limiters.Verdict, 1)
		for pb.Next() {
			charge(b, s, groups, out)
		}
	})
}

// BenchmarkLock is a Take without its work under the lock. The difference to BenchmarkTake is how
// long the lock is held.
func BenchmarkLock(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := New(Options{})
			ops, out, k := make([]limiters.Op, n), make([]limiters.Verdict, n), newKey()
			for i := range ops {
				ops[i] = limiters.Op{Key: string([]byte(k.of(i))), Limit: benchWindow, Hits: 1}
			}
			groups := limiters.Singles(ops...)
			for b.Loop() {
				t := transactionPool.Get().(*transaction)
				t.begin(s, len(out))
				t.findShards(groups)
				t.lock(time.Time{})
				t.unlock()
				t.release()
			}
		})
	}
}

// BenchmarkManyKeys is a hundred thousand keys, used by all goroutines.
func BenchmarkManyKeys(b *testing.B) {
	const keys = 100_000
	s := New(Options{})
	fill(b, s, keys)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ops, out, k := make([]limiters.Op, 1), make([]limiters.Verdict, 1), newKey()
		groups := limiters.Singles(ops...)
		r := rand.New(rand.NewPCG(rand.Uint64(), 0))
		for pb.Next() {
			i := r.IntN(keys)
			ops[0] = limiters.Op{Key: k.of(i), Limit: limitOf(i), Hits: 1}
			charge(b, s, groups, out)
		}
	})
}

// BenchmarkKeysHeld is an operation on one of many keys: drawn evenly, which no processor cache
// helps, and by Zipf, like traffic.
func BenchmarkKeysHeld(b *testing.B) {
	for n := 10_000; n <= benchKeys(b); n *= 10 {
		s := New(Options{MaxKeys: int64(n)})
		fill(b, s, n)
		runtime.GC()
		r := rand.New(rand.NewPCG(1, 2))
		zipf := rand.NewZipf(r, 1.1, 1, uint64(n-1))
		for _, draw := range []struct {
			name string
			next func() int
		}{
			{"even", func() int { return r.IntN(n) }},
			{"zipf", func() int { return int(zipf.Uint64()) }},
		} {
			drawn := make([]int32, 1<<20)
			for i := range drawn {
				drawn[i] = int32(draw.next())
			}
			at := 0 // over all runs, so that no run finds the keys of the last one in a cache
			b.Run(fmt.Sprintf("%s/%d", draw.name, n), func(b *testing.B) {
				ops, out, k := make([]limiters.Op, 1), make([]limiters.Verdict, 1), newKey()
				groups := limiters.Singles(ops...)
				b.ReportAllocs()
				for b.Loop() {
					i := int(drawn[at%len(drawn)])
					at++
					ops[0] = limiters.Op{Key: k.of(i), Limit: limitOf(i), Hits: 1}
					charge(b, s, groups, out)
				}
			})
		}
	}
}

// BenchmarkTail measures the maximum and the high percentiles of a Take: while a store grows, and
// while the garbage collector runs all the time. The same loop without a store shows the part of
// the machine.
func BenchmarkTail(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(30))
	n := benchKeys(b)
	s := New(Options{MaxKeys: int64(n)})
	ops, out, k := make([]limiters.Op, 1), make([]limiters.Verdict, 1), newKey()
	groups := limiters.Singles(ops...)
	b.Run("growing", func(b *testing.B) {
		times := make([]int32, n)
		for b.Loop() {
			s = New(Options{MaxKeys: int64(n)})
			for i := range n {
				ops[0] = limiters.Op{Key: string([]byte(k.of(i))), Limit: limitOf(i), Hits: 1}
				since := time.Now()
				charge(b, s, groups, out)
				times[i] = int32(time.Since(since))
			}
		}
		reportQuantiles(b, times)
	})
	for _, c := range []struct {
		name   string
		groups []limiters.Group
	}{{"collecting", groups}, {"collecting without a store", nil}} {
		b.Run(c.name, func(b *testing.B) {
			times := make([]int32, 2_000_000)
			var collecting sync.WaitGroup
			var stop atomic.Bool
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			collecting.Go(func() {
				for !stop.Load() {
					runtime.GC()
				}
			})
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				for at := range times {
					i := r.IntN(n)
					ops[0] = limiters.Op{Key: k.of(i), Limit: limitOf(i), Hits: 1}
					since := time.Now()
					if c.groups != nil {
						charge(b, s, c.groups, out)
					}
					times[at] = int32(time.Since(since))
				}
			}
			stop.Store(true)
			collecting.Wait()
			runtime.ReadMemStats(&after)
			cycles := after.NumGC - before.NumGC
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(cycles), "ms/cycle")
			b.ReportMetric(float64(after.PauseTotalNs-before.PauseTotalNs)/float64(cycles)/1000, "stop-µs/cycle")
			reportQuantiles(b, times)
		})
	}
	runtime.KeepAlive(s)
}

func reportQuantiles(b *testing.B, times []int32) {
	slices.Sort(times)
	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))]) / 1000 }
	b.ReportMetric(at(.5), "p50-µs")
	b.ReportMetric(at(.99), "p99-µs")
	b.ReportMetric(at(.999), "p99.9-µs")
	b.ReportMetric(at(.9999), "p99.99-µs")
	b.ReportMetric(at(1), "max-µs")
}

// BenchmarkSave is a snapshot of many keys, and of one log of a million entries. It reports the
// time, the size, and the longest time that a lock is held.
func BenchmarkSave(b *testing.B) {
	n := benchKeys(b)
	many, log := New(Options{}), New(Options{})
	fill(b, many, n)
	groups, out := []limiters.Group{{{Key: "k", Limit: benchLog, Hits: 1}}}, make([]limiters.Verdict, 1)
	for i := range limiters.MaxLogLimit {
		now := time.Now().Add(time.Duration(i) * time.Microsecond)
		must.Succeed(b, log.TakeAt(context.Background(), now, groups, out))
	}
	for _, c := range []struct {
		name  string
		store *Store
	}{{fmt.Sprint(n, " keys"), many}, {"one log", log}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var size counter
			for b.Loop() {
				size = 0
				if _, err := c.store.Save(&size); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "bytes")
			holds := lockTimes(c.store)
			slices.Sort(holds)
			b.ReportMetric(float64(holds[len(holds)*999/1000])/1000, "hold-p99.9-µs")
			b.ReportMetric(float64(holds[len(holds)-1])/1000, "hold-max-µs")
		})
	}
}

var benchLog = limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: limiters.MaxLogLimit, Window: 24 * time.Hour})

// lockTimes returns how long a Save holds each lock, in ns. Each is the shortest of three Saves,
// because the machine is shared.
func lockTimes(s *Store) []int64 {
	var holds []int64
	for range 3 {
		c := copier{algorithms: limiters.Algorithms(), storeNow: s.clock()}
		var b []byte
		at := 0
		for i := range s.shards {
			for words := range lengthCount {
				c.begin(words)
				for more := true; more; at++ {
					b = slices.Grow(b[:0], max(c.nextSize, 2*bytesPerLock))
					since := time.Now()
					b, more = c.copy(&s.shards[i], b)
					took := int64(time.Since(since))
					if at == len(holds) {
						holds = append(holds, took)
					}
					holds[at] = min(holds[at], took)
				}
			}
		}
	}
	return holds
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// BenchmarkLoad loads a snapshot of many keys.
func BenchmarkLoad(b *testing.B) {
	n := benchKeys(b)
	s := New(Options{})
	fill(b, s, n)
	snapshot := mustSave(b, s)
	b.ReportAllocs()
	for b.Loop() {
		if _, result, err := Load(bytes.NewReader(snapshot), Options{}); err != nil || result.Keys != int64(n) {
			b.Fatal(result, err)
		}
	}
}
