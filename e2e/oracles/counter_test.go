package oracles

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// countdown is a string that counts down from the limit and expires a period after the first hit.
func countdown(o *oracle, period, maxCount int64) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		if o.int(y.key, command{"EXISTS", y.key}) == 1 {
			if countdownLeft(o, y.key) > 0 {
				o.do(y.key, command{"INCRBY", y.key, -1})
				return true
			}
			return false
		}
		o.do(y.key, command{"SETEX", y.key, period, maxCount - 1})
		return true
	}
}

func countdownLeft(o *oracle, key string) int {
	left, err := strconv.Atoi(o.do(key, command{"GET", key})[0].(string))
	must.Succeed(o.t, err)
	return left
}

func firstHit(n int64, window time.Duration) limiters.Spec {
	return limiters.Spec{Algorithm: "fixed_window", Max: n, Window: window, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}, CountDenied: true}
}

func byTheClock(n int64, window time.Duration) limiters.Spec {
	return limiters.Spec{Algorithm: "fixed_window", Max: n, Window: window, CountDenied: true}
}

// minutes is a trace for limits per minute, seconds one for limits per second. Both reach the edges
// of windows to the millisecond, and both contain requests at the same time.
var (
	minutes = traffic(1, 500*time.Millisecond, []int{0, 0, 1, 2, 5}, []int{119, 120, 121, 300})
	seconds = traffic(8, 10*time.Millisecond, []int{0, 0, 0, 1, 1, 2, 3}, []int{99, 100, 101})
)

func TestStringThatCountsDownMatchesFixedWindow(t *testing.T) {
	t.Parallel()
	t.Run("same verdicts on every request", func(t *testing.T) {
		oracle := play(minutes, countdown(newOracle(t), 60, 5))
		t.Run("denied hits counted", func(t *testing.T) { parity(t, firstHit(5, time.Minute), minutes, oracle) })
		t.Run("denied hits not counted", func(t *testing.T) {
			spec := firstHit(5, time.Minute)
			spec.CountDenied = false
			parity(t, spec, minutes, oracle)
		})
	})

	t.Run("flaw: two callers both see one left", func(t *testing.T) {
		o := newOracle(t)
		want(t, "the article", play(requests(0, 0, 0, 0), countdown(o, 60, 5)), "yyyy")
		one, two := countdownLeft(o, "laoqian"), countdownLeft(o, "laoqian")
		if one != 1 || two != 1 {
			t.Fatalf("the callers see %d and %d left, want 1 and 1", one, two)
		}
		o.do("laoqian", command{"INCRBY", "laoqian", -1}) // the first passes: the fifth of five
		o.do("laoqian", command{"INCRBY", "laoqian", -1}) // the second passes too: the sixth
		if left := countdownLeft(o, "laoqian"); left != -1 {
			t.Errorf("the article: %d left, want -1: one more than the limit was admitted", left)
		}
		atOnce(t, firstHit(5, time.Minute), 50, 5)
	})

	t.Run("flaw: the key expires between EXISTS and GET", func(t *testing.T) {
		o := newOracle(t)
		want(t, "the article", play(requests(0), countdown(o, 60, 5)), "y")
		if o.int("laoqian", command{"EXISTS", "laoqian"}) != 1 {
			t.Fatal("no key")
		}
		o.moveTo(time.Minute)
		if got := o.do("laoqian", command{"GET", "laoqian"})[0]; got != nil {
			t.Errorf("the article: GET says %v, want nothing: int(None) raises", got)
		}
		// At that moment Weir starts a new window.
		parity(t, firstHit(2, time.Minute), requests(0, 0, 0, time.Minute), []bool{true, true, false, true})
	})

	t.Run("flaw: the key expires between GET and INCRBY, and the user is locked out forever", func(t *testing.T) {
		o := newOracle(t)
		allow := countdown(o, 60, 5)
		want(t, "the article", play(requests(0), allow), "y")
		if left := countdownLeft(o, "laoqian"); left != 4 {
			t.Fatalf("%d left", left)
		}
		o.moveTo(time.Minute)
		o.do("laoqian", command{"INCRBY", "laoqian", -1})
		if exists, ends := o.lives("laoqian"); !exists || ends {
			t.Errorf("the article: key exists %v, ends %v, want a key without an end", exists, ends)
		}
		want(t, "the article", play(requests(time.Minute, time.Hour, 1000*time.Hour), allow), "nnn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			allow := weir(t, open, firstHit(5, time.Minute))
			want(t, "Weir", play(requests(0, time.Minute, time.Hour, 1000*time.Hour), allow), "yyyy")
		})
	})

	t.Run("flaw: nearly twice the limit passes across a boundary", func(t *testing.T) {
		// The first hit opens the window, so the burst is 2·N - 1 here. Every fixed window has this
		// flaw; a sliding log does not.
		at := append(times(1, 0), times(4, time.Minute-time.Millisecond)...)
		trace := requests(append(at, times(6, time.Minute)...)...)
		oracle := play(trace, countdown(newOracle(t), 60, 5))
		want(t, "the article", oracle, "yyyyyyyyyyn")
		parity(t, firstHit(5, time.Minute), trace, oracle)
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir's sliding log", play(trace, weir(t, open, fiveAMinute)), "yyyyyynnnnn")
		})
	})

	t.Run("flaw: a limit of 0 admits one", func(t *testing.T) {
		want(t, "the article", play(requests(0, 0), countdown(newOracle(t), 60, 0)), "yn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir", play(requests(0, 0), weir(t, open, firstHit(0, time.Minute))), "nn")
		})
	})
}

// perMinute is a counter per minute of the clock. The article draws it. The commands are those of
// perSecond, which does the same per second, with a corrected comparison.
func perMinute(o *oracle, n int64) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		key := fmt.Sprint(y.key, ":", y.millis()/60_000)
		return o.do(key, command{"INCR", key}, command{"EXPIRE", key, 60})[0].(int64) <= n
	}
}

func TestCounterPerMinuteMatchesFixedWindow(t *testing.T) {
	t.Parallel()
	t.Run("same verdicts on every request", func(t *testing.T) {
		parity(t, byTheClock(5, time.Minute), minutes, play(minutes, perMinute(newOracle(t), 5)))
	})

	t.Run("flaw: twice the limit passes within 20 ms", func(t *testing.T) {
		// The article's picture: a thousand at the end of a minute, and a thousand and more at the
		// start of the next.
		var at []time.Duration
		for i := range 2100 {
			at = append(at, time.Minute-10*time.Millisecond+time.Duration(i)*10*time.Microsecond)
		}
		trace := requests(at...)
		oracle := play(trace, perMinute(newOracle(t), 1000))
		if got := most(trace, oracle, 20*time.Millisecond); got != 2000 {
			t.Errorf("the article admitted %d in 20 ms, want 2000", got)
		}
		t.Run("fixed_window has the same flaw", func(t *testing.T) {
			parity(t, byTheClock(1000, time.Minute), trace, oracle)
		})
		t.Run("sliding_log does not have the flaw", func(t *testing.T) {
			onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
				spec := limiters.Spec{Algorithm: "sliding_log", Max: 1000, Window: time.Minute}
				weir := play(trace, weir(t, open, spec))
				if got := admitted(weir[:1000]); got != 1000 || admitted(weir) != 1000 {
					t.Errorf("Weir admitted %d before the boundary and %d in all, want the same 1000", got, admitted(weir))
				}
			})
		})
	})

	t.Run("sliding_log never passes the limit within any minute, where the counter does", func(t *testing.T) {
		if got := most(minutes, play(minutes, perMinute(newOracle(t), 5)), time.Minute); got <= 5 || got > 10 {
			t.Errorf("the article admitted %d at most in a minute, want more than 5, up to 10", got)
		}
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			if got := most(minutes, play(minutes, weir(t, open, fiveAMinute)), time.Minute); got != 5 {
				t.Errorf("Weir admitted %d at most in a minute, want 5", got)
			}
		})
	})
}

// The articles' limit is ten a second, and their check is current > 10, made before the hit is
// counted.
func asWritten(current int64) bool { return current > 10 }

// mended is the comparison that enforces the limit the articles name.
func mended(current int64) bool { return current >= 10 }

// current is the result of GET: 0 means no key.
func current(o *oracle, key string) int64 {
	s, ok := o.do(key, command{"GET", key})[0].(string)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	must.Succeed(o.t, err)
	return n
}

// perSecond is a counter per user and second.
func perSecond(o *oracle, refuse func(int64) bool) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		key := perSecondKey(y)
		n := current(o, key)
		if refuse(n) {
			return false
		}
		perSecondCount(o, key, n)
		return true
	}
}

func perSecondKey(y request) string { return fmt.Sprint(y.key, ":", y.millis()/1000) }

func perSecondCount(o *oracle, key string, seen int64) {
	if seen == 0 {
		o.do(key, command{"INCR", key}, command{"EXPIRE", key, 1})
	} else {
		o.do(key, command{"INCR", key})
	}
}

// oneCounter is a counter per user that expires a second after its start.
func oneCounter(o *oracle, refuse func(int64) bool) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		if refuse(current(o, y.key)) {
			return false
		}
		if o.int(y.key, command{"INCR", y.key}) == 1 {
			o.do(y.key, command{"EXPIRE", y.key, 1})
		}
		return true
	}
}

// list is a list per user that expires a second after its start.
func list(o *oracle, refuse func(int64) bool) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		if refuse(o.int(y.key, command{"LLEN", y.key})) {
			return false
		}
		listAdd(o, y.key, o.int(y.key, command{"EXISTS", y.key}) == 1)
		return true
	}
}

func listAdd(o *oracle, key string, seen bool) {
	if seen {
		o.do(key, command{"RPUSHX", key, key})
	} else {
		o.do(key, command{"RPUSH", key, key}, command{"EXPIRE", key, 1})
	}
}

// tenASecond checks that an article as written equals Weir with a limit of eleven, and the
// corrected article Weir with a limit of ten.
func tenASecond(
	t *testing.T, article func(*oracle, func(int64) bool) limiter, spec func(int64, time.Duration) limiters.Spec,
) {
	t.Run("flaw: a limit of 10 admits 11", func(t *testing.T) {
		trace := requests(times(13, 0)...)
		want(t, "the article", play(trace, article(newOracle(t), asWritten)), "yyyyyyyyyyynn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir", play(trace, weir(t, open, spec(10, time.Second))), "yyyyyyyyyynnn")
		})
	})
	t.Run("as written it equals Weir with a limit of 11", func(t *testing.T) {
		parity(t, spec(11, time.Second), seconds, play(seconds, article(newOracle(t), asWritten)))
	})
	t.Run("same verdicts on every request with >= instead of >", func(t *testing.T) {
		parity(t, spec(10, time.Second), seconds, play(seconds, article(newOracle(t), mended)))
	})
}

func TestCounterPerSecondMatchesFixedWindow(t *testing.T) {
	t.Parallel()
	tenASecond(t, perSecond, byTheClock)

	t.Run("flaw: two callers both see nine", func(t *testing.T) {
		o := newOracle(t)
		play(requests(times(9, 0)...), perSecond(o, mended))
		key := perSecondKey(request{key: "laoqian"})
		one, two := current(o, key), current(o, key)
		if mended(one) || mended(two) {
			t.Fatalf("the callers see %d and %d", one, two)
		}
		perSecondCount(o, key, one)
		perSecondCount(o, key, two)
		if got := current(o, key); got != 11 {
			t.Errorf("the article admitted %d, want 11", got)
		}
		atOnce(t, byTheClock(10, time.Second), 50, 10)
	})

	t.Run("flaw: Redis keeps a key for each second", func(t *testing.T) {
		o := newOracle(t)
		trace := requests(900*time.Millisecond, 1100*time.Millisecond)
		play(trace, perSecond(o, mended))
		if n := resultOf(t, o.redis.DBSize(t.Context())); n != 2 {
			t.Errorf("the article keeps %d keys for one user, want 2", n)
		}
		server := redistest.Start(t)
		open := func(t *testing.T) limiterstest.TimedStore { return openRedis(t, server) }
		play(trace, weir(t, open, byTheClock(10, time.Second)))
		if n := resultOf(t, server.Client(t).DBSize(t.Context())); n != 1 {
			t.Errorf("Weir keeps %d keys for one user, want 1", n)
		}
	})
}

func TestCounterWithExpiryMatchesFixedWindow(t *testing.T) {
	t.Parallel()
	tenASecond(t, oneCounter, firstHit)

	t.Run("flaw: a client that dies between INCR and EXPIRE locks its user out forever", func(t *testing.T) {
		o := newOracle(t)
		dieBeforeExpire(t, o.redis.Options().Addr, "laoqian")
		if ttl := resultOf(t, o.redis.PTTL(t.Context(), "laoqian")); ttl != -1 {
			t.Errorf("the article: PTTL %d, want -1, no end", ttl)
		}
		allow := oneCounter(o, mended)
		want(t, "the article, a second apart", play(everySecond(12), allow), "yyyyyyyyynnn")
		want(t, "the article, later", play(requests(time.Hour, 1000*time.Hour), allow), "nn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			want(t, "Weir", play(everySecond(12), weir(t, open, firstHit(10, time.Second))), "yyyyyyyyyyyy")
		})
	})

	t.Run("the article's script leaves no key without an expiry", func(t *testing.T) {
		o := newOracle(t)
		const script = `local current
current = redis.call("incr",KEYS[1])
if tonumber(current) == 1 then
redis.call("expire",KEYS[1],1)
end`
		oracle := play(seconds, func(y request) bool {
			o.moveTo(y.at)
			if mended(current(o, y.key)) {
				return false
			}
			o.do(y.key, command{"EVAL", script, 1, y.key})
			return true
		})
		parity(t, firstHit(10, time.Second), seconds, oracle)
	})
}

func everySecond(n int) []request {
	var at []time.Duration
	for i := range n {
		at = append(at, time.Duration(i)*time.Second)
	}
	return requests(at...)
}

func TestListLengthMatchesFixedWindow(t *testing.T) {
	t.Parallel()
	tenASecond(t, list, firstHit)

	t.Run("flaw: two callers both create the list, and one more than the limit passes", func(t *testing.T) {
		// The limit is one, so creating the list also fills it.
		o := newOracle(t)
		for range 2 {
			if n := o.int("laoqian", command{"LLEN", "laoqian"}); n >= 1 {
				t.Fatalf("LLEN says %d", n)
			}
		}
		one, _ := o.lives("laoqian")
		two, _ := o.lives("laoqian")
		listAdd(o, "laoqian", one)
		listAdd(o, "laoqian", two)
		if n := o.int("laoqian", command{"LLEN", "laoqian"}); n != 2 {
			t.Errorf("the article admitted %d, want 2", n)
		}
		atOnce(t, firstHit(1, time.Second), 50, 1)
	})

	t.Run("flaw: the second creator moves the window's end", func(t *testing.T) {
		o := newOracle(t)
		one, _ := o.lives("laoqian")
		two, _ := o.lives("laoqian")
		listAdd(o, "laoqian", one)
		o.moveTo(900 * time.Millisecond)
		listAdd(o, "laoqian", two)
		o.moveTo(time.Second)
		if exists, _ := o.lives("laoqian"); !exists {
			t.Error("the article: the list has ended a second after it was created, want it alive until 1.9 s")
		}
		parity(t, firstHit(2, time.Second), requests(0, 900*time.Millisecond, 900*time.Millisecond, time.Second),
			[]bool{true, true, false, true})
	})

	t.Run("flaw: two callers both see nine", func(t *testing.T) {
		o := newOracle(t)
		play(requests(times(9, 0)...), list(o, mended))
		for range 2 {
			if n := o.int("laoqian", command{"LLEN", "laoqian"}); mended(n) {
				t.Fatalf("LLEN says %d", n)
			}
		}
		listAdd(o, "laoqian", true)
		listAdd(o, "laoqian", true)
		if n := o.int("laoqian", command{"LLEN", "laoqian"}); n != 11 {
			t.Errorf("the article admitted %d, want 11", n)
		}
		atOnce(t, firstHit(10, time.Second), 50, 10)
	})

	t.Run("flaw: a list that expires before RPUSHX counts nothing", func(t *testing.T) {
		o := newOracle(t)
		play(requests(0), list(o, mended))
		seen, _ := o.lives("laoqian")
		o.moveTo(time.Second)
		listAdd(o, "laoqian", seen) // admitted, but not in the list
		more := requests(times(11, time.Second)...)
		want(t, "the article, with one admitted already", play(more, list(o, mended)), "yyyyyyyyyyn")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			trace := requests(append(times(1, 0), times(12, time.Second)...)...)
			want(t, "Weir", play(trace, weir(t, open, firstHit(10, time.Second))), "yyyyyyyyyyynn")
		})
	})
}
