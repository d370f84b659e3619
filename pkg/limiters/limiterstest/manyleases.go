package limiterstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// testManyLeases checks keys with more leases than one operation shortens or removes. The race
// tests run with -short, which skips it: with the race detector it takes ten times as long, and
// finds no more.
func testManyLeases(t *testing.T, store TimedStore) {
	if testing.Short() {
		t.Skip("-short: too slow for the race detector")
	}
	for _, name := range limiters.Algorithms() {
		t.Run(name, func(t *testing.T) {
			p, limit := newPair(t, store, name+" "), limitOfManyLeases(name)
			testShortenedExpiries(p, limit)
			if name == "concurrency" {
				testExpiredSlots(p, limit)
			} else {
				testExpiredReservations(p, limit)
				testMaxReservations(p, limit)
			}
			if name == "sliding_log" {
				testSettlementInALongLog(p)
			}
		})
	}
}

// limitOfManyLeases returns a large limit with leases of a second. Its window does not end during a
// test.
func limitOfManyLeases(algorithm string) *limiters.Limit {
	if algorithm == "concurrency" {
		return MustLimit(limiters.Spec{Algorithm: algorithm, Max: limiters.MaxLeases, Params: limiters.Params{LeaseTTL: time.Second}})
	}
	params := FirstHitParams(algorithm)
	params.Reserve = limiters.ReserveSpec{TTL: time.Second, Unsettled: limiters.UnsettledRelease}
	params.Penalty = limiters.PenaltySpec{After: 3, Within: time.Minute, For: 10 * time.Minute}
	return MustLimit(limiters.Spec{Algorithm: algorithm, Max: 1_000_000, Window: limiters.MaxWindow, Params: params})
}

// openLeases opens leases of n hits with different expiries. Lease i of a call has the id
// idOf(call, i).
func openLeases(p *pair, limit *limiters.Limit, key string, leases int, n int64) {
	p.t.Helper()
	const calls = 10
	for call := range calls {
		ops := make([]limiters.Op, leases/calls)
		for i := range ops {
			ops[i] = limiters.Op{Key: key, Limit: limit, Hits: n, Lease: idOf(call, i)}
		}
		p.takeSingles(traceStart.Add(time.Duration(call)*time.Microsecond), ops...)
	}
}

// testShortenedExpiries checks that each operation shortens the expiry of at most
// [limiters.LeasesPerOp] leases, the earliest ones first.
func testShortenedExpiries(p *pair, limit *limiters.Limit) {
	p.t.Helper()
	back := traceStart.Add(-24 * time.Hour)
	openLeases(p, limit, "shorten", 2500, 1)
	peek := limiters.Op{Key: "shorten", Limit: limit}
	if v := p.takeSingles(back, peek, peek); v.Used != 2500 {
		p.t.Errorf("after a step back: %s, want 2500 used", Format(v))
	}
	for i, want := range []int64{500, 500, 500} {
		if v := p.takeSingles(back.Add(time.Second+time.Duration(i)*time.Microsecond), peek, peek, peek); v.Used != want {
			p.t.Errorf("after the TTL: %s, want %d used", Format(v), want)
		}
	}
	if v := p.takeSingles(back.Add(3*time.Second), peek); v.Used != 0 {
		p.t.Errorf("after twice the TTL: %s, want 0 used", Format(v))
	}
}

// testExpiredSlots checks that each operation removes at most [limiters.LeasesPerOp] expired
// leases, the earliest ones first, and the one that it names. The others hold their slots. A key
// that has fully reset holds none.
func testExpiredSlots(p *pair, limit *limiters.Limit) {
	p.t.Helper()
	late, later := traceStart.Add(900*time.Millisecond), traceStart.Add(1500*time.Millisecond)
	for _, slots := range []int64{1, 2} {
		key := fmt.Sprintf("end %d ", slots)
		openLeases(p, limit, key, 4500, slots)
		op := func(n int64, id limiters.LeaseID) limiters.Op {
			return limiters.Op{Key: key, Limit: limit, Hits: n, Lease: id}
		}
		p.takeSingles(late, op(1, limiters.NewLeaseID(nil, "open")))
		peek, ended := op(0, limiters.LeaseID{}), op(0, idOf(9, 449))
		large := op(limiters.MaxLeases-499*slots, limiters.NewLeaseID(nil, "large"))
		ended.Kind = limiters.OpEnd
		for _, step := range []struct {
			op   limiters.Op
			want int64
		}{
			{peek, 3500*slots + 1},
			{ended, 2499*slots + 1},
			{op(slots, idOf(9, 448)), 1499*slots + 1}, // the expired lease is removed, and the charge opens a new one
			{large, 499*slots + 1},                    // denied: leases that have expired hold its slots
			{large, limiters.MaxLeases - 498*slots + 1},
		} {
			if v := p.takeSingles(later, step.op); v.Used != step.want {
				p.t.Errorf("%d slots, %+v: %s, want %d used", slots, step.op, Format(v), step.want)
			}
		}
		openLeases(p, limit, key+"one call", 3500, slots)
		p.takeSingles(late, limiters.Op{Key: key + "one call", Limit: limit, Hits: 1, Lease: limiters.NewLeaseID(nil, "open")})
		peek.Key = key + "one call"
		if v := p.takeSingles(later, peek, peek, peek); v.Used != 500*slots+1 {
			p.t.Errorf("%d slots, three operations of one call: %s, want %d used", slots, Format(v), 500*slots+1)
		}
	}
	back, peek := traceStart.Add(-24*time.Hour), limiters.Op{Key: "shorten all", Limit: limit}
	openLeases(p, limit, peek.Key, 2*limiters.LeasesPerOp, 1)
	p.takeSingles(back, peek, peek)
	if v := p.takeSingles(back.Add(time.Second), peek); v.Used != 0 {
		p.t.Errorf("after the TTL of leases that are all shortened: %s, want 0 used", Format(v))
	}
	for _, at := range []time.Duration{2 * time.Second, 5*time.Second + 500*time.Millisecond - 1, 5500 * time.Millisecond} {
		key := fmt.Sprint("reset ", at)
		openLeases(p, limit, key, 3500, 2)
		end := limiters.Op{Key: key, Limit: limit, Lease: limiters.NewLeaseID(nil, "unknown"), Kind: limiters.OpEnd}
		p.takeSingles(traceStart.Add(500*time.Millisecond), end)
		want := int64(5001)
		if at == 5500*time.Millisecond {
			want = 1 // the end of the unknown id is forgotten, too
		}
		if v := p.takeSingles(traceStart.Add(at), limiters.Op{Key: key, Limit: limit, Hits: 1, Lease: limiters.NewLeaseID(nil, "new")}); v.Used != want {
			p.t.Errorf("after %v: %s, want %d used", at, Format(v), want)
		}
	}
}

// testExpiredReservations checks that each operation removes at most [limiters.LeasesPerOp] expired
// reservations, and the one that it names.
func testExpiredReservations(p *pair, limit *limiters.Limit) {
	p.t.Helper()
	later := traceStart.Add(2 * time.Second)
	openLeases(p, limit, "remove", 3500, 1)
	named := limiters.Op{Key: "remove", Limit: limit, Hits: 7, Lease: idOf(9, 349)}
	settled := named
	settled.Kind = limiters.OpEnd
	for _, step := range []struct {
		op   limiters.Op
		want int64
	}{
		{limiters.Op{Key: "remove", Limit: limit}, 3500 - limiters.LeasesPerOp},
		{settled, 3500 - 2*limiters.LeasesPerOp - 1}, // expired: the actual cost is not charged, and is remembered
		{named, 3500 - 3*limiters.LeasesPerOp - 1 + 7},
		{limiters.Op{Key: "remove", Limit: limit}, 7},
	} {
		if v := p.takeSingles(later, step.op); v.Used != step.want {
			p.t.Errorf("%+v: %s, want %d used", step.op, Format(v), step.want)
		}
	}
}

// testMaxReservations checks a key with as many open reservations as it may have. A further one is
// denied, which is an offense. The group of the operation is denied with it. A penalty that ends
// before the first reservation does not change the reason. An inspection returns the same
// verdict.
func testMaxReservations(p *pair, limit *limiters.Limit) {
	p.t.Helper()
	now := traceStart.Add(500 * time.Millisecond)
	openLeases(p, limit, "full", limiters.MaxLeases, 1)
	further := limiters.Op{Key: "full", Limit: limit, Hits: 1, Lease: limiters.NewLeaseID(nil, "further")}
	held := further
	held.Lease = idOf(9, 0)
	want := limiters.Verdict{
		TooManyLeases: true, Used: limiters.MaxLeases, Remaining: 1_000_000 - limiters.MaxLeases, RetryAfter: 500 * time.Millisecond, At: now.UnixMicro(),
	}
	for range 2 {
		v := p.takeSingles(now, further)
		want.ResetAfter = v.ResetAfter
		if v != want {
			p.t.Errorf("a reservation too many: %+v, want %+v", v, want)
		}
	}
	if v := p.takeSingles(now, limiters.Op{Key: "full", Limit: limit, Kind: limiters.OpInspect}); v != want {
		p.t.Errorf("an inspection: %+v, want %+v", v, want)
	}
	if v := p.takeSingles(now, held); !v.Allowed || v.Used != limiters.MaxLeases {
		p.t.Errorf("a held reservation: %+v", v)
	}
	ended := held
	ended.Kind = limiters.OpEnd
	if v := p.takeSingles(now, ended, further); !v.Allowed || v.TooManyLeases {
		p.t.Errorf("after one has ended: %+v", v)
	}
	further.Lease = held.Lease
	if v := p.takeSingles(now, further); !v.Penalized || v.TooManyLeases {
		p.t.Errorf("the third offense: %+v, want a penalty", v)
	}
	spec := limit.Spec()
	spec.Params.Penalty = limiters.PenaltySpec{After: 1, Within: time.Minute, For: time.Millisecond}
	further.Key, further.Limit = "brief penalty", MustLimit(spec)
	openLeases(p, further.Limit, further.Key, limiters.MaxLeases, 1)
	further.Lease = limiters.NewLeaseID(nil, "further")
	if v := p.takeSingles(now, further); !v.TooManyLeases || v.Penalized || v.Remaining != 0 || v.RetryAfter != want.RetryAfter {
		p.t.Errorf("a penalty that ends before the first reservation: %+v, want too many leases", v)
	}
	inspection := limiters.Op{Key: "brief penalty", Limit: further.Limit, Kind: limiters.OpInspect}
	if v := p.takeSingles(now, inspection); !v.TooManyLeases || v.Penalized || v.PenaltyLeft != time.Millisecond || v.RetryAfter != want.RetryAfter {
		p.t.Errorf("an inspection during this penalty: %+v, want too many leases", v)
	}
}

// testSettlementInALongLog checks that a settlement keeps the order of the entries that it moves,
// and that it changes nothing if they are more than [limiters.MaxMovedEntries].
func testSettlementInALongLog(p *pair) {
	p.t.Helper()
	params := limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Minute}}
	limit := MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 1_000_000, Window: time.Hour, Params: params})
	for _, c := range []struct {
		entries int64
		charged int64 // what the reservation of 100 hits is charged after its settlement to 7
	}{
		{2500, 7},
		{limiters.MaxMovedEntries + 1, 100},
	} {
		at := func(entry int64) time.Time { return traceStart.Add(time.Duration(entry) * time.Microsecond) }
		hit := limiters.Op{Key: fmt.Sprint("log ", c.entries), Limit: limit, Hits: 1}
		reserved := hit
		reserved.Hits, reserved.Lease = 100, limiters.NewLeaseID(nil, "a")
		p.takeSingles(traceStart, reserved)
		for entry := range c.entries {
			p.takeSingles(at(1+entry), hit)
		}
		reserved.Hits, reserved.Kind = 7, limiters.OpEnd
		p.takeSingles(at(1+c.entries), reserved)
		peek := hit
		peek.Hits = 0
		if v := p.takeSingles(at(1+c.entries), peek); v.Used != c.charged+c.entries {
			p.t.Errorf("after the settlement: %s, want %d used", Format(v), c.charged+c.entries)
		}
		for left := c.entries; left >= 0; left -= c.entries / 2500 {
			if v := p.takeSingles(at(c.entries-left).Add(limit.Window()), peek); v.Used != left {
				p.t.Errorf("%d µs after the window of the reservation: %s, want %d used", c.entries-left, Format(v), left)
			}
		}
	}
}
