package oracles

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// zset is a sorted set of the milliseconds of all requests, in one pipelined transaction. Each flaw
// can be mended separately.
type zset struct {
	*oracle
	period, max int64
	unique      bool // mended: each request has a member of its own, also within a millisecond
	forget      bool // mended: a denied request is removed
	java        bool // period * 1000 is computed in 32 bits

	seq int
}

func (z *zset) allow(y request) bool {
	z.moveTo(y.at)
	now := y.millis()
	member := any(now)
	if z.unique {
		z.seq++
		member = fmt.Sprint(now, "-", z.seq)
	}
	window := z.period * 1000
	if z.java {
		window = int64(int32(z.period) * 1000)
	}
	count := z.do(y.key,
		command{"ZADD", y.key, now, member},
		command{"ZREMRANGEBYSCORE", y.key, 0, now - window},
		command{"ZCARD", y.key},
		command{"EXPIRE", y.key, z.period + 1},
	)[2].(int64)
	if count > z.max && z.forget {
		z.do(y.key, command{"ZREM", y.key, member})
	}
	return count <= z.max
}

// zsetLua is the article's script on a sorted set, verbatim.
const zsetLua = "redis.call('ZADD', KEYS[1], tonumber(ARGV[1]), ARGV[1])" +
	"\nlocal c" +
	"\nc = redis.call('ZCARD', KEYS[1])" +
	"\nredis.call('ZREMRANGEBYSCORE', KEYS[1], 0, tonumber(ARGV[2]))" +
	"\nredis.call('EXPIRE', KEYS[1], tonumber(ARGV[3]))" +
	"\nreturn c;"

// zsetLuaMended has ZCARD and ZREMRANGEBYSCORE in the other order.
const zsetLuaMended = "redis.call('ZADD', KEYS[1], tonumber(ARGV[1]), ARGV[1])" +
	"\nlocal c" +
	"\nredis.call('ZREMRANGEBYSCORE', KEYS[1], 0, tonumber(ARGV[2]))" +
	"\nc = redis.call('ZCARD', KEYS[1])" +
	"\nredis.call('EXPIRE', KEYS[1], tonumber(ARGV[3]))" +
	"\nreturn c;"

func lua(o *oracle, script string, period, maxCount int64) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		now := y.millis()
		return o.int(y.key, command{"EVAL", script, 1, y.key, now, now - period*1000, period}) <= maxCount
	}
}

var (
	// the articles' example: five a minute
	fiveAMinute = limiters.Spec{Algorithm: "sliding_log", Max: 5, Window: time.Minute}
	// denied requests logged too, as in the articles
	fiveAMinuteDeniedToo = limiters.Spec{Algorithm: "sliding_log", Max: 5, Window: time.Minute, CountDenied: true}

	// apart has no two requests in one millisecond; together has many.
	apart    = traffic(2, 2*time.Second, []int{1, 1, 2, 3}, []int{29, 30, 31})
	together = traffic(3, 2*time.Second, []int{0, 0, 1, 1, 2, 3, 5}, []int{29, 30, 31})
)

func TestSortedSetMatchesSlidingLog(t *testing.T) {
	t.Parallel()
	newZset := func(t *testing.T) *zset { return &zset{oracle: newOracle(t), period: 60, max: 5} }

	t.Run("the article's example: five of twenty requests pass", func(t *testing.T) {
		var at []time.Duration
		for i := range 20 {
			at = append(at, time.Duration(i)*time.Millisecond)
		}
		trace := requests(at...)
		oracle := play(trace, newZset(t).allow)
		want(t, "the article", oracle, "yyyyynnnnnnnnnnnnnnn")
		parity(t, fiveAMinute, trace, oracle)
	})

	t.Run("flaw: denied requests starve a user who keeps trying", func(t *testing.T) {
		// One request every ten seconds for ten minutes: each minute has six requests, and five are
		// allowed.
		var at []time.Duration
		for i := range 60 {
			at = append(at, time.Duration(i)*10*time.Second)
		}
		trace := requests(at...)
		want(t, "the article", play(trace, newZset(t).allow),
			"yyyyynnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir", play(trace, weir(t, open, fiveAMinute)),
				"yyyyynyyyyynyyyyynyyyyynyyyyynyyyyynyyyyynyyyyynyyyyynyyyyyn")
		})
	})

	t.Run("logging denied requests is the only difference", func(t *testing.T) {
		oracle := play(apart, newZset(t).allow)
		t.Run("Weir with count_denied agrees", func(t *testing.T) {
			parity(t, fiveAMinuteDeniedToo, apart, oracle)
		})
		t.Run("the article with a ZREM agrees", func(t *testing.T) {
			mended := newZset(t)
			mended.forget = true
			parity(t, fiveAMinute, apart, play(apart, mended.allow))
		})
		t.Run("the article only denies more", func(t *testing.T) {
			onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
				onlyOracle, onlyWeir := differences(oracle, play(apart, weir(t, open, fiveAMinute)))
				if onlyOracle != 0 || onlyWeir == 0 {
					t.Errorf("%d requests pass with the article alone, want 0; %d with Weir alone, want some", onlyOracle, onlyWeir)
				}
			})
		})
	})

	t.Run("flaw: two hits in one millisecond are one member", func(t *testing.T) {
		// As in the article's own run, in which ten of fifteen passed: two requests in each
		// millisecond.
		var at []time.Duration
		for i := range 15 {
			at = append(at, time.Duration(i/2)*time.Millisecond)
		}
		trace := requests(at...)
		want(t, "the article", play(trace, newZset(t).allow), "yyyyyyyyyynnnnn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir", play(trace, weir(t, open, fiveAMinute)), "yyyyynnnnnnnnnn")
		})
	})

	t.Run("merging hits of one millisecond is the only other difference", func(t *testing.T) {
		if got := most(together, play(together, newZset(t).allow), time.Minute); got <= 5 {
			t.Errorf("the article admitted %d at most in a minute: the trace proves nothing", got)
		}
		t.Run("with unique members it agrees", func(t *testing.T) {
			mended := newZset(t)
			mended.forget, mended.unique = true, true
			parity(t, fiveAMinute, together, play(together, mended.allow))
		})
		t.Run("with unique members it agrees, denied requests logged", func(t *testing.T) {
			mended := newZset(t)
			mended.unique = true
			parity(t, fiveAMinuteDeniedToo, together, play(together, mended.allow))
		})
	})

	t.Run("flaw: the Java version limits nothing over 24 days", func(t *testing.T) {
		// period * 1000 overflows an int, so the end of the removed range lies in the future.
		const day = 24 * time.Hour
		month := &zset{oracle: newOracle(t), period: int64(30 * day / time.Second), max: 5, java: true}
		trace := requests(0, day, 2*day, 3*day, 4*day, 5*day, 6*day, 30*day)
		want(t, "the article", play(trace, month.allow), "yyyyyyyy")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			spec := limiters.Spec{Algorithm: "sliding_log", Max: 5, Window: 30 * day}
			want(t, "Weir", play(trace, weir(t, open, spec)), "yyyyynny")
		})
	})
}

func TestSortedSetInLuaMatchesSlidingLog(t *testing.T) {
	t.Parallel()
	t.Run("flaw: it counts before it removes", func(t *testing.T) {
		// The last request shares its minute with only one other, and is denied because of entries
		// that the script has not removed yet.
		trace := requests(0, 1*time.Second, 2*time.Second, 3*time.Second, 50*time.Second, 100*time.Second)
		want(t, "the article", play(trace, lua(newOracle(t), zsetLua, 60, 5)), "yyyyyn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir", play(trace, weir(t, open, fiveAMinute)), "yyyyyy")
		})
	})

	t.Run("with the two lines in order every verdict equals the pipelined sorted set", func(t *testing.T) {
		for _, trace := range [][]request{apart, together} {
			s2 := &zset{oracle: newOracle(t), period: 60, max: 5}
			wantSameVerdicts(t, trace, play(trace, s2.allow), play(trace, lua(newOracle(t), zsetLuaMended, 60, 5)))
		}
	})

	t.Run("the order and logging denied requests are the only differences", func(t *testing.T) {
		parity(t, fiveAMinuteDeniedToo, apart, play(apart, lua(newOracle(t), zsetLuaMended, 60, 5)))
	})

	t.Run("as written it only denies more", func(t *testing.T) {
		oracle := play(apart, lua(newOracle(t), zsetLua, 60, 5))
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			onlyOracle, onlyWeir := differences(oracle, play(apart, weir(t, open, fiveAMinuteDeniedToo)))
			if onlyOracle != 0 || onlyWeir == 0 {
				t.Errorf("%d requests pass with the article alone, want 0; %d with Weir alone, want some", onlyOracle, onlyWeir)
			}
		})
	})
}
