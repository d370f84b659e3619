package rlconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
)

func TestRulesPageShowsEverySetting(t *testing.T) {
	rules := rulesfiletest.Parse(t, `domain: d
on_store_error: allow
descriptors:
- {key: free, rate_limit: {unlimited: true, name: staff}}
- {key: plain, rate_limit: {unit: day, requests_per_unit: 5, on_deny: {body: "no ☹", headers: {x-a: 1}}}}
- {key: plan, values: [a, "b c"], rate_limit: {unit: day, requests_per_unit: 5, name: tier, on_deny: {problem: true}}}
- {key: ip, cidr: [10.0.0.0/8, "::/0"], rate_limit: {unlimited: true}}
- key: many
  shadow_mode: true
  rate_limits:
  - {unit: hour, requests_per_unit: 9, name: hourly, window_start: first_hit, on_store_error: local, count_denied: false}
  - {unit: minute, unit_multiplier: 5, requests_per_unit: 9, algorithm: funnel, capacity: 3}
`)
	var page strings.Builder
	Write(&page, rules)
	const modes = ", shadow_mode: false, quota_mode: false"
	want := `d.free: unit=UNKNOWN requests_per_unit=0` + modes + `, name: "staff"
d.plain: unit=DAY requests_per_unit=5` + modes + `, unit_multiplier: 1, algorithm: fixed_window, capacity: 5, ` +
		`count_denied: true, window_start: clock, on_store_error: allow, on_deny: 6 bytes of "text/plain; charset=utf-8", 1 headers
d.plan=a,b c: unit=DAY requests_per_unit=5` + modes + `, unit_multiplier: 1, algorithm: fixed_window, capacity: 5, ` +
		`count_denied: true, window_start: clock, on_store_error: allow, on_deny: problem, 0 headers, name: "tier", values of plan: ["a" "b c"]
d.ip=10.0.0.0/8,::/0: unit=UNKNOWN requests_per_unit=0` + modes + `, cidr of ip: [10.0.0.0/8 ::/0]
d.many: unit=HOUR requests_per_unit=9, shadow_mode: true, quota_mode: false, unit_multiplier: 1, algorithm: fixed_window, ` +
		`capacity: 9, count_denied: false, window_start: first_hit, on_store_error: local, name: "hourly"
d.many: unit=MINUTE requests_per_unit=9, shadow_mode: true, quota_mode: false, unit_multiplier: 5, algorithm: funnel, ` +
		`capacity: 3, count_denied: false, on_store_error: allow
`
	if got := page.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The names of a control plane's rules must not look like other rules.
func TestNameMakesNoLineOfItsOwn(t *testing.T) {
	rules := rulesfiletest.Parse(t, `{domain: "d\nx.y: unit=DAY", descriptors: [{key: "k\nx.y: \e[2m", value: "v\r", rate_limit: {unlimited: true}}]}`)
	var page strings.Builder
	Write(&page, rules)
	if got, want := page.String(), `d\nx.y: unit=DAY.k\nx.y: \x1b[2m=v\r: unit=UNKNOWN`; !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q, want one line that begins with %s", got, want)
	}
	for _, list := range []string{`values: ["a\n", b]`, "cidr: [10.0.0.0/8]"} {
		page.Reset()
		Write(&page, rulesfiletest.Parse(t, `{domain: d, descriptors: [{key: "k\nx.y", `+list+`, rate_limit: {unlimited: true}}]}`))
		if got := page.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, ` of k\nx.y: `) {
			t.Errorf("%s: got %q, want one line", list, got)
		}
	}
}

func TestRulesPageShowsLeases(t *testing.T) {
	b := descriptors.NewBuilder()
	for key, spec := range map[string]limiters.Spec{
		"slots":  {Algorithm: "concurrency", Max: 3, Params: limiters.Params{LeaseTTL: 90 * time.Second}},
		"plain":  {Algorithm: "concurrency", Max: 4},
		"budget": {Algorithm: "funnel", Max: 60, Window: time.Minute, Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: 2 * time.Minute}}},
	} {
		limit, err := limiters.NewLimit(spec)
		must.Succeed(t, err)
		b.Domain("d").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: key}}).SetRule(descriptors.Rule{
			Limits: []descriptors.RateLimit{{Limit: limit, RequestsPerUnit: spec.Max, UnitMultiplier: 1}},
		})
	}
	var page strings.Builder
	Write(&page, b.Build())
	for _, want := range []string{
		"d.slots: unit=UNKNOWN requests_per_unit=3, ", "algorithm: concurrency, capacity: 3, count_denied: false, lease_ttl: 1m30s, ",
		"algorithm: concurrency, capacity: 4, count_denied: false, lease_ttl: 1m0s, ",
		"algorithm: funnel, capacity: 60, count_denied: false, ", ", reserve.ttl: 2m0s, reserve.unsettled: charge, ",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
}
