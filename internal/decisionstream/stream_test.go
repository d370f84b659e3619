package decisionstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

const rulesText = `
domain: shop
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: hour, requests_per_unit: 3}
      - {unit: day, requests_per_unit: 1000}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: repeated, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 1, penalty: {after: 1, within: 1m, for: 10m}}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: job, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1}}]}
  - key: ip
    descriptors:
      - {key: action, value: login, rate_limit: {unit: hour, requests_per_unit: 1000000}}
`

// A fixture is a Stream of the decisions of a decider in memory.
type fixture struct {
	*Stream
	tb      testing.TB
	rules   *descriptors.Rules
	decider *decide.Decider
}

func streaming(tb testing.TB, o Options) *fixture {
	tb.Helper()
	rules := rulesfiletest.Parse(tb, rulesText)
	load := func() *descriptors.Rules { return rules }
	o.Replica = "weir-0"
	return &fixture{New(o), tb, rules, decide.New(load, memstore.New(memstore.Options{}), decide.Options{})}
}

// decide decides hits of one descriptor, such as "user_id=42 action=login", and publishes the
// result.
func (f *fixture) decide(hits int64, text string) *decide.Result {
	f.tb.Helper()
	d := decide.Descriptor{Entries: rulesfiletest.Entries(text), Hits: hits}
	request, result := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{d}}, &decide.Result{}
	must.Succeed(f.tb, f.decider.Decide(context.Background(), &request, result))
	f.Publish(result)
	return result
}

// KEY_HASH_SECRET hides keys in Redis, so nothing else may show them.
func TestKeysAreHashedUnderASecret(t *testing.T) {
	secret := []byte("a secret of 16 bytes")
	var logged []*Denial
	f := streaming(t, Options{KeyHashSecret: secret, LogDenial: func(d *Denial) { logged = append(logged, d) }, DeniedKeysFraction: 1, DenialsPerSecond: 10})
	s, err := f.Subscribe(api.Filter{})
	must.Succeed(t, err)
	defer s.Close()
	f.decide(10, "user_id=alice")
	hash := descriptors.KeyHash(secret, "4:shop|7:user_id*5:alice")
	d := <-s.C
	for _, text := range []string{fmt.Sprintf("%+v", d), fmt.Sprintf("%+v", *logged[0])} {
		if strings.Contains(text, "alice") || !strings.Contains(text, hash) {
			t.Errorf("want the hash %s and no value: %s", hash, text)
		}
	}
}

func TestSubscriptionAppliesItsFilter(t *testing.T) {
	for _, tt := range []struct {
		filter api.Filter
		want   int
	}{
		{api.Filter{}, 9}, {api.Filter{Domain: "shop"}, 9}, {api.Filter{Domain: "other"}, 0}, {api.Filter{Rule: "user_id"}, 5},
		{api.Filter{Outcome: outcomeDenied}, 4}, {api.Filter{Outcome: outcomeAllowed}, 5}, {api.Filter{Outcome: outcomeUndecided}, 0},
		{api.Filter{Entry: explain.Entry{"user_id", "42"}}, 4}, {api.Filter{Entry: explain.Entry{"user_id", ""}}, 5},
		{api.Filter{Entry: explain.Entry{"action", "login"}}, 1}, {api.Filter{Outcome: outcomeDenied, Rule: "shadow"}, 1},
	} {
		f := streaming(t, Options{})
		s, err := f.Subscribe(tt.filter)
		must.Succeed(t, err)
		for range 4 { // the last one is denied
			f.decide(1, "user_id=42")
		}
		f.decide(9, "user_id=43") // denied
		f.decide(2, "shadow=x")   // denied in shadow mode
		f.decide(1, "ip=10.0.0.1 action=login")
		f.decide(1, "none=x")
		f.decide(1, "job=x lease=") // denied, because the lease id is empty
		if got := len(s.C); got != tt.want {
			t.Errorf("%+v: %d decisions, want %d", tt.filter, got, tt.want)
		}
		s.Close()
	}
}

func TestStreamHasEveryFieldOfADecision(t *testing.T) {
	f := streaming(t, Options{})
	s, err := f.Subscribe(api.Filter{})
	must.Succeed(t, err)
	defer s.Close()
	f.decide(3, "user_id=42")
	f.decide(1, "user_id=42")
	f.decide(2, "shadow=x")
	f.decide(1, "quota=x") // the only one, so it denies the request
	f.decide(1, "none=x")
	for _, want := range []api.Decision{
		{Rule: "user_id", Key: []explain.Entry{{"user_id", "42"}}, Hits: 3, Outcome: outcomeAllowed, Reason: "within_limit",
			Limit: "burst", Algorithm: "fixed_window", Used: 3, By: "store"},
		{Rule: "user_id", Key: []explain.Entry{{"user_id", "42"}}, Hits: 1, Outcome: outcomeDenied, Reason: "over_limit", Enforced: true,
			Limit: "burst", Algorithm: "fixed_window", Used: 4, By: "store"},
		{Rule: "shadow", Key: []explain.Entry{{"shadow", "x"}}, Hits: 2, Outcome: outcomeDenied, Reason: "never_fits",
			Limit: "0", Algorithm: "fixed_window", Used: 2, By: "store"},
		{Rule: "quota", Key: []explain.Entry{{"quota", "x"}}, Hits: 1, Outcome: outcomeDenied, Reason: "never_fits", Enforced: true,
			Limit: "0", Algorithm: "fixed_window", By: "store"},
		{Key: []explain.Entry{{"none", "x"}}, Hits: 1, Outcome: outcomeAllowed, Reason: "no_rule"},
	} {
		got := <-s.C
		entry := descriptors.Entry{Key: got.Key[0][0], Value: got.Key[0][1]}
		entries := []descriptors.Entry{entry}
		want.Domain, want.Replica, want.RulesVersion, want.Time = "shop", "weir-0", f.rules.Version(), got.Time
		want.KeyHash = descriptors.KeyHash(nil, descriptors.Key("shop", f.rules.Match("shop", entries), entries))
		want.RetryAfter, want.ResetAfter = got.RetryAfter, got.ResetAfter
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("\ngot  %+v\nwant %+v", got, want)
		}
		if (got.Limit != "") != (got.ResetAfter != "0s") {
			t.Errorf("%+v, want a reset exactly under a limit", got)
		}
		if (got.Outcome == outcomeDenied) != (got.RetryAfter != "0s") || got.Time.IsZero() || got.RulesVersion == "" {
			t.Errorf("%+v, want a wait exactly for a denial, a time and a version", got)
		}
	}
}

func TestStreamHasTheOutcomeOfAFailedStore(t *testing.T) {
	for verdict, want := range map[limiters.Verdict]api.Decision{
		{By: limiters.ByPolicy}:       {Outcome: outcomeDenied, Limit: "burst", By: "policy"},
		{Err: errors.New("no store")}: {Outcome: outcomeUndecided},
	} {
		f := streaming(t, Options{})
		r := f.decide(1, "user_id=42")
		s, err := f.Subscribe(api.Filter{Outcome: want.Outcome})
		must.Succeed(t, err)
		defer s.Close()
		d := &r.Decisions[0]
		d.Outcome, d.Verdicts[0] = decide.Undecided, verdict
		f.Publish(r)
		if got := <-s.C; got.Outcome != want.Outcome || got.Limit != want.Limit || got.By != want.By {
			t.Errorf("%+v: got %+v, want %+v", verdict, got, want)
		}
	}
}

// A sample has all decisions of some keys, and the same keys in every process.
func TestSampleHasAllDecisionsOfItsKeys(t *testing.T) {
	a, b := streaming(t, Options{}), streaming(t, Options{})
	seen := [2]map[string]int{}
	for i, f := range []*fixture{a, b} {
		seen[i] = map[string]int{}
		s, err := f.Subscribe(api.Filter{Sample: .25})
		must.Succeed(t, err)
		for user := range 400 {
			for range 2 {
				f.decide(1, fmt.Sprint("user_id=", user))
			}
			for len(s.C) > 0 {
				seen[i][(<-s.C).KeyHash]++
			}
		}
		s.Close()
	}
	if n := len(seen[0]); n < 70 || n > 130 || len(seen[1]) != n {
		t.Errorf("%d and %d of 400 keys, want a quarter", n, len(seen[1]))
	}
	for key, n := range seen[0] {
		if n != 2 || seen[1][key] != 2 {
			t.Errorf("%d and %d decisions of a key, want 2", n, seen[1][key])
		}
	}
}

func TestSlowSubscriberLosesDecisionsAndDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := streaming(t, Options{})
		slow, err := f.Subscribe(api.Filter{})
		must.Succeed(t, err)
		fast, err := f.Subscribe(api.Filter{})
		must.Succeed(t, err)
		const requests = queueSize + 50
		for range requests {
			f.decide(1, "user_id=42")
			<-fast.C
		}
		if len(slow.C) != queueSize || slow.Dropped() != 50 || fast.Dropped() != 0 || f.Stats().Dropped != 50 {
			t.Errorf("%d queued, %d and %d dropped, %+v", len(slow.C), slow.Dropped(), fast.Dropped(), f.Stats())
		}
		for range maxPerSecond {
			f.decide(1, "user_id=42")
			for len(fast.C) > 0 {
				<-fast.C
			}
		}
		if fast.Dropped() != requests {
			t.Errorf("%d dropped beyond %d a second, want %d", fast.Dropped(), maxPerSecond, requests)
		}
		time.Sleep(time.Second)
		f.decide(1, "user_id=42")
		if len(fast.C) != 1 {
			t.Error("no decision in the next second")
		}
		fast.Close()
		slow.Close()
		slow.Close()
		f.decide(1, "user_id=42")
		for range fast.C { // ends, because Close closes it
		}
	})
}

// The keys in a queue have a bound in bytes, which a key that a subscriber has received leaves.
func TestQueuedKeysAreBounded(t *testing.T) {
	f := streaming(t, Options{})
	slow, err := f.Subscribe(api.Filter{})
	must.Succeed(t, err)
	large := "user_id=" + strings.Repeat("x", queueBytes)
	f.decide(1, large) // alone, even a larger key than the bound has room
	f.decide(1, "user_id=42")
	if len(slow.C) != 1 || slow.Dropped() != 1 {
		t.Errorf("behind a large key: %d queued, %d dropped, want 1 and 1", len(slow.C), slow.Dropped())
	}
	if d := <-slow.C; len(d.Key[0][1]) != queueBytes {
		t.Errorf("the key that was queued has a value of %d bytes, want %d", len(d.Key[0][1]), queueBytes)
	}
	f.decide(1, "user_id=42")
	f.decide(1, large)
	f.decide(1, "user_id=42")
	if len(slow.C) != 2 || slow.Dropped() != 2 {
		t.Errorf("behind small keys: %d queued, %d dropped, want 2 and 2", len(slow.C), slow.Dropped())
	}
	slow.Close()
	f = streaming(t, Options{KeyHashSecret: []byte("a secret of 16 bytes")})
	hashed, err := f.Subscribe(api.Filter{})
	must.Succeed(t, err)
	defer hashed.Close()
	f.decide(1, large)
	f.decide(1, large)
	if len(hashed.C) != 2 || hashed.Dropped() != 0 {
		t.Errorf("as hashes: %d queued, %d dropped, want 2 and 0", len(hashed.C), hashed.Dropped())
	}
}

func TestSubscribersAreBounded(t *testing.T) {
	f := streaming(t, Options{})
	var all []*api.Subscription
	for range maxSubscribers {
		s, err := f.Subscribe(api.Filter{})
		must.Succeed(t, err)
		all = append(all, s)
	}
	if _, err := f.Subscribe(api.Filter{}); !errors.Is(err, errTooManySubscribers) || f.Stats().Subscribers != maxSubscribers {
		t.Errorf("%v with %+v", err, f.Stats())
	}
	all[3].Close()
	if _, err := f.Subscribe(api.Filter{}); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

func TestSubscriptionsCloseUnderLoad(t *testing.T) {
	f := streaming(t, Options{LogDenial: func(*Denial) {}, DeniedKeysFraction: 1, DenialsPerSecond: 10})
	ctx, cancel := context.WithCancel(context.Background())
	var load, readers sync.WaitGroup
	for worker := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f.decide(1, fmt.Sprint("user_id=", (i+worker)%20))
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for range 50 {
				s, err := f.Subscribe(api.Filter{Outcome: outcomeDenied})
				if err != nil {
					t.Error(err)
					return
				}
				<-s.C
				s.Close()
			}
		})
	}
	readers.Wait()
	cancel()
	load.Wait()
}

func TestDenialLogNamesTheLimit(t *testing.T) {
	var logged []Denial
	f := streaming(t, Options{LogDenial: func(d *Denial) { logged = append(logged, *d) }, DeniedKeysFraction: 1, DenialsPerSecond: 100})
	for range 4 {
		f.decide(1, "user_id=alice")
	}
	f.decide(2, "shadow=x")
	for range 3 {
		f.decide(1, "repeated=x")
	}
	want := []Denial{
		{Domain: "shop", Rule: "user_id", Limit: "burst", Algorithm: "fixed_window", Enforced: true, Used: 4, Replica: "weir-0",
			RulesVersion: f.rules.Version(), KeyHash: descriptors.KeyHash(nil, "4:shop|7:user_id*5:alice")},
		{Domain: "shop", Rule: "shadow", Limit: "0", Algorithm: "fixed_window", Used: 2, RetryAfter: -time.Microsecond, Replica: "weir-0",
			RulesVersion: f.rules.Version(), KeyHash: descriptors.KeyHash(nil, "4:shop|6:shadow*1:x")},
	}
	penalized := Denial{Domain: "shop", Rule: "repeated", Limit: "0", Algorithm: "sliding_log", Enforced: true, Penalized: true, Used: 1, Replica: "weir-0",
		RulesVersion: f.rules.Version(), KeyHash: descriptors.KeyHash(nil, "4:shop|8:repeated*1:x")}
	want = append(want, penalized, penalized)
	for i := range logged {
		if logged[i].RetryAfter > time.Hour {
			t.Errorf("retry after %v", logged[i].RetryAfter)
		}
		logged[i].RetryAfter = min(logged[i].RetryAfter, 0) // the wait depends on the time
	}
	if !slices.Equal(logged, want) {
		t.Errorf("\ngot  %+v\nwant %+v", logged, want)
	}
}

func TestDenialLogIsBoundedAndCountsSkippedDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []int64
		f := streaming(t, Options{LogDenial: func(d *Denial) { logged = append(logged, d.Suppressed) }, DeniedKeysFraction: 1, DenialsPerSecond: 2})
		f.decide(3, "user_id=42")
		for range 7 {
			f.decide(1, "user_id=42")
		}
		time.Sleep(time.Second)
		for range 2 {
			f.decide(1, "user_id=42")
		}
		if !slices.Equal(logged, []int64{0, 0, 5, 0}) || f.Stats().Suppressed != 5 {
			t.Errorf("%v and %+v, want 5 left out before the third line", logged, f.Stats())
		}
	})
}

func TestDenialLogSamplesKeys(t *testing.T) {
	for share, want := range map[float64][2]int{0: {0, 0}, .1: {60, 140}, 1: {1000, 1000}, math.NaN(): {0, 0}} {
		n := 0
		f := streaming(t, Options{LogDenial: func(*Denial) { n++ }, DeniedKeysFraction: share, DenialsPerSecond: 1 << 30})
		for user := range 1000 {
			f.decide(1001, fmt.Sprint("user_id=", user))
		}
		if n < want[0] || n > want[1] {
			t.Errorf("share %v: %d of 1000 keys, want %d to %d", share, n, want[0], want[1])
		}
	}
}

func TestStreamWithoutReadersCostsNothing(t *testing.T) {
	f := streaming(t, Options{})
	r := f.decide(1, "user_id=42")
	if n := testing.AllocsPerRun(100, func() { f.Publish(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
