package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

const million = 1_000_000

var (
	millionAMinute = limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: million, Window: time.Minute})
	logStart       = time.Date(2025, 11, 21, 12, 0, 0, 0, time.UTC)
)

// record returns an encoded record, see the header of sliding_log.lua.
func record(at time.Time, sum int) string {
	t := uint64(at.UnixMicro()) % (1 << 51)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], t%(1<<48))
	binary.BigEndian.PutUint64(b[8:], t>>48<<21|uint64(sum))
	return string(b[2:8]) + string(b[13:16])
}

// fill writes a log of n hits to a key, 50 µs apart, from logStart.
func fill(tb testing.TB, c *redis.Client, key string, n int) {
	tb.Helper()
	ctx := context.Background()
	records := make([]any, 0, 10_000)
	c.Del(ctx, key)
	for i := -1; i < n; i++ {
		records = append(records, record(logStart.Add(time.Duration(i)*50*time.Microsecond), i+1))
		if len(records) == cap(records) || i == n-1 {
			must.Succeed(tb, c.RPush(ctx, key, records...).Err())
			records = records[:0]
		}
	}
}

// fill writes the same records as the script.
func TestHelperFillMatchesScript(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	op := limiters.Op{Key: "k", Limit: millionAMinute, Hits: 1}
	for i := range 100 {
		out := make([]limiters.Verdict, 1)
		now := logStart.Add(time.Duration(i) * 50 * time.Microsecond)
		if err := s.TakeAt(context.Background(), now, []limiters.Group{{op}}, out); err != nil || out[0].Err != nil {
			t.Fatal(err, out[0].Err)
		}
	}
	got := c.LRange(context.Background(), keyOf("", &op), 0, -1).Val()
	fill(t, c, "filled", 100)
	want := c.LRange(context.Background(), "filled", 0, -1).Val()
	if len(got) != 101 || !slices.Equal(got[1:], want[1:]) {
		t.Errorf("%d records, not the 101 that the header describes", len(got))
	}
}

// The steps on a full log of a million hits, which span 50 s.
var logSteps = []struct {
	name  string
	after time.Duration // after the last hit
	n     int64
	want  string
}{
	{"one more, nothing has left", 0, 1, "denied used=1000000 remaining=0 retry=10.00005s reset=60s"},
	{"all of it at once, nothing has left", 0, million, "denied used=1000000 remaining=0 retry=60s reset=60s"},
	{"more than ever fits", 0, limiters.MaxHits, "denied used=1000000 remaining=0 retry=never reset=60s"},
	{"a peek", 0, 0, "denied used=1000000 remaining=0 retry=10.00005s reset=60s"},
	{"one, when one has left", 10*time.Second + 50*time.Microsecond, 1, "ok used=1000000 remaining=0 reset=60s"},
	{"half of it, when half has left", 35 * time.Second, million / 2, "ok used=1000000 remaining=0 reset=60s"},
	{"one, when nearly all has left", 59 * time.Second, 1, "ok used=20001 remaining=979999 reset=60s"},
	{"one, when all has left", 60 * time.Second, 1, "ok used=1 remaining=999999 reset=60s"},
	{"all of it, when all has left", 60 * time.Second, million, "ok used=1000000 remaining=0 reset=60s"},
	{"a refund of one", 0, -1, "ok used=999999 remaining=1 reset=59.99995s"},
	{"a refund of half", 0, -million / 2, "ok used=500000 remaining=500000 reset=35s"},
	{"a refund of all", 0, -million, "ok used=0 remaining=1000000 reset=0s"},
	{"one, when the clock steps back", -30 * time.Second, 1, "denied used=1000000 remaining=0 retry=40.00005s reset=90s"},
}

func takeAfter(tb testing.TB, s *testStore, n int64, after time.Duration) string {
	tb.Helper()
	now := logStart.Add((million-1)*50*time.Microsecond + after)
	out := make([]limiters.Verdict, 1)
	must.Succeed(tb, s.TakeAt(context.Background(), now, []limiters.Group{{{Key: "k", Limit: millionAMinute, Hits: n}}}, out))
	return limiterstest.Format(out[0])
}

// A call on a log of a million hits runs a bounded number of commands. The cost of each is
// independent of the number of hits that are charged, refunded or expired. BenchmarkLongLog
// measures the time.
func TestLongLogNeedsFewCommands(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	ctx := context.Background()
	key := keyOf("", &limiters.Op{Key: "k", Limit: millionAMinute})
	if _, err := take(s, limiters.Op{Key: "first", Limit: millionAMinute}); err != nil {
		t.Fatal(err)
	}
	fill(t, c, "full", million)
	if bytes := c.MemoryUsage(ctx, "full", 0).Val(); bytes > 12*million {
		t.Errorf("a million hits of 1 take %d bytes, want at most 12 each", bytes)
	}
	for _, step := range logSteps {
		c.Copy(ctx, "full", key, 0, true)
		must.Succeed(t, c.ConfigResetStat(ctx).Err())
		if got := takeAfter(t, s, step.n, step.after); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
		for command, calls := range commands(t, c) {
			maximum, expected := map[string]int{
				"evalsha": 1, "eval": 1, "get": 1, "set": 1, "llen": 1, "lindex": 70, "ltrim": 1, "lset": 1, "rpush": 1, "del": 1, "pexpire": 1, "time": 1,
				"config|resetstat": 1, "config": 1, "hello": 1, // not of the call
			}[command]
			if !expected || calls > maximum {
				t.Errorf("%s: %d calls of %s, want at most %d", step.name, calls, command, maximum)
			}
		}
		if n := c.LLen(ctx, key).Val(); n > million+3 {
			t.Errorf("%s: %d records", step.name, n)
		}
	}
}

// commands returns how often each command has run since the statistics were reset.
func commands(tb testing.TB, c *redis.Client) map[string]int {
	tb.Helper()
	calls := map[string]int{}
	for _, line := range strings.Split(c.Info(context.Background(), "commandstats").Val(), "\r\n") {
		name, stats, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !found {
			continue
		}
		n, _, _ := strings.Cut(stats, ",")
		var err error
		if calls[name], err = strconv.Atoi(n); err != nil {
			tb.Fatal(line)
		}
	}
	return calls
}

// A log becomes a list and a string again several times. The suite's sequences are too short for
// that.
func TestLongLogMatchesReference(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	for seed := range limiterstest.Seeds(6) {
		rnd, reference := rand.New(rand.NewPCG(seed, 3)), limiterstest.NewReference()
		var limits []*limiters.Limit
		for _, maximum := range []int64{300, 300, 300, 90, 70, 1000} {
			limits = append(limits, limiterstest.MustLimit(limiters.Spec{
				Algorithm: "sliding_log", Max: maximum, Window: time.Minute, CountDenied: seed%2 == 1,
			}))
		}
		now := logStart
		for step := range 1200 {
			ops := make([]limiters.Op, 1+rnd.IntN(2))
			for i := range ops {
				n := int64(1)
				switch rnd.IntN(60) {
				case 0:
					n = -rnd.Int64N(250)
				case 1, 2:
					n = 1 - rnd.Int64N(4)
				case 3:
					n = rnd.Int64N(120)
				}
				ops[i] = limiters.Op{Key: fmt.Sprint("long ", seed), Limit: limits[0], Hits: n}
				if rnd.IntN(30) == 0 {
					ops[i].Limit = limits[rnd.IntN(len(limits))]
				}
			}
			switch rnd.IntN(200) {
			case 0:
				now = now.Add(time.Duration(rnd.Int64N(int64(2 * time.Minute)))).Truncate(time.Microsecond)
			case 1:
				now = now.Add(-time.Duration(rnd.Int64N(int64(2 * time.Minute)))).Truncate(time.Microsecond)
			default:
				now = now.Add(time.Duration(rnd.Int64N(300_000)) * time.Microsecond)
			}
			got, want := make([]limiters.Verdict, len(ops)), make([]limiters.Verdict, len(ops))
			must.Succeed(t, errors.Join(s.TakeAt(t.Context(), now, limiters.Singles(ops...), got), reference.TakeAt(t.Context(), now, limiters.Singles(ops...), want)))
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d, %+v:\n got %+v\nwant %+v", seed, step, ops, got, want)
			}
		}
	}
}

// BenchmarkLongLog reports how long a call blocks Redis, by Redis' slow log.
func BenchmarkLongLog(b *testing.B) {
	server := redistest.Start(b)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{})
	defer s.Close()
	c, ctx := server.Client(b), context.Background()
	key := keyOf("", &limiters.Op{Key: "k", Limit: millionAMinute})
	fill(b, c, "full", million)
	b.Logf("bytes a hit: %.2f", float64(c.MemoryUsage(ctx, "full", 0).Val())/million)
	for _, step := range logSteps {
		b.Run(strings.ReplaceAll(step.name, " ", "_"), func(b *testing.B) {
			var held []time.Duration
			for range b.N {
				b.StopTimer()
				c.Copy(ctx, "full", key, 0, true)
				c.ConfigSet(ctx, "slowlog-log-slower-than", "0")
				c.SlowLogReset(ctx)
				b.StartTimer()
				takeAfter(b, s, step.n, step.after)
				b.StopTimer()
				for _, entry := range c.SlowLogGet(ctx, -1).Val() {
					if strings.HasPrefix(entry.Args[0], "eval") {
						held = append(held, entry.Duration)
					}
				}
				b.StartTimer()
			}
			if len(held) == 0 {
				b.Fatal("no call in the slow log")
			}
			slices.Sort(held)
			b.ReportMetric(float64(held[len(held)/2].Microseconds()), "median-redis-µs")
			b.ReportMetric(float64(held[len(held)-1].Microseconds()), "most-redis-µs")
		})
	}
}

// BenchmarkMemoryPerKey reports the memory of a key of 40 bytes with three hits at three times.
func BenchmarkMemoryPerKey(b *testing.B) {
	server := redistest.Start(b)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{})
	defer s.Close()
	c, ctx := server.Client(b), context.Background()
	for _, name := range limiterstest.WindowedAlgorithms() {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 5, Window: time.Hour})
		b.Run(name, func(b *testing.B) {
			op := limiters.Op{Key: strings.Repeat("k", 40), Limit: limit, Hits: 1}
			for b.Loop() {
				for i := range 3 {
					now := logStart.Add(time.Duration(i) * time.Second)
					must.Succeed(b, s.TakeAt(ctx, now, []limiters.Group{{op}}, make([]limiters.Verdict, 1)))
				}
				b.ReportMetric(float64(c.MemoryUsage(ctx, keyOf("", &op), 0).Val()), "bytes/key")
			}
		})
	}
}
