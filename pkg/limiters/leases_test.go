package limiters

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

func TestLeaseIDDependsOnTextAndSecret(t *testing.T) {
	a, b := NewLeaseID(nil, "a"), NewLeaseID(nil, "b")
	secret := NewLeaseID([]byte("s"), "a")
	if a == b || a == secret || a == (LeaseID{}) {
		t.Errorf("a %x, b %x, a with a secret %x: want three different ids, none of them zero", a, b, secret)
	}
	if again := NewLeaseID(nil, "a"); again != a {
		t.Errorf("a again: %x, want %x", again, a)
	}
	if again := NewLeaseID([]byte("s"), "a"); again != secret {
		t.Errorf("a with the secret again: %x, want %x", again, secret)
	}
}

// A settlement may fill a funnel to twice its capacity, from which an estimate drains last.
func TestRefundableForOutlastsAnOverfullFunnel(t *testing.T) {
	l, err := NewLimit(Spec{
		Algorithm: "funnel", Max: 10, Window: 10 * time.Second,
		Params: Params{Reserve: ReserveSpec{TTL: time.Second, Unsettled: UnsettledRelease}},
	})
	must.Succeed(t, err)
	s := &State{}
	take := func(now int64, op Op) Verdict {
		op.Key, op.Limit = "k", l
		out := make([]Verdict, 1)
		Decide(now, Singles(op), []*State{s}, out, nil)
		return out[0]
	}
	charged := int64(1_700_000_000_000_000)
	expired, settled := NewLeaseID(nil, "expired"), NewLeaseID(nil, "settled")
	take(charged, Op{Hits: 5, Lease: expired})
	take(charged, Op{Hits: 1, Lease: settled})
	take(charged, Op{Hits: 15, Lease: settled, Kind: OpEnd})
	forgotten := charged + l.RefundableFor().Microseconds()
	without := *s
	without.Extra = nil // as in a store that has forgotten the reservation
	used, _ := l.algorithm.usage(&without, forgotten)
	if v := take(forgotten, Op{}); v.Used != used {
		t.Errorf("after %v, %d used, and %d if the reservation is forgotten: want equal numbers", l.RefundableFor(), v.Used, used)
	}
}

// Compares a set of leases with a map.
func TestLeaseSetMatchesMap(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var s leaseSet
		want, now := map[LeaseID]lease{}, int64(1000)
		for range 2000 {
			id := NewLeaseID(nil, strconv.Itoa(rnd.IntN(300)))
			switch rnd.IntN(9) {
			case 8:
				latest := now + 1 + rnd.Int64N(50)
				s.shorten(latest, len(want))
				for id, l := range want {
					l.expires = min(l.expires, latest)
					want[id] = l
				}
			case 0, 1, 2, 3:
				l := lease{expires: now + rnd.Int64N(50) + 1, n: rnd.Int64N(5)}
				s.set(id, l)
				want[id] = l
			case 4, 5:
				got, found := s.remove(id)
				if l, is := want[id]; found != is || got != l {
					t.Fatalf("seed %d: removed %v %v, want %v %v", seed, got, found, l, is)
				}
				delete(want, id)
			default:
				now += rnd.Int64N(3)
				for {
					l, expired := s.popExpired(now)
					if !expired {
						break
					}
					if l.expires > now {
						t.Fatalf("seed %d: %v expired at %d", seed, l, now)
					}
				}
				for id, l := range want {
					if l.expires <= now {
						delete(want, id)
					}
				}
			}
			compareLeases(t, &s, want)
		}
	}
}

func compareLeases(t *testing.T, s *leaseSet, want map[LeaseID]lease) {
	t.Helper()
	sum, first, last := int64(0), int64(0), int64(0)
	for id, l := range want {
		if got, found := s.byID[id]; !found || got != l {
			t.Fatalf("%v %v, want %v", got, found, l)
		}
		last = max(last, l.expires)
		if sum += l.n; first == 0 || l.expires < first {
			first = l.expires
		}
	}
	if s.len() != len(want) || s.sum != sum || s.earliest() != first || s.latest() != last {
		t.Fatalf("%d leases, %d from %d to %d, want %d, %d from %d to %d", s.len(), s.sum, s.earliest(), s.latest(), len(want), sum, first, last)
	}
	if len(s.order) != len(want) || !slices.IsSortedFunc(s.order, expiry.compare) {
		t.Fatalf("%d elements for %d leases, sorted: %t", len(s.order), len(want), slices.IsSortedFunc(s.order, expiry.compare))
	}
}

// The memory of a key grows with its leases, and is freed when they end.
func TestLeasesAreBounded(t *testing.T) {
	l, err := NewLimit(Spec{Algorithm: "concurrency", Max: MaxLeases})
	must.Succeed(t, err)
	var s State
	take := func(kind OpKind, i, n int) Verdict {
		out := make([]Verdict, 1)
		op := Op{Limit: l, Hits: int64(n), Lease: NewLeaseID(nil, strconv.Itoa(i)), Kind: kind}
		Decide(1_000_000, Singles(op), []*State{&s}, out, nil)
		return out[0]
	}
	for i := range MaxLeases {
		if v := take(OpAddHits, i, 1); !v.Allowed {
			t.Fatalf("lease %d: %+v, want it allowed", i, v)
		}
	}
	size := s.HeapBytes()
	if v := take(OpAddHits, MaxLeases, 1); v.Allowed || v.RetryAfter != time.Second {
		t.Errorf("lease %d: %+v, want a denial until a lease expires after %s", MaxLeases+1, v, time.Second)
	}
	if v := take(OpAddHits, 1, 1); !v.Allowed || v.Used != MaxLeases {
		t.Errorf("a charge with a held id: %+v, want it allowed with %d used", v, MaxLeases)
	}
	if v := take(OpAddHits, MaxLeases, MaxLeases+1); v.Allowed || v.Err != nil {
		t.Errorf("%d slots: %+v, want a denial without an error", MaxLeases+1, v)
	}
	for i := MaxLeases; i < 3*MaxLeases; i++ {
		take(OpEnd, i, 0)
	}
	if got := s.extraOrEmpty().leases.ended.len(); got != MaxLeases {
		t.Errorf("%d ended ids are remembered, want %d", got, MaxLeases)
	}
	if s.HeapBytes() < size || size < MaxLeases*40 || size > MaxLeases*400 {
		t.Errorf("%d bytes, then %d, want 40 to 400 for each of %d leases, and no fewer with as many ended ids", size, s.HeapBytes(), MaxLeases)
	}
	for i := range MaxLeases {
		take(OpEnd, i, 0)
	}
	for range MaxLeases / LeasesPerOp {
		Decide(1_000_000+EndedTTL.Microseconds(), Singles(Op{Limit: l}), []*State{&s}, make([]Verdict, 1), nil)
	}
	if !s.IsZero() || s.HeapBytes() != 0 {
		t.Errorf("after all ends: %+v, want the zero state", s)
	}
}

// A snapshot may say that a lease under concurrency ended with an actual cost.
func TestEndedLeaseOfASnapshotChargesNoSlots(t *testing.T) {
	l, err := NewLimit(Spec{Algorithm: "concurrency", Max: 2})
	must.Succeed(t, err)
	const now = 1_000_000
	state, out := State{}, make([]Verdict, 1)
	id := NewLeaseID(nil, "a")
	state.ensureExtraState().leases.ended.set(id, lease{expires: 2 * now, n: 1})
	if Decide(now, Singles(Op{Limit: l, Hits: 1, Lease: id}), []*State{&state}, out, nil); !out[0].Allowed || out[0].Used != 0 {
		t.Errorf("%+v: want it allowed, without a slot", out[0])
	}
}

// A charge whose end arrived first is replaced by the actual cost, so a store needs memory for it
// even if its estimate is 0.
func TestChargeAfterItsEndNeedsMemory(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "sliding_log", "funnel"} {
		l, err := NewLimit(Spec{Algorithm: algorithm, Max: 10, Window: time.Hour, Params: Params{Reserve: ReserveSpec{TTL: time.Hour}}})
		must.Succeed(t, err)
		const now = 1_000_000
		state, out := State{}, make([]Verdict, 1)
		decide := func(what string, op Op, needsMemory bool, used int64) {
			t.Helper()
			op.Limit = l
			asked := false
			Decide(now, Singles(op), []*State{&state}, out, func(int) error { asked = true; return nil })
			if asked != needsMemory {
				t.Errorf("%s: %s needs memory: %t, want %t", algorithm, what, asked, needsMemory)
			}
			if !out[0].Allowed || out[0].Used != used {
				t.Errorf("%s: %s: %+v, want allowed with %d used", algorithm, what, out[0], used)
			}
		}
		early, late := NewLeaseID(nil, "early"), NewLeaseID(nil, "late")
		decide("an end that arrives first", Op{Lease: early, Kind: OpEnd, Hits: 3}, true, 0)
		decide("its charge", Op{Lease: early}, true, 3)
		decide("another charge", Op{Lease: late}, true, 3)
		decide("the same charge again", Op{Lease: late}, false, 3)
		decide("an end above its estimate", Op{Lease: late, Kind: OpEnd, Hits: 2}, false, 5) // must not fail
	}
}

func TestConcurrencySpecIsBounded(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		err  bool
	}{
		{Spec{Algorithm: "concurrency", Max: 10}, false},
		{Spec{Algorithm: "concurrency", Max: MaxLeases}, false},
		{Spec{Algorithm: "concurrency", Max: MaxLeases + 1}, true},
		{Spec{Algorithm: "concurrency", Max: 10, Params: Params{LeaseTTL: time.Millisecond}}, false},
		{Spec{Algorithm: "concurrency", Max: 10, Params: Params{LeaseTTL: 24 * time.Hour}}, false},
		{Spec{Algorithm: "concurrency", Max: 10, Params: Params{LeaseTTL: time.Microsecond}}, true},
		{Spec{Algorithm: "concurrency", Max: 10, Params: Params{LeaseTTL: 24*time.Hour + time.Second}}, true},
		{Spec{Algorithm: "concurrency", Max: 10, Window: time.Minute}, true},
		{Spec{Algorithm: "concurrency", Max: 10, CountDenied: true}, true},
	} {
		l, err := NewLimit(c.spec)
		if (err != nil) != c.err {
			t.Errorf("%+v: got error %v, want an error: %t", c.spec, err, c.err)
		}
		if err == nil && (l.StateID() != "s" || !l.UsesLeases() || !l.UsesExtraState() || l.HasPenalty()) {
			t.Errorf("%+v: state %q, uses leases %t and extra state %t, has a penalty %t, want state s, true, true, false",
				c.spec, l.StateID(), l.UsesLeases(), l.UsesExtraState(), l.HasPenalty())
		}
	}
}

// reserving returns a limit that reserves, and whose maximum is never reached here.
func reserving(t *testing.T) *Limit {
	l, err := NewLimit(Spec{Algorithm: "fixed_window", Max: 1 << 40, Window: time.Hour, Params: Params{Reserve: ReserveSpec{TTL: time.Hour}}})
	must.Succeed(t, err)
	return l
}

// Open reservations may have estimates whose sum overflows. They are read all the same.
func TestLargeEstimatesAreRead(t *testing.T) {
	var s State
	for i := range 3000 {
		s.ensureExtraState().leases.open.set(NewLeaseID(nil, fmt.Sprint(i)), lease{expires: 5, n: MaxHits, chargedAt: 3})
	}
	l := reserving(t)
	got, err := ReadState(l, AppendState(nil, l, &s), true)
	if n := got.extraOrEmpty().leases.open.len(); err != nil || n != 3000 {
		t.Errorf("%d leases, %v, want 3000", n, err)
	}
}

// The held slots of a key are summed, so a lease with more slots than any limit has is invalid.
func TestLeaseOfTooManySlotsIsInvalid(t *testing.T) {
	l, err := NewLimit(Spec{Algorithm: "concurrency", Max: 2})
	must.Succeed(t, err)
	for n, valid := range map[int64]bool{MaxLeases: true, MaxLeases + 1: false, MaxHits: false} {
		var s State
		s.ensureExtraState().leases.open.set(NewLeaseID(nil, "a"), lease{expires: 5, n: n})
		if _, err := ReadState(l, AppendState(nil, l, &s), true); valid != (err == nil) {
			t.Errorf("a lease of %d slots: error %v, want a valid state: %v", n, err, valid)
		}
	}
}

// A key with as many open reservations as it may have denies each further one.
func TestKeyWithMaxReservationsDenies(t *testing.T) {
	l := reserving(t)
	var s State
	for i := range MaxLeases {
		if l.Denies(&s, 1) {
			t.Fatalf("%d reservations: denied", i)
		}
		s.ensureExtraState().leases.open.set(NewLeaseID(nil, fmt.Sprint(i)), lease{expires: 5, n: 1, chargedAt: 1})
	}
	if !l.Denies(&s, 1) {
		t.Error("with the maximum of reservations: not denied")
	}
}

func TestInvalidLeasesAreRejected(t *testing.T) {
	var s State
	id := NewLeaseID(nil, "a")
	s.ensureExtraState().leases.open.set(id, lease{expires: 5, n: 2, chargedAt: 3})
	s.ensureExtraState().leases.ended.set(id, lease{expires: 6, n: 4})
	s.words = [3]int64{7, 8}
	l := reserving(t)
	b := AppendState(nil, l, &s)
	if len(b) != StateLen(l, &s) {
		t.Errorf("%d bytes, want %d", len(b), StateLen(l, &s))
	}
	got, err := ReadState(l, b, true)
	leases := &got.extraOrEmpty().leases
	if err != nil || got.words[0] != 7 || got.words[1] != 8 || leases.open.byID[id] != (lease{5, 2, 3}) || leases.ended.byID[id] != (lease{6, 4, 0}) {
		t.Errorf("got %+v, leases %+v, error %v, want the words 7 and 8, and the lease as open {5 2 3} and ended {6 4 0}", got, leases, err)
	}
	for i := range b {
		if _, err := ReadState(l, b[:i], true); err == nil {
			t.Errorf("ReadState of %d of %d bytes: no error, want one", i, len(b))
		}
	}
	if _, err := ReadState(l, append(b, 7), true); err == nil {
		t.Error("ReadState of an extra byte: no error, want one")
	}
	for what, at := range map[string]int{"a number of leases": 3, "an expiry": 4 + 16 + 7, "a number of slots": 4 + 24 + 7, "a time": 4 + 32 + 7} {
		bad := append([]byte(nil), b...)
		if bad[at] = 0x7f; what == "a number of leases" {
			bad[0] = 0xff
		}
		if _, err := ReadState(l, bad, true); err == nil {
			t.Errorf("%s is out of range and is read", what)
		}
	}
}
