package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// An expiryFixture is a Redis whose expiries move with the caller's clock.
type expiryFixture struct {
	t    *testing.T
	c    *redis.Client
	ends map[string]time.Time // when each key expires
	set  time.Time            // when the clock was set, by the machine's clock: expiries go on, however slow the machine is
}

func newExpiryFixture(t *testing.T, server *redistest.Server) *expiryFixture {
	return &expiryFixture{t: t, c: server.Client(t), ends: map[string]time.Time{}, set: time.Now()}
}

// setTo sets the clock, and deletes the keys that have expired by then.
func (f *expiryFixture) setTo(now time.Time) {
	ctx := context.Background()
	f.set = time.Now()
	for key, end := range f.ends {
		expiresIn := end.Sub(now)
		if expiresIn <= 0 {
			f.c.Del(ctx, key)
			delete(f.ends, key)
			continue
		}
		f.c.PExpire(ctx, key, expiresIn)
		// A funnel stores its expiry, in whole seconds of the server's clock.
		if v := f.c.Get(ctx, key).Val(); len(v) == 28 && key[len(key)-1] != 'l' {
			kept := binary.BigEndian.AppendUint32(nil, uint32(time.Now().Add(expiresIn).Unix()))
			f.c.SetRange(ctx, key, 24, string(kept))
		}
	}
}

// mustExpire checks that the key of an operation has an expiry, and that it is not before the key
// has fully reset.
func (f *expiryFixture) mustExpire(s *testStore, now time.Time, op limiters.Op) {
	f.t.Helper()
	op.Hits = 0
	out := make([]limiters.Verdict, 1)
	if err := s.TakeAt(context.Background(), now, []limiters.Group{{op}}, out); err != nil || out[0].Err != nil {
		f.t.Fatal(err, out[0].Err)
	}
	key := keyOf("", &op)
	expiresIn := f.c.PTTL(context.Background(), key).Val()
	if expiresIn == -2 {
		delete(f.ends, key)
		return
	}
	took := time.Since(f.set)
	if expiresIn < 0 || out[0].Used > 0 && expiresIn+took < out[0].ResetAfter {
		f.t.Fatalf("%+v at %d: expires in %v, %s", op.Limit.Spec(), now.UnixMicro(), expiresIn, limiterstest.Format(out[0]))
	}
	f.ends[key] = now.Add(expiresIn + took)
}

// Every key has an expiry that is not before the key has fully reset, after any sequence of
// charges, refunds, changes of limits and steps of the clock.
func TestKeysExpireAfterReset(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	for _, name := range limiterstest.WindowedAlgorithms() {
		for seed, runs := limiterstest.FirstSeed(), uint64(0); runs < limiterstest.Sequences(30); seed++ {
			g := limiterstest.NewGenerator(name, seed)
			now, groups := g.Next()
			usual := groups[0][0].Limit
			if usual.Spec().Window < 24*time.Hour || usual.Spec().Max == 0 {
				continue
			}
			runs++
			w := newExpiryFixture(t, server)
			for range 40 {
				if now.UnixMicro() > 1<<52 {
					break
				}
				w.setTo(now)
				ops := slices.Concat(groups...)
				out := make([]limiters.Verdict, len(ops))
				must.Succeed(t, s.TakeAt(context.Background(), now, groups, out))
				for _, op := range ops {
					w.mustExpire(s, now, limiters.Op{Key: op.Key, Limit: usual})
				}
				g.Observe(out)
				now, groups = g.Next()
			}
		}
	}
}

// A long log is a list, which is a new key without the string's expiry.
func TestLogThatBecomesAListExpires(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server)
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "sliding_log", Max: 1000, Window: 24 * time.Hour})
	w := newExpiryFixture(t, server)
	now := logStart
	for i := range 300 {
		n := int64(1)
		if i%150 == 149 {
			n = -140
		}
		op := limiters.Op{Key: "k", Limit: limit, Hits: n}
		w.setTo(now)
		must.Succeed(t, s.TakeAt(context.Background(), now, []limiters.Group{{op}}, make([]limiters.Verdict, 1)))
		w.mustExpire(s, now, op)
		now = now.Add(time.Duration(i) * time.Second)
	}
}

// A value has 4 bytes for its expiry, so until the year 2106. A funnel that drains in 71 years may
// expire later, and its next write need not renew the expiry.
func TestExpiryAfter2106IsNotRenewedByEachWrite(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	limit := limiterstest.MustLimit(limiters.Spec{
		Algorithm: "funnel", Max: 1, Window: 365 * 24 * time.Hour, Params: limiters.Params{Capacity: 71},
	})
	op := limiters.Op{Key: "k", Limit: limit, Hits: 66} // it expires in 1.25 * 66 years
	var expiresIn [2]time.Duration
	for i := range expiresIn {
		if out, err := take(s, op); err != nil || !out[0].Allowed {
			t.Fatal(out, err)
		}
		expiresIn[i] = c.PTTL(t.Context(), keyOf("", &op)).Val()
		op.Hits = 1
	}
	if expiresIn[0] < limit.Spec().Window*66 || expiresIn[1] > expiresIn[0] {
		t.Errorf("the key expires in %v, and after a further write in %v: want at least 66 years, and no later expiry", expiresIn[0], expiresIn[1])
	}
}

// A window that starts at time 0 must expire too.
func TestFirstWindowExpires(t *testing.T) {
	server := redistest.Start(t)
	w := newExpiryFixture(t, server)
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: time.Hour})
	s, op, now := open(t, server), limiters.Op{Key: "k", Limit: limit, Hits: 1}, time.UnixMicro(5)
	must.Succeed(t, s.TakeAt(context.Background(), now, []limiters.Group{{op}}, make([]limiters.Verdict, 1)))
	w.mustExpire(s, now, op)
}

// The records of reservations outlive the latest of them, though the key was written with an
// earlier expiry before.
func TestReservationRecordsOutliveTheLatestReservation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	for i, ttl := range []time.Duration{10 * time.Second, time.Hour} {
		limit := limiterstest.MustLimit(limiters.Spec{
			Algorithm: "fixed_window", Max: 100, Window: 2 * time.Hour,
			Params: limiters.Params{WindowStart: limiters.StartByFirstHit, Reserve: limiters.ReserveSpec{TTL: ttl}},
		})
		if _, err := take(s, limiters.Op{Key: "k", Limit: limit, Hits: 5, Lease: limiters.LeaseID{byte(i + 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	c := server.Client(t)
	keys := c.Keys(t.Context(), "*").Val()
	if len(keys) < 2 {
		t.Errorf("keys %q, want those of the window and of its reservations", keys)
	}
	for _, key := range keys {
		if expiresIn := c.PTTL(t.Context(), key).Val(); expiresIn < time.Hour-longTimeout {
			t.Errorf("%s expires in %v, want an hour", key, expiresIn)
		}
	}
}

// With unsettled=release, the records of reservations are kept for as long as the estimates count,
// so that the next operation on the key refunds them, however late it is.
func TestReservationRecordsAreKeptToBeRefunded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server), server.Client(t)
	release := limiters.ReserveSpec{TTL: time.Second, Unsettled: limiters.UnsettledRelease}
	penalty := limiters.PenaltySpec{After: 2, Within: time.Minute, For: time.Hour}
	calendar := func(unit string) limiters.Params {
		return limiters.Params{WindowStart: limiters.StartByCalendar, CalendarUnit: unit, Reserve: release}
	}
	for name, spec := range map[string]limiters.Spec{
		"fixed_window":  {Algorithm: "fixed_window", Window: time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit, Reserve: release}},
		"calendar year": {Algorithm: "fixed_window", Window: 365 * 24 * time.Hour, Params: calendar("year")},
		"calendar week": {Algorithm: "fixed_window", Window: 7 * 24 * time.Hour, Params: calendar("week")},
		"sliding_log":   {Algorithm: "sliding_log", Window: time.Hour, Params: limiters.Params{Reserve: release}},
		"funnel":        {Algorithm: "funnel", Window: time.Hour, Params: limiters.Params{Capacity: 400, Reserve: release}},
		"penalty":       {Algorithm: "funnel", Window: time.Hour, Params: limiters.Params{Capacity: 400, Reserve: release, Penalty: penalty}},
	} {
		spec.Max = 100
		limit := limiterstest.MustLimit(spec)
		for _, number := range []int{1, 70} { // a hash, and a sorted set
			var ops []limiters.Op
			for id := range number {
				ops = append(ops, limiters.Op{Key: fmt.Sprint(name, number), Limit: limit, Hits: limit.Capacity() / int64(number), Lease: leaseID(id)})
			}
			start := time.Now()
			out, err := take(s, ops...)
			if err != nil || !out[number-1].Allowed {
				t.Fatal(name, err, out[number-1])
			}
			key := keyOf("", &ops[0]) + keySuffixes[reservationsKey]
			expiresIn := c.PTTL(t.Context(), key).Val() + time.Since(start)
			if resetAfter := out[number-1].ResetAfter; expiresIn < resetAfter {
				t.Errorf("%s, %d reservations: their key expires in %v, want %v at least", name, number, expiresIn, resetAfter)
			}
		}
	}
}
