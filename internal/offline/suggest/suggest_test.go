package suggest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/suggest"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

var start = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func line(at time.Duration, user string, hits int64) recording.Line {
	return recording.Line{At: start.Add(at), Request: decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{{
		Entries: []descriptors.Entry{{Key: "user_id", Value: user}}, Hits: hits, Refund: hits < 0,
	}}}}
}

func report(t testing.TB, o suggest.Options, lines []recording.Line) *suggest.Report {
	t.Helper()
	c, err := suggest.New(o)
	must.Succeed(t, err)
	for i := range lines {
		must.Succeed(t, c.Add(&lines[i]))
	}
	r, err := c.Report(context.Background(), 1)
	must.Succeed(t, err)
	return r
}

// traffic returns random requests: bursts and pauses, with costs, peeks and refunds where odd is
// above 0.
func traffic(random *rand.Rand, users, n, odd int) []recording.Line {
	lines := make([]recording.Line, n)
	now := time.Duration(0)
	for i := range lines {
		switch random.IntN(20) {
		case 0:
			now += time.Duration(random.IntN(1800)) * time.Second
		case 1, 2, 3:
			now += time.Duration(random.IntN(5_000_000)) * time.Microsecond
		case 4, 5, 6, 7:
			now += time.Duration(random.IntN(100_000)) * time.Microsecond
		}
		hits := int64(1)
		if random.IntN(100) < odd {
			hits = int64(random.IntN(12)) - 5
		}
		user := int(float64(users) * random.Float64() * random.Float64())
		lines[i] = line(now, fmt.Sprint(user), hits)
	}
	return lines
}

// rulesWith returns rules with one limit for user_id.
func rulesWith(t testing.TB, limit string, n int64) *descriptors.Rules {
	return rulesfiletest.Parse(t, fmt.Sprintf("domain: ugc\ndescriptors:\n  - key: user_id\n    rate_limit: {requests_per_unit: %d, %s}\n", n, limit))
}

// replayed returns the keys and the requests denied by rules, as the server decides.
func replayed(t testing.TB, rules *descriptors.Rules, lines []recording.Line) (keys, denied int64) {
	t.Helper()
	r, hit := replay.New(rules, replay.Options{}), map[string]bool{}
	var result decide.Result
	for i := range lines {
		must.Succeed(t, r.Decide(lines[i].At, &lines[i].Request, &result))
		if result.Denied {
			denied++
			hit[result.Plans[0].Key] = true
		}
	}
	return int64(len(hit)), denied
}

// Each reported limit is the smallest that denies no request. Each limit run denies as many
// requests of as many keys as a replay with that rule.
func TestSuggestionsEqualReplays(t *testing.T) {
	for _, odd := range []int{40, 0} {
		for i, own := range []string{
			"unit: hour", "unit: minute, unit_multiplier: 7, window_start: first_hit", "unit: day, window_start: calendar, time_zone: Europe/Berlin",
			"unit: second, algorithm: sliding_log, peek: over", "unit: minute, algorithm: funnel, peek: over", "unit: minute, count_denied: false",
			"unit: minute, peek: would_fit", "unit: hour, algorithm: sliding_log, count_denied: true", "unit: minute, algorithm: funnel, count_denied: true",
			"unit: minute, algorithm: funnel, capacity: 15", "unit: minute, algorithm: funnel, capacity: 3", "unit: minute, penalty: {after: 3, within: 1m, for: 10m}",
		} {
			if odd == 0 && i%4 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s with %d%% peeks, refunds and costs", own, odd), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(uint64(len(own)), uint64(odd)))
				lines := traffic(random, 12, 100, odd)
				r := report(t, suggest.Options{Rules: rulesWith(t, own, 7), Headroom: 0.2}, lines)
				if keys, denied := replayed(t, rulesWith(t, own, 7), lines); r.Rules[0].Recommendations[0].Present.Keys.N != keys ||
					r.Rules[0].Recommendations[0].Present.Denied.N != denied {
					t.Errorf("the present limit: %+v, a replay %d and %d", r.Rules[0].Recommendations[0].Present, keys, denied)
				}
				for _, w := range r.Rules[0].Windows {
					for _, a := range w.Algorithms {
						limit := fmt.Sprintf("unit: %s, unit_multiplier: %d, algorithm: %s", w.Unit, w.Multiplier, a.Algorithm)
						if a.CurrentLimit != nil {
							limit, _, _ = strings.Cut(own, ", capacity")
							limit, _, _ = strings.Cut(limit, ", penalty")
							if !strings.Contains(own, "algorithm") {
								limit += ", algorithm: fixed_window"
							}
						}
						compare(t, limit, a, lines)
					}
				}
			})
		}
	}
}

func compare(t *testing.T, limit string, a *suggest.AlgorithmReport, lines []recording.Line) {
	t.Helper()
	if keys, denied := replayed(t, rulesWith(t, limit, *a.Smallest), lines); denied > 0 {
		t.Errorf("%s: %d denies %d requests of %d keys", limit, *a.Smallest, denied, keys)
	}
	if _, denied := replayed(t, rulesWith(t, limit, *a.Smallest-1), lines); denied == 0 {
		t.Errorf("%s: %d denies no request either", limit, *a.Smallest-1)
	}
	if len(a.Candidates) < 4 {
		t.Errorf("%s: only %d candidates", limit, len(a.Candidates))
	}
	for _, c := range a.Candidates {
		keys, denied := replayed(t, rulesWith(t, limit, c.Limit), lines)
		if c.Keys.N != keys || c.Denied.N != denied {
			t.Errorf("%s: %d denies %d keys and %d requests, a replay %d and %d", limit, c.Limit, c.Keys.N, c.Denied.N, keys, denied)
		}
	}
	for i, p := range a.Curve {
		if i%12 == 0 {
			if keys, _ := replayed(t, rulesWith(t, limit, p.Limit), lines); float64(keys) != p.Keys {
				t.Errorf("%s: the curve has %g keys at %d, a replay %d", limit, p.Keys, p.Limit, keys)
			}
		}
	}
}

// The smallest limits are those of the definitions of the algorithms, computed without the code
// that serves.
func TestSmallestLimitsEqualTheDefinitions(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		lines := traffic(random, 1, 2+random.IntN(60), 50)
		r := report(t, suggest.Options{Rules: rulesWith(t, "unit: minute, count_denied: false", 5)}, lines)
		for _, w := range r.Rules[0].Windows {
			if w.Unit != "minute" {
				continue // elsewhere a peek of a fixed window needs no room
			}
			funnel := int64(0)
			for !funnelAdmits(lines, funnel, time.Minute.Microseconds()) {
				funnel++
			}
			for i, want := range []int64{largestCount(lines, time.Minute), largestLog(lines, time.Minute), funnel} {
				if got := *w.Algorithms[i].Smallest; got != want {
					t.Fatalf("%s: %d, want %d", w.Algorithms[i].Algorithm, got, want)
				}
			}
		}
	}
}

// largestCount returns the largest count of a window that starts at a multiple of its length. A
// peek counts as one hit.
func largestCount(lines []recording.Line, window time.Duration) (largest int64) {
	counts := map[time.Time]int64{}
	for _, l := range lines {
		at, hits := l.At.Truncate(window), l.Request.Descriptors[0].Hits
		counts[at] = max(0, counts[at]+hits)
		if hits >= 0 {
			largest = max(largest, counts[at], counts[at]+1-min(1, hits))
		}
	}
	return largest
}

// largestLog returns the largest number of hits within a window before a request. A refund takes
// out the newest hits.
func largestLog(lines []recording.Line, window time.Duration) (largest int64) {
	var log []time.Time
	for _, l := range lines {
		hits := l.Request.Descriptors[0].Hits
		log = slices.DeleteFunc(log, func(at time.Time) bool { return l.At.Sub(at) >= window })
		for range hits {
			log = append(log, l.At)
		}
		if hits < 0 {
			log = log[:max(0, len(log)+int(hits))]
		}
		if hits >= 0 {
			largest = max(largest, int64(len(log))+1-min(1, hits))
		}
	}
	return largest
}

// funnelAdmits is a funnel as its definition has it, in fractions with the denominator n: the level
// is in µs times n.
func funnelAdmits(lines []recording.Line, n, window int64) bool {
	level, last := int64(0), start
	for _, l := range lines {
		level, last = max(0, level-l.At.Sub(last).Microseconds()*n), l.At
		hits := l.Request.Descriptors[0].Hits
		level = max(0, level+hits*window)
		if hits == 0 && level+window > n*window || hits > 0 && level > n*window {
			return false
		}
	}
	return true
}

// Costs such as bytes: needs beyond 32 bits, which no log and no funnel has.
func TestNeedsBeyond32BitsAreReported(t *testing.T) {
	lines := traffic(rand.New(rand.NewPCG(8, 9)), 10, 500, 50)
	for i := range lines {
		lines[i].Request.Descriptors[0].Hits *= 3_000_000_000
	}
	r := report(t, suggest.Options{Rules: rulesWith(t, "unit: minute", 20_000_000_000)}, lines)
	for i, a := range r.Rules[0].Windows[1].Algorithms {
		if i == 0 {
			compare(t, "unit: minute", a, lines)
		} else if a.Smallest != nil {
			t.Errorf("a %s of %d denies no request", a.Algorithm, *a.Smallest)
		}
	}
}

func TestHitsOfARuleSaturate(t *testing.T) {
	lines := make([]recording.Line, 2_050)
	for i := range lines {
		lines[i] = line(time.Duration(i)*time.Second, "a", limiters.MaxHits)
	}
	if got := report(t, suggest.Options{Rules: rulesWith(t, "unit: minute", 1)}, lines).Rules[0].Hits; got != math.MaxInt64 {
		t.Errorf("%d hits, want the largest number", got)
	}
}

func TestPathWithoutRuleGetsASuggestion(t *testing.T) {
	lines := traffic(rand.New(rand.NewPCG(5, 6)), 50, 2000, 0)
	for i := range lines {
		d := &lines[i].Request.Descriptors[0]
		d.Entries = append(d.Entries, descriptors.Entry{Key: "action", Value: []string{"login", "post"}[i%2]})
	}
	path := suggest.Path{Domain: "ugc", Nodes: []descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "user_id"}}, {Entry: descriptors.Entry{Key: "action"}}}}
	r := report(t, suggest.Options{Paths: []suggest.Path{path}, Headroom: 0.2}, lines)
	if got := r.Rules[0]; got.Requests != 2000 || got.Path != "user_id.action" || len(got.Recommendations) != 1 {
		t.Errorf("%+v, want 2000 requests and one recommendation for user_id.action", got)
	}
	// A rule for logins leaves the posts to the path.
	rules := rulesfiletest.Parse(t, "domain: ugc\ndescriptors:\n  - key: user_id\n    descriptors:\n      - {key: action, value: login, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	r = report(t, suggest.Options{Rules: rules, Paths: []suggest.Path{path}}, lines)
	if a, b := r.Rules[0], r.Rules[1]; a.Requests != 1000 || b.Requests != 1000 || a.Path != "user_id.action=login" || b.Path != "user_id.action" {
		t.Errorf("%d of %s, %d of %s", a.Requests, a.Path, b.Requests, b.Path)
	}
}

// docs/choose-limits.md records with an unlimited rule, which limits nothing.
func TestPathUnderAnUnlimitedRuleGetsASuggestion(t *testing.T) {
	lines := traffic(rand.New(rand.NewPCG(5, 6)), 50, 2000, 0)
	rules := rulesfiletest.Parse(t, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unlimited: true}}\n")
	path := suggest.Path{Domain: "ugc", Nodes: []descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "user_id"}}}}
	r := report(t, suggest.Options{Rules: rules, Paths: []suggest.Path{path}, Headroom: 0.2}, lines)
	if got := r.Rules[1]; got.Requests != 2000 || len(got.Recommendations) != 1 {
		t.Errorf("%+v, want 2000 requests and one recommendation", got)
	}
}

// A path by a value for which the recording has hashes matches nothing, and the report has the
// reason.
func TestHashedValuesAreNamed(t *testing.T) {
	lines := []recording.Line{line(0, "hmac:0123456789abcdef", 1)}
	nodes := []descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "user_id", Value: "42"}}}
	r := report(t, suggest.Options{Paths: []suggest.Path{{Domain: "ugc", Nodes: nodes}}}, lines)
	if len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], "user_id=42 matches values of user_id, but the recording has hashes there") {
		t.Errorf("warnings %q, want first the hashed values of user_id", r.Warnings)
	}
	nodes[0].Value = ""
	r = report(t, suggest.Options{Paths: []suggest.Path{{Domain: "ugc", Nodes: nodes}}}, lines)
	if len(r.Warnings) != 1 {
		t.Errorf("warnings %q, want one", r.Warnings)
	}
}

// A recording of seconds does not lower the limit of a minute, and raises one that is too low.
func TestShortRecordingLowersNoLimit(t *testing.T) {
	lines := []recording.Line{line(0, "a", 5), line(time.Second, "a", 5)}
	for present, want := range map[int64]int64{1000: 1000, 3: 12} {
		r := report(t, suggest.Options{Rules: rulesWith(t, "unit: minute", present), Headroom: 0.2}, lines)
		rec := r.Rules[0].Recommendations[0]
		if rec.Limit != want || !strings.Contains(strings.Join(rec.Reasons, " "), "the recording is shorter than the window") {
			t.Errorf("%d instead of %d, want %d: %q", rec.Limit, present, want, rec.Reasons)
		}
	}
}

// Of 200 ordinary users and 2 attackers, the limit admits the users and hits the attackers, and the
// report names them.
func TestRecommendationSeparatesAttackers(t *testing.T) {
	var lines []recording.Line
	for second := range 1200 {
		lines = append(lines, line(time.Duration(second)*time.Second, fmt.Sprint("user-", second%200), 1))
		for attacker := range 2 {
			for range 3 + attacker {
				lines = append(lines, line(time.Duration(second)*time.Second, fmt.Sprint("attacker-", attacker), 1))
			}
		}
	}
	path := suggest.Path{Domain: "ugc", Nodes: []descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "user_id"}}}}
	for _, o := range []suggest.Options{
		{Paths: []suggest.Path{path}, Headroom: 0.2}, {Rules: rulesWith(t, "unit: minute", 1000), Headroom: 0.2},
	} {
		r := report(t, o, lines)
		rec := r.Rules[0].Recommendations[0]
		if rec.Unit != "minute" || rec.Ordinary != 1 || rec.Limit != 2 || rec.Keys.N != 2 || len(rec.Outliers) != 2 {
			t.Fatalf("%+v, want 2 per minute for the 2 ordinary keys, apart from 2 outliers", rec)
		}
		if o := rec.Outliers[0]; o.Key != "user_id=attacker-1" || *o.Needs != 240 {
			t.Errorf("%s needs %d", o.Key, *o.Needs)
		}
		if text, err := r.Text(); err != nil || !strings.Contains(text, "2 keys are outliers: they need at least 180, 180 times as much as the busiest ordinary key.") {
			t.Errorf("%s, %v\nwant the sentence about the 2 outliers", text, err)
		}
	}
}

func TestOutliersBeyondEveryLimitNeedMore(t *testing.T) {
	var lines []recording.Line
	for user := range 300 {
		lines = append(lines, line(time.Duration(user)*time.Second, fmt.Sprint("user-", user), 1))
	}
	for attacker := range 2 {
		lines = append(lines, line(5*time.Minute, fmt.Sprint("attacker-", attacker), limiters.MaxHits))
	}
	r := report(t, suggest.Options{Rules: rulesWith(t, "unit: minute", 5), Headroom: 0.2}, lines)
	if text, err := r.Text(); err != nil || !strings.Contains(text, "2 keys are outliers: they need more than any limit.") {
		t.Errorf("%s\nwant the sentence about the 2 outliers", text)
	}
}

func TestReportExplainsRecordingsWithoutASuggestion(t *testing.T) {
	rules := rulesWith(t, "unit: minute", 5)
	other := line(0, "a", 1)
	other.Request.Domain = "other"
	denied := line(0, "a", 1)
	denied.HasAllowed = true
	invalid := recording.Line{At: start}
	carrying := line(0, "a", 1)
	carrying.Request.Descriptors[0].Override = &decide.Override{RequestsPerUnit: 9, Unit: descriptors.Minute}
	for name, c := range map[string]struct {
		lines         []recording.Line
		text          string
		unmatched, in int64
	}{
		"empty":                {nil, "no suggestion, no request of the recording is under it", 0, 0},
		"no match":             {[]recording.Line{other}, "no suggestion, no request of the recording is under it", 1, 0},
		"carries a limit":      {[]recording.Line{carrying}, "no suggestion, all its requests carry a limit, and are left out", 0, 0},
		"refunds only":         {[]recording.Line{line(0, "a", -3), line(1, "a", -1)}, "refunds 2", 0, 2},
		"peeks only":           {[]recording.Line{line(0, "a", 0)}, "peeks 1", 0, 1},
		"denied when recorded": {[]recording.Line{denied}, "made under a limiter: 1 of 1 lines", 0, 1},
		"invalid":              {[]recording.Line{invalid}, "1 lines are invalid requests", 0, 0},
		"beyond every limit":   {[]recording.Line{line(0, "a", 1<<52)}, "no fixed_window limit per minute admits all requests of the ordinary keys: the largest is 4,503,599,627,370,495", 0, 1},
	} {
		r := report(t, suggest.Options{Rules: rules}, c.lines)
		text, err := r.Text()
		must.Succeed(t, err)
		if !strings.Contains(text, c.text) || r.Unmatched != c.unmatched || r.Rules[0].Requests != c.in && c.in > 0 {
			t.Errorf("%s: %d unmatched\n%s\nwant %q", name, r.Unmatched, text, c.text)
		}
	}
}

// A Collector with too little memory keeps a part of the keys. The interval of the keys denied has
// the true number in at least 90 of the recordings of seeds 1 to 100.
func TestSampledKeysHitAreWithinTheirInterval(t *testing.T) {
	if testing.Short() {
		t.Skip("100 recordings take seconds, and minutes with the race detector: run without -short")
	}
	within := 0
	for seed := uint64(1); seed <= 100; seed++ {
		random := rand.New(rand.NewPCG(seed, 0))
		var lines []recording.Line
		hit := int64(0)
		for user := range 1000 {
			n := 1 + random.IntN(10)
			if n > 5 {
				hit++
			}
			for range n {
				lines = append(lines, line(0, fmt.Sprint("user", seed, "of", user), 1))
			}
		}
		r := report(t, suggest.Options{Rules: rulesWith(t, "unit: minute", 5), MaxBytes: 40_000}, lines)
		rule := r.Rules[0]
		if rule.Sample >= 0.5 || len(r.Warnings) == 0 {
			t.Fatalf("a sample of %g, %q", rule.Sample, r.Warnings)
		}
		if keys := rule.Recommendations[0].Present.Keys; keys.Low <= hit && hit <= keys.High {
			within++
		}
	}
	t.Logf("%d of 100", within)
	if within < 90 {
		t.Errorf("%d of 100 intervals have the true number", within)
	}
}

func TestLinesMustBeInOrder(t *testing.T) {
	c, err := suggest.New(suggest.Options{Rules: rulesWith(t, "unit: minute", 5)})
	must.Succeed(t, err)
	late, early := line(time.Second, "a", 1), line(0, "a", 1)
	if err := errors.Join(c.Add(&late), c.Add(&late)); err != nil {
		t.Error(err)
	}
	if err := c.Add(&early); !errors.Is(err, replay.ErrEarlier) {
		t.Errorf("an earlier line: %v, want replay.ErrEarlier", err)
	}
	if r, err := c.Report(context.Background(), 1); err != nil || r.Rules[0].Requests != 2 {
		t.Errorf("%v, %d requests, want 2", err, r.Rules[0].Requests)
	}
}

func TestTooManyRequestsOfFewKeysAreRejected(t *testing.T) {
	c, err := suggest.New(suggest.Options{Rules: rulesWith(t, "unit: minute", 5), MaxBytes: 1000})
	must.Succeed(t, err)
	for i := range 10_000 {
		l := line(time.Duration(i)*time.Second, "one", 1)
		if err = c.Add(&l); err != nil {
			break
		}
	}
	if !errors.Is(err, suggest.ErrTooLong) || !strings.Contains(err.Error(), "user_id has too few keys (1)") {
		t.Errorf("error %v, want suggest.ErrTooLong for the few keys of user_id", err)
	}
}
