package replay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/replay"
)

const threeAlgorithms = `
domain: ugc
descriptors:
  - key: window
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: log
    rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}
  - key: funnel
    rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 5}
  - key: month
    rate_limit: {unit: month, requests_per_unit: 1, window_start: calendar}
`

func request(key, value string, hits int64) *decide.Request {
	return &decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{{Entries: []descriptors.Entry{{Key: key, Value: value}}, Hits: hits}}}
}

var start = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func TestReplayDecidesAtTheTimesGiven(t *testing.T) {
	r := replay.New(rulesfiletest.Parse(t, threeAlgorithms), replay.Options{})
	var result decide.Result
	for _, step := range []struct {
		at     time.Duration
		key    string
		hits   int64
		denied bool
		wait   time.Duration // until the hits fit, or after an allowed request until the reset
	}{
		{0, "window", 5, false, time.Minute},
		{0, "log", 5, false, time.Minute},
		{0, "funnel", 5, false, time.Minute},
		{0, "month", 1, false, 206 * time.Hour},
		{time.Second, "window", 1, true, 59 * time.Second},
		{time.Second, "log", 1, true, 59 * time.Second},
		{time.Second, "funnel", 1, true, 11 * time.Second},
		{12 * time.Second, "funnel", 1, false, time.Minute},
		{time.Minute - time.Microsecond, "window", 1, true, time.Microsecond},
		{time.Minute, "window", 1, false, time.Minute},
		{time.Minute, "log", 1, false, time.Minute},
		{206*time.Hour - time.Microsecond, "month", 1, true, time.Microsecond},
		{206 * time.Hour, "month", 1, false, 31 * 24 * time.Hour},
	} {
		must.Succeed(t, r.Decide(start.Add(step.at), request(step.key, "a", step.hits), &result))
		_, v := result.Decisions[0].DecidingLimit()
		if wait := cmp.Or(v.RetryAfter, v.ResetAfter); result.Denied != step.denied || wait != step.wait {
			t.Errorf("%v %s: denied %t, retry or reset after %v, want %t, %v", step.at, step.key, result.Denied, wait, step.denied, step.wait)
		}
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	r := replay.New(rulesfiletest.Parse(t, threeAlgorithms), replay.Options{})
	var result decide.Result
	for _, step := range []struct {
		at        time.Time
		want      error
		remaining int64
	}{
		{start, nil, 4},
		{start.Add(-time.Microsecond), replay.ErrEarlier, 0},
		{start, nil, 3},
		{start.Add(999 * time.Nanosecond), nil, 2},
		{start, nil, 1}, // the same microsecond
		{time.Time{}, replay.ErrOutOfRange, 0},
		{time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), replay.ErrOutOfRange, 0},
		{start.Add(time.Second), nil, 0},
	} {
		err := r.Decide(step.at, request("window", "a", 1), &result)
		if !errors.Is(err, step.want) {
			t.Errorf("%v: error %v, want %v", step.at, err, step.want)
		}
		if step.want != nil {
			if len(result.Decisions) > 0 {
				t.Errorf("%v: a rejected request has decisions: %+v", step.at, result.Decisions)
			}
		} else if got := result.Decisions[0].Remaining(); got != step.remaining {
			t.Errorf("%v: %d remaining, want %d", step.at, got, step.remaining)
		}
	}
}

func TestReplayReportsInvalidRequests(t *testing.T) {
	r := replay.New(rulesfiletest.Parse(t, threeAlgorithms), replay.Options{})
	var result decide.Result
	var refused *decide.Error
	if err := r.Decide(start, &decide.Request{}, &result); !errors.As(err, &refused) || refused.Kind != decide.InvalidRequest {
		t.Errorf("a request without a domain: %v", err)
	}
	if err := r.Decide(start, &decide.Request{Domain: "other", Descriptors: request("a", "b", 1).Descriptors}, &result); err != nil || !result.UnknownDomain {
		t.Errorf("an unknown domain: %v, %+v", err, result)
	}
}

// The verdicts are those of the decider on the reference store, which has no expiry and no
// eviction.
func TestReplayEqualsTheReference(t *testing.T) {
	rules := rulesfiletest.Parse(t, threeAlgorithms)
	r := replay.New(rules, replay.Options{})
	now, denied := start, 0
	store := limiterstest.NewReference()
	store.Now = func() time.Time { return now }
	reference := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	var got, want decide.Result
	for i := range 50_000 {
		now = now.Add(time.Duration(random.IntN(2_000_000)) * time.Microsecond)
		key := []string{"window", "log", "funnel", "month", "none"}[random.IntN(5)]
		incoming := request(key, fmt.Sprint(random.IntN(20)), int64(random.IntN(5))-1)
		must.Succeed(t, r.Decide(now, incoming, &got))
		must.Succeed(t, reference.Decide(context.Background(), incoming, &want))
		g, w := got.Decisions[0], want.Decisions[0]
		if g.Outcome != w.Outcome || g.Reason != w.Reason || !slices.Equal(g.Verdicts, w.Verdicts) {
			t.Fatalf("request %d at %v of %s: %v %v %+v, want %v %v %+v", i, now, key, g.Outcome, g.Reason, g.Verdicts, w.Outcome, w.Reason, w.Verdicts)
		}
		if got.Denied {
			denied++
		}
	}
	if denied < 1000 {
		t.Errorf("only %d of 50,000 requests were denied", denied)
	}
}

// A replay of a year keeps the counters of a minute only, although it takes less than a second.
func TestReplayForgetsCountersInVirtualTime(t *testing.T) {
	r := replay.New(rulesfiletest.Parse(t, threeAlgorithms), replay.Options{})
	var result decide.Result
	most := int64(0)
	for i := range 100_000 {
		must.Succeed(t, r.Decide(start.Add(time.Duration(i)*5*time.Minute), request("window", fmt.Sprint(i), 1), &result))
		most = max(most, r.Stats().Keys)
	}
	if most > 1000 {
		t.Errorf("%d counters at once", most)
	}
	if s := r.Stats(); s.Evicted+s.Rejected > 0 {
		t.Errorf("%+v, want no evicted and no rejected key", s)
	}
}

func TestBoundsOfAReplayAreReported(t *testing.T) {
	r := replay.New(rulesfiletest.Parse(t, threeAlgorithms), replay.Options{MaxKeys: 100})
	var result decide.Result
	for i := range 1000 {
		_ = r.Decide(start, request("window", fmt.Sprint(i), 1), &result)
	}
	if s := r.Stats(); s.Keys > 100 || s.Evicted == 0 {
		t.Errorf("%+v, want at most 100 keys and evictions", s)
	}
}

// 100,000 users, each under one of three algorithms. Simulating 1,000,000 requests in 10 s needs at
// most 10 µs per request.
func BenchmarkReplay(b *testing.B) {
	r := replay.New(rulesfiletest.Parse(b, threeAlgorithms), replay.Options{})
	const users = 100_000
	names := make([]string, users)
	for i := range names {
		names[i] = fmt.Sprintf("user-%08d", i)
	}
	keys := []string{"window", "log", "funnel"}
	random := rand.New(rand.NewPCG(1, 2))
	incoming := request("window", "", 1)
	entry := &incoming.Descriptors[0].Entries[0]
	var result decide.Result
	now := start
	b.ReportAllocs()
	for b.Loop() {
		user := random.IntN(users)
		entry.Key, entry.Value = keys[user%3], names[user]
		now = now.Add(100 * time.Microsecond)
		must.Succeed(b, r.Decide(now, incoming, &result))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(r.Stats().Bytes), "B-counters")
}
