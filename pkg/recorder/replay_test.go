package recorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

const rulesText = `
domain: shop
descriptors:
  - {key: window, rate_limit: {unit: second, requests_per_unit: 20}}
  - {key: first, rate_limit: {unit: second, requests_per_unit: 20, window_start: first_hit}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: second, requests_per_unit: 20}}
  - {key: funnel, rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 20, capacity: 7}}
  - key: group
    rate_limits:
      - {name: burst, algorithm: funnel, unit: second, requests_per_unit: 30, capacity: 5}
      - {unit: minute, requests_per_unit: 60}
      - {algorithm: sliding_log, unit: second, requests_per_unit: 25}
  - {key: penalty, rate_limit: {unit: second, requests_per_unit: 20, penalty: {after: 5, within: 1s, for: 100ms}}}
  - {key: plan, value: gold, rate_limit: {unit: second, requests_per_unit: 200}}
  - {key: plan, values: [free, trial], rate_limit: {unit: second, requests_per_unit: 50}}
  - {key: plan, value: "p*", rate_limit: {unit: second, requests_per_unit: 30}}
  - {key: plan, rate_limit: {name: basic, unit: second, requests_per_unit: 10}}
  - {key: ip, cidr: [10.0.0.0/8], rate_limit: {unit: second, requests_per_unit: 15}}
  - {key: ip, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: vip, rate_limit: {unlimited: true, replaces: [{name: basic}]}}
  - key: org
    descriptors:
      - {key: user, rate_limit: {algorithm: sliding_log, unit: second, requests_per_unit: 10}}
`

// randomRequest returns a request with up to three descriptors of few keys, so that many are
// denied. It charges, peeks and refunds.
func randomRequest(random *rand.Rand) decide.Request {
	r := decide.Request{Domain: "shop"}
	for range 1 + random.IntN(3) {
		d := decide.Descriptor{Entries: []descriptors.Entry{randomEntry(random)}, Hits: 1}
		if d.Entries[0].Key == "org" {
			d.Entries = append(d.Entries, descriptors.Entry{Key: "user", Value: fmt.Sprint("u", random.IntN(4))})
		}
		switch random.IntN(20) {
		case 0:
			d.Hits = 0
		case 1:
			d.Hits, d.Refund = -int64(random.IntN(2)), true
		case 2:
			d.Hits = int64(random.IntN(5))
		case 3:
			d.Override = &decide.Override{RequestsPerUnit: uint32(10 + random.IntN(2)), Unit: descriptors.Second}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func randomEntry(random *rand.Rand) descriptors.Entry {
	keys := []string{"window", "first", "log", "funnel", "group", "penalty", "plan", "ip", "vip", "org", "unknown"}
	key := keys[random.IntN(len(keys))]
	value := fmt.Sprint("alice-", random.IntN(4))
	switch key {
	case "plan":
		value = []string{"gold", "free", "trial", "pro", "plus", "secret-plan"}[random.IntN(6)]
	case "ip":
		value = []string{"10.1.2.3", "10.1.2.4", "192.0.2.77", "not an address"}[random.IntN(4)]
	}
	return descriptors.Entry{Key: key, Value: value}
}

// record decides requests of 64 concurrent callers and records them. It returns the number of
// requests.
func record(t *testing.T, store limiters.Store, o Options, decideOptions decide.Options, perCaller int) int {
	t.Helper()
	rules := rulesfiletest.Parse(t, rulesText)
	d := decide.New(func() *descriptors.Rules { return rules }, store, decideOptions)
	o.Changed = func(failing bool, reason error) { t.Errorf("failing %v: %v", failing, reason) }
	r := New(o)
	const callers = 64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 0))
			var result decide.Result
			for i := range perCaller {
				if i%64 == 63 {
					nextSecond := time.Now().Truncate(time.Second).Add(time.Second)
					time.Sleep(time.Until(nextSecond)) // so that each key has several windows
				}
				request := randomRequest(random)
				if err := d.Decide(context.Background(), &request, &result); err != nil {
					t.Error(err)
					return
				}
				r.Record(&result)
			}
		})
	}
	wg.Wait()
	must.Succeed(t, r.Close(context.Background()))
	if stats := r.Stats(); stats.Dropped != [reasonCount]int64{} {
		t.Fatalf("%+v, want no dropped line", stats)
	}
	return callers * perCaller
}

// recordings returns the files of a folder, the oldest first.
func recordings(t testing.TB, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "weir-*"))
	must.Succeed(t, err)
	return all
}

// lines returns all lines of the recordings in a folder.
func lines(t testing.TB, dir string) (all []recording.Line, skipped []recording.FileSkipCount) {
	t.Helper()
	files, err := recording.Open(recordings(t, dir), nil)
	must.Succeed(t, err)
	defer files.Close()
	for {
		var line recording.Line
		if err := files.Next(&line); errors.Is(err, io.EOF) {
			return all, files.Skipped()
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
}

// replays decides all lines again, and returns how many were denied. Every verdict must be that of
// the recording.
func replays(t *testing.T, all []recording.Line, o decide.Options) (denied int) {
	t.Helper()
	replayer := replay.New(rulesfiletest.Parse(t, rulesText), replay.Options{Decide: o})
	var result decide.Result
	different := 0
	for i := range all {
		line := &all[i]
		if err := replayer.Decide(line.At, &line.Request, &result); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if result.Denied {
			denied++
		}
		if !line.HasAllowed || line.By != recording.FromStore || line.Allowed == result.Denied {
			if different++; different < 5 {
				t.Errorf("line %d: %+v, replayed denied %v", i+1, line, result.Denied)
			}
		}
	}
	if different > 0 {
		t.Errorf("%d of %d verdicts differ", different, len(all))
	}
	return denied
}

// stores returns each store, in memory and on Redis.
func stores() map[string]func(t *testing.T) limiters.Store {
	return map[string]func(t *testing.T) limiters.Store{
		"memory": func(*testing.T) limiters.Store { return memstore.New(memstore.Options{}) },
		"redis": func(t *testing.T) limiters.Store {
			server := redistest.Start(t)
			s := redisstore.New(connect.Options{Addr: server.Addr, Timeout: time.Minute}, redisstore.Options{})
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	}
}

// The proof of the recorder: a recording of 64 concurrent callers has every request, and a replay
// returns every verdict again. Values that rules match by key alone are hashed.
func TestReplayOfARecordingReturnsEveryVerdict(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		for mode, o := range map[string]decide.Options{"": {}, " all or nothing": {AllOrNothing: true}, " shadow": {ShadowMode: true}} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				n := record(t, open(t), Options{Path: dir, ShadowMode: o.ShadowMode}, o, 80)
				all, skipped := lines(t, dir)
				if len(all) != n || len(skipped) > 0 {
					t.Fatalf("%d lines of %d requests, skipped %+v", len(all), n, skipped)
				}
				denied := replays(t, all, o)
				if o.ShadowMode != (denied == 0) || denied > n*9/10 {
					t.Errorf("%d of %d requests are denied: the test shows nothing", denied, n)
				}
				checkHashed(t, all)
			})
		}
	}
}

// checkHashed checks which values are hashed.
func checkHashed(t *testing.T, all []recording.Line) {
	t.Helper()
	plain, hashed := map[string]bool{}, map[string]bool{}
	for i := range all {
		for _, d := range all[i].Request.Descriptors {
			for _, e := range d.Entries {
				if recording.IsHashed(e.Value) {
					hashed[e.Key] = true
				} else {
					plain[e.Key+"="+e.Value] = true
				}
			}
		}
	}
	for _, key := range []string{"window", "first", "log", "funnel", "group", "penalty", "plan", "ip", "vip", "org", "user", "unknown"} {
		if !hashed[key] {
			t.Errorf("no value of %s is hashed", key)
		}
	}
	want := []string{"plan=gold", "plan=free", "plan=trial", "plan=pro", "plan=plus", "ip=10.1.2.3", "ip=10.1.2.4"}
	for _, text := range want {
		if !plain[text] {
			t.Errorf("%s is hashed", text)
		}
	}
	if len(plain) != len(want) {
		t.Errorf("plain values: %v, want %v", plain, want)
	}
}

// A sample by key has all hits of each of its keys, so that its replay returns every verdict. The
// other descriptors of a request are left out.
func TestReplayOfASampleReturnsEveryVerdict(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := record(t, memstore.New(memstore.Options{}), Options{Path: dir, Sample: .4}, decide.Options{}, 200)
	all, skipped := lines(t, dir)
	partial := 0
	for i := range all {
		if all[i].LeftOut > 0 {
			partial++
		}
	}
	if len(skipped) > 0 || len(all) < n/10 || len(all) == n || partial < n/20 {
		t.Fatalf("%d lines of %d requests, %d partial, skipped %+v", len(all), n, partial, skipped)
	}
	if denied := replays(t, all, decide.Options{}); denied == 0 {
		t.Error("no request is denied: the test shows nothing")
	}
}

// At a sample of 10 %, the interval of the number of keys contains the true number in at least 90
// of 100 recordings.
func TestEstimateOfKeysContainsTheNumber(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]")
	d := decide.New(func() *descriptors.Rules { return rules }, memstore.New(memstore.Options{}), decide.Options{})
	contained := 0
	for run := range 100 {
		random := rand.New(rand.NewPCG(uint64(run), 1))
		r := &Recorder{options: Options{Sample: .1}, maxHash: keysample.MaxHash(.1)}
		hit, sampled := map[int]bool{}, map[int]bool{}
		zipf := rand.NewZipf(random, 1.1, 1, 3000)
		var result decide.Result
		for range 2000 {
			user := int(zipf.Uint64())
			request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Hits: 1, Entries: []descriptors.Entry{{Key: "user", Value: fmt.Sprint(run, "-", user)}}}}}
			must.Succeed(t, d.Decide(context.Background(), &request, &result))
			if !result.Denied {
				continue
			}
			hit[user] = true
			if selected := r.sample(&result); selected.n > 0 {
				sampled[user] = true
			}
		}
		low, high := recording.EstimateKeys(int64(len(sampled)), .1)
		if n := int64(len(hit)); low <= n && n <= high {
			contained++
		}
		if len(hit) < 50 || high > 20*int64(len(hit)) {
			t.Fatalf("run %d: %d keys hit, %d in the sample, %d to %d", run, len(hit), len(sampled), low, high)
		}
	}
	if contained < 90 {
		t.Errorf("%d of 100 intervals contain the number of keys hit", contained)
	}
}

// Verdicts that the store did not decide alone are marked.
func TestDecisionsWithoutTheStoreAreMarked(t *testing.T) {
	for name, tt := range map[string]struct {
		verdict limiters.Verdict
		by      recording.Origin
		known   bool
	}{
		"store":  {limiters.Verdict{Allowed: true, At: 1_795_373_037_431_903}, recording.FromStore, true},
		"cache":  {limiters.Verdict{By: limiters.ByCache, At: 1_795_373_037_431_903}, recording.FromCache, true},
		"policy": {limiters.Verdict{By: limiters.ByPolicy, Allowed: true}, recording.FromFallback, true},
		"share":  {limiters.Verdict{By: limiters.ByShare, Allowed: true, At: 5}, recording.FromFallback, true},
		"error":  {limiters.Verdict{Err: errors.New("gone")}, recording.FromError, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rules := rulesfiletest.Parse(t, rulesText)
			d := decide.New(func() *descriptors.Rules { return rules }, verdictStore{verdicts: []limiters.Verdict{tt.verdict}}, decide.Options{})
			r := New(Options{Path: dir})
			request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Hits: 1, Entries: []descriptors.Entry{{Key: "window", Value: "x"}}}}}
			var result decide.Result
			_ = d.Decide(context.Background(), &request, &result) // an error, without a verdict
			r.Record(&result)
			must.Succeed(t, r.Close(context.Background()))
			all, _ := lines(t, dir)
			if len(all) != 1 || all[0].By != tt.by || all[0].HasAllowed != tt.known || tt.known && all[0].Allowed != tt.verdict.Allowed {
				t.Fatalf("lines %+v, want one, decided by %v, with its verdict", all, tt.by)
			}
			if ofStore := all[0].At.UnixMicro() == tt.verdict.At; ofStore != (tt.by == recording.FromStore || tt.by == recording.FromCache) || time.Until(all[0].At) > 100*365*24*time.Hour {
				t.Errorf("at %v", all[0].At)
			}
		})
	}
}

// A verdictStore returns its verdicts in turn for the operations of a Take.
type verdictStore struct {
	limiters.Store
	verdicts []limiters.Verdict
}

func (s verdictStore) Take(_ context.Context, _ []limiters.Group, out []limiters.Verdict) error {
	for i := range out {
		out[i] = s.verdicts[i%len(s.verdicts)]
	}
	return nil
}

// A denial from the cache that has ended before the store decides the rest of the request has a
// line of its own.
func TestEndedCachedDenialHasItsOwnLine(t *testing.T) {
	dir := t.TempDir()
	rules := rulesfiletest.Parse(t, rulesText)
	r := New(Options{Path: dir})
	const at = int64(1_795_373_037_431_903)
	for _, tt := range []struct {
		hits  int64
		retry time.Duration
	}{{1, 10 * time.Microsecond}, {1, 9 * time.Microsecond}, {2, time.Second}} {
		d := decide.New(func() *descriptors.Rules { return rules }, verdictStore{verdicts: []limiters.Verdict{
			{By: limiters.ByCache, At: at, Order: limiters.OrderAfterStore, RetryAfter: tt.retry}, {Allowed: true, At: at + 9},
		}}, decide.Options{})
		request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{
			{Hits: tt.hits, Entries: []descriptors.Entry{{Key: "window", Value: "x"}}}, {Hits: tt.hits, Entries: []descriptors.Entry{{Key: "log", Value: "x"}}},
		}}
		var result decide.Result
		must.Succeed(t, d.Decide(context.Background(), &request, &result))
		r.Record(&result)
	}
	must.Succeed(t, r.Close(context.Background()))
	all, _ := lines(t, dir)
	var got []string
	for _, l := range all {
		got = append(got, fmt.Sprint(l.At.UnixMicro()-at, " ", len(l.Request.Descriptors), " of ", len(l.Request.Descriptors)+l.LeftOut, " ", l.By, " ", l.Allowed))
	}
	slices.Sort(got)
	if text := strings.Join(got, "; "); text != "0 1 of 2 cache false; 0 1 of 2 cache false; 9 1 of 2  true; 9 1 of 2  true; 9 2 of 2 cache false" {
		t.Error(text)
	}
}

// A firstStore denies the first of several operations as a deny cache does, if cachedAt is set, and
// gives the others to its Store. It calls then after each Take.
type firstStore struct {
	limiters.Store
	cachedAt int64 // when the denial was cached, in µs since 1970
	then     func()
}

func (s firstStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	defer s.then()
	if s.cachedAt == 0 || len(groups) == 1 {
		return s.Store.Take(ctx, groups, out)
	}
	out[0] = limiters.Verdict{By: limiters.ByCache, At: s.cachedAt, Order: limiters.OrderAfterStore}
	return s.Store.Take(ctx, groups[1:], out[1:])
}

const leaseRules = `
domain: shop
descriptors:
  - {key: closed, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: user, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1, lease_ttl: 1h}}]}
  - {key: team, descriptors: [{key: lease, rate_limit: {unit: day, requests_per_unit: 1, reserve: {ttl: 1h, unsettled: charge}}}]}
`

// leaseOf returns a descriptor of a request with an id, under leaseRules.
func leaseOf(key, value, id string) decide.Descriptor {
	return decide.Descriptor{Hits: 1, Entries: []descriptors.Entry{{Key: key, Value: value}, {Key: "lease", Value: id}}}
}

// A lease that Weir ended is also free in the replay, if the line of its request does not show the
// denial.
func TestReplayFreesEndedLeases(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, leaseRules)
	const at = int64(1_795_373_037_431_903)
	for name, tt := range map[string]struct {
		closed   bool // the first request has a descriptor that is denied
		cachedAt int64
		cancels  bool // the first request is canceled when the store has decided
		sample   float64
	}{
		"the recording shows the denial":           {closed: true, sample: 1},
		"the denial is not in the sample":          {closed: true, sample: .5},
		"a cached denial has a line of its own":    {closed: true, cachedAt: at - 1, sample: 1},
		"the request was canceled, and not denied": {cancels: true, sample: 1},
		"the request was canceled, and denied":     {closed: true, cancels: true, sample: .5},
	} {
		for _, key := range []string{"user", "team"} {
			t.Run(name+" "+key, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				r := New(Options{Path: dir, Sample: tt.sample, Secret: []byte("0123456789abcdef")})
				now := time.UnixMicro(at)
				canceled := func() {}
				store := firstStore{memstore.New(memstore.Options{Now: func() time.Time { return now }}), tt.cachedAt, func() { canceled() }}
				d := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
				for i := range 20 { // in a sample, about a quarter have the lease and not the denial
					user := fmt.Sprint("user-", i)
					first := decide.Request{Domain: "shop"}
					if tt.closed {
						first.Descriptors = append(first.Descriptors, decide.Descriptor{Hits: 1, Entries: []descriptors.Entry{{Key: "closed", Value: user}}})
					}
					first.Descriptors = append(first.Descriptors, leaseOf(key, user, "first"))
					second := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{leaseOf(key, user, "second")}}
					var result decide.Result
					ctx, cancel := context.WithCancel(t.Context())
					if tt.cancels {
						canceled = cancel
					}
					_ = d.Decide(ctx, &first, &result)
					cancel()
					if result.GivenUpLeases != 1 {
						t.Fatalf("%d leases of the first request were ended, want 1", result.GivenUpLeases)
					}
					r.Record(&result)
					now = now.Add(time.Millisecond)
					if err := d.Decide(context.Background(), &second, &result); err != nil || result.Denied {
						t.Fatalf("the second request is denied: %v", err)
					}
					r.Record(&result)
				}
				must.Succeed(t, r.Close(context.Background()))
				all, _ := lines(t, dir)
				expectOutcomes(t, rules, all)
				if len(all) < 10 {
					t.Errorf("%d lines: the test shows nothing", len(all))
				}
			})
		}
	}
}

// A canceled request gives up only the lease that it opened, not that of an earlier request.
func TestReplayKeepsTheLeaseOfAnEarlierRequest(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, leaseRules)
	dir := t.TempDir()
	r := New(Options{Path: dir, Sample: 1, Secret: []byte("0123456789abcdef")})
	now := time.UnixMicro(1_795_373_037_431_903)
	var canceled func()
	store := firstStore{memstore.New(memstore.Options{Now: func() time.Time { return now }}), 0, func() { canceled() }}
	d := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
	step := func(cancels bool, ds ...decide.Descriptor) {
		var result decide.Result
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		canceled = func() {}
		if cancels {
			canceled = cancel
		}
		_ = d.Decide(ctx, &decide.Request{Domain: "shop", Descriptors: ds}, &result)
		r.Record(&result)
		now = now.Add(time.Millisecond)
	}
	step(false, leaseOf("user", "u", "a"))
	step(true, leaseOf("user", "u", "a"), leaseOf("team", "u", "a"))
	step(false, leaseOf("user", "u", "b"))
	must.Succeed(t, r.Close(context.Background()))
	all, _ := lines(t, dir)
	if len(all) != 4 {
		t.Errorf("%d lines, want three requests and the release of a lease", len(all))
	}
	expectOutcomes(t, rules, all)
}

// A lease id that is empty or too long denies its request, which its hash would not.
func TestReplayDeniesBadLeaseIDs(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, leaseRules)
	for name, id := range map[string]string{"empty": "", "too long": strings.Repeat("x", decide.MaxLeaseIDBytes+1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := New(Options{Path: dir, Sample: 1, Secret: []byte("0123456789abcdef")})
			now := time.UnixMicro(1_795_373_037_431_903)
			store := memstore.New(memstore.Options{Now: func() time.Time { return now }})
			d := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
			var denied []bool
			for _, id := range []string{id, "good"} {
				var result decide.Result
				must.Succeed(t, d.Decide(t.Context(), &decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{leaseOf("user", "u", id)}}, &result))
				denied = append(denied, result.Denied)
				r.Record(&result)
				now = now.Add(time.Millisecond)
			}
			must.Succeed(t, r.Close(context.Background()))
			all, _ := lines(t, dir)
			if !slices.Equal(denied, []bool{true, false}) || len(all) != 2 {
				t.Fatalf("denied %v in %d lines, want the first of two requests", denied, len(all))
			}
			expectOutcomes(t, rules, all)
		})
	}
}

// expectOutcomes replays lines under rules, and expects the outcome of each line.
func expectOutcomes(t *testing.T, rules *descriptors.Rules, all []recording.Line) {
	t.Helper()
	replayer := replay.New(rules, replay.Options{})
	for i := range all {
		var result decide.Result
		must.Succeed(t, replayer.Decide(all[i].At, &all[i].Request, &result))
		if all[i].Allowed == result.Denied {
			t.Fatalf("line %d of %d: %+v, replayed denied %v", i+1, len(all), all[i], result.Denied)
		}
	}
}
