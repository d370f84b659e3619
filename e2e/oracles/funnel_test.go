package oracles

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// pyFunnel is the class Funnel in Python. Its rate is per second.
type pyFunnel struct {
	capacity, leakingRate float64
	leftQuota, leakingTs  float64
	continuous            bool // mended: fractions of a unit leak too
}

func newPyFunnel(capacity, leakingRate, now float64) *pyFunnel {
	return &pyFunnel{capacity: capacity, leakingRate: leakingRate, leftQuota: capacity, leakingTs: now}
}

func (f *pyFunnel) makeSpace(now float64) {
	deltaTs := now - f.leakingTs
	deltaQuota := deltaTs * f.leakingRate
	if deltaQuota < 1 && !f.continuous {
		return
	}
	f.leftQuota += deltaQuota
	f.leakingTs = now
	if f.leftQuota > f.capacity {
		f.leftQuota = f.capacity
	}
}

func (f *pyFunnel) watering(now, quota float64) bool {
	f.makeSpace(now)
	if f.leftQuota >= quota {
		f.leftQuota -= quota
		return true
	}
	return false
}

func python(capacity, leakingRate float64, continuous bool) limiter {
	funnels := map[string]*pyFunnel{}
	return func(y request) bool {
		f := funnels[y.key]
		if f == nil {
			f = newPyFunnel(capacity, leakingRate, y.seconds())
			f.continuous = continuous
			funnels[y.key] = f
		}
		return f.watering(y.seconds(), float64(y.n))
	}
}

// javaFunnel is the class Funnel in Java. Its rate is per millisecond, although the article says
// otherwise.
type javaFunnel struct {
	capacity    int32
	leakingRate float32
	leftQuota   int32
	leakingTs   int64
	guarded     int // how often the overflow guard acted
}

// toInt is Java's (int): a value that is too large becomes the largest int, never a negative one
// (JLS 5.1.3).
func toInt(f float32) int32 {
	switch {
	case f != f:
		return 0
	case f >= math.MaxInt32:
		return math.MaxInt32
	case f <= math.MinInt32:
		return math.MinInt32
	}
	return int32(f)
}

func (f *javaFunnel) makeSpace(nowTs int64) {
	deltaTs := nowTs - f.leakingTs
	deltaQuota := toInt(float32(deltaTs) * f.leakingRate)
	if deltaQuota < 0 {
		f.guarded++
		f.leftQuota = f.capacity
		f.leakingTs = nowTs
		return
	}
	if deltaQuota < 1 {
		return
	}
	f.leftQuota += deltaQuota
	f.leakingTs = nowTs
	if f.leftQuota > f.capacity {
		f.leftQuota = f.capacity
	}
}

func (f *javaFunnel) watering(nowTs int64, quota int32) bool {
	f.makeSpace(nowTs)
	if f.leftQuota >= quota {
		f.leftQuota -= quota
		return true
	}
	return false
}

type javaFunnels struct {
	capacity    int32
	leakingRate float32
	funnels     map[string]*javaFunnel
}

func java(capacity int32, leakingRate float32) *javaFunnels {
	return &javaFunnels{capacity, leakingRate, map[string]*javaFunnel{}}
}

func (j *javaFunnels) allow(y request) bool {
	f := j.funnels[y.key]
	if f == nil {
		f = &javaFunnel{capacity: j.capacity, leakingRate: j.leakingRate, leftQuota: j.capacity, leakingTs: y.millis()}
		j.funnels[y.key] = f
	}
	return f.watering(y.millis(), int32(y.n))
}

// hash is the class Funnel in Python with its fields in a Redis hash.
func hash(o *oracle, capacity, leakingRate float64, continuous bool) limiter {
	return func(y request) bool {
		o.moveTo(y.at)
		f := hashRead(o, y, capacity, leakingRate)
		f.continuous = continuous
		ok := f.watering(y.seconds(), float64(y.n))
		hashWrite(o, y.key, f)
		return ok
	}
}

func hashRead(o *oracle, y request, capacity, leakingRate float64) *pyFunnel {
	fields := o.do(y.key, command{"HMGET", y.key, "left_quota", "leaking_ts"})[0].([]any)
	f := newPyFunnel(capacity, leakingRate, y.seconds())
	for i, to := range []*float64{&f.leftQuota, &f.leakingTs} {
		s, ok := fields[i].(string)
		if !ok {
			continue
		}
		var err error
		if *to, err = strconv.ParseFloat(s, 64); err != nil {
			o.t.Fatal(err)
		}
	}
	return f
}

func hashWrite(o *oracle, key string, f *pyFunnel) {
	o.do(key, command{"HSET", key, "capacity", f.capacity, "leaking_rate", f.leakingRate,
		"left_quota", f.leftQuota, "leaking_ts", f.leakingTs})
}

// withHits returns a trace with 1 to most units for each request.
func withHits(seed uint64, trace []request, most int64) []request {
	r := rand.New(rand.NewPCG(seed, 1))
	trace = slices.Clone(trace)
	for i := range trace {
		trace[i].n = 1 + r.Int64N(most)
	}
	return trace
}

// halfASecond is the articles' leaking_rate 0.5: one unit in two seconds.
func halfASecond(capacity int64) limiters.Spec {
	return limiters.Spec{Algorithm: "funnel", Max: 1, Window: 2 * time.Second, Params: limiters.Params{Capacity: capacity}}
}

// onEighths uses a grid of 1/8 s, on which the class's floating point is exact, so no difference
// comes from rounding.
var (
	onEighths = withHits(5, traffic(5, 125*time.Millisecond, []int{0, 0, 1, 2, 3, 5, 8, 15, 16, 17}, []int{40}), 4)
	onUnits   = withHits(6, traffic(6, 2*time.Second, []int{0, 0, 0, 1, 1, 2}, []int{5}), 4)
)

func TestFunnelClassMatchesFunnel(t *testing.T) {
	t.Parallel()
	t.Run("the article's example: 15 of 20 requests at once pass", func(t *testing.T) {
		trace := requests(times(20, 0)...)
		oracle := play(trace, python(15, 0.5, false))
		want(t, "the article", oracle, "yyyyyyyyyyyyyyynnnnn")
		parity(t, halfASecond(15), trace, oracle)
	})

	t.Run("the other article's example: a request a second, capacity 3", func(t *testing.T) {
		trace := everySecond(20)
		oracle := play(trace, python(3, 0.5, false))
		want(t, "the article", oracle, "yyyyynynynynynynynyn")
		parity(t, halfASecond(3), trace, oracle)
	})

	t.Run("Python: same verdicts where whole units leak", func(t *testing.T) {
		parity(t, halfASecond(3), onUnits, play(onUnits, python(3, 0.5, false)))
	})

	t.Run("Java: same verdicts where whole units leak", func(t *testing.T) {
		// One unit in 512 ms: a rate that float32 represents exactly.
		trace := withHits(7, traffic(7, 512*time.Millisecond, []int{0, 0, 0, 1, 1, 2}, []int{5}), 4)
		spec := limiters.Spec{Algorithm: "funnel", Max: 1, Window: 512 * time.Millisecond, Params: limiters.Params{Capacity: 3}}
		parity(t, spec, trace, play(trace, java(3, 1.0/512).allow))
	})

	t.Run("flaw: Python leaks nothing until a whole unit would leak", func(t *testing.T) {
		// Emptied at 0 s, it has leaked 1.5 units at 3 s and 2 at 4 s, so two fit in all.
		late := requests(0, 0, 0, 3*time.Second, 4*time.Second)
		want(t, "the article", play(late, python(3, 0.5, false)), "yyyyn")
		// Empty and unused from 2 s and filled at 3.5 s, it leaks at 4 s for the time in which
		// there was nothing to leak.
		early := []request{
			{0, "liziba", 1}, {2 * time.Second, "liziba", 4},
			{3500 * time.Millisecond, "liziba", 3}, {4 * time.Second, "liziba", 1},
		}
		want(t, "the article", play(early, python(3, 0.5, false)), "ynyy")
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			allow := weir(t, open, halfASecond(3))
			want(t, "Weir", play(late, allow), "yyyyy")
			want(t, "Weir", play(early, allow), "ynyn")
		})
	})

	t.Run("whole units are the only difference", func(t *testing.T) {
		written := play(onEighths, python(3, 0.5, false))
		oracle := play(onEighths, python(3, 0.5, true))
		if early, late := differences(written, oracle); early == 0 || late == 0 {
			t.Errorf("the article passes %d requests early and %d late: the trace proves nothing", early, late)
		}
		parity(t, halfASecond(3), onEighths, oracle)
	})

	t.Run("flaw: Java discards the rest of a unit", func(t *testing.T) {
		// One request each 3/4 of a unit: Java admits one in two, but its rate should admit three
		// in four.
		var at []time.Duration
		for i := range 1001 {
			at = append(at, time.Duration(i)*384*time.Millisecond)
		}
		trace := requests(at...)
		if got := admitted(play(trace, java(2, 1.0/512).allow)); got != 502 {
			t.Errorf("the article admitted %d of 1001, want 502", got)
		}
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			spec := limiters.Spec{Algorithm: "funnel", Max: 1, Window: 512 * time.Millisecond, Params: limiters.Params{Capacity: 2}}
			if got := admitted(play(trace, weir(t, open, spec))); got != 752 {
				t.Errorf("Weir admitted %d of 1001, want 752", got)
			}
		})
	})

	t.Run("flaw: Java's guard against overflow never acts, and users who were idle for long are locked out", func(t *testing.T) {
		const day = 24 * time.Hour
		trace := requests(0, 25*day, 25*day+time.Hour, 26*day)
		j := java(3, 1)
		want(t, "the article", play(trace, j.allow), "ynnn")
		f := j.funnels["laoqian"]
		if f.guarded != 0 || f.leftQuota >= 0 {
			t.Errorf("the article: the guard acted %d times, %d left; want never, and less than nothing", f.guarded, f.leftQuota)
		}
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			spec := limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Millisecond, Params: limiters.Params{Capacity: 3}}
			want(t, "Weir", play(trace, weir(t, open, spec)), "yyyy")
		})
	})

	t.Run("flaw: it is not safe between threads", func(t *testing.T) {
		atOnce(t, halfASecond(15), 100, 15)
	})
}

func TestFunnelInRedisHashMatchesFunnel(t *testing.T) {
	t.Parallel()
	t.Run("every verdict equals the class in Python", func(t *testing.T) {
		wantSameVerdicts(t, onEighths, play(onEighths, python(3, 0.5, false)), play(onEighths, hash(newOracle(t), 3, 0.5, false)))
	})

	t.Run("same verdicts where whole units leak", func(t *testing.T) {
		parity(t, halfASecond(3), onUnits, play(onUnits, hash(newOracle(t), 3, 0.5, false)))
	})

	t.Run("whole units are the only difference", func(t *testing.T) {
		parity(t, halfASecond(3), onEighths, play(onEighths, hash(newOracle(t), 3, 0.5, true)))
	})

	t.Run("flaw: two callers both take the last unit", func(t *testing.T) {
		o := newOracle(t)
		play(requests(0, 0), hash(o, 3, 0.5, false))
		last := request{0, "laoqian", 1}
		one, two := hashRead(o, last, 3, 0.5), hashRead(o, last, 3, 0.5)
		oneOK, twoOK := one.watering(last.seconds(), 1), two.watering(last.seconds(), 1)
		hashWrite(o, last.key, one)
		hashWrite(o, last.key, two)
		want(t, "the article", []bool{oneOK, twoOK}, "yy")
		if f := hashRead(o, last, 3, 0.5); f.leftQuota != 0 {
			t.Errorf("the article: %v left, want 0: it does not even know", f.leftQuota)
		}
		atOnce(t, halfASecond(3), 50, 3)
	})
}

// bucket is the leaky bucket that the article describes: requests join a queue that is served at a
// constant rate, and requests that find it full overflow.
func bucket(capacity int, interval time.Duration) limiter {
	leave := map[string][]time.Duration{}
	return func(y request) bool {
		queue := leave[y.key]
		for len(queue) > 0 && queue[0] <= y.at {
			queue = queue[1:]
		}
		served := y.at
		if n := len(queue); n > 0 {
			served = queue[n-1]
		}
		ok := len(queue) < capacity
		if ok {
			queue = append(queue, served+interval)
		}
		leave[y.key] = queue
		return ok
	}
}

func TestLeakyBucketMatchesFunnel(t *testing.T) {
	t.Parallel()
	thirtyAMinute := func(capacity int64) limiters.Spec {
		return limiters.Spec{Algorithm: "funnel", Max: 30, Window: time.Minute, Params: limiters.Params{Capacity: capacity}}
	}
	trace := traffic(11, 125*time.Millisecond, []int{0, 0, 1, 2, 3, 5, 8}, []int{15, 16, 17, 200})

	for _, capacity := range []int64{1, 2, 15} {
		t.Run("same verdicts on every request, capacity "+strconv.FormatInt(capacity, 10), func(t *testing.T) {
			parity(t, thirtyAMinute(capacity), trace, play(trace, bucket(int(capacity), 2*time.Second)))
		})
	}

	t.Run("capacity 1 spaces requests evenly", func(t *testing.T) {
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			store, limit := open(t), newLimit(t, thirtyAMinute(1))
			// The caller requests ten times a second and obeys retry delays.
			for i := range 100 {
				at := time.Duration(i) * 2 * time.Second
				if v := take(t, store, limit, request{at, "laoqian", 1}); !v.Allowed {
					t.Fatalf("at %v: %+v, want it allowed", at, v)
				}
				early := at + 100*time.Millisecond
				v := take(t, store, limit, request{early, "laoqian", 1})
				if v.Allowed || early+v.RetryAfter != at+2*time.Second {
					t.Fatalf("at %v: %+v, want to be told to come at %v", early, v, at+2*time.Second)
				}
			}
		})
	})

	t.Run("capacity 1 never passes two within an interval", func(t *testing.T) {
		onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
			if got := most(trace, play(trace, weir(t, open, thirtyAMinute(1))), 2*time.Second); got != 1 {
				t.Errorf("Weir admitted %d within an interval, want 1", got)
			}
		})
	})
}
