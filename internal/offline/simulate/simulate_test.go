package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
)

var start = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

var models = []simulate.Model{simulate.Drop, simulate.Obey, simulate.Hammer}

// at returns a request some seconds after start. The entries are pairs of key and value.
func at(seconds float64, hits int64, entries ...string) recording.Line {
	d := decide.Descriptor{Hits: hits, Refund: hits < 0}
	for i := 0; i+1 < len(entries); i += 2 {
		d.Entries = append(d.Entries, descriptors.Entry{Key: entries[i], Value: entries[i+1]})
	}
	return recording.Line{
		At:      start.Add(time.Duration(seconds * float64(time.Second))),
		Request: decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{d}},
	}
}

const twoLimits = `
domain: ugc
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 2, algorithm: sliding_log}
      - {name: quota, unit: hour, requests_per_unit: 20}
`

// Whatever the requests are, each is allowed, denied or failed, under every client model, and every
// denied request has one fate.
func TestEachRequestHasOneOutcome(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 3))
		var all []recording.Line
		for i := range 3000 {
			line := at(float64(i)/10, int64(random.IntN(5)-1), "user_id", fmt.Sprint(random.IntN(30)))
			switch random.IntN(20) {
			case 0:
				line = at(float64(i)/10, 1, "other", "x")
			case 1: // more limits than a request may have
				for range 60 {
					line.Request.Descriptors = append(line.Request.Descriptors, line.Request.Descriptors[0])
				}
			case 2:
				line.Request.Descriptors[0].Entries = nil
			}
			all = append(all, line)
		}
		r := run(t, rulesfiletest.Parse(t, twoLimits), all, simulate.Options{Clients: models, MaxWaiting: 20})
		if r.Requests != 3000 || r.Allowed+r.Denied+r.Failed != r.Requests || r.Failed == 0 || r.Unmatched == 0 || r.Denied == 0 || r.FirstFailure == "" {
			t.Errorf("requests: %+v", r)
		}
		for _, c := range r.Clients {
			fates := c.Recovered + c.GaveUp + c.Waiting + c.Overflowed
			if c.Attempts != c.Allowed+c.Denied+c.Failed || c.Attempts != r.Requests+c.Retries || fates < r.Denied && c.Model == simulate.Drop {
				t.Errorf("%s: got %+v, want as many attempts as outcomes, and as requests and retries", c.Model, c)
			}
			if first := c.Denied - (c.Retries - c.Recovered); fates != first {
				t.Errorf("%s: %d requests were denied at first, and %d have a fate: %+v", c.Model, first, fates, c)
			}
		}
		if r.Clients[2].Overflowed == 0 {
			t.Error("no retry overflowed")
		}
		allowed, denied := int64(0), int64(0)
		for i := range r.Timeline.Allowed {
			allowed, denied = allowed+r.Timeline.Allowed[i], denied+r.Timeline.Denied[i]
		}
		if allowed != r.Allowed || denied != r.Denied {
			t.Errorf("over time: %d allowed, %d denied, want %d, %d", allowed, denied, r.Allowed, r.Denied)
		}
	}
}

// Envoy's second call for a request ends a lease, so a limit counts two calls as one request, as in
// a comparison of rules.
func TestEndsOfLeasesAreNoRequestsOfALimit(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"release": "algorithm: concurrency, concurrent_requests: 1",
		"settle":  "unit: hour, requests_per_unit: 1, reserve: {ttl: 1m}",
	} {
		rules := rulesfiletest.Parse(t, "domain: ugc\ndescriptors:\n  - key: user_id\n    descriptors:\n      - key: lease\n        rate_limit: {"+limit+"}\n")
		r := run(t, rules, []recording.Line{
			at(0, 1, "user_id", "a", "lease", "1"), at(1, 1, "user_id", "a", "lease", "2"), at(2, 1, "user_id", "a", "lease", "1", name, "x"),
		}, simulate.Options{})
		if l := r.Limits[0]; l.Requests != 2 || l.Denied != 1 || l.Keys != 1 || r.Requests != 3 || r.Unmatched != 0 {
			t.Errorf("%s: %+v of %+v, want 2 requests, one of them denied, in 3 calls", name, l, r)
		} else if drop := l.Clients[0]; drop.Requests != l.Requests || drop.Denied != l.Denied {
			t.Errorf("%s: the client model drop has %+v, want the counts of the limit, because it repeats no request", name, drop)
		}
	}
}

func TestDeniedKeysAndTheirTimes(t *testing.T) {
	t.Parallel()
	var all []recording.Line
	for i := range 5 {
		all = append(all, at(float64(i)/10, 1, "user_id", "a"))
	}
	all = append(all, at(2, 1, "user_id", "b,=\\"), at(3, 3, "user_id", "b,=\\"))
	r := run(t, rulesfiletest.Parse(t, twoLimits), all, simulate.Options{})
	burst := r.Limits[0]
	if burst.Name != "burst" || burst.Requests != 7 || burst.Denied != 4 || burst.Keys != 2 || burst.KeysDenied != 2 || len(burst.TopKeys) != 2 {
		t.Fatalf("%+v, want 4 denials of 7 requests, of 2 keys", burst)
	}
	// Denied from 0.2 s; hits fit again at 1.0 s. A request that can never fit shuts nobody out.
	if k := burst.TopKeys[0]; k.Key != "user_id=a" || k.Denied != 3 || k.ShutOutSeconds != .8 || !k.FirstDenied.Equal(all[2].At) || !k.LastDenied.Equal(all[4].At) {
		t.Errorf("the first key: %+v, want user_id=a, which was shut out for 0.8 s by 3 denials", k)
	}
	if k := burst.TopKeys[1]; k.Key != `user_id=b\,\=\\` || k.Denied != 1 || k.ShutOutSeconds != 0 {
		t.Errorf("the second key: %+v, want the escaped user_id=b with 1 denial", k)
	}
	if burst.ShutOutSeconds != .8 || burst.Peak.Used != 2 || burst.NearLimit != 1 {
		t.Errorf("%+v, want 0.8 s shut out, a peak of 2, and 1 request near the limit", burst)
	}
}

// A fixed window admits twice its limit around a boundary, and the other algorithms do not.
func TestBurstAtBoundaryIsVisible(t *testing.T) {
	t.Parallel()
	rules := "domain: ugc\ndescriptors:\n  - key: user_id\n    rate_limit: {unit: minute, requests_per_unit: 10}\n"
	all := []recording.Line{at(58, 10, "user_id", "a"), at(61, 10, "user_id", "a"), at(62, 1, "user_id", "a"), at(200, 1, "user_id", "a")}
	c := run(t, rulesfiletest.Parse(t, rules), all, simulate.Options{}).Limits[0].Comparison
	if fixed, log := c.Algorithms[0], c.Algorithms[1]; fixed.Burst != 20 || !fixed.Own || log.Burst != 10 || fixed.BurstKey != "user_id=a" || !fixed.BurstAt.Equal(all[1].At) {
		t.Errorf("%+v, want a burst of 20 under fixed_window, and of 10 under sliding_log", c.Algorithms)
	}
	b := c.Burst
	if !b.From.Equal(start.Add(time.Second)) || !b.To.Equal(all[1].At) || !b.Boundary.Equal(start.Add(time.Minute)) || b.Fixed[56] != 10 || b.Fixed[59] != 10 || b.Log[56] != 10 || b.Log[59] != 0 {
		t.Errorf("burst %+v, want 10 hits on each side of the boundary under fixed_window, and only the first 10 under sliding_log",
			b)
	}
}

func TestRecordedVerdictsAreCompared(t *testing.T) {
	t.Parallel()
	var all []recording.Line
	for i, by := range []recording.Origin{recording.FromStore, recording.FromStore, recording.FromCache, recording.FromFallback, recording.FromError, recording.FromStore, recording.FromStore} {
		line := at(float64(i)/100, 1, "user_id", "a")
		line.Allowed, line.HasAllowed, line.By = true, i != 6, by
		all = append(all, line)
	}
	all[0].Allowed = false
	all[5].Request.Descriptors[0].Override = &decide.Override{RequestsPerUnit: 0, Unit: descriptors.Minute}
	all[6].LeftOut = 2
	invalid := at(1, 1, "user_id", "a") // it is neither allowed nor denied
	for range 60 {
		invalid.Request.Descriptors = append(invalid.Request.Descriptors, invalid.Request.Descriptors[0])
	}
	invalid.HasAllowed = true
	all = append(all, invalid)
	r := run(t, rulesfiletest.Parse(t, twoLimits), all, simulate.Options{})
	want := simulate.Recorded{Allowed: 5, Denied: 2, Unknown: 1, NewlyDenied: 2, NewlyAllowed: 1, Overrides: 1, Cache: 1, Fallback: 1, Errors: 1, Partial: 1}
	if r.Recorded != want {
		t.Errorf("%+v, want %+v", r.Recorded, want)
	}
	if last := r.Limits[len(r.Limits)-1]; last.Name != "override" || last.Requests != 1 || last.Denied != 1 || last.Path != "user_id" || last.Comparison.Reason == "" {
		t.Errorf("%+v, want the override of user_id, with 1 denial and a reason against a comparison", last)
	}
}

func TestUnmatchedDescriptorsAreNamed(t *testing.T) {
	t.Parallel()
	var all []recording.Line
	for i := range 2000 {
		all = append(all, at(float64(i), 1, "team", "7", "plan", "free"), at(float64(i), 1, fmt.Sprintf("key%d", i), "x"))
	}
	r := run(t, rulesfiletest.Parse(t, twoLimits), all, simulate.Options{})
	if r.Unmatched != 4000 || r.UnmatchedDescriptors != 4000 || len(r.UnmatchedPaths) != 20 ||
		r.UnmatchedPaths[0] != (simulate.UnmatchedPath{Domain: "ugc", Path: "team.plan", Descriptors: 2000}) {
		t.Errorf("unmatched paths %+v, want a bounded number, and first team.plan with 2000", r.UnmatchedPaths)
	}
}

func TestWorstLimitsAreFirst(t *testing.T) {
	t.Parallel()
	r := &simulate.Result{Limits: []*simulate.LimitResult{{Name: "idle"}, {Name: "busy", Requests: 9}, {Name: "bad", Denied: 1}, {Name: "worst", Denied: 2}}}
	var got []string
	for _, l := range r.WorstFirst() {
		got = append(got, l.Name)
	}
	if want := []string{"worst", "bad", "busy", "idle"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A rule by value that meets only hashes is named, with the descriptors that it could match. A rule
// that matches plain values is not: the recorder knew it.
func TestRulesOnHashedValuesAreNamed(t *testing.T) {
	t.Parallel()
	rules := `
domain: ugc
descriptors:
  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: user_id, value: acme, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: user_id, value: bigco, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: user_id, value: admin, unlimited: true}
  - {key: ip, cidr: [10.0.0.0/8], rate_limit: {unit: minute, requests_per_unit: 9}}
`
	all := []recording.Line{
		at(0, 1, "user_id", "hmac:01"), at(1, 1, "user_id", "bigco"), at(2, 1, "user_id", "hmac:02"), at(3, 1, "user_id", "hmac:01"), at(4, 1, "ip", "192.0.2.1"),
		at(5, 1, "user_id", "admin"),
	}
	got := run(t, rulesfiletest.Parse(t, rules), all, simulate.Options{}).CannotMatch
	if len(got) != 1 || got[0] != (recording.UnmatchableRule{Domain: "ugc", Path: "user_id=acme", Source: "rules.yaml:5", Key: "user_id", Descriptors: 3}) {
		t.Errorf("%+v, want the rule user_id=acme with 3 descriptors", got)
	}
	if got := run(t, rulesfiletest.Parse(t, rules), all[1:2], simulate.Options{}).CannotMatch; got == nil || len(got) != 0 {
		t.Errorf("without hashes: %+v", got)
	}
}

// Beyond its bounds a simulation counts every request, and warns.
func TestSimulationIsBounded(t *testing.T) {
	t.Parallel()
	var all []recording.Line
	for i := range 3000 {
		all = append(all, at(float64(i)*1000, 1, "user_id", fmt.Sprint(i%300)))
	}
	all = append(all, all[len(all)-1], all[len(all)-1], all[len(all)-1])
	r := run(t, rulesfiletest.Parse(t, twoLimits), all, simulate.Options{MaxKeys: 100, MaxEntries: 20})
	if l := r.Limits[0]; r.Requests != 3003 || l.Requests != 3003 || l.Denied != 2 || l.Keys+r.Limits[1].Keys != 100 || l.Untracked == 0 || len(r.Warnings) != 1 {
		t.Errorf("got %d requests, %+v, warnings %q, want 3003 with 2 denied, 100 keys of both limits, some untracked, 1 warning",
			r.Requests, l, r.Warnings)
	}
	if n := len(r.Timeline.Allowed); n > 200 || n < 40 {
		t.Errorf("%d buckets", n)
	}
	if c := r.Limits[1].Comparison; len(c.Algorithms) != 3 {
		t.Errorf("hits that have expired need no memory: %+v", c)
	}
	manyKeys := []recording.Line{}
	for i := range 100 {
		manyKeys = append(manyKeys, at(float64(i)/1000, 1, "user_id", fmt.Sprint(i)))
	}
	if c := run(t, rulesfiletest.Parse(t, twoLimits), manyKeys, simulate.Options{MaxEntries: 20}).Limits[0].Comparison; len(c.Algorithms) > 0 || !strings.Contains(c.Reason, "bounded memory") {
		t.Errorf("%+v, want no comparison, because of the bounded memory", c)
	}
}

func TestEmptyRecordingHasEmptyResult(t *testing.T) {
	t.Parallel()
	r := run(t, rulesfiletest.Parse(t, twoLimits), nil, simulate.Options{Clients: models})
	if r.Requests != 0 || len(r.Limits) != 2 || len(r.Clients) != 3 || r.Limits[0].Usage != nil {
		t.Errorf("%+v, want 2 limits and 3 clients without requests", r)
	}
	if r.Timeline.Allowed == nil || r.Timeline.Denied == nil {
		t.Errorf("the timeline is %+v, want empty lists, and not null", r.Timeline)
	}
}

func TestSimulationEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	load, err := simulate.ParseSynthetic("poisson rate=1000 duration=24h", rulesfiletest.Parse(t, someRules))
	must.Succeed(t, err)
	if _, err := simulate.Run(ctx, rulesfiletest.Parse(t, someRules), load, simulate.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

// In at least 90 of the samples of seeds 1 to 100, of a tenth of the keys, the interval has the
// number of keys that the whole recording denies.
func TestEstimateOfDeniedKeysHolds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 0))
	rules := rulesfiletest.Parse(t, twoLimits)
	var all []recording.Line
	for i := range 2500 {
		all = append(all, at(float64(i)/2.5, 1, "user_id", fmt.Sprint(int(random.ExpFloat64()*100))))
	}
	want := run(t, rules, all, simulate.Options{})
	keys := 0
	for seed := 1; seed <= 100; seed++ {
		var sample []recording.Line
		for _, line := range all {
			h := fnv.New64a()
			fmt.Fprint(h, seed, line.Request.Descriptors[0].Entries[0].Value)
			if rand.New(rand.NewPCG(h.Sum64(), 0)).IntN(10) == 0 {
				sample = append(sample, line)
			}
		}
		r := run(t, rules, sample, simulate.Options{SampleShare: func() (float64, error) { return .1, nil }})
		if e := r.Limits[1].KeysDeniedEstimate; e.Low <= float64(want.Limits[1].KeysDenied) && float64(want.Limits[1].KeysDenied) <= e.High {
			keys++
		}
	}
	t.Logf("%d of 100", keys)
	if keys < 90 {
		t.Errorf("of 100 intervals, %d have the number of denied keys, %d", keys, want.Limits[1].KeysDenied)
	}
}

// Of the samples of seeds 1 to 100, at least 90 intervals have the number of all requests, and of
// all denied ones. The interval of the requests is not much wider than needed.
func TestEstimateOfRequestsHolds(t *testing.T) {
	t.Parallel()
	const share = .1
	var random *rand.Rand
	manyRules := "domain: ugc\ndescriptors:\n"
	for i := range 50 {
		manyRules += fmt.Sprintf("- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	pair := func(key, other string) recording.Line {
		line := at(0, 1, key, fmt.Sprint(random.IntN(300)))
		line.Request.Descriptors = append(line.Request.Descriptors, at(0, 1, other, fmt.Sprint(random.IntN(300))).Request.Descriptors...)
		return line
	}
	const two = "domain: ugc\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: 2}}\n- {key: ip, rate_limit: {unit: day, requests_per_unit: 2}}\n"
	for name, c := range map[string]struct {
		rules   string
		request func() recording.Line
	}{
		"two descriptors":                {two, func() recording.Line { return pair("user", "ip") }},
		"two descriptors, one unlimited": {two, func() recording.Line { return pair("user", "other") }},
		"two limits":                     {twoLimits, func() recording.Line { return at(0, 1, "user_id", fmt.Sprint(random.IntN(300))) }},
		"many rules":                     {manyRules, func() recording.Line { return at(0, 1, fmt.Sprint("k", random.IntN(50)), fmt.Sprint(random.IntN(20))) }},
		"no rule":                        {two, func() recording.Line { return at(0, 1, "other", fmt.Sprint(random.IntN(300))) }},
	} {
		t.Run(name, func(t *testing.T) {
			random = rand.New(rand.NewPCG(5, 6))
			rules := rulesfiletest.Parse(t, c.rules)
			var all []recording.Line
			weights := map[descriptors.Entry]float64{}
			for i := range 1500 {
				line := c.request()
				line.At = start.Add(time.Duration(i) * time.Millisecond)
				all = append(all, line)
				for _, d := range line.Request.Descriptors {
					weights[d.Entries[0]] += 1 / float64(len(line.Request.Descriptors))
				}
			}
			squares := 0.0
			for _, w := range weights {
				squares += w * w
			}
			want := run(t, rules, all, simulate.Options{})
			requests, denied, mean, width := 0, 0, 0.0, 0.0
			for seed := 1; seed <= 100; seed++ {
				s := run(t, rules, sampleOf(all, seed, share), simulate.Options{SampleShare: func() (float64, error) { return share, nil }}).Sample
				if s.Requests.Low <= float64(want.Requests) && float64(want.Requests) <= s.Requests.High {
					requests++
				}
				if s.Denied.Low <= float64(want.Denied) && float64(want.Denied) <= s.Denied.High {
					denied++
				}
				mean += s.Requests.Value / 100
				width += (s.Requests.High - s.Requests.Low) / 100
			}
			deviation := math.Sqrt(squares * (1 - share) / share)
			if requests < 90 || denied < 90 || width > 4.5*deviation || math.Abs(mean-1500) > .5*deviation {
				t.Errorf("%d of 100 intervals have the requests, %d the denied ones; the mean is %.0f, the width %.0f with a deviation of %.0f",
					requests, denied, mean, width, deviation)
			}
		})
	}
}

// Two hits exactly one window apart are in no span of one window together.
// sampleOf returns the descriptors of a share of the keys, as a recorder does.
func sampleOf(all []recording.Line, seed int, share float64) (sample []recording.Line) {
	for _, line := range all {
		left := line
		left.Request.Descriptors = nil
		for _, d := range line.Request.Descriptors {
			h := fnv.New64a()
			fmt.Fprint(h, seed, d.Entries)
			if rand.New(rand.NewPCG(h.Sum64(), 0)).Float64() < share {
				left.Request.Descriptors = append(left.Request.Descriptors, d)
			} else {
				left.LeftOut++
			}
		}
		if len(left.Request.Descriptors) > 0 {
			sample = append(sample, left)
		}
	}
	return sample
}

func TestSpanIsOpenAtItsStart(t *testing.T) {
	t.Parallel()
	rules := "domain: ugc\ndescriptors:\n  - key: user_id\n    rate_limit: {unit: minute, requests_per_unit: 10}\n"
	r := run(t, rulesfiletest.Parse(t, rules), []recording.Line{at(0, 10, "user_id", "a"), at(60, 10, "user_id", "a")}, simulate.Options{})
	if l := r.Limits[0]; l.Comparison.Algorithms[0].Burst != 10 || l.Usage.Demand.Max != 10 {
		t.Errorf("got %+v, demand %+v, want a burst and a maximum of 10", l.Comparison.Algorithms, l.Usage.Demand)
	}
}

func TestRetryPrecedesRecordedRequestOfItsTime(t *testing.T) {
	t.Parallel()
	rules := "domain: ugc\ndescriptors:\n  - key: user_id\n    rate_limit: {unit: minute, requests_per_unit: 1}\n"
	r := run(t, rulesfiletest.Parse(t, rules), []recording.Line{at(0, 1, "user_id", "a"), at(30, 1, "user_id", "a"), at(60, 1, "user_id", "a")}, simulate.Options{Clients: models})
	if c := r.Clients[1]; c.Recovered != 1 || c.Waiting != 1 || c.Denied != 2 {
		t.Errorf("%+v, want 2 denied requests, of which 1 recovered and 1 waits", c)
	}
}

// A request that an ordinary limit and a quota deny is sent again after the longer wait, as
// Retry-After says.
func TestObedientClientWaitsForTheQuotaToo(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, `
domain: ugc
descriptors:
  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: org, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`)
	var all []recording.Line
	for _, seconds := range []float64{0, 1, 3601} {
		line := at(seconds, 1, "user_id", "a")
		line.Request.Descriptors = append(line.Request.Descriptors, at(seconds, 1, "org", "b").Request.Descriptors...)
		all = append(all, line)
	}
	all[2].Request.Descriptors[0].Entries = nil // lets time pass
	all[2].Request.Descriptors[1].Entries = nil
	r := run(t, rules, all, simulate.Options{Clients: models})
	if c := r.Clients[1]; c.Retries != 1 || c.Recovered != 1 {
		t.Errorf("%+v, want 1 retry, which recovers after an hour", c)
	}
}

func TestOverlappingShutOutsCountOnce(t *testing.T) {
	t.Parallel()
	all := []recording.Line{at(0, 1, "user_id", "a"), at(.5, 1, "user_id", "a"), at(.6, 1, "user_id", "a"), at(.7, 2, "user_id", "a")}
	if got := run(t, rulesfiletest.Parse(t, twoLimits), all, simulate.Options{}).Limits[0].ShutOutSeconds; got != .9 {
		t.Errorf("shut out for %v s, want 0.9", got)
	}
}

// The time for which 40,000 keys are shut out exceeds an int64 in µs, and so do their hits.
func TestSumsSaturate(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, `
domain: ugc
descriptors:
  - key: user_id
    rate_limit: {unit: year, unit_multiplier: 10, requests_per_unit: 1, algorithm: sliding_log}
`)
	var all []recording.Line
	for i := range 40_000 {
		user := fmt.Sprint(i)
		all = append(all, at(0, 1, "user_id", user), at(0, 1, "user_id", user), at(0, limiters.MaxHits, "user_id", user))
	}
	l := run(t, rules, all, simulate.Options{}).Limits[0]
	if l.Hits != math.MaxInt64 || l.ShutOutSeconds != math.MaxInt64/1e6 {
		t.Errorf("%d hits, and shut out for %v s, want the largest numbers", l.Hits, l.ShutOutSeconds)
	}
}
