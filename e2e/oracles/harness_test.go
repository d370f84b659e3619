package oracles

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// start is the start of every trace: a whole minute, so that clock windows begin with it.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A request is a line of a trace: this long after start, key requests n.
type request struct {
	at  time.Duration
	key string
	n   int64
}

func (r request) millis() int64    { return start.Add(r.at).UnixMilli() }
func (r request) seconds() float64 { return float64(start.Add(r.at).UnixMicro()) / 1e6 }

// requests returns a trace of one user who requests 1 at each time.
func requests(at ...time.Duration) []request {
	trace := make([]request, len(at))
	for i := range at {
		trace[i] = request{at[i], "laoqian", 1}
	}
	return trace
}

// times returns n times the same time.
func times(n int, at time.Duration) []time.Duration {
	return slices.Repeat([]time.Duration{at}, n)
}

// traffic returns a random trace of three users. The ticks between requests are drawn from busy,
// and sometimes from idle. Times on a coarse grid often hit the edges of windows.
func traffic(seed uint64, tick time.Duration, busy, idle []int) []request {
	r := rand.New(rand.NewPCG(seed, 0))
	users := []string{"laoqian", "liziba", "peter"}
	trace := make([]request, 1000)
	var at time.Duration
	for i := range trace {
		gaps := busy
		if r.IntN(40) == 0 {
			gaps = idle
		}
		at += time.Duration(gaps[r.IntN(len(gaps))]) * tick
		trace[i] = request{at, users[r.IntN(len(users))], 1}
	}
	return trace
}

// A limiter reports if a request passes. Requests come in order of time.
type limiter func(request) bool

func play(trace []request, l limiter) []bool {
	verdicts := make([]bool, len(trace))
	for i, y := range trace {
		verdicts[i] = l(y)
	}
	return verdicts
}

// wantSameVerdicts checks that two limiters agree on every request, and that the trace has many
// verdicts of both kinds.
func wantSameVerdicts(t *testing.T, trace []request, oracle, weir []bool) {
	t.Helper()
	// A fiftieth of the trace for each verdict, and at least one request, keeps a limiter that
	// always gives one verdict from passing.
	if yes, few := admitted(oracle), len(trace)/50+1; yes < few || yes > len(trace)-few {
		t.Fatalf("the trace proves little: the oracle admitted %d of %d", yes, len(trace))
	}
	differ := 0
	for i := range trace {
		if oracle[i] != weir[i] {
			if differ == 0 {
				t.Errorf("request %d, %+v: the oracle says %v, Weir %v", i, trace[i], oracle[i], weir[i])
			}
			differ++
		}
	}
	if differ > 0 {
		t.Errorf("%d verdicts of %d differ", differ, len(trace))
	}
}

// want checks the verdicts: one letter each, y or n.
func want(t *testing.T, who string, verdicts []bool, written string) {
	t.Helper()
	got := make([]byte, len(verdicts))
	for i, ok := range verdicts {
		got[i] = 'n'
		if ok {
			got[i] = 'y'
		}
	}
	if string(got) != written {
		t.Errorf("%s: %s, want %s", who, got, written)
	}
}

func admitted(verdicts []bool) int {
	n := 0
	for _, ok := range verdicts {
		if ok {
			n++
		}
	}
	return n
}

// differences counts the requests that only one limiter admits.
func differences(oracle, weir []bool) (onlyOracle, onlyWeir int) {
	for i := range oracle {
		switch {
		case oracle[i] && !weir[i]:
			onlyOracle++
		case weir[i] && !oracle[i]:
			onlyWeir++
		}
	}
	return onlyOracle, onlyWeir
}

// most returns the largest number of requests that one user had admitted within any (t - window,
// t].
func most(trace []request, verdicts []bool, window time.Duration) int {
	passed := map[string][]time.Duration{}
	worst := 0
	for i, y := range trace {
		if !verdicts[i] {
			continue
		}
		log := append(passed[y.key], y.at)
		for log[0] <= y.at-window {
			log = log[1:]
		}
		passed[y.key] = log
		worst = max(worst, len(log))
	}
	return worst
}

// Weir's side.

func newLimit(t *testing.T, spec limiters.Spec) *limiters.Limit {
	t.Helper()
	limit, err := limiters.NewLimit(spec)
	must.Succeed(t, err)
	return limit
}

func take(t *testing.T, store limiterstest.TimedStore, limit *limiters.Limit, y request) limiters.Verdict {
	t.Helper()
	var out [1]limiters.Verdict
	groups := []limiters.Group{{{Key: y.key, Limit: limit, Hits: y.n}}}
	if err := errors.Join(store.TakeAt(t.Context(), start.Add(y.at), groups, out[:]), out[0].Err); err != nil {
		t.Fatalf("%+v: %v", y, err)
	}
	return out[0]
}

// weir returns Weir as a limiter with empty state.
func weir(t *testing.T, open func(*testing.T) limiterstest.TimedStore, spec limiters.Spec) limiter {
	store, limit := open(t), newLimit(t, spec)
	return func(y request) bool {
		t.Helper()
		return take(t, store, limit, y).Allowed
	}
}

// onEach runs a test on every store of Weir.
func onEach(t *testing.T, test func(t *testing.T, open func(*testing.T) limiterstest.TimedStore)) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) { test(t, s.open) })
	}
}

// parity checks that Weir gives the oracle's verdicts on every store.
func parity(t *testing.T, spec limiters.Spec, trace []request, oracle []bool) {
	onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
		wantSameVerdicts(t, trace, oracle, play(trace, weir(t, open, spec)))
	})
}

// atOnce sends n requests from as many callers at the same moment and checks how many are admitted.
// It is Weir's side of an oracle with callers interleaved by hand: nothing can come between the
// steps of one Take.
func atOnce(t *testing.T, spec limiters.Spec, n, want int) {
	onEach(t, func(t *testing.T, open func(*testing.T) limiterstest.TimedStore) {
		store, limit := open(t), newLimit(t, spec)
		var passed atomic.Int64
		var callers sync.WaitGroup
		for range n {
			callers.Go(func() {
				var out [1]limiters.Verdict
				groups := []limiters.Group{{{Key: "laoqian", Limit: limit, Hits: 1}}}
				if err := errors.Join(store.TakeAt(t.Context(), start, groups, out[:]), out[0].Err); err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					passed.Add(1)
				}
			})
		}
		callers.Wait()
		if got := passed.Load(); got != int64(want) {
			t.Errorf("Weir admitted %d of %d callers at once, want %d", got, n, want)
		}
	})
}

// The oracles' side.

// An oracle is a real Redis that runs an article's commands at the times of a trace.
//
// The articles let Redis' TTLs decide. To move time without waiting, the harness takes over each
// TTL as soon as a command sets it: in the same transaction it sends PTTL and PERSIST. A
// transaction runs at one instant, so PTTL returns the whole TTL. The harness keeps the TTL in the
// trace's time and deletes the key when that time comes. No command of the articles reads a TTL, so
// the commands run unchanged. (In Redis a key lives through the millisecond in which it expires.
// Here it has expired then.)
type oracle struct {
	t     *testing.T
	redis *redis.Client
	now   time.Duration
	ends  map[string]time.Duration
}

type command []any

func newOracle(t *testing.T) *oracle {
	return &oracle{t: t, redis: redistest.Start(t).Client(t), ends: map[string]time.Duration{}}
}

// moveTo sets the oracle's time.
func (o *oracle) moveTo(at time.Duration) {
	o.t.Helper()
	o.now = at
	for key, end := range o.ends {
		if end <= at {
			must.Succeed(o.t, o.redis.Del(o.t.Context(), key).Err())
			delete(o.ends, key)
		}
	}
}

// do runs one step of an article: a command, or the commands of a MULTI. All use key.
func (o *oracle) do(key string, commands ...command) []any {
	o.t.Helper()
	var ttl *redis.DurationCmd
	replies, err := o.redis.TxPipelined(o.t.Context(), func(p redis.Pipeliner) error {
		for _, c := range commands {
			p.Do(o.t.Context(), c...)
		}
		ttl = p.PTTL(o.t.Context(), key)
		p.Persist(o.t.Context(), key)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		o.t.Fatalf("%v: %v", commands, err)
	}
	switch left := ttl.Val(); {
	case left > 0:
		// The articles' TTLs are whole seconds; PTTL may be one millisecond less.
		o.ends[key] = o.now + (left + time.Second - 1).Truncate(time.Second)
	case left == -2:
		delete(o.ends, key)
	}
	vals := make([]any, len(commands))
	for i := range vals {
		vals[i] = replies[i].(*redis.Cmd).Val()
	}
	return vals
}

func (o *oracle) int(key string, c command) int64 {
	o.t.Helper()
	n, ok := o.do(key, c)[0].(int64)
	if !ok {
		o.t.Fatalf("%v: not an integer", c)
	}
	return n
}

// lives reports if key exists, and if it has an expiry.
func (o *oracle) lives(key string) (exists, ends bool) {
	o.t.Helper()
	exists = o.int(key, command{"EXISTS", key}) == 1
	_, ends = o.ends[key]
	return exists, ends
}

func resultOf[T any](t *testing.T, cmd interface {
	Result() (T, error)
}) T {
	t.Helper()
	v, err := cmd.Result()
	must.Succeed(t, err)
	return v
}
