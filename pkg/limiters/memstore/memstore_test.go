package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func TestStorePassesTheSuite(t *testing.T) {
	limiterstest.Run(t, func(*testing.T) limiterstest.TimedStore { return New(Options{}) })
}

func hit(t *testing.T, s *Store, key string, n int64, spec limiters.Spec) limiters.Verdict {
	t.Helper()
	return mustTake(t, s, limiters.Op{Key: key, Limit: limiterstest.MustLimit(spec), Hits: n})
}

var hourly = limiters.Spec{Algorithm: "fixed_window", Max: 2, Window: time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}}

func TestExpiredKeysAreRemovedByTakes(t *testing.T) {
	s := New(Options{})
	for i := range 1000 {
		hit(t, s, fmt.Sprint("old ", i), 1, hourly)
	}
	if got := s.Stats(); got.Keys != 1000 || got.Bytes <= 0 {
		t.Fatalf("after 1000 keys: %+v", got)
	}
	later := hourly
	later.Window = 3 * time.Hour
	advance(s, 2*time.Hour)
	for i := range 5000 {
		hit(t, s, fmt.Sprint("new ", i), 1, later)
	}
	if got := s.Stats(); got.Keys > 5010 || got.Evicted != 0 {
		t.Errorf("5000 hits after the 1000 keys had ended: %+v, want the 5000 new keys alone", got)
	}
}

// advance lets d pass on the store's clock.
func advance(s *Store, d time.Duration) {
	now := time.UnixMicro(s.clock()).Add(d)
	s.options.Now = func() time.Time { return now }
}

func TestOrderWithinAMicrosecondNeverStepsBack(t *testing.T) {
	start := time.Now()
	s := New(Options{Now: func() time.Time { return start }})
	order := uint16(0)
	for i := range limiters.OrderAfterStore + 2 {
		v := hit(t, s, "k", 1, hourly)
		if v.Order < order || v.Order >= limiters.OrderAfterStore {
			t.Fatalf("take %d has the order %d after %d, want at least that and less than %d", i, v.Order, order, limiters.OrderAfterStore)
		}
		order = v.Order
	}
}

// time.Since ignores the wall clock only if the time that it gets has a reading of the monotonic
// clock.
func TestClockDoesNotFollowTheWallClock(t *testing.T) {
	s := New(Options{})
	if s.start == s.start.Round(0) {
		t.Error("the start has no reading of the monotonic clock")
	}
	s.start = s.start.Add(-time.Minute)
	if got := time.UnixMicro(s.clock()); got.Before(s.start.Add(time.Minute)) {
		t.Errorf("a minute after the start the clock is %v", got)
	}
}

func TestPeeksAndRefundsOfUnknownKeysTakeNoMemory(t *testing.T) {
	s := New(Options{})
	for i, name := range limiterstest.WindowedAlgorithms() {
		spec := limiters.Spec{Algorithm: name, Max: 3, Window: time.Hour}
		hit(t, s, fmt.Sprint("peek ", i), 0, spec)
		hit(t, s, fmt.Sprint("refund ", i), -2, spec)
		hit(t, s, fmt.Sprint("too much ", i), 4, spec)
		hit(t, s, fmt.Sprint("charged and refunded ", i), 3, spec)
		if name != "fixed_window" { // whose window stays open
			hit(t, s, fmt.Sprint("charged and refunded ", i), -3, spec)
		}
	}
	if got := s.Stats(); got.Keys != 1 {
		t.Errorf("%+v, want one key", got)
	}
}

// With its own clock the store removes keys as soon as they expire, and returns the verdicts of the
// reference.
func TestExpiryChangesNoVerdict(t *testing.T) {
	for seed := range limiterstest.Seeds(300) {
		for _, name := range limiters.Algorithms() {
			if limiters.HasWindow(name) {
				expiryChangesNoVerdict(t, limiterstest.NewGenerator(name, seed))
				expiryChangesNoVerdict(t, limiterstest.NewPenaltyGenerator(name, seed).WithoutReload())
			}
			expiryChangesNoVerdict(t, limiterstest.NewLeaseGenerator(name, seed).WithoutReload())
		}
		expiryChangesNoVerdict(t, limiterstest.NewMixedGenerator(seed))
	}
}

func expiryChangesNoVerdict(t *testing.T, g *limiterstest.Generator) {
	t.Helper()
	calls := &forwardCalls{Generator: g}
	limiterstest.Agree(t, calls, 60, ownClock{storeAt(&calls.now)}, limiterstest.NewReference())
}

// forwardCalls makes the calls of a Generator, at times that never step back.
type forwardCalls struct {
	*limiterstest.Generator
	now time.Time
}

func (c *forwardCalls) Next() (time.Time, []limiters.Group) {
	next, groups := c.Generator.Next()
	if next.After(c.now) {
		c.now = next
	}
	return c.now, groups
}

// ownClock is a Store that always decides at the time of its own clock. Its verdicts have no Order,
// because those of a reference that is given the time have none.
type ownClock struct{ *Store }

func (s ownClock) TakeAt(ctx context.Context, _ time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	err := s.Store.Take(ctx, groups, out)
	for i := range out {
		out[i].Order = 0
	}
	return err
}

func TestLimitOfZeroKeepsTheState(t *testing.T) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		s := New(Options{})
		spec := limiters.Spec{Algorithm: name, Max: 3, Window: 24 * 365 * time.Hour}
		nothing := spec
		nothing.Max = 0
		hit(t, s, "k", 3, spec)
		for range 10 {
			if v := hit(t, s, "k", 1, nothing); v.Allowed {
				t.Errorf("%s: a limit of 0 allows: %+v", name, v)
			}
		}
		if v := hit(t, s, "k", 3, spec); v.Allowed {
			t.Errorf("%s: the usage is forgotten: %+v", name, v)
		}
	}
}

// The limits of a group may share a state, and any of them may need the state for the longest time.
func TestExpiryIsTheLatestOfAllLimitsOfAKey(t *testing.T) {
	s := New(Options{})
	penalized := hourly
	penalized.Window = time.Minute
	plain := penalized
	penalized.Params.Penalty = limiters.PenaltySpec{After: 3, Within: time.Hour, For: time.Hour}
	group := limiters.Group{{Key: "k", Limit: limiterstest.MustLimit(plain), Hits: 1}, {Key: "k", Limit: limiterstest.MustLimit(penalized), Hits: 1}}
	for i, after := range []time.Duration{0, 0, 0, 2 * time.Minute, 0} {
		advance(s, after)
		s.Sweep()
		out, err := limiterstest.Take(s, group)
		must.Succeed(t, err)
		if allowed, began := i == 0 || i == 3, i == 4; out[1].Allowed != allowed || out[1].PenaltyBegan != began {
			t.Errorf("group %d: %+v, want allowed: %t, and a penalty from the third denial: %t", i+1, out[1], allowed, began)
		}
	}
}

// oneHourly allows one hit: a key is at its limit after its first hit, and denied from then on.
var oneHourly = withMax(hourly, 1)

func withMax(s limiters.Spec, maximum int64) limiters.Spec {
	s.Max = maximum
	return s
}

func TestFullStoreEvictsKeysBelowTheirLimit(t *testing.T) {
	s := New(Options{MaxKeys: 100})
	for i := range 300 {
		if v := hit(t, s, fmt.Sprint(i), 1, hourly); v.Err != nil {
			t.Fatal(i, v.Err)
		}
	}
	if got := s.Stats(); got.Keys > 100 || got.Evicted != 200 || got.Rejected != 0 {
		t.Errorf("%+v, want 100 keys, 200 evicted, none rejected", got)
	}
}

func TestFullStoreKeepsDeniedKeysAndRejectsNewOnes(t *testing.T) {
	s := New(Options{MaxKeys: 100})
	for i := range 100 {
		hit(t, s, fmt.Sprint(i), 1, oneHourly)
	}
	for i := range 100 {
		if v := hit(t, s, fmt.Sprint("new ", i), 1, oneHourly); !errors.Is(v.Err, ErrFull) || v.At != 0 || v.Order != 0 {
			t.Fatalf("new key %d: %+v, want ErrFull without a time", i, v)
		}
	}
	for i := range 100 {
		if v := hit(t, s, fmt.Sprint(i), 1, oneHourly); v.Allowed || v.Err != nil {
			t.Fatalf("key %d was admitted: %+v", i, v)
		}
	}
}

func TestFullStoreKeepsADeniedKeyAfterAPeekUnderALargerLimit(t *testing.T) {
	s := New(Options{MaxKeys: 50})
	hit(t, s, "mallory", 1, oneHourly)
	hit(t, s, "mallory", 0, withMax(hourly, 1000))
	expectDeniedAfterFlood(t, s, "mallory", oneHourly)
}

func TestFullStoreKeepsAKeyThatOneCallAddedAndDenied(t *testing.T) {
	s := New(Options{MaxKeys: 50})
	_, err := limiterstest.Take(s,
		limiters.Group{{Key: "mallory", Limit: limiterstest.MustLimit(withMax(hourly, 1000)), Hits: 1}},
		limiters.Group{{Key: "mallory", Limit: limiterstest.MustLimit(oneHourly), Hits: 1}})
	must.Succeed(t, err)
	expectDeniedAfterFlood(t, s, "mallory", oneHourly)
}

// expectDeniedAfterFlood charges 5000 other keys, and then expects a denial of key.
func expectDeniedAfterFlood(t *testing.T, s *Store, key string, spec limiters.Spec) {
	t.Helper()
	for i := range 5000 {
		hit(t, s, fmt.Sprint(i), 1, hourly)
	}
	if v := hit(t, s, key, 1, spec); v.Allowed {
		t.Errorf("%s was admitted: %+v", key, v)
	}
}

func TestFullStoreEvictsNothingForDeniedCharges(t *testing.T) {
	s := New(Options{MaxKeys: 100})
	for i := range 100 {
		hit(t, s, fmt.Sprint(i), 1, hourly)
	}
	funnel := limiters.Spec{Algorithm: "funnel", Max: 5, Window: time.Hour}
	for i := range 100 {
		for j, v := range []limiters.Verdict{
			hit(t, s, fmt.Sprint("new ", i), 1, withMax(hourly, 0)), hit(t, s, fmt.Sprint("new ", i), 6, funnel),
		} {
			if v.Allowed || v.Err != nil {
				t.Fatalf("%d: %+v, want a denial", j, v)
			}
		}
	}
	if got := s.Stats(); got.Keys != 100 || got.Evicted != 0 || got.Rejected != 0 {
		t.Errorf("%+v, want the 100 keys untouched", got)
	}
}

func TestFullStoreDeniesWithoutMemoryToCountDeniedHits(t *testing.T) {
	s := New(Options{MaxBytes: 1})
	hit(t, s, "first", 1, oneHourly)
	counting := limiters.Spec{Algorithm: "funnel", Max: 5, Window: time.Hour, CountDenied: true}
	if v := hit(t, s, "second", 6, counting); v.Allowed || v.Err != nil || v.RetryAfter >= 0 {
		t.Errorf("%+v, want a permanent denial", v)
	}
}

func TestFullStoreDeniesWithoutMemoryForALogToGrow(t *testing.T) {
	s := New(Options{MaxBytes: 4096})
	log := limiters.Spec{Algorithm: "sliding_log", Max: 3, Window: time.Hour}
	for i := range 1000 {
		hit(t, s, fmt.Sprint(i%100), 3, log)
	}
	if v := hit(t, s, "0", 1, log); v.Allowed || v.Err != nil {
		t.Errorf("%+v, want a denial", v)
	}
}

func TestFullStoreBoundsTheBytesOfLogs(t *testing.T) {
	s := New(Options{MaxBytes: 1 << 18})
	log := limiters.Spec{Algorithm: "sliding_log", Max: 100_000, Window: time.Hour}
	for i := range 50_000 {
		hit(t, s, fmt.Sprint(i%20), 1, log)
	}
	if got := s.Stats(); got.Bytes > 1<<18+1<<14 || got.Evicted == 0 {
		t.Errorf("%+v, want at most a chunk of a log above 256 KiB, and keys evicted for it", got)
	}
}

func TestFullStoreEvictsNoKeyOfTheSameCall(t *testing.T) {
	s := New(Options{MaxKeys: 1})
	limit := limiterstest.MustLimit(hourly)
	a, b := limiters.Group{{Key: "a", Limit: limit, Hits: 1}}, limiters.Group{{Key: "b", Limit: limit, Hits: 1}}
	out, err := limiterstest.Take(s, a, b, a)
	must.Succeed(t, err)
	if out[0].Err != nil || out[2].Used != 2 {
		t.Errorf("%+v, want a charged twice", out)
	}
}

func TestFullStoreChargesARecordThatAnEvictionMoves(t *testing.T) {
	limit := limiterstest.MustLimit(hourly)
	for range 20 {
		s := New(Options{MaxKeys: 10})
		keys := keysOf(s, 11, limit)
		for _, key := range keys[:10] {
			hit(t, s, key, 1, hourly)
		}
		out, err := limiterstest.Take(s, limiters.Group{{Key: keys[9], Limit: limit, Hits: 1}}, limiters.Group{{Key: keys[10], Limit: limit, Hits: 1}})
		if err != nil || out[1].Err != nil {
			t.Fatal(err, out)
		}
		if v, w := hit(t, s, keys[9], 0, hourly), hit(t, s, keys[10], 0, hourly); v.Used != 2 || w.Used != 1 {
			t.Fatalf("%+v, %+v: want 2 and 1 used", v, w)
		}
	}
}

func TestFullStoreInspectsANewKey(t *testing.T) {
	s := New(Options{MaxKeys: 1})
	hit(t, s, "a", 1, oneHourly)
	inspection := limiters.Op{Key: "b", Limit: limiterstest.MustLimit(oneHourly), Hits: 1, Kind: limiters.OpInspect}
	if v := mustTake(t, s, inspection); v.Err != nil {
		t.Errorf("%+v: want a verdict", v)
	}
}

func TestFullStoreChargesNoGroupWithARejectedKey(t *testing.T) {
	s := New(Options{MaxKeys: 1})
	hit(t, s, "a", 1, oneHourly)
	roomy := limiterstest.MustLimit(withMax(hourly, 9))
	out, err := limiterstest.Take(s, limiters.Group{{Key: "a", Limit: roomy, Hits: 1}, {Key: "b", Limit: roomy, Hits: 1}})
	must.Succeed(t, err)
	if !errors.Is(out[1].Err, ErrFull) || out[0].Err != nil || out[0].Used != 1 {
		t.Errorf("%+v, want b rejected and a not charged", out)
	}
}

// A record is protected by the smallest limit that its key is used under. A limit that a reload has
// raised must not protect records for longer than its window.
func TestRaisedLimitDoesNotProtectItsKeys(t *testing.T) {
	s := New(Options{MaxKeys: 1})
	low := limiters.Spec{Algorithm: "sliding_log", Max: 2, Window: time.Hour}
	raised := low
	raised.Max = 100
	hit(t, s, "a", 2, low)
	if v := hit(t, s, "b", 1, low); !errors.Is(v.Err, ErrFull) {
		t.Fatalf("%+v: want a kept, which is denied", v)
	}
	hit(t, s, "a", 1, raised)
	if v := hit(t, s, "b", 1, raised); !errors.Is(v.Err, ErrFull) {
		t.Fatalf("%+v: want a kept, which was denied a moment ago", v)
	}
	for range 3 {
		advance(s, 40*time.Minute)
		hit(t, s, "a", 2, raised)
	}
	if v := hit(t, s, "b", 1, raised); v.Err != nil {
		t.Errorf("%+v: want room, since nothing is denied", v)
	}
}

// Of two funnels of a capacity, the one with the higher rate is full at a lower level of its state.
func TestFasterFunnelProtectsItsFullKeys(t *testing.T) {
	s := New(Options{MaxKeys: 1})
	slow := limiters.Spec{Algorithm: "funnel", Max: 60, Window: time.Minute, Params: limiters.Params{Capacity: 100}}
	fast := slow
	fast.Max = 6000
	hit(t, s, "a", 1, slow)
	advance(s, time.Second)
	hit(t, s, "a", 100, fast)
	if v := hit(t, s, "b", 1, fast); !errors.Is(v.Err, ErrFull) {
		t.Errorf("%+v: want a kept, which is denied", v)
	}
}

func (sh *shard) each(f func(record)) {
	for i := range sh.slabs.table.items {
		g := &sh.slabs.table.items[i]
		for row := range int(g.rows) {
			f(g.record(row))
		}
	}
}

func TestBytesAreAccountedExactly(t *testing.T) {
	s := New(Options{MaxKeys: 50})
	algorithms := limiterstest.WindowedAlgorithms()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				spec := limiters.Spec{Algorithm: algorithms[(g+i)%len(algorithms)], Max: 20, Window: time.Hour}
				limit := limiterstest.MustLimit(spec)
				ops := []limiters.Op{{Key: fmt.Sprint(i % 70), Limit: limit, Hits: 1}, {Key: fmt.Sprint(i % 7), Limit: limit, Hits: -1}}
				_ = s.Take(context.Background(), limiters.Singles(ops...), make([]limiters.Verdict, 2))
			}
		})
	}
	wg.Wait()
	var keys, bytes int64
	for i := range s.shards {
		sh := &s.shards[i]
		n := int(sh.recordCount.Load())
		indexed := 0
		for j := range sh.index {
			indexed += sh.index[j].n
		}
		if indexed != n {
			t.Errorf("shard %d: %d records, %d in the index", i, n, indexed)
		}
		keys += int64(n)
		sh.each(func(r record) {
			n--
			bytes += int64(sh.size(r))
		})
		if n != 0 {
			t.Errorf("shard %d: %d records that are not in a slab", i, n)
		}
		bytes += int64(limitBytes * len(sh.limits.bySpec))
	}
	if got := s.Stats(); got.Keys != keys || got.Bytes != bytes {
		t.Errorf("accounted %+v, held %d keys of %d bytes", got, keys, bytes)
	}
}

// Between reading the clock and getting the lock, a Take may wait longer than a window, while
// others charge the key.
func TestTakeThatWaitsForALockUsesTheLatestTime(t *testing.T) {
	for _, name := range limiterstest.WindowedAlgorithms() {
		s := New(Options{})
		spec := limiters.Spec{Algorithm: name, Max: 1, Window: time.Millisecond, Params: limiterstest.FirstHitParams(name)}
		waiting, start := true, time.Now()
		s.options.Now = func() time.Time {
			if waiting {
				waiting = false
				if v := hit(t, s, "k", 1, spec); !v.Allowed {
					t.Errorf("%s: the first charge: %+v", name, v)
				}
				return start.Add(time.Second)
			}
			return start.Add(time.Minute)
		}
		if v := hit(t, s, "k", 1, spec); v.Allowed || v.RetryAfter > time.Millisecond {
			t.Errorf("%s: the charge that was late: %+v, want it denied", name, v)
		}
	}
}

// A store without traffic frees its memory.
func TestSweepFreesTheMemoryOfAnIdleStore(t *testing.T) {
	now := time.Now()
	s := storeAt(&now)
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 10, Window: time.Minute})
	later := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 10, Window: time.Hour})
	var out [1]limiters.Verdict
	const keys = 50_000
	for i := range keys {
		op := limiters.Op{Key: fmt.Sprint(i), Limit: limit, Hits: 1}
		if i == 0 {
			op.Limit = later
		}
		must.Succeed(t, s.Take(t.Context(), []limiters.Group{{op}}, out[:]))
	}
	s.Sweep()
	if n := s.Stats().Keys; n != keys {
		t.Fatalf("%d keys are left of %d that all count", n, keys)
	}
	now = now.Add(2 * time.Minute)
	full := s.Stats().Bytes
	s.Sweep()
	if stats := s.Stats(); stats.Keys != 1 || stats.Bytes > full/100 {
		t.Errorf("%d keys are left, in %d bytes of %d, want one", stats.Keys, stats.Bytes, full)
	}
}
