package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// openBreaker makes as many failing calls as open the breaker.
func openBreaker(t *testing.T, s *testStore) {
	t.Helper()
	for i := range failuresToOpen {
		_, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		if err == nil || errors.Is(err, ErrBreakerOpen) {
			t.Fatalf("call %d of a Redis that does not answer: %v", i, err)
		}
	}
}

func awaitRecovery(t *testing.T, s *testStore) {
	t.Helper()
	redistest.Await(t, "the next call to Redis", func(context.Context) error {
		_, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		return err
	})
}

// awaitRejection waits until a Take is rejected, and returns its error.
func awaitRejection(t *testing.T, s *testStore) (rejected error) {
	t.Helper()
	must.Until(t, "the breaker opens", func() bool {
		_, rejected = take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		return errors.Is(rejected, ErrBreakerOpen)
	})
	return rejected
}

func TestBreakerOpensForAStoppedRedis(t *testing.T) {
	server := redistest.Start(t)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: 50 * time.Millisecond}, Options{})
	defer s.Close()
	awaitRecovery(t, s) // and is connected
	must.Succeed(t, server.Signal(syscall.SIGSTOP))
	openBreaker(t, s)
	err := awaitRejection(t, s)
	// The error names no failed call, because none is made.
	if want := "redisstore: take at " + server.Addr + ": " + ErrBreakerOpen.Error(); err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if s.Stats().BreakerRejected == 0 {
		t.Error("no operation was counted as rejected")
	}
	must.Succeed(t, server.Signal(syscall.SIGCONT))
	awaitRecovery(t, s)
}

// A Redis at its maxclients replies ERR to a new connection and closes it. The client library takes
// this ERR for the reply to HELLO. So the call fails because of the closed connection, and the
// breaker does not mistake the ERR for the reply to one call.
func TestBreakerOpensForARedisAtItsMaxClients(t *testing.T) {
	server := redistest.Start(t)
	must.Succeed(t, server.Client(t).ConfigSet(t.Context(), "maxclients", "1").Err())
	s := open(t, server)
	openBreaker(t, s)
	_ = awaitRejection(t, s)
}

// A breakerFixture is a queue with a virtual clock and a fake call.
type breakerFixture struct {
	queue *queue
	call  func() error
}

func newBreakerFixture() *breakerFixture {
	f := &breakerFixture{queue: newQueue(testConfig(time.Second, 10, 10), nil)}
	f.queue.call = func(context.Context, time.Time, []limiters.Group, []limiters.Verdict) error {
		return f.call()
	}
	return f
}

// take takes one operation. The call of the operation, if there is one, has the result of call.
func (f *breakerFixture) take(t *testing.T, call func() error) error {
	t.Helper()
	f.call = call
	return f.queue.Take(t.Context(), []limiters.Group{{{}}}, make([]limiters.Verdict, 1))
}

// open makes as many failing calls as open the breaker.
func (f *breakerFixture) open(t *testing.T) {
	t.Helper()
	for i := range failuresToOpen {
		if err := f.take(t, func() error { return errNoRoute }); !errors.Is(err, errNoRoute) {
			t.Fatalf("call %d of a Redis that fails: %v", i, err)
		}
	}
}

var errNoRoute = errors.New("no route")

// For openDuration, an open breaker rejects operations without a call.
func TestOpenBreakerMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakerFixture()
		f.open(t)
		const many = 100
		for i := range many {
			time.Sleep((openDuration - 1) / many)
			err := f.take(t, func() error {
				t.Errorf("operation %d: a call was made", i)
				return nil
			})
			if !errors.Is(err, ErrBreakerOpen) {
				t.Errorf("operation %d: %v, want ErrBreakerOpen", i, err)
			}
		}
		if got := f.queue.stats.breakerRejected.Load(); got != many {
			t.Errorf("%d operations were counted as rejected, want %d", got, many)
		}
	})
}

// When the breaker has been open for openDuration, one call is tried, and other Takes are rejected
// until it ends. A call that succeeds closes the breaker.
func TestOpenBreakerTriesOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBreakerFixture()
		f.open(t)
		for _, result := range []error{errNoRoute, context.Canceled, nil} {
			time.Sleep(openDuration)
			err := f.take(t, func() error {
				if err := f.take(t, nil); !errors.Is(err, ErrBreakerOpen) {
					t.Errorf("during the call that is tried: %v, want ErrBreakerOpen", err)
				}
				return result
			})
			if !errors.Is(err, result) {
				t.Errorf("the call that is tried: %v, want %v", err, result)
			}
		}
		f.open(t) // it opens again only after as many failures
	})
}

// When the breaker opens, all waiters are rejected immediately and have charged nothing.
func TestOpeningBreakerRejectsWaiters(t *testing.T) {
	q := newQueue(testConfig(time.Hour, 10, 10), nil)
	calling, goOn := make(chan struct{}), make(chan struct{})
	q.call = func(context.Context, time.Time, []limiters.Group, []limiters.Verdict) error {
		calling <- struct{}{}
		<-goOn
		return errNoRoute
	}
	for range failuresToOpen - 2 {
		go func() { <-calling; goOn <- struct{}{} }()
		_ = q.Take(t.Context(), []limiters.Group{{{}}}, make([]limiters.Verdict, 1))
	}
	var takes sync.WaitGroup
	var failed [4]error
	attempt := func(i int) {
		takes.Go(func() {
			failed[i] = q.Take(t.Context(), []limiters.Group{{{}}}, make([]limiters.Verdict, 1))
		})
	}
	waiting := func(n int) {
		must.Until(t, "Takes wait", func() bool { return q.countWaiting() == n })
	}
	attempt(0)
	<-calling
	attempt(1) // goes in the next call, which is the last that is tried
	waiting(1)
	goOn <- struct{}{}
	<-calling
	attempt(2)
	attempt(3)
	waiting(2)
	goOn <- struct{}{}
	ended := make(chan struct{})
	go func() { takes.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("the waiters wait until the end of their time")
	}
	q.running.Wait()
	for i, err := range failed {
		if rejected := errors.Is(err, ErrBreakerOpen); rejected != (i >= 2) || rejected != limiters.IsUncharged(err) {
			t.Errorf("take %d: %v", i, err)
		}
	}
	if !q.idle() || q.countWaiting() != 0 || q.stats.breakerRejected.Load() != 2 {
		t.Errorf("idle %v, %d wait, %d rejected", q.idle(), q.countWaiting(), q.stats.breakerRejected.Load())
	}
}

func TestBreakerCountsErrorsOfTheNode(t *testing.T) {
	const timeout = 15 * time.Millisecond
	wire := func(text string) error { return fmt.Errorf("take: %w", redisError(text)) }
	for _, c := range []struct {
		err   error
		fails bool
	}{
		{context.DeadlineExceeded, true},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{context.Canceled, false},
		{wire("LOADING Redis is loading the dataset in memory"), true},
		{wire("READONLY You can't write against a read only replica."), true},
		{wire("CLUSTERDOWN The cluster is down"), true},
		{wire("ERR value is not an integer"), false},
		{fmt.Errorf("%w: of ours", limiters.ErrPanic), false},
	} {
		b := breaker{timeout: timeout}
		if b.record(c.err); b.failures > 0 != c.fails {
			t.Errorf("%v: %d failures, want one: %v", c.err, b.failures, c.fails)
		}
	}
}

// A late reply is a reply: clients with deadlines shorter than the round trip do not open the
// breaker for others. Timeouts open it, and those within one timeout of each other count once,
// because they may have one cause.
func TestBreakerCountsTimeoutsThatAreATimeoutApart(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		what  string
		err   error
		apart time.Duration
		opens bool
	}{
		{"timeouts", context.DeadlineExceeded, timeout, true},
		{"timeouts within one timeout", context.DeadlineExceeded, timeout / 1000, false},
		{"refused connections within one timeout", syscall.ECONNREFUSED, timeout / 1000, true},
		{"late replies", errLate, timeout, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker{timeout: timeout}
			for range 100 {
				b.record(c.err)
				time.Sleep(c.apart)
			}
			if b.open() != c.opens {
				t.Errorf("100 %s, %v apart: the breaker is open: %v, want %v", c.what, c.apart, b.open(), c.opens)
			}
		})
	}
}

// A reply ends a series of failures and closes the breaker, even if it is late or an error about
// one call.
func TestReplyEndsTheFailuresOfTheBreaker(t *testing.T) {
	const timeout = time.Second
	for _, reply := range []error{nil, errLate, redisError("ERR of this call"), redisError("TRYAGAIN of this call")} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker{timeout: timeout}
			fail := func(n int) {
				for range n {
					time.Sleep(timeout)
					b.record(context.DeadlineExceeded)
				}
			}
			fail(failuresToOpen - 1)
			b.record(reply)
			if fail(1); b.open() {
				t.Errorf("reply %v: one failure after it opens the breaker", reply)
			}
			fail(failuresToOpen)
			time.Sleep(openDuration)
			if b.record(reply); b.rejects(true) {
				t.Errorf("reply %v: the breaker stays open after it", reply)
			}
		})
	}
}

// Under load, Takes wait for most of their timeout before their call begins. The call has a whole
// timeout of its own, so its timeout must count as a failure.
func TestBreakerOpensUnderLoad(t *testing.T) {
	const timeout = 60 * time.Millisecond
	q := newQueue(testConfig(timeout, 5, 10_000), nil)
	q.call = func(ctx context.Context, _ time.Time, _ []limiters.Group, out []limiters.Verdict) error {
		q.stats.countCall(len(out))
		<-ctx.Done()
		return ctx.Err()
	}
	var takes sync.WaitGroup
	defer takes.Wait()
	begun := time.Now()
	for q.stats.breakerRejected.Load() == 0 {
		if calls := q.stats.calls.Load(); calls > 10*failuresToOpen {
			t.Fatalf("after %d failed calls no Take was rejected", calls)
		}
		for range 4 {
			takes.Go(func() {
				_ = q.Take(t.Context(), []limiters.Group{{{}}}, make([]limiters.Verdict, 1))
			})
		}
		time.Sleep(time.Millisecond)
	}
	// A stall of Redis that is shorter than a timeout must not open it. A busy machine only adds
	// time.
	if took, calls := time.Since(begun), q.stats.calls.Load(); took < 2*timeout || calls < failuresToOpen {
		t.Errorf("the breaker opened after %v and %d failed calls, want %d", took, calls, failuresToOpen)
	}
}

// An outcome is an end of a fake call to Redis.
type outcome struct {
	weight  int              // the outcome is chosen with a probability in proportion to its weight
	charged func(i int) bool // whether the call charges its operation i
	end     func(ctx context.Context) error
}

func chargesAll(int) bool    { return true }
func chargesNone(int) bool   { return false }
func chargesEven(i int) bool { return i%2 == 0 }

func succeeds(context.Context) error     { return nil }
func panics(context.Context) error       { panic("of a test") }
func failsOneCall(context.Context) error { return redisError("ERR of this call") }
func losesRoute(context.Context) error   { return errNoRoute }
func timesOut(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

var (
	wellOutcomes  = []outcome{{1, chargesAll, succeeds}}
	mixedOutcomes = []outcome{
		{3, chargesAll, succeeds},
		{2, chargesAll, timesOut},
		{1, chargesAll, panics},
		{1, chargesAll, failsOneCall},
		{1, chargesNone, losesRoute},
	}
	mostlyFailures = append(slices.Clone(mixedOutcomes), outcome{16, chargesEven, losesRoute})
)

// A randomRedis is a fake Redis whose calls have random outcomes.
type randomRedis struct {
	mu       sync.Mutex
	rnd      *rand.Rand
	outcomes []outcome
	charged  map[string]int // how often each key was charged
}

// pick returns a random outcome. The lock must be held.
func (r *randomRedis) pick() (o outcome) {
	sum := 0
	for _, o := range r.outcomes {
		sum += o.weight
	}
	left := r.rnd.IntN(sum)
	for _, o = range r.outcomes {
		if left -= o.weight; left < 0 {
			break
		}
	}
	return o
}

func (r *randomRedis) decide(ctx context.Context, _ time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	r.mu.Lock()
	o := r.pick()
	for i, op := range slices.Concat(groups...) {
		if o.charged(i) {
			r.charged[op.Key]++
		}
		out[i] = limiters.Verdict{Used: op.Hits}
	}
	r.mu.Unlock()
	return o.end(ctx)
}

// repair lets all further calls succeed.
func (r *randomRedis) repair() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = wellOutcomes
}

// check reports a Take with an operation that was charged twice, that was charged although its
// error denies it, or that was decided without its own verdict and one charge.
func (r *randomRedis) check(t *testing.T, ops []limiters.Op, out []limiters.Verdict, err error) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	uncharged := errors.Is(err, ErrBreakerOpen) || errors.Is(err, ErrQueueFull) || errors.Is(err, errEndedUnsent)
	for i, op := range ops {
		times := r.charged[op.Key]
		switch {
		case times > 1:
			t.Errorf("%s: charged %d times, %v", op.Key, times, err)
		case times > 0 && uncharged:
			t.Errorf("%s: charged, and yet %v", op.Key, err)
		case err == nil && (times != 1 || out[i].Used != op.Hits):
			t.Errorf("%s: decided with %+v and %d charges, want 1 charge of %d", op.Key, out[i], times, op.Hits)
		}
	}
}

// checkedTake takes operations with the keys "name 0", "name 1" and so on, the first with n, and
// checks the charges.
func checkedTake(t *testing.T, q *queue, r *randomRedis, name string, n int64, size int, within time.Duration) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	asked, out := make([]limiters.Op, size), make([]limiters.Verdict, size)
	for i := range asked {
		asked[i] = limiters.Op{Key: fmt.Sprint(name, " ", i), Hits: n + int64(i)}
	}
	defer func() {
		if recover() != nil {
			err = limiters.ErrPanic
		}
		r.check(t, asked, out, err)
	}()
	return q.Take(ctx, limiters.Singles(asked...), out)
}

// Calls succeed, time out, fail or panic at random. A rejected Take has charged nothing. A decided
// Take has its own verdicts and has charged once. Every Take returns, and the queue continues.
func TestQueueSurvivesRandomFailures(t *testing.T) {
	t.Parallel()
	const timeout, clients, each = 5 * time.Millisecond, 24, 60
	for seed := range uint64(6) {
		r := &randomRedis{rnd: rand.New(rand.NewPCG(seed, 0)), outcomes: mixedOutcomes, charged: map[string]int{}}
		if seed%2 == 1 {
			r.outcomes = mostlyFailures
		}
		q := newQueue(testConfig(timeout, 7, 12), r.decide)
		var all sync.WaitGroup
		for c := range clients {
			rnd := rand.New(rand.NewPCG(seed, uint64(c+1)))
			all.Go(func() {
				for i := range each {
					within := time.Hour
					if rnd.IntN(4) == 0 {
						within = time.Duration(rnd.IntN(int(timeout)))
					}
					_ = checkedTake(t, q, r, fmt.Sprint("seed ", seed, ", ", c, " ", i), int64(c*each+i), 1+rnd.IntN(3), within)
					if rnd.IntN(3) == 0 {
						time.Sleep(time.Duration(rnd.IntN(int(2 * timeout))))
					}
				}
			})
		}
		mustReturn(t, "every Take", all.Wait)
		q.running.Wait()
		if !q.idle() || q.countWaiting() != 0 {
			t.Errorf("seed %d: idle %v, %d wait", seed, q.idle(), q.countWaiting())
		}
		r.repair()
		again := 0
		redistest.Await(t, fmt.Sprintf("seed %d: an answer", seed), func(context.Context) error {
			again++
			return checkedTake(t, q, r, fmt.Sprint("seed ", seed, ", again ", again), 1, 1, time.Hour)
		})
	}
}

// mustReturn calls f, and fails the test if f has not returned after 2 minutes.
func mustReturn(t *testing.T, what string, f func()) {
	t.Helper()
	returned := make(chan struct{})
	go func() { defer close(returned); f() }()
	select {
	case <-returned:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s has not returned after 2 minutes", what)
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")
