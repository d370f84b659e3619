package rls

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
)

const standard = `
domain: modes
descriptors:
- {key: minute, rate_limit: {unit: minute, requests_per_unit: 10, name: 'a "quoted" \ name'}}
- {key: small, rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 2}}
- {key: large, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 10, capacity: 25}}
- {key: slots, rate_limit: {algorithm: concurrency, concurrent_requests: 2}}
- {key: month, rate_limit: {unit: month, window_start: calendar, requests_per_unit: 4503599627370495, name: Größe}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: free, rate_limit: {unlimited: true}}
- {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: odd, rate_limit: {algorithm: funnel, unit: second, unit_multiplier: 7, requests_per_unit: 3}}
- {key: years, rate_limit: {algorithm: funnel, unit: year, requests_per_unit: 13, capacity: 117}}
- {key: longest, rate_limit: {algorithm: funnel, unit: year, requests_per_unit: 1, capacity: 71}}
- key: two
  rate_limits:
  - {unit: second, requests_per_unit: 3}
  - {unit: hour, requests_per_unit: 5, name: hourly}
`

func TestStandardHeadersFollowTheDraft(t *testing.T) {
	for _, c := range []struct{ keys, policy, state string }{
		{"minute", `"a \"quoted\" \\ name";q=10;w=60`, `"a \"quoted\" \\ name";r=9;t=60`},
		{"small", `"small";q=10;w=1`, `"small";r=1;t=1`},
		{"large", `"large";q=25;w=150`, `"large";r=24;t=6`},
		{"odd", `"odd";q=3;w=7`, `"odd";r=2;t=3`},
		{"years", `"years";q=117;w=283824000`, `"years";r=116;t=2425847`},
		{"longest", `"longest";q=71;w=2239056000`, `"longest";r=70;t=31536000`},
		{"slots", `"slots";q=2;qu="concurrent-requests"`, `"slots";r=1`},
		{"month", `"Gr%C3%B6%C3%9Fe";q=999999999999999;w=2592000`, `"Gr%C3%B6%C3%9Fe";r=999999999999999;t=820800`},
		{"two", `"two#0";q=3;w=1, "hourly";q=5;w=3600`, `"two#0";r=2;t=1, "hourly";r=4;t=3600`},
		{"small small", `"small";q=10;w=1, "small~2";q=10;w=1`, `"small";r=1;t=1, "small~2";r=0;t=1`},
		{"minute shadow free", `"a \"quoted\" \\ name";q=10;w=60`, `"a \"quoted\" \\ name";r=9;t=60`},
		{"free", "", ""},
		{"shadow", "", ""},
		{"none", `"none";q=0;w=60`, `"none";r=0;t=60`},
		{"minute!", `"override";q=0;w=86400`, `"override";r=0;t=86400`},
		{"unknown! two!", `"override";q=0;w=86400, "override~2";q=0;w=86400`, `"override";r=0;t=86400, "override~2";r=0;t=86400`},
		{"minute none", `"a \"quoted\" \\ name";q=10;w=60, "none";q=0;w=60`, `"a \"quoted\" \\ name";r=9;t=60, "none";r=0;t=60`},
	} {
		s, _ := serviceOn(t, standard, decide.Options{}, Options{StandardHeaders: true})
		r := decideKeys(t, s, c.keys)
		h := headersOf(t, r)
		if h["ratelimit-policy"] != c.policy || h["ratelimit"] != c.state {
			t.Errorf("%s:\n got %s and %s\nwant %s and %s", c.keys, h["ratelimit-policy"], h["ratelimit"], c.policy, c.state)
		}
		denied := r.GetOverallCode() == codeOverLimit
		if (h["retry-after"] != "") != denied {
			t.Errorf("%s: retry-after is %q, denied %t", c.keys, h["retry-after"], denied)
		}
	}
	s, _ := serviceOn(t, standard, decide.Options{}, Options{StandardHeaders: true})
	second := request(t, "slots slots")
	second.Descriptors[1].Entries[0].Value = "second"
	if _, err := s.ShouldRateLimit(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	third := request(t, "slots")
	third.Descriptors[0].Entries[0].Value = "third"
	response, err := s.ShouldRateLimit(t.Context(), third)
	must.Succeed(t, err)
	if h := headersOf(t, response); h["ratelimit"] != `"slots";r=0;t=1` || h["retry-after"] != "1" {
		t.Errorf("a third request in flight: %v", h)
	}
}

// A shadowed request has no Retry-After, because it is allowed.
func TestShadowModeHasNoRetryAfter(t *testing.T) {
	s, _ := serviceOn(t, standard, decide.Options{ShadowMode: true}, Options{StandardHeaders: true})
	if h := headersOf(t, decideKeys(t, s, "none")); h["retry-after"] != "" || h["ratelimit-policy"] == "" {
		t.Errorf("headers %v, want a policy and no retry-after", h)
	}
}

// The limit that denies is in the headers, even if it comes after maxPolicies others.
func TestStandardHeadersAreBounded(t *testing.T) {
	s, _ := serviceOn(t, standard, decide.Options{}, Options{StandardHeaders: true})
	h := headersOf(t, decideKeys(t, s, strings.Repeat("small month minute ", 8)+"none"))
	names := namesOf(t, h["ratelimit-policy"])
	if len(names) != maxPolicies || names[maxPolicies-1] != "none" {
		t.Errorf("%q, want %d limits and none as the last", names, maxPolicies)
	}
}

// For random rules, requests and times, both headers parse and have the same names, each once.
// Retry-After is at least the wait of every limit that denies.
func TestStandardHeadersNameTheSameLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	keys := strings.Fields("minute small large slots month shadow free none odd two")
	s, store := serviceOn(t, standard, decide.Options{}, Options{StandardHeaders: true, RetryAfterJitter: 0.1})
	denials := 0
	for range 3000 {
		store.now = store.now.Add(time.Duration(r.IntN(3_000)) * time.Millisecond)
		var requested []string
		for range 1 + r.IntN(4) {
			requested = append(requested, keys[r.IntN(len(keys))])
		}
		sent := request(t, strings.Join(requested, " "))
		for _, d := range sent.Descriptors {
			d.Entries[0].Value = strconv.Itoa(r.IntN(3))
		}
		response, err := s.ShouldRateLimit(t.Context(), sent)
		must.Succeed(t, err)
		h := headersOf(t, response)
		names := namesOf(t, h["ratelimit-policy"])
		if got := namesOf(t, h["ratelimit"]); !slices.Equal(got, names) {
			t.Fatalf("%v: names %q and %q", requested, names, got)
		}
		if len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
			t.Fatalf("%v: a name is there twice: %q", requested, names)
		}
		if response.GetOverallCode() != codeOverLimit {
			continue
		}
		denials++
		retry, err := strconv.ParseInt(h["retry-after"], 10, 64)
		must.Succeed(t, err)
		for i, status := range response.GetStatuses() {
			if wait := status.GetDurationUntilReset().GetSeconds(); status.GetCode() == codeOverLimit && retry < wait {
				t.Fatalf("%v: retry-after %d, and descriptor %d waits for %d: %v", requested, retry, i, wait, h)
			}
		}
	}
	if denials < 100 {
		t.Errorf("only %d denials", denials)
	}
}

func TestRetryAfterJitterIsBounded(t *testing.T) {
	for jitter, want := range map[float64]float64{-0.1: 0, 0.1: 0.1, 7: 1, math.Inf(1): 1, math.NaN(): 0} {
		if got := New(nil, Options{RetryAfterJitter: jitter}).options.RetryAfterJitter; got != want {
			t.Errorf("%v becomes %v, want %v", jitter, got, want)
		}
	}
}

// Jitter adds at most its share to a wait, rounded up, and never shortens it. It differs between
// responses.
func TestRetryAfterJitterOnlyAdds(t *testing.T) {
	for _, c := range []struct {
		wait             time.Duration
		jitter           float64
		minimum, maximum int64
	}{
		{0, 0, 1, 1}, {0, 1, 1, 2}, {time.Millisecond, 0, 1, 1}, {8 * time.Second, 0.1, 8, 9}, {11 * time.Second, 0.1, 11, 13},
		{70 * time.Second, 0.1, 70, 77}, {59*time.Second + 1, 0.1, 60, 66},
		{time.Hour, 0, 3600, 3600}, {time.Hour, 0.25, 3600, 4500}, {math.MaxInt64, 0, math.MaxInt64/1_000_000_000 - 1, math.MaxInt64 / 1_000_000_000},
	} {
		seen := map[int64]bool{}
		for range 2000 {
			got := retryAfterSeconds(c.wait, c.jitter)
			if seen[got] = true; got < c.minimum || got > c.maximum {
				t.Fatalf("%v and %v: %d, want %d to %d", c.wait, c.jitter, got, c.minimum, c.maximum)
			}
		}
		if c.maximum-c.minimum > 0 && c.jitter > 0 && (len(seen) < 2 || c.maximum-c.minimum < 10 && (!seen[c.minimum] || !seen[c.maximum])) {
			t.Errorf("%v and %v: only %v", c.wait, c.jitter, seen)
		}
	}
}

func namesOf(t *testing.T, header string) []string {
	t.Helper()
	if header == "" {
		return nil
	}
	list, err := httpsfv.UnmarshalList([]string{header})
	if err != nil {
		t.Fatalf("%s: %v", header, err)
	}
	var names []string
	for _, member := range list {
		item := member.(httpsfv.Item)
		names = append(names, item.Value.(string))
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			if n, isInteger := value.(int64); key != "qu" && (!isInteger || n < 0) {
				t.Errorf("%s: %s is %v", header, key, value)
			}
		}
	}
	return names
}
