package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// longTimeout is longer than any call takes on a busy machine.
const longTimeout = time.Minute

func open(t *testing.T, server *redistest.Server) *testStore {
	t.Helper()
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// keyOf returns the key of an operation's state in Redis.
func keyOf(prefix string, op *limiters.Op) string { return keyNamer{keyPrefix: prefix}.key(op) }

func (n keyNamer) key(op *limiters.Op) string {
	return string(n.appendKey(nil, op.Key, op.Limit.StateID()))
}

func TestStorePassesTheSuite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limiterstest.Run(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
		return open(t, server)
	})
}

func TestThreeReplicasAdmitExactlyTheLimit(t *testing.T) {
	server := redistest.Start(t)
	limiterstest.RunRaces(t, []limiters.Store{open(t, server), open(t, server), open(t, server)})
}

var hourly = perHour(100)

// perHour returns a limit of hits in an hour that begins with the first hit, so that no window ends
// during a test.
func perHour(most int64) *limiters.Limit {
	spec := limiters.Spec{Algorithm: "fixed_window", Max: most, Window: time.Hour}
	spec.Params.WindowStart = limiters.StartByFirstHit
	return limiterstest.MustLimit(spec)
}

// reserving returns a limit per hour whose reservations last an hour. A fixed window begins with
// the first hit.
func reserving(algorithm string, most int64) *limiters.Limit {
	spec := limiters.Spec{Algorithm: algorithm, Max: most, Window: time.Hour}
	spec.Params.Reserve.TTL = time.Hour
	if algorithm == "fixed_window" {
		spec.Params.WindowStart = limiters.StartByFirstHit
	}
	return limiterstest.MustLimit(spec)
}

func take(s *testStore, ops ...limiters.Op) ([]limiters.Verdict, error) {
	return limiterstest.Take(s, limiters.Singles(ops...)...)
}

func TestFlushedScriptIsSentAgain(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	for used := int64(1); used <= 3; used++ {
		out, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		if err != nil || out[0].Used != used {
			t.Fatalf("take %d: %+v, %v", used, out[0], err)
		}
		must.Succeed(t, server.Client(t).ScriptFlush(context.Background()).Err())
	}
}

// A host name may point to a new master while the old one still answers, as its replica.
func TestDemotedMasterIsDisconnected(t *testing.T) {
	old, master := redistest.Start(t), redistest.Start(t)
	name := redistest.NewProxy(t)
	name.SetTarget(old.Addr)
	s := newTestStore(connect.Options{Addr: name.Addr, Timeout: longTimeout}, Options{})
	defer s.Close()
	if _, err := take(s, opsOf("k")...); err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(master.Addr)
	must.Succeed(t, err)
	must.Succeed(t, old.Client(t).Do(context.Background(), "replicaof", host, port).Err())
	name.SetTarget(master.Addr)
	if _, err := take(s, opsOf("k")...); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("of the replica: %v, want READONLY", err)
	}
	if out, err := take(s, opsOf("k")...); err != nil || out[0].Err != nil || out[0].Used != 1 {
		t.Errorf("of the new master: %+v, %v", out, err)
	}
}

// Indices in a call have two bytes, and an operation has up to three keys.
func TestTooManyOpsChargeNothing(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	maximum := perHour(1 << 20)
	ops := slices.Repeat([]limiters.Op{{Key: "k", Limit: maximum, Hits: 1}}, maxBatchOps+1)
	if _, err := take(s, ops...); !errors.Is(err, ErrTooManyOps) || !limiters.IsUncharged(err) {
		t.Errorf("%d operations: %v, want %v", len(ops), err, ErrTooManyOps)
	}
	if out, err := take(s, ops[1:]...); err != nil || out[len(out)-1].Used != int64(maxBatchOps) {
		t.Errorf("one fewer: %v, want all charged, and none of the others", err)
	}
}

// A Redis command has at most 1,000 keys, because Lua puts them on its stack.
func TestManyKeysInOneCall(t *testing.T) {
	s := open(t, redistest.Start(t))
	ops := make([]limiters.Op, maxBatchOps)
	for i := range ops {
		ops[i] = limiters.Op{Key: strconv.Itoa(i), Limit: perHour(9), Hits: 1}
	}
	for used := range int64(3) {
		out, err := take(s, ops...)
		must.Succeed(t, err)
		for i, v := range out {
			if !v.Allowed || v.Used != used+1 {
				t.Fatalf("key %d: %+v, want %d used", i, v, used+1)
			}
		}
	}
}

func TestUnreadableKeyFailsAlone(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	ctx := context.Background()
	for _, name := range limiterstest.WindowedAlgorithms() {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 5, Window: time.Hour})
		op := func(key string) limiters.Op { return limiters.Op{Key: key, Limit: limit, Hits: 1} }
		wrong, unreadable, half := op("wrong type"), op("unreadable"), op("good")
		half.Key = "unreadable records"
		c.HSet(ctx, keyOf("", &wrong), "a", "b")
		if name == "sliding_log" {
			c.RPush(ctx, keyOf("", &unreadable), "12345")
			// The first record is valid, the second is not.
			c.RPush(ctx, keyOf("", &half), "\x00\x00\x00\x00\x00\x00\x00\x00\x00", "12345")
		} else {
			c.Set(ctx, keyOf("", &unreadable), "12345", 0)
			c.Set(ctx, keyOf("", &half), "99999999999999999999 1 1 1", 0)
		}
		out, err := take(s, op("good"), wrong, op("good"), unreadable, half, op("good"))
		if err != nil {
			t.Fatal(name, err)
		}
		for i, v := range out {
			bad := i == 1 || i == 3 || i == 4
			if bad != (v.Err != nil) {
				t.Errorf("%s operation %d: %+v", name, i, v)
			}
			var key *KeyError
			if bad && (!errors.As(v.Err, &key) || !strings.HasPrefix(key.Key, "w2{") || strings.Contains(v.Err.Error(), "w2{")) {
				t.Errorf("%s operation %d: got %v, want a KeyError whose text omits the key", name, i, v.Err)
			}
		}
		if out[5].Used != 3 {
			t.Errorf("%s: the good key has the usage %d, want 3", name, out[5].Used)
		}
		if typ := c.Type(ctx, keyOf("", &wrong)).Val(); typ != "hash" {
			t.Errorf("%s: the key of a wrong type was overwritten with a %s, want hash", name, typ)
		}
	}
}

func TestGroupWithUnreadableKeyIsNotCharged(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	bad := limiters.Op{Key: "bad", Limit: hourly, Hits: 1}
	c.HSet(context.Background(), keyOf("", &bad), "a", "b")
	out, err := limiterstest.Take(s, limiters.Group{{Key: "good", Limit: hourly, Hits: 1}, bad})
	if err != nil || out[0].Err != nil || out[0].Used != 0 || out[1].Err == nil {
		t.Errorf("%+v, %v: want no error and no usage for the first operation, and an error for the second", out, err)
	}
}

// A refund is allowed without reading the whole log, so an unreadable entry can fail it after the
// group was allowed, and after its leases were opened.
func TestGroupIsNotChargedIfItsRefundFails(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	refund := limiters.Op{Key: "log", Limit: millionAMinute, Hits: -50}
	withPenalty := limiterstest.MustLimit(limiters.Spec{
		Algorithm: "fixed_window", Max: 5, Window: time.Hour,
		Params: limiters.Params{Penalty: limiters.PenaltySpec{After: 2, Within: time.Hour, For: time.Hour}},
	})
	for name, limit := range map[string]*limiters.Limit{
		"without extra state": hourly, "with a penalty": withPenalty, "with a reservation": reserving("fixed_window", 1000),
		"with slots": slotsOfKey(5, time.Hour),
	} {
		fill(t, c, keyOf("", &refund), 100)
		for i := int64(2); i < 100; i++ {
			must.Succeed(t, c.LSet(t.Context(), keyOf("", &refund), i, "12345").Err())
		}
		charge, out := limiters.Op{Key: name, Limit: limit, Hits: 1}, make([]limiters.Verdict, 2)
		if limit.UsesLeases() {
			charge.Lease = leaseID(1)
		}
		err := s.TakeAt(t.Context(), logStart.Add(time.Second), []limiters.Group{{charge, refund}}, out)
		if err != nil || out[0].Err == nil || out[1].Err == nil {
			t.Errorf("%s: %+v %v, want an error for both operations", name, out, err)
		}
		if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 1 {
			t.Errorf("%s: the keys are %q, want only the log: another operation of the group was charged", name, keys)
		}
	}
}

// oomText is a part of the error with which a full Redis rejects a write.
const oomText = "OOM"

func TestFullRedisFailsCharges(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	if out, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	setFull(t, c, true)
	out, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 0}, limiters.Op{Key: "other", Limit: hourly, Hits: 1})
	if err != nil || out[0].Err != nil || out[0].Used != 1 || out[1].Err == nil || !strings.Contains(out[1].Err.Error(), oomText) {
		t.Errorf("%+v, %v, want a peek that is answered and a charge that fails with OOM", out, err)
	}
	setFull(t, c, false)
	if out, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 0}); err != nil || out[0].Used != 1 {
		t.Errorf("afterwards: %+v, %v", out, err)
	}
}

func setFull(t *testing.T, c *redis.Client, isFull bool) {
	t.Helper()
	bytes := "0"
	if isFull {
		bytes = "1"
	}
	must.Succeed(t, c.ConfigSet(context.Background(), "maxmemory", bytes).Err())
}

// A denial is valid even if it cannot be counted. Otherwise an attacker could pass by filling
// Redis.
func TestFullRedisStillDenies(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	for _, name := range limiterstest.WindowedAlgorithms() {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 2, Window: 365 * 24 * time.Hour, CountDenied: true})
		full := limiters.Op{Key: "full", Limit: limit, Hits: 2}
		if _, err := take(s, full); err != nil {
			t.Fatal(err)
		}
		setFull(t, c, true)
		one := limiters.Op{Key: "full", Limit: limit, Hits: 1}
		for _, ops := range [][]limiters.Op{{one}, {one, one}} {
			out, err := take(s, ops...)
			for _, v := range out {
				if err != nil || v.Err != nil || v.Allowed || v.RetryAfter <= 0 {
					t.Errorf("%s: %+v, %v, want denials", name, out, err)
				}
			}
		}
		setFull(t, c, false)
	}
}

// The reasons of 10,000 failed operations are more values than Lua's stack holds.
func TestEachOfManyFailuresHasItsReason(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	ops := make([]limiters.Op, 10_000)
	for i := range ops {
		ops[i] = limiters.Op{Key: fmt.Sprint(i), Limit: hourly, Hits: 1}
	}
	setFull(t, c, true)
	out, err := take(s, ops...)
	setFull(t, c, false)
	must.Succeed(t, err)
	for i, v := range out {
		if v.Err == nil || !strings.Contains(v.Err.Error(), oomText) {
			t.Fatalf("operation %d: %+v, want an error with OOM", i, v)
		}
	}
}

// A group is denied because of the sum of its hits on a key. The denial stays valid if a full Redis
// cannot count it, although the hits of one operation would fit.
func TestFullRedisStillDeniesTheSumOfAGroup(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	for _, name := range limiterstest.WindowedAlgorithms() {
		for _, penalty := range []limiters.PenaltySpec{{}, {After: 9, Within: time.Minute, For: 10 * time.Minute}} {
			limit := limiterstest.MustLimit(limiters.Spec{
				Algorithm: name, Max: 5, Window: 365 * 24 * time.Hour, CountDenied: true, Params: limiters.Params{Penalty: penalty},
			})
			group := func(key string) limiters.Group {
				return slices.Repeat(limiters.Group{{Key: key, Limit: limit, Hits: 3}}, 2)
			}
			key := fmt.Sprint("sum ", penalty)
			setFull(t, c, true)
			// A later group on the key does not change what the first has checked.
			out, err := limiterstest.Take(s, group(key), limiters.Group{{Key: key, Limit: limit, Hits: 0}, {Key: "other", Limit: limit, Hits: 0}})
			setFull(t, c, false)
			for _, v := range out[:2] {
				if err != nil || v.Err != nil || v.Allowed || v.Used != 0 {
					t.Errorf("%s %+v: %+v, %v, want denials, and nothing charged", name, penalty, out, err)
				}
			}
		}
	}
}

// As above, while a penalty that began earlier in the call cannot be saved.
func TestFullRedisStillDeniesTheSumOfAGroupDuringAPenalty(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	spec := perHour(5).Spec()
	spec.Params.Penalty = limiters.PenaltySpec{After: 1, Within: time.Minute, For: 10 * time.Minute}
	limit := limiterstest.MustLimit(spec)
	op := func(n int64) limiters.Op { return limiters.Op{Key: "k", Limit: limit, Hits: n} }
	setFull(t, c, true)
	out, err := limiterstest.Take(s, limiters.Group{op(3), op(3)}, limiters.Group{op(3), op(3)})
	setFull(t, c, false)
	for i, v := range out {
		if err != nil || v.Err != nil || v.Allowed {
			t.Errorf("operation %d: %s, error %v, want a denial", i, limiterstest.Format(v), err)
		}
	}
}

// An operation is denied because of an operation before it in the call, which a full Redis then
// does not charge. So the second operation would fit, and must fail: a denial would be remembered
// and counted.
func TestFullRedisDeniesNoHitThatFits(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	for _, name := range limiterstest.WindowedAlgorithms() {
		for _, penalty := range []limiters.PenaltySpec{{}, {After: 2, Within: time.Minute, For: 10 * time.Minute}} {
			limit := limiterstest.MustLimit(limiters.Spec{
				Algorithm: name, Max: 3, Window: 365 * 24 * time.Hour, Params: limiters.Params{Penalty: penalty},
			})
			for i, hits := range [][2]int64{{3, 1}, {2, 2}} { // equal operations are one run
				one := limiters.Op{Key: fmt.Sprint(penalty, i), Limit: limit, Hits: hits[0]}
				two := one
				two.Hits = hits[1]
				setFull(t, c, true)
				out, err := take(s, one, two)
				setFull(t, c, false)
				for j, v := range out {
					if err != nil || v.Err == nil || !strings.Contains(v.Err.Error(), oomText) {
						t.Errorf("%s %+v, operation %d of %v: %+v, %v, want an error", name, penalty, j, hits, v, err)
					}
				}
				if out, err := take(s, two); err != nil || !out[0].Allowed || out[0].Used != two.Hits {
					t.Errorf("%s %+v, afterwards: %+v, %v, want only this charge", name, penalty, out, err)
				}
			}
		}
	}
}

// A group is charged as a whole or not at all, even if Redis rejects one of its writes.
func TestFullRedisChargesNoPartOfAGroup(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	limit := func(name string) *limiters.Limit {
		return limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 200, Window: time.Minute, Params: limiterstest.FirstHitParams(name)})
	}
	take := func(now time.Time, n int64) []limiters.Verdict {
		t.Helper()
		ops, out := limiters.Group{}, make([]limiters.Verdict, 3)
		for _, name := range []string{"funnel", "sliding_log", "fixed_window"} {
			ops = append(ops, limiters.Op{Key: "k", Limit: limit(name), Hits: n})
		}
		must.Succeed(t, s.TakeAt(context.Background(), now, []limiters.Group{ops}, out))
		return out
	}
	for i := range 100 { // a log that is a list
		take(logStart.Add(time.Duration(i)*time.Microsecond), 1)
	}
	// By now all hits have expired. A full Redis permits deleting the old log, and then all other
	// writes of the script.
	later := logStart.Add(2 * time.Minute)
	setFull(t, c, true)
	refused := take(later, 1)
	setFull(t, c, false)
	for i, v := range refused {
		if v.Err == nil {
			t.Errorf("operation %d: %+v, want an error", i, v)
		}
	}
	for i, v := range take(later, 0) {
		if v.Used != 0 {
			t.Errorf("operation %d was charged: %+v", i, v)
		}
	}
}

// The groups of one call share a key that a full Redis does not save. The log of a later group
// begins its save by deleting old entries. A full Redis permits this, and then all other writes.
func TestFullRedisChargesNoPartOfGroupsThatShareAKey(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	window := perHour(200)
	log := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 200, Window: time.Minute})
	tenant := limiters.Op{Key: "tenant", Limit: log, Hits: 1}
	take := func(now time.Time, groups ...limiters.Group) []limiters.Verdict {
		t.Helper()
		out := make([]limiters.Verdict, 2*len(groups))
		must.Succeed(t, s.TakeAt(context.Background(), now, groups, out))
		return out
	}
	for i := range 100 { // a log that is a list
		take(logStart.Add(time.Duration(i)*time.Microsecond), limiters.Group{tenant, tenant})
	}
	take(logStart.Add(30*time.Second), limiters.Group{tenant, tenant})
	later := logStart.Add(80 * time.Second) // only the last hits still count
	groups := []limiters.Group{{}, {}, {}}
	for i, other := range []limiters.Op{tenant, {Key: "ip1", Limit: window, Hits: 1}, {Key: "ip2", Limit: window, Hits: 1}} {
		groups[i] = limiters.Group{{Key: "alice", Limit: window, Hits: 1}, other}
	}
	setFull(t, c, true)
	refused := take(later, groups...)
	setFull(t, c, false)
	for i, op := range limiters.EachOp(groups) {
		v := refused[i]
		out := make([]limiters.Verdict, 1)
		must.Succeed(t, s.TakeAt(context.Background(), later, limiters.Singles(limiters.Op{Key: op.Key, Limit: op.Limit, Kind: limiters.OpInspect}), out))
		if v.Err == nil || op.Key != "tenant" && out[0].Used != 0 {
			t.Errorf("%s: error %v and %d used, want an error and no charge", op.Key, v.Err, out[0].Used)
		}
	}
}

// Every key has an expiry that is not before the key has fully reset.
func TestEveryKeyHasAnExpiry(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	ctx := context.Background()
	for i, name := range limiterstest.WindowedAlgorithms() {
		for _, params := range []limiters.Params{{}, limiterstest.FirstHitParams(name)} {
			limit := limiterstest.MustLimit(limiters.Spec{
				Algorithm: name, Max: 5, Window: time.Minute, CountDenied: true, Params: params,
			})
			for _, n := range []int64{1, 3, 4, -2, 0, -1, 9, 5, -100, 2} {
				start := time.Now()
				out, err := take(s, limiters.Op{Key: fmt.Sprint(i, params), Limit: limit, Hits: n})
				if err != nil || out[0].Err != nil {
					t.Fatal(out, err)
				}
				for _, key := range c.Keys(ctx, "*").Val() {
					ttl := c.PTTL(ctx, key).Val() // -1 without an expiry, and -2 if it has expired meanwhile
					if ttl == -1 || ttl > 10*time.Minute+2*time.Second {
						t.Fatalf("after %s n=%d: %q expires in %v", name, n, key, ttl)
					}
				}
				op := limiters.Op{Key: fmt.Sprint(i, params), Limit: limit}
				if ttl := c.PTTL(ctx, keyOf("", &op)).Val(); ttl > 0 && ttl+time.Since(start) < out[0].ResetAfter {
					t.Fatalf("%s n=%d: expires in %v, fully reset in %v", name, n, ttl, out[0].ResetAfter)
				}
			}
		}
	}
}

func TestBracesInKeyDoNotChangeSlot(t *testing.T) {
	long := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Hour})
	tag := func(key string) string {
		_, rest, _ := strings.Cut(key, "{")
		tag, _, _ := strings.Cut(rest, "}")
		return tag
	}
	for _, key := range []string{"k", "1}", "1{}2", "{", "1:}{a}", "1}}"} {
		a, b := keyOf("eg:rl:", &limiters.Op{Key: key, Limit: hourly}), keyOf("eg:rl:", &limiters.Op{Key: key, Limit: long})
		if a == b || tag(a) != tag(b) || tag(a) == "" {
			t.Errorf("%q: %q and %q have the hash tags %q and %q", key, a, b, tag(a), tag(b))
		}
	}
}

// A tag decides the hash slot. Different tags or keys make different keys in Redis.
func TestTagDecidesTheSlot(t *testing.T) {
	funnel := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Hour})
	seen := map[string]string{}
	for _, tag := range []string{"", "a", "a}a", "3:ugc", "1:}", "{", "1:a"} {
		names := keyNamer{keyPrefix: "p:", tag: func(string) string { return tag }}
		slot := -1
		for _, key := range []string{"k", "a}k", "}k", "a", "a}a}k", "}a}k"} {
			for _, limit := range []*limiters.Limit{hourly, funnel} {
				name := names.key(&limiters.Op{Key: key, Limit: limit})
				what := fmt.Sprintf("%q of %q %s", tag, key, limit.StateID())
				if seen[name] != "" {
					t.Errorf("%s and %s are both %q", seen[name], what, name)
				}
				seen[name] = what
				if got := int(hashSlotOf(name)); tag != "" && slot >= 0 && got != slot {
					t.Errorf("%s is in slot %d, others of its tag in %d", what, got, slot)
				}
				slot = int(hashSlotOf(name))
			}
		}
	}
}

func TestUnreachableRedisErrorNamesItsAddress(t *testing.T) {
	addr := redistest.FreeAddr(t)
	s := newTestStore(connect.Options{Addr: addr, Timeout: time.Second}, Options{})
	defer s.Close()
	out, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1})
	if err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("%+v, %v: want an error that names %s", out, err, addr)
	}
	if _, err := s.Probe(context.Background()); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("probe: %v: want an error that names %s", err, addr)
	}
}

func TestProbeAfterCloseFails(t *testing.T) {
	s := open(t, redistest.Start(t))
	must.Succeed(t, s.Close())
	if _, err := s.Probe(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want %v", err, ErrClosed)
	}
}

func TestProbeReportsTheEvictionPolicy(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	if r, err := open(t, server).Probe(context.Background()); err != nil || r.EvictionPolicy != "allkeys-lru" || !r.MayEvict() {
		t.Errorf("%+v, %v, want allkeys-lru", r, err)
	}
}

// A server that accepts connections and never answers costs a call its timeout, and no operation is
// sent twice.
func TestSilentRedisCostsOneTimeoutAndOneCall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	scriptCounts := make(chan int, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					if scripts := strings.Count(strings.ToLower(string(buf[:n])), "evalsha"); scripts > 0 {
						scriptCounts <- scripts
					} else if _, err := conn.Write([]byte("-ERR unknown command\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	redistest.Await(t, "the script", func(context.Context) error {
		s := newTestStore(connect.Options{Addr: l.Addr().String(), Timeout: 100 * time.Millisecond}, Options{})
		defer s.Close()
		_, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		if err == nil || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
			t.Fatalf("%v: want a deadline", err)
		}
		_ = s.Close()
		total := 0
		for len(scriptCounts) > 0 {
			total += <-scriptCounts
		}
		if total > 1 {
			t.Errorf("the script was called %d times, want once", total)
		}
		if total == 0 {
			return fmt.Errorf("it was not sent in time: %w", err)
		}
		return nil
	})
}

var _ redis.Cmder = command{}
