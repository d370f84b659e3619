package limiterstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// manyLeases checks keys with more leases than one operation shortens or removes. Like random
// sequences, it takes ten times as long with the race detector, and finds no more.
func manyLeases(t *testing.T, store limiters.Store) {
	if testing.Short() {
		t.Skip("-short: too slow for the race detector")
	}
	for _, name := range limiters.Algorithms() {
		t.Run(name, func(t *testing.T) {
			m := &manyLeasesOfKey{t, store, NewReference(), name + " "}
			m.shortens(name)
			if name == "concurrency" {
				m.ends(name)
			} else {
				m.removes(name)
				m.full(name)
			}
		})
	}
}

type manyLeasesOfKey struct {
	t                *testing.T
	store, reference limiters.Store
	prefix           string
}

// limit returns a large limit with leases of a second. Its window does not end during a test.
func (m *manyLeasesOfKey) limit(algorithm string) *limiters.Limit {
	if algorithm == "concurrency" {
		return MustLimit(limiters.Spec{Algorithm: algorithm, Max: limiters.MaxLeases, Params: limiters.Params{LeaseTTL: time.Second}})
	}
	params := FirstHitParams(algorithm)
	params.Reserve = limiters.ReserveSpec{TTL: time.Second, Unsettled: limiters.UnsettledRelease}
	params.Penalty = limiters.PenaltySpec{After: 3, Within: time.Minute, For: 10 * time.Minute}
	return MustLimit(limiters.Spec{Algorithm: algorithm, Max: 1_000_000, Window: limiters.MaxWindow, Params: params})
}

// takeSingles decides ungrouped operations in both stores, compares the verdicts, and returns the
// last.
func (m *manyLeasesOfKey) takeSingles(now time.Time, ops ...limiters.Op) limiters.Verdict {
	m.t.Helper()
	return m.take(now, ops, limiters.Singles(ops...))
}

// takeGroup is takeSingles for the operations of one group.
func (m *manyLeasesOfKey) takeGroup(now time.Time, group ...limiters.Op) limiters.Verdict {
	m.t.Helper()
	return m.take(now, group, []limiters.Group{group})
}

// take decides ops in groups that are slices of ops.
func (m *manyLeasesOfKey) take(now time.Time, ops []limiters.Op, groups []limiters.Group) limiters.Verdict {
	m.t.Helper()
	got, want := make([]limiters.Verdict, len(ops)), make([]limiters.Verdict, len(ops))
	for i := range ops {
		ops[i].Key = m.prefix + ops[i].Key
	}
	if err := m.store.Take(context.Background(), now, groups, got); err != nil {
		m.t.Fatal(err)
	}
	if err := m.reference.Take(context.Background(), now, groups, want); err != nil {
		m.t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			m.t.Fatalf("%shit %d at %s: got %s, want %s", m.prefix, i, now, Format(got[i]), Format(want[i]))
		}
	}
	return got[len(got)-1]
}

// openLeases opens leases of n hits with different expiries. Lease i of a call has the id
// idOf(call, i).
func (m *manyLeasesOfKey) openLeases(limit *limiters.Limit, key string, leases int, n int64) {
	m.t.Helper()
	const calls = 10
	for call := range calls {
		ops := make([]limiters.Op, leases/calls)
		for i := range ops {
			ops[i] = limiters.Op{Key: key, Limit: limit, N: n, Lease: idOf(call, i)}
		}
		m.takeSingles(traceStart.Add(time.Duration(call)*time.Microsecond), ops...)
	}
}

func idOf(call, i int) limiters.LeaseID { return limiters.NewLeaseID(nil, fmt.Sprint(call, "/", i)) }

// shortens checks that each operation shortens the expiry of at most [limiters.LeasesPerOp] leases,
// the earliest ones first.
func (m *manyLeasesOfKey) shortens(algorithm string) {
	m.t.Helper()
	limit, back := m.limit(algorithm), traceStart.Add(-24*time.Hour)
	m.openLeases(limit, "shorten", 2500, 1)
	peek := limiters.Op{Key: "shorten", Limit: limit}
	if v := m.takeSingles(back, peek, peek); v.Used != 2500 {
		m.t.Errorf("after a step back: %s, want 2500 used", Format(v))
	}
	for i, want := range []int64{500, 500, 500} {
		if v := m.takeSingles(back.Add(time.Second+time.Duration(i)*time.Microsecond), peek, peek, peek); v.Used != want {
			m.t.Errorf("after the TTL: %s, want %d used", Format(v), want)
		}
	}
	if v := m.takeSingles(back.Add(3*time.Second), peek); v.Used != 0 {
		m.t.Errorf("after twice the TTL: %s, want 0 used", Format(v))
	}
}

// ends checks that each operation removes at most [limiters.LeasesPerOp] expired leases, the
// earliest ones first, and the one that it names. The others hold their slots. A key that has fully
// reset holds none.
func (m *manyLeasesOfKey) ends(algorithm string) {
	m.t.Helper()
	limit, late, later := m.limit(algorithm), traceStart.Add(900*time.Millisecond), traceStart.Add(1500*time.Millisecond)
	for _, slots := range []int64{1, 2} {
		key := fmt.Sprintf("end %d ", slots)
		m.openLeases(limit, key, 4500, slots)
		op := func(n int64, id limiters.LeaseID) limiters.Op {
			return limiters.Op{Key: key, Limit: limit, N: n, Lease: id}
		}
		m.takeSingles(late, op(1, limiters.NewLeaseID(nil, "open")))
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
			if v := m.takeSingles(later, step.op); v.Used != step.want {
				m.t.Errorf("%d slots, %+v: %s, want %d used", slots, step.op, Format(v), step.want)
			}
		}
		m.openLeases(limit, key+"one call", 3500, slots)
		m.takeSingles(late, limiters.Op{Key: key + "one call", Limit: limit, N: 1, Lease: limiters.NewLeaseID(nil, "open")})
		peek.Key = key + "one call"
		if v := m.takeSingles(later, peek, peek, peek); v.Used != 500*slots+1 {
			m.t.Errorf("%d slots, three operations of one call: %s, want %d used", slots, Format(v), 500*slots+1)
		}
	}
	back, peek := traceStart.Add(-24*time.Hour), limiters.Op{Key: "shorten all", Limit: limit}
	m.openLeases(limit, peek.Key, 2*limiters.LeasesPerOp, 1)
	m.takeSingles(back, peek, peek)
	if v := m.takeSingles(back.Add(time.Second), peek); v.Used != 0 {
		m.t.Errorf("after the TTL of leases that are all shortened: %s, want 0 used", Format(v))
	}
	for _, at := range []time.Duration{2 * time.Second, 5*time.Second + 500*time.Millisecond - 1, 5500 * time.Millisecond} {
		key := fmt.Sprint("reset ", at)
		m.openLeases(limit, key, 3500, 2)
		end := limiters.Op{Key: key, Limit: limit, Lease: limiters.NewLeaseID(nil, "unknown"), Kind: limiters.OpEnd}
		m.takeSingles(traceStart.Add(500*time.Millisecond), end)
		want := int64(5001)
		if at == 5500*time.Millisecond {
			want = 1 // the end of the unknown id is forgotten, too
		}
		if v := m.takeSingles(traceStart.Add(at), limiters.Op{Key: key, Limit: limit, N: 1, Lease: limiters.NewLeaseID(nil, "new")}); v.Used != want {
			m.t.Errorf("after %v: %s, want %d used", at, Format(v), want)
		}
	}
}

// removes checks that each operation removes at most [limiters.LeasesPerOp] expired reservations,
// and the one that it names.
func (m *manyLeasesOfKey) removes(algorithm string) {
	m.t.Helper()
	limit, later := m.limit(algorithm), traceStart.Add(2*time.Second)
	m.openLeases(limit, "remove", 3500, 1)
	named := limiters.Op{Key: "remove", Limit: limit, N: 7, Lease: idOf(9, 349)}
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
		if v := m.takeSingles(later, step.op); v.Used != step.want {
			m.t.Errorf("%+v: %s, want %d used", step.op, Format(v), step.want)
		}
	}
}

// full checks a key with as many open reservations as it may have. A further one is denied, which
// is an offence. The group of the operation is denied with it.
func (m *manyLeasesOfKey) full(algorithm string) {
	m.t.Helper()
	limit, now := m.limit(algorithm), traceStart.Add(500*time.Millisecond)
	m.openLeases(limit, "full", limiters.MaxLeases, 1)
	further := limiters.Op{Key: "full", Limit: limit, N: 1, Lease: limiters.NewLeaseID(nil, "further")}
	held := further
	held.Lease = idOf(9, 0)
	want := limiters.Verdict{
		TooManyLeases: true, Used: limiters.MaxLeases, Remaining: 1_000_000 - limiters.MaxLeases, RetryAfter: 500 * time.Millisecond, At: now.UnixMicro(),
	}
	for range 2 {
		v := m.takeSingles(now, further)
		want.ResetAfter = v.ResetAfter
		if v != want {
			m.t.Errorf("a reservation too many: %+v, want %+v", v, want)
		}
	}
	if v := m.takeSingles(now, held); !v.Allowed || v.Used != limiters.MaxLeases {
		m.t.Errorf("a held reservation: %+v", v)
	}
	ended := held
	ended.Kind = limiters.OpEnd
	if v := m.takeSingles(now, ended, further); !v.Allowed || v.TooManyLeases {
		m.t.Errorf("after one has ended: %+v", v)
	}
	further.Lease = held.Lease
	if v := m.takeSingles(now, further); !v.Penalized || v.TooManyLeases {
		m.t.Errorf("the third offence: %+v, want a penalty", v)
	}
}

// reservationsAfterRefund checks a reservation in a group whose first operation refunds the newest
// hits of its key, while the clock is behind these hits. A settle must find the time that the
// reservation charged.
func reservationsAfterRefund(t *testing.T, store limiters.Store) {
	for _, name := range WindowedAlgorithms() {
		params := FirstHitParams(name)
		params.Reserve.TTL = time.Hour
		limit := MustLimit(limiters.Spec{Algorithm: name, Max: 100, Window: limiters.MaxWindow, Params: params})
		for _, older := range []int64{0, 2} {
			m := &manyLeasesOfKey{t, store, NewReference(), fmt.Sprintf("%s after a refund %d ", name, older)}
			op := limiters.Op{Limit: limit, N: 5}
			reserved := limiters.Op{Limit: limit, N: 3, Lease: limiters.NewLeaseID(nil, "id")}
			settled, refund, old := reserved, op, op
			settled.Kind, settled.N, refund.N, old.N = limiters.OpEnd, 1, -5, older
			m.takeGroup(traceStart, old)
			m.takeGroup(traceStart.Add(time.Minute), op)
			m.takeGroup(traceStart.Add(30*time.Second), refund, reserved)
			m.takeGroup(traceStart.Add(31*time.Second), settled)
			if v := m.takeGroup(traceStart.Add(31*time.Second), limiters.Op{Limit: limit}); name != "funnel" && v.Used != older+1 {
				t.Errorf("%s: %s, want %d used", m.prefix, Format(v), older+1)
			}
		}
	}
}
