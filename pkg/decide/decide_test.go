package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

const onStoreError = `
domain: modes
on_store_error: allow
descriptors:
  - {key: unset, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: denied, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: deny}}
  - {key: shadowed, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: deny}}
  - {key: failing, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: error}}
  - {key: local, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: local}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: mixed
    rate_limits:
      - {unit: minute, requests_per_unit: 5}
      - {unit: hour, requests_per_unit: 3, on_store_error: local}
  - key: known
    rate_limits:
      - {unit: minute, requests_per_unit: 5}
      - {unit: hour, requests_per_unit: 30, on_store_error: local}
`

// A testStore decides at the time that the test sets, and fails as the test chooses.
type testStore struct {
	limiterstest.FailingStore
	now   time.Time
	calls int
}

var (
	start    = time.Date(2025, 11, 21, 12, 0, 0, 0, time.UTC)
	errStore = errors.New("dial tcp 10.0.0.1: key alice")
)

func newStore() *testStore {
	s := &testStore{now: start}
	s.Store = memstore.New(memstore.Options{Now: func() time.Time { return s.now }})
	return s
}

func (s *testStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	s.calls++
	return s.FailingStore.Take(ctx, groups, out)
}

// failsOn returns a function that fails for keys with an entry of that name.
func failsOn(name string) func(key string) error {
	return func(key string) error {
		if hasEntry(key, name) {
			return errStore
		}
		return nil
	}
}

// hasEntry reports whether a counter's key, as [descriptors.Key] makes it, has an entry with the
// key name.
func hasEntry(key, name string) bool {
	return strings.Contains(key, fmt.Sprintf("|%d:%s", len(name), name))
}

func newDeciderOn(t testing.TB, store limiters.Store, rules string, o Options) *Decider {
	t.Helper()
	parsed := rulesfiletest.Parse(t, rules)
	return New(func() *descriptors.Rules { return parsed }, store, o)
}

func newDecider(t testing.TB, rules string, o Options) *Decider {
	t.Helper()
	return newDeciderOn(t, newStore(), rules, o)
}

// request returns a request of one hit for each of keys. A key with a "!" has a limit in the
// request, of 0 a day.
func request(keys string) *Request {
	r := &Request{Domain: "modes"}
	for _, key := range strings.Fields(keys) {
		key, overridden := strings.CutSuffix(key, "!")
		d := Descriptor{Entries: []descriptors.Entry{{Key: key, Value: "v"}}, Hits: 1}
		if overridden {
			d.Override = &Override{Unit: descriptors.Day}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func decideKeys(t testing.TB, d *Decider, keys string) string {
	t.Helper()
	var result Result
	if err := d.Decide(t.Context(), request(keys), &result); err != nil {
		t.Fatalf("decide %s: %v", keys, err)
	}
	return outcomesText(&result)
}

// outcomesText returns a result as text: the outcome of the request, a colon, and the outcome of
// each descriptor. In brackets are the remaining hits, the limit and its name. For example,
// "denied: allowed(99/100 free) denied(0/0)" is a denied request of two descriptors. The first has
// 99 of the 100 hits of the limit "free" left, and the second is denied by a limit of 0 without a
// name.
func outcomesText(r *Result) string {
	names := map[Outcome]string{Allowed: "allowed", Denied: "denied", Undecided: "undecided"}
	text := requestText(r)
	for i := range r.Decisions {
		d := &r.Decisions[i]
		text += " " + names[d.Outcome]
		if l, v := d.DecidingLimit(); l != nil {
			text += "(" + strings.TrimSpace(fmt.Sprintf("%d/%d %s", v.Remaining, l.RequestsPerUnit, l.Name)) + ")"
		} else if d.Reason == Unlimited {
			text += "(unlimited)"
		}
	}
	return text
}

// requestText returns "denied:", "allowed:" or, if only shadow mode allows r, "shadowed:".
func requestText(r *Result) string {
	switch {
	case r.Denied && r.Shadowed:
		return "denied and shadowed:" // a bug
	case r.Denied:
		return "denied:"
	case r.Shadowed:
		return "shadowed:"
	default:
		return "allowed:"
	}
}

// A decision that some code forgets to fill must not allow its descriptor.
func TestZeroOutcomeAllowsNothing(t *testing.T) {
	var c CombinedOutcome
	c.Add(&Decision{Plan: &Plan{}})
	if !c.Undecided() {
		t.Error("a request with a zero Decision is decided, want undecided")
	}
}

func TestFailedRuleFailsItsRequestOnlyIfEnforced(t *testing.T) {
	for _, c := range []struct {
		name                  string
		options               Options
		failEntry, keys, want string
	}{
		{"shadowed fails, free allows", Options{}, "shadowed", "free shadowed", "allowed: allowed(99/100 free) allowed"},
		{"shadowed fails, full denies", Options{}, "shadowed", "full shadowed", "denied: denied(0/0) allowed"},
		{"shadowed fails alone", Options{}, "shadowed", "shadowed", "allowed: allowed"},
		{"an enforced rule fails", Options{}, "free", "free shadowed", storeFailed},
		{"an enforced rule fails, another denies", Options{}, "free", "full free", "denied: denied(0/0) undecided"},
		{"every rule is in shadow mode", Options{ShadowMode: true}, "free", "free", "allowed: undecided"},
	} {
		t.Run(c.name, func(t *testing.T) { mustFailOnly(t, c.options, c.failEntry, c.keys, c.want) })
	}
}

// Quotas deny a request only together, so one that allows it decides, whatever the others say.
func TestUndecidedQuotaFailsARequestOnlyIfNoQuotaAllowsIt(t *testing.T) {
	for _, c := range []struct{ name, failEntry, keys, want string }{
		{"another quota allows", "quota_full", "quota_full quota_free", "allowed: undecided allowed(99/100)"},
		{"another quota and a limit allow", "quota_full", "quota_full quota_free free", "allowed: undecided allowed(99/100) allowed(99/100 free)"},
		{"another quota allows, a limit denies", "quota_full", "quota_full quota_free full", "denied: undecided allowed(99/100) denied(0/0)"},
		{"the other quota denies", "quota_free", "quota_full quota_free", storeFailed},
		{"only a limit allows", "quota_free", "quota_free free", storeFailed},
		{"the limit fails, not the quota", "free", "quota_free free", storeFailed},
	} {
		t.Run(c.name, func(t *testing.T) { mustFailOnly(t, Options{}, c.failEntry, c.keys, c.want) })
	}
}

// storeFailed is the want of a request that Decide rejects with an error of the kind [StoreFailed].
const storeFailed = "StoreFailed"

// mustFailOnly decides keys while the store fails for keys with failEntry. It compares the result
// with want, or expects storeFailed.
func mustFailOnly(t *testing.T, o Options, failEntry, keys, want string) {
	t.Helper()
	store := newStore()
	store.OfKey = failsOn(failEntry)
	var result Result
	err := newDeciderOn(t, store, modes, o).Decide(t.Context(), request(keys), &result)
	if want == storeFailed {
		if kindOf(err) != StoreFailed {
			t.Errorf("%+v %s: %v, want StoreFailed", o, keys, err)
		}
	} else if got := outcomesText(&result); err != nil || got != want {
		t.Errorf("%+v %s: %s %v, want %s", o, keys, got, err, want)
	}
	if !errors.Is(result.StoreErr, errStore) {
		t.Errorf("%+v %s: StoreErr is %v, want %v", o, keys, result.StoreErr, errStore)
	}
}

func kindOf(err error) ErrorKind {
	var e *Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Kind
}

// If the store failed for the deciding limit, the descriptor reports no limit, and so no remaining
// hits and no reset.
func TestOnStoreErrorDecides(t *testing.T) {
	onFallback := func(t *testing.T, o guard.FallbackOptions) *Decider {
		down := newStore()
		down.Err = errStore
		return newDeciderOn(t, guard.NewFallback(down, o), onStoreError, Options{})
	}
	for _, c := range []struct{ name, keys, want string }{
		{"the domain's allow", "unset", "allowed: allowed"},
		{"the domain's allow, a limit in the request", "unset!", "allowed: allowed"},
		{"an unlimited rule, a limit in the request", "free!", "allowed: allowed"},
		{"no rule, a limit in the request", "nobody!", "allowed: allowed"},
		{"deny in shadow mode", "shadowed", "allowed: allowed"},
		{"deny", "denied", "denied: denied"},
		{"deny, a limit in the request", "denied!", "denied: denied"},
		{"allow and deny", "unset denied", "denied: allowed denied"},
		{"local", "local", "allowed: allowed(4/5)"},
		// A limit that on_store_error: allow decided has no numbers, so the result has those of the
		// other limit.
		{"allow, and local with fewer hits, in one rule", "mixed", "allowed: allowed(2/3)"},
		{"allow, and local with more hits, in one rule", "known", "allowed: allowed(29/30)"},
		// The request is denied, even if the store failed for another limit.
		{"error and deny", "failing denied", "denied: undecided denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var result Result
			if err := onFallback(t, guard.FallbackOptions{Local: newStore()}).Decide(t.Context(), request(c.keys), &result); err != nil {
				t.Fatal(err)
			}
			if got := outcomesText(&result); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			for i := range result.Decisions {
				d := &result.Decisions[i]
				if l, _ := d.DecidingLimit(); l == nil && (d.Remaining() != 0 || d.Verdicts[d.DecidingLimitIndex].ResetAfter != 0) {
					t.Errorf("descriptor %d: %d remaining, verdicts %+v, want no remaining hits and no reset", i, d.Remaining(), d.Verdicts)
				}
			}
		})
	}
	for _, key := range []string{"failing", "local"} {
		t.Run(key+" without memory", func(t *testing.T) {
			var result Result
			if err := onFallback(t, guard.FallbackOptions{}).Decide(t.Context(), request(key), &result); kindOf(err) != StoreFailed {
				t.Errorf("%v, want StoreFailed", err)
			}
		})
	}
}

// An onErrorRecorder records the OnStoreError of each operation.
type onErrorRecorder struct {
	limiters.Store
	got []string
}

func (r *onErrorRecorder) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	var onStoreErrors []limiters.OnStoreError
	for _, op := range slices.Concat(groups...) {
		onStoreErrors = append(onStoreErrors, op.OnStoreError)
	}
	r.got = append(r.got, fmt.Sprintf("%d: %v", len(out), onStoreErrors))
	return r.Store.Take(ctx, groups, out)
}

func TestEachOpHasTheOnStoreErrorOfItsLimit(t *testing.T) {
	const rules = `
domain: modes
on_store_error: allow
descriptors:
  - {key: full, rate_limit: {unit: hour, requests_per_unit: 0, on_store_error: deny}}
  - key: user
    descriptors:
      - key: lease
        rate_limits:
          - {unit: hour, requests_per_unit: 7}
          - {algorithm: concurrency, concurrent_requests: 2, on_store_error: local}
`
	for _, c := range []struct {
		name    string
		lease   string
		options Options
		want    []string
	}{
		{"the last call ends the lease", "a", Options{}, []string{"3: [deny allow local]", "1: [local]"}},
		{"a bad lease adds a denying operation", strings.Repeat("a", MaxLeaseIDBytes+1), Options{AllOrNothing: true}, []string{"2: [deny ]"}},
	} {
		store := &onErrorRecorder{Store: newStore()}
		var result Result
		err := newDeciderOn(t, store, rules, c.options).Decide(t.Context(), leaseRequest("full", "user lease="+c.lease), &result)
		if err != nil || !slices.Equal(store.got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, store.got, err, c.want)
		}
	}
}

func TestVerdictNamesItsSource(t *testing.T) {
	down := newStore()
	down.Err = errStore
	d := newDeciderOn(t, guard.NewFallback(down, guard.FallbackOptions{Local: newStore()}), onStoreError, Options{})
	var result Result
	must.Succeed(t, d.Decide(t.Context(), request("local denied"), &result))
	local, denied := &result.Decisions[0], &result.Decisions[1]
	if local.Verdicts[0].By != limiters.ByShare || denied.Verdicts[0].By != limiters.ByPolicy || denied.Reason != StorePolicy {
		t.Errorf("got by=%v for local, by=%v and reason %v for denied, want share, policy and store_policy",
			local.Verdicts[0].By, denied.Verdicts[0].By, denied.Reason)
	}
}

func TestReasonExplainsEachVerdict(t *testing.T) {
	rules := modes + `
  - {key: log, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 3}}
  - {key: failing, rate_limit: {unit: hour, requests_per_unit: 5}}
`
	cases := []struct {
		key    string // empty: a descriptor without entries
		hits   int64
		reason Reason
	}{
		{"nobody", 1, NoRule},
		{"unlimited", 1, Unlimited},
		{"named", 1, Replaced},
		{"replacing", 1, WithinLimit},
		{"free", 1, WithinLimit},
		{"full", 1, NeverFits},
		{"shadowed", 1, NeverFits},
		{"log", 1, WithinLimit},
		{"log", 1, WithinLimit},
		{"log", 1, WithinLimit},
		{"log", 1, OverLimit},
		{"log", 4, NeverFits}, // the limit is 3
		{"failing", 1, StoreError},
		{"", 0, NoEntries},
	}
	store := newStore()
	store.OfKey = failsOn("failing")
	r := &Request{Domain: "modes"}
	for _, c := range cases {
		d := Descriptor{Hits: c.hits}
		if c.key != "" {
			d.Entries = []descriptors.Entry{{Key: c.key, Value: "v"}}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	var result Result
	must.Succeed(t, newDeciderOn(t, store, rules, Options{}).Decide(t.Context(), r, &result))
	for i, c := range cases {
		if got := result.Decisions[i].Reason; got != c.reason {
			t.Errorf("descriptor %d, %d hits of %q: reason %v, want %v", i, c.hits, c.key, got, c.reason)
		}
	}
}

// The result is reused after a denial, of which nothing must remain.
func TestUnknownDomainAllowsEveryDescriptor(t *testing.T) {
	d := newDecider(t, modes, Options{})
	r := request("nobody full free")
	r.Descriptors = append(r.Descriptors, Descriptor{})
	var result Result
	if err := d.Decide(t.Context(), r, &result); err != nil || !result.Denied || result.UnknownDomain {
		t.Fatalf("domain modes: error %v, denied %t, UnknownDomain %t, want a denial", err, result.Denied, result.UnknownDomain)
	}
	r.Domain = "other"
	must.Succeed(t, d.Decide(t.Context(), r, &result))
	if !result.UnknownDomain || len(result.Decisions) != len(r.Descriptors) {
		t.Errorf("UnknownDomain %t with %d decisions, want true with %d", result.UnknownDomain, len(result.Decisions), len(r.Descriptors))
	}
	for i := range result.Decisions {
		if d := &result.Decisions[i]; d.Reason != UnknownDomain || d.Outcome != Allowed {
			t.Errorf("descriptor %d: allowed %t, reason %v, want true, unknown_domain", i, d.Outcome == Allowed, d.Reason)
		}
	}
}

// Hits that can never fit have no retry delay. Reset is then the time until the funnel is empty, 0
// for an unused one.
func TestHitsThatNeverFitHaveNoRetryAfter(t *testing.T) {
	const rules = `
domain: modes
descriptors:
  - {key: funnel, rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 5, capacity: 10}}
`
	d := newDecider(t, rules, Options{})
	var result Result
	never := request("funnel")
	never.Descriptors[0].Hits = 15
	for _, c := range []struct {
		hits  int64
		want  Reason
		retry time.Duration
		reset time.Duration
	}{
		{15, NeverFits, -time.Microsecond, 0},
		{10, WithinLimit, 0, 2 * time.Second},
		{15, NeverFits, -time.Microsecond, 2 * time.Second},
		{4, OverLimit, 800 * time.Millisecond, 2 * time.Second},
	} {
		r := request("funnel")
		r.Descriptors[0].Hits = c.hits
		must.Succeed(t, d.Decide(t.Context(), r, &result))
		reason := result.Decisions[0].Reason
		if _, v := result.Decisions[0].DecidingLimit(); reason != c.want || v == nil || v.RetryAfter != c.retry || v.ResetAfter != c.reset {
			t.Errorf("%d hits: %v by %+v, want %v, retry after %v and reset after %v", c.hits, reason, v, c.want, c.retry, c.reset)
		}
	}
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	many := func(n int, d Descriptor) (all []Descriptor) {
		for range n {
			all = append(all, d)
		}
		return all
	}
	good := Descriptor{Entries: []descriptors.Entry{{Key: "free"}}, Hits: 1}
	for want, r := range map[string]*Request{
		"domain must not be empty":          {Descriptors: []Descriptor{good}},
		"descriptor list must not be empty": {Domain: "modes"},
		"want at most 100":                  {Domain: "modes", Descriptors: many(101, good)},
		"descriptors[1]: entries[0]: the key must not be empty": {Domain: "modes",
			Descriptors: []Descriptor{good, {Entries: []descriptors.Entry{{Value: "v"}}}}},
		"descriptors[0]: too many entries: want at most 64": {Domain: "modes",
			Descriptors: []Descriptor{{Entries: slices.Repeat(good.Entries, 65)}}},
		"descriptors[1]: a refund must not have positive hits": {Domain: "modes",
			Descriptors: []Descriptor{good, {Entries: good.Entries, Hits: 5, Refund: true}}},
		"descriptors[0]: limit: ": {Domain: "modes",
			Descriptors: []Descriptor{{Entries: good.Entries, Override: &Override{Unit: descriptors.Year, UnitMultiplier: 11}}}},
		"descriptors[50]: the descriptors are under more than 100 limits": {Domain: "modes",
			Descriptors: many(51, Descriptor{Entries: []descriptors.Entry{{Key: "mixed"}}})},
	} {
		store := newStore()
		d := newDeciderOn(t, store, strings.Replace(onStoreError, "free", "free2", 1)+"  - {key: free, rate_limit: {unlimited: true}}\n", Options{})
		var result Result
		err := d.Decide(t.Context(), r, &result)
		if kindOf(err) != InvalidRequest || !strings.Contains(err.Error(), want) || store.calls > 0 || len(result.Decisions) > 0 {
			t.Errorf("got error %v, %d calls, %d decisions, want InvalidRequest that says %q, without calls and decisions",
				err, store.calls, len(result.Decisions), want)
		}
		if result.Domain != "" || result.Rules != nil || len(result.Plans) > 0 {
			t.Errorf("%v: domain %q, rules %p, %d plans, want none", err, result.Domain, result.Rules, len(result.Plans))
		}
	}
}

func TestDecideErrorsHaveKinds(t *testing.T) {
	var result Result
	d := New(func() *descriptors.Rules { return nil }, newStore(), Options{})
	if err := d.Decide(t.Context(), request("free"), &result); kindOf(err) != NoRules {
		t.Errorf("without rules: %v", err)
	}
	store := newStore()
	store.Err = errStore
	d = newDeciderOn(t, store, modes, Options{})
	err := d.Decide(t.Context(), request("free"), &result)
	if kindOf(err) != StoreFailed || strings.Contains(err.Error(), "alice") || !errors.Is(err, errStore) || !errors.Is(result.StoreErr, errStore) {
		t.Errorf("store down: %v, %v: want the store's words in the cause only", err, result.StoreErr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Decide(ctx, request("free"), &result); kindOf(err) != ContextEnded || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestHitsAreChargedPeekedAndRefunded(t *testing.T) {
	d := newDecider(t, modes, Options{})
	for i, c := range []struct {
		hits int64
		want string
	}{{3, "allowed: allowed(97/100 free)"}, {0, "allowed: allowed(97/100 free)"}, {-2, "allowed: allowed(99/100 free)"}, {-1 << 63, "allowed: allowed(100/100 free)"}, {1<<63 - 1, "denied: denied(0/100 free)"}} {
		r := request("free")
		r.Descriptors[0].Hits = c.hits
		var result Result
		if err := d.Decide(t.Context(), r, &result); err != nil || outcomesText(&result) != c.want {
			t.Errorf("step %d, %d hits: %s, %v, want %s", i, c.hits, outcomesText(&result), err, c.want)
		}
	}
}

// An upstream may refund 0 hits at the end of a request. As a peek, this would be denied under a
// full limit. Then it would count as an offense, and keep the other limits of the request from
// being charged.
func TestRefundOfNoHitsIsNeverDenied(t *testing.T) {
	const rules = `
domain: modes
descriptors:
  - key: penalized
    rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 1, penalty: {after: 1, within: 1m, for: 10m}}
  - {key: tokens, rate_limit: {unit: day, requests_per_unit: 5, count_denied: false}}
`
	store := newStore()
	d := newDeciderOn(t, store, rules, Options{AllOrNothing: true})
	for _, step := range []struct {
		after   time.Duration
		keys    string
		refunds bool // 0 hits of the first key
		want    string
	}{
		{0, "penalized", false, "allowed: allowed(0/1)"},
		{0, "penalized tokens", true, "allowed: allowed allowed(4/5)"},
		{0, "penalized", true, "allowed: allowed"},
		{2 * time.Minute, "penalized tokens", false, "allowed: allowed(0/1) allowed(3/5)"},
	} {
		r := request(step.keys)
		store.now = start.Add(step.after)
		if step.refunds {
			r.Descriptors[0].Hits, r.Descriptors[0].Refund = 0, true
		}
		var result Result
		if err := d.Decide(t.Context(), r, &result); err != nil || outcomesText(&result) != step.want {
			t.Errorf("after %v, %s, a refund: %v: %s, %v, want %s", step.after, step.keys, step.refunds, outcomesText(&result), err, step.want)
		}
	}
}

// A noStore allows everything and allocates nothing.
type noStore struct{ limiters.Store }

func (noStore) Take(_ context.Context, _ []limiters.Group, out []limiters.Verdict) error {
	for i := range out {
		out[i] = limiters.Verdict{Allowed: true}
	}
	return nil
}

func TestReusedResultAllocatesOnlyKeys(t *testing.T) {
	d := newDeciderOn(t, noStore{}, modes, Options{AllOrNothing: true})
	r := request("free quota_free named full!")
	var result Result
	n := testing.AllocsPerRun(100, func() {
		must.Succeed(t, d.Decide(t.Context(), r, &result))
	})
	if n > 4 {
		t.Errorf("%v allocations, want one per key", n)
	}
}

// A reused Result must contain nothing of the previous request.
func TestReusedResultIsEmptied(t *testing.T) {
	d := newDecider(t, modes, Options{})
	var reused Result
	for _, keys := range []string{"full free unlimited", "nobody nobody", "free! shadowed", "nobody", "full nobody"} {
		must.Succeed(t, d.Decide(t.Context(), request(keys), &reused))
		if got, want := len(reused.Decisions), len(strings.Fields(keys)); got != want {
			t.Errorf("%s: %d decisions, want %d", keys, got, want)
		}
		for i := range reused.Decisions {
			if d := &reused.Decisions[i]; d.Reason == NoRule && (d.Verdicts != nil || d.Limits != nil || d.Outcome != Allowed) {
				t.Errorf("%s: decision %d is %+v, want an allowed one without limits, because no rule matches", keys, i, d)
			}
		}
	}
}

func TestLongestWaitExplainsDenial(t *testing.T) {
	const rules = `
domain: modes
descriptors:
  - key: two
    rate_limits:
      - {unit: minute, requests_per_unit: 1, name: minute}
      - {unit: hour, requests_per_unit: 1, name: hour}
      - {unit: second, requests_per_unit: 1, name: second}
`
	d := newDecider(t, rules, Options{})
	for _, want := range []string{"allowed: allowed(0/1 minute)", "denied: denied(0/1 hour)"} {
		if got := decideKeys(t, d, "two"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
