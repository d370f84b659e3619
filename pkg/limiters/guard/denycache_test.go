package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

var (
	defaults = guard.DenyCacheOptions{}
	logOfTwo = limit(limiters.Spec{Algorithm: "sliding_log", Max: 2})
	// counted counts denied hits, as a fixed window does by default.
	counted = limit(limiters.Spec{Max: 2, CountDenied: true})
)

// A limitCase is a limit for a subtest.
type limitCase struct {
	name  string
	limit *limiters.Limit
}

var logAndCounted = []limitCase{{"a log", logOfTwo}, {"a window that counts", counted}}

func TestDenyCacheAnswersRepeatedDenials(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=60s reset=60s")
		time.Sleep(300*time.Millisecond + 1)
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=59.7s reset=59.7s") // rounded up
		a.mustTake("other", logOfTwo, 1, "ok used=1 remaining=1 reset=60s")
		if got := a.link.calls.Load(); got != 3 {
			t.Errorf("the store got %d calls, want 3", got)
		}
	})
}

func TestDenialIsRememberedForMaxAge(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		time.Sleep(time.Second - 1)
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=59.000001s reset=59.000001s")
		time.Sleep(time.Nanosecond) // it has reached the maximum age
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=59s reset=59s")
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=59s reset=59s")
	})
}

// The cache renews the denial of a key in use before it expires, so that no request waits for the
// store. A renewal detects a refund by another replica.
func TestDenialInUseIsRenewed(t *testing.T) {
	funnel := limit(limiters.Spec{Algorithm: "funnel", Max: 2, Window: time.Hour, Params: limiters.Params{Capacity: 2}})
	for _, c := range append(slices.Clone(logAndCounted), limitCase{"a funnel", funnel}) {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				const every, keys = 70*time.Millisecond + 1, 40 // no request is at the time of a renewal
				a, b := f.replica(defaults), f.replica(defaults)
				ops := func(n int64) (all []limiters.Op) {
					for i := range keys {
						all = append(all, limiters.Op{Key: fmt.Sprint(i), Limit: c.limit, Hits: n})
					}
					return all
				}
				take(t, a, ops(2)...)
				take(t, a, ops(1)...)
				calls, storeOps := a.link.calls.Load(), a.link.ops.Load()
				for range int(20 * time.Second / every) {
					time.Sleep(every)
					for i, v := range take(t, a, ops(1)...) {
						if v.Allowed || v.By != limiters.ByCache {
							t.Fatalf("at %v: key %d: %s", time.Now().Format("05.000"), i, describe(v))
						}
					}
				}
				calls, storeOps = a.link.calls.Load()-calls, a.link.ops.Load()-storeOps
				// The first renewal is at 570 ms, half of MaxAge after the first answer. The others
				// follow every 500 ms.
				if calls != 39 || storeOps != 39*keys {
					t.Errorf("%d calls with %d operations, want 39 calls with all %d keys each", calls, storeOps, keys)
				}
				for _, v := range take(t, b, ops(-300)...) {
					if !v.Allowed {
						t.Errorf("a refund: %s", describe(v))
					}
				}
				time.Sleep(time.Second)
				for i, v := range take(t, a, ops(1)...) {
					if !v.Allowed {
						t.Errorf("key %d, a second after its refund: %s", i, describe(v))
					}
				}
			})
		})
	}
}

// A renewal is a peek, which checks for one hit. If one hit fits, it shows nothing about the denial
// of two.
func TestDenialOfSeveralHitsIsNotRenewed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", logOfTwo, 1, "ok used=1 remaining=1 reset=60s")
		a.mustTake("k", logOfTwo, 2, "denied used=1 remaining=1 retry=60s reset=60s")
		a.mustTake("k", logOfTwo, 2, "cached: denied used=1 remaining=1 retry=60s reset=60s")
		time.Sleep(999 * time.Millisecond)
		a.mustTake("k", logOfTwo, 2, "cached: denied used=1 remaining=1 retry=59.001s reset=59.001s")
		time.Sleep(time.Millisecond)
		a.mustTake("k", logOfTwo, 2, "denied used=1 remaining=1 retry=59s reset=59s")
	})
}

// A renewal that the store allows ends the denial immediately.
func TestDenialEndsIfTheStoreAllowsTheRenewal(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=60s reset=60s")
		time.Sleep(300 * time.Millisecond)
		b.mustTake("k", logOfTwo, -1, "ok used=1 remaining=1 reset=59.7s")
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=59.7s reset=59.7s")
		time.Sleep(300 * time.Millisecond)
		a.mustTake("k", logOfTwo, 1, "ok used=2 remaining=0 reset=60s")
	})
}

// A client that retries slightly more often than once in MaxAge waits for the store only once: one
// answer in MaxAge is enough for a renewal.
func TestFrequentRetriesWaitForTheStoreOnce(t *testing.T) {
	for _, c := range logAndCounted {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				a := f.replica(defaults)
				take(t, a, limiters.Op{Key: "k", Limit: c.limit, Hits: 2})
				for i := range 50 {
					v := take(t, a, limiters.Op{Key: "k", Limit: c.limit, Hits: 1})[0]
					if v.Allowed || (v.By == limiters.ByCache) != (i > 0) {
						t.Errorf("at %v: %s", time.Now().Format("05.000"), describe(v))
					}
					time.Sleep(900 * time.Millisecond)
				}
			})
		})
	}
}

// A renewed denial must expire as of the start of the renewal, here 1.4 s, and not of the arrival
// of its verdict at 1.7 s.
func TestRenewedDenialExpiresFromTheStartOfTheRenewal(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, one := f.replica(defaults), limit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: 2 * time.Second})
		a.mustTake("k", one, 1, "ok used=1 remaining=0 reset=2s")
		time.Sleep(900 * time.Millisecond)
		a.mustTake("k", one, 1, "denied used=1 remaining=0 retry=1.1s reset=1.1s")
		a.mustTake("k", one, 1, "cached: denied used=1 remaining=0 retry=1.1s reset=1.1s")
		a.link.set(0, 300*time.Millisecond, nil)
		time.Sleep(800 * time.Millisecond)
		a.link.set(0, 0, nil)
		time.Sleep(300 * time.Millisecond)
		a.mustTake("k", one, 1, "ok used=1 remaining=0 reset=2s")
	})
}

func TestEndedDenialIsNotRenewed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, one := f.replica(defaults), limit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: 300 * time.Millisecond})
		a.mustTake("k", one, 1, "ok used=1 remaining=0 reset=300ms")
		a.mustTake("k", one, 1, "denied used=1 remaining=0 retry=300ms reset=300ms")
		a.mustTake("k", one, 1, "cached: denied used=1 remaining=0 retry=300ms reset=300ms")
		calls := a.link.calls.Load()
		time.Sleep(2 * time.Second)
		if got := a.Stats(); a.link.calls.Load() != calls || got.Entries != 0 {
			t.Errorf("%d calls, %+v, want no call and no entry", a.link.calls.Load()-calls, got)
		}
	})
}

// An error for a key neither ends nor renews its denial, and its debt may not have been counted.
func TestFailedRenewalEndsNoDenial(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for _, key := range []string{"bad", "good"} {
			a.mustTake(key, counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
			a.mustTake(key, counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
			a.mustTake(key, counted, 2, "cached: denied used=6 remaining=0 retry=60s reset=60s")
		}
		a.link.setBadKey("bad")
		time.Sleep(900 * time.Millisecond)
		a.mustTake("bad", counted, 1, "cached: denied used=7 remaining=0 retry=59.1s reset=59.1s")
		if got := a.Stats(); got.SentHits != 2 || got.LostHits != 2 {
			t.Errorf("%+v, want two hits sent, and two lost", got)
		}
	})
}

func TestCloseRenewsNoDenial(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for i := range 120 {
			key := fmt.Sprint(i)
			take(t, a, limiters.Op{Key: key, Limit: logOfTwo, Hits: 2}, limiters.Op{Key: key, Limit: logOfTwo, Hits: 1})
			a.mustTake(key, logOfTwo, 1, "cached: denied used=2 remaining=0 retry=60s reset=60s")
		}
		calls := a.link.calls.Load()
		if err := a.Close(f.Context()); err != nil || a.link.calls.Load() != calls {
			t.Errorf("got error %v, %d calls, want none", err, a.link.calls.Load()-calls)
		}
	})
}

// Denials that have answered and expired are evicted without a renewal.
func TestExpiredDenialsAreEvicted(t *testing.T) {
	for _, c := range logAndCounted {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				a := f.replica(guard.DenyCacheOptions{MaxBytes: 16 << 10, MaxAge: time.Hour})
				for i := range 500 {
					op := limiters.Op{Key: fmt.Sprint(i), Limit: c.limit, Hits: 1}
					take(t, a, op, op, op)
					take(t, a, op)
				}
				if got := a.Stats(); got.NotCached == 0 {
					t.Fatalf("%+v: it is not full", got)
				}
				time.Sleep(2 * time.Minute)
				late := limiters.Op{Key: "late", Limit: c.limit, Hits: 1}
				take(t, a, late, late, late)
				if v := take(t, a, late)[0]; v.By != limiters.ByCache {
					t.Errorf("%s, want a cached denial", describe(v))
				}
			})
		})
	}
}

// A client can send a key that is longer than a shard of the cache. Its denial evicts no others.
func TestTooLongKeyEvictsNoDenial(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(guard.DenyCacheOptions{MaxBytes: 8 << 10})
		deny := func(key string) {
			op := limiters.Op{Key: key, Limit: logOfTwo, Hits: 1}
			take(t, a, op, op, op)
		}
		deny("k")
		deny(strings.Repeat("x", 8<<10))
		if got := a.Stats(); got.Entries != 1 || got.NotCached != 1 {
			t.Errorf("%+v, want one entry and one denial that is not cached", got)
		}
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=60s reset=60s")
	})
}

// A refund, or new rules, during a renewal must discard the verdict of the renewal.
func TestForgottenDenialIsNotRenewed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("debtor", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("debtor", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("debtor", counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		a.link.set(0, 100*time.Millisecond, nil)
		time.Sleep(550 * time.Millisecond) // the store has denied them, and its reply is under way
		a.link.set(0, 0, nil)
		a.mustTake("k", logOfTwo, -1, "ok used=1 remaining=1 reset=59.45s")
		a.mustTake("debtor", counted, 1, "cached: denied used=6 remaining=0 retry=59.45s reset=59.45s")
		a.DropDenials()
		time.Sleep(100 * time.Millisecond)
		a.mustTake("k", logOfTwo, 1, "ok used=2 remaining=0 reset=60s")
		a.mustTake("debtor", counted, 1, "denied used=7 remaining=0 retry=59.35s reset=59.35s")
	})
}

func TestDenialCoversAsManyHitsOrMore(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, five := f.replica(defaults), limit(limiters.Spec{Algorithm: "sliding_log", Max: 5})
		a.mustTake("k", five, 3, "ok used=3 remaining=2 reset=60s")
		time.Sleep(10 * time.Second)
		a.mustTake("k", five, 1, "ok used=4 remaining=1 reset=60s")
		a.mustTake("k", five, 3, "denied used=4 remaining=1 retry=50s reset=60s")
		a.mustTake("k", five, 3, "cached: denied used=4 remaining=1 retry=50s reset=60s")
		// Only the log knows how long more hits wait. This is an upper bound.
		a.mustTake("k", five, 4, "cached: denied used=4 remaining=1 retry=60s reset=60s")
		a.mustTake("k", five, 6, "cached: denied used=4 remaining=1 retry=never reset=60s")
		a.mustTake("k", five, 2, "denied used=4 remaining=1 retry=50s reset=60s")
		a.mustTake("k", five, 2, "cached: denied used=4 remaining=1 retry=50s reset=60s")
		a.mustTake("k", five, 0, "ok used=4 remaining=1 reset=60s") // two do not fit; a peek checks for one
		a.mustTake("k", five, 1, "ok used=5 remaining=0 reset=60s")
		a.mustTake("k", five, 0, "denied used=5 remaining=0 retry=50s reset=60s")
		a.mustTake("k", five, 0, "cached: denied used=5 remaining=0 retry=50s reset=60s")
		a.mustTake("k", five, 1, "cached: denied used=5 remaining=0 retry=50s reset=60s")
		// A denial of more hits does not replace one of fewer.
		a.mustTake("k", five, 5, "cached: denied used=5 remaining=0 retry=60s reset=60s")
	})
}

func TestCachedFunnelDenialWaitsLongerForMoreHits(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		funnel := limit(limiters.Spec{Algorithm: "funnel", Max: 7, Window: time.Second, Params: limiters.Params{Capacity: 5}}) // one in 142857.14 µs
		a.mustTake("k", funnel, 5, "ok used=5 remaining=0 reset=714.286ms")
		a.mustTake("k", funnel, 1, "denied used=5 remaining=0 retry=142.858ms reset=714.286ms")
		time.Sleep(100 * time.Millisecond)
		a.mustTake("k", funnel, 1, "cached: denied used=5 remaining=0 retry=42.858ms reset=614.286ms")
		a.mustTake("k", funnel, 3, "cached: denied used=5 remaining=0 retry=328.573ms reset=614.286ms")
		a.mustTake("k", funnel, 5, "cached: denied used=5 remaining=0 retry=614.286ms reset=614.286ms")
		a.mustTake("k", funnel, 6, "cached: denied used=5 remaining=0 retry=never reset=614.286ms")
		time.Sleep(42858 * time.Microsecond)
		a.mustTake("k", funnel, 1, "ok used=5 remaining=0 reset=714.285ms")
	})
}

// A charge of fewer hits, which the store allows, makes the times of the denial too early.
func TestChargeEndsTheDenialOfMoreHits(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		funnel := limit(limiters.Spec{Algorithm: "funnel", Max: 10, Window: time.Minute, Params: limiters.Params{Capacity: 10}})
		a.mustTake("k", funnel, 6, "ok used=6 remaining=4 reset=36s")
		a.mustTake("k", funnel, 5, "denied used=6 remaining=4 retry=6s reset=36s")
		a.mustTake("k", funnel, 5, "cached: denied used=6 remaining=4 retry=6s reset=36s")
		a.mustTake("k", funnel, 4, "ok used=10 remaining=0 reset=60s")
		a.mustTake("k", funnel, 5, "denied used=10 remaining=0 retry=30s reset=60s")
	})
}

// The cache does not see a charge by another replica, so its times are too early until the denial
// expires: see [limiters.ByCache].
func TestDenialOmitsChargesOfOtherReplicas(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		funnel := limit(limiters.Spec{Algorithm: "funnel", Max: 10, Window: time.Minute, Params: limiters.Params{Capacity: 10}})
		a.mustTake("k", funnel, 6, "ok used=6 remaining=4 reset=36s")
		a.mustTake("k", funnel, 5, "denied used=6 remaining=4 retry=6s reset=36s")
		b.mustTake("k", funnel, 4, "ok used=10 remaining=0 reset=60s")
		a.mustTake("k", funnel, 5, "cached: denied used=6 remaining=4 retry=6s reset=36s")
		time.Sleep(time.Second)
		a.mustTake("k", funnel, 5, "denied used=10 remaining=0 retry=29s reset=59s")
	})
}

// A slow call must neither prolong a denial nor shorten its retry delay. Here a call takes 100 ms
// to the store and 200 ms back.
func TestDenialExpiresFromCallStartAndRetriesFromCallEnd(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, one := f.replica(defaults), limit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: time.Second})
		a.link.set(100*time.Millisecond, 200*time.Millisecond, nil)
		a.mustTake("k", one, 1, "ok used=1 remaining=0 reset=1s")                            // at 0.1: it leaves at 1.1
		a.mustTake("k", one, 1, "denied used=1 remaining=0 retry=700ms reset=700ms")         // sent at 0.3, answered at 0.6
		time.Sleep(300 * time.Millisecond)                                                   // 0.9
		a.mustTake("k", one, 1, "cached: denied used=1 remaining=0 retry=400ms reset=400ms") // at 1.3 it surely fits
		time.Sleep(100*time.Millisecond - 1001)
		a.mustTake("k", one, 1, "cached: denied used=1 remaining=0 retry=300.002ms reset=300.002ms")
		time.Sleep(time.Nanosecond) // the store's clock has whole microseconds: 1 s less 1 µs
		a.mustTake("k", one, 1, "denied used=1 remaining=0 retry=1µs reset=1µs")
	})
}

func TestDenialOfACountingWindowCoversAnyHits(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		time.Sleep(100 * time.Millisecond)
		a.mustTake("k", counted, 2, "ok used=2 remaining=0 reset=59.9s")
		a.mustTake("k", counted, 2, "denied used=4 remaining=0 retry=59.9s reset=59.9s")
		time.Sleep(100 * time.Millisecond)
		a.mustTake("k", counted, 1, "cached: denied used=5 remaining=0 retry=59.8s reset=59.8s")
		a.mustTake("k", counted, 5, "cached: denied used=10 remaining=0 retry=never reset=59.8s") // more than it ever allows
		a.mustTake("k", counted, 0, "cached: denied used=10 remaining=0 retry=59.8s reset=59.8s")
		f.mustHaveUsage("k", counted, 4)
		b.mustTake("k", counted, 1, "denied used=5 remaining=0 retry=59.8s reset=59.8s") // b has not seen them
		a.mustTake("k", counted, -1, "ok used=10 remaining=0 reset=59.8s")               // after the debt of 6
		f.mustHaveUsage("k", counted, 10)
		a.mustTake("k", counted, 1, "denied used=11 remaining=0 retry=59.8s reset=59.8s")
		a.mustTake("k", counted, 2, "cached: denied used=13 remaining=0 retry=59.8s reset=59.8s")
		time.Sleep(900 * time.Millisecond)
		f.mustHaveUsage("k", counted, 13) // sent by the goroutine
		a.mustTake("k", counted, 1, "cached: denied used=14 remaining=0 retry=58.9s reset=58.9s")
		b.mustTake("k", counted, 1, "cached: denied used=6 remaining=0 retry=58.9s reset=58.9s")
		if got := a.Stats(); got.SentHits != 8 || got.LostHits != 0 || got.Lookups != 8 || got.Answered != 5 || got.Entries != 1 {
			t.Errorf("%+v, want 8 lookups with 5 answered, 1 entry, 8 hits sent and none lost", got)
		}
	})
}

func TestDeniedPeekIsRemembered(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		b.mustTake("k", counted, 0, "denied used=3 remaining=0 retry=60s reset=60s")
		b.mustTake("k", counted, 0, "cached: denied used=3 remaining=0 retry=60s reset=60s")
		b.mustTake("k", counted, 7, "cached: denied used=10 remaining=0 retry=never reset=60s")
		_ = b.Close(f.Context())
		f.mustHaveUsage("k", counted, 10)
	})
}

// The cache sends the debt of a key after half of MaxAge, even if no request follows.
func TestDebtIsSentWithoutFurtherRequests(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(guard.DenyCacheOptions{MaxAge: 2 * time.Second})
		for i := range 200 {
			key := fmt.Sprint(i)
			take(t, a, limiters.Op{Key: key, Limit: counted, Hits: 2}, limiters.Op{Key: key, Limit: counted, Hits: 2})
		}
		time.Sleep(1500 * time.Millisecond)
		for i := range 200 {
			a.mustTake(fmt.Sprint(i), counted, 1, "cached: denied used=5 remaining=0 retry=58.5s reset=58.5s")
		}
		calls := a.link.calls.Load()
		time.Sleep(2 * time.Second)
		for i := range 200 {
			f.mustHaveUsage(fmt.Sprint(i), counted, 5)
		}
		if got := a.link.calls.Load() - calls; got != 4 {
			t.Errorf("%d calls, want 4, of 50 keys each", got)
		}
		time.Sleep(2 * time.Second)
		if got := a.Stats(); got.Entries != 0 || got.Bytes != 0 || got.SentHits != 200 {
			t.Errorf("when all is over: %+v", got)
		}
	})
}

// A debt that is on its way when its window ends must not use up the next window.
func TestDebtIsNotCountedInTheNextWindow(t *testing.T) {
	for _, start := range []string{limiters.StartByClock, limiters.StartByFirstHit} {
		t.Run(start, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				spec := limiters.Spec{Max: 1000, CountDenied: true, Params: limiters.Params{WindowStart: start}}
				a, held, more := f.replica(defaults), limit(spec), spec
				more.Max++
				take(f, a, limiters.Op{Key: "k", Limit: held, Hits: 1000})
				time.Sleep(59900 * time.Millisecond)
				a.mustTake("k", held, 1, "denied used=1001 remaining=0 retry=100ms reset=100ms")
				for range 7 {
					take(f, a, limiters.Op{Key: "k", Limit: held, Hits: 400})
				}
				a.link.set(150*time.Millisecond, 0, nil)
				v := take(f, a, limiters.Op{Key: "k", Limit: limit(more), Hits: 1})[0] // with the debt
				if !v.Allowed || v.Used != 1 {
					t.Errorf("in the next window: %s, want that it is empty", describe(v))
				}
				if got := a.Stats(); got.SentHits != 2800 {
					t.Errorf("%+v: the sum was not sent", got)
				}
				time.Sleep(5 * time.Second)
				f.mustHaveUsage("k", held, 1)
			})
		})
	}
}

func TestDebtOfAnEndedWindowIsNotSent(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		time.Sleep(59900 * time.Millisecond)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=100ms")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=100ms reset=100ms")
		a.mustTake("k", counted, 9, "cached: denied used=13 remaining=0 retry=never reset=100ms")
		calls := a.link.calls.Load()
		time.Sleep(time.Minute)
		if got := a.Stats(); got.SentHits != 0 || got.Entries != 0 || a.link.calls.Load() != calls {
			t.Errorf("%+v, and %d calls, want no hit sent, no entry, no call", got, a.link.calls.Load()-calls)
		}
		a.mustTake("k", counted, 1, "ok used=1 remaining=1 reset=100ms")
	})
}

func TestRefundByAnotherReplicaTakesEffectWithinMaxAge(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		b.mustTake("k", logOfTwo, -1, "ok used=1 remaining=1 reset=60s")
		time.Sleep(time.Second - 1)
		a.mustTake("k", logOfTwo, 1, "cached: denied used=2 remaining=0 retry=59.000001s reset=59.000001s")
		time.Sleep(time.Nanosecond)
		a.mustTake("k", logOfTwo, 1, "ok used=2 remaining=0 reset=60s")
	})
}

// A debt is counted only while the key is over its limit.
func TestDebtOfAKeyBelowItsLimitIsNotCounted(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.replica(defaults), f.replica(defaults)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 9, "cached: denied used=13 remaining=0 retry=never reset=60s")
		a.mustTake("idle", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("idle", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		b.mustTake("k", counted, -2, "ok used=2 remaining=0 reset=60s") // just full
		time.Sleep(3 * time.Second)
		f.mustHaveUsage("k", counted, 2)
		if got := a.Stats(); got.Entries != 0 || got.SentHits != 9 {
			t.Errorf("%+v, want what is old to be forgotten", got)
		}
	})
}

func TestStoreDataLossTakesEffectWithinMaxAge(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for _, key := range []string{"quiet", "busy"} {
			a.mustTake(key, counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
			a.mustTake(key, counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		}
		a.mustTake("busy", counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		f.store.clear()
		time.Sleep(time.Second - 1)
		a.mustTake("quiet", counted, 1, "cached: denied used=5 remaining=0 retry=59.000001s reset=59.000001s")
		time.Sleep(time.Nanosecond)
		a.mustTake("quiet", counted, 1, "ok used=1 remaining=1 reset=59s")
		a.mustTake("busy", counted, 1, "ok used=1 remaining=1 reset=59s") // the debt of the lost window is not counted
	})
}

// A replica whose rules raise a limit must not deny by a denial of the old limit. Other replicas
// still deny under their own limit.
func TestDenialsOfTheOldLimitDoNotDenyARaisedOne(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b, raised := f.replica(defaults), f.replica(defaults), limit(limiters.Spec{Max: 20, CountDenied: true})
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 6, "cached: denied used=10 remaining=0 retry=never reset=60s")
		b.mustTake("k", raised, 1, "ok used=5 remaining=15 reset=60s")
		a.mustTake("k", raised, 1, "ok used=12 remaining=8 reset=60s") // after the debt
		a.mustTake("k", counted, 1, "cached: denied used=11 remaining=0 retry=60s reset=60s")
		// Limits with equal Specs are the same limit.
		a.mustTake("k", limit(limiters.Spec{Max: 2, CountDenied: true}), 1, "cached: denied used=12 remaining=0 retry=60s reset=60s")
	})
}

func TestRefundRemovesTheDenialsOfItsKey(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, day := f.replica(defaults), limit(limiters.Spec{Algorithm: "sliding_log", Max: 1, Window: 24 * time.Hour})
		a.mustTake("k", counted, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", counted, 1, "denied used=3 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1, "cached: denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", day, 1, "ok used=1 remaining=0 reset=86400s")
		a.mustTake("k", day, 1, "denied used=1 remaining=0 retry=86400s reset=86400s")
		a.mustTake("k", counted, -3, "ok used=1 remaining=1 reset=60s") // from a usage of 4, debt included
		a.mustTake("k", counted, 1, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", day, 1, "denied used=1 remaining=0 retry=86400s reset=86400s") // from the store
	})
}

// A refund must discard the denial of a call in flight that the store decided before the refund.
func TestRefundRemovesTheDenialOfACallInFlight(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.link.set(10*time.Millisecond, 50*time.Millisecond, nil)
		go a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=59.99s reset=59.99s")
		time.Sleep(20 * time.Millisecond)
		a.link.set(0, 0, nil)
		a.mustTake("k", logOfTwo, -1, "ok used=1 remaining=1 reset=59.98s")
		time.Sleep(100 * time.Millisecond) // both have returned
		a.mustTake("k", logOfTwo, 1, "ok used=2 remaining=0 reset=60s")
	})
}

// An operation on a key must go to the store while a refund of the key is under way, because only
// the store knows the usage.
func TestKeyOfARefundUnderWayIsForwarded(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		a.link.set(10*time.Millisecond, 50*time.Millisecond, nil)
		go a.mustTake("k", logOfTwo, -1, "ok used=1 remaining=1 reset=59.99s")
		time.Sleep(20 * time.Millisecond)
		a.link.set(0, 0, nil)
		a.mustTake("k", logOfTwo, 1, "ok used=2 remaining=0 reset=60s")
		time.Sleep(time.Second)
	})
}

// A denial that arrives while a refund of its key is under way must be forgotten when the refund is
// done.
func TestDenialDuringARefundIsNotCached(t *testing.T) {
	for _, unheard := range []bool{false, true} {
		withFixture(t, func(f *fixture) {
			a := f.replica(defaults)
			a.mustTake("k", counted, 2, "ok used=2 remaining=0 reset=60s")
			a.link.set(50*time.Millisecond, 10*time.Millisecond, nil)
			if unheard {
				a.link.setReplyErr(errBroken)
			}
			go func() {
				if err := takeError(f.Context(), a, limiters.Op{Key: "k", Limit: counted, Hits: -2}); unheard != (err != nil) {
					t.Error(err)
				}
			}()
			synctest.Wait()
			a.link.set(0, 0, nil)
			time.Sleep(10 * time.Millisecond)
			a.mustTake("k", counted, 1, "denied used=3 remaining=0 retry=59.99s reset=59.99s")
			a.mustTake("k", counted, 4, "cached: denied used=7 remaining=0 retry=never reset=59.99s")
			time.Sleep(60 * time.Millisecond) // two of 3 are refunded, and the debt is not counted
			a.mustTake("k", counted, 1, "ok used=2 remaining=0 reset=59.93s")
			a.mustTake("k", counted, 1, "denied used=3 remaining=0 retry=59.93s reset=59.93s")
		})
	}
}

func TestForgetRemovesAllDenials(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		a.mustTake("idle", logOfTwo, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("idle", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("under way", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.link.set(0, 50*time.Millisecond, nil)
		go a.mustTake("under way", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		synctest.Wait()
		a.link.set(0, 0, nil)
		a.DropDenials()
		if got := a.Stats(); got.Entries != 1 {
			t.Errorf("%+v, want the debtors", got)
		}
		a.mustTake("idle", logOfTwo, 1, "denied used=2 remaining=0 retry=60s reset=60s")
		time.Sleep(60 * time.Millisecond)
		a.mustTake("under way", counted, 1, "denied used=5 remaining=0 retry=59.94s reset=59.94s")
		time.Sleep(940 * time.Millisecond)
		f.mustHaveUsage("k", counted, 5)
		a.mustTake("k", counted, 1, "denied used=6 remaining=0 retry=59s reset=59s")
	})
}

func TestForgetAllRemovesDenialsAndCountsDebtsAsLost(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		a.ForgetAll()
		if got := a.Stats(); got.Entries != 0 || got.Bytes != 0 || got.LostHits != 1 {
			t.Errorf("%+v, want no entries and one lost hit", got)
		}
		time.Sleep(time.Second)
		f.mustHaveUsage("k", counted, 4)
	})
}

// A denied hit denies a peek only with peek=would_fit: with peek=over and without count_denied, a
// peek at the limit is allowed.
func TestDeniedHitDeniesNoPeekUnderPeekOver(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for _, algorithm := range []string{"fixed_window", "sliding_log"} {
			over := limit(limiters.Spec{Algorithm: algorithm, Max: 2, Params: limiters.Params{Peek: limiters.PeekOver}})
			a.mustTake(algorithm, over, 2, "ok used=2 remaining=0 reset=60s")
			a.mustTake(algorithm, over, 1, "denied used=2 remaining=0 retry=60s reset=60s")
			a.mustTake(algorithm, over, 1, "cached: denied used=2 remaining=0 retry=60s reset=60s")
			a.mustTake(algorithm, over, 0, "ok used=2 remaining=0 reset=60s")
		}
		both := limit(limiters.Spec{Max: 2, CountDenied: true, Params: limiters.Params{Peek: limiters.PeekWouldFit}})
		a.mustTake("k", both, 2, "ok used=2 remaining=0 reset=60s")
		a.mustTake("k", both, 0, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("k", both, 0, "denied used=2 remaining=0 retry=60s reset=60s")
		a.mustTake("k", both, 1, "denied used=3 remaining=0 retry=60s reset=60s")
		a.mustTake("k", both, 0, "cached: denied used=3 remaining=0 retry=60s reset=60s")
	})
}

func TestPermanentAndProlongedDenialsAreNotCached(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("never", logOfTwo, 3, "denied used=0 remaining=2 retry=never reset=0s")
		a.mustTake("never", logOfTwo, 3, "denied used=0 remaining=2 retry=never reset=0s")
		zero := limit(limiters.Spec{Max: 0, CountDenied: true})
		a.mustTake("zero", zero, 1, "denied used=0 remaining=0 retry=never reset=60s")
		a.mustTake("zero", zero, 1, "denied used=0 remaining=0 retry=never reset=60s")
		for _, name := range []string{"sliding_log", "funnel"} {
			l := limit(limiters.Spec{Algorithm: name, Max: 2, Window: time.Hour, CountDenied: true})
			for i := range 5 {
				if v := take(t, a, limiters.Op{Key: name, Limit: l, Hits: 1})[0]; v.Allowed != (i < 2) || v.By == limiters.ByCache {
					t.Errorf("operation %d of a %s: got %s, want a verdict of the store, allowed %t", i, name, describe(v), i < 2)
				}
			}
		}
		if got := a.Stats(); got.Entries != 0 {
			t.Errorf("%+v, want no entry", got)
		}
		// The charge exceeds the largest debt: it goes to the store after the debt.
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1<<32-2, "cached: denied used=4294967298 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "cached: denied used=4294967299 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1, "denied used=4294967300 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1<<40, "denied used=1103806595076 remaining=0 retry=never reset=60s")
	})
}

func TestOpsOfOneCallAreDecidedInOrder(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		op := func(key string, n int64) limiters.Op { return limiters.Op{Key: key, Limit: logOfTwo, Hits: n} }
		f.mustTake(a, []limiters.Op{op("k", 1), op("k", 2), op("k", 1)},
			"ok used=1 remaining=1 reset=60s",
			"denied used=1 remaining=1 retry=60s reset=60s",
			"ok used=2 remaining=0 reset=60s")
		// One operation goes to the store, and so do those after it on its key.
		f.mustTake(a, []limiters.Op{op("k", 1), op("k", 2)},
			"denied used=2 remaining=0 retry=60s reset=60s",
			"denied used=2 remaining=0 retry=60s reset=60s")
		f.mustTake(a, []limiters.Op{op("k", 1), op("k", 2)},
			"cached: denied used=2 remaining=0 retry=60s reset=60s",
			"cached: denied used=2 remaining=0 retry=60s reset=60s")
		f.mustTake(a, []limiters.Op{op("k", 1), op("k", -1), op("k", 1)},
			"cached: denied used=2 remaining=0 retry=60s reset=60s",
			"ok used=1 remaining=1 reset=60s",
			"ok used=2 remaining=0 reset=60s")
	})
}

func TestOnlyOpsWithoutADenialAreForwarded(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		full, free := limiters.Op{Key: "full", Limit: counted, Hits: 3}, limiters.Op{Key: "free", Limit: logOfTwo, Hits: 1}
		over, one := limiters.Op{Key: "over", Limit: counted, Hits: 3}, limiters.Op{Key: "over", Limit: counted, Hits: 1}
		take(t, a, full, over)
		full.Hits = 1
		take(t, a, full, one)
		before := a.link.ops.Load()
		f.mustTake(a, []limiters.Op{full, free, one, free, full},
			"cached: denied used=5 remaining=0 retry=60s reset=60s",
			"ok used=1 remaining=1 reset=60s",
			"cached: denied used=5 remaining=0 retry=60s reset=60s",
			"ok used=2 remaining=0 reset=60s",
			"cached: denied used=6 remaining=0 retry=60s reset=60s")
		if got := a.link.ops.Load() - before; got != 2 {
			t.Errorf("the store got %d operations, want 2", got)
		}
		// If the store fails, a denial from memory stands. If all operations fail, the call fails.
		a.link.set(0, 0, errBroken)
		f.mustTake(a, []limiters.Op{{Key: "new", Limit: counted, Hits: 1}, full},
			"error broken", "cached: denied used=7 remaining=0 retry=60s reset=60s")
		if err := takeError(f.Context(), a, free, free); !errors.Is(err, errBroken) {
			t.Errorf("%v, want %v", err, errBroken)
		}
	})
}

var errBroken = errors.New("broken")

// The store decides groups of several operations as a whole. A group of one is an ordinary
// operation.
func TestGroupOfSeveralOpsIsForwarded(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		one := func(key string) limiters.Op { return limiters.Op{Key: key, Limit: counted, Hits: 1} }
		a.mustTake("full", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		f.mustTake(a, []limiters.Op{one("full")}, "denied used=4 remaining=0 retry=60s reset=60s")
		f.mustTake(a, []limiters.Op{one("full")}, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		// The debt goes before it.
		f.mustTakeGroups(a, []limiters.Group{{one("full"), one("free")}, {one("other")}},
			"denied used=6 remaining=0 retry=60s reset=60s",
			"ok used=0 remaining=2 reset=60s",
			"ok used=1 remaining=1 reset=60s")
		a.mustTake("full", counted, 1, "cached: denied used=6 remaining=0 retry=60s reset=60s") // with the hit of the group
		raised := limit(limiters.Spec{Max: 20, CountDenied: true})
		f.mustTakeGroups(a, []limiters.Group{{{Key: "full", Limit: raised, Hits: 1}, {Key: "third", Limit: raised, Hits: 1}}},
			"ok used=8 remaining=12 reset=60s", "ok used=1 remaining=19 reset=60s")
		// An operation on a key of the group is decided after it.
		f.mustTakeGroups(a, []limiters.Group{{one("free"), {Key: "full", Limit: counted, Hits: -8}}, {one("full")}},
			"ok used=1 remaining=1 reset=60s",
			"ok used=0 remaining=2 reset=60s",
			"ok used=1 remaining=1 reset=60s")
	})
}

// A debt that may have been counted is not sent again.
func TestDebtIsSentAtMostOnce(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for _, key := range []string{"with a call", "by itself"} {
			a.mustTake(key, counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
			a.mustTake(key, counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
			a.mustTake(key, counted, 9, "cached: denied used=13 remaining=0 retry=never reset=60s")
		}
		a.link.set(0, 0, errBroken)
		if err := takeError(f.Context(), a, limiters.Op{Key: "with a call", Limit: counted, Hits: -1}); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		a.link.set(0, 0, nil)
		time.Sleep(5 * time.Second)
		f.mustHaveUsage("with a call", counted, 4)
		f.mustHaveUsage("by itself", counted, 4)
		if got := a.Stats(); got.LostHits != 18 || got.SentHits != 0 {
			t.Errorf("%+v, want 18 hits lost and none sent", got)
		}
	})
}

// While the breaker of a store is open nothing is charged, and debts wait.
func TestDebtWaitsWhileNothingIsCharged(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for _, key := range []string{"with a call", "by itself"} {
			a.mustTake(key, counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
			a.mustTake(key, counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
			a.mustTake(key, counted, 9, "cached: denied used=13 remaining=0 retry=never reset=60s")
		}
		a.link.set(0, 0, limiters.Uncharged(errors.New("the breaker is open")))
		if err := takeError(f.Context(), a, limiters.Op{Key: "with a call", Limit: counted, Kind: limiters.OpCountDenied, Hits: 1}); !limiters.IsUncharged(err) {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		f.mustHaveUsage("by itself", counted, 4)
		a.link.set(0, 0, nil)
		time.Sleep(5 * time.Second)
		f.mustHaveUsage("with a call", counted, 13)
		f.mustHaveUsage("by itself", counted, 13)
		if got := a.Stats(); got.LostHits != 0 || got.SentHits != 18 {
			t.Errorf("%+v, want 18 hits sent and none lost", got)
		}
	})
}

// A debt whose call fails after the end of its window must not count in the next window, even if
// that window already denies the key.
func TestDebtCountsInNoLaterWindow(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		time.Sleep(59200 * time.Millisecond)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=800ms")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=800ms reset=800ms")
		a.mustTake("k", counted, 5, "cached: denied used=9 remaining=0 retry=never reset=800ms")
		a.link.set(500*time.Millisecond, 0, limiters.Uncharged(errors.New("the wait in the queue was too long")))
		time.Sleep(700 * time.Millisecond) // the call is under way
		a.link.set(0, 0, nil)
		time.Sleep(200 * time.Millisecond)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=59.9s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=59.9s reset=59.9s")
		time.Sleep(5 * time.Second)
		f.mustHaveUsage("k", counted, 4)
		if got := a.Stats(); got.LostHits != 5 || got.SentHits != 0 {
			t.Errorf("%+v, want 5 hits lost and none sent", got)
		}
	})
}

// replicaWithRenewalUnderWay returns a replica whose call with a debt of 5 hits of "k" is under
// way. It will fail, and will have charged nothing. The store has counted 4 hits of "k" in its
// window, which began 700 ms ago.
func (f *fixture) replicaWithRenewalUnderWay() *replica {
	f.Helper()
	a := f.replica(defaults)
	a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
	a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
	a.mustTake("k", counted, 5, "cached: denied used=9 remaining=0 retry=never reset=60s")
	a.link.set(500*time.Millisecond, 0, limiters.Uncharged(errors.New("the wait in the queue was too long")))
	time.Sleep(700 * time.Millisecond)
	a.link.set(0, 0, nil)
	return a
}

// A debt whose call fails after a reset of its key belongs to the state before the reset, even if
// the key is denied again.
func TestDebtIsNotCountedAfterAReset(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replicaWithRenewalUnderWay()
		if _, err := a.Reset(f.Context(), []limiters.StateName{counted.StateName("k")}); err != nil {
			t.Fatal(err)
		}
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=59.3s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=59.3s reset=59.3s")
		time.Sleep(5 * time.Second)
		f.mustHaveUsage("k", counted, 4)
		if got := a.Stats(); got.LostHits != 5 || got.SentHits != 0 {
			t.Errorf("%+v, want 5 hits lost and none sent", got)
		}
	})
}

// DropDenials removes denials, but no debts, not even that of a call under way, if the key is
// denied again.
func TestDebtIsRestoredAfterItsDenialIsForgotten(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replicaWithRenewalUnderWay()
		a.DropDenials()
		a.mustTake("k", counted, 1, "denied used=5 remaining=0 retry=59.3s reset=59.3s")
		time.Sleep(5 * time.Second)
		f.mustHaveUsage("k", counted, 10)
		if got := a.Stats(); got.LostHits != 0 || got.SentHits != 5 {
			t.Errorf("%+v, want 5 hits sent and none lost", got)
		}
	})
}

// A panic of the store on the cache's goroutine must not end the process.
func TestPanicOfTheStoreDoesNotEndTheProcess(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		a.mustTake("k", counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		a.link.setPanic(true)
		time.Sleep(700 * time.Millisecond)
		a.link.setPanic(false)
		if got := a.Stats(); got.LostHits != 1 {
			t.Errorf("%+v, want one hit lost", got)
		}
	})
}

func TestCloseSendsDebts(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		for i := range 120 {
			key := fmt.Sprint(i)
			take(t, a, limiters.Op{Key: key, Limit: counted, Hits: 2}, limiters.Op{Key: key, Limit: counted, Hits: 2})
			a.mustTake(key, counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
		}
		if err := a.Close(f.Context()); err != nil {
			t.Error(err)
		}
		for i := range 120 {
			f.mustHaveUsage(fmt.Sprint(i), counted, 5)
		}
		b := f.replica(defaults)
		b.mustTake("0", counted, 1, "denied used=6 remaining=0 retry=60s reset=60s")
		b.mustTake("0", counted, 1, "cached: denied used=7 remaining=0 retry=60s reset=60s")
		b.link.set(0, 0, errBroken)
		if err := b.Close(f.Context()); !errors.Is(err, errBroken) {
			t.Errorf("%v, want %v", err, errBroken)
		}
	})
}

func TestCanceledTakeIsNotAnsweredFromCache(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a := f.replica(defaults)
		a.mustTake("k", counted, 3, "denied used=3 remaining=0 retry=never reset=60s")
		a.mustTake("k", counted, 1, "denied used=4 remaining=0 retry=60s reset=60s")
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		if err := takeError(ctx, a, limiters.Op{Key: "k", Limit: counted, Hits: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		a.mustTake("k", counted, 1, "cached: denied used=5 remaining=0 retry=60s reset=60s")
	})
}
