package redisstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

func window(max int64, d time.Duration) *limiters.Limit {
	return limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: max, Window: d, CountDenied: true})
}

// A user under two limits has only one of its two keys when the hash slot begins to move, so no
// node can decide both in one call.
func TestGroupsAreDecidedWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	user := keysOn(c, 0, 1)[0]
	day, week := window(100, 24*time.Hour), window(1000, 7*24*time.Hour)
	group := limiters.Group{{Key: user, Limit: day, Hits: 1}, {Key: user, Limit: week, Hits: 1}}
	slot := int(hashSlotOf(s.namer.key(&group[0])))
	if _, err := take(s, group[1]); err != nil {
		t.Fatal(err)
	}
	used := int64(0)
	decide := func(state string) {
		t.Helper()
		for range 4 {
			used++
			out, err := limiterstest.Take(s, group)
			if err != nil || out[0].Err != nil || out[1].Err != nil || !out[0].Allowed || out[0].Used != used || out[1].Used != used+1 {
				t.Fatalf("%s: %+v, %v; want %d and %d used", state, out, err, used, used+1)
			}
		}
	}
	c.OpenSlot(t, slot, 0, 1)
	decide("open")
	c.MoveKeys(t, slot, 0, 1)
	decide("keys moved, slot not assigned")
	c.AssignSlot(t, slot, 1)
	decide("moved")
}

// A key is reset while its hash slot moves, although the master that has the key has no extra keys.
func TestKeysAreResetWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	user := keysOn(c, 0, 1)[0]
	day := window(100, 24*time.Hour)
	op := limiters.Op{Key: user, Limit: day, Hits: 1}
	slot := int(hashSlotOf(s.namer.key(&op)))
	charge := func() {
		t.Helper()
		if out, err := take(s, op); err != nil || out[0].Err != nil || out[0].Used != 1 {
			t.Fatalf("%+v, %v; want 1 used", out, err)
		}
	}
	names := []limiters.StateName{day.StateName(user)}
	resets := func(state string) {
		t.Helper()
		for _, want := range []bool{true, false} {
			if found, err := s.Reset(t.Context(), names); err != nil || found[0] != want {
				t.Fatalf("%s: found %v, %v; want %t", state, found, err, want)
			}
		}
	}
	charge()
	c.OpenSlot(t, slot, 0, 1)
	resets("open")
	// TRYAGAIN, and ASK for each extra key; then, without any key, ASK for all together and for
	// each.
	stats := c.Servers[0].Client(t).Info(t.Context(), "commandstats").Val()
	if !regexp.MustCompile(`cmdstat_unlink:calls=1,.*rejected_calls=7,`).MatchString(stats) {
		t.Errorf("want one UNLINK that ran on the old master, and 7 that it rejected:\n%s", stats)
	}
	charge() // on the new master
	resets("charged on the new master")
	c.AssignSlot(t, slot, 1)
	charge()
	resets("moved")
}

// A group that one limit denies is not charged under the others, while the hash slot moves too.
func TestDeniedGroupsAreRefundedWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	user := keysOn(c, 0, 1)[0]
	day, week := window(2, 24*time.Hour), window(1000, 7*24*time.Hour)
	group := limiters.Group{{Key: user, Limit: week, Hits: 2}, {Key: user, Limit: day, Hits: 2}}
	if _, err := take(s, limiters.Op{Key: user, Limit: week, Hits: 1}); err != nil {
		t.Fatal(err)
	}
	c.OpenSlot(t, int(hashSlotOf(s.namer.key(&group[0]))), 0, 1)
	for i, want := range []struct {
		allowed   bool
		week, day int64
	}{{true, 3, 2}, {false, 3, 4}, {false, 3, 6}} {
		out, err := limiterstest.Take(s, group)
		if err != nil || out[0].Err != nil || out[1].Err != nil || !out[0].Allowed || out[1].Allowed != want.allowed ||
			out[0].Used != want.week || out[1].Used != want.day {
			t.Errorf("group %d: %+v, %v; want %+v", i, out, err, want)
		}
	}
	// A group that charges and refunds cannot be undone, so it is not decided. Other operations of
	// the call are.
	mixed := limiters.Group{{Key: user, Limit: week, Hits: -1}, {Key: user, Limit: day, Hits: 1}}
	out, err := limiterstest.Take(s, mixed, group[:1])
	if err != nil || !redis.IsTryAgainError(out[0].Err) || !redis.IsTryAgainError(out[1].Err) || out[2].Err != nil || out[2].Used != 5 {
		t.Errorf("%+v, %v: want TRYAGAIN for the mixed group and 5 used by the other operation", out, err)
	}
}

// A group is charged key by key while its hash slot moves. If the second charge uses up the
// timeout, the first is refunded, and on_store_error decides without a second charge.
func TestNoHitIsChargedTwiceWhileASlotMovesToAHungNode(t *testing.T) {
	t.Parallel()
	for _, onStoreError := range []limiters.OnStoreError{limiters.OnStoreErrorAllow, limiters.OnStoreErrorFail} {
		t.Run(onStoreError.String(), func(t *testing.T) {
			c := redistest.StartCluster(t, 3)
			s := openCluster(t, c, func(o *connect.Options, _ *Options) { o.Timeout = time.Second })
			longTimeout := openCluster(t, c, func(o *connect.Options, _ *Options) { o.Timeout = time.Minute })
			user := keysOn(c, 0, 1)[0]
			day, week := window(100, 24*time.Hour), window(1000, 7*24*time.Hour)
			route := limiters.FallbackRoute{OnStoreError: onStoreError}
			group := limiters.Group{{Key: user, Limit: week, Hits: 1, FallbackRoute: route}, {Key: user, Limit: day, Hits: 1, FallbackRoute: route}}
			if _, err := take(longTimeout, group[0]); err != nil {
				t.Fatal(err)
			}
			f := guard.NewFallback(s, guard.FallbackOptions{})
			c.OpenSlot(t, int(hashSlotOf(s.namer.key(&group[0]))), 0, 1)
			must.Succeed(t, c.Servers[1].Signal(syscall.SIGSTOP))
			defer func() { _ = c.Servers[1].Signal(syscall.SIGCONT) }()
			out := make([]limiters.Verdict, 2)
			for range 3 {
				// Undecided operations have errors, and so may the Take.
				_ = f.Take(context.Background(), []limiters.Group{group}, out)
			}
			v, err := take(longTimeout, limiters.Op{Key: user, Limit: week})
			if err != nil || v[0].Used > 1+3 {
				t.Errorf("3 requests and 1 hit before: the week has used %d, %v", v[0].Used, err)
			}
			if onStoreError == limiters.OnStoreErrorFail && v[0].Used != 1 {
				t.Errorf("undecided requests charged the week: used %d", v[0].Used)
			}
		})
	}
}

// Whatever happens while a hash slot moves back and forth, groups are admitted at most as often as
// each of their limits allows.
func TestGroupsNeverExceedALimitWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	const limit, clients = 150, 4
	day, week := window(limit, 24*time.Hour), window(1000, 7*24*time.Hour)
	day2 := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: limit, Window: 24 * time.Hour})
	user := keysOn(c, 0, 1)[0]
	ops := limiters.Group{{Key: user, Limit: day, Hits: 1}, {Key: user, Limit: week, Hits: 1}, {Key: user, Limit: day2, Hits: 1}}
	slot := int(hashSlotOf(keyNamer{}.key(&ops[0])))
	var admitted, decided atomic.Int64
	var stop atomic.Bool
	var takes sync.WaitGroup
	for range clients {
		s := openCluster(t, c)
		takes.Go(func() {
			for !stop.Load() {
				out := make([]limiters.Verdict, 3)
				if err := s.Take(context.Background(), []limiters.Group{ops}, out); err != nil {
					t.Errorf("take: %v", err)
					return
				}
				decided.Add(1)
				if out[0].Allowed && out[1].Allowed && out[2].Allowed && errors.Join(out[0].Err, out[1].Err, out[2].Err) == nil {
					admitted.Add(1)
				}
			}
		})
	}
	more := func() {
		target := decided.Load() + 60
		must.Until(t, "further Takes", func() bool { return decided.Load() >= target || t.Failed() })
	}
	for i := range 2 {
		from, to := i%2, (i+1)%2
		c.OpenSlot(t, slot, from, to)
		more()
		c.MoveKeys(t, slot, from, to)
		more()
		c.AssignSlot(t, slot, to)
		more()
	}
	stop.Store(true)
	takes.Wait()
	if n := admitted.Load(); n > limit || n == 0 {
		t.Errorf("%d groups admitted, want 1 to %d", n, limit)
	}
}

// TRYAGAIN says nothing about the node: operations in its other hash slots must be decided.
func TestTryAgainDoesNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	user := keysOn(c, 0, 2)
	day, week := window(100, 24*time.Hour), window(1000, 7*24*time.Hour)
	// A mixed group is refused with TRYAGAIN as long as only one of its keys exists.
	group := limiters.Group{{Key: user[0], Limit: day, Hits: 1}, {Key: user[0], Limit: week, Hits: -1}}
	if _, err := take(s, limiters.Op{Key: user[0], Limit: week, Hits: 1}); err != nil {
		t.Fatal(err)
	}
	c.OpenSlot(t, int(hashSlotOf(s.namer.key(&group[0]))), 0, 1)
	for i := range 2 * failuresToOpen {
		if _, err := limiterstest.Take(s, group); !redis.IsTryAgainError(err) {
			t.Fatalf("group %d: %v, want TRYAGAIN", i, err)
		}
	}
	out, err := take(s, limiters.Op{Key: user[1], Limit: day, Hits: 1})
	if err != nil || out[0].Err != nil {
		t.Errorf("a user in a slot that does not move: %v, %v", err, out[0].Err)
	}
}

// In a cluster that continues without all hash slots, operations in a hash slot that no node has
// must not affect other hash slots.
func TestUnservedSlotDoesNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	s := openCluster(t, c)
	lost := opsOf(keysOn(c, 0, 2)[0])[0]
	for _, server := range c.Servers {
		// A node that has not heard of the hash slot's loss yet may refuse the second command.
		_ = server.Client(t).Do(context.Background(), "cluster", "delslots", hashSlotOf(s.namer.key(&lost))).Err()
	}
	for i := range 6 * failuresToOpen {
		if _, err := take(s, lost); err == nil || !strings.Contains(err.Error(), "CLUSTERDOWN Hash slot not served") {
			t.Fatalf("take %d: %v, want CLUSTERDOWN", i, err)
		}
	}
	for node := range 3 {
		out, err := take(s, opsOf(keysOn(c, node, 3)[2])...)
		if err != nil || out[0].Err != nil {
			t.Errorf("node %d, a slot that is served: %v, %v", node, err, out[0].Err)
		}
	}
}

// While the hash slots of a cluster are unknown, a breaker rejects operations, so that they do not
// wait for a timeout each. A reply without hash slots does not close it.
func TestUnknownSlotsOpenTheBreaker(t *testing.T) {
	address := redistest.FreeAddr(t)
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: []string{address}, Timeout: 100 * time.Millisecond})
	must.Until(t, "the breaker opens", func() bool {
		_, err := take(s, opsOf("k", "l", "m")...)
		if err == nil {
			t.Fatal("a cluster that is not there decides operations")
		}
		return errors.Is(err, ErrBreakerOpen)
	})
	if n := s.Stats().BreakerRejected; n != 3 {
		t.Errorf("%d operations were rejected, want 3", n)
	}
	server, err := redistest.Run(address)
	must.Succeed(t, err)
	t.Cleanup(server.Stop)
	must.Until(t, "the reply of a Redis that is not a cluster", func() bool {
		_, err := take(s, opsOf("k")...)
		return strings.Contains(fmt.Sprint(err), "cluster support disabled")
	})
	if _, err := take(s, opsOf("k")...); !errors.Is(err, ErrBreakerOpen) {
		t.Errorf("after this reply: %v, want %v", err, ErrBreakerOpen)
	}
}

// A panic on a goroutine that a call has started must not end the process.
func TestPanicInSendIsAnErrorOfItsOps(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2)
	s := openCluster(t, c)
	groups := limiters.Singles(opsOf(keysOn(c, 0, 1)[0], keysOn(c, 1, 1)[0])...)
	calls := splitByHashSlot(time.Time{}, groups, s.namer.keys(groups))
	good, bad := calls[0], calls[1]
	good.encode(time.Time{})
	bad.encode(time.Time{})
	bad.batch.limits = []*limiters.Limit{nil}
	nodeOf(s).send(t.Context(), calls)
	if !errors.Is(bad.err, limiters.ErrPanic) || good.err != nil {
		t.Errorf("%v and %v, want a panic and nil", bad.err, good.err)
	}
	if n := s.Stats().Panics; n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
}

// A refund that runs after the end of the window in which the hit was charged must not refund a hit
// of the next window. It is sent once.
func TestRefundExpiresWithItsWindow(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	day, week := window(10, 24*time.Hour), window(10, 7*24*time.Hour)
	group := limiters.Group{{Key: "k", Limit: day, Hits: 2}, {Key: "k", Limit: week, Hits: 2}}
	groups := []limiters.Group{group}
	p := splitByHashSlot(time.Time{}, groups, s.namer.keys(groups))[0]
	p.Verdicts = []limiters.Verdict{{Allowed: true, ResetAfter: time.Hour}, {Allowed: false}}
	start := time.Now()
	refunds := refundsOf(p, start)
	if len(refunds) != 1 || refunds[0].Groups[0][0].Hits != -2 || !refunds[0].notAfter.Equal(start.Add(time.Hour)) {
		t.Fatalf("%+v, want one refund of 2, valid for an hour", refunds)
	}
	if _, err := take(s, group[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		notAfter time.Time
		used     int64
	}{{time.Now().Add(-time.Second), 2}, {time.Now().Add(time.Hour), 0}} {
		refund := newBatch(time.Time{}, c.notAfter)
		refund.encode(refunds[0].Groups, refunds[0].keys)
		before := scriptCalls(t, server)
		if _, err := s.topology.(*singleServer).script.call(t.Context(), refund); err != nil {
			t.Fatal(err)
		}
		if n := scriptCalls(t, server) - before; n != 1 {
			t.Errorf("a refund valid until %v: %d calls, want 1", c.notAfter, n)
		}
		if out, err := take(s, limiters.Op{Key: "k", Limit: day}); err != nil || out[0].Used != c.used {
			t.Errorf("a refund valid until %v: %+v, %v; want %d used", c.notAfter, out[0], err, c.used)
		}
	}
}

// While a hash slot moves, the operations of a group are charged key by key until the deadline of
// the client. An operation that was charged in a denied group is refunded, even if the deadline has
// passed since.
func TestHitsAreNotChargedAfterTheDeadlineWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2)
	s := openCluster(t, c)
	n := nodeOf(s)
	user := keysOn(c, 0, 1)[0]
	day, week := window(2, 24*time.Hour), window(1000, 7*24*time.Hour)
	used := func(what string, limit *limiters.Limit, want int64) {
		t.Helper()
		if out, err := take(s, limiters.Op{Key: user, Limit: limit}); err != nil || out[0].Err != nil || out[0].Used != want {
			t.Errorf("%s: %+v, %v; want %d used", what, out[0], err, want)
		}
	}
	groups := []limiters.Group{{{Key: user, Limit: week, Hits: 2}, {Key: user, Limit: day, Hits: 2}}}
	out := make([]limiters.Verdict, 2)
	decide := func(groups []limiters.Group, notAfter time.Time) error {
		return n.call(t.Context(), notAfter, groups, out)
	}
	must.Succeed(t, decide([]limiters.Group{groups[0][:1]}, time.Now().Add(time.Minute)))
	c.OpenSlot(t, int(hashSlotOf(s.namer.key(&groups[0][0]))), 0, 1)
	if err := decide(groups, time.Now().Add(-time.Second)); !errors.Is(err, errLate) || !limiters.IsUncharged(err) {
		t.Errorf("after the deadline: %+v, %v; want %v", out, err, errLate)
	}
	used("after the deadline", week, 2)
	used("after the deadline", day, 0)

	slots := slotsOfKey(10, time.Hour)
	lease := limiters.Op{Key: user, Limit: slots, Hits: 1, Lease: leaseID(1)}
	if out, err := take(s, lease); err != nil || out[0].Used != 1 {
		t.Fatal(out, err)
	}
	groups = []limiters.Group{append(groups[0], lease)}
	call := splitByHashSlot(time.Now().Add(-time.Second), groups, s.namer.keys(groups))[0]
	undo := func(ofLease limiters.Verdict) {
		call.Verdicts = []limiters.Verdict{{Allowed: true, ResetAfter: time.Hour}, {Allowed: false}, ofLease}
		n.makeCalls(t.Context(), refundsOf(call, time.Now()))
	}
	undo(limiters.Verdict{Allowed: true, LeaseAlreadyOpen: true})
	used("refunded", week, 0)
	used("the lease of an earlier request", slots, 1)
	undo(limiters.Verdict{Allowed: true})
	used("refunded", week, 0)
	used("refunded", slots, 0)
}
