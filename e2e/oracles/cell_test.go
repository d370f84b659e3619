package oracles

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// cell is the arithmetic of redis-cell 0.5.0 (src/cell/mod.rs), a module that an ordinary Redis
// does not have. Its times are integer nanoseconds. A finer tick makes the interval between two
// hits exact; redis-cell truncates it to whole nanoseconds. A key expires here when its funnel is
// empty; redis-cell truncates that time to whole milliseconds.
type cell struct {
	limit    int64            // max_burst + 1
	interval int64            // in ticks
	tick     int64            // ticks per nanosecond; redis-cell has 1
	tat      map[string]int64 // the theoretical arrival time: the time at which the key is empty
}

func newCell(maxBurst, count, period int64) *cell {
	return &cell{
		limit:    maxBurst + 1,
		interval: int64(float64(period*1e9) / float64(count)),
		tick:     1,
		tat:      map[string]int64{},
	}
}

// newExactCell is redis-cell with an exact interval.
func newExactCell(maxBurst, count, period int64) *cell {
	return &cell{limit: maxBurst + 1, interval: period * 1e9, tick: count, tat: map[string]int64{}}
}

// A reply is redis-cell's reply before rounding to seconds. Times are in ticks; a negative time is
// redis-cell's -1.
type reply struct {
	limited          bool
	limit, remaining int64
	retry, reset     int64
}

var errExpire = errors.New("error while setting key expire")

func (c *cell) throttle(y request) (reply, error) {
	now := y.at.Nanoseconds() * c.tick
	tolerance := c.interval * c.limit
	tat, ok := c.tat[y.key]
	if !ok || tat < now {
		tat = now // the key has expired
	}
	increment := c.interval * y.n
	newTat := max(now, tat) + increment
	diff := now - (newTat - tolerance)
	r := reply{limited: diff < 0, limit: c.limit, retry: -1}
	if r.limited {
		r.reset = tat - now
		if increment <= tolerance {
			r.retry = -diff
		}
	} else {
		r.reset = newTat - now
		c.tat[y.key] = newTat
		if r.reset < 0 {
			return reply{}, errExpire
		}
	}
	if next := tolerance - r.reset; next > -c.interval {
		if c.tick == 1 {
			r.remaining = int64(float64(next/1000) / float64(c.interval/1000))
		} else {
			r.remaining = next / c.interval
		}
	}
	return r, nil
}

// seconds formats a reply as CL.THROTTLE prints it.
func (r reply) seconds() string {
	limited := 0
	if r.limited {
		limited = 1
	}
	return fmt.Sprint([]int64{int64(limited), r.limit, r.remaining, cellSeconds(r.retry), cellSeconds(r.reset)})
}

// cellSeconds rounds up to seconds, but drops fractions of a millisecond.
func cellSeconds(ns int64) int64 {
	if ns < 0 {
		return -1
	}
	s := ns / 1e9
	if ns%1e9 >= 1e6 {
		s++
	}
	return s
}

// throttle is Weir's funnel with redis-cell's arguments.
type throttle struct {
	store limiterstest.TimedStore
	limit *limiters.Limit
}

func newThrottle(t *testing.T, open func(*testing.T) limiterstest.TimedStore, maxBurst, count, period int64) throttle {
	return throttle{open(t), newLimit(t, limiters.Spec{
		Algorithm: "funnel", Max: count, Window: time.Duration(period) * time.Second, Params: limiters.Params{Capacity: maxBurst + 1},
	})}
}

// reply returns a verdict in redis-cell's terms, in ns rounded to microseconds. A hit that never
// fits has no retry delay.
func (w throttle) reply(t *testing.T, y request) reply {
	t.Helper()
	v := take(t, w.store, w.limit, y)
	r := reply{!v.Allowed, w.limit.Capacity(), v.Remaining, -1, v.ResetAfter.Nanoseconds()}
	if !v.Allowed && v.RetryAfter >= 0 {
		r.retry = v.RetryAfter.Nanoseconds()
	}
	return r
}

// roundUp returns a reply in whole microseconds, rounded up like Weir's times.
func (c *cell) roundUp(r reply) reply {
	up := func(ticks int64) int64 {
		if ticks < 0 {
			return -1
		}
		us := c.tick * 1000
		return (ticks + us - 1) / us * 1000
	}
	r.retry, r.reset = up(r.retry), up(r.reset)
	return r
}

func TestRedisCellThrottleMatchesFunnel(t *testing.T) {
	t.Parallel()
	type line struct {
		at    time.Duration
		n     int64
		reply string // limited, limit, remaining, retry_after, reset_after
		weir  string // Weir's reply, if it differs
	}
	const ms, us = time.Millisecond, time.Microsecond
	for _, v := range []struct {
		name                    string
		maxBurst, count, period int64
		lines                   []line
	}{
		{"redis-cell's own test vectors", 4, 1, 1, []line{
			{0, 6, "[1 5 5 -1 0]", ""},
			{0, 1, "[0 5 4 -1 1]", ""},
			{0, 1, "[0 5 3 -1 2]", ""},
			{0, 1, "[0 5 2 -1 3]", ""},
			{0, 1, "[0 5 1 -1 4]", ""},
			{0, 1, "[0 5 0 -1 5]", ""},
			{0, 1, "[1 5 0 1 5]", ""},
			{3000 * ms, 1, "[0 5 2 -1 3]", ""},
			{3100 * ms, 1, "[0 5 1 -1 4]", ""}, // 3.9 s
			{4000 * ms, 1, "[0 5 1 -1 4]", ""},
			{8000 * ms, 1, "[0 5 4 -1 1]", ""},
			{9500 * ms, 1, "[0 5 4 -1 1]", ""},
			{9500 * ms, 0, "[0 5 4 -1 1]", ""},
			{9500 * ms, 2, "[0 5 2 -1 3]", ""},
			{9500 * ms, 5, "[1 5 2 3 3]", ""},
		}},
		{"laoqian:reply 15 30 60 allows 16 hits, and the article prints 15", 15, 30, 60, []line{
			{0, 1, "[0 16 15 -1 2]", ""},
		}},
		{"laoqian:reply 14 30 60 has the reply that the article prints", 14, 30, 60, []line{
			{0, 1, "[0 15 14 -1 2]", ""},
		}},
		{"user123 0 1 2 allows one hit every two seconds", 0, 1, 2, []line{
			{0, 1, "[0 1 0 -1 2]", ""},
			{0, 1, "[1 1 0 2 2]", ""},
			{2000 * ms, 1, "[0 1 0 -1 2]", ""},
		}},
		{"difference: redis-cell rounds times under a millisecond down, and Weir rounds them up", 0, 1, 2, []line{
			{0, 1, "[0 1 0 -1 2]", ""},
			{1000 * ms, 1, "[1 1 0 1 1]", ""},
			{1999*ms + 500*us, 1, "[1 1 0 0 0]", "[1 1 0 1 1]"},
		}},
		{"difference: a peek is always allowed in redis-cell, and in Weir only if one more hit fits", 1, 1, 2, []line{
			{0, 0, "[0 2 2 -1 0]", ""},
			{0, 2, "[0 2 0 -1 4]", ""},
			{0, 0, "[0 2 0 -1 4]", "[1 2 0 2 4]"},
			{2000 * ms, 0, "[0 2 1 -1 2]", ""},
		}},
		{"difference: a refund above the usage fails in redis-cell, and empties the funnel in Weir", 1, 1, 2, []line{
			{0, 2, "[0 2 0 -1 4]", ""},
			{0, -1, "[0 2 1 -1 2]", ""},
			{0, -2, errExpire.Error(), "[0 2 2 -1 0]"},
			{0, 1, "[0 2 1 -1 2]", ""},
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			oracle := newCell(v.maxBurst, v.count, v.period)
			for i, l := range v.lines {
				r, err := oracle.throttle(request{l.at, "laoqian", l.n})
				got := r.seconds()
				if err != nil {
					got = err.Error()
				}
				if got != l.reply {
					t.Fatalf("redis-cell, line %d: %s, want %s", i, got, l.reply)
				}
			}
			onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
				w := newThrottle(t, open, v.maxBurst, v.count, v.period)
				for i, l := range v.lines {
					r := w.reply(t, request{l.at, "laoqian", l.n})
					// Weir reports whole seconds, rounded up.
					got := reply{r.limited, r.limit, r.remaining, ceilSeconds(r.retry), ceilSeconds(r.reset)}.seconds()
					if l.weir == "" {
						l.weir = l.reply
					}
					if got != l.weir {
						t.Errorf("Weir, line %d: %s, want %s", i, got, l.weir)
					}
				}
			})
		})
	}

	for _, v := range []struct{ maxBurst, count, period int64 }{
		{4, 1, 1}, {15, 30, 60}, {0, 1, 2}, {0, 500, 1}, {99, 1000, 60}, {2, 8, 3600},
	} {
		t.Run(fmt.Sprintf("same replies on a random trace, %d %d %d", v.maxBurst, v.count, v.period), func(t *testing.T) {
			cellTraffic(t, v.maxBurst, v.count, v.period, newCell)
		})
	}

	// This interval is not a whole number of nanoseconds; redis-cell truncates it.
	for _, v := range []struct{ maxBurst, count, period int64 }{
		{4, 7, 1}, {2, 3, 1}, {15, 700, 60}, {9, 700_000, 1},
	} {
		name := fmt.Sprintf("same replies as redis-cell with an exact interval, %d %d %d", v.maxBurst, v.count, v.period)
		t.Run(name, func(t *testing.T) {
			cellTraffic(t, v.maxBurst, v.count, v.period, newExactCell)
		})
	}

	t.Run("flaw: redis-cell truncates the interval to nanoseconds, and admits hits early", func(t *testing.T) {
		// The limit is 3 hits a second with a max_burst of 3. After 3,000 hits redis-cell is 1 µs
		// ahead of the configured rate.
		trace := requests(0)
		for i := range 1000 {
			trace = append(trace, requests(times(3, time.Duration(i)*time.Second)...)...)
		}
		at := 1000*time.Second - us
		trace = append(trace, requests(at, at, at)...)
		oracle, exact := newCell(3, 3, 1), newExactCell(3, 3, 1)
		last := func(verdicts []bool) []bool { return verdicts[len(verdicts)-3:] }
		want(t, "redis-cell", last(play(trace, oracle.allow(t))), "yyy")
		want(t, "redis-cell with an exact interval", last(play(trace, exact.allow(t))), "yyn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			spec := limiters.Spec{Algorithm: "funnel", Max: 3, Window: time.Second, Params: limiters.Params{Capacity: 4}}
			want(t, "Weir", last(play(trace, weir(t, open, spec))), "yyn")
		})
	})
}

// ceilSeconds rounds ns up to whole seconds, in ns.
func ceilSeconds(ns int64) int64 {
	if ns < 0 {
		return -1
	}
	return (ns + 1e9 - 1) / 1e9 * 1e9
}

func (c *cell) allow(t *testing.T) limiter {
	return func(y request) bool {
		r, err := c.throttle(y)
		must.Succeed(t, err)
		return !r.limited
	}
}

// cellTraffic compares all figures on a random trace. The trace includes peeks, refunds and hits
// that never fit.
func cellTraffic(t *testing.T, maxBurst, count, period int64, model func(maxBurst, count, period int64) *cell) {
	t.Helper()
	interval := time.Duration(period) * time.Second / time.Duration(count)
	// Times are multiples of an eighth of an interval, sometimes off by some microseconds.
	tick := max(interval/8, time.Microsecond).Truncate(time.Microsecond)
	trace := traffic(uint64(7+count), tick, []int{0, 0, 0, 0, 1, 1, 2, 3, 4, 8}, []int{15, 16, 17})
	r := rand.New(rand.NewPCG(7, 7))
	for i := range trace {
		trace[i].n = []int64{1, 1, 1, 1, 1, 2, 3, 0, -1, maxBurst + 1, maxBurst + 2}[r.IntN(11)]
	}
	for i := range trace[1:] {
		if gap := trace[i+1].at - trace[i].at; gap == 0 && r.IntN(4) == 0 {
			trace[i+1].at = min(trace[i].at+time.Duration(r.IntN(2000))*time.Microsecond, trace[min(i+2, len(trace)-1)].at)
		}
	}

	oracle := model(maxBurst, count, period)
	replies := make([]reply, len(trace))
	errs := make([]error, len(trace))
	limited := 0
	for i, y := range trace {
		replies[i], errs[i] = oracle.throttle(y)
		if replies[i].limited {
			limited++
		}
	}
	onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
		w := newThrottle(t, open, maxBurst, count, period)
		for i, y := range trace {
			got := w.reply(t, y)
			if errs[i] != nil {
				// difference: negative quantities
				if y.n >= 0 || got.limited || got.reset != 0 || got.remaining != oracle.limit {
					t.Fatalf("request %d, %+v: redis-cell says %v, Weir %+v", i, y, errs[i], got)
				}
				continue
			}
			want := oracle.roundUp(replies[i])
			if y.n == 0 && want.remaining == 0 {
				// difference: quantity 0
				if want.limited || !got.limited || got.retry <= 0 {
					t.Fatalf("request %d, %+v: redis-cell %+v, Weir %+v", i, y, want, got)
				}
				want.limited, want.retry = got.limited, got.retry
			}
			if got != want {
				t.Fatalf("request %d, %+v: redis-cell %+v, Weir %+v", i, y, want, got)
			}
			// difference: times rounded up
			for _, ns := range []int64{got.retry, got.reset} {
				if theirs, ours := cellSeconds(ns), ceilSeconds(ns); ours >= 0 && ours/1e9 != theirs {
					if under := ns % 1e9; under == 0 || under >= 1e6 || ours/1e9 != theirs+1 {
						t.Fatalf("%d ns are %d s in redis-cell and %d s in Weir", ns, theirs, ours)
					}
				}
			}
		}
	})
	if limited < len(trace)/20 {
		t.Errorf("the trace proves little: %d limited", limited)
	}
}
