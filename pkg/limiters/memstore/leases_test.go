package memstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func endOrCharge(end bool) limiters.OpKind {
	if end {
		return limiters.OpEnd
	}
	return limiters.OpAddHits
}

func leaseOp(l *limiters.Limit, id string, n int64, end bool) limiters.Op {
	return limiters.Op{Key: "k", Limit: l, Hits: n, Lease: limiters.NewLeaseID(nil, id), Kind: endOrCharge(end)}
}

func mustTake(t *testing.T, s *Store, op limiters.Op) limiters.Verdict {
	t.Helper()
	out, err := limiterstest.Take(s, limiters.Group{op})
	must.Succeed(t, err)
	return out[0]
}

// Leases count against the memory of the store, and leave it when they end.
func TestLeasesTakeMemoryUntilTheyEnd(t *testing.T) {
	s := New(Options{})
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 1000})
	mustTake(t, s, leaseOp(limit, "first", 1, false))
	one := s.Stats().Bytes
	for i := range 500 {
		mustTake(t, s, leaseOp(limit, strconv.Itoa(i), 1, false))
	}
	if got := s.Stats(); got.Keys != 1 || got.Bytes < one+500*40 {
		t.Errorf("501 leases take %+v, one takes %d bytes", got, one)
	}
	mustTake(t, s, leaseOp(limit, "first", 0, true))
	for i := range 500 {
		mustTake(t, s, leaseOp(limit, strconv.Itoa(i), 0, true))
	}
	if got := s.Stats(); got.Keys != 0 || got.Bytes != 0 {
		t.Errorf("after all releases: %+v", got)
	}
}

// A record that a limit without extra state made has no pointers. A limit with reserve adds them,
// and the usage stays.
func TestReserveKeepsTheUsageOfARecordWithoutPointers(t *testing.T) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		s := New(Options{})
		spec := limiters.Spec{Algorithm: name, Max: 10, Window: 24 * time.Hour, Params: limiterstest.FirstHitParams(name)}
		plain := limiterstest.MustLimit(spec)
		spec.Params.Reserve.TTL = time.Hour
		reserves := limiterstest.MustLimit(spec)
		other := limiters.Op{Key: "other", Limit: plain, Hits: 1}
		mustTake(t, s, other)
		mustTake(t, s, limiters.Op{Key: "k", Limit: plain, Hits: 3})
		if v := mustTake(t, s, leaseOp(reserves, "a", 4, false)); !v.Allowed || v.Used != 7 {
			t.Errorf("%s: reserve 4 after 3 hits: got %+v, want allowed with 7 used", name, v)
		}
		if v := mustTake(t, s, limiters.Op{Key: "k", Limit: plain, Hits: 1}); v.Used != 8 {
			t.Errorf("%s: a hit beside the reservation: got %+v, want 8 used", name, v)
		}
		if v := mustTake(t, s, leaseOp(reserves, "a", 1, true)); v.Used != 5 {
			t.Errorf("%s: settled: %+v", name, v)
		}
		if v := mustTake(t, s, other); v.Used != 2 || s.Stats().Keys != 2 {
			t.Errorf("%s: another key: %+v, %+v", name, v, s.Stats())
		}
	}
}

// A record that was made without extra state is replaced by one with it. Without room for that, no
// lease opens and no penalty begins, because the record cannot keep them.
func TestFullShardKeepsNoExtraStateSoReportsNone(t *testing.T) {
	for name, params := range map[string]limiters.Params{
		"reservation": {Reserve: limiters.ReserveSpec{TTL: time.Hour}},
		"penalty":     {Penalty: limiters.PenaltySpec{After: 1, Within: time.Hour, For: time.Hour}},
	} {
		s := New(Options{})
		spec := limiters.Spec{Algorithm: "fixed_window", Max: 3, Window: 24 * time.Hour}
		plain := limiters.Op{Key: "k", Limit: limiterstest.MustLimit(spec), Hits: 2}
		mustTake(t, s, plain)
		n, _ := s.locate("k", spec.Window)
		sh := &s.shards[n]
		full := make([]slab, maxSlabs)
		copy(full, sh.slabs.table.items)
		sh.slabs.table.items = full
		spec.Params = params
		limit := limiterstest.MustLimit(spec)
		if v := mustTake(t, s, leaseOp(limit, "a", 1, false)); !errors.Is(v.Err, ErrFull) {
			t.Errorf("%s: hits that fit: %+v, want ErrFull", name, v)
		}
		if v := mustTake(t, s, leaseOp(limit, "b", 2, false)); !v.Denied() || v.Penalized || v.Used != 2 {
			t.Errorf("%s: hits that do not fit: %+v, want a denial without a penalty, and 2 used", name, v)
		}
		if v := mustTake(t, s, plain); !v.Denied() || v.Used != 2 || s.Stats().Rejected != 1 {
			t.Errorf("%s: under the limit without extra state: %+v, %+v", name, v, s.Stats())
		}
	}
}

// A release is never denied. On a full store the end of an unknown id is not remembered.
func TestFullStoreAllowsAReleaseOfAnUnknownLease(t *testing.T) {
	s := New(Options{MaxKeys: 1})
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 1})
	over := limiters.Op{Key: "over", Limit: limit, Hits: 1, Lease: limiters.NewLeaseID(nil, "a")}
	mustTake(t, s, over) // over its limit, so it is not evicted
	if v := mustTake(t, s, leaseOp(limit, "b", 1, false)); !errors.Is(v.Err, ErrFull) {
		t.Errorf("a lease on a full store: %+v", v)
	}
	if v := mustTake(t, s, leaseOp(limit, "b", 0, true)); !v.Allowed || v.Err != nil {
		t.Errorf("a release of an unknown id: %+v", v)
	}
	over.Kind = limiters.OpEnd
	if v := mustTake(t, s, over); !v.Allowed || v.Used != 0 || s.Stats().Keys != 0 {
		t.Errorf("a release: %+v, %+v", v, s.Stats())
	}
}

// On a full store, a key is in its penalty, and an end of an unknown id arrives. An end is allowed,
// so no penalty denies it.
func TestFullStoreAllowsAnEndDuringAPenalty(t *testing.T) {
	full, roomy := New(Options{}), New(Options{})
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour, Params: limiters.Params{
		WindowStart: limiters.StartByFirstHit,
		Penalty:     limiters.PenaltySpec{After: 1, Within: time.Minute, For: 2 * time.Hour},
		Reserve:     limiters.ReserveSpec{TTL: time.Minute},
	}})
	for _, s := range []*Store{full, roomy} {
		mustTake(t, s, leaseOp(limit, "a", 1, false))
		if v := mustTake(t, s, leaseOp(limit, "b", 1, false)); !v.Penalized {
			t.Fatalf("the denied charge: %+v, want a penalty", v)
		}
	}
	full.options.MaxBytes = 1
	unknown := leaseOp(limit, "unknown", 0, true)
	got, want := mustTake(t, full, unknown), mustTake(t, roomy, unknown)
	got.At, got.Order, want.At, want.Order = 0, 0, 0, 0
	got.ResetAfter, want.ResetAfter = got.ResetAfter.Round(time.Minute), want.ResetAfter.Round(time.Minute)
	if got != want || got.Penalized {
		t.Errorf("the end on a full store: %+v, want %+v", got, want)
	}
}

func TestReleaseIsAllowedAtMaxBytes(t *testing.T) {
	s := New(Options{MaxBytes: 1}) // the first key uses them up
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 1})
	mustTake(t, s, leaseOp(limit, "a", 1, false))
	if v := mustTake(t, s, leaseOp(limit, "a", 0, true)); v.Used != 0 || s.Stats().Keys != 0 {
		t.Errorf("a release: %+v, %+v", v, s.Stats())
	}
}

// An expired reservation filled its log, so hits fit although the state says otherwise until the
// reservation is removed. They need memory, as other hits do.
func TestChargesAfterAnExpiredReservationNeedMemory(t *testing.T) {
	spec := limiters.Spec{Algorithm: "sliding_log", Max: 5, Window: time.Hour}
	spec.Params.Reserve = limiters.ReserveSpec{TTL: time.Minute, Unsettled: limiters.UnsettledRelease}
	limit := limiterstest.MustLimit(spec)
	for name, ops := range map[string][]limiters.Op{
		"new reservations":               {leaseOp(limit, "b", 1, false), leaseOp(limit, "c", 1, false), leaseOp(limit, "d", 1, false)},
		"the expired reservation":        {leaseOp(limit, "a", 1, false)},
		"a charge without a reservation": {{Key: "k", Limit: limit, Hits: 1}},
	} {
		s := New(Options{MaxBytes: 1}) // the first key uses them up
		mustTake(t, s, leaseOp(limit, "a", 5, false))
		if v := mustTake(t, s, leaseOp(limit, "b", 1, false)); v.Allowed || v.Err != nil {
			t.Errorf("%s: before the reservation expires: %+v, want a denial", name, v)
		}
		advance(s, 2*time.Minute)
		before := s.Stats().Bytes
		out, err := limiterstest.Take(s, limiters.Singles(ops...)...)
		must.Succeed(t, err)
		for i, v := range out {
			if !errors.Is(v.Err, ErrFull) {
				t.Errorf("%s: operation %d: %+v, want ErrFull", name, i, v)
			}
		}
		if after := s.Stats().Bytes; after > before {
			t.Errorf("%s: the full store grew from %d to %d bytes", name, before, after)
		}
	}
}

// The charge finds an expired reservation from before the limit became 0. It is denied in any case,
// so no key may go for it.
func TestLimitOf0EvictsNothing(t *testing.T) {
	spec := limiters.Spec{Algorithm: "sliding_log", Max: 5, Window: time.Hour}
	spec.Params.Reserve = limiters.ReserveSpec{TTL: time.Minute}
	limit := limiterstest.MustLimit(spec)
	spec.Max = 0
	zero := limiterstest.MustLimit(spec)
	s := New(Options{})
	mustTake(t, s, leaseOp(limit, "a", 5, false))
	for i := range 200 {
		mustTake(t, s, limiters.Op{Key: fmt.Sprint(i), Limit: limit, Hits: 1})
	}
	s.options.MaxBytes = 1 // from here on, the store is full
	advance(s, 2*time.Minute)
	if v := mustTake(t, s, limiters.Op{Key: "k", Limit: zero, Hits: 1}); v.Allowed || v.Err != nil {
		t.Errorf("%+v, want a denial", v)
	}
	if stats := s.Stats(); stats.Evicted != 0 {
		t.Errorf("%d keys were evicted, want none", stats.Evicted)
	}
}

// The limits share a record, which has one of them as its own.
func TestSnapshotKeepsThePenaltyOfASharedRecord(t *testing.T) {
	s := New(Options{})
	spec := limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: time.Hour}
	smaller := limiterstest.MustLimit(spec)
	spec.Max, spec.Params.Penalty = 9, limiters.PenaltySpec{After: 1, Within: time.Minute, For: time.Hour}
	penalizing := limiterstest.MustLimit(spec)
	mustTake(t, s, limiters.Op{Key: "k", Limit: penalizing, Hits: 10})
	mustTake(t, s, limiters.Op{Key: "k", Limit: smaller, Hits: 1})
	loaded, _ := reload(t, s, Options{})
	if v := mustTake(t, loaded, limiters.Op{Key: "k", Limit: penalizing, Hits: 1}); !v.Penalized {
		t.Errorf("after a restart: %+v, want a penalty", v)
	}
}

// The limits share a record. An operation under the one without a penalty does not shorten the life
// of the record to its own window. The record has the denials that lead to a penalty.
func TestSharedRecordRemembersDenials(t *testing.T) {
	s := New(Options{})
	spec := limiters.Spec{Algorithm: "fixed_window", Max: 9, Window: time.Minute}
	plain := limiterstest.MustLimit(spec)
	spec.Max, spec.Params.Penalty = 1, limiters.PenaltySpec{After: 2, Within: time.Hour, For: time.Hour}
	penalizing := limiterstest.MustLimit(spec)
	deny := func() limiters.Verdict {
		mustTake(t, s, limiters.Op{Key: "k", Limit: penalizing, Hits: 1})
		return mustTake(t, s, limiters.Op{Key: "k", Limit: penalizing, Hits: 1})
	}
	deny()
	mustTake(t, s, limiters.Op{Key: "k", Limit: plain, Hits: 1})
	advance(s, 5*time.Minute)
	s.Sweep()
	if v := deny(); !v.PenaltyBegan {
		t.Errorf("the second denial within an hour: %+v, want a penalty", v)
	}
}

// BenchmarkLeases ends a lease of a key and opens another, in two calls.
func BenchmarkLeases(b *testing.B) {
	for _, c := range []struct {
		name   string
		spec   limiters.Spec
		oldest bool // the oldest lease ends, as if all requests took the same time; otherwise a random one
	}{
		{"concurrency/random", limiters.Spec{Algorithm: "concurrency", Max: limiters.MaxLeases, Params: limiters.Params{LeaseTTL: time.Hour}}, false},
		{"concurrency/oldest", limiters.Spec{Algorithm: "concurrency", Max: limiters.MaxLeases, Params: limiters.Params{LeaseTTL: time.Hour}}, true},
		{"reserve/random", limiters.Spec{Algorithm: "funnel", Max: 1_000_000, Window: time.Hour, Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Hour}}}, false},
	} {
		limit := limiterstest.MustLimit(c.spec)
		for _, open := range []int{10, 1000, limiters.MaxLeases} {
			b.Run(fmt.Sprintf("%s/%d", c.name, open), func(b *testing.B) {
				s, rnd, out := New(Options{}), rand.New(rand.NewPCG(1, 2)), make([]limiters.Verdict, 1)
				op := limiters.Op{Key: "domain|7:user_id=alice", Limit: limit, Hits: 1}
				ops := []limiters.Op{op}
				groups := limiters.Singles(ops...)
				take := func(id limiters.LeaseID, end bool) {
					ops[0].Lease, ops[0].Kind = id, endOrCharge(end)
					if err := s.Take(context.Background(), groups, out); err != nil || !out[0].Allowed {
						b.Fatal(err, out)
					}
				}
				next := func() (id limiters.LeaseID) {
					binary.LittleEndian.PutUint64(id[:], rnd.Uint64())
					binary.LittleEndian.PutUint64(id[8:], rnd.Uint64())
					return id
				}
				ids := make([]limiters.LeaseID, open)
				for i := range ids {
					ids[i] = next()
					take(ids[i], false)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					at := i % open
					if !c.oldest {
						at = rnd.IntN(open)
					}
					take(ids[at], true)
					ids[at] = next()
					take(ids[at], false)
				}
			})
		}
	}
}
