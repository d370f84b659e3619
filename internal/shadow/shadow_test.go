package shadow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/replay"
)

const liveRules = `
domain: shop
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 4}
      - {name: hourly, unit: hour, requests_per_unit: 60, algorithm: sliding_log}
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 20, algorithm: funnel}}
  - {key: path, value: /login, rate_limit: {unit: minute, requests_per_unit: 30}}
`

const candidateRules = `
domain: shop
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 2}
      - {name: hourly, unit: hour, requests_per_unit: 90, algorithm: sliding_log}
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 10, algorithm: funnel}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 40}}
`

// A server decides requests by live rules, with a Comparison beside it.
type server struct {
	*Comparison
	tb      testing.TB
	rules   *descriptors.Rules
	decider *decide.Decider
	stop    func()
}

func serve(tb testing.TB, o Options, live, candidate string) *server {
	tb.Helper()
	s := &server{Comparison: New(o), tb: tb, rules: rulesfiletest.Parse(tb, live)}
	s.decider = decide.New(func() *descriptors.Rules { return s.rules }, memstore.New(memstore.Options{}), o.Decide)
	s.SetCandidate(rulesfiletest.Parse(tb, candidate))
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { s.Run(ctx) })
	s.stop = func() { cancel(); ended.Wait() }
	return s
}

func request(hits int64, texts ...string) *decide.Request {
	r := &decide.Request{Domain: "shop"}
	for _, text := range texts {
		r.Descriptors = append(r.Descriptors, decide.Descriptor{Entries: rulesfiletest.Entries(text), Hits: hits})
	}
	return r
}

// decide decides a request and shows it to the shadow. Then it spoils the memory of the request, as
// the next request would.
func (s *server) decide(r *decide.Request) *decide.Result {
	s.tb.Helper()
	result := &decide.Result{}
	must.Succeed(s.tb, s.decider.Decide(context.Background(), r, result))
	s.Observe(r, result)
	for i := range r.Descriptors {
		clear(r.Descriptors[i].Entries)
		if o := r.Descriptors[i].Override; o != nil {
			*o = decide.Override{}
		}
	}
	return result
}

// The diff is that of a replay of both rules over the same requests at the same times, for each
// limit and each key.
func TestDiffEqualsReplayOfBothRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, liveRules, candidateRules)
		defer s.stop()
		live := replay.New(rulesfiletest.Parse(t, liveRules), replay.Options{})
		candidate := replay.New(rulesfiletest.Parse(t, candidateRules), replay.Options{})
		random := rand.New(rand.NewPCG(1, 2))
		want := api.ShadowRequests{Compared: 5000}
		limits, keys := map[string]*limitCounts{}, map[string]int64{} // keys by their hashes
		row := func(d *decide.Decision) *limitCounts {
			id := fmt.Sprint(d.RuleName(), " ", d.LimitLabel(d.DenyingLimitIndex()))
			if limits[id] == nil {
				limits[id] = &limitCounts{}
			}
			return limits[id]
		}
		for range 5000 {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(100*time.Millisecond)))
			hits, texts := randomTraffic(random)
			now := time.Now()
			var old, proposed decide.Result
			must.Succeed(t, live.Decide(now, request(hits, texts...), &old))
			must.Succeed(t, candidate.Decide(now, request(hits, texts...), &proposed))
			if got := s.decide(request(hits, texts...)); got.Denied != old.Denied {
				t.Fatalf("at %v the server says denied %v, and the replay %v", now, got.Denied, old.Denied)
			}
			synctest.Wait()
			switch {
			case old.Denied && proposed.Denied:
				want.BothDenied++
			case old.Denied:
				want.NewlyAllowed++
			case proposed.Denied:
				want.NewlyDenied++
			default:
				want.BothAllowed++
			}
			for i := range proposed.Decisions {
				if d := &proposed.Decisions[i]; d.Outcome == decide.Denied {
					if old.Denied {
						row(d).bothDenied++
					} else {
						row(d).newlyDenied++
						keys[descriptors.KeyHash(nil, d.Key)]++
					}
				}
				if d := &old.Decisions[i]; d.Outcome == decide.Denied && !proposed.Denied {
					row(d).newlyAllowed++
				}
			}
		}
		r := s.Report(100, 100)
		if r.Requests != want || want.NewlyDenied < 100 || want.NewlyAllowed < 10 || want.BothDenied < 100 {
			t.Errorf("got %+v, want %+v", r.Requests, want)
		}
		if len(r.Limits) != len(limits) {
			t.Errorf("%d limits, want %d", len(r.Limits), len(limits))
		}
		for _, l := range r.Limits {
			got := limitCounts{newlyDenied: l.NewlyDenied, newlyAllowed: l.NewlyAllowed, bothDenied: l.BothDenied}
			want := limits[l.Rule+" "+l.Limit]
			if want == nil || got != *want {
				t.Errorf("%s %s: got %+v, want %+v", l.Rule, l.Limit, got, want)
			}
		}
		if len(r.NewlyDeniedKeys.Worst) != len(keys) || !r.NewlyDeniedKeys.Exact {
			t.Errorf("%d keys, want %d", len(r.NewlyDeniedKeys.Worst), len(keys))
		}
		for _, k := range r.NewlyDeniedKeys.Worst {
			if keys[k.KeyHash] != k.Requests {
				t.Errorf("%v: %d requests, want %d", k.Key, k.Requests, keys[k.KeyHash])
			}
		}
		if seen := s.current.Load().seen; seen != 5000 || r.DroppedShare != 0 || r.Panics != 0 || s.queued.Load() != 0 {
			t.Errorf("%d seen, %+v, %d bytes queued, want 5000, no drop, no panic and none", seen, r, s.queued.Load())
		}
	})
}

// randomTraffic returns the hits and the descriptors of a request. Most requests charge one hit.
func randomTraffic(random *rand.Rand) (hits int64, texts []string) {
	user := fmt.Sprint("user_id=", int(random.ExpFloat64()*5))
	texts = []string{user, fmt.Sprint("ip=", random.IntN(3)), []string{"path=/login", "path=/a", "other=1"}[random.IntN(3)]}
	switch random.IntN(20) {
	case 0:
		return 0, texts
	case 1:
		return -1, texts
	case 2:
		return 3, texts
	}
	return 1, texts
}

// broken is a store whose Take is a function of a test.
type broken struct {
	limiters.Store
	take func(context.Context) error
}

func (b broken) Take(ctx context.Context, _ []limiters.Group, out []limiters.Verdict) error {
	return limiters.FailAll(out, b.take(ctx))
}

func TestReportNamesLimitsAndKeys(t *testing.T) {
	const live = "\ndomain: shop\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}\n" +
		"  - {key: b, rate_limit: {unit: hour, requests_per_unit: 0}}\n  - {key: c, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n"
	const candidate = "\ndomain: shop\ndescriptors:\n  - {key: a, rate_limit: {name: none, unit: hour, requests_per_unit: 0}}\n" +
		"  - {key: b, rate_limit: {unit: hour, requests_per_unit: 9}}\n  - {key: c, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}\n" +
		"  - {key: user, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 2}}]}\n"
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, live, candidate)
		defer s.stop()
		for _, texts := range [][]string{{"b=1", "c=1"}, {"user=u lease="}, {"a=1"}, {"a=2"}, {"a=1"}} {
			s.decide(request(1, texts...))
		}
		synctest.Wait()
		all, first := s.Report(10, 10), s.Report(1, 1)
		wantLimits := []api.LimitDiff{
			{Domain: "shop", Rule: "a", Limit: "none", Algorithm: "fixed_window", NewlyDenied: 3},
			{Domain: "shop", Rule: "user.lease", NewlyDenied: 1, Warm: true}, // an empty lease id is under no limit
			{Domain: "shop", Rule: "b", Limit: "0", Algorithm: "fixed_window", NewlyAllowed: 1},
		}
		key := func(rule, limit, text, key string, requests int64) api.DiffKey {
			return api.DiffKey{Domain: "shop", Rule: rule, Limit: limit, Key: explain.EntriesOf(rulesfiletest.Entries(text)), KeyHash: descriptors.KeyHash(nil, key), Requests: requests}
		}
		a1 := key("a", "none", "a=1", "4:shop|1:a*1:1", 2)
		wantDenied := api.DiffKeys{Keys: 2, Exact: true, Worst: []api.DiffKey{a1, key("a", "none", "a=2", "4:shop|1:a*1:2", 1)}}
		wantAllowed := api.DiffKeys{Keys: 1, Exact: true, Worst: []api.DiffKey{key("b", "0", "b=1", "4:shop|1:b*1:1", 1)}}
		if !reflect.DeepEqual(all.Limits, wantLimits) || !reflect.DeepEqual(all.NewlyDeniedKeys, wantDenied) || !reflect.DeepEqual(all.NewlyAllowedKeys, wantAllowed) {
			t.Errorf("got %+v\nwant %+v\n%+v\n%+v", all, wantLimits, wantDenied, wantAllowed)
		}
		if !reflect.DeepEqual(first.Limits, wantLimits[:1]) || first.LimitsTotal != 3 || !reflect.DeepEqual(first.NewlyDeniedKeys.Worst, []api.DiffKey{a1}) {
			t.Errorf("got %+v, want the first limit of 3 and the first key", first)
		}
	})
}

// The memory store of the rules in force counts by the monotonic clock too.
func TestCandidateIgnoresASetWallClock(t *testing.T) {
	const oneEachHour = "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: hour, window_start: first_hit, requests_per_unit: 1}}]"
	rules := rulesfiletest.Parse(t, oneEachHour)
	s := New(Options{})
	s.SetCandidate(rules)
	now := time.Now()
	for _, step := range []struct {
		elapsed, wall time.Duration
		want          api.ShadowRequests
	}{
		{0, 0, api.ShadowRequests{Compared: 1, BothAllowed: 1}},
		{time.Minute, 2 * time.Hour, api.ShadowRequests{Compared: 2, BothAllowed: 1, NewlyDenied: 1}},
		{time.Hour, -3 * time.Hour, api.ShadowRequests{Compared: 3, BothAllowed: 2, NewlyDenied: 1}},
	} {
		r, allowed := request(1, "user_id=alice"), &decide.Result{}
		unused := decide.New(func() *descriptors.Rules { return rules }, memstore.New(memstore.Options{}), decide.Options{})
		must.Succeed(t, unused.Decide(t.Context(), r, allowed))
		s.current.Load().compare(t.Context(), newRequestCopy(r, allowed, withWallSet(now.Add(step.elapsed), step.wall)))
		if got := s.Report(1, 1).Requests; got != step.want {
			t.Errorf("after %v, with the wall clock set by %v: %+v, want %+v", step.elapsed, step.wall, got, step.want)
		}
	}
}

// withWallSet returns t as time.Now would return it if somebody had set the wall clock by step. Its
// monotonic reading is that of t.
func withWallSet(t time.Time, step time.Duration) time.Time {
	const hasMonotonic, secondShift = 1 << 63, 30
	wall := (*uint64)(unsafe.Pointer(&t)) // the first field of time.Time
	if *wall&hasMonotonic == 0 {
		panic("t has no monotonic reading")
	}
	*wall = uint64(int64(*wall) + int64(step/time.Second)<<secondShift)
	return t
}

func TestReportCountsKeysWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{MaxBytes: 64 << 10}, liveRules, candidateRules)
		defer s.stop()
		for i := range 5000 {
			s.decide(request(1, fmt.Sprint("user_id=", i)))
		}
		synctest.Wait()
		if r, stats := s.Report(1, 1), s.Stats(); r.Evicted == 0 || r.Evicted != stats.Evicted+stats.Rejected {
			t.Errorf("%d evicted, want some, and as many as in %+v", r.Evicted, stats)
		}
	})
}

func TestPanicOfCandidateReachesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values []any
		panics := broken{take: func(context.Context) error { panic("no such luck") }}
		s := serve(t, Options{
			wrap:     func(limiters.Store) limiters.Store { return panics },
			Panicked: func(value any) { values = append(values, value) },
		}, liveRules, candidateRules)
		defer s.stop()
		for range 3 {
			s.decide(request(1, "user_id=1"))
			synctest.Wait()
		}
		if stats := s.Stats(); stats.Panics != 3 || len(values) != 3 || values[0] != "no such luck" {
			t.Errorf("got %+v, values %v, want 3 panics: no such luck", stats, values)
		}
		// One on the request's own goroutine.
		s.Observe(&decide.Request{}, &decide.Result{Decisions: []decide.Decision{{Plan: &decide.Plan{}}}, PlannedRequest: decide.PlannedRequest{Rules: s.rules}})
		s.Observe(nil, &decide.Result{Decisions: make([]decide.Decision, 1), PlannedRequest: decide.PlannedRequest{Rules: s.rules}})
		synctest.Wait()
		s.Observe(nil, &decide.Result{}) // of an invalid request
		synctest.Wait()
		if stats := s.Stats(); stats.Panics != 4 || s.Report(1, 1).Panics != 4 {
			t.Errorf("%+v, want 4 panics", stats)
		}
	})
}

func TestBlockedStoreDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := broken{take: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		s := serve(t, Options{wrap: func(limiters.Store) limiters.Store { return blocked }}, liveRules, candidateRules)
		start := time.Now()
		const more = 100
		for i := range maxQueued + 1 + more {
			s.decide(request(1, fmt.Sprint("user_id=", i)))
			if i == 0 {
				synctest.Wait() // the candidate has taken the first request out of the queue
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the requests waited for %v, want 0", took)
		}
		if r, stats := s.Report(1, 1), s.Stats(); r.Requests.Dropped != more || stats.Dropped != more || stats.Queued != maxQueued {
			t.Errorf("dropped %d, queued %d", r.Requests.Dropped, stats.Queued)
		}
		s.stop()
		if got, want := s.Report(1, 1).DroppedShare, more/float64(more+s.current.Load().seen); got != want {
			t.Errorf("the share of dropped requests is %v, want %v", got, want)
		}
	})
}

func TestQueuedTextIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := broken{take: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		s := serve(t, Options{wrap: func(limiters.Store) limiters.Store { return blocked }}, liveRules, candidateRules)
		value := strings.Repeat("x", 1<<20)
		for range 100 {
			s.decide(request(1, "user_id="+value))
		}
		if queued := s.queued.Load(); queued > maxQueuedBytes+2<<20 || s.Stats().Dropped == 0 {
			t.Errorf("%d bytes are queued, and %d requests dropped", queued, s.Stats().Dropped)
		}
		s.stop()
		if n := len(s.queue); n > 40 {
			t.Errorf("%d requests of 1 MiB are queued", n)
		}
	})
}

// The queue's bound includes the descriptors and entries, which may need far more memory than their
// text.
func TestQueuedEntriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := broken{take: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		s := serve(t, Options{wrap: func(limiters.Store) limiters.Store { return blocked }}, liveRules, candidateRules)
		largest := slices.Repeat([]string{strings.Repeat("b ", decide.MaxEntries)}, decide.MaxDescriptors)
		const size = decide.MaxDescriptors * decide.MaxEntries * 32 // two strings for each entry
		s.decide(request(1, "user_id=1"))                           // blocks the queue
		for range maxQueuedBytes/size + 100 {
			s.decide(request(1, largest...))
		}
		s.stop()
		if n := len(s.queue); n > maxQueuedBytes/size+1 || s.Stats().Dropped == 0 {
			t.Errorf("%d requests of %d bytes are queued, and %d dropped", n, size, s.Stats().Dropped)
		}
	})
}

// A rule of a candidate keeps its mode.
func TestCandidateKeepsItsModes(t *testing.T) {
	const denyAll = "\ndomain: shop\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 0}}\n" +
		"  - {key: b, rate_limit: {unit: hour, requests_per_unit: 0}}\n"
	const allowAll = "\ndomain: shop\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}\n" +
		"  - {key: b, rate_limit: {unit: hour, requests_per_unit: 9}}\n"
	for _, tt := range []struct {
		name, live, candidate string
		options               decide.Options
		want                  api.ShadowRequests
		shadowed              int64
	}{
		{"denied", allowAll, denyAll, decide.Options{}, api.ShadowRequests{Compared: 1, NewlyDenied: 1}, 0},
		{"allowed", denyAll, allowAll, decide.Options{}, api.ShadowRequests{Compared: 1, NewlyAllowed: 1}, 0},
		{"no rule", denyAll, "\ndomain: other\ndescriptors: [{key: a}]\n", decide.Options{}, api.ShadowRequests{Compared: 1, NewlyAllowed: 1}, 0},
		{"shadow mode", allowAll, strings.ReplaceAll(denyAll, ", rate_limit", ", shadow_mode: true, rate_limit"), decide.Options{}, api.ShadowRequests{Compared: 1, BothAllowed: 1}, 2},
		{"shadow mode in force", strings.ReplaceAll(denyAll, ", rate_limit", ", shadow_mode: true, rate_limit"), denyAll, decide.Options{}, api.ShadowRequests{Compared: 1, NewlyDenied: 1}, 0},
		{"quota, one is free", allowAll, strings.Replace(strings.ReplaceAll(denyAll, ", rate_limit", ", quota_mode: true, rate_limit"), "0}", "5}", 1), decide.Options{}, api.ShadowRequests{Compared: 1, BothAllowed: 1}, 0},
		{"quota, both are full", allowAll, strings.ReplaceAll(denyAll, ", rate_limit", ", quota_mode: true, rate_limit"), decide.Options{}, api.ShadowRequests{Compared: 1, NewlyDenied: 1}, 0},
		{"unlimited", denyAll, "\ndomain: shop\ndescriptors:\n  - {key: a, rate_limit: {unlimited: true}}\n", decide.Options{}, api.ShadowRequests{Compared: 1, NewlyAllowed: 1}, 0},
		{"SHADOW_MODE", allowAll, denyAll, decide.Options{ShadowMode: true}, api.ShadowRequests{Compared: 1, NewlyDenied: 1}, 0},
		{"SHADOW_MODE, both", denyAll, denyAll + " ", decide.Options{ShadowMode: true}, api.ShadowRequests{Compared: 1, BothDenied: 1}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, Options{Decide: tt.options}, tt.live, tt.candidate)
				defer s.stop()
				s.decide(request(1, "a=1", "b=1"))
				synctest.Wait()
				r := s.Report(10, 10)
				shadowed := int64(0)
				for _, l := range r.Limits {
					shadowed += l.Shadowed
				}
				if r.Requests != tt.want || shadowed != tt.shadowed {
					t.Errorf("got %+v and %d in shadow mode, want %+v and %d", r.Requests, shadowed, tt.want, tt.shadowed)
				}
			})
		})
	}
}

// A full quota denies nothing while another has room, also if a limit beside them denies the
// request.
func TestFullQuotaIsNotNamedWhileAnotherHasRoom(t *testing.T) {
	const live = "\ndomain: shop\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 9}}]\n"
	const candidate = "\ndomain: shop\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 0}}\n" +
		"  - {key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n" +
		"  - {key: c, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}\n"
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, live, candidate)
		defer s.stop()
		s.decide(request(1, "a=1", "b=1", "c=1"))
		synctest.Wait()
		for _, l := range s.Report(10, 10).Limits {
			if want := int64(strings.Count(l.Rule, "a")); l.NewlyDenied != want {
				t.Errorf("%s: newly denied %d, want %d", l.Rule, l.NewlyDenied, want)
			}
		}
	})
}

func TestRequestsUndecidedByCandidateAreNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := broken{take: func(context.Context) error { return errors.New("broken") }}
		s := serve(t, Options{wrap: func(limiters.Store) limiters.Store { return fails }}, liveRules, candidateRules)
		defer s.stop()
		s.decide(request(1, "user_id=1"))
		synctest.Wait()
		if r := s.Report(10, 10); r.Requests != (api.ShadowRequests{Undecided: 1}) {
			t.Errorf("%+v, want one undecided request", r)
		}
	})
}

// A request that a store could not decide says nothing about the rules. The candidate charges it.
func TestUndecidedRequestsAreNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, liveRules, candidateRules)
		defer s.stop()
		for range 3 {
			r, result := request(1, "user_id=1"), &decide.Result{}
			must.Succeed(t, s.decider.Decide(context.Background(), r, result))
			result.Decisions[0].Verdicts[0].By = limiters.ByPolicy
			s.Observe(r, result)
		}
		synctest.Wait()
		if r := s.Report(10, 10); r.Requests != (api.ShadowRequests{Undecided: 3}) || s.Stats().Keys == 0 {
			t.Errorf("%+v, want 3 undecided requests, and a key", r)
		}
		s.decide(request(1, "user_id=1")) // the candidate allows two in a second
		synctest.Wait()
		if r := s.Report(10, 10); r.Requests != (api.ShadowRequests{Undecided: 3, Compared: 1, NewlyDenied: 1}) {
			t.Errorf("%+v, want 3 undecided requests and 1 newly denied", r)
		}
	})
}

// A limit in a request applies under the candidate too. The next request may reuse its memory.
func TestCandidateUsesLimitOfRequest(t *testing.T) {
	const live = "\ndomain: shop\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 9}}]\n"
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, live, strings.Replace(live, "9", "0", 1))
		defer s.stop()
		r := request(1, "a=1")
		r.Descriptors[0].Override = &decide.Override{RequestsPerUnit: 2, Unit: descriptors.Hour}
		s.decide(r)
		synctest.Wait()
		if r := s.Report(10, 10); r.Requests != (api.ShadowRequests{Compared: 1, BothAllowed: 1}) {
			t.Errorf("%+v, want one request that both allow", r)
		}
	})
}

// A limit may deny under both rules, with another algorithm under each.
func TestLimitHasTheAlgorithmOfTheCandidate(t *testing.T) {
	const live = "\ndomain: shop\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 0}}]\n"
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, live, strings.Replace(live, "0}", "1, algorithm: sliding_log}", 1))
		defer s.stop()
		for i, want := range []string{"fixed_window", "sliding_log"} { // at first, only the rules in force deny
			s.decide(request(1, "a=1"))
			synctest.Wait()
			if l := s.Report(1, 1).Limits[0]; l.Algorithm != want || l.NewlyAllowed != 1 || l.BothDenied != int64(i) {
				t.Errorf("after request %d: %+v, want the algorithm %s", i+1, l, want)
			}
		}
	})
}

func TestCandidateMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, liveRules, candidateRules)
		defer s.stop()
		deny := func() api.ShadowReport {
			for range 3 {
				s.decide(request(1, "user_id=1"))
			}
			synctest.Wait()
			return s.Report(10, 10)
		}
		time.Sleep(time.Millisecond)
		first := deny()
		if first.Requests.NewlyDenied != 1 || first.Limits[0].Warm || !first.Since.Equal(*first.LoadedAt) || first.RulesVersion != s.rules.Version() {
			t.Errorf("the first denial: %+v, want a cold limit, counted from the load, for the rules in force", first)
		}
		time.Sleep(time.Second)
		if s.SetCandidate(rulesfiletest.Parse(t, candidateRules)) || s.Report(1, 1).Requests.NewlyDenied != 1 || !s.Report(1, 1).Limits[0].Warm {
			t.Errorf("the same candidate: %+v", s.Report(1, 1))
		}
		time.Sleep(time.Second)
		if !s.SetCandidate(rulesfiletest.Parse(t, strings.Replace(candidateRules, "2}", "1}", 1))) {
			t.Error("another candidate is the same")
		}
		if second := deny(); second.Requests != (api.ShadowRequests{Compared: 3, BothAllowed: 1, NewlyDenied: 2}) || second.CandidateVersion == first.CandidateVersion || second.Since.Equal(*first.Since) {
			t.Errorf("the second denial: %+v, want new counts of a new candidate", second)
		}
		// Other rules in force begin another diff. The counters of the candidate stay.
		s.rules = rulesfiletest.Parse(t, strings.Replace(liveRules, "4}", "5}", 1))
		time.Sleep(time.Millisecond)
		if third := deny(); third.Requests != (api.ShadowRequests{Compared: 3, NewlyDenied: 2, BothDenied: 1}) || third.RulesVersion != s.rules.Version() || !third.Since.After(*third.LoadedAt) {
			t.Errorf("the third denial: %+v, want counts for the new rules in force", third)
		}
		if !s.SetCandidate(nil) || s.SetCandidate(nil) {
			t.Error("want only the first end to change anything")
		}
		s.decide(request(1, "user_id=1"))
		synctest.Wait()
		if r := s.Report(10, 10); r.Running || r.Requests != (api.ShadowRequests{}) || s.Stats().Keys != 0 {
			t.Errorf("without a candidate: %+v, want nothing", r)
		}
	})
}

// A list that is just full still has the exact number of keys.
func TestNumberOfKeysIsExactUntilOneIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{}, liveRules, candidateRules)
		defer s.stop()
		for i := range maxKeys + 1 {
			for range 3 { // the candidate allows two in a second
				s.decide(request(1, fmt.Sprint("user_id=", i)))
			}
			synctest.Wait()
			want := api.DiffKeys{Keys: min(i+1, maxKeys), Exact: i < maxKeys}
			if got := s.Report(1, 1).NewlyDeniedKeys; got.Keys != want.Keys || got.Exact != want.Exact {
				t.Fatalf("after %d keys: %d keys, exact: %t, want %+v", i+1, got.Keys, got.Exact, want)
			}
		}
		if k := s.Report(1, 1).NewlyDeniedKeys.Worst[0]; k.Requests != 2 || k.Error != 1 {
			t.Errorf("the key that replaced another: %+v, want 2 requests with an error of 1", k)
		}
	})
}

// KEY_HASH_SECRET hides keys in Redis, so nothing else may show them.
func TestKeysOfDifferencesAreHashedUnderASecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{KeyHashSecret: []byte("a secret of 16 bytes")}, liveRules, candidateRules)
		defer s.stop()
		for range 4 {
			s.decide(request(1, "user_id=alice"))
		}
		synctest.Wait()
		r := s.Report(10, 10)
		hash := descriptors.KeyHash([]byte("a secret of 16 bytes"), "4:shop|7:user_id*5:alice")
		if r.NewlyDeniedKeys.Keys != 1 || r.NewlyDeniedKeys.Worst[0].KeyHash != hash || strings.Contains(fmt.Sprintf("%+v", r), "alice") {
			t.Errorf("with a secret: %+v, want the hash %s and no name", r, hash)
		}
	})
}

// Requests by many goroutines, a candidate that changes, and readers of the diff.
func TestShadowIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, liveRules, candidateRules)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 500 {
				s.decide(request(1, fmt.Sprint("user_id=", i), fmt.Sprint("ip=", j)))
			}
		})
	}
	group.Go(func() {
		for i := range 20 {
			s.SetCandidate(rulesfiletest.Parse(t, strings.Replace(candidateRules, "2}", fmt.Sprint(1+i%3, "}"), 1)))
			s.Report(10, 10)
		}
		s.SetCandidate(nil)
	})
	group.Wait()
	s.stop()
	if stats := s.Stats(); stats.Panics != 0 {
		t.Errorf("%+v, want no panic", stats)
	}
}

// BenchmarkObserve measures what a Comparison adds to a decided request: off without a candidate,
// and on.
func BenchmarkObserve(b *testing.B) {
	r := request(1, "user_id=user-1000042")
	for _, name := range []string{"off", "on"} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, Options{}, liveRules, candidateRules)
			defer s.stop()
			if name == "off" {
				s.SetCandidate(nil)
			}
			var result decide.Result
			must.Succeed(b, s.decider.Decide(context.Background(), r, &result))
			b.ReportAllocs()
			for b.Loop() {
				s.Observe(r, &result)
			}
			b.ReportMetric(float64(s.Stats().Dropped)/float64(b.N), "dropped/op")
		})
	}
}
