package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

const (
	token     = "0123456789abcdef-first"
	testRules = `
domain: shop
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: minute, requests_per_unit: 5, window_start: first_hit}
      - {name: daily, unit: day, requests_per_unit: 100, algorithm: sliding_log}
    descriptors:
      - {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 3, lease_ttl: 60s}}
  - {key: admin, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: banned
    rate_limit: {unit: hour, requests_per_unit: 1, penalty: {after: 2, within: 1h, for: 10m}}
  - key: tokens
    descriptors:
      - {key: lease, rate_limit: {algorithm: funnel, unit: day, requests_per_unit: 100000, reserve: {ttl: 120s}}}
`
)

// A fixture is an API with a store, and everything that the API reports.
type fixture struct {
	t       *testing.T
	api     *API
	store   *memstore.Store
	rules   *descriptors.Rules
	decider *decide.Decider
	router  routers.Router

	mu       sync.Mutex
	changes  []Change
	attempts []UnauthorizedCall
	codes    map[string]int
	panics   []any
	failures []string // of the store: the route and the reason
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	rules := rulesfiletest.Parse(t, testRules)
	path := filepath.Join(t.TempDir(), "tokens")
	must.Write(t, path, token+"\n\nanother-token-of-this-file\n")
	tokens, err := ReadTokens(path, func(err error) { t.Error(err) })
	must.Succeed(t, err)
	f := &fixture{t: t, store: memstore.New(memstore.Options{}), rules: rules, codes: map[string]int{}}
	live := func() *descriptors.Rules { return rules }
	o := Options{
		Version: "v1.2.3", Rules: live, Store: f.store, Auth: Auth{Tokens: tokens}, Resets: direct{f.store, nil},
		Hits:       func(*descriptors.Rule) (allowed, denied uint64) { return 0, 0 },
		StoreCalls: func() (calls uint64, seconds float64) { return 0, 0 },
		Status: func() api.Status {
			return api.Status{Replica: "here", Store: api.StoreStatus{Kind: "memory", Mode: api.ModeOK}}
		},
		Audit: func(c Change) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.changes = append(f.changes, c)
		},
		Unauthorized: func(a UnauthorizedCall) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.attempts = append(f.attempts, a)
		},
		Answered: func(route string, code int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.codes[route+" "+http.StatusText(code)]++
		},
		StoreFailed: func(route string, reason error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failures = append(f.failures, route+": "+reason.Error())
		},
		Panicked: func(_ string, value any) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.panics = append(f.panics, value)
		},
	}
	if change != nil {
		change(&o)
	}
	f.api = New(o)
	f.decider = decide.New(live, f.store, decide.Options{})
	f.router = f.openAPI()
	return f
}

// openAPI returns a router of the document that the API serves, which it validates.
func (f *fixture) openAPI() routers.Router {
	f.t.Helper()
	r := f.send("GET", "/openapi.json", "", token)
	document, err := openapi3.NewLoader().LoadFromData(r.Body.Bytes())
	if err != nil {
		f.t.Fatalf("load openapi.json: %v: %s", err, r.Body)
	}
	must.Succeed(f.t, document.Validate(context.Background()))
	router, err := gorillamux.NewRouter(document)
	must.Succeed(f.t, err)
	return router
}

func (f *fixture) send(method, path, body, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	recorded := httptest.NewRecorder()
	f.api.ServeHTTP(recorded, r)
	return recorded
}

// call sends a call with a token, and validates the response against the document. If the response
// is no error, it also validates the call.
func (f *fixture) call(method, path, body string, into any) (code int, text string) {
	f.t.Helper()
	return f.callAs(token, method, path, body, into)
}

func (f *fixture) callAs(token, method, path, body string, into any) (code int, text string) {
	f.t.Helper()
	response := f.send(method, path, body, token)
	text = response.Body.String()
	f.validate(method, path, body, response)
	if response.Code < 300 && into != nil {
		if err := json.Unmarshal(response.Body.Bytes(), into); err != nil {
			f.t.Fatalf("%s %s: the response is no JSON of %T: %v: %s", method, path, into, err, text)
		}
	}
	return response.Code, text
}

func (f *fixture) validate(method, path, body string, response *httptest.ResponseRecorder) {
	f.t.Helper()
	request := httptest.NewRequest(method, "http://admin"+path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	route, params, err := f.router.FindRoute(request)
	if err != nil {
		return // the document has no such route
	}
	ctx := context.Background()
	in := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}}
	if response.Code < 300 {
		if err := openapi3filter.ValidateRequest(ctx, in); err != nil {
			f.t.Errorf("%s %s: the document does not have this call: %v", method, path, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: response.Code, Header: response.Header(), Body: io.NopCloser(bytes.NewReader(response.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(ctx, out); err != nil {
		f.t.Errorf("%s %s: the document does not have this response: %v\n%d %s", method, path, err, response.Code, response.Body)
	}
}

// hit sends a request of n hits, and returns whether it is allowed.
func (f *fixture) hit(n int64, pairs ...string) bool {
	f.t.Helper()
	var entries []descriptors.Entry
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, descriptors.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	var result decide.Result
	request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Entries: entries, Hits: n}}}
	must.Succeed(f.t, f.decider.Decide(context.Background(), &request, &result))
	return !result.Denied
}

func (f *fixture) peek(descriptor string) api.KeyState {
	f.t.Helper()
	var state api.KeyState
	if code, text := f.call("POST", "/v1/keys/peek", `{"domain":"shop","descriptor":`+descriptor+`}`, &state); code != 200 {
		f.t.Fatalf("peek of %s: %d %s, want 200", descriptor, code, text)
	}
	return state
}

func TestStatusIsServed(t *testing.T) {
	var status api.Status
	f := newFixture(t, nil)
	if code, text := f.call("GET", "/v1/status", "", &status); code != 200 {
		t.Fatal(code, text)
	}
	if status.Version != "v1.2.3" || status.Replica != "here" || status.Rules != 6 || status.Domains != 1 || status.Store.Mode != api.ModeOK {
		t.Errorf("status %+v, want version v1.2.3 of replica here with 6 rules of 1 domain, and a store that works", status)
	}
}

func TestRulesEndpointReportsHitRates(t *testing.T) {
	counts := map[string]uint64{}
	f := newFixture(t, func(o *Options) {
		o.Hits = func(r *descriptors.Rule) (uint64, uint64) { return counts[r.Name], 2 * counts[r.Name] }
	})
	rules := func(query string) (all []api.Rule) {
		if code, text := f.call("GET", "/v1/rules"+query, "", &all); code != 200 {
			t.Fatal(code, text)
		}
		return all
	}
	all := rules("")
	if len(all) != 6 || all[0].Path != "user_id" || len(all[0].Limits) != 2 || all[0].Limits[1].Window != "24h0m0s" || all[0].DeniedPerSecond != 0 {
		t.Errorf("rules %+v, want 6, and first user_id with two limits, which denied nothing", all)
	}
	start := time.Now()
	for i := range 20 {
		counts["user_id"] = uint64(30 * i)
		f.api.rates.sample(start.Add(time.Duration(i) * sampleInterval))
	}
	if all = rules("?domain=shop&limit=1"); len(all) != 1 || all[0].AllowedPerSecond != 15 || all[0].DeniedPerSecond != 30 {
		t.Errorf("30 hits in 2 s: %+v, want one rule with 15 allowed and 30 denied per second", all)
	}
	if all = rules("?offset=5"); len(all) != 1 || all[0].Path != "tokens.lease" {
		t.Errorf("rules from offset 5: %+v, want only tokens.lease", all)
	}
	var status api.Status
	if code, text := f.call("GET", "/v1/status", "", &status); code != 200 || status.Allowed != 15 || status.Denied != 30 {
		t.Errorf("%d %s, want the rates of all rules", code, text)
	}
	if n := len(f.api.rates.all); n != sampleCount {
		t.Errorf("%d samples are kept, want %d", n, sampleCount)
	}
}

// Rates are those of one version of the rules, whose counters may have begun again.
func TestRatesBeginAgainWithNewRules(t *testing.T) {
	rules, hits := rulesfiletest.Parse(t, "domain: one\n"), uint64(0)
	f := newFixture(t, func(o *Options) {
		o.Rules = func() *descriptors.Rules { return rules }
		o.Hits = func(*descriptors.Rule) (uint64, uint64) { return hits, hits }
	})
	start, samples := time.Now(), 0
	rateAfter := func(hitsSoFar uint64) float64 {
		hits = hitsSoFar
		f.api.rates.sample(start.Add(time.Duration(samples) * sampleInterval))
		samples++
		var all []api.Rule
		if code, text := f.call("GET", "/v1/rules", "", &all); code != 200 {
			t.Fatal(code, text)
		}
		return append(all, api.Rule{})[0].AllowedPerSecond
	}
	rateAfter(0)
	rules = f.rules
	for i, c := range []struct {
		hits uint64
		want float64
	}{{300, 0}, {330, 15}, {0, 0}} {
		if got := rateAfter(c.hits); got != c.want {
			t.Errorf("sample %d of the new rules: %v hits a second, want %v", i, got, c.want)
		}
	}
}

func TestPeekShowsEveryLimitOfAKey(t *testing.T) {
	f := newFixture(t, nil)
	for range 3 {
		f.hit(1, "user_id", "42")
	}
	f.hit(2, "user_id", "42", "lease", "request-1")
	state := f.peek(`[["user_id","42"]]`)
	if len(state.Limits) != 3 {
		t.Fatalf("user_id=42 has %+v, want 3 limits", state)
	}
	for i, want := range []struct {
		rule, name, key string
		used, remaining int64
	}{
		{"user_id", "burst", "4:shop|7:user_id*2:42", 3, 2}, {"user_id", "daily", "4:shop|7:user_id*2:42", 3, 97},
		{"user_id.lease", "", "4:shop|7:user_id*2:42|5:lease!", 2, 1},
	} {
		l := state.Limits[i]
		if l.Rule != want.rule || l.Name != want.name || l.Key != want.key || l.State.Used != want.used || l.State.Remaining != want.remaining || !l.Allowed {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
	if state := f.peek(`[["free","x"]]`); len(state.Limits) != 0 || !state.Unlimited || state.Reason != "unlimited" {
		t.Errorf("an exempt key has %+v, want no limit, because it is unlimited", state)
	}
	if state := f.peek(`[["other","x"]]`); len(state.Limits) != 0 || state.Unlimited || state.Reason != "no_rule" {
		t.Errorf("a key without a rule has %+v, want no limit, with reason no_rule", state)
	}
	if state := f.peek(`[["tokens","x"]]`); len(state.Limits) != 1 || state.Limits[0].State.Used != 0 {
		t.Errorf("a key of a lease has %+v, want one limit without usage", state)
	}
}

// The next request for a key with the maximum of open reservations is denied, although hits remain.
func TestPeekReportsTooManyReservations(t *testing.T) {
	f := newFixture(t, nil)
	for i := range limiters.MaxLeases {
		if !f.hit(1, "tokens", "x", "lease", strconv.Itoa(i)) {
			t.Fatalf("reservation %d is denied", i)
		}
	}
	if f.hit(1, "tokens", "x", "lease", "one more") {
		t.Fatal("one reservation too many: allowed, want denied")
	}
	l := f.peek(`[["tokens","x"]]`).Limits[0]
	if l.Allowed || l.State.Remaining == 0 || l.State.RetryAfter == "0s" {
		t.Errorf("%+v, want a denial with remaining hits and a wait", l)
	}
}

// A denied peek of Envoy is an offense. A denied peek of an operator is not, however often it is
// repeated.
func TestInspectAddsNoPenalty(t *testing.T) {
	f := newFixture(t, nil)
	f.hit(1, "banned", "x")
	for range 5 {
		l := f.peek(`[["banned","x"]]`).Limits[0]
		if l.Allowed || l.State.Used != 1 || l.State.Penalty != "0s" {
			t.Fatalf("a banned key has %+v, want a denial after 1 hit without a penalty yet", l)
		}
	}
	if f.hit(1, "banned", "x") {
		t.Fatal("the second hit: allowed, want denied")
	}
	if l := f.peek(`[["banned","x"]]`).Limits[0]; l.State.Penalty != "0s" {
		t.Fatalf("a penalty after the first offense: %+v", l)
	}
	f.hit(1, "banned", "x")
	l := f.peek(`[["banned","x"]]`).Limits[0]
	penalty, err := time.ParseDuration(l.State.Penalty)
	if err != nil || penalty < 9*time.Minute || penalty > 10*time.Minute || l.Allowed || l.State.Remaining != 0 {
		t.Errorf("%+v, want a penalty of 10m", l)
	}
}

func TestPeekShowsNoKeyUnderASecret(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.KeyHashSecret = []byte("a secret of 16 b") })
	l := f.peek(`[["user_id","42"]]`).Limits[0]
	if l.Key != "" || len(l.KeyHash) != 16 || l.KeyHash == newFixture(t, nil).peek(`[["user_id","42"]]`).Limits[0].KeyHash {
		t.Errorf("with a secret: %+v, want no key and another hash than without it", l)
	}
}

// The caller learns that the store failed, and Weir's log contains the reason.
func TestStoreFailuresAreReportedWithTheReason(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		reason := errors.New("no permissions")
		o.Store, o.Resets = &limiterstest.FailingStore{Err: reason}, direct{o.Store.(limiters.Store), reason}
	})
	for _, c := range []struct{ path, body string }{
		{peekPath, `{"domain":"shop","descriptor":[["user_id","42"]]}`},
		{explainPath, `{"domain":"shop","descriptors":[[["user_id","42"]]],"live":true}`},
		{resetPath, `{"domain":"shop","descriptor":[["user_id","42"]]}`},
		{resetByEntryPath, `{"domain":"shop","entry":["user_id","42"]}`},
	} {
		f.failures = nil
		code, text := f.call("POST", c.path, c.body, nil)
		if code != 503 || !strings.Contains(text, "the store failed: the log of Weir") || strings.Contains(text, "no permissions") {
			t.Errorf("%s: got status %d with %s, want 503 without the reason", c.path, code, text)
		}
		if want := c.path + ": no permissions"; len(f.failures) != 1 || f.failures[0] != want {
			t.Errorf("%s: reported %q, want %q", c.path, f.failures, want)
		}
	}
}

func TestCallerThatLeavesIsNoFailureOfTheStore(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Store = &limiterstest.FailingStore{Store: o.Store.(limiters.Store)} })
	ctx, leave := context.WithCancel(t.Context())
	leave()
	rule := f.rules.Domain("shop").Match([]descriptors.Entry{{Key: "user_id", Value: "42"}})
	if _, err := f.api.states(ctx, target{rule, "k"}); !errors.Is(err, errStore) || len(f.failures) > 0 {
		t.Errorf("%v, reported %q, want %v and no report", err, f.failures, errStore)
	}
}

func TestCallsWithoutRulesGet503(t *testing.T) {
	const shop = `{"domain":"shop","descriptors":[[["user_id","42"]]]}`
	none := newFixture(t, func(o *Options) {
		o.Rules = func() *descriptors.Rules { return nil }
		o.Top = func(api.TopOrder, string, int) api.Top { return api.Top{} }
	})
	for _, c := range [][3]string{
		{"GET", "/v1/rules?domain=shop", ""},
		{"GET", "/v1/top?domain=shop", ""},
		{"POST", explainPath, shop},
		{"POST", "/v1/keys/peek", `{"domain":"shop","descriptor":[["user_id","42"]]}`},
	} {
		if code, text := none.call(c[0], c[1], c[2], nil); code != 503 || !strings.Contains(text, "no rules are loaded yet") {
			t.Errorf("%s: %d %s, want 503: requests get UNAVAILABLE", c[1], code, text)
		}
	}
	empty := newFixture(t, func(o *Options) { o.Rules = func() *descriptors.Rules { return &descriptors.Rules{} } })
	if code, text := empty.call("GET", "/v1/rules?domain=shop", "", nil); code != 404 || !strings.Contains(text, "the rules are empty") {
		t.Error(code, text)
	}
	if code, text := empty.call("POST", explainPath, shop, nil); code != 200 || !strings.Contains(text, "the rules are empty") {
		t.Error(code, text)
	}
}

func TestBadCallsAreProblems(t *testing.T) {
	f := newFixture(t, nil)
	peek := func(body string) [3]string { return [3]string{"POST", "/v1/keys/peek", body} }
	for _, c := range []struct {
		call  [3]string
		token string
		code  int
		says  string
	}{
		{[3]string{"GET", "/v1/status", ""}, "", 401, "no valid credentials"},
		{[3]string{"GET", "/v1/status", ""}, "0123456789abcdef-wrong", 401, "no valid credentials"},
		{[3]string{"GET", "/v1/status", ""}, token[:len(token)-1], 401, "no valid credentials"},
		{[3]string{"GET", "/openapi.json", ""}, "", 401, "no valid credentials"},
		{[3]string{"GET", "/v1/other", ""}, "", 401, "no valid credentials"},
		{[3]string{"GET", "/v1/other", ""}, token, 404, "no such route"},
		{[3]string{"DELETE", "/v1/status", ""}, token, 405, "use GET"},
		{[3]string{"GET", "/v1/keys/peek", ""}, token, 405, "use POST"},
		{[3]string{"GET", "/v1/rules?domain=other", ""}, token, 404, `no rules have the domain \"other\"`},
		{[3]string{"GET", "/v1/rules?limit=0", ""}, token, 422, "expected number >= 1"},
		{[3]string{"GET", "/v1/rules?domian=shop", ""}, token, 422, "domian"},
		{peek(`{"domain":"other","descriptor":[["a","b"]]}`), token, 404, "no rules have the domain"},
		{peek(`{"domain":"Shop_","descriptor":[["a","b"]]}`), token, 404, `did you mean \"shop\"?`},
		{peek(`{"domain":"shop","descriptor":[["a"]]}`), token, 422, "body.descriptor[0]"},
		{peek(`{"domain":"shop","descriptor":[["","b"]]}`), token, 422, "must not be empty"},
		{peek(`{"domain":"shop","descriptor":[]}`), token, 422, "body.descriptor"},
		{peek(`{"domain":"shop","descriptor":"user_id=42"}`), token, 422, `"location":"body.descriptor"`},
		{peek(`{"domain":"shop","descriptor":"user_id=42"}`), token, 422, "correct the parts in errors: /openapi.json has the form of each request"},
		{peek(`{"domain":"shop"}`), token, 422, "required property descriptor"},
		{peek(`{"domain":"shop","descriptor":[["a","b"]],"hits":1}`), token, 422, "unexpected property"},
		{peek(`{"domain":`), token, 400, ""},
		{peek(`{"domain":"` + strings.Repeat("a", 1<<20) + `"}`), token, 413, "too large"},
		{peek(""), token, 400, "body is required"},
	} {
		code, text := f.callAs(c.token, c.call[0], c.call[1], c.call[2], nil)
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%.90s: %d %s, want %d %q", c.call, code, text, c.code, c.says)
		}
		var problem struct{ Status int }
		if err := json.Unmarshal([]byte(text), &problem); err != nil || problem.Status != c.code {
			t.Errorf("%.90s: %v: not a problem: %s", c.call, err, text)
		}
	}
	if n := len(f.attempts); n != 5 {
		t.Errorf("%d calls without credentials were reported: %+v", n, f.attempts)
	}
	if n := f.codes["/v1/status Unauthorized"]; n != 3 {
		t.Errorf("counted: %v", f.codes)
	}
	for route := range f.codes {
		if name, _, _ := strings.Cut(route, " "); name != "other" && !strings.HasPrefix(name, "/v1/") {
			t.Errorf("counted under %q, which callers can choose", route)
		}
	}
}

// Clients without credentials must not fill the log.
func TestMethodOfAnUnauthorizedCallIsTruncated(t *testing.T) {
	f := newFixture(t, nil)
	f.send(strings.Repeat("A", 60_000), "/v1/status", "", "")
	if got := f.attempts[0].Method; got != strings.Repeat("A", maxMethodBytes)+"..." {
		t.Errorf("a method of %d bytes, want its start", len(got))
	}
}

func TestUnauthorizedNamesTheScheme(t *testing.T) {
	f := newFixture(t, nil)
	r := f.send("GET", "/v1/status", "", "")
	if got := r.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") || r.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("headers %v, want a Bearer challenge and a problem", r.Header())
	}
}

func TestPagesOfOtherOriginsAreRejected(t *testing.T) {
	f := newFixture(t, nil)
	for _, c := range []struct {
		method, path, site string
		want               int
	}{
		{"POST", "/v1/keys/peek", "cross-site", 403},
		{"GET", "/v1/decisions", "cross-site", 403}, // it would hold a stream
		{"GET", "/v1/status", "same-site", 403},
		{"GET", "/v1/status", "same-origin", 200},
		{"GET", "/v1/status", "none", 200},
		{"GET", "/v1/status", "", 200}, // no browser
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Sec-Fetch-Site", c.site)
		recorded := httptest.NewRecorder()
		f.api.ServeHTTP(recorded, r)
		if recorded.Code != c.want {
			t.Errorf("%s %s of %q: %d %s, want %d", c.method, c.path, c.site, recorded.Code, recorded.Body, c.want)
		}
	}
}

// SHADOW_MODE and QUOTA_MODE hold for every rule.
func TestModesMatchTheServer(t *testing.T) {
	for want, o := range map[string]decide.Options{"shadow": {ShadowMode: true, QuotaMode: true}, "quota": {QuotaMode: true}, "enforced": {}} {
		f := newFixture(t, func(options *Options) { options.Decide = o })
		var rules []api.Rule
		if code, text := f.call("GET", "/v1/rules?limit=1", "", &rules); code != 200 || rules[0].Mode != want {
			t.Errorf("%d %s, want the mode %s", code, text, want)
		}
		if got := f.peek(`[["user_id","42"]]`).Limits[0].Mode; got != want {
			t.Errorf("a peek has the mode %s, want %s", got, want)
		}
		if got := f.peek(`[["admin","x"]]`).Limits[0].Mode; got != "shadow" {
			t.Errorf("with %+v, a rule in shadow mode has the mode %s", o, got)
		}
	}
}

func TestPanicFailsOneCallOnly(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Status = func() api.Status { panic("a bug") } })
	if code, text := f.call("GET", "/v1/status", "", nil); code != 500 || strings.Contains(text, "a bug\"") {
		t.Error(code, text)
	}
	if code, _ := f.call("GET", "/v1/rules", "", nil); code != 200 || len(f.panics) != 1 {
		t.Error(code, f.panics)
	}
}

// A stream has no status code before its first event, but it has begun.
func TestPanicAbortsAStreamThatHasBegun(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Subscribe = func(api.Filter) (*api.Subscription, error) {
			decisions := make(chan api.Decision, 1)
			decisions <- api.Decision{}
			return &api.Subscription{C: decisions, Dropped: func() int64 { panic("a bug") }, Close: func() {}}, nil
		}
	})
	r := httptest.NewRequest("GET", "/v1/decisions", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	recorded := httptest.NewRecorder()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler || len(f.panics) != 1 || f.codes["/v1/decisions OK"] != 1 { //nolint:errorlint // the same value
			t.Errorf("panicked with %v, want http.ErrAbortHandler; reported %v, answered %v", got, f.panics, f.codes)
		}
		if body := recorded.Body.String(); strings.Contains(body, "a bug in Weir") {
			t.Errorf("the stream contains an error: %s", body)
		}
	}()
	f.api.ServeHTTP(recorded, r)
}

// A call beyond the bound gets 503 immediately.
func TestCallsInFlightAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := newFixture(t, func(o *Options) {
		o.Status = func() api.Status {
			entered <- struct{}{}
			<-leave
			return api.Status{Store: api.StoreStatus{Kind: "memory", Mode: api.ModeOK}}
		}
	})
	var calls sync.WaitGroup
	for range maxInFlight {
		calls.Go(func() { f.send("GET", "/v1/status", "", token) })
		<-entered
	}
	if code, text := f.call("GET", "/v1/rules", "", nil); code != 503 || !strings.Contains(text, "32 calls") {
		t.Error(code, text)
	}
	close(leave)
	calls.Wait()
	if code, _ := f.call("GET", "/v1/rules", "", nil); code != 200 {
		t.Error(code)
	}
}

func TestTokensAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		must.Write(t, path, text)
	}
	for text, want := range map[string]string{"": "no token", "\n \n": "no token", "short\n": "line 1 has less than 16 bytes", "x": "openssl"} {
		write(text)
		if _, err := ReadTokens(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	write("the-first-token-of-all")
	var failures []string
	tokens, err := ReadTokens(path, func(err error) { failures = append(failures, err.Error()) })
	must.Succeed(t, err)
	valid := func(token string) bool {
		_, ok := tokens.find(token)
		return ok
	}
	if !valid("the-first-token-of-all") || valid("the-second-token-of-all") || valid("") {
		t.Error("want the first token only")
	}
	write("\ufeffthe-second-token-of-all-times\r\nand-a-third-one-here")
	if valid("the-first-token-of-all") || !valid("the-second-token-of-all-times") || !valid("and-a-third-one-here") {
		t.Error("want the second and the third token only")
	}
	write("short")
	for range 3 {
		if !valid("and-a-third-one-here") {
			t.Error("a faulty file invalidates the tokens")
		}
	}
	if len(failures) != 1 {
		t.Errorf("reported %q, want one failure", failures)
	}
}

func TestExplainShowsTheStateOfEachLimit(t *testing.T) {
	f := newFixture(t, nil)
	for range 6 {
		f.hit(1, "user_id", "42")
	}
	var explanation explain.Explanation
	body := `{"domain":"shop","descriptors":[[["user_id","42"]],[["user_id","42"],["lease","a"]],[["nothing","1"]],[["free","x"]]],"live":true}`
	if code, text := f.call("POST", explainPath, body, &explanation); code != 200 {
		t.Fatal(code, text)
	}
	d := explanation.Descriptors
	if len(d) != 4 || len(d[0].Limits) != 2 || d[0].Limits[0].State == nil || d[0].Limits[0].State.Used != 6 || d[0].Limits[0].State.RetryAfter == "0s" {
		t.Fatalf("explanation %+v, want 4 descriptors, of which the first has 2 limits, 6 hits used and a wait", explanation)
	}
	if d[1].Limits[0].State.Remaining != 3 || d[2].Matched || !d[3].Unlimited || explanation.RulesVersion != f.rules.Version() {
		t.Errorf("explanation %+v, want 3 hits left in the second, no match of the third, an unlimited fourth, and the version of the rules",
			explanation)
	}
	if f.peek(`[["user_id","42"]]`).Limits[0].State.Used != 6 {
		t.Error("the explanation charged a hit")
	}
	var dry explain.Explanation
	if code, _ := f.call("POST", explainPath, strings.Replace(body, `"live":true`, `"live":false`, 1), &dry); code != 200 || dry.Descriptors[0].Limits[0].State != nil {
		t.Errorf("not live: %d %+v, want 200 without states", code, dry)
	}
	if code, text := f.call("POST", explainPath, `{"domain":"shpo","descriptors":[[["a","b"]]],"live":true}`, &explanation); code != 200 || explanation.DomainKnown || explanation.NearestDomain != "shop" {
		t.Errorf("an unknown domain: %d %s", code, text)
	}
}

func TestExplainTakesARequestOfEnvoy(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.ParseRequest = func(body []byte) (*decide.Request, error) {
			if !strings.Contains(string(body), "entries") {
				return nil, errors.New("unknown field")
			}
			return &decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{
				Entries: []descriptors.Entry{{Key: "user_id", Value: "42"}}, Hits: 1, Override: &decide.Override{RequestsPerUnit: 7, Unit: descriptors.Hour},
			}}}, nil
		}
	})
	var explanation explain.Explanation
	if code, text := f.call("POST", explainPath, `{"request":{"entries":[]},"live":true}`, &explanation); code != 200 ||
		!explanation.Descriptors[0].Limits[0].Override || explanation.Descriptors[0].Limits[0].State.Remaining != 7 {
		t.Errorf("with an override: %d %s, want 200, the override and 7 hits left", code, text)
	}
	for body, want := range map[string]string{
		`{"request":{}}`: "unknown field",
		`{"request":{"entries":[]},"domain":"shop"}`:   "both set",
		`{"request":null}`:                             "domain must not be empty",
		`{"domain":"shop","request":null}`:             "descriptor list must not be empty",
		`{"domain":"shop"}`:                            "descriptor list must not be empty",
		`{"domain":"none"}`:                            "descriptor list must not be empty",
		`{"domain":"none","descriptors":[[["","b"]]]}`: "the key must not be empty",
		`{"domain":"shop","descriptors":[[["","b"]]]}`: "the key must not be empty",
		`{"domain":"shop","descriptors":[[["a"]]]}`:    "body.descriptors[0][0]",
		`{"domain":"shop","descriptors":[["a","b"]]}`:  "body.descriptors[0][0]",
	} {
		if code, text := f.call("POST", explainPath, body, nil); code != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %q", body, code, text, want)
		}
	}
	f = newFixture(t, func(o *Options) { o.Store = &limiterstest.FailingStore{Err: context.DeadlineExceeded} })
	if code, text := f.call("POST", explainPath, `{"domain":"shop","descriptors":[[["user_id","42"]]],"live":true}`, nil); code != 503 {
		t.Error(code, text)
	}
}

// The page needs no credentials, because it contains no data. The routes do.
func TestPageNeedsNoCredentials(t *testing.T) {
	f := newFixture(t, nil)
	for path, want := range map[string]int{"/": 200, "/app.js": 200, "/v1x": 404} {
		if r := f.send("GET", path, "", ""); r.Code != want || r.Header().Get("Content-Security-Policy") != pagePolicy {
			t.Errorf("%s: got status %d with %s, want %d", path, r.Code, r.Body, want)
		}
	}
	for site, want := range map[string]int{"same-origin": 405, "cross-site": 403} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Sec-Fetch-Site", site)
		recorded := httptest.NewRecorder()
		if f.api.ServeHTTP(recorded, r); recorded.Code != want {
			t.Errorf("POST / of %s: status %d, want %d", site, recorded.Code, want)
		}
	}
	for _, path := range []string{"/v1/status", "/v1/", "/openapi.json", "/v1/../v1/status", "//v1/status"} {
		if r := f.send("GET", path, "", ""); r.Code == 200 {
			t.Errorf("%s: got status %d with %s, want no answer of the API", path, r.Code, r.Body)
		}
	}
}

func TestPeekNamesTheProbableKey(t *testing.T) {
	f := newFixture(t, nil)
	for key, want := range map[string]string{
		"user-id": `no rule of the domain has the key "user-id": did you mean "user_id"?`, "something": "", "admin": "",
	} {
		if state := f.peek(`[["` + key + `","b"]]`); state.Hint != want {
			t.Errorf("%s: %q, want %q", key, state.Hint, want)
		}
	}
}
