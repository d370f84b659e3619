package rls

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters"
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
	store := newClocked()
	store.Store = closing{store.Store}
	return New(decide.New(parsed(t, text), store, d), o), store
}

// closing is a store that fails for the key "closed", whose on_store_error denies every operation.
type closing struct{ limiters.Store }

func (c closing) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	err := c.Store.Take(ctx, groups, out)
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
func TestDenialOfQuotasHasTheShortestWait(t *testing.T) {
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
