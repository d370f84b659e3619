package sizing

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

const shop = `domain: shop
descriptors:
  - key: user_id
    rate_limit: {unit: minute, requests_per_unit: 100}
    descriptors:
      - key: action
        value: login
        # weir:ignore local-without-replicas -- the server has REPLICAS
        rate_limit: {algorithm: sliding_log, unit: hour, requests_per_unit: 10, on_store_error: local}
  - key: path
    value: /search
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 5000, on_store_error: deny}
`

func report(t *testing.T, text string, load Load) *Report {
	t.Helper()
	p, err := NewReport(rulesfiletest.Parse(t, text), load)
	must.Succeed(t, err)
	return p
}

var million = Load{Users: 1_000_000, Rate: 20_000, Replicas: 4, Probability: 0.001, Lag: time.Second}

func TestPlanCountsKeys(t *testing.T) {
	for _, c := range []struct {
		rules string
		load  Load
		want  float64
	}{
		{"- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000}, 1000},
		// No more keys exist than requests in the lifetime of a key: on Redis, up to 1.25 * (60 s +
		// 1 s) + 1 s.
		{"- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000, Rate: 10}, 773},
		// A penalty keeps a key until it is forgotten, a day after the longest penalty, and an
		// offense until its window ends.
		{"- {key: user, rate_limit: {unit: minute, requests_per_unit: 5, penalty: {after: 2, within: 1m, for: 10m}}}", Load{Users: 1e9, Rate: 10}, math.Ceil(10 * ((2*86400+1)*1.25 + 1))},
		{"- {key: user, rate_limit: {unit: minute, requests_per_unit: 5, penalty: {after: 1, within: 1m, for: 1m, max: 1m, forget: 2m}}}", Load{Users: 1e9, Rate: 10}, 2273},
		{"- {key: user, rate_limit: {unit: minute, requests_per_unit: 5, penalty: {after: 2, within: 1h, for: 1m, max: 1m}}}", Load{Users: 1e9, Rate: 10}, 45_023},
		{"- {key: user, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 0}}", Load{Users: 1e9, Rate: 10}, 773},
		{"- {key: user, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 5, capacity: 10}}", Load{Users: 10_000, Rate: 10}, 1523},
		{"- {key: path, value: /a, rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000}, 1},
		{"- {key: path, values: [/a, /b], rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000}, 2},
		{"- {key: path, values: [/a, /b], share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000}, 1},
		{"- {key: ip, cidr: [10.0.0.0/8, 192.0.2.0/24], share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000}, 2},
		{"- {key: ip, cidr: [10.0.0.0/8], rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000}, 1000},
		{"- {key: path, value: /a*, rate_limit: {unit: minute, requests_per_unit: 5}}", Load{Users: 1000, Values: map[string]int64{"path": 7}}, 7},
		{"- {key: user, descriptors: [{key: action, rate_limit: {unit: day, requests_per_unit: 5}}]}", Load{Users: 1000}, 1000},
		{"- {key: user, descriptors: [{key: action, rate_limit: {unit: day, requests_per_unit: 5}}]}", Load{Users: 1000, Values: map[string]int64{"action": 20}}, 20_000},
		{"- {key: user, descriptors: [{key: id, rate_limit: {algorithm: concurrency, concurrent_requests: 5}}]}", Load{Users: 1000}, 1000},
		{"- {key: path, value: /a, descriptors: [{key: id, rate_limit: {algorithm: concurrency, concurrent_requests: 5}}]}", Load{Users: 1000}, 1},
		{"- {key: user, descriptors: [{key: id, rate_limit: {algorithm: concurrency, concurrent_requests: 5, lease_ttl: 10s}}]}", Load{Users: 1000, Rate: 10}, 148},
		// The key remembers an end of an unknown id for 5 s.
		{"- {key: user, descriptors: [{key: id, rate_limit: {algorithm: concurrency, concurrent_requests: 5, lease_ttl: 1s}}]}", Load{Users: 1000, Rate: 10}, 85},
		// An open reservation outlives the window.
		{"- {key: user, descriptors: [{key: id, rate_limit: {unit: second, requests_per_unit: 5, reserve: {ttl: 20s, unsettled: charge}}}]}", Load{Users: 1000, Rate: 10}, 273},
		// Redis keeps a reservation that is refunded for longer than the window, see RefundableFor.
		{"- {key: user, descriptors: [{key: id, rate_limit: {unit: hour, requests_per_unit: 5, reserve: {ttl: 20s, unsettled: release}}}]}", Load{Users: 1e9, Rate: 10}, math.Ceil(10 * ((64*60+1)*1.25 + 1))},
		{"- {key: user, descriptors: [{key: id, rate_limit: {algorithm: funnel, unit: hour, requests_per_unit: 5, reserve: {ttl: 20s, unsettled: release}}}]}", Load{Users: 1e9, Rate: 10}, math.Ceil(10 * ((2*64*60+1)*1.25 + 1))},
		// A settlement, or denied hits, may fill a funnel twice.
		{"- {key: user, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 5, count_denied: true}}", Load{Users: 10_000, Rate: 10}, 1523},
		{"- {key: user, descriptors: [{key: id, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 5, reserve: {ttl: 20s, unsettled: charge}}}]}", Load{Users: 10_000, Rate: 10}, 1523},
		// The longest window of the calendar.
		{"- {key: user, rate_limit: {unit: month, unit_multiplier: 2, requests_per_unit: 5, window_start: calendar}}", Load{Users: 1e9, Rate: 1}, math.Ceil((62*86400+1)*1.25 + 1)},
		{"- {key: user, rate_limit: {unit: year, requests_per_unit: 5, window_start: calendar}}", Load{Users: 1e9, Rate: 1}, math.Ceil((366*86400+1)*1.25 + 1)},
		{"- {key: user, rate_limit: {unit: day, requests_per_unit: 5, window_start: calendar, time_zone: Europe/Berlin}}", Load{Users: 1e9, Rate: 1}, math.Ceil((86400+3*3600+1)*1.25 + 1)},
	} {
		c.load.Replicas, c.load.Probability = 1, 0.001
		p := report(t, "domain: d\ndescriptors:\n"+c.rules, c.load)
		if len(p.Limits) != 1 || p.Keys != c.want {
			t.Errorf("%s\n%+v: got %g keys, want %g", c.rules, c.load, p.Keys, c.want)
		}
	}
}

// A denied request under several rules ends the leases that it has opened, which is a second call.
func TestPlanNamesTheSecondCallOfLeases(t *testing.T) {
	for rule, want := range map[string]bool{
		"- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}":                                            false,
		"- {key: user, descriptors: [{key: id, rate_limit: {algorithm: concurrency, concurrent_requests: 5}}]}":      true,
		"- {key: user, descriptors: [{key: id, rate_limit: {unit: day, requests_per_unit: 5, reserve: {ttl: 9s}}}]}": true,
	} {
		text := report(t, "domain: d\ndescriptors:\n"+rule, million).Text()
		if got := strings.Contains(text, "after it has opened leases costs 1 more\n"); got != want {
			t.Errorf("%s: names the second call: %v, want %v\n%s", rule, got, want, text)
		}
	}
}

// All limits of a rule have the same key, so they are in one hash slot.
func TestPlanCountsOneClusterCallForSeveralLimitsOfARule(t *testing.T) {
	p := report(t, "domain: d\ndescriptors:\n- {key: u, rate_limits: [{unit: minute, requests_per_unit: 3}, {unit: hour, requests_per_unit: 100}]}", million)
	if p.Calls.PerRequest != 1 || p.Calls.Cluster != 1 {
		t.Errorf("got %+v, want 1 call, and 1 on a Redis Cluster", p.Calls)
	}
}

func TestPlanBoundsMeasuredMemory(t *testing.T) {
	p, m := report(t, shop, million), Figures()
	window, log := p.Limits[0], p.Limits[1]
	if want := m.Memory["fixed_window"].Key.times(1e6); window.MemoryBytes != want {
		t.Errorf("a million fixed windows: got %v, want %v", window.MemoryBytes, want)
	}
	// Each log may have its limit of 10 hits, one of which is in the size of a key.
	if want := m.Redis["sliding_log"].Key.times(1e6).plus(m.Redis["sliding_log"].Hit.times(9e6)); log.RedisBytes != want {
		t.Errorf("a million logs: got %v, want %v", log.RedisBytes, want)
	}
	// Denied hits that count fill a log twice.
	denied := report(t, "domain: d\ndescriptors:\n- {key: u, rate_limit: {algorithm: sliding_log, unit: hour, requests_per_unit: 10, count_denied: true}}", million)
	if want := m.Redis["sliding_log"].Key.times(1e6).plus(m.Redis["sliding_log"].Hit.times(19e6)); denied.Limits[0].RedisBytes != want {
		t.Errorf("a million logs with denied hits: got %v, want %v", denied.Limits[0].RedisBytes, want)
	}
	all := Range{}
	for _, l := range p.Limits {
		all = all.plus(l.MemoryBytes)
	}
	if p.MemoryBytes != all || p.Keys != 2_000_001 {
		t.Errorf("all keys: got %g with %v, want 2000001 with %v", p.Keys, p.MemoryBytes, all)
	}
	if rare := report(t, shop, Load{Users: 1e6, Rate: 0.01, Replicas: 1, Probability: 0.001}); rare.Limits[1].Keys != 46 {
		t.Errorf("46 requests in the lifetime of a log: got %g logs", rare.Limits[1].Keys)
	}
}

// A penalty is a state of its own, on Redis even a key of its own.
func TestPlanMemoryIncludesPenalties(t *testing.T) {
	const rule = "domain: d\ndescriptors:\n- {key: u, rate_limit: {unit: minute, requests_per_unit: 5"
	without, with := report(t, rule+"}}", million), report(t, rule+", penalty: {after: 1, within: 1m, for: 1m}}}", million)
	memory, redis := Figures().Memory["penalty"].Key, Figures().Redis["penalty"].Key
	if memory.Low <= 0 || redis.Low <= 0 {
		t.Fatalf("the memory of a penalty is not measured: %v and %v", memory, redis)
	}
	if want := without.MemoryBytes.plus(memory.times(1e6)); with.MemoryBytes != want {
		t.Errorf("in Weir's memory: got %v, want %v", with.MemoryBytes, want)
	}
	if want := without.RedisBytes.plus(redis.times(1e6)); with.RedisBytes != want {
		t.Errorf("on Redis: got %v, want %v", with.RedisBytes, want)
	}
}

// The reservations of a key depend on its requests, and not on its budget.
func TestPlanBoundsReservations(t *testing.T) {
	plan := func(algorithm string, budget int, reserve string, rate float64) *LimitReport {
		text := fmt.Sprintf("domain: d\ndescriptors: [{key: tenant, descriptors: [{key: lease, rate_limit: {algorithm: %s, unit: day, requests_per_unit: %d%s}}]}]", algorithm, budget, reserve)
		return report(t, text, Load{Users: 1000, Rate: rate, Replicas: 1, Probability: 0.001}).Limits[0]
	}
	const charge, release = ", reserve: {ttl: 120s}", ", reserve: {ttl: 120s, unsettled: release}"
	memory, redis := Figures().Memory["reservation"], Figures().Redis["reservation"]
	for _, c := range []struct {
		algorithm       string
		budget          int
		reserve         string
		rate            float64
		inMemory, redis float64 // reservations
	}{
		{"fixed_window", 1_000_000, charge, 0, 1000 * limiters.MaxLeases, 1000 * limiters.MaxLeases},
		// Reservations may be of 0 hits.
		{"fixed_window", 10, charge, 0, 1000 * limiters.MaxLeases, 1000 * limiters.MaxLeases},
		// A reservation that is never settled may stay as long as its key. In Weir's memory this is
		// the key of the usage, on Redis a key of the reservations alone.
		{"fixed_window", 1_000_000, charge, 1, 120 + (86400+1)*1.25 + 1, 120 + (120+1)*1.25 + 1},
		{"fixed_window", 1_000_000, release, 1, 120 + (86400*16/15+1)*1.25 + 1, 120 + (86400*16/15+1)*1.25 + 1},
		{"funnel", 1_000_000, charge, 1, 120 + (2*86400+1)*1.25 + 1, 120 + (120+1)*1.25 + 1},
		{"funnel", 1_000_000, release, 1, 120 + (2*86400*16/15+1)*1.25 + 1, 120 + (2*86400*16/15+1)*1.25 + 1},
	} {
		got := plan(c.algorithm, c.budget, c.reserve, c.rate)
		if want := Figures().Memory[c.algorithm].Key.times(1000).plus(memory.of(1000, math.Ceil(c.inMemory))); got.MemoryBytes != want {
			t.Errorf("%+v: got %v in Weir's memory, want %v", c, got.MemoryBytes, want)
		}
		if want := Figures().Redis[c.algorithm].Key.times(1000).plus(redis.of(1000, math.Ceil(c.redis))); got.RedisBytes != want {
			t.Errorf("%+v: got %v on Redis, want %v", c, got.RedisBytes, want)
		}
	}
}

// Hits that have left the window stay in a log until the next request of its key, or as long as the
// key. If a client stops after a full window, its first hits stay for two windows and more.
func TestPlanCountsHitsThatHaveLeftTheWindow(t *testing.T) {
	p := report(t, "domain: d\ndescriptors: [{key: u, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 1000000}}]", Load{Users: 2, Rate: 1, Replicas: 1, Probability: 0.001})
	if want := Figures().Redis["sliding_log"].of(2, math.Ceil(60+(60+1)*1.25+1)); p.RedisBytes != want {
		t.Errorf("got %v, want %v", p.RedisBytes, want)
	}
}

func TestPlanBoundsOverAdmission(t *testing.T) {
	p := report(t, shop, million)
	share, err := Local(10, 4, 0.001)
	must.Succeed(t, err)
	zero, local := int64(0), share.Any.Together
	for i, want := range []Over{
		{AnyWindow: 200, Memory: 300, OnStoreError: "error", Share: 41, Failover: 100},
		{AnyWindow: 10, Memory: 30, OnStoreError: "local", Share: share.Any.Limit, Outage: &local, Failover: 10},
		{AnyWindow: 10_000, Memory: 30_000, OnStoreError: "deny", Share: 1357, Outage: &zero, Failover: 5000},
	} {
		got := p.Limits[i].Over
		same := got.AnyWindow == want.AnyWindow && got.DenyCache == 0 && got.Memory == want.Memory && got.OnStoreError == want.OnStoreError && got.Failover == want.Failover
		if (got.Outage == nil) != (want.Outage == nil) || !same || got.Share != want.Share || got.Outage != nil && *got.Outage != *want.Outage {
			t.Errorf("%s: got %+v, want %+v", p.Limits[i].Path, got, want)
		}
	}
	if p.FailoverHits == nil || *p.FailoverHits != 20_000 {
		t.Errorf("a failover loses %v hits, want 20000", p.FailoverHits)
	}
	huge := report(t, "domain: d\ndescriptors:\n- {key: u, rate_limit: {unit: day, requests_per_unit: 4503599627370495}}", Load{Users: 1, Replicas: maxReplicas, Probability: 0.5})
	if huge.Limits[0].Over.Memory != math.MaxInt64 {
		t.Errorf("a product that is too large is %d, want %d", huge.Limits[0].Over.Memory, math.MaxInt64)
	}
}

// Replicas without Redis each admit the burst of a funnel and what drains meanwhile. A local share
// has a burst too.
// A limit of 0 has a window although it admits nothing in it.
func TestPlanWithoutRateBoundsNoFailover(t *testing.T) {
	p := report(t, "domain: d\ndescriptors: [{key: u, rate_limit: {unit: hour, requests_per_unit: 0}}]", Load{Users: 1, Replicas: 1, Probability: 0.001})
	if p.FailoverHits != nil {
		t.Errorf("without a rate, a failover loses %v hits, want an unknown number", *p.FailoverHits)
	}
	text := p.Text()
	if strings.Contains(text, "no window") || !strings.Contains(text, "Set --rate for the hits of all keys that a failover loses.") {
		t.Errorf("got %s", text)
	}
}

func TestPlanBoundsOverAdmissionOfAFunnel(t *testing.T) {
	p := report(t, "domain: d\ndescriptors:\n- {key: u, rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 1000, on_store_error: local}}", million)
	over := p.Limits[0].Over
	if want := int64(3 * (10 + 1000)); over.Memory != want {
		t.Errorf("4 replicas in memory: got +%d, want +%d", over.Memory, want)
	}
	if over.Failover != 1000 {
		t.Errorf("a failover: got +%d, want the capacity of 1000", over.Failover)
	}
	if over.Outage == nil || *over.Outage%4 != 0 || *over.Outage/4 <= over.Share {
		t.Fatalf("4 replicas that each admit more than their share of the rate, %d: got %+v", over.Share, over)
	}
	if want := fmt.Sprintf("local: +%d (4 × %d)", *over.Outage, *over.Outage/4); !strings.Contains(p.Text(), want) {
		t.Errorf("the text lacks %q:\n%s", want, p.Text())
	}
}

// The server's share under on_store_error: local is the choice "any replica", or slightly more for
// a large limit.
func TestLocalLimitOfAnyReplicaIsTheShareOfTheServer(t *testing.T) {
	for _, requests := range []int64{1, 5, 60, 1000, 100_000, 10_000_000} {
		for _, replicas := range []int64{2, 3, 10, 100} {
			local, err := Local(requests, replicas, 0.001)
			must.Succeed(t, err)
			limit, err := limiters.NewLimit(limiters.Spec{Algorithm: "fixed_window", Max: requests, Window: time.Second})
			must.Succeed(t, err)
			share, err := guard.ShareLimit(limit, replicas, 0.001)
			must.Succeed(t, err)
			got, slack := share.Spec().Max-local.Any.Limit, int64(0)
			if requests > 1000 {
				slack = int64(math.Sqrt(float64(requests)/float64(replicas)) / 5)
			}
			if got < 0 || got > slack {
				t.Errorf("%d by %d replicas: the server's share is %d, the plan's limit %d", requests, replicas, share.Spec().Max, local.Any.Limit)
			}
		}
	}
}

func TestInvalidLoadsAreFaults(t *testing.T) {
	rules := rulesfiletest.Parse(t, shop)
	for name, load := range map[string]Load{
		"users":       {Replicas: 1, Probability: 0.1},
		"rate":        {Users: 1, Rate: -1, Replicas: 1, Probability: 0.1},
		"no number":   {Users: 1, Rate: math.NaN(), Replicas: 1, Probability: 0.1},
		"replicas":    {Users: 1, Probability: 0.1},
		"probability": {Users: 1, Replicas: 1},
		"lag":         {Users: 1, Replicas: 1, Probability: 0.1, Lag: -1},
		"values":      {Users: 1, Replicas: 1, Probability: 0.1, Values: map[string]int64{"user_id": 0}},
		"unknown key": {Users: 1, Replicas: 1, Probability: 0.1, Values: map[string]int64{"user": 5}},
	} {
		if p, err := NewReport(rules, load); err == nil {
			t.Errorf("%s: got %+v, want an error", name, p)
		}
	}
	if _, err := NewReport(rulesfiletest.Parse(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]"), million); err == nil {
		t.Error("rules without a limit have a plan")
	}
	for _, text := range []string{"action", "=5", "action=", "action=x", "action=99999999999999999999"} {
		if v, err := ParseValues([]string{text}); err == nil {
			t.Errorf("%q: got %v, want an error", text, v)
		}
	}
	if _, err := ParseValues([]string{"action=1", "action=2"}); err == nil {
		t.Error("a key may have two numbers of values")
	}
}

// The outputs in docs/plan.md are those of the code.
func TestOutputsOfTheDocs(t *testing.T) {
	local, err := Local(1000, 100, 0.001)
	must.Succeed(t, err)
	localText, planText := local.Text(), report(t, shop, million).Text()
	const path, end = "../../../docs/plan.md", "```\n<!-- end -->"
	file := must.Read(t, path)
	want := string(file)
	for name, output := range map[string]string{"local": localText, "plan": planText, "rules": shop} {
		begin := "<!-- " + name + ": go test ./internal/offline/sizing -update -->\n"
		before, rest, found := strings.Cut(want, begin)
		fence, rest, _ := strings.Cut(rest, "\n")
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no markers for the output %q", path, name)
		}
		want = before + begin + fence + "\n" + output + end + after
	}
	if *update {
		must.Write(t, path, want)
		return
	}
	if want != string(file) {
		t.Errorf("%s has other outputs: run go test ./internal/offline/sizing -update\n%s%s", path, localText, planText)
	}
}
