package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// withExtraState returns a limit with a penalty and reservations for each algorithm that takes
// them.
func withExtraState(maximum int64) (limits []*limiters.Limit) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		params := limiterstest.FirstHitParams(name)
		params.Penalty = limiters.PenaltySpec{After: 2, Within: time.Minute, For: 2 * time.Hour}
		params.Reserve = limiters.ReserveSpec{TTL: 2 * time.Minute, Unsettled: limiters.UnsettledRelease}
		limits = append(limits, limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: maximum, Window: time.Hour, Params: params}))
	}
	return limits
}

// The extra keys of an operation are in the hash slot of its key, have an expiry, and are hashed
// with it.
func TestExtraKeysShareSlotExpiryAndHashing(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	for name, hashed := range map[string]string{"readable": "", "hashed": secret} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, connect.Options{Addr: server.Addr}, Options{KeyPrefix: "p:", KeySecret: hashed})
			for _, limit := range withExtraState(1) {
				op := limiters.Op{Key: "alice", Limit: limit, Hits: 1, Lease: leaseID(1)}
				over := op
				over.Lease = leaseID(2)
				if out, err := take(s, op, over); err != nil || !out[0].Allowed || out[1].Allowed {
					t.Fatal(out, err)
				}
				key := s.namer.key(&op)
				for _, name := range []string{key, key + keySuffixes[reservationsKey], key + keySuffixes[penaltyKey]} {
					if expiresIn := c.PTTL(t.Context(), name).Val(); expiresIn <= 0 {
						t.Errorf("%s %q: expires in %v", limit.Algorithm(), name, expiresIn)
					}
					if hashSlotOf(name) != hashSlotOf(key) {
						t.Errorf("%q is not in the slot of %q", name, key)
					}
				}
			}
			all := c.Keys(t.Context(), "*").Val()
			if named := slices.ContainsFunc(all, func(key string) bool { return strings.Contains(key, "alice") }); named == (hashed != "") {
				t.Errorf("hashed with %q: %q", hashed, all)
			}
			c.FlushAll(t.Context())
		})
	}
}

// The key of a penalty outlives the penalty and the time until it is forgotten, though the first
// offense was written with an earlier expiry.
func TestPenaltiesHaveAnExpiry(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	for _, limit := range withExtraState(1) {
		op := limiters.Op{Key: "k", Limit: limit, Hits: 2}
		for _, keep := range []time.Duration{limit.Penalty().Within, limit.Penalty().For + limit.Penalty().Forget} {
			start := time.Now()
			if out, err := take(s, op); err != nil || out[0].Err != nil || out[0].Allowed {
				t.Fatal(err, out)
			}
			expiresIn := c.PTTL(t.Context(), s.namer.key(&op)+keySuffixes[penaltyKey]).Val()
			if expiresIn+time.Since(start) < keep || expiresIn > 2*keep {
				t.Errorf("%s: the key of the penalty expires in %v, want %v at least", limit.Algorithm(), expiresIn, keep)
			}
		}
	}
}

// An offense that a full Redis cannot count begins no penalty, and denies no later request. A
// reservation fails, and charges nothing. A settle that cannot be written fails.
func TestFullRedisCountsNoOffense(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	for _, limit := range withExtraState(1) {
		op := limiters.Op{Key: "k" + limit.StateID(), Limit: limit, Hits: 1, Lease: leaseID(1)}
		over, other := op, op
		over.Lease = leaseID(2)
		other.Key += "other"
		if out, err := take(s, op, over); err != nil || out[1].Allowed || out[1].Penalized {
			t.Fatal(out, err)
		}
		setFull(t, c, true)
		for range 2 {
			out, err := take(s, over)
			if err != nil || out[0].Err != nil || out[0].Allowed || out[0].Penalized {
				t.Errorf("%s: %+v %v: want a denial without a penalty", limit.Algorithm(), out, err)
			}
			out, err = take(s, other, other)
			if err != nil || out[0].Err == nil || out[1].Err == nil {
				t.Errorf("%s: %+v %v: want errors", limit.Algorithm(), out, err)
			}
		}
		setFull(t, c, false)
		if out, err := take(s, over); err != nil || !out[0].Penalized {
			t.Errorf("%s: %+v %v: want the second offense", limit.Algorithm(), out, err)
		}
		if n := c.Exists(t.Context(), s.namer.key(&other), s.namer.key(&other)+keySuffixes[reservationsKey]).Val(); n != 0 {
			t.Errorf("%s: a reservation that failed has left %d keys, want 0", limit.Algorithm(), n)
		}
	}
}

// The operation that an inspection follows in a call is not charged on a full Redis, so the
// inspection does not know the state.
func TestFullRedisFailsInspectionsOfUnsavedKeys(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := open(t, server), server.Client(t)
	for name, peek := range map[string]string{"would fit": limiters.PeekWouldFit, "over": limiters.PeekOver} {
		limit := limiterstest.MustLimit(limiters.Spec{
			Algorithm: "fixed_window", Max: 2, Window: time.Hour, CountDenied: true,
			Params: limiters.Params{WindowStart: limiters.StartByFirstHit, Peek: peek, Penalty: limiters.PenaltySpec{After: 100, Within: time.Hour, For: time.Hour}},
		})
		op := limiters.Op{Key: name, Limit: limit, Hits: 1}
		inspection := limiters.Op{Key: name, Limit: limit, Kind: limiters.OpInspect}
		if out, err := take(s, op, op); err != nil || !out[1].Allowed {
			t.Fatal(out, err)
		}
		setFull(t, c, true)
		if out, err := take(s, op, inspection); err != nil || out[1].Err == nil || out[1].PenaltyLeft != 0 {
			t.Errorf("%s: %+v %v: want an error", name, out, err)
		}
		if out, err := take(s, inspection); err != nil || out[0].Err != nil || out[0].Allowed || out[0].PenaltyLeft != 0 {
			t.Errorf("%s: by itself: %+v %v: want a denial without a penalty", name, out, err)
		}
		setFull(t, c, false)
	}
}

// A settle moves an entry of a log with many later entries. With 10,000 of them or more, the
// estimate stays.
func TestSettleMovesEntriesOfALongLogUpToABound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	limit := reserving("sliding_log", 30_000)
	numbers := []int{3, 63, 64, 200, 9_999, 10_000}
	if testing.Short() {
		numbers = numbers[:4] // 10,000 calls take minutes with the race detector, and find no more: they run on one goroutine
	}
	for i, later := range numbers {
		reference := limiterstest.NewReference()
		key := fmt.Sprint("k", i)
		takeAt := func(now time.Time, ops ...limiters.Op) limiters.Verdict {
			got, want := make([]limiters.Verdict, len(ops)), make([]limiters.Verdict, len(ops))
			must.Succeed(t, errors.Join(s.TakeAt(t.Context(), now, limiters.Singles(ops...), got), reference.TakeAt(t.Context(), now, limiters.Singles(ops...), want)))
			if !slices.Equal(got, want) {
				t.Fatalf("%d later entries: got %+v, want %+v", later, got[len(got)-1], want[len(want)-1])
			}
			return got[len(got)-1]
		}
		now := logStart
		takeAt(now, limiters.Op{Key: key, Limit: limit, Hits: 10, Lease: leaseID(1)})
		for range later {
			now = now.Add(time.Microsecond)
			takeAt(now, limiters.Op{Key: key, Limit: limit, Hits: 1})
		}
		v := takeAt(now, limiters.Op{Key: key, Limit: limit, Hits: 25, Lease: leaseID(1), Kind: limiters.OpEnd})
		charged := int64(25)
		if later >= 10_000 {
			charged = 10
		}
		if v.Err != nil || v.Used != charged+int64(later) {
			t.Errorf("%d later entries: %+v, want %d hits of the reservation", later, v, charged)
		}
		if v := takeAt(now, limiters.Op{Key: key, Limit: limit, Hits: 25, Lease: leaseID(1), Kind: limiters.OpEnd}); v.Used != charged+int64(later) {
			t.Errorf("%d later entries: settled again: %+v", later, v)
		}
		takeAt(logStart.Add(time.Hour-time.Microsecond), limiters.Op{Key: key, Limit: limit, Hits: 30_000})
		takeAt(logStart.Add(time.Hour), limiters.Op{Key: key, Limit: limit, Hits: 30_000})
		takeAt(logStart.Add(time.Hour), limiters.Op{Key: key, Limit: limit, Hits: -int64(later) / 2})
	}
}

// A request ends after the TTL of its reservation. Its actual cost is not charged: the estimate
// stays, or was refunded.
func TestSettleAfterTTLChangesNothing(t *testing.T) {
	s := open(t, redistest.Start(t))
	for unsettled, charged := range map[string]int64{limiters.UnsettledCharge: 40, limiters.UnsettledRelease: 0} {
		limit := limiterstest.MustLimit(limiters.Spec{
			Algorithm: "fixed_window", Max: 100, Window: time.Hour,
			Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Minute, Unsettled: unsettled}},
		})
		op := limiters.Op{Key: unsettled, Limit: limit, Hits: 40, Lease: leaseID(1)}
		for _, step := range []struct {
			after time.Duration
			end   bool
			used  int64
		}{{0, false, 40}, {time.Minute, true, charged}, {time.Minute, true, charged}} {
			out := make([]limiters.Verdict, 1)
			op.Kind = endOrCharge(step.end)
			if step.end {
				op.Hits = 90
			}
			if err := s.TakeAt(t.Context(), logStart.Add(step.after), limiters.Singles(op), out); err != nil || out[0].Used != step.used {
				t.Errorf("%s, after %v: %+v, %v, want %d used", unsettled, step.after, out[0], err, step.used)
			}
		}
	}
}

// Redis restarts without persistence while requests have reservations. Their settles change
// nothing, and their costs are missing from the new usage: every limit once more, and what had been
// reserved.
func TestSettleOfALostReservationChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	for _, name := range limiterstest.WindowedAlgorithms() {
		params := limiterstest.FirstHitParams(name)
		params.Reserve.TTL = time.Hour
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 100, Window: 365 * 24 * time.Hour, Params: params})
		op := func(id int, n int64, end bool) limiters.Op {
			return limiters.Op{Key: "k", Limit: limit, Hits: n, Lease: leaseID(id), Kind: endOrCharge(end)}
		}
		if out, err := take(s, op(1, 60, false), op(2, 40, false)); err != nil || out[1].Used != 100 {
			t.Fatal(out, err)
		}
		must.Succeed(t, c.FlushAll(t.Context()).Err())
		out, err := take(s, op(1, 90, true), op(3, 100, false), op(2, 70, true), op(3, 80, true))
		if err != nil || out[0].Used != 0 || !out[1].Allowed || out[2].Used != 100 || out[3].Used != 80 {
			t.Errorf("%s: %+v, %v, want only the reservation after the restart charged and settled", name, out, err)
		}
	}
}
