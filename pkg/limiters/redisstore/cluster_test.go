package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

func openCluster(t *testing.T, c *redistest.Cluster, change ...func(*connect.Options, *Options)) *testStore {
	t.Helper()
	at, err := connect.ParseURL(connect.Cluster, "", strings.Join(c.Addrs(), ","))
	must.Succeed(t, err)
	var o Options
	for _, f := range change {
		f(&at, &o)
	}
	return openAt(t, at, o)
}

func oneSlot(_ *connect.Options, o *Options) { o.Tag = func(string) string { return "tag" } }

// keysOn returns keys in different hash slots of one node.
func keysOn(c *redistest.Cluster, node, count int) []string {
	var keys []string
	seen := map[uint16]bool{}
	for i := 0; len(keys) < count; i++ {
		op := limiters.Op{Key: fmt.Sprint("k", i), Limit: hourly}
		slot := hashSlotOf(keyOf("", &op))
		if c.Owner(int(slot)) == node && !seen[slot] {
			seen[slot], keys = true, append(keys, op.Key)
		}
	}
	return keys
}

func opsOf(keys ...string) []limiters.Op {
	ops := make([]limiters.Op, len(keys))
	for i, key := range keys {
		ops[i] = limiters.Op{Key: key, Limit: hourly, Hits: 1}
	}
	return ops
}

func TestClusterPassesTheSuite(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	// The suite has groups over several keys. The tag puts them into one hash slot.
	t.Run("suite", func(t *testing.T) {
		limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
			c.FlushAll(t)
			return openCluster(t, c, oneSlot)
		})
	})
	t.Run("random over all slots", func(t *testing.T) { c.FlushAll(t); randomWithoutGroups(t, openCluster(t, c)) })
	t.Run("races", func(t *testing.T) {
		c.FlushAll(t)
		limiterstest.RunRaces(t, []limiters.Store{openCluster(t, c), openCluster(t, c), openCluster(t, c)})
	})
	t.Run("slots", func(t *testing.T) { slotsAreThoseOfRedis(t, c) })
	t.Run("group over slots", func(t *testing.T) { aGroupOverSlotsIsNotCharged(t, c) })
	t.Run("wrong type", func(t *testing.T) { aBadKeyFailsAloneInACluster(t, c) })
	t.Run("scripts flushed", func(t *testing.T) { aNodeThatForgotTheScriptIsSentIt(t, c) })
	t.Run("acl", func(t *testing.T) { aUserOfTheACL(t, c) })
	t.Run("policy", func(t *testing.T) { theWorstPolicyIsTold(t, c) })
}

func randomWithoutGroups(t *testing.T, store limiterstest.TimedStore) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		for seed := range limiterstest.Seeds(20) {
			limiterstest.Agree(t, ungrouped{limiterstest.NewGenerator(name, seed)}, 60, store, limiterstest.NewReference())
		}
	}
}

// ungrouped makes the calls of a Generator with each operation in a group of its own.
type ungrouped struct{ *limiterstest.Generator }

func (u ungrouped) Next() (time.Time, []limiters.Group) {
	now, groups := u.Generator.Next()
	return now, limiters.Singles(slices.Concat(groups...)...)
}

func slotsAreThoseOfRedis(t *testing.T, c *redistest.Cluster) {
	for _, key := range []string{
		"", "123456789", "a", "{a}b", "b{a}", "{}a", "a{}{b}", "{a", "a}", "{{a}}", "}{a}", "ä{ö}",
		"w2{3:ugc|7:user_id=5:alice}h60",
	} {
		if got, want := int(hashSlotOf(key)), c.Slot(t, key); got != want {
			t.Errorf("%q: slot %d, want %d", key, got, want)
		}
	}
}

func aGroupOverSlotsIsNotCharged(t *testing.T, c *redistest.Cluster) {
	c.FlushAll(t)
	s := openCluster(t, c)
	keys := append(keysOn(c, 0, 2), keysOn(c, 1, 2)...)
	ops := opsOf(keys[0], keys[2], keys[1], keys[3], keys[0], keys[0])
	spanning := limiters.Group(ops[:2])
	// A group over one key is in one hash slot, even with several limits.
	ops[5].Limit = limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 5, Window: time.Hour})
	out, err := limiterstest.Take(s, spanning, ops[2:3], ops[3:4], ops[4:])
	must.Succeed(t, err)
	for i, v := range out {
		spans := i < 2
		if spans != errors.Is(v.Err, ErrGroupSpansHashSlots) || spans != limiters.IsUncharged(v.Err) || !spans && (v.Err != nil || v.Used != 1) {
			t.Errorf("operation %d: %+v", i, v)
		}
	}
	if out, err := limiterstest.Take(s, spanning); err != nil || out[0].Err == nil || out[1].Err == nil {
		t.Errorf("nothing else: %+v, %v", out, err)
	}
	tagged := openCluster(t, c, oneSlot)
	for used := int64(1); used <= 2; used++ {
		if out, err := limiterstest.Take(tagged, spanning); err != nil || out[0].Used != used || out[1].Used != used {
			t.Errorf("with a tag: %+v, %v", out, err)
		}
	}
}

func aBadKeyFailsAloneInACluster(t *testing.T, c *redistest.Cluster) {
	c.FlushAll(t)
	s := openCluster(t, c)
	keys := append(keysOn(c, 0, 2), keysOn(c, 2, 1)...)
	ops := opsOf(append(keys, keys[0])...)
	c.Client(t).HSet(t.Context(), keyOf("", &ops[1]), "a", "b")
	out, err := take(s, ops...)
	must.Succeed(t, err)
	var key *KeyError
	if !errors.As(out[1].Err, &key) || key.Key != keyOf("", &ops[1]) {
		t.Errorf("%+v: want an error of the key", out[1])
	}
	for i, used := range map[int]int64{0: 1, 2: 1, 3: 2} {
		if out[i].Err != nil || out[i].Used != used {
			t.Errorf("operation %d: %+v, want %d used", i, out[i], used)
		}
	}
}

func aNodeThatForgotTheScriptIsSentIt(t *testing.T, c *redistest.Cluster) {
	c.FlushAll(t)
	s := openCluster(t, c)
	keys := append(append(keysOn(c, 0, 3), keysOn(c, 1, 3)...), keysOn(c, 2, 1)...)
	for used := int64(1); used <= 4; used++ {
		c.Servers[used%3].Client(t).ScriptFlush(t.Context())
		out, err := take(s, opsOf(keys...)...)
		must.Succeed(t, err)
		for i, v := range out {
			if v.Err != nil || v.Used != used {
				t.Errorf("take %d of %s: %+v", used, keys[i], v)
			}
		}
	}
}

func aUserOfTheACL(t *testing.T, c *redistest.Cluster) {
	c.FlushAll(t)
	for _, server := range c.Servers {
		server.SetUser(t, "weir", append(aclRules, clusterRules...)...)
	}
	s := openCluster(t, c, func(c *connect.Options, o *Options) { o.KeyPrefix = "weir:"; c.Login.Set("weir:secret") })
	out, err := take(s, opsOf("a", "b", "c", "d", "e", "f")...)
	for i, v := range out {
		if err != nil || v.Err != nil || v.Used != 1 {
			t.Errorf("operation %d: %+v, %v", i, v, err)
		}
	}
	if r, err := s.Probe(t.Context()); r.RoundTrip <= 0 || err != nil {
		t.Errorf("Probe: %+v, error %v, want a round trip above 0", r, err)
	}
	for _, server := range c.Servers {
		refusedNothing(t, server)
	}
}

func theWorstPolicyIsTold(t *testing.T, c *redistest.Cluster) {
	for _, want := range []string{noEviction, "allkeys-lru"} {
		must.Succeed(t, c.Servers[1].Client(t).ConfigSet(t.Context(), "maxmemory-policy", want).Err())
		if got, err := openCluster(t, c).Probe(t.Context()); err != nil || got.EvictionPolicy != want {
			t.Errorf("%+v, %v, want %q", got, err, want)
		}
	}
	c.Servers[1].SetUser(t, "default", "-info")
	defer c.Servers[1].SetUser(t, "default", "+info")
	for range 10 { // in any order of the replies
		if got, err := openCluster(t, c).Probe(t.Context()); err != nil || got.EvictionPolicy != "" {
			t.Errorf("%+v, %v, want an unknown policy", got, err)
		}
	}
}

func TestClusterErrorsDoNotQuoteCommands(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, "--rename-command", "EVALSHA", "")
	s := openCluster(t, c)
	keys := append(keysOn(c, 0, 2), keysOn(c, 1, 2)...)
	overTwoSlots := opsOf(keys[0], keys[2]) // which fails by itself
	ops := opsOf(keys[1], keys[3])
	out, err := limiterstest.Take(s, overTwoSlots, ops[:1], ops[1:])
	said := fmt.Sprint(err)
	for _, v := range out {
		said += fmt.Sprint(v.Err)
	}
	if !unknownCommand(said, "EVALSHA") {
		t.Errorf("%s: want errors that name the command", said)
	}
	for _, key := range keys {
		if strings.Contains(said, "{"+key+"}") {
			t.Errorf("%s: want errors without %s", said, key)
		}
	}
}

func TestSingleRedisIsNotACluster(t *testing.T) {
	server := redistest.Start(t)
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: []string{server.Addr}})
	if _, err := take(s, opsOf("a", "b")...); err == nil || !strings.Contains(err.Error(), "cluster support disabled") {
		t.Errorf("take: %v", err)
	}
	if _, err := s.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), server.Addr) {
		t.Errorf("probe: %v", err)
	}
}

// A Take waits for the hash slots for its timeout, even if it begins during an earlier attempt to
// load them. It charges nothing.
func TestUnknownSlotsCostOneTimeout(t *testing.T) {
	const timeout = 50 * time.Millisecond
	inBubble(t, func(t *testing.T) {
		s := newTestStore(connect.Options{
			Type: connect.Cluster, Addrs: []string{"192.0.2.1:6379"}, Timeout: timeout, DialTimeout: time.Hour,
		}, Options{})
		defer s.Close()
		s.client.(*redis.ClusterClient).Options().Dialer = func(context.Context, string, string) (net.Conn, error) {
			silent, _ := net.Pipe() // in place of a socket, for whose reads the clock of synctest does not wait
			return silent, nil
		}
		var takes sync.WaitGroup
		for _, delay := range []time.Duration{0, timeout / 2} {
			takes.Go(func() {
				time.Sleep(delay)
				start := time.Now()
				_, err := take(s, opsOf("k")...)
				if took := time.Since(start); took != timeout || !errors.Is(err, errNoHashSlots) || !limiters.IsUncharged(err) {
					t.Errorf("a Take after %v: %v after %v, want an uncharged %v after %v", delay, err, took, errNoHashSlots, timeout)
				}
			})
		}
		takes.Wait()
	})
}

// Loading the hash slots is no call for operations, and later Takes do not wait for it.
func TestFirstTakeOfAClusterCountsOneCall(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: c.Addrs(), Timeout: longTimeout})
	_, err := take(s, opsOf("k")...)
	must.Succeed(t, err)
	if stats := s.Stats(); stats.Calls != 1 || stats.Ops != 1 {
		t.Errorf("%d calls with %d operations, want 1 with 1", stats.Calls, stats.Ops)
	}
	s.topology.(*cluster).hashSlotLoader = nil // a Take that waits in it panics
	_, err = take(s, opsOf("k")...)
	must.Succeed(t, err)
}

// While the hash slots of a frozen cluster are unknown, the open breaker lets one Take at a time
// wait for them, and nothing is charged. Once they are known, a Take makes one call.
func TestFrozenClusterIsTriedByOneTakeAtATime(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	s := openAt(t, connect.Options{Type: connect.Cluster, Addrs: c.Addrs(), Timeout: 200 * time.Millisecond})
	server := c.Servers[0]
	must.Succeed(t, server.Signal(syscall.SIGSTOP))
	defer func() { _ = server.Signal(syscall.SIGCONT) }()
	must.Until(t, "the breaker opens", func() bool {
		_, err := take(s, opsOf("k")...)
		return errors.Is(err, ErrBreakerOpen)
	})
	time.Sleep(openDuration)
	var takes sync.WaitGroup
	var tried atomic.Int32
	for range 20 {
		takes.Go(func() {
			if _, err := take(s, opsOf("k")...); !errors.Is(err, ErrBreakerOpen) {
				tried.Add(1)
			}
		})
	}
	takes.Wait()
	if n := tried.Load(); n != 1 {
		t.Errorf("%d Takes tried to reach the cluster at the same time, want 1", n)
	}
	must.Succeed(t, server.Signal(syscall.SIGCONT))
	must.Until(t, "a decision", func() bool {
		_, err := take(s, opsOf("k")...)
		return err == nil
	})
	before := s.Stats().Calls
	out, err := take(s, opsOf("k")...)
	if err != nil || out[0].Used != 2 {
		t.Errorf("%+v, %v, want 2 used", out, err)
	}
	if n := s.Stats().Calls - before; n != 1 {
		t.Errorf("a Take made %d calls, want 1", n)
	}
}

// A node that lacks the script, or whose time is unknown, costs a few more round trips, not one for
// each hash slot.
func TestManySlotsAreFewRoundTrips(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 1)
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	s, c := openCluster(t, nodes), nodes.Servers[0].Client(t)
	reads := func() (n int) {
		_, text, _ := strings.Cut(c.Info(t.Context(), "stats").Val(), "total_reads_processed:")
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for used, what := range []string{"the time is not known", "all is known", "the script is not known"} {
		if used == 2 {
			c.ScriptFlush(t.Context())
		}
		before := reads()
		out, err := take(s, opsOf(keys...)...)
		must.Succeed(t, err)
		for _, v := range out {
			if v.Err != nil || v.Used != int64(used+1) {
				t.Fatalf("%s: %+v, want %d used", what, v, used+1)
			}
		}
		if n := reads() - before; n > len(keys)/2 {
			t.Errorf("%s: %d reads for %d slots", what, n, len(keys))
		}
	}
}
