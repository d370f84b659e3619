package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// leaseRules has rules with leases, and others beside them. "lease" is the id of the request.
const leaseRules = `
domain: modes
descriptors:
  - {key: full, rate_limit: {unit: hour, requests_per_unit: 0, count_denied: false}}
  - {key: quota_full, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0, count_denied: false}}
  - {key: free, rate_limit: {unit: hour, requests_per_unit: 100, count_denied: false}}
  - {key: ordinary, rate_limit: {unit: hour, requests_per_unit: 50, count_denied: false}}
  - {key: marked, descriptors: [{key: release, rate_limit: {unit: hour, requests_per_unit: 60, count_denied: false}}]}
  - {key: replacing, rate_limit: {unit: hour, requests_per_unit: 70, count_denied: false, replaces: [{name: slots}]}}
  - {key: user, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 2}}]}
  - {key: quota, descriptors: [{key: lease, quota_mode: true, rate_limit: {algorithm: concurrency, concurrent_requests: 2}}]}
  - {key: shadowed, descriptors: [{key: lease, shadow_mode: true, rate_limit: {algorithm: concurrency, concurrent_requests: 1}}]}
  - {key: named, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 2, name: slots}}]}
  - {key: budget, descriptors: [{key: lease, rate_limit: {algorithm: fixed_window, unit: hour, requests_per_unit: 100, reserve: {ttl: 60s}}}]}
  - key: both
    descriptors:
      - key: lease
        rate_limits:
          - {algorithm: concurrency, concurrent_requests: 2}
          - {unit: hour, requests_per_unit: 7, count_denied: false}
  - key: second
    descriptors:
      - key: lease
        rate_limits:
          - {unit: hour, requests_per_unit: 7, count_denied: false}
          - {algorithm: concurrency, concurrent_requests: 2}
`

func newLeaseDecider(t testing.TB, store limiters.Store, o Options) *Decider {
	t.Helper()
	return newDeciderOn(t, store, leaseRules, o)
}

// A leaseStore is a testStore whose calls a test intercepts. It keeps the operations of each call.
type leaseStore struct {
	*testStore
	opsOfCalls [][]limiters.Op
	// intercept, if not nil, decides the call of an index instead of take.
	intercept func(call int, ctx context.Context, take func(context.Context) error, out []limiters.Verdict) error
}

func newLeaseStore() *leaseStore { return &leaseStore{testStore: newStore()} }

func (s *leaseStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	var ops []limiters.Op
	for _, g := range groups {
		ops = append(ops, g...)
	}
	s.opsOfCalls = append(s.opsOfCalls, ops)
	take := func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return limiters.FailAll(out, err)
		}
		return s.testStore.Take(ctx, groups, out)
	}
	if s.intercept == nil {
		return take(ctx)
	}
	if err := s.intercept(len(s.opsOfCalls)-1, ctx, take, out); err != nil {
		return limiters.FailAll(out, err)
	}
	return nil
}

// leaseRequest returns a request with a descriptor for each text: [-][hits] key[=value]... The
// default hits are 1, and the default value is "1". A "-" makes the hits a refund. "7 user=u
// lease=a settle" has 7 hits and the entries (user, u), (lease, a) and (settle, 1).
func leaseRequest(texts ...string) *Request {
	r := &Request{Domain: "modes"}
	for _, text := range texts {
		d := Descriptor{Hits: 1}
		text, d.Refund = strings.CutPrefix(text, "-")
		for field := range strings.FieldsSeq(text) {
			if _, err := fmt.Sscanf(field, "%d", &d.Hits); err == nil {
				continue
			}
			key, value, found := strings.Cut(field, "=")
			if !found {
				value = "1"
			}
			d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
		}
		if d.Refund {
			d.Hits = -d.Hits
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// decideReasons decides a request of texts, see leaseRequest, and returns its reasons.
func decideReasons(t *testing.T, d *Decider, texts ...string) string {
	t.Helper()
	var result Result
	if err := d.Decide(t.Context(), leaseRequest(texts...), &result); err != nil {
		t.Fatalf("decide %q: %v", texts, err)
	}
	return reasons(&result)
}

// reasons returns a result as text: the outcome of the request, a colon, and the reason of each
// descriptor, with its remaining hits in brackets if a limit decides. For example, "denied:
// within_limit(99) over_limit(0)" is a denied request of two descriptors.
func reasons(r *Result) string {
	text := requestText(r)
	for i := range r.Decisions {
		d := &r.Decisions[i]
		text += " " + d.Reason.String()
		if _, v := d.DecidingLimit(); v != nil {
			text += fmt.Sprintf("(%d)", v.Remaining)
		}
	}
	return text
}

func wantReasons(t *testing.T, d *Decider, want string, texts ...string) {
	t.Helper()
	if got := decideReasons(t, d, texts...); got != want {
		t.Errorf("%q: %s, want %s", texts, got, want)
	}
}

func TestLeaseIsTakenAndReleased(t *testing.T) {
	for release, reason := range map[string]string{
		"-user=u lease=a":         "released",
		"-0 user=u lease=a":       "released",
		"-7 user=u lease=a":       "released",
		"user=u lease=a release":  "released",
		"-user=u lease=a release": "released",
		"-user=u lease=a settle":  "released",
		"0 user=u lease=a settle": "settled",
	} {
		t.Run(release, func(t *testing.T) {
			d := newLeaseDecider(t, newLeaseStore(), Options{})
			wantReasons(t, d, "allowed: within_limit(1)", "user=u lease=a")
			wantReasons(t, d, "allowed: within_limit(1)", "user=u lease=a") // held already
			wantReasons(t, d, "allowed: within_limit(0)", "user=u lease=b")
			wantReasons(t, d, "denied: over_limit(0)", "user=u lease=c")
			wantReasons(t, d, "allowed: "+reason+"(1)", release)
			wantReasons(t, d, "allowed: "+reason+"(1)", release)
			wantReasons(t, d, "allowed: within_limit(0)", "user=u lease=c")
		})
	}
}

func TestLeasesOfUsersAreIndependent(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	wantReasons(t, d, "allowed: within_limit(1)", "user=u lease=a")
	wantReasons(t, d, "allowed: within_limit(1)", "user=other lease=a")
	wantReasons(t, d, "allowed: released(2)", "user=u lease=a release")
	wantReasons(t, d, "allowed: within_limit(1)", "user=other lease=a") // held already
}

func TestPeekOpensNoLease(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	wantReasons(t, d, "allowed: within_limit(2)", "0 user=u lease=a")
	wantReasons(t, d, "allowed: within_limit(2)", "0 user=u lease=c")
}

func TestReleaseTouchesOnlyLimitsWithLeases(t *testing.T) {
	store := newLeaseStore()
	d := newLeaseDecider(t, store, Options{})
	wantReasons(t, d, "allowed: within_limit(1)", "both=u lease=a")
	wantReasons(t, d, "allowed: released(2)", "-both=u lease=a")
	wantReasons(t, d, "allowed: within_limit(1)", "both=u lease=b")
	var result Result
	must.Succeed(t, d.Decide(t.Context(), leaseRequest("0 both=u lease=c"), &result))
	if rate := result.Decisions[0].Verdicts[1]; rate.Used != 2 {
		t.Errorf("the limit beside the leases has %d hits, want 2: no release refunds them", rate.Used)
	}
	if ops := store.opsOfCalls[0]; ops[0].Key != ops[1].Key || strings.Contains(ops[0].Key, "1:a") {
		t.Errorf("keys %q and %q, want one key without the lease id", ops[0].Key, ops[1].Key)
	}
}

func TestEndMarkersAreOrdinaryKeysElsewhere(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	wantReasons(t, d, "allowed: within_limit(59)", "marked=u release")
	for _, text := range []string{"free=u release", "user=u release", "release", "settle", "user=u lease=a other", "user=u lease=a release release"} {
		wantReasons(t, d, "allowed: no_rule", text)
	}
	wantReasons(t, d, "allowed: within_limit(50)", "-ordinary=u")
}

func TestBadLeaseIDIsDenied(t *testing.T) {
	long, longest := strings.Repeat("x", MaxLeaseIDBytes+1), strings.Repeat("x", MaxLeaseIDBytes)
	store := newLeaseStore()
	for _, allOrNothing := range []bool{false, true} {
		d := newLeaseDecider(t, store, Options{AllOrNothing: allOrNothing})
		store.opsOfCalls = nil
		for text, want := range map[string]string{
			"user=u lease=": "denied: bad_lease_id", "user=u lease=" + long: "denied: bad_lease_id", "0 user=u lease=": "denied: bad_lease_id",
			"-user=u lease=": "allowed: bad_lease_id", "user=u lease= release": "allowed: bad_lease_id",
			"0 user=u lease=" + long + " settle": "allowed: bad_lease_id", "shadowed=u lease=": "allowed: bad_lease_id", "quota=u lease=": "denied: bad_lease_id",
		} {
			wantReasons(t, d, want, text)
		}
		if len(store.opsOfCalls) > 0 {
			t.Errorf("the store got %v", store.opsOfCalls)
		}
		wantReasons(t, d, "allowed: within_limit(1)", fmt.Sprintf("user=%t lease=%s", allOrNothing, longest))
	}
	d := newLeaseDecider(t, store, Options{AllOrNothing: true})
	wantReasons(t, d, "denied: within_limit(100) bad_lease_id within_limit(2)", "free=u", "user=u lease=", "user=u lease=a")
	wantReasons(t, d, "allowed: within_limit(99)", "free=u")
	wantReasons(t, d, "allowed: within_limit(1)", "user=u lease=b")
	// A full quota does not deny a request that has another quota with room.
	wantReasons(t, d, "allowed: within_limit(1) bad_lease_id", "quota=u lease=a", "quota=u lease=")
}

// The end of a lease is under one of two limits. Metrics, weir tail and weir test name that limit
// by its index in the rule.
func TestEndNamesItsLimitByTheIndexInTheRule(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	var r Result
	must.Succeed(t, d.Decide(t.Context(), leaseRequest("second=u lease=a release"), &r))
	end := &r.Decisions[0]
	if got := end.LimitLabel(end.DecidingLimitIndex); len(end.Limits) != 1 || got != "1" {
		t.Errorf("limit %s of %d, want 1 of 1", got, len(end.Limits))
	}
	request := leaseRequest("user=u lease=a release")
	request.Descriptors[0].Override = &Override{RequestsPerUnit: 5, Unit: descriptors.Second}
	must.Succeed(t, d.Decide(t.Context(), request, &r))
	if end = &r.Decisions[0]; len(end.Limits) > 0 && end.IndexInRule(0) != 0 {
		t.Errorf("limit %d, want 0, because the limit came with the request", end.IndexInRule(0))
	}
}

func TestReplacedRuleNeedsNoLeaseID(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	wantReasons(t, d, "allowed: replaced within_limit(69)", "named=u lease=", "replacing=u")
}

// Waiting does not help a request with a bad lease id, so another quota that only needs time sets
// the wait.
func TestRetryAfterOfBadLeaseID(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	wantReasons(t, d, "allowed: within_limit(1) within_limit(0)", "quota=u lease=a", "quota=u lease=c")
	for _, c := range []struct {
		texts      []string
		descriptor int
		waits      bool
		canWait    bool
	}{
		{[]string{"user=u lease=", "quota=u lease=b"}, 0, true, false},
		{[]string{"quota=u lease=", "quota=u lease=b"}, 1, true, true},
		{[]string{"free=u", "user=u lease="}, 1, false, false},
		{[]string{"free=u"}, -1, false, false},
	} {
		var r Result
		must.Succeed(t, d.Decide(t.Context(), leaseRequest(c.texts...), &r))
		wait, descriptor := r.RetryAfter(), r.DenyingDescriptorIndex()
		if descriptor != c.descriptor || wait > 0 != c.waits || descriptor >= 0 && r.Decisions[descriptor].MayFitLater() != c.canWait {
			t.Errorf("%q: %s: wait %v by descriptor %d, want %+v", c.texts, reasons(&r), wait, descriptor, c)
		}
	}
}

// A key with as many open reservations as it may have denies a further one. An error would let
// Envoy admit the request.
func TestTooManyLeasesAreDenied(t *testing.T) {
	d := newLeaseDecider(t, newStore(), Options{})
	for i := range limiters.MaxLeases {
		wantReasons(t, d, "allowed: within_limit(100)", fmt.Sprintf("0 budget=u lease=%d", i))
	}
	wantReasons(t, d, "denied: too_many_leases(100)", "0 budget=u lease=further")
	wantReasons(t, d, "allowed: settled(100)", "0 budget=u lease=7 settle")
	wantReasons(t, d, "allowed: within_limit(100)", "0 budget=u lease=further")
}

// The end of a lease is in no group: it succeeds even if another descriptor of its request is
// denied.
func TestEndSucceedsBesideADeniedDescriptor(t *testing.T) {
	for _, o := range []Options{{}, {AllOrNothing: true}, {QuotaMode: true}} {
		store := newLeaseStore()
		d := newLeaseDecider(t, store, o)
		decideReasons(t, d, "both=u lease=a")
		decideReasons(t, d, "both=u lease=b")
		wantReasons(t, d, "denied: released(1) never_fits(0) released(2)", "both=u lease=a release", "full", "-both=u lease=b")
		if groups := store.opsOfCalls[2]; len(groups) != 3 {
			t.Errorf("%+v: %d operations, want one of each descriptor", o, len(groups))
		}
	}
}

func TestDeniedRequestEndsItsLeases(t *testing.T) {
	for _, c := range []struct {
		options  Options
		texts    []string
		want     string
		ended    int
		userFree string // remaining slots of user=u afterwards
	}{
		{Options{}, []string{"user=u lease=a", "full"}, "denied: within_limit(1) over_limit(0)", 1, "2"},
		{Options{}, []string{"full", "user=u lease=a", "both=u lease=a"}, "denied: over_limit(0) within_limit(1) within_limit(1)", 2, "2"},
		{Options{}, []string{"0 user=u lease=a", "full"}, "denied: within_limit(2) over_limit(0)", 0, "2"},
		// The group is denied as a whole: no lease was opened.
		{Options{AllOrNothing: true}, []string{"user=u lease=a", "full"}, "denied: within_limit(2) over_limit(0)", 0, "2"},
		// The rule in shadow mode is not in the group, so its lease was opened.
		{Options{AllOrNothing: true}, []string{"shadowed=u lease=a", "full"}, "denied: within_limit(0) over_limit(0)", 1, "2"},
		// An allowed request keeps its leases.
		{Options{ShadowMode: true}, []string{"user=u lease=a", "full"}, "shadowed: within_limit(1) over_limit(0)", 0, "1"},
		{Options{}, []string{"quota=u lease=a", "quota_full", "user=u lease=a"}, "allowed: within_limit(1) over_limit(0) within_limit(1)", 0, "1"},
		{Options{}, []string{"shadowed=u lease=a", "user=u lease=a"}, "allowed: within_limit(0) within_limit(1)", 0, "1"},
		// The request is denied, so Weir ends the lease of its quota with room too.
		{Options{}, []string{"quota=u lease=a", "user=u lease=a", "full"}, "denied: within_limit(1) within_limit(1) over_limit(0)", 2, "2"},
	} {
		store := newLeaseStore()
		d := newLeaseDecider(t, store, c.options)
		var result Result
		must.Succeed(t, d.Decide(t.Context(), leaseRequest(c.texts...), &result))
		if got := strings.ReplaceAll(reasons(&result), "never_fits", "over_limit"); got != c.want || result.GivenUpLeases != c.ended || result.EndErr != nil {
			t.Errorf("%+v %q: %s, %d ended (%v), want %s, %d", c.options, c.texts, got, result.GivenUpLeases, result.EndErr, c.want, c.ended)
		}
		if got := decideReasons(t, d, "0 user=u lease=z"); got != "allowed: within_limit("+c.userFree+")" {
			t.Errorf("%+v %q: %s, want %s slots free", c.options, c.texts, got, c.userFree)
		}
	}
}

// A second request with the id of a running one shares its lease. If the second is denied or
// canceled, the first still runs, and keeps the lease.
func TestSecondRequestOfAnIDDoesNotEndItsLease(t *testing.T) {
	for _, c := range []struct {
		first, second string
		cancel        bool // the second request is canceled; otherwise another descriptor denies it
		peek, free    string
	}{
		{"user=u lease=a", "user=u lease=a", false, "0 user=u lease=z", "1"},
		{"user=u lease=a", "user=u lease=a", true, "0 user=u lease=z", "1"},
		{"40 budget=u lease=a", "30 budget=u lease=a", false, "0 budget=u lease=z", "60"},
		{"40 budget=u lease=a", "30 budget=u lease=a", true, "0 budget=u lease=z", "60"},
	} {
		t.Run(fmt.Sprintf("%s, canceled %t", c.second, c.cancel), func(t *testing.T) {
			store := newLeaseStore()
			d := newLeaseDecider(t, store, Options{})
			decideReasons(t, d, c.first)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request := leaseRequest(c.second, "full")
			if c.cancel {
				request = leaseRequest(c.second)
				store.intercept = func(_ int, ctx context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
					err := take(ctx)
					cancel()
					return err
				}
			}
			var result Result
			must.Succeed(t, d.Decide(ctx, request, &result))
			if result.GivenUpLeases != 0 || result.EndErr != nil || len(store.opsOfCalls) != 2 {
				t.Errorf("%d ended, error %v, %d calls of the store, want none ended, and 2 calls", result.GivenUpLeases, result.EndErr, len(store.opsOfCalls))
			}
			store.intercept = nil
			wantReasons(t, d, "allowed: within_limit("+c.free+")", c.peek)
		})
	}
}

// A request that a limit with leases denies holds no lease, so Weir ends none.
func TestRequestDeniedByALeaseLimitEndsNoLease(t *testing.T) {
	store := newLeaseStore()
	d := newLeaseDecider(t, store, Options{})
	decideReasons(t, d, "user=u lease=a")
	decideReasons(t, d, "user=u lease=b")
	wantReasons(t, d, "denied: over_limit(0)", "user=u lease=c")
	if len(store.opsOfCalls) != 3 {
		t.Errorf("%d calls of the store, want 3", len(store.opsOfCalls))
	}
}

// The client disconnects while the store decides. Envoy then cancels the call, and sends no
// release, so Weir must end the lease.
func TestCanceledRequestEndsItsLease(t *testing.T) {
	for name, intercept := range map[string]func(cancel func(), ctx context.Context, take func(context.Context) error) error{
		"the store answers": func(cancel func(), ctx context.Context, take func(context.Context) error) error {
			err := take(ctx)
			cancel()
			return err
		},
		"the answer is late": func(cancel func(), ctx context.Context, take func(context.Context) error) error {
			_ = take(ctx)
			cancel()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			store := newLeaseStore()
			var ofEnd context.Context
			store.intercept = func(call int, ctx context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
				if call == 0 {
					return intercept(cancel, ctx, take)
				}
				ofEnd = ctx
				return take(ctx)
			}
			d := newLeaseDecider(t, store, Options{EndTimeout: time.Hour})
			var result Result
			err := d.Decide(ctx, leaseRequest("user=u lease=a"), &result)
			if kindOf(err) != ContextEnded || result.GivenUpLeases != 1 || result.EndErr != nil || ofEnd == nil {
				t.Fatalf("error %v, %d ended, error of the end %v: want ContextEnded, and 1 ended by a second call", err, result.GivenUpLeases, result.EndErr)
			}
			if deadline, bounded := ofEnd.Deadline(); !bounded || time.Until(deadline) < time.Minute || !errors.Is(ofEnd.Err(), context.Canceled) {
				t.Errorf("the call has the deadline %v, and %v: want EndTimeout, and an end when Decide returns", deadline, ofEnd.Err())
			}
			store.intercept = nil
			wantReasons(t, d, "allowed: within_limit(2)", "0 user=u lease=z")
		})
	}
}

func TestDurationIncludesTheEndOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLeaseStore()
		store.intercept = func(call int, ctx context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
			time.Sleep(time.Duration(1+call) * time.Second)
			return take(ctx)
		}
		var result Result
		must.Succeed(t, newLeaseDecider(t, store, Options{}).Decide(t.Context(), leaseRequest("user=u lease=a", "full"), &result))
		if result.GivenUpLeases != 1 || result.StoreDuration != time.Second || result.Duration != 3*time.Second {
			t.Errorf("%d ended, %v in the first call, %v in all, want 1, 1 s and 3 s", result.GivenUpLeases, result.StoreDuration, result.Duration)
		}
	})
}

// SHADOW_MODE allows every request, so one that is canceled after the store's answer gets no error.
func TestCanceledRequestInShadowModeGetsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := newLeaseStore()
	store.intercept = func(_ int, ctx context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
		defer cancel()
		return take(ctx)
	}
	var result Result
	must.Succeed(t, newLeaseDecider(t, store, Options{ShadowMode: true}).Decide(ctx, leaseRequest("user=u lease=a"), &result))
	if result.GivenUpLeases != 1 || result.EndErr != nil {
		t.Errorf("%d ended, error %v, want 1", result.GivenUpLeases, result.EndErr)
	}
}

// The store opens the lease after the end, for instance because another connection was faster.
func TestRequestAfterItsEndOpensNoLease(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := newLeaseStore()
	var late func(context.Context) error
	store.intercept = func(call int, ctx context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
		if call == 0 {
			late = take
			cancel()
			return ctx.Err()
		}
		return take(ctx)
	}
	request := leaseRequest("user=u lease=a")
	d := newLeaseDecider(t, store, Options{})
	var result Result
	if err := d.Decide(ctx, request, &result); kindOf(err) != ContextEnded || result.GivenUpLeases != 1 {
		t.Fatalf("error %v, %d ended, want ContextEnded, and 1", err, result.GivenUpLeases)
	}
	must.Succeed(t, late(t.Context()))
	wantReasons(t, d, "allowed: within_limit(2)", "0 user=u lease=z")
}

func TestPossiblyChargedLeasesAreEnded(t *testing.T) {
	for _, c := range []struct {
		name    string
		verdict limiters.Verdict // the verdict on user=u lease=a
		denied  bool             // another descriptor denies the request; else the context ends
		want    int
	}{
		{"an error", limiters.Verdict{Err: errStore}, true, 1},
		{"an error that charged nothing", limiters.Verdict{Err: limiters.Uncharged(errStore)}, true, 0},
		{"denied by on_store_error", limiters.Verdict{By: limiters.ByPolicy}, true, 1},
		{"denied by the store", limiters.Verdict{}, true, 0},
		{"denied by the cache", limiters.Verdict{By: limiters.ByCache}, true, 0},
		{"allowed by the share", limiters.Verdict{Allowed: true, By: limiters.ByShare}, true, 1},
		{"canceled, an error", limiters.Verdict{Err: errStore}, false, 1},
		{"canceled, not sent", limiters.Verdict{Err: limiters.Uncharged(context.Canceled)}, false, 0},
		{"canceled, allowed", limiters.Verdict{Allowed: true}, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store := newLeaseStore()
			store.intercept = func(call int, _ context.Context, _ func(context.Context) error, out []limiters.Verdict) error {
				if call > 0 {
					return nil
				}
				out[0] = c.verdict
				if !c.denied {
					out[1].Allowed = true
					cancel()
				}
				return nil
			}
			var result Result
			wantError := ContextEnded
			if c.denied {
				wantError = 0
			}
			err := newLeaseDecider(t, store, Options{}).Decide(ctx, leaseRequest("user=u lease=a", "free"), &result)
			if kindOf(err) != wantError {
				t.Errorf("error %v, want the kind %d", err, wantError)
			}
			if result.GivenUpLeases != c.want || len(store.opsOfCalls) != 1+c.want {
				t.Fatalf("%d ended in %d calls, want %d", result.GivenUpLeases, len(store.opsOfCalls)-1, c.want)
			}
			if c.want > 0 {
				opened, end := store.opsOfCalls[0][0], store.opsOfCalls[1][0]
				if end.Kind != limiters.OpEnd || end.Hits != 0 || end.Key != opened.Key || end.Lease != opened.Lease || end.Limit != opened.Limit {
					t.Errorf("got %+v, want the end of %+v with 0 hits", end, opened)
				}
			}
		})
	}
}

// If a request is not decided, failure_mode_deny of Envoy decides. If Envoy admits it, the lease
// must stay until the stream ends.
func TestUndecidedRequestKeepsItsLeases(t *testing.T) {
	store := newLeaseStore()
	store.OfKey = failsOn("free")
	var result Result
	err := newLeaseDecider(t, store, Options{}).Decide(t.Context(), leaseRequest("user=u lease=a", "free"), &result)
	if kindOf(err) != StoreFailed || result.GivenUpLeases != 0 || len(store.opsOfCalls) != 1 {
		t.Errorf("error %v, %d ended in %d calls, want StoreFailed, and 0 in 1", err, result.GivenUpLeases, len(store.opsOfCalls))
	}
}

// At the end of a stream, Envoy waits for the release no longer than the timeout of its filter.
// Weir must end the lease even after that.
func TestEndIsRepeatedIfItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := newLeaseStore()
	d := newLeaseDecider(t, store, Options{})
	decideReasons(t, d, "user=u lease=a")
	store.intercept = func(call int, ctx context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
		if call == 1 {
			cancel()
		}
		return take(ctx)
	}
	var result Result
	if err := d.Decide(ctx, leaseRequest("7 user=u lease=a settle"), &result); err != nil || result.GivenUpLeases != 0 || result.EndErr != nil {
		t.Fatalf("%v, %d leases given up, %v: want none, because the request settled its own", err, result.GivenUpLeases, result.EndErr)
	}
	if again := store.opsOfCalls[2][0]; again.Kind != limiters.OpEnd || again.Hits != 7 {
		t.Errorf("repeated as %+v, want the actual cost of 7", again)
	}
	wantReasons(t, d, "allowed: within_limit(2)", "0 user=u lease=z")
}

func TestEndErrorIsReportedAndNotReturned(t *testing.T) {
	for name, fail := range map[string]func([]limiters.Verdict) error{
		"the call":   func([]limiters.Verdict) error { return errStore },
		"one of two": func(out []limiters.Verdict) error { out[1].Err = errStore; return nil },
	} {
		store := newLeaseStore()
		store.intercept = func(call int, ctx context.Context, take func(context.Context) error, out []limiters.Verdict) error {
			if call == 0 {
				return take(ctx)
			}
			return fail(out)
		}
		var result Result
		err := newLeaseDecider(t, store, Options{}).Decide(t.Context(), leaseRequest("user=u lease=a", "both=u lease=a", "full"), &result)
		if err != nil || !result.Denied || result.GivenUpLeases != 2 || !errors.Is(result.EndErr, errStore) || result.StoreErr != nil {
			t.Errorf("%s: error %v, denied %t, %d ended, EndErr %v, StoreErr %v, want a denial without error, 2 ended, EndErr %v, no StoreErr",
				name, err, result.Denied, result.GivenUpLeases, result.EndErr, result.StoreErr, errStore)
		}
	}
}

func TestOverrideInARequestBoundsLeases(t *testing.T) {
	d := newLeaseDecider(t, newLeaseStore(), Options{})
	for i, want := range []string{"allowed: within_limit(2)", "allowed: within_limit(1)", "allowed: within_limit(0)", "denied: over_limit(0)"} {
		r := leaseRequest(fmt.Sprintf("user=u lease=%d", i))
		r.Descriptors[0].Override = &Override{RequestsPerUnit: 3, Unit: descriptors.Hour}
		var result Result
		if err := d.Decide(t.Context(), r, &result); err != nil || reasons(&result) != want {
			t.Errorf("lease %d: %v, %v, want %s", i, reasons(&result), err, want)
		}
	}
	r := leaseRequest("user=u lease=0 release")
	r.Descriptors[0].Override = &Override{RequestsPerUnit: 3, Unit: descriptors.Second}
	var result Result
	if err := d.Decide(t.Context(), r, &result); err != nil || reasons(&result) != "allowed: released(1)" {
		t.Errorf("%v, %v, want %v", reasons(&result), err, "allowed: released(1)")
	}
}

// The first call reserves an estimate, the settle corrects it by the actual cost, exactly once.
func TestReservationIsSettledOnce(t *testing.T) {
	store := newLeaseStore()
	d := newLeaseDecider(t, store, Options{})
	wantReasons(t, d, "allowed: within_limit(60)", "40 budget=b lease=a")
	wantReasons(t, d, "allowed: within_limit(60)", "40 budget=b lease=a")
	wantReasons(t, d, "denied: over_limit(60)", "70 budget=b lease=b")
	wantReasons(t, d, "allowed: settled(85)", "15 budget=b lease=a settle")
	wantReasons(t, d, "allowed: settled(85)", "99 budget=b lease=a settle")
	wantReasons(t, d, "allowed: settled(85)", "99 budget=b lease=unknown settle")
	// An estimate of 0 opens a reservation.
	wantReasons(t, d, "allowed: within_limit(85)", "0 budget=b lease=c")
	wantReasons(t, d, "allowed: settled(80)", "5 budget=b lease=c settle")
	wantReasons(t, d, "allowed: within_limit(70)", "10 budget=b lease=d")
	wantReasons(t, d, "allowed: settled(80)", "0 budget=b lease=d settle")
	for i, release := range []string{"-3 budget=b lease=%d", "-0 budget=b lease=%d", "9 budget=b lease=%d release", "-9 budget=b lease=%d settle"} {
		wantReasons(t, d, "allowed: within_limit(70)", fmt.Sprintf("10 budget=b lease=%d", i))
		wantReasons(t, d, "allowed: released(80)", fmt.Sprintf(release, i))
	}
	if first, second := store.opsOfCalls[0][0], store.opsOfCalls[1][0]; first.Lease != second.Lease || first.Lease == (limiters.LeaseID{}) {
		t.Errorf("leases %x and %x, want those of one id", first.Lease, second.Lease)
	}
}

func TestDeniedRequestEndsItsReservations(t *testing.T) {
	for estimate, texts := range map[string][]string{
		"40": {"40 budget=b lease=a", "full"}, "0": {"full", "0 budget=b lease=a"},
	} {
		d := newLeaseDecider(t, newLeaseStore(), Options{})
		var result Result
		if err := d.Decide(t.Context(), leaseRequest(texts...), &result); err != nil || result.GivenUpLeases != 1 {
			t.Errorf("an estimate of %s: %d ended, %v, want 1", estimate, result.GivenUpLeases, err)
		}
		wantReasons(t, d, "allowed: settled(100)", "7 budget=b lease=a settle")
	}
}

func TestLeaseSecretChangesIDs(t *testing.T) {
	store := newLeaseStore()
	for _, secret := range []string{"", "a secret of replicas"} {
		decideReasons(t, newLeaseDecider(t, store, Options{LeaseSecret: []byte(secret)}), "user=u lease=a")
	}
	if plain, secret := store.opsOfCalls[0][0].Lease, store.opsOfCalls[1][0].Lease; plain == secret || secret != limiters.NewLeaseID([]byte("a secret of replicas"), "a") {
		t.Errorf("leases %x without a secret and %x with one, want another, by NewLeaseID with the secret", plain, secret)
	}
}

func TestEndThatOnStoreErrorDecidesIsAnError(t *testing.T) {
	store := newLeaseStore()
	d := newLeaseDecider(t, store, Options{})
	store.intercept = func(call int, ctx context.Context, take func(context.Context) error, out []limiters.Verdict) error {
		err := take(ctx)
		if call == 1 {
			out[0].By = limiters.ByPolicy
		}
		return err
	}
	var result Result
	must.Succeed(t, d.Decide(t.Context(), leaseRequest("user=u lease=a", "full=v"), &result))
	if !result.Denied || result.GivenUpLeases != 1 || result.EndErr == nil {
		t.Errorf("denied %t, %d ended, EndErr %v, want a denial with 1 ended and an EndErr", result.Denied, result.GivenUpLeases, result.EndErr)
	}
}

// The end of a lease goes to the store that has it. If on_store_error allowed the request without
// any store, there is no lease, so Weir ends nothing.
func TestLeaseIsEndedAtItsHolder(t *testing.T) {
	for leaseAt, want := range map[limiters.LeaseLocation]int{limiters.LeaseInStore: 1, limiters.LeaseOnlyInShare: 1, limiters.LeaseNowhere: 0} {
		store := newLeaseStore()
		d := newLeaseDecider(t, store, Options{})
		store.intercept = func(call int, ctx context.Context, take func(context.Context) error, out []limiters.Verdict) error {
			err := take(ctx)
			if call == 0 {
				out[0].By, out[0].LeaseAt = limiters.ByShare, leaseAt
			}
			return err
		}
		var result Result
		must.Succeed(t, d.Decide(t.Context(), leaseRequest("user=u lease=a", "full=v"), &result))
		ends := slices.Concat(store.opsOfCalls[1:]...)
		if !result.Denied || result.GivenUpLeases != want || result.EndErr != nil || len(ends) != want {
			t.Errorf("%v: denied %t, %d ended, EndErr %v, ends %+v, want a denial with %d ended", leaseAt, result.Denied, result.GivenUpLeases,
				result.EndErr, ends, want)
		}
		if len(ends) > 0 && (ends[0].Kind != limiters.OpEnd || ends[0].Lease != store.opsOfCalls[0][0].Lease || ends[0].LeaseAt != leaseAt) {
			t.Errorf("%v: end %+v, want one of the open lease, with its LeaseAt", leaseAt, ends[0])
		}
	}
}

// An end that fails is not an error of its request, because Envoy ignores the answer, and the store
// repeats the end.
func TestFailedEndLeavesItsRequestDecided(t *testing.T) {
	store := newLeaseStore()
	d := newLeaseDecider(t, store, Options{})
	wantReasons(t, d, "allowed: within_limit(1)", "user=u lease=a")
	store.intercept = func(_ int, ctx context.Context, take func(context.Context) error, out []limiters.Verdict) error {
		err := take(ctx)
		out[0] = limiters.Verdict{Err: errStore}
		return err
	}
	for _, texts := range [][]string{{"user=u lease=a release"}, {"-user=u lease=a", "free"}, {"7 budget=u lease=a settle", "full"}} {
		var result Result
		err := d.Decide(t.Context(), leaseRequest(texts...), &result)
		if first := result.Decisions[0]; err != nil || first.Outcome != Allowed || first.Reason != StoreError || !errors.Is(result.StoreErr, errStore) {
			t.Errorf("%q: error %v, first decision %+v, StoreErr %v, want it allowed by store_error, and %v", texts, err, first, result.StoreErr, errStore)
		}
		if result.Denied != (texts[len(texts)-1] == "full") {
			t.Errorf("%q: denied: %t, want %t", texts, result.Denied, texts[len(texts)-1] == "full")
		}
	}
	// No descriptor was decided.
	store.intercept = func(int, context.Context, func(context.Context) error, []limiters.Verdict) error { return errStore }
	if got := decideReasons(t, d, "user=u lease=a release"); got != "allowed: store_error" {
		t.Errorf("%s, want allowed: store_error", got)
	}
}

// A ctx may end between two reads of its error.
func TestRequestThatReportsTheEndOfItsContextHasEndedItsLeases(t *testing.T) {
	for reads := range 4 {
		store := newLeaseStore()
		store.intercept = func(call int, _ context.Context, take func(context.Context) error, _ []limiters.Verdict) error {
			err := take(context.Background())
			if call == 0 {
				return errors.New("no reply")
			}
			return err
		}
		d := newLeaseDecider(t, store, Options{})
		var result Result
		err := d.Decide(&endingContext{t.Context(), reads}, leaseRequest("user=u lease=a"), &result)
		if ended := result.GivenUpLeases == 1; ended != (kindOf(err) == ContextEnded) {
			t.Errorf("ctx ends after %d reads: %v, and the lease has ended: %v", reads, err, ended)
		}
	}
}

// An endingContext ends after a number of calls of Err.
type endingContext struct {
	context.Context
	reads int
}

func (c *endingContext) Err() error {
	if c.reads--; c.reads >= 0 {
		return nil
	}
	return context.Canceled
}
