package rls

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

const rules = `
domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: login, rate_limit: {unit: minute, requests_per_unit: 3}}
      - {key: action, value: reply, rate_limit: {algorithm: sliding_log, unit: second, unit_multiplier: 5, requests_per_unit: 3}}
      - {key: action, value: post, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 30, capacity: 2}}
      - {key: action, value: never, rate_limit: {unit: week, requests_per_unit: 0}}
      - key: action
        value: search
        rate_limits:
          - {unit: second, requests_per_unit: 2, count_denied: false}
          - {unit: hour, unit_multiplier: 6, requests_per_unit: 5, count_denied: false}
      - {key: slot, rate_limit: {algorithm: concurrency, concurrent_requests: 2}}
      - {key: budget, rate_limit: {unit: day, requests_per_unit: 100, count_denied: false, reserve: {ttl: 1m}}}
`

// A clocked store decides at the time that the test sets, and fails as the test chooses.
type clocked struct {
	limiterstest.FailingStore
	now time.Time
}

func newClocked() *clocked {
	c, reference := &clocked{now: start}, limiterstest.NewReference()
	reference.Now = func() time.Time { return c.now }
	c.Store = reference
	return c
}

type fixture struct {
	*Service
	store    *clocked
	observed []*Observation
}

// start is a Friday. Weeks begin on Thursday, because 1970 did.
var start = time.Date(2025, 11, 21, 12, 0, 0, 0, time.UTC)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{store: newClocked()}
	f.Service = New(decide.New(parsed(t, rules), f.store, decide.Options{}), Options{Observe: func(o *Observation) {
		kept := *o
		kept.Decisions = slices.Clone(o.Decisions)
		for i := range kept.Decisions {
			d := &kept.Decisions[i]
			plan := *d.Plan
			d.Plan, d.Verdicts = &plan, slices.Clone(d.Verdicts)
		}
		f.observed = append(f.observed, &kept)
	}})
	return f
}

// parsed parses rules for decide.New.
func parsed(t *testing.T, text string) func() *descriptors.Rules {
	t.Helper()
	rules := rulesfiletest.Parse(t, text)
	return func() *descriptors.Rules { return rules }
}

func (f *fixture) call(t *testing.T, request string) (*ratelimitv3.RateLimitResponse, error) {
	t.Helper()
	var r ratelimitv3.RateLimitRequest
	must.Succeed(t, prototext.Unmarshal([]byte(request), &r))
	return f.ShouldRateLimit(context.Background(), &r)
}

func does(action string) string {
	return `{entries {key: "user_id" value: "alice"} entries {key: "action" value: "` + action + `"}}`
}

const once = `domain: "ugc" descriptors `

// Each case sends its steps to one service: wait, send the request, compare the response.
func TestShouldRateLimitResponses(t *testing.T) {
	type step struct {
		wait          time.Duration
		request, want string
	}
	for name, steps := range map[string][]step{
		"a fixed window: remaining, and the seconds until its end, rounded up": {
			{0, once + does("login"), `overall_code: OK statuses {code: OK current_limit {requests_per_unit: 3 unit: MINUTE}
				limit_remaining: 2 duration_until_reset {seconds: 60}}`},
			{0, once + does("login") + ` hits_addend: 2`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 3 unit: MINUTE} duration_until_reset {seconds: 60}}`},
			{30 * time.Second, once + does("login"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 3 unit: MINUTE} duration_until_reset {seconds: 30}}`},
			{29400 * time.Millisecond, once + does("login"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 3 unit: MINUTE} duration_until_reset {seconds: 1}}`},
			{600 * time.Millisecond, once + does("login"), `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 3 unit: MINUTE} limit_remaining: 2 duration_until_reset {seconds: 60}}`},
		},
		"a sliding log: the multiplier, and the retry delay of a denied hit": {
			{0, once + does("reply"), `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 3 unit: SECOND unit_multiplier {value: 5}}
				limit_remaining: 2 duration_until_reset {seconds: 5}}`},
			{2900 * time.Millisecond, once + does("reply") + ` hits_addend: 2`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 3 unit: SECOND unit_multiplier {value: 5}} duration_until_reset {seconds: 5}}`},
			{0, once + does("reply"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 3 unit: SECOND unit_multiplier {value: 5}} duration_until_reset {seconds: 3}}`},
		},
		"a funnel: the current limit is the rate, not the capacity": {
			{0, once + does("post") + ` hits_addend: 2`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 30 unit: MINUTE} duration_until_reset {seconds: 4}}`},
			{time.Millisecond, once + does("post"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 30 unit: MINUTE} duration_until_reset {seconds: 2}}`},
			{0, once + does("post") + ` hits_addend: 9`, `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 30 unit: MINUTE} duration_until_reset {seconds: 4}}`},
		},
		"hits that never fit: the reset is that of the key, which is unused": {
			{0, once + does("reply") + ` hits_addend: 4`, `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 3 unit: SECOND unit_multiplier {value: 5}} limit_remaining: 3
				duration_until_reset {}}`},
		},
		"a limit of 0": {
			{0, once + does("never"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {unit: WEEK} duration_until_reset {seconds: 475200}}`},
		},
		"a descriptor's own hits_addend overrides the request's, and 0 peeks": {
			{0, once + `{entries {key: "user_id" value: "a"} entries {key: "action" value: "login"} hits_addend {value: 0}}
				hits_addend: 3`, `overall_code: OK statuses {code: OK current_limit {requests_per_unit: 3 unit: MINUTE}
				limit_remaining: 3 duration_until_reset {seconds: 60}}`},
			{0, once + `{entries {key: "user_id" value: "a"} entries {key: "action" value: "login"} hits_addend {value: 2}}
				hits_addend: 9`, `overall_code: OK statuses {code: OK current_limit {requests_per_unit: 3 unit: MINUTE}
				limit_remaining: 1 duration_until_reset {seconds: 60}}`},
			{0, once + `{entries {key: "user_id" value: "a"} entries {key: "action" value: "login"}
				hits_addend {value: 18446744073709551615}}`, `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 3 unit: MINUTE} duration_until_reset {seconds: 60}}`},
		},
		"negative hits refund, and are always OK": {
			{0, once + does("post") + ` hits_addend: 2`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 30 unit: MINUTE} duration_until_reset {seconds: 4}}`},
			{0, once + `{entries {key: "user_id" value: "alice"} entries {key: "action" value: "post"} is_negative_hits: true}`,
				`overall_code: OK statuses {code: OK current_limit {requests_per_unit: 30 unit: MINUTE}
				limit_remaining: 1 duration_until_reset {seconds: 2}}`},
			{0, once + `{entries {key: "user_id" value: "alice"} entries {key: "action" value: "post"}
				is_negative_hits: true hits_addend {value: 18446744073709551615}}`,
				`overall_code: OK statuses {code: OK current_limit {requests_per_unit: 30 unit: MINUTE}
				limit_remaining: 2 duration_until_reset {}}`},
		},
		"an override replaces the rate and keeps the algorithm and the count": {
			{0, once + does("reply"), `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 3 unit: SECOND unit_multiplier {value: 5}}
				limit_remaining: 2 duration_until_reset {seconds: 5}}`},
			{time.Second, once + `{entries {key: "user_id" value: "alice"} entries {key: "action" value: "reply"}
				limit {requests_per_unit: 2 unit: SECOND unit_multiplier {value: 5}}}`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 2 unit: SECOND unit_multiplier {value: 5}} duration_until_reset {seconds: 5}}`},
			{0, once + `{entries {key: "user_id" value: "alice"} entries {key: "action" value: "reply"}
				limit {requests_per_unit: 2 unit: SECOND unit_multiplier {value: 5}}}`, `overall_code: OVER_LIMIT
				statuses {code: OVER_LIMIT current_limit {requests_per_unit: 2 unit: SECOND unit_multiplier {value: 5}}
				duration_until_reset {seconds: 4}}`},
		},
		"an override without a rule is a fixed window": {
			{0, once + `{entries {key: "tenant" value: "t"} limit {requests_per_unit: 1 unit: HOUR}}`, `overall_code: OK
				statuses {code: OK current_limit {requests_per_unit: 1 unit: HOUR} duration_until_reset {seconds: 3600}}`},
			{0, once + `{entries {key: "tenant" value: "t"} limit {requests_per_unit: 1 unit: HOUR}}`, `overall_code: OVER_LIMIT
				statuses {code: OVER_LIMIT current_limit {requests_per_unit: 1 unit: HOUR} duration_until_reset {seconds: 3600}}`},
		},
		"several limits of a descriptor: the one with the least remaining, or the denial with the longest wait": {
			{0, once + does("search") + ` hits_addend: 2`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 2 unit: SECOND} duration_until_reset {seconds: 1}}`},
			{0, once + does("search"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 2 unit: SECOND} duration_until_reset {seconds: 1}}`},
			{time.Second, once + does("search") + ` hits_addend: 2`, `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 2 unit: SECOND} duration_until_reset {seconds: 1}}`},
			{time.Second, once + does("search") + ` hits_addend: 2`, `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT
				current_limit {requests_per_unit: 5 unit: HOUR unit_multiplier {value: 6}}
				limit_remaining: 1 duration_until_reset {seconds: 21598}}`},
			{0, once + does("search"), `overall_code: OK statuses {code: OK
				current_limit {requests_per_unit: 5 unit: HOUR unit_multiplier {value: 6}} duration_until_reset {seconds: 21598}}`},
		},
		"one status per descriptor, in order, and the worst is the overall code": {
			{0, once + does("post") + ` descriptors ` + does("unknown") + ` descriptors ` + does("never") + ` descriptors {}`,
				`overall_code: OVER_LIMIT
				statuses {code: OK current_limit {requests_per_unit: 30 unit: MINUTE} limit_remaining: 1
					duration_until_reset {seconds: 2}}
				statuses {code: OK}
				statuses {code: OVER_LIMIT current_limit {unit: WEEK} duration_until_reset {seconds: 475200}}
				statuses {code: OK}`},
		},
		"two descriptors with one key are charged in order": {
			{0, once + does("login") + ` descriptors ` + does("login"), `overall_code: OK
				statuses {code: OK current_limit {requests_per_unit: 3 unit: MINUTE} limit_remaining: 2 duration_until_reset {seconds: 60}}
				statuses {code: OK current_limit {requests_per_unit: 3 unit: MINUTE} limit_remaining: 1 duration_until_reset {seconds: 60}}`},
		},
		"an unknown domain limits nothing, overrides included": {
			{0, `domain: "other" descriptors ` + does("never"), `overall_code: OK statuses {code: OK}`},
			{0, `domain: "other" descriptors {entries {key: "a"} limit {unit: DAY}}`, `overall_code: OK statuses {code: OK}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for i, s := range steps {
				f.store.now = f.store.now.Add(s.wait)
				got, err := f.call(t, s.request)
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				var want ratelimitv3.RateLimitResponse
				if err := prototext.Unmarshal([]byte(s.want), &want); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if denied := got.GetOverallCode() == codeOverLimit; denied != (got.GetDynamicMetadata().GetFields()["denied_by"] != nil) {
					t.Errorf("step %d: denied is %t, and the dynamic metadata is %v", i, denied, got.GetDynamicMetadata())
				}
				got.DynamicMetadata = nil
				if !proto.Equal(got, &want) {
					t.Errorf("step %d:\n got %v\nwant %v", i, got, &want)
				}
			}
		})
	}
}

func TestInvalidRequestIsInvalidArgument(t *testing.T) {
	for request, want := range map[string]string{
		`descriptors {entries {key: "a"}}`: "domain must not be empty",
		`domain: "ugc"`:                    "descriptor list must not be empty",
		once + `{entries {value: "v"}}`:    "descriptors[0]: entries[0]: the key must not be empty",
		once + does("post") + ` descriptors {entries {key: "a"} limit {}}`:                                                      "descriptors[1]: limit: unknown unit UNKNOWN",
		once + `{entries {key: "a"} limit {unit: 77}}`:                                                                          "descriptors[0]: limit: unknown unit 77",
		once + `{entries {key: "a"} limit {unit: DAY unit_multiplier {}}}`:                                                      "unit_multiplier must be greater than 0",
		once + `{entries {key: "a"} limit {unit: YEAR unit_multiplier {value: 11}}}`:                                            "want at most 10",
		once + `{entries {key: "user_id"} entries {key: "action" value: "reply"} limit {unit: DAY requests_per_unit: 1000001}}`: "funnel",
		`domain: "ugc"` + strings.Repeat(" descriptors {}", 101):                                                                "at most 100",
		once + "{" + strings.Repeat(`entries {key: "a"}`, 65) + "}":                                                             "descriptors[0]: too many entries: want at most 64",
		`domain: "ugc"` + strings.Repeat(" descriptors "+does("search"), 51):                                                    "descriptors[50]: the descriptors are under more than 100 limits",
	} {
		f := newFixture(t)
		response, err := f.call(t, request)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) || response != nil {
			t.Errorf("%.80s: %v, %v\nwant INVALID_ARGUMENT that says %q", request, response, err, want)
		}
		if len(f.observed) != 1 || f.observed[0].Code != codes.InvalidArgument {
			t.Errorf("%.80s: observed %+v", request, f.observed)
		}
	}
}

func TestMissingRulesAreUnavailable(t *testing.T) {
	s := New(decide.New(func() *descriptors.Rules { return nil }, limiterstest.NewReference(), decide.Options{}), Options{})
	r := &ratelimitv3.RateLimitRequest{}
	must.Succeed(t, prototext.Unmarshal([]byte(once+does("never")), r))
	if _, err := s.ShouldRateLimit(context.Background(), r); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("error %v, want UNAVAILABLE: no rate limit configuration loaded", err)
	}
}

func TestStoreErrorIsUnavailableAndNotShown(t *testing.T) {
	secret := errors.New("dial tcp 10.0.0.1: key alice")
	t.Run("in the whole call", func(t *testing.T) {
		f := newFixture(t)
		f.store.Err = secret
		_, err := f.call(t, once+does("post"))
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "alice") {
			t.Errorf("%v, want UNAVAILABLE without the store's error", err)
		}
		if a := f.observed[0]; !errors.Is(a.Err, secret) || a.Code != codes.Unavailable {
			t.Errorf("observed %+v, want the store's own error", a)
		}
	})
	failsReplies := func(key string) error {
		if strings.Contains(key, "reply") {
			return secret
		}
		return nil
	}
	t.Run("in one key, and no descriptor is denied", func(t *testing.T) {
		f := newFixture(t)
		f.store.OfKey = failsReplies
		_, err := f.call(t, once+does("post")+` descriptors `+does("reply"))
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "alice") || !errors.Is(f.observed[0].Err, secret) {
			t.Errorf("%v, observed %v", err, f.observed[0].Err)
		}
	})
	t.Run("in one key, and another descriptor is denied", func(t *testing.T) {
		f := newFixture(t)
		f.store.OfKey = failsReplies
		got, err := f.call(t, once+does("reply")+` descriptors `+does("never"))
		if err != nil || got.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT ||
			got.GetStatuses()[0].GetCode() != ratelimitv3.RateLimitResponse_UNKNOWN {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("in one of two limits of a descriptor", func(t *testing.T) {
		f := newFixture(t)
		ops := 0
		f.store.OfKey = func(key string) error {
			if ops++; strings.Contains(key, "search") && ops%2 == 1 {
				return secret
			}
			return nil
		}
		got, err := f.call(t, once+does("search")+` descriptors `+does("never"))
		if err != nil || got.GetStatuses()[0].GetCode() != ratelimitv3.RateLimitResponse_UNKNOWN || !errors.Is(f.observed[0].Err, secret) {
			t.Errorf("%v, %v, observed %v", got, err, f.observed[0].Err)
		}
	})
	t.Run("because the client canceled", func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		var r ratelimitv3.RateLimitRequest
		must.Succeed(t, prototext.Unmarshal([]byte(once+does("post")), &r))
		if _, err := f.ShouldRateLimit(ctx, &r); status.Code(err) != codes.Canceled {
			t.Errorf("%v, want CANCELED", err)
		}
	})
}

func TestObserverReceivesDecisions(t *testing.T) {
	f := newFixture(t)
	if _, err := f.call(t, once+does("never")+` descriptors `+does("search")+` descriptors {entries {key: "t"} limit {unit: DAY}} hits_addend: 2`); err != nil {
		t.Fatal(err)
	}
	a := f.observed[0]
	if !a.Denied || a.Code != codes.OK || a.Err != nil || a.Duration <= 0 {
		t.Errorf("%+v, want a denial, answered without an error", a)
	}
	var got []string
	for _, d := range a.Decisions {
		for _, v := range d.Verdicts {
			got = append(got, d.Domain+" "+d.RuleName()+" "+limiterstest.Format(v))
		}
		if d.Hits != 2 {
			t.Errorf("%+v: want 2 hits", d)
		}
	}
	if len(got) != 4 || !strings.HasPrefix(got[0], "ugc user_id.action=never denied") ||
		!strings.HasPrefix(got[1], "ugc user_id.action=search ok") || !strings.HasPrefix(got[3], "ugc  denied") {
		t.Errorf("log %q, want 4 lines: the first and the last denied, the second ok", got)
	}
}

// Envoy receives the slots of concurrency as requests_per_unit without a unit, and OK for each
// release and settle.
func TestResponsesShowSlotsAndEnds(t *testing.T) {
	f := newFixture(t)
	descriptor := func(key, id, rest string) string {
		return once + `{entries {key: "user_id" value: "u"} entries {key: "` + key + `" value: "` + id + `"} ` + rest + `}`
	}
	for _, c := range []struct {
		text      string
		code      ratelimitv3.RateLimitResponse_Code
		remaining uint32
		limit     uint32 // 0: no current_limit
	}{
		{descriptor("slot", "a", ""), codeOK, 1, 2},
		{descriptor("slot", "b", ""), codeOK, 0, 2},
		{descriptor("slot", "c", ""), codeOverLimit, 0, 2},
		{descriptor("slot", "", ""), codeOverLimit, 0, 0},
		{descriptor("slot", "a", "is_negative_hits: true"), codeOK, 1, 2},
		{descriptor("slot", "b", `entries {key: "release" value: "1"}`), codeOK, 2, 2},
		{descriptor("budget", "a", "hits_addend {value: 60}"), codeOK, 40, 100},
		{descriptor("budget", "b", "hits_addend {value: 60}"), codeOverLimit, 40, 100},
		{descriptor("budget", "a", `entries {key: "settle" value: "1"} hits_addend {value: 10}`), codeOK, 90, 100},
		{descriptor("budget", "", "is_negative_hits: true"), codeOK, 0, 0},
	} {
		r, err := f.call(t, c.text)
		must.Succeed(t, err)
		got := r.GetStatuses()[0]
		if got.GetCode() != c.code || got.GetLimitRemaining() != c.remaining || got.GetCurrentLimit().GetRequestsPerUnit() != c.limit {
			t.Errorf("%s: %v, want %v with %d remaining of %d", c.text, got, c.code, c.remaining, c.limit)
		}
		if strings.Contains(c.text, "slot") && got.GetCurrentLimit().GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN {
			t.Errorf("%s: unit %v, want UNKNOWN", c.text, got.GetCurrentLimit().GetUnit())
		}
	}
}

// Every request gets a response or an error, never a panic.
func FuzzShouldRateLimit(f *testing.F) {
	for _, text := range []string{once + does("post"), once + `{entries {key: "a"} limit {unit: 77}}`, `domain: "ugc"`,
		once + `{entries {key: "user_id"} entries {key: "action" value: "search"} is_negative_hits: true hits_addend {value: 1}}`,
		once + `{entries {key: "user_id"} entries {key: "slot" value: "a"}}`,
		once + `{entries {key: "user_id"} entries {key: "slot" value: "a"} entries {key: "release" value: "1"}}`,
		once + `{entries {key: "user_id"} entries {key: "budget" value: "a"} entries {key: "settle" value: "1"} hits_addend {value: 7}}`,
		once + `{entries {key: "user_id"} entries {key: "budget"} is_negative_hits: true hits_addend {}}`} {
		var r ratelimitv3.RateLimitRequest
		must.Succeed(f, prototext.Unmarshal([]byte(text), &r))
		wire, err := proto.Marshal(&r)
		must.Succeed(f, err)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var r ratelimitv3.RateLimitRequest
		if proto.Unmarshal(wire, &r) != nil {
			return
		}
		got, err := newFixture(t).ShouldRateLimit(context.Background(), &r)
		switch {
		case err != nil && status.Code(err) != codes.InvalidArgument:
			t.Errorf("%v: %v", &r, err)
		case err == nil && len(got.GetStatuses()) != len(r.GetDescriptors()):
			t.Errorf("%v: %d statuses for %d descriptors", &r, len(got.GetStatuses()), len(r.GetDescriptors()))
		}
	})
}

// A slowStore denies all operations for the longest wait.
type slowStore struct{ limiters.Store }

func (slowStore) Take(_ context.Context, _ []limiters.Group, out []limiters.Verdict) error {
	for i := range out {
		out[i] = limiters.Verdict{RetryAfter: math.MaxInt64}
	}
	return nil
}

func TestLongestWaitDoesNotOverflow(t *testing.T) {
	s := New(decide.New(parsed(t, standard), slowStore{}, decide.Options{}), Options{Headers: Headers{"limit", "remaining", "reset"}})
	r := decideKeys(t, s, "minute")
	const want = math.MaxInt64 / 1_000_000_000
	if got := r.GetStatuses()[0].GetDurationUntilReset().GetSeconds(); got != want || headersOf(t, r)["reset"] != strconv.Itoa(want) {
		t.Errorf("duration_until_reset of %d s, headers %v, want %d s", got, headersOf(t, r), want)
	}
}

// Calls are pooled, so one whose client left must not mark the next.
func TestCallOfAClientThatLeftDoesNotMarkTheNext(t *testing.T) {
	var givenUp []bool
	s := New(decide.New(parsed(t, standard), slowStore{}, decide.Options{}), Options{Observe: func(o *Observation) {
		givenUp = append(givenUp, o.Undecoded)
	}})
	for range 20 { // the pool may drop an exchange
		givenUp = nil
		serveUndecoded(s, status.Error(codes.Canceled, "canceled"))
		decideKeys(t, s, "minute")
		if !slices.Equal(givenUp, []bool{true, false}) {
			t.Fatalf("given up: %v, want only the first", givenUp)
		}
	}
}
