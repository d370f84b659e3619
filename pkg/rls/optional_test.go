package rls

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/receipt"
)

// headersOf returns the headers for the client. No header is sent twice.
func headersOf(t *testing.T, r *ratelimitv3.RateLimitResponse) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, h := range r.GetResponseHeadersToAdd() {
		if _, twice := all[h.GetKey()]; twice {
			t.Errorf("header %s is sent twice", h.GetKey())
		}
		all[h.GetKey()] = h.GetValue()
	}
	return all
}

// deniedBy returns the description of a denial as "name=text name=text".
func deniedBy(r *ratelimitv3.RateLimitResponse) string {
	var all []string
	for name, value := range r.GetDynamicMetadata().GetFields()["denied_by"].GetStructValue().GetFields() {
		all = append(all, name+"="+value.GetStringValue())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// serviceOn returns a Service on a store of its own, and that store.
func serviceOn(t *testing.T, text string, d decide.Options, o Options) (*Service, *clocked) {
	t.Helper()
	store := &clocked{Store: closing{limiterstest.NewReference()}, now: start}
	return New(decide.New(parsed(t, text), store, d), o), store
}

// In a closing store, the key "closed" fails, and its on_store_error denies every operation.
type closing struct{ limiters.Store }

func (c closing) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	err := c.Store.Take(ctx, now, groups, out)
	for i, op := range slices.Concat(groups...) {
		if strings.Contains(op.Key, "closed") {
			out[i] = limiters.Verdict{By: limiters.ByPolicy}
		}
	}
	return err
}

const denials = `
domain: modes
on_deny: {body: of the domain}
descriptors:
- {key: plain, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: named, rate_limit: {unit: hour, requests_per_unit: 0, name: hourly, on_deny: {problem: true, headers: {x-b: 2, x-a: 1}}}}
- {key: once, rate_limit: {unit: hour, requests_per_unit: 1, on_deny: {body: <p>once</p>, content_type: text/html}}}
- {key: twice, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: quota_hour, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: quota_day, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: free, rate_limit: {unlimited: true}}
- {key: closed, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: deny, name: closed}}
- {key: slots, rate_limit: {algorithm: concurrency, concurrent_requests: 1, on_deny: {problem: true}}}
- {key: banned, rate_limit: {unit: minute, requests_per_unit: 1, penalty: {after: 1, within: 1m, for: 10m}, on_deny: {problem: true}}}
- key: several
  rate_limits:
  - {unit: second, requests_per_unit: 1, name: burst}
  - {unit: hour, requests_per_unit: 1, on_deny: {body: of the hour}}
`

func TestDenialNamesTheLimit(t *testing.T) {
	for _, c := range []struct{ keys, want, body, contentType string }{
		{"plain", "limit=0 reason=never_fits rule=plain", "of the domain", "text/plain; charset=utf-8"},
		{"free plain shadow", "limit=0 reason=never_fits rule=plain", "of the domain", "text/plain; charset=utf-8"},
		{"named", "limit=hourly reason=never_fits rule=named",
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The request exceeds a limit","status":429,` +
				`"violated-policies":["hourly"]}`, "application/problem+json"},
		{"once once", "limit=0 reason=over_limit rule=once", "<p>once</p>", "text/html"},
		// The denial names the limit with the longest wait, whether it is the first or the last.
		{"once once twice twice twice", "limit=0 reason=over_limit rule=twice", "of the domain", "text/plain; charset=utf-8"},
		{"twice twice twice once once", "limit=0 reason=over_limit rule=twice", "of the domain", "text/plain; charset=utf-8"},
		{"several several", "limit=1 reason=over_limit rule=several", "of the hour", "text/plain; charset=utf-8"},
		{"twice!", "limit=override reason=never_fits rule=twice", "of the domain", "text/plain; charset=utf-8"},
		{"nobody!", "limit=override reason=never_fits", "of the domain", "text/plain; charset=utf-8"},
		{"named!", "limit=override reason=never_fits rule=named",
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The request exceeds a limit","status":429,` +
				`"violated-policies":["override"]}`, "application/problem+json"},
		{"closed", "limit=closed reason=store_policy rule=closed", "of the domain", "text/plain; charset=utf-8"},
		{"banned banned", "limit=0 reason=penalty rule=banned",
			`{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
				`"title":"The client is locked out because of too many denied requests","status":429,"violated-policies":["banned~2"]}`,
			"application/problem+json"},
	} {
		s, _ := serviceOn(t, denials, decide.Options{}, Options{DeniedByHeader: "x-denied-by"})
		r := decideKeys(t, s, c.keys)
		got := deniedBy(r)
		if want := "domain=modes " + c.want + " rules_version=" + parsed(t, denials)().Version(); got != want {
			t.Errorf("%s: denied by %q, want %q", c.keys, got, want)
		}
		h := headersOf(t, r)
		if string(r.GetRawBody()) != c.body || h["content-type"] != c.contentType {
			t.Errorf("%s: body %q of %q, want %q of %q", c.keys, r.GetRawBody(), h["content-type"], c.body, c.contentType)
		}
		if c.keys == "named" && (h["x-a"] != "1" || h["x-b"] != "2") {
			t.Errorf("%s: headers %v", c.keys, h)
		}
		item, err := httpsfv.UnmarshalItem([]string{h["x-denied-by"]})
		if err != nil {
			t.Fatalf("%s: %s: %v", c.keys, h["x-denied-by"], err)
		}
		for _, part := range strings.Fields(got) {
			name, text, _ := strings.Cut(part, "=")
			shown, _ := item.Params.Get(name)
			if name == "rule" {
				shown = item.Value
			}
			if shown != text {
				t.Errorf("%s: header %s, want %s", c.keys, h["x-denied-by"], part)
			}
		}
	}
}

// In quota mode a request is denied until one of its quotas is free.
func TestDenialOfQuotasIsThatOfTheShortestWait(t *testing.T) {
	s, _ := serviceOn(t, denials, decide.Options{}, Options{StandardHeaders: true})
	decideKeys(t, s, "quota_hour quota_day")
	r := decideKeys(t, s, "quota_day quota_hour")
	if got := deniedBy(r); !strings.Contains(got, "rule=quota_hour") || headersOf(t, r)["retry-after"] != "3600" {
		t.Errorf("denied by %s, retry after %s s, want quota_hour and an hour", got, headersOf(t, r)["retry-after"])
	}
	r = decideKeys(t, s, "quota_day quota_hour plain")
	if got := deniedBy(r); !strings.Contains(got, "rule=plain") {
		t.Errorf("denied by %s, want plain, which never admits", got)
	}
	decideKeys(t, s, "once")
	if got := deniedBy(decideKeys(t, s, "once quota_day free")); !strings.Contains(got, "rule=quota_day") {
		t.Errorf("denied by %s, want quota_day, which waits longer than once", got)
	}
}

// While another quota is free, a quota that is over denies nothing, so a problem does not name it.
func TestProblemNamesOnlyTheLimitsThatDeny(t *testing.T) {
	s, _ := serviceOn(t, denials, decide.Options{}, Options{})
	decideKeys(t, s, "quota_hour")
	for _, c := range []struct{ keys, want string }{
		{"quota_hour quota_day named", `"violated-policies":["hourly"]`},
		{"quota_hour named", `"violated-policies":["quota_hour","hourly"]`},
	} {
		if body := decideKeys(t, s, c.keys).GetRawBody(); !bytes.Contains(body, []byte(c.want)) {
			t.Errorf("%s: %s, want %s", c.keys, body, c.want)
		}
	}
}

func TestAllowedResponseHasNoDenial(t *testing.T) {
	for name, o := range map[string]decide.Options{"plain": {}, "shadow mode": {ShadowMode: true}} {
		s, _ := serviceOn(t, denials, o, Options{DeniedByHeader: "x-denied-by", Receipts: receiptsOf(t)})
		keys := "once"
		if o.ShadowMode {
			keys = "named once shadow"
		}
		if r := decideKeys(t, s, keys); r.GetDynamicMetadata() != nil || len(r.GetResponseHeadersToAdd()) > 0 || len(r.GetRawBody()) > 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// A problem contains no text of the request.
func TestProblemHasNoUserData(t *testing.T) {
	s, _ := serviceOn(t, denials, decide.Options{}, Options{DeniedByHeader: "x-denied-by", StandardHeaders: true})
	r := request(t, "named")
	r.Descriptors[0].Entries[0].Value = "secret-user"
	response, err := s.ShouldRateLimit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(response)
	if err != nil || strings.Contains(string(text), "secret") || bytes.Contains(response.GetRawBody(), []byte("secret")) {
		t.Errorf("%s %s %v, want neither an error nor the secret", text, response.GetRawBody(), err)
	}
}

func TestStoreFailureIsAProblemOfCapacity(t *testing.T) {
	s, _ := serviceOn(t, strings.Replace(denials, "body: of the domain", "problem: true", 1), decide.Options{}, Options{StandardHeaders: true})
	r := decideKeys(t, s, "closed")
	var p map[string]any
	if err := json.Unmarshal(r.GetRawBody(), &p); err != nil || p["type"] != problemTypes+"temporary-reduced-capacity" || p["violated-policies"] != nil {
		t.Errorf("%s (%v)", r.GetRawBody(), err)
	}
	if h := headersOf(t, r); h["retry-after"] != "1" || h["ratelimit"] != "" {
		t.Errorf("headers %v, want a wait of a second and no limit, because its state is unknown", h)
	}
}

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
	if err != nil {
		t.Fatal(err)
	}
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

// For random rules, requests and times, both headers parse and have the same names, each once. Retry-After is at least the wait of
// every limit that denies.
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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

// Jitter adds at most its share to a wait, and never shortens it. It differs between responses.
func TestRetryAfterJitterOnlyAdds(t *testing.T) {
	for _, c := range []struct {
		wait             time.Duration
		jitter           float64
		minimum, maximum int64
	}{
		{0, 0, 1, 1}, {0, 1, 1, 2}, {time.Millisecond, 0, 1, 1}, {9 * time.Second, 0.1, 9, 9}, {59*time.Second + 1, 0.1, 60, 66},
		{time.Hour, 0, 3600, 3600}, {time.Hour, 0.25, 3600, 4500}, {math.MaxInt64, 0, math.MaxInt64/1_000_000_000 - 1, math.MaxInt64 / 1_000_000_000},
	} {
		seen := map[int64]bool{}
		for range 2000 {
			got := retryAfter(c.wait, c.jitter)
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

var receiptKeys = func() *receipt.Keys {
	keys, err := receipt.ParseKeys([]byte(strings.Repeat("ab", 32)))
	if err != nil {
		panic(err)
	}
	return keys
}()

func receiptsOf(t *testing.T) Receipts {
	t.Helper()
	return Receipts{Header: "x-receipt", Keys: func() *receipt.Keys { return receiptKeys }, Replica: "weir-7d9f8b6c5-x2x4z", KeySecret: []byte("secret")}
}

func TestReceiptDescribesTheDenial(t *testing.T) {
	rules := parsed(t, denials)()
	for _, c := range []struct {
		keys        string
		rule, limit string
		used, max   int64
		reason      string
	}{
		{"once once", "once", "0", 2, 1, "over_limit"},
		{"several several", "several", "1", 2, 1, "over_limit"},
		{"banned banned", "banned", "0", 2, 1, "penalty"},
		{"named", "named", "0", 0, 0, "never_fits"},
		{"nobody!", "", "0", 0, 0, "never_fits"},
	} {
		s, _ := serviceOn(t, denials, decide.Options{}, Options{Receipts: receiptsOf(t)})
		r, err := receiptKeys.Open(headersOf(t, decideKeys(t, s, c.keys))["x-receipt"])
		if err != nil {
			t.Fatal(err)
		}
		rule, limit := rules.ByHash(r.Limit)
		if got := fmt.Sprint(limit); rule == nil && c.rule != "" || rule != nil && (rule.Name != c.rule || got != c.limit) {
			t.Errorf("%s: rule %v, limit %d", c.keys, rule, limit)
		}
		entries := []descriptors.Entry{{Key: strings.Fields(strings.TrimSuffix(c.keys, "!"))[0], Value: "v"}}
		counter := descriptors.Key("modes", rule, entries)
		if c.rule == "" {
			counter = string(descriptors.AppendOverrideKey(nil, "modes", nil, entries))
		}
		if got := fmt.Sprintf("%016x", r.Key); got != descriptors.KeyHash([]byte("secret"), counter) {
			t.Errorf("%s: key %s, want that of %s", c.keys, got, counter)
		}
		if age := time.Since(r.Time); r.Used != c.used || r.Max != c.max || r.Reason != c.reason || age < 0 || age > time.Minute ||
			r.Replica != "c5-x2x4z" || fmt.Sprintf("%016x", r.RulesVersion) != rules.Version() {
			t.Errorf("%s: %+v", c.keys, r)
		}
	}
	// The receipt for a limit that came with the request has the limit 0, although a rule matches.
	s, _ := serviceOn(t, denials, decide.Options{}, Options{Receipts: receiptsOf(t)})
	if r, err := receiptKeys.Open(headersOf(t, decideKeys(t, s, "once!"))["x-receipt"]); err != nil || r.Limit != 0 {
		t.Errorf("%v, %+v, want the limit 0", err, r)
	}
	s, _ = serviceOn(t, denials, decide.Options{}, Options{Receipts: Receipts{Header: "x-receipt", Keys: func() *receipt.Keys { return nil }}})
	if h := headersOf(t, decideKeys(t, s, "plain")); h["x-receipt"] != "" {
		t.Errorf("a receipt without keys: %v", h)
	}
}
