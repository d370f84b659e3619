package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// slotAndOwner returns the hash slot of the tag of oneSlot, and the node that has it.
func slotAndOwner(c *redistest.Cluster) (slot, home int) {
	op := limiters.Op{Limit: hourly}
	slot = int(hashSlotOf(keyNamer{tag: func(string) string { return "tag" }}.key(&op)))
	return slot, c.Owner(slot)
}

// A hash slot moves while operations arrive from three stores. No operation fails, none is lost,
// and none is charged twice. A call contains keys that have not moved yet, keys that have moved,
// and new ones.
func TestMovingSlotLosesNoHit(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	slot, home := slotAndOwner(c)
	away := (home + 1) % 3
	many := limiterstest.MustLimit(limiters.Spec{
		Algorithm: "fixed_window", Max: 1 << 30, Window: 24 * time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit},
	})
	op := func(key any) limiters.Op { return limiters.Op{Key: fmt.Sprint(key), Limit: many, Hits: 1} }

	const shared = 40
	var stop atomic.Bool
	var calls atomic.Int64
	var charged [shared]atomic.Int64
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop.Store(true)
	for range 3 {
		s := openCluster(t, c, oneSlot)
		for range 2 {
			callers.Go(func() {
				for !stop.Load() {
					n := int(calls.Add(1))
					keys := []int{n % shared, n * 7 % shared, n % shared}
					ops := []limiters.Op{op(keys[0]), op(keys[1]), op(keys[2]), op(fmt.Sprint("new ", n))}
					if n%3 == 0 {
						ops, keys = ops[:1], keys[:1]
					}
					out := make([]limiters.Verdict, len(ops))
					if err := s.Take(context.Background(), limiters.Singles(ops...), out); err != nil {
						t.Errorf("take: %v", err)
						return
					}
					for i, v := range out {
						if v.Err != nil || i == 3 && v.Used != 1 {
							t.Errorf("operation on %s: %+v", ops[i].Key, v)
							return
						}
					}
					for _, key := range keys {
						charged[key].Add(1)
					}
				}
			})
		}
	}
	goOn := func() {
		target := calls.Load() + 200
		must.Until(t, "further calls", func() bool { return calls.Load() >= target || t.Failed() })
	}
	for _, step := range []func(){
		func() { c.OpenSlot(t, slot, home, away) },
		func() { c.MoveKeys(t, slot, home, away) },
		func() { c.AssignSlot(t, slot, away) },
		func() { c.OpenSlot(t, slot, away, home); c.MoveKeys(t, slot, away, home); c.AssignSlot(t, slot, home) },
	} {
		goOn()
		step()
	}
	goOn()
	stop.Store(true)
	callers.Wait()
	s := openCluster(t, c, oneSlot)
	for key := range shared {
		look := op(key)
		look.Hits = 0
		if out, err := take(s, look); err != nil || out[0].Err != nil || out[0].Used != charged[key].Load() {
			t.Errorf("%s: %+v, %v, want %d used", look.Key, out[0], err, charged[key].Load())
		}
	}
}

// Calls with keys on both nodes, and groups over them, are decided in each state of the move.
func TestCallsOverTwoNodesAreDecidedWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	slot, home := slotAndOwner(c)
	away := (home + 1) % 3
	s := openCluster(t, c, oneSlot)
	want := func(out []limiters.Verdict, err error, used ...int64) {
		t.Helper()
		must.Succeed(t, err)
		for i, v := range out {
			if v.Err != nil || v.Used != used[i] {
				t.Errorf("operation %d: %+v, want %d used", i, v, used[i])
			}
		}
	}
	together := func(keys ...string) limiters.Group { return opsOf(keys...) }
	alone := func(keys ...string) []limiters.Group { return limiters.Singles(opsOf(keys...)...) }
	out, err := take(s, opsOf("old")...)
	want(out, err, 1)
	c.OpenSlot(t, slot, home, away)
	// Some keys of the group exist on one node, the others on none.
	out, err = limiterstest.Take(s, append([]limiters.Group{together("old", "new")}, alone("old too", "alone", "alone")...)...)
	want(out, err, 2, 1, 1, 1, 2)
	out, err = limiterstest.Take(s, together("old"))
	want(out, err, 3)
	// The same in a call over several hash slots.
	untagged := openCluster(t, c, func(c *connect.Options, o *Options) {
		o.Tag = func(key string) string {
			if strings.HasPrefix(key, "k") {
				return key
			}
			return "tag"
		}
	})
	keys := keysOn(c, home, 2)
	out, err = limiterstest.Take(untagged, append([]limiters.Group{together("old", "new")}, alone(keys[0], "alone", keys[1], "old", "other")...)...)
	want(out, err, 4, 2, 1, 3, 1, 5, 1)
	out, err = limiterstest.Take(s, together("old", "new"))
	want(out, err, 6, 3)
	c.MoveKeys(t, slot, home, away)
	// One hash slot of the pipeline gets ASK, and then MOVED.
	out, err = take(untagged, opsOf(keys[0], "alone", keys[1])...)
	want(out, err, 2, 4, 2)
	c.AssignSlot(t, slot, away)
	out, err = take(untagged, opsOf(keys[0], "alone", keys[1])...)
	want(out, err, 3, 5, 3)
	out, err = limiterstest.Take(s, together("old", "new"))
	want(out, err, 7, 4)
}

// behindProxies starts a cluster with a proxy in front of each node, and a store with a connection
// to each.
func behindProxies(t *testing.T) (*redistest.Cluster, []*redistest.Proxy, *testStore) {
	t.Helper()
	var wires []*redistest.Proxy
	c := redistest.StartClusterBehind(t, 3, func(addr string) string {
		w := redistest.NewProxy(t)
		w.SetTarget(addr)
		wires = append(wires, w)
		return w.Addr
	})
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: []string{wires[0].Addr, wires[1].Addr}})
	out, err := take(s, opsOf(keysOn(c, 0, 1)[0], keysOn(c, 1, 1)[0], keysOn(c, 2, 1)[0])...)
	for _, v := range out {
		if err != nil || v.Err != nil {
			t.Fatal(out, err)
		}
	}
	return c, wires, s
}

// The reply of a node is lost. Its operations are charged once and get errors, the others stand,
// and nothing is sent again.
func TestLostConnectionNeverResends(t *testing.T) {
	t.Parallel()
	c, wires, s := behindProxies(t)
	keys := append(keysOn(c, 0, 2), keysOn(c, 1, 1)...)
	look := func(want ...int64) {
		t.Helper()
		ops := opsOf(keys...)
		for i := range ops {
			ops[i].Hits = 0
		}
		out, err := take(s, ops...)
		for i, v := range out {
			if err != nil || v.Err != nil || v.Used != want[i] {
				t.Fatalf("%s: %+v, %v, want %d used", keys[i], v, err, want[i])
			}
		}
	}
	look(1, 0, 1)
	wires[0].Cut(true)
	before := wires[0].Calls()
	out, err := take(s, opsOf(keys...)...)
	if err != nil || out[0].Err == nil || out[1].Err == nil || out[2].Err != nil || out[2].Used != 2 {
		t.Errorf("%+v, %v: want errors of the first two, and the last to stand", out, err)
	}
	if sent := wires[0].Calls() - before; sent != 2 {
		t.Errorf("%d scripts were sent for two slots, want 2", sent)
	}
	before = wires[0].Calls()
	if _, err := take(s, opsOf(keys[0])...); err == nil {
		t.Error("one slot: no error")
	}
	if sent := wires[0].Calls() - before; sent != 1 {
		t.Errorf("%d scripts were sent for one slot, want 1", sent)
	}
	before = wires[0].Calls()
	if _, err := take(s, opsOf(keys[:2]...)...); err == nil || !strings.HasPrefix(err.Error(), "redisstore: take at ") {
		t.Errorf("two slots of one node: %v, want the error of Take", err)
	}
	if sent := wires[0].Calls() - before; sent != 2 {
		t.Errorf("%d scripts were sent for two slots, want 2", sent)
	}
	wires[0].Cut(false)
	look(4, 2, 2)
}

// An unreachable node fails the operations in its hash slots and delays no others.
func TestUnreachableNodeFailsOnlyItsSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	s := openCluster(t, c)
	keys := append(append(keysOn(c, 0, 2), keysOn(c, 1, 2)...), keysOn(c, 2, 1)...)
	if _, err := take(s, opsOf(keys...)...); err != nil {
		t.Fatal(err)
	}
	c.Servers[1].Stop()
	out, err := take(s, opsOf(keys...)...)
	for i, v := range out {
		gone := i == 2 || i == 3
		if err != nil || gone != (v.Err != nil) || !gone && v.Used != 2 {
			t.Errorf("operation %d: %+v, %v", i, v, err)
		}
	}
	if _, err := take(s, opsOf(keys[2:4]...)...); err == nil {
		t.Error("of nothing but the node that is gone: no error")
	}
	// A node that hangs fails its operations at the deadline. Operations of other nodes are decided
	// before.
	longTimeout := openCluster(t, c, func(c *connect.Options, _ *Options) { c.Timeout = time.Second })
	if _, err := longTimeout.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	must.Succeed(t, c.Servers[0].Signal(syscall.SIGSTOP))
	redistest.Await(t, "an answer of the other node", func(context.Context) error {
		out, err := take(longTimeout, opsOf(keys[0], keys[4])...)
		if err != nil || out[0].Err == nil {
			return fmt.Errorf("got %+v, error %w, want an error of the first operation only", out, err) // a busy machine delays the other node too
		}
		return out[1].Err
	})
	must.Succeed(t, c.Servers[0].Signal(syscall.SIGCONT))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Take(ctx, limiters.Singles(opsOf(keys[:2]...)...), out[:2]); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
