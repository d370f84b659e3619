package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// queueOf returns the queue of a single Redis.
func queueOf(s *testStore) *queue { return s.topology.(*singleServer).queue }

// testConfig returns the configuration of a queue without a Store.
func testConfig(timeout time.Duration, maxBatch, maxWaiting int) queueConfig {
	return queueConfig{timeout: timeout, maxBatch: maxBatch, maxWaiting: maxWaiting, stats: &statCounters{}, running: &sync.WaitGroup{}}
}

// A stalledRedis is a Redis that is stopped, and the Takes that wait for it.
type stalledRedis struct {
	t      *testing.T
	server *redistest.Server
	store  *testStore
	takes  sync.WaitGroup
}

// stall stops the server while a call is under way, so later Takes wait.
func stall(t *testing.T, server *redistest.Server, s *testStore) *stalledRedis {
	t.Helper()
	if _, err := take(s, limiters.Op{Key: "first", Limit: hourly}); err != nil {
		t.Fatal(err)
	}
	st := &stalledRedis{t: t, server: server, store: s}
	st.signal(syscall.SIGSTOP)
	t.Cleanup(func() { st.signal(syscall.SIGCONT) })
	st.takes.Go(func() { _, _ = take(s, limiters.Op{Key: "first", Limit: hourly}) })
	must.Until(t, "the call is under way", func() bool { return !queueOf(s).idle() })
	return st
}

func (st *stalledRedis) signal(s syscall.Signal) {
	st.t.Helper()
	must.Succeed(st.t, st.server.Signal(s))
}

// join makes a Take that waits behind the earlier ones.
func (st *stalledRedis) join(ctx context.Context, ops []limiters.Op, out []limiters.Verdict, err *error) {
	st.t.Helper()
	st.joinGroups(ctx, limiters.Singles(ops...), out, err)
}

func (st *stalledRedis) joinGroups(ctx context.Context, groups []limiters.Group, out []limiters.Verdict, err *error) {
	st.t.Helper()
	before := queueOf(st.store).countWaiting()
	st.takes.Go(func() { *err = st.store.Take(ctx, groups, out) })
	must.Until(st.t, "a Take waits", func() bool { return queueOf(st.store).countWaiting() == before+len(out) })
}

func (st *stalledRedis) resume() {
	st.t.Helper()
	st.signal(syscall.SIGCONT)
	st.takes.Wait()
}

// Waiters share one call, in the order of arrival. Each gets the verdicts that it would get in its
// own call.
func TestWaitersShareOneCall(t *testing.T) {
	server := redistest.Start(t)
	for _, name := range limiterstest.WindowedAlgorithms() {
		s := open(t, server)
		q := stall(t, server, s)
		generator, reference := limiterstest.NewGenerator(name, 7), limiterstest.NewReference()
		now, _ := generator.Next()
		s.clock.Set(now)
		type waitingTake struct {
			groups    []limiters.Group
			want, got []limiters.Verdict
			err       error
		}
		var takes []*waitingTake
		ops, maxBatch := 0, Options{}.withDefaults().MaxBatch
		for {
			_, groups := generator.Next()
			n := len(slices.Concat(groups...))
			if ops+n > maxBatch {
				break
			}
			ops += n
			w := &waitingTake{groups: groups, want: make([]limiters.Verdict, n), got: make([]limiters.Verdict, n)}
			takes = append(takes, w)
			must.Succeed(t, reference.TakeAt(t.Context(), now, groups, w.want))
			q.joinGroups(t.Context(), groups, w.got, &w.err)
		}
		before := s.Stats()
		q.resume()
		for i, w := range takes {
			if w.err != nil || !slices.Equal(w.got, w.want) {
				t.Fatalf("%s: take %d of %+v: %v\n got %+v\nwant %+v", name, i, w.groups, w.err, w.got, w.want)
			}
		}
		after := s.Stats()
		if calls, sent := after.Calls-before.Calls, after.Ops-before.Ops; calls != 1 || sent != int64(ops) || len(takes) < 100 {
			t.Errorf("%s: %d calls with %d operations of %d Takes, want 1 with %d operations of at least 100 Takes", name, calls, sent, len(takes), ops)
		}
	}
}

func TestBatchHasAMaximumSize(t *testing.T) {
	server := redistest.Start(t)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{MaxBatch: 7})
	defer s.Close()
	q := stall(t, server, s)
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 1000, Window: time.Hour})
	var failed [5]error
	var got [5][]limiters.Verdict
	for i := range failed {
		got[i] = make([]limiters.Verdict, 3)
		op := limiters.Op{Key: "k", Limit: limit, Hits: 1}
		q.join(t.Context(), []limiters.Op{op, op, op}, got[i], &failed[i])
	}
	before := s.Stats().Calls
	q.resume()
	for i := range failed {
		if failed[i] != nil || got[i][2].Used != int64(3*i+3) {
			t.Errorf("take %d: %+v, %v, want %d used", i, got[i], failed[i], 3*i+3)
		}
	}
	if n := s.Stats().Calls - before; n != 3 {
		t.Errorf("%d calls, want 3: a call has two Takes of three operations at most", n)
	}
}

func TestBatchKeepsGroupsOfTakesApart(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	q := stall(t, server, s)
	one := perHour(1)
	var failed [3]error
	var got [3][]limiters.Verdict
	for i, n := range []int64{2, 1, 1} {
		got[i] = make([]limiters.Verdict, 2)
		q.joinGroups(t.Context(), []limiters.Group{{
			{Key: fmt.Sprint("a", i), Limit: one, Hits: n}, {Key: fmt.Sprint("b", i), Limit: one, Hits: 1},
		}}, got[i], &failed[i])
	}
	q.resume()
	for i := range got {
		denied := i == 0
		if failed[i] != nil || got[i][0].Allowed == denied || (got[i][1].Used == 0) != denied {
			t.Errorf("take %d: %+v, %v, want denied: %t, and a second key that is charged if allowed", i, got[i], failed[i], denied)
		}
	}
}

func TestCanceledWaiterIsNotCharged(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	q := stall(t, server, s)
	ctx, cancel := context.WithCancel(t.Context())
	var canceled, waited error
	ops := []limiters.Op{{Key: "k", Limit: hourly, Hits: 1}}
	out := make([]limiters.Verdict, 1)
	q.join(ctx, ops, make([]limiters.Verdict, 1), &canceled)
	q.join(t.Context(), ops, out, &waited)
	cancel()
	must.Until(t, "the canceled Take ends", func() bool { return s.Stats().Unsent == 1 })
	q.resume()
	if !errors.Is(canceled, context.Canceled) || !errors.Is(canceled, errEndedUnsent) || !limiters.IsUncharged(canceled) {
		t.Errorf("the canceled Take got %v", canceled)
	}
	if waited != nil || out[0].Used != 1 {
		t.Errorf("the other Take got %+v, %v, want only its own hit", out[0], waited)
	}
}

// A Take whose context ends when its verdicts have arrived returns the verdicts.
func TestVerdictsOutliveTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q, out := newQueue(testConfig(time.Hour, 1, 1), nil), make([]limiters.Verdict, 1)
	for range 100 { // a select with two ready cases chooses one at random
		w := waiterPool.Get().(*waiter)
		w.setGroups(limiters.Singles(limiters.Op{Key: "k", Limit: hourly, Hits: 1}), 1)
		w.state = stateDone
		w.verdicts[0] = limiters.Verdict{Allowed: true, Used: 1}
		w.done <- struct{}{}
		if err := q.await(ctx, w, out); err != nil || !out[0].Allowed {
			t.Fatalf("%v, %+v; want the verdict", err, out[0])
		}
	}
}

// A Take whose context ends just before the breaker rejects it returns the rejection: it was never
// sent.
func TestRejectedWaiterIsUncharged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		goOn := make(chan struct{})
		q := newQueue(testConfig(time.Hour, 1, 1), func(context.Context, time.Time, []limiters.Group, []limiters.Verdict) error {
			<-goOn
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var rejected error
		for _, err := range []*error{new(error), &rejected} {
			go func() { *err = q.Take(ctx, limiters.Singles(opsOf("k")...), make([]limiters.Verdict, 1)) }()
			synctest.Wait() // the first makes a call, and the second waits for its end
		}
		q.mu.Lock()
		cancel()
		for range failuresToOpen {
			q.record(errNoRoute)
		}
		q.mu.Unlock()
		synctest.Wait()
		if !errors.Is(rejected, ErrBreakerOpen) || !limiters.IsUncharged(rejected) {
			t.Errorf("the rejected waiter got %v, want an uncharged %v", rejected, ErrBreakerOpen)
		}
		close(goOn)
	})
}

// inBubble runs test in the virtual time of synctest. It empties waiterPool, because a channel of
// one bubble must not be used in another.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	empty := func() { waiterPool = sync.Pool{New: waiterPool.New} }
	empty()
	defer empty()
	synctest.Test(t, test)
}

// The timer times out the Takes that are due, and no others, whether they were sent or not. Then it
// is set for the others.
func TestTimerTimesOutTheTakesThatAreDue(t *testing.T) {
	for due := range 4 {
		q := newQueue(testConfig(time.Hour, 1, 1), nil)
		var all []*waiter
		for i, state := range []waiterState{stateSent, stateSent, stateWaiting, stateWaiting} {
			w := &waiter{done: make(chan struct{}, 1), timeoutAt: time.Now().Add(time.Hour)}
			if i < due {
				w.timeoutAt = time.Now()
			}
			w.setGroups(limiters.Singles(opsOf("k")...), 1)
			w.state = state
			all = append(all, w)
		}
		q.sent, q.waiters, q.waitingOps = slices.Clone(all[:2]), slices.Clone(all[2:]), 2
		q.timeOutWaiters()
		for i, w := range all {
			if timedOut := len(w.done) > 0; timedOut != (i < due) {
				t.Fatalf("%d are due: Take %d has timed out: %v", due, i, timedOut)
			}
			if i >= due {
				continue
			}
			want, sent := errEndedSent, i < 2
			if !sent {
				want = errEndedUnsent
			}
			if err := q.await(t.Context(), w, nil); !errors.Is(err, want) || limiters.IsUncharged(err) == sent {
				t.Errorf("%d are due: Take %d got %v, want %v", due, i, err, want)
			}
		}
		if n, want := q.countWaiting(), 2-max(0, due-2); n != want {
			t.Errorf("%d are due: %d operations wait, want %d", due, n, want)
		}
		if !q.timerSet {
			t.Errorf("%d are due: the timer is not set for the other Takes", due)
		}
		if n := q.stats.unsent.Load(); n != int64(max(0, due-2)) {
			t.Errorf("%d are due: %d operations have timed out before they were sent", due, n)
		}
	}
}

// A call for one Take charges until the deadline of its client, and has the whole timeout. The
// client cannot cancel it.
func TestCallChargesUntilTheDeadlineOfItsClient(t *testing.T) {
	const timeout = time.Minute
	for _, c := range []struct{ within, want time.Duration }{
		{timeout / 4, timeout / 4},
		{timeout, timeout},
		{2 * timeout, timeout},
		{0, timeout}, // without a deadline
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if c.within > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), c.within)
			}
			q := newQueue(testConfig(timeout, 10, 1), nil)
			q.call = func(ctx context.Context, notAfter time.Time, _ []limiters.Group, _ []limiters.Verdict) error {
				if left := time.Until(notAfter); left != c.want {
					t.Errorf("a client with %v left: the call charges for %v, want %v", c.within, left, c.want)
				}
				start := time.Now()
				cancel()
				<-ctx.Done()
				if took := time.Since(start); took != timeout {
					t.Errorf("a client with %v left: the call may last %v, want %v", c.within, took, timeout)
				}
				return ctx.Err()
			}
			if err := q.Take(ctx, limiters.Singles(opsOf("k")...), make([]limiters.Verdict, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
}

// A call charges until the latest deadline of its waiters, and not later.
func TestCallHasTheLatestDeadlineOfItsWaiters(t *testing.T) {
	var got time.Time
	q := newQueue(testConfig(time.Hour, 10, 1), nil)
	q.call = func(_ context.Context, notAfter time.Time, _ []limiters.Group, _ []limiters.Verdict) error {
		got = notAfter
		return nil
	}
	now := time.Now()
	for _, deadline := range []time.Duration{time.Second, 3 * time.Second, 2 * time.Second} {
		w := &waiter{done: make(chan struct{}, 1), deadline: now.Add(deadline)}
		w.setGroups(limiters.Singles(opsOf("k")...), 1)
		q.waiters = append(q.waiters, w)
	}
	q.popWaiters()
	q.callCombined()
	q.running.Wait()
	if want := now.Add(3 * time.Second); !got.Equal(want) {
		t.Errorf("the call charges until %v, want %v", got, want)
	}
}

func TestFullQueueRejectsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{MaxWaiting: 1})
	defer s.Close()
	q := stall(t, server, s)
	var failed error
	out := make([]limiters.Verdict, 2)
	// One Take may always wait. Otherwise a large one would be rejected whenever Redis is busy.
	q.join(t.Context(), opsOf("a", "b"), out, &failed)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // without a bound of the queue, the Take would wait for resume
	defer cancel()
	if err := s.Take(ctx, limiters.Singles(opsOf("c")...), make([]limiters.Verdict, 1)); !errors.Is(err, ErrQueueFull) {
		t.Errorf("%v, want %v", err, ErrQueueFull)
	}
	q.resume()
	if failed != nil || out[1].Used != 1 || s.Stats().QueueRejected != 1 {
		t.Errorf("got error %v, %+v, %d rejected, want the first Take decided with used=1 for b, and 1 rejected", failed, out, s.Stats().QueueRejected)
	}
	if out, err := take(s, opsOf("c")...); err != nil || out[0].Used != 1 {
		t.Errorf("afterwards: %+v, %v", out, err)
	}
}

// A frozen Redis runs its calls when it continues. By then their Takes have timed out, so the calls
// must charge nothing.
func TestLateCallChargesNothing(t *testing.T) {
	server := redistest.Start(t)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: 200 * time.Millisecond}, Options{})
	defer s.Close()
	redistest.Await(t, "a first answer", func(context.Context) error {
		_, err := take(s, opsOf("k")...)
		return err
	})
	before := peek(t, open(t, server), "k")
	ran := func() int { return commands(t, server.Client(t))["evalsha"] }
	earlier := ran()
	// On a busy machine, the Takes may time out before a call is sent.
	redistest.Await(t, "a call to run late", func(context.Context) error {
		must.Succeed(t, server.Signal(syscall.SIGSTOP))
		var takes sync.WaitGroup
		for range 20 {
			takes.Go(func() {
				if _, err := take(s, opsOf("k")...); err == nil {
					t.Error("a frozen Redis has answered")
				}
			})
		}
		takes.Wait()
		must.Succeed(t, server.Signal(syscall.SIGCONT))
		// Calls that were sent earlier run before one on a new connection.
		if ran() == earlier {
			return errors.New("no call has run")
		}
		return nil
	})
	if used := peek(t, open(t, server), "k"); used != before {
		t.Errorf("%d hits were charged that were answered with an error", used-before)
	}
}

func peek(t *testing.T, s *testStore, key string) int64 {
	t.Helper()
	out, err := take(s, limiters.Op{Key: key, Limit: hourly})
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	return out[0].Used
}

// A call that is void because the server's clock was wrong is made again, and charges once.
func TestChangedServerClockIsLearned(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	for i, offset := range []time.Duration{-time.Hour, time.Hour, -24 * 365 * time.Hour, 0} {
		clock := s.topology.(*singleServer).script.clock
		clock.offset.Store(clock.offset.Load() + offset.Microseconds())
		if out, err := take(s, opsOf("k")...); err != nil || out[0].Used != int64(i+1) {
			t.Errorf("off by %v: %+v, %v, want %d used", offset, out, err, i+1)
		}
	}
}

// The clock of synctest begins in the year 2000 and stands still during calls. Replicas with such a
// clock and replicas with the right clock share their counters.
func TestReplicasWithWrongClocksShareCounters(t *testing.T) {
	server := redistest.Start(t)
	used := 0
	charge := func(t *testing.T) {
		used++
		s := open(t, server)
		for _, name := range limiterstest.WindowedAlgorithms() {
			op := limiters.Op{Key: name, Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 3, Window: 24 * time.Hour}), Hits: 1}
			out, err := take(s, op)
			if err != nil || out[0].Err != nil || out[0].Allowed != (used <= 3) || out[0].RetryAfter > 24*time.Hour {
				t.Errorf("%s, operation %d: %+v, %v", name, used, out, err)
			}
		}
	}
	for range 3 {
		charge(t)
		synctest.Test(t, func(t *testing.T) {
			if year := time.Now().Year(); year != 2000 {
				t.Fatalf("the clock of synctest is in the year %d: this test checks nothing, want 2000", year)
			}
			charge(t)
		})
	}
}

func TestPanicIsAnErrorOfItsWaiters(t *testing.T) {
	under, goOn := make(chan struct{}), make(chan struct{})
	q := newQueue(testConfig(longTimeout, 10, 10), nil)
	q.call = func(_ context.Context, _ time.Time, groups []limiters.Group, _ []limiters.Verdict) error {
		if groups[0][0].Key == "first" {
			close(under)
			<-goOn
			return nil
		}
		panic("a bug")
	}
	var takes sync.WaitGroup
	takeOf := func(key string) error {
		return q.Take(t.Context(), limiters.Singles(opsOf(key)...), make([]limiters.Verdict, 1))
	}
	takes.Go(func() { _ = takeOf("first") })
	<-under
	var failed error
	takes.Go(func() { failed = takeOf("second") })
	must.Until(t, "the second waits", func() bool { return q.countWaiting() == 1 })
	close(goOn)
	takes.Wait()
	q.running.Wait()
	if failed == nil || !strings.Contains(failed.Error(), "a bug") {
		t.Errorf("the Take after the panic: got error %v, want an error that says: a bug", failed)
	}
	if !q.idle() {
		t.Error("the queue is still busy")
	}
}

// Decoded runs are the operations, for random sequences.
func TestRunsEncodeAllOps(t *testing.T) {
	limits := []*limiters.Limit{hourly, millionAMinute}
	var seen [redisscripts.KindGrouped + 1]int
	random := rand.New(rand.NewPCG(limiterstest.FirstSeed(), 3))
	for range 2000 {
		ops := make([]limiters.Op, 1+random.IntN(12))
		keys, known := make([]string, len(ops)), 1+random.IntN(3)*random.IntN(50)
		for i := range ops {
			ops[i] = limiters.Op{Limit: limits[random.IntN(5)/4], Hits: random.Int64N(3) - 1}
			keys[i] = fmt.Sprint(random.IntN(known))
			if i > 0 && random.IntN(5) > 0 {
				ops[i] = ops[i-1]
			}
		}
		groups, groupSize := limiters.Singles(ops...), 0
		if n := len(ops) / 2; n > 1 && random.IntN(2) == 0 {
			groups, groupSize = append([]limiters.Group{ops[:n]}, groups[n:]...), n
		}
		b := newBatch(time.Time{}, time.Time{})
		b.encode(groups, keys)
		var got []limiters.Op
		var kinds []redisscripts.RunKind
		gotGroupSize := 0
		for runs := b.runs; len(runs) > 0; {
			run := runs[:15]
			runs = runs[15:]
			count, key, kind, limitAndN := int(binary.BigEndian.Uint16(run)), int(binary.BigEndian.Uint16(run[2:])), redisscripts.RunKind(run[4]), run[5:]
			if kind == redisscripts.KindGrouped {
				gotGroupSize = count
			}
			for i := range count {
				switch kind {
				case redisscripts.KindAlone:
					limitAndN, runs = runs[:10], runs[10:]
					key += min(i, 1)
				case redisscripts.KindGrouped:
					key, limitAndN, runs = int(binary.BigEndian.Uint16(runs)), runs[2:12], runs[12:]
				}
				kinds = append(kinds, kind)
				got = append(got, limiters.Op{
					Key: b.keys[key-1], Limit: b.limits[binary.BigEndian.Uint16(limitAndN)-1],
					Hits: int64(binary.BigEndian.Uint64(limitAndN[2:])),
				})
			}
		}
		times := map[string]int{}
		for i := range ops {
			ops[i].Key = keys[i]
			times[keys[i]]++
		}
		for i, kind := range kinds {
			seen[kind]++
			want := redisscripts.KindSameKey
			switch {
			case i < groupSize:
				want = redisscripts.KindGrouped
			case times[keys[i]] == 1:
				want = redisscripts.KindAlone
			}
			if kind != want {
				t.Fatalf("operation %d of %+v is of kind %d, want %d", i, ops, kind, want)
			}
		}
		if !slices.Equal(got, ops) || gotGroupSize != groupSize {
			t.Fatalf("\n got %+v, a group of %d\nwant %+v, a group of %d", got, gotGroupSize, ops, groupSize)
		}
	}
	if slices.Contains(seen[:], 0) {
		t.Errorf("operations of each kind: %v", seen)
	}
}

// Operations that are alone on their keys have their own limits and counts. An operation on an
// unreadable key is the only one to fail.
func TestRunsOfDifferentKindsDecideEachOp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, reference := openAt(t, connect.Options{Addr: server.Addr}), limiterstest.NewReference()
	var limits []*limiters.Limit
	for _, algorithm := range limiterstest.WindowedAlgorithms() {
		for maximum := range int64(3) {
			limits = append(limits, limiterstest.MustLimit(limiters.Spec{Algorithm: algorithm, Max: maximum + 1, Window: time.Hour}))
		}
	}
	now := time.Unix(1_700_000_000, 0)
	random := rand.New(rand.NewPCG(1, 2))
	ops := make([]limiters.Op, 600)
	for i := range ops {
		ops[i] = limiters.Op{Key: fmt.Sprint("key", i), Limit: limits[random.IntN(len(limits))]}
		if random.IntN(3) == 0 && i > 20 {
			ops[i].Limit = ops[i-1].Limit
		}
	}
	const foreign = 300
	must.Succeed(t, s.client.HSet(t.Context(), s.namer.keys(limiters.Singles(ops...))[foreign], "a", "hash").Err())
	for range 6 {
		for i := range ops {
			ops[i].Hits = random.Int64N(4) - 1
		}
		got, want := make([]limiters.Verdict, len(ops)), make([]limiters.Verdict, len(ops))
		must.Succeed(t, errors.Join(s.TakeAt(t.Context(), now, limiters.Singles(ops...), got), reference.TakeAt(t.Context(), now, limiters.Singles(ops...), want)))
		for i := range ops {
			switch failed := got[i].Err != nil; {
			case failed != (i == foreign):
				t.Errorf("operation %d of %+v: %v", i, ops[i], got[i].Err)
			case !failed && got[i] != want[i]:
				t.Errorf("operation %d of %+v:\n got %+v\nwant %+v", i, ops[i], got[i], want[i])
			}
		}
	}
}

// With one processor, the goroutine of the queue runs before Takes that are ready. It yields to
// them, so they share its first call. Without the yield, only the Take that waits already has that
// call.
func TestQueueYieldsToTakesThatAreReady(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds, ready = 20, 8
	together := 0
	for range rounds {
		if opsOfCallAfter(t, ready) == 1+ready {
			together++
		}
	}
	if together < rounds/2 { // the scheduler may resume the queue earlier
		t.Errorf("in %d of %d rounds, all Takes shared the call", together, rounds)
	}
}

// opsOfCallAfter returns the size of the call after one during which a Take waits and others become
// ready.
func opsOfCallAfter(t *testing.T, ready int) int {
	t.Helper()
	q := newQueue(testConfig(longTimeout, 100, 100), nil)
	under, goOn := make(chan struct{}), make(chan struct{})
	var calls []int
	q.call = func(_ context.Context, _ time.Time, groups []limiters.Group, _ []limiters.Verdict) error {
		if calls = append(calls, len(groups)); len(calls) == 1 {
			close(under)
			<-goOn
		}
		return nil
	}
	var takes sync.WaitGroup
	start := func() {
		takes.Go(func() {
			if err := q.Take(t.Context(), limiters.Singles(opsOf("k")...), make([]limiters.Verdict, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	start()
	<-under
	for start(); q.countWaiting() == 0; {
		runtime.Gosched()
	}
	for range ready {
		start()
	}
	close(goOn)
	takes.Wait()
	q.running.Wait()
	return calls[1]
}
