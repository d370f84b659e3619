package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// cpu returns the processor time that the server has used.
func cpu(b *testing.B, c redis.UniversalClient) time.Duration {
	b.Helper()
	info, err := c.Info(context.Background(), "cpu").Result()
	must.Succeed(b, err)
	var sum float64
	for line := range strings.SplitSeq(info, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			must.Succeed(b, err)
			sum += seconds
		}
	}
	return time.Duration(sum * float64(time.Second))
}

// BenchmarkCall measures the cost of an operation for Redis and Weir, by the number of operations
// in a call, over 10,000 users.
func BenchmarkCall(b *testing.B) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		for _, size := range []int{1, 16, 32, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				server := redistest.Start(b)
				s := newTestStore(connect.Options{Addr: server.Addr, Timeout: time.Second}, Options{})
				defer s.Close()
				limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 10, Window: time.Minute})
				keys := make([]string, 10_000)
				for i := range keys {
					keys[i] = fmt.Sprintf("3:ugc 7:user_id=12:user%08d 6:action=4:post", i)
				}
				ops, out := make([]limiters.Op, size), make([]limiters.Verdict, size)
				b.ReportAllocs()
				before := cpu(b, s.client)
				calls := 0
				for b.Loop() {
					for i := range ops {
						ops[i] = limiters.Op{Key: keys[rand.IntN(len(keys))], Limit: limit, Hits: 1}
					}
					must.Succeed(b, s.Take(context.Background(), limiters.Singles(ops...), out))
					calls++
				}
				b.ReportMetric(float64(cpu(b, s.client)-before)/float64(calls*size), "redis-ns/hit")
				b.ReportMetric(float64(b.Elapsed())/float64(calls*size), "ns/hit")
			})
		}
	}
}

// BenchmarkGroups measures the cost for Redis of an operation in a group of two limits, with 12
// groups in a call. A large limit allows the operations, or a small one denies nearly all.
func BenchmarkGroups(b *testing.B) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		for _, maximum := range []int64{1, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, maximum), func(b *testing.B) {
				server := redistest.Start(b)
				s := newTestStore(connect.Options{Addr: server.Addr, Timeout: time.Second}, Options{})
				defer s.Close()
				minute := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: maximum, Window: time.Minute})
				hour := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: maximum, Window: time.Hour})
				users := int(min(100*maximum, 10_000))
				groups, out := make([]limiters.Group, 12), make([]limiters.Verdict, 24)
				before := cpu(b, s.client)
				decided := 0
				for b.Loop() {
					for i := range groups {
						key := fmt.Sprintf("3:ugc 7:user_id=12:user%08d 6:action=4:post", rand.IntN(users))
						groups[i] = limiters.Group{{Key: key + " minute", Limit: minute, Hits: 1}, {Key: key + " hour", Limit: hour, Hits: 1}}
					}
					must.Succeed(b, s.Take(context.Background(), groups, out))
					decided += len(out)
				}
				b.ReportMetric(float64(cpu(b, s.client)-before)/float64(decided), "redis-ns/hit")
			})
		}
	}
}

// BenchmarkQueue measures this process's CPU time for a Take with many Takes at a time. It is the
// cost of the queue alone: its calls do nothing.
func BenchmarkQueue(b *testing.B) {
	for _, clients := range []int{64, 512} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			sleep := func(context.Context, time.Time, []limiters.Group, []limiters.Verdict) error {
				time.Sleep(50 * time.Microsecond)
				return nil
			}
			q := newQueue(testConfig(time.Second, 256, 16384), sleep)
			limit := limiterstest.MustLimit(limiters.Spec{Algorithm: limiters.DefaultAlgorithm, Max: 1000, Window: time.Minute})
			before := processCPU(b)
			var all sync.WaitGroup
			for client := range clients {
				all.Go(func() {
					groups := limiters.Singles(limiters.Op{Key: "k", Limit: limit, Hits: 1})
					out := make([]limiters.Verdict, 1)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					for i := client; i < b.N; i += clients {
						if err := q.Take(ctx, groups, out); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(processCPU(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processCPU returns the CPU time of this process, without its servers.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
