package redisstore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func endOrCharge(end bool) limiters.OpKind {
	if end {
		return limiters.OpEnd
	}
	return limiters.OpAddHits
}

func slotsOfKey(maximum int64, ttl time.Duration) *limiters.Limit {
	return limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: maximum, Params: limiters.Params{LeaseTTL: ttl}})
}

func leaseID(id int) limiters.LeaseID { return limiters.NewLeaseID(nil, fmt.Sprint(id)) }

// leaseCalls makes random calls of charges, ends and peeks on a few keys with a few ids. Time
// stands still, goes on to an edge and steps back.
type leaseCalls struct {
	rnd    *rand.Rand
	prefix string
	ids    int
	limits []*limiters.Limit
	beside *limiters.Limit // for operations grouped with those under limits
	now    time.Time
	last   []limiters.Verdict
}

func newLeaseCalls(seed uint64) *leaseCalls {
	rnd := rand.New(rand.NewPCG(seed, 5))
	ttl := time.Duration(1+rnd.Int64N(3)*7) * time.Second
	c := &leaseCalls{rnd: rnd, prefix: fmt.Sprint("leases ", seed, " "), ids: 6, now: logStart, beside: hourly}
	for _, maximum := range []int64{3, 3, 5, 1, 0} {
		c.limits = append(c.limits, slotsOfKey(maximum, ttl))
	}
	c.limits = append(c.limits, slotsOfKey(4, 2*ttl), slotsOfKey(4, ttl/2))
	return c
}

// The steps of the clock and the forms of an operation, each as often as its weight.
var (
	clockSteps = []string{"none", "none", "none", "short", "short", "long", "back", "to an edge", "to an edge", "to an edge"}
	opForms    = []string{"peek or several", "refund", "no id", "end", "end", "end", "end", "open", "open", "open", "open", "open"}
)

// An operation is under another limit than the first, and a group has a further one, with a
// probability of 1 in so many.
const otherLimitIn, furtherOpIn = 4, 3

// Observe implements [limiterstest.CallSource].
func (c *leaseCalls) Observe(verdicts []limiters.Verdict) { c.last = verdicts }

// Next implements [limiterstest.CallSource].
func (c *leaseCalls) Next() (time.Time, []limiters.Group) {
	step := time.Duration(0)
	switch clockSteps[c.rnd.IntN(len(clockSteps))] {
	case "short":
		step = time.Duration(c.rnd.Int64N(3)) * time.Microsecond
	case "long":
		step = time.Duration(c.rnd.Int64N(6_000_000)) * time.Microsecond
	case "back":
		step = -time.Duration(c.rnd.Int64N(9_000_000)) * time.Microsecond
	case "to an edge":
		for _, v := range c.last {
			if edge := max(v.RetryAfter, v.ResetAfter); edge > 0 {
				step = edge - time.Duration(c.rnd.Int64N(2))*time.Microsecond
			}
		}
	}
	c.now = c.now.Add(step)
	var groups []limiters.Group
	for range 1 + c.rnd.IntN(4) {
		op := c.op()
		if op.Kind == limiters.OpEnd {
			groups = append(groups, limiters.Group{op})
			continue
		}
		g := limiters.Group{op}
		for c.rnd.IntN(furtherOpIn) == 0 {
			op = c.op()
			if op.Kind == limiters.OpEnd {
				op = limiters.Op{Key: c.prefix + "beside", Limit: c.beside, Hits: int64(c.rnd.IntN(60))}
			}
			g = append(g, op)
		}
		groups = append(groups, g)
	}
	return c.now, groups
}

func (c *leaseCalls) op() limiters.Op {
	op := limiters.Op{Key: c.prefix + string("aaab"[c.rnd.IntN(4)]), Limit: c.limits[0], Hits: 1, Lease: leaseID(c.rnd.IntN(c.ids))}
	if c.rnd.IntN(otherLimitIn) == 0 {
		op.Limit = c.limits[c.rnd.IntN(len(c.limits))]
	}
	switch opForms[c.rnd.IntN(len(opForms))] {
	case "peek or several":
		op.Hits = int64(c.rnd.IntN(4))
	case "refund":
		op.Hits = -int64(c.rnd.IntN(4))
	case "no id":
		op.Lease = limiters.LeaseID{}
	case "end":
		op.Kind = limiters.OpEnd
	}
	return op
}

// newReservationCalls is newLeaseCalls for reservations. With more ids, the key of the reservations
// grows from a hash to a sorted set, and becomes a hash when that is empty.
func newReservationCalls(seed uint64) *leaseCalls {
	c := newLeaseCalls(seed)
	c.prefix, c.ids = fmt.Sprint("reservations ", seed, " "), []int{6, 20, 200}[seed%3]
	algorithms := limiterstest.WindowedAlgorithms()
	algorithm := algorithms[c.rnd.IntN(len(algorithms))]
	unsettled := []string{limiters.UnsettledCharge, limiters.UnsettledRelease}[c.rnd.IntN(2)]
	c.limits = nil
	for _, ttl := range []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 5 * time.Second} {
		for _, maximum := range []int64{5, int64(c.ids)} {
			c.limits = append(c.limits, limiterstest.MustLimit(limiters.Spec{
				Algorithm: algorithm, Max: maximum, Window: 30 * time.Second,
				Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: ttl, Unsettled: unsettled}},
			}))
		}
	}
	c.limits[0] = c.limits[1]
	return c
}

// The leases of Redis and of the core agree, verdict by verdict.
func TestLeasesMatchReference(t *testing.T) { matchReference(t, newLeaseCalls) }

func TestReservationsMatchReference(t *testing.T) { matchReference(t, newReservationCalls) }

func matchReference(t *testing.T, calls func(seed uint64) *leaseCalls) {
	server := redistest.Start(t)
	s := open(t, server)
	for seed := range limiterstest.Seeds(60) {
		c, steps := calls(seed), 100
		if c.ids > 100 {
			steps = 500
		}
		limiterstest.Agree(t, c, steps, s, limiterstest.NewReference())
	}
}

// A key holds at most MaxLeases open reservations, and remembers as many ids that ended before they
// were opened. A further reservation is denied: an error would let Envoy admit the request.
func TestReservationBeyondMaxLeasesIsDenied(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	limit := reserving("fixed_window", 1<<40)
	now := time.Now() // of all operations: on a slow machine too, no end is forgotten after EndedTTL
	takeAll := func(ops ...limiters.Op) []limiters.Verdict {
		t.Helper()
		out := make([]limiters.Verdict, len(ops))
		must.Succeed(t, s.TakeAt(t.Context(), now, limiters.Singles(ops...), out))
		return out
	}
	// A key with only ends would expire after EndedTTL. This reservation keeps it for an hour.
	takeAll(limiters.Op{Key: "end true", Limit: limit, Hits: 1, Lease: leaseID(-1)})
	ops := make([]limiters.Op, limiters.MaxLeases+2)
	for _, end := range []bool{false, true} {
		for i := range ops {
			ops[i] = limiters.Op{Key: fmt.Sprint("end ", end), Limit: limit, Hits: 1, Lease: leaseID(i), Kind: endOrCharge(end)}
			if end {
				ops[i].Hits = 0
			}
		}
		for i, v := range takeAll(ops...) {
			if full := !end && i >= limiters.MaxLeases; v.Err != nil || v.TooManyLeases != full || v.Allowed == full {
				t.Fatalf("operation %d, end %v: %+v", i, end, v)
			}
		}
	}
	for _, i := range []int{0, limiters.MaxLeases - 1, limiters.MaxLeases} {
		v := takeAll(limiters.Op{Key: "end true", Limit: limit, Hits: 1, Lease: leaseID(i)})[0]
		if opens := i >= limiters.MaxLeases; v.Err != nil || (v.Used > 1) != opens {
			t.Errorf("operation with id %d, whose end came first: %+v", i, v)
		}
	}
}

// An operation that opens or ends a lease runs as many commands on a key with 10,000 open leases as
// on one with 10.
func TestLeasesNeedFewCommands(t *testing.T) {
	server := redistest.Start(t)
	s, c, limit := open(t, server), server.Client(t), slotsOfKey(limiters.MaxLeases, time.Hour)
	fill := make([]limiters.Op, limiters.MaxLeases-10)
	for i := range fill {
		fill[i] = limiters.Op{Key: "k", Limit: limit, Hits: 1, Lease: leaseID(i)}
	}
	if _, err := take(s, fill...); err != nil {
		t.Fatal(err)
	}
	for _, end := range []bool{false, true} {
		must.Succeed(t, c.ConfigResetStat(context.Background()).Err())
		out, err := take(s, limiters.Op{Key: "k", Limit: limit, Hits: 1, Lease: leaseID(-1), Kind: endOrCharge(end)})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out[0].Err)
		}
		for command, calls := range commands(t, c) {
			if maximum := map[string]int{
				"evalsha": 1, "time": 1, "zmscore": 1, "zadd": 1, "zrem": 1, "zrange": 1, "config|resetstat": 1, "config": 1, "hello": 1,
			}[command]; calls > maximum {
				t.Errorf("end %v: %d calls of %s, want at most %d", end, calls, command, maximum)
			}
		}
	}
}

// An operation drops at most 1,000 expired leases, so it never blocks Redis for long.
func TestOpDropsFewExpiredLeases(t *testing.T) {
	server := redistest.Start(t)
	s, c, limit := open(t, server), server.Client(t), slotsOfKey(limiters.MaxLeases, time.Hour)
	for _, slots := range []int64{1, 2} {
		leases := limiters.MaxLeases / int(slots)
		fill := make([]limiters.Op, leases)
		for i := range fill {
			fill[i] = limiters.Op{Key: "k", Limit: limit, Hits: slots, Lease: leaseID(i)}
		}
		takeAt := func(now time.Time, ops ...limiters.Op) int64 {
			out := make([]limiters.Verdict, len(ops))
			must.Succeed(t, s.TakeAt(t.Context(), now, limiters.Singles(ops...), out))
			return out[len(out)-1].Used
		}
		takeAt(logStart, fill[1:]...)
		takeAt(logStart.Add(time.Minute), fill[0])
		key, later := keyOf("", &fill[0]), logStart.Add(time.Hour)
		members := c.ZCard(t.Context(), key).Val()
		for remaining := leases - 1000; remaining > 1000; remaining -= 1000 {
			if used := takeAt(later, limiters.Op{Key: "k", Limit: limit}); used != int64(remaining)*slots {
				t.Fatalf("%d slots used, want %d", used, int64(remaining)*slots)
			}
			rest := c.ZCard(t.Context(), key).Val()
			if dropped := members - rest; dropped != 1000*slots { // a lease of several slots has two members
				t.Fatalf("an operation dropped %d members of leases of %d slots, want %d", dropped, slots, 1000*slots)
			}
			members = rest
		}
		if used := takeAt(later, limiters.Op{Key: "k", Limit: limit}, limiters.Op{Key: "k", Limit: limit, Lease: leaseID(0), Kind: limiters.OpEnd}); used != 0 {
			t.Errorf("%d slots used after the last lease", used)
		}
		if n := c.Exists(t.Context(), key).Val(); n != 0 {
			t.Error("the key exists without leases")
		}
	}
}

// The key of leases has an expiry, which is not before the last lease expires, and at most a
// quarter after that.
func TestLeasesHaveAnExpiry(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	limit := slotsOfKey(5, time.Hour)
	op := limiters.Op{Key: "k", Limit: limit, Hits: 1, Lease: leaseID(1)}
	for range 2 {
		out, err := take(s, op, limiters.Op{Key: "k", Limit: limit, Hits: 2, Lease: leaseID(2)})
		if err != nil || out[1].Used != 3 {
			t.Fatal(out, err)
		}
		expiresIn := c.PTTL(t.Context(), keyOf("", &op)).Val()
		if expiresIn < 59*time.Minute || expiresIn > 76*time.Minute {
			t.Errorf("expires in %v", expiresIn)
		}
		_, err = take(s, limiters.Op{Key: "k", Limit: limit, Lease: leaseID(1), Kind: limiters.OpEnd}, limiters.Op{Key: "k", Limit: limit, Lease: leaseID(2), Kind: limiters.OpEnd})
		must.Succeed(t, err)
		if n := c.Exists(t.Context(), keyOf("", &op)).Val(); n != 0 {
			t.Error("the key exists without leases")
		}
	}
}

// The key of leases expires after the last of them, even if the TTL of the rule becomes longer.
func TestLeaseKeyExpiresAfterItsLastLease(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	for id, ttl := range []time.Duration{time.Minute, time.Minute, time.Hour, time.Hour} {
		op, start := limiters.Op{Key: "k", Limit: slotsOfKey(5, ttl), Hits: 1, Lease: leaseID(id)}, time.Now()
		if out, err := take(s, op); err != nil || out[0].Used != int64(id+1) {
			t.Fatal(err, out)
		}
		if expiresIn := c.PTTL(t.Context(), keyOf("", &op)).Val(); expiresIn+time.Since(start) < ttl || expiresIn > 76*time.Minute {
			t.Errorf("a lease of %v: the key expires in %v", ttl, expiresIn)
		}
	}
}

// A full Redis denies what does not fit, and fails an operation that opens a lease. It still ends a
// lease.
func TestFullRedisEndsLeases(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	limit := slotsOfKey(2, time.Hour)
	op := func(id int, end bool) limiters.Op {
		return limiters.Op{Key: "k", Limit: limit, Hits: 1, Lease: leaseID(id), Kind: endOrCharge(end)}
	}
	if _, err := take(s, op(1, false), op(2, false)); err != nil {
		t.Fatal(err)
	}
	setFull(t, c, true)
	for _, step := range []struct {
		op   limiters.Op
		want string // "" for an error
	}{
		{op(1, false), "ok used=2"}, {op(3, false), "denied used=2"}, {op(1, true), "ok used=1"}, {op(3, false), ""}, {op(2, true), "ok used=0"},
	} {
		out, err := take(s, step.op)
		must.Succeed(t, err)
		if got := limiterstest.Format(out[0]); (out[0].Err != nil) != (step.want == "") || !strings.HasPrefix(got, step.want) {
			t.Errorf("%+v: %s, want %q", step.op, got, step.want)
		}
	}
}

// A group with a lease that cannot be written fails as a whole.
func TestGroupWithALeaseFailsOnAFullRedis(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	group := limiters.Group{{Key: "k", Limit: hourly, Hits: 1}, {Key: "k", Limit: slotsOfKey(2, time.Hour), Hits: 1, Lease: leaseID(1)}}
	setFull(t, c, true)
	out, err := limiterstest.Take(s, group)
	if err != nil || out[0].Err == nil || out[1].Err == nil {
		t.Errorf("%+v %v: want an error for each operation", out, err)
	}
	setFull(t, c, false)
	if n := c.DBSize(t.Context()).Val(); n > 1 {
		t.Errorf("%d keys: want only that which fills Redis", n)
	}
}

// Opening and settling a reservation write the key of the algorithm and that of the reservations
// once. So do many of one call.
func TestReservationsNeedFewCommands(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	limit := reserving("funnel", 1000)
	op := func(key, id int, end bool) limiters.Op {
		return limiters.Op{Key: fmt.Sprint("key ", key), Limit: limit, Hits: 2, Lease: leaseID(id), Kind: endOrCharge(end)}
	}
	const keys = 20
	var opening, ends []limiters.Op
	for key := range keys {
		for id := range 10 {
			if _, err := take(s, op(key, id, false)); err != nil {
				t.Fatal(err)
			}
		}
		opening, ends = append(opening, op(key, 10, false)), append(ends, op(key, 3, true))
	}
	for _, ops := range [][]limiters.Op{opening, ends} {
		must.Succeed(t, c.ConfigResetStat(context.Background()).Err())
		out, err := take(s, ops...)
		if err != nil || out[0].Err != nil || !out[0].Allowed {
			t.Fatal(err, out[0])
		}
		calls := commands(t, c)
		writes := calls["set"] + calls["setrange"] + calls["hset"] + calls["hdel"] + calls["del"] + calls["pexpire"]
		if calls["mget"] != 1 || calls["get"] != 0 || writes > 2*keys || calls["hmget"] > keys || calls["hgetall"] > 0 || calls["zmscore"]+calls["zadd"] > 0 {
			t.Errorf("end %v: %v", ops[0].Kind == limiters.OpEnd, calls)
		}
	}
}

// The hash of a key expires after its last reservation, even if the TTL of the rule becomes longer.
// That is so for each operation, with and without a penalty.
func TestReservationsHaveAnExpiry(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	for _, penalty := range []limiters.PenaltySpec{{}, {After: 2, Within: time.Minute, For: time.Hour}} {
		for id, ttl := range []time.Duration{time.Minute, time.Hour, time.Minute, time.Hour} {
			op := limiters.Op{Key: fmt.Sprint("penalty for ", penalty.For), Limit: limiterstest.MustLimit(limiters.Spec{
				Algorithm: "funnel", Max: 100, Window: time.Hour, Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: ttl}, Penalty: penalty},
			}), Hits: 2, Lease: leaseID(id)}
			start := time.Now()
			if out, err := take(s, op); err != nil || out[0].Err != nil || !out[0].Allowed {
				t.Fatal(err, out)
			}
			expiresIn := c.PTTL(t.Context(), keyOf("", &op)+keySuffixes[reservationsKey]).Val()
			if expiresIn+time.Since(start) < ttl || expiresIn > 76*time.Minute {
				t.Errorf("%s, a reservation of %v: the hash expires in %v", op.Key, ttl, expiresIn)
			}
		}
	}
}

// The hash of a key has its open reservations and no settled ones. It is deleted with the last one,
// or expires soon after it.
func TestSettledReservationsAreRemoved(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	limit := reserving("funnel", 100_000)
	op := func(id int, end bool) limiters.Op {
		return limiters.Op{Key: "k", Limit: limit, Hits: 2, Lease: leaseID(id), Kind: endOrCharge(end)}
	}
	do := func(op limiters.Op) {
		t.Helper()
		if out, err := take(s, op); err != nil || out[0].Err != nil || !out[0].Allowed {
			t.Fatal(err, out)
		}
	}
	first := op(0, false)
	name := keyOf("", &first) + keySuffixes[reservationsKey]
	for range 3 {
		do(op(0, false))
		do(op(0, true))
		if n := c.Exists(t.Context(), name).Val(); n != 0 {
			t.Fatal("the hash of one reservation outlives it")
		}
	}
	must.Succeed(t, c.ConfigResetStat(t.Context()).Err())
	for _, order := range []string{"oldest first", "newest first", "random"} {
		open := []int{}
		for id := range 200 {
			do(op(id, false))
			open = append(open, id)
			if len(open) == 5 {
				at := map[string]int{"oldest first": 0, "newest first": 4, "random": rand.IntN(5)}[order]
				do(op(open[at], true))
				open = slices.Delete(open, at, at+1)
			}
			if n := c.HLen(t.Context(), name).Val(); n != int64(len(open))+1 { // with the head
				t.Fatalf("%s: a hash of %d fields has %d reservations, want %d", order, n, len(open), int64(len(open))+1)
			}
		}
		for _, id := range open {
			do(op(id, true))
		}
		if n := c.HLen(t.Context(), name).Val(); n > 1 {
			t.Errorf("%s: %d fields, want at most the head", order, n)
		}
		if expiresIn := c.PTTL(t.Context(), name).Val(); expiresIn > 76*time.Minute || expiresIn == -1 {
			t.Errorf("%s: the hash expires in %v", order, expiresIn)
		}
	}
	if calls := commands(t, c); calls["hgetall"] > 0 {
		t.Errorf("%d operations have read the whole hash", calls["hgetall"])
	}
}

// The next operation after the time for which ids that ended are remembered removes them. Further
// operations need not read the whole hash.
func TestEndedIDsAreRemoved(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	limit := reserving("funnel", 100)
	for _, step := range []struct {
		after         time.Duration
		id            int
		end           bool
		fields, reads int // the fields with the head; the reads of the whole hash so far
	}{
		{0, 1, false, 2, 0}, {0, 2, false, 3, 0}, {0, 9, true, 4, 1}, {limiters.EndedTTL - time.Microsecond, 3, false, 5, 2},
		{limiters.EndedTTL, 1, true, 3, 3}, {limiters.EndedTTL, 2, true, 2, 3},
	} {
		op := limiters.Op{Key: "k", Limit: limit, Hits: 2, Lease: leaseID(step.id), Kind: endOrCharge(step.end)}
		out := make([]limiters.Verdict, 1)
		if err := s.TakeAt(t.Context(), logStart.Add(step.after), limiters.Singles(op), out); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		reads := commands(t, c)["hgetall"]
		if n := c.HLen(t.Context(), keyOf("", &op)+keySuffixes[reservationsKey]).Val(); n != int64(step.fields) || reads != step.reads {
			t.Errorf("%+v: %d fields and %d reads", step, n, reads)
		}
	}
}

// The ids that ended before they were opened are remembered for EndedTTL, and expire soon after it.
func TestEndedIDsHaveAnExpiry(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	for name, limit := range map[string]*limiters.Limit{"slots": slotsOfKey(5, time.Millisecond), "reservations": reserving("funnel", 100)} {
		for _, number := range []int{1, 70} { // of reservations, a hash and a sorted set
			var ends []limiters.Op
			for id := range number {
				ends = append(ends, limiters.Op{Key: fmt.Sprint(name, number), Limit: limit, Lease: leaseID(id), Kind: limiters.OpEnd})
			}
			start := time.Now()
			if out, err := take(s, ends...); err != nil || out[number-1].Err != nil {
				t.Fatal(err, out)
			}
			key := keyOf("", &ends[0])
			if limit.Reserves() {
				key += keySuffixes[reservationsKey]
			}
			expiresIn := c.PTTL(t.Context(), key).Val()
			if expiresIn+time.Since(start) < limiters.EndedTTL || expiresIn > 2*limiters.EndedTTL {
				t.Errorf("%d %s: the key expires in %v", number, name, expiresIn)
			}
		}
	}
}

// A full Redis still settles a reservation, of which others stay open.
func TestFullRedisSettlesReservations(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	limit := reserving("fixed_window", 100)
	op := func(id int, n int64, end bool) limiters.Op {
		return limiters.Op{Key: "k", Limit: limit, Hits: n, Lease: leaseID(id), Kind: endOrCharge(end)}
	}
	if _, err := take(s, op(1, 10, false), op(2, 10, false), op(3, 10, false)); err != nil {
		t.Fatal(err)
	}
	setFull(t, c, true)
	for _, op := range []limiters.Op{op(1, 8, true), op(2, 9, true)} {
		if out, err := take(s, op); err != nil || out[0].Err != nil {
			t.Errorf("settle: %+v %v", out[0], err)
		}
	}
	setFull(t, c, false)
	if out, err := take(s, limiters.Op{Key: "k", Limit: limit}); err != nil || out[0].Used != 27 {
		t.Errorf("%+v %v, want the usage 27", out[0], err)
	}
}

// A hash in another form fails the operations of its key: neither opening nor settling a
// reservation changes anything.
func TestUnreadableReservationsFailTheirOps(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	limit := reserving("fixed_window", 1000)
	id := leaseID(1)
	head := "\x00\x00\x00\x00\x00\x01\x00\x00" + strings.Repeat("\x7f", 16)
	for name, fields := range map[string]map[string]string{
		"a short head":   {"h": head[:6]},
		"a short record": {"h": head, string(id[:]): "12345678"},
		"another field":  {"h": head[:6] + "\x00\x01" + head[8:], "field": "value"},
	} {
		for _, end := range []bool{false, true} {
			op := limiters.Op{Key: name, Limit: limit, Hits: 2, Lease: id, Kind: endOrCharge(end)}
			list := keyOf("", &op) + keySuffixes[reservationsKey]
			c.HSet(t.Context(), list, fields)
			out, err := take(s, op)
			if err != nil || out[0].Err == nil {
				t.Errorf("%s, end %v: %+v %v, want an error", name, end, out[0], err)
			}
			if n := c.Exists(t.Context(), keyOf("", &op)).Val(); n != 0 || !maps.Equal(c.HGetAll(t.Context(), list).Val(), fields) {
				t.Errorf("%s, end %v: the operation has changed something", name, end)
			}
		}
	}
}

// Opening and settling a reservation fail if its key has another type or an unreadable value. They
// leave the key and its reservations as they were.
func TestReservationOnUnreadableKeyFailsAndChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	contents := map[string][]any{
		"a set": {"sadd", "member"}, "a short value": {"set", "short"}, "a value of a funnel's length": {"set", strings.Repeat("x", 28)},
	}
	for _, algorithm := range limiterstest.WindowedAlgorithms() {
		limit := reserving(algorithm, 1000)
		for content, command := range contents {
			first := limiters.Op{Key: algorithm + content, Limit: limit, Hits: 20, Lease: leaseID(1)}
			if out, err := take(s, first); err != nil || !out[0].Allowed {
				t.Fatal(out, err)
			}
			key := keyOf("", &first)
			reserved := c.HGetAll(t.Context(), key+keySuffixes[reservationsKey]).Val()
			c.Del(t.Context(), key)
			must.Succeed(t, c.Do(t.Context(), slices.Insert(command, 1, any(key))...).Err())
			before := c.Dump(t.Context(), key).Val()
			second, settle := first, first
			second.Lease = leaseID(2)
			settle.Hits, settle.Kind = 8, limiters.OpEnd
			for name, op := range map[string]limiters.Op{"open": second, "settle": settle} {
				if out, err := take(s, op); err != nil || out[0].Err == nil {
					t.Errorf("%s, %s, %s: %+v %v, want an error", algorithm, content, name, out[0], err)
				}
				if c.Dump(t.Context(), key).Val() != before || !maps.Equal(c.HGetAll(t.Context(), key+keySuffixes[reservationsKey]).Val(), reserved) {
					t.Errorf("%s, %s, %s: the operation has changed the key or its reservations", algorithm, content, name)
				}
			}
		}
	}
}

// The work of a group grows with its operations, even if all of them are on one key.
func TestLargeGroupOnOneKeyNeedsFewCommands(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	const size = 100
	var g limiters.Group
	for i := range size {
		g = append(g, limiters.Op{Key: "k", Limit: slotsOfKey(size, time.Hour), Hits: 1, Lease: leaseID(i)})
	}
	out, err := limiterstest.Take(s, g)
	if err != nil || out[size-1].Err != nil || out[size-1].Used != size {
		t.Fatal(err, out[size-1])
	}
	sum := 0
	for _, calls := range commands(t, c) {
		sum += calls
	}
	if sum > 6*size {
		t.Errorf("%d commands for %d operations", sum, size)
	}
}

// The clock has stepped back by more than a window since a reservation of 0 was charged, in two
// steps of less than a window. Its settlement must not hide the hits that are in the window.
func TestSettlementAheadOfTheClockHidesNoHit(t *testing.T) {
	server := redistest.Start(t)
	s, reference := open(t, server), limiterstest.NewReference()
	spec := limiters.Spec{Algorithm: "sliding_log", Max: 1000, Window: time.Hour}
	spec.Params.Reserve.TTL = time.Hour
	limit := limiterstest.MustLimit(spec)
	at := logStart
	take := func(store limiterstest.TimedStore, op limiters.Op) limiters.Verdict {
		op.Key, op.Limit = "k", limit
		out := make([]limiters.Verdict, 1)
		must.Succeed(t, store.TakeAt(t.Context(), at, []limiters.Group{{op}}, out))
		return out[0]
	}
	for _, store := range []limiterstest.TimedStore{s, reference} {
		at = logStart
		take(store, limiters.Op{Lease: leaseID(1)}) // an estimate of 0
		at = at.Add(-40 * time.Minute)
		take(store, limiters.Op{Hits: 2, Lease: leaseID(2)})
		at = at.Add(-30 * time.Minute)
		settled := take(store, limiters.Op{Kind: limiters.OpEnd, Hits: 600, Lease: leaseID(1)})
		peeked := take(store, limiters.Op{Kind: limiters.OpInspect})
		if settled.Used != 2 || peeked.Used != 2 {
			t.Errorf("%T: settled %s, then %s, want 2 used", store, limiterstest.Format(settled), limiterstest.Format(peeked))
		}
	}
}
