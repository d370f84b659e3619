package redisstore

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// nodeOf returns a node of a cluster that has made no call.
func nodeOf(s *testStore) *node { return s.topology.(*cluster).newNode() }

// keysExpire checks that all keys of a cluster expire within most.
func keysExpire(t *testing.T, c *redistest.Cluster, maximum time.Duration) {
	t.Helper()
	for i, server := range c.Servers {
		client := server.Client(t)
		for _, key := range client.Keys(t.Context(), "*").Val() {
			if left := client.PTTL(t.Context(), key).Val(); left <= 0 || left > maximum {
				t.Errorf("node %d, %q: expires in %v, want at most %v", i, key, left, maximum)
			}
		}
	}
}

// If all hash slots of a Take fail, the Take is uncharged only if each hash slot is. Hash slots
// that fail alike have one error.
func TestTakeIsUnchargedOnlyIfAllSlotsAre(t *testing.T) {
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: []string{redistest.FreeAddr(t)}, Timeout: time.Second})
	for _, c := range []struct {
		errs []error
		want bool
		text string
	}{
		{[]error{errLate, io.EOF}, false, errLate.Error() + "\nEOF"},
		{[]error{io.EOF, errLate, io.EOF}, false, "EOF\n" + errLate.Error()},
		{[]error{errLate, errLate}, true, errLate.Error()},
		{[]error{errLate, ErrClosed}, true, errLate.Error() + "\n" + ErrClosed.Error()},
		{[]error{io.EOF, io.EOF}, false, "EOF"},
	} {
		calls, verdicts := make([]*hashSlotCall, len(c.errs)), make([]limiters.Verdict, len(c.errs))
		for i, err := range c.errs {
			calls[i], verdicts[i] = &hashSlotCall{keys: []string{"k"}, err: err}, limiters.Verdict{Err: err}
		}
		for what, got := range map[string]error{"scatter": s.topology.(*cluster).scatter(calls, nil), "errorOfVerdicts": errorOfVerdicts(verdicts)} {
			if limiters.IsUncharged(got) != c.want || got.Error() != c.text {
				t.Errorf("%s of %q: %q, uncharged: %t; want %q, %t", what, c.errs, got, limiters.IsUncharged(got), c.text, c.want)
			}
			for _, err := range c.errs {
				if !errors.Is(got, err) {
					t.Errorf("%s of %q is not %q", what, c.errs, err)
				}
			}
		}
	}
}

// A failed call reloads the hash slots unless Redis replied, or if the reply says that the owner
// has changed.
func TestSlotsAreReloadedUnlessRedisReplied(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{io.EOF, true},
		{redisError("READONLY You can't write against a read only replica."), true},
		{redisError("CLUSTERDOWN The cluster is down"), true},
		{redisError("ERR of this call"), false},
		{errLate, false},
	} {
		if got := hashSlotsMayHaveMoved(c.err); got != c.want {
			t.Errorf("after %q: %t, want %t", c.err, got, c.want)
		}
	}
}

// A lease under concurrency has one key, so it is opened and released while its hash slot moves. A
// denied group ends the lease that it opened.
func TestLeasesAreDecidedWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	user := keysOn(c, 0, 1)[0]
	slots, day := slotsOfKey(10, time.Hour), window(1, 24*time.Hour)
	lease := func(id int, end bool) limiters.Op {
		return limiters.Op{Key: user, Limit: slots, Hits: 1, Lease: leaseID(id), Kind: endOrCharge(end)}
	}
	used := func(state string, want int64, g limiters.Group) {
		t.Helper()
		for _, g := range []limiters.Group{g, {{Key: user, Limit: slots}}} {
			out, err := limiterstest.Take(s, g)
			if err != nil || slices.ContainsFunc(out, func(v limiters.Verdict) bool { return v.Err != nil }) || g[0].Hits == 0 && out[0].Used != want {
				t.Fatalf("%s: %+v, %v; want %d slots used", state, out, err, want)
			}
		}
	}
	testWhile := func(state string) {
		t.Helper()
		used(state, 2, limiters.Group{lease(1, false)})
		used(state, 2, limiters.Group{lease(2, false), {Key: user, Limit: day, Hits: 2}})
		used(state, 1, limiters.Group{lease(1, true)})
	}
	used("before", 1, limiters.Group{lease(0, false)})
	slot := int(hashSlotOf(s.namer.key(&limiters.Op{Key: user, Limit: slots})))
	c.OpenSlot(t, slot, 0, 1)
	testWhile("open")
	c.MoveKeys(t, slot, 0, 1)
	testWhile("keys moved, slot not assigned")
	c.AssignSlot(t, slot, 1)
	testWhile("moved")
	keysExpire(t, c, 25*time.Hour)
}

// While a hash slot moves, an operation with extra keys of which some do not exist fails with
// TRYAGAIN. It charges nothing, and neither does its group. A settle that failed can be repeated.
func TestOpsWithExtraKeysFailWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	limits := withExtraState(5)
	for i, user := range keysOn(c, 0, len(limits)) {
		limit := limits[i]
		t.Run(limit.Algorithm(), func(t *testing.T) {
			week := window(1000, 7*24*time.Hour)
			op := func(id int) limiters.Op { return limiters.Op{Key: user, Limit: limit, Hits: 2, Lease: leaseID(id)} }
			settle := op(1)
			settle.Hits, settle.Kind = 1, limiters.OpEnd
			if out, err := take(s, op(1), limiters.Op{Key: user, Limit: week, Hits: 1}); err != nil || out[0].Used != 2 {
				t.Fatal(out, err)
			}
			fails := func(state string) {
				t.Helper()
				out, err := limiterstest.Take(s, limiters.Group{settle}, limiters.Group{op(2), {Key: user, Limit: week, Hits: 1}})
				if err != nil || !redis.IsTryAgainError(out[0].Err) || !redis.IsTryAgainError(out[1].Err) {
					t.Errorf("%s: %+v, %v; want TRYAGAIN for the operations with extra keys", state, out, err)
				}
				out, err = take(s, limiters.Op{Key: user, Limit: week})
				if err != nil || out[0].Err != nil || out[0].Used != 1 {
					t.Errorf("%s: %+v, %v; want 1 used beside them", state, out, err)
				}
			}
			slot := int(hashSlotOf(s.namer.key(&settle)))
			c.OpenSlot(t, slot, 0, 1)
			fails("open")
			c.MoveKeys(t, slot, 0, 1)
			fails("keys moved, slot not assigned")
			c.AssignSlot(t, slot, 1)
			out, err := take(s, settle, op(2))
			if err != nil || out[0].Err != nil || out[0].Used != 1 || out[1].Err != nil || out[1].Used != 3 {
				t.Errorf("moved: %+v, %v; want the settle and a reservation", out, err)
			}
			keysExpire(t, c, 8*24*time.Hour)
		})
	}
}

// If the hash slots become unknown after a node was chosen, no call is sent, so nothing was
// charged.
func TestCallsOfUnknownSlotsAreUncharged(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	_ = closed.Close()
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: []string{closed.Addr().String()}, Timeout: 50 * time.Millisecond})
	out := make([]limiters.Verdict, 2)
	err = nodeOf(s).call(t.Context(), time.Time{}, limiters.Singles(opsOf("a", "b")...), out)
	for _, err := range []error{err, out[0].Err, out[1].Err} {
		if !limiters.IsUncharged(err) {
			t.Errorf("%v, want an error that nothing was charged", err)
		}
	}
}
