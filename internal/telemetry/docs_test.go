package telemetry_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/rls"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// sections orders docs/metrics.md. use is the conclusion that an operator draws from a metric, beyond its
// help, or empty. The table of a section without any has no such column.
var sections = []struct {
	title, intro string
	metrics      []struct{ name, use string }
}{
	{"Requests", "", []struct{ name, use string }{
		{"weir_requests_total", "Look here first in an incident: it shows whether requests pass, are denied or fail."},
		{"weir_request_duration_seconds", "Compare it with the `timeout` of Envoy's filter."},
		{"weir_requests_in_flight", "At `MAX_IN_FLIGHT`, Weir sheds requests."},
		{"weir_refused_requests_total", "Grows if the store is slow or replicas are too few."},
		{"weir_undecodable_requests_total", "Grows if a client speaks another protocol, or its requests are too large. Envoy may let them pass."},
		{"weir_panics_total", ""},
		{"weir_build_info", "Shows how far a rollout is."},
	}},
	{"Limits", "", []struct{ name, use string }{
		{"weir_denials_total", "Shows which limit denied a client that gets 429."},
		{"weir_denied_peeks_total", "Shows how many 429 come from peeks, which Envoy or a gateway sends before it charges."},
		{"weir_hits_total", "Shows how much of its traffic a rule allows and denies."},
		{"weir_unmatched_descriptors_total", "Grows if Envoy's descriptors do not match the rules. A limit then has no effect."},
		{"weir_penalties_total", ""},
		{"weir_penalty_denials_total", ""},
		{"weir_denial_log_suppressed_total", "If it grows, raise `DENIAL_LOG_PER_SECOND` or choose a smaller share."},
		{"weir_decision_subscribers", "Exists, like the next metric, only with `ADMIN_ADDR`, `DENIAL_LOG` or `TOP_KEYS`."},
		{"weir_decisions_dropped_total", "If `weir tail` misses decisions, choose a smaller sample."},
	}},
	{"Store", "", []struct{ name, use string }{
		{"weir_store_duration_seconds", "If it rises together with `weir_request_duration_seconds`, the store is the cause."},
		{"weir_domain_mode", "Shows what decides while the store fails."},
		{"weir_fallback_hits_total", "Shows how much was decided without the store."},
	}},
	{"Redis", "", []struct{ name, use string }{
		{"weir_redis_calls_total", ""},
		{"weir_redis_hits_total", "A larger batch costs less CPU for each hit."},
		{"weir_redis_refused_hits_total", "Grows if Redis is slower than the requests arrive."},
		{"weir_redis_left_hits_total", "Grows if Redis is slower than `STORE_TIMEOUT` allows."},
		{"weir_redis_broken_hits_total", "Grows if Redis is unreachable. The breaker spares these requests the wait."},
		{"weir_redis_panics_total", ""},
	}},
	{"Deny cache", "", []struct{ name, use string }{
		{"weir_deny_cache_asked_total", ""},
		{"weir_deny_cache_answered_total", "Divided by `weir_deny_cache_asked_total`, it is the hit rate of the cache."},
		{"weir_deny_cache_entries", ""},
		{"weir_deny_cache_bytes", "Compare it with `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_refused_total", "If it grows, raise `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_sent_hits_total", ""},
		{"weir_deny_cache_lost_hits_total", "Explains a usage in Redis that is too low after an outage."},
	}},
	{"Memory", "", []struct{ name, use string }{
		{"weir_memory_keys", "Compare it with `MEMORY_MAX_KEYS`."},
		{"weir_memory_bytes", "Compare it with `MEMORY_MAX_BYTES`."},
		{"weir_memory_dropped_keys_total", "Grows if the store is too small. The counters of these keys are lost."},
		{"weir_memory_refused_hits_total", "Grows if the store is too small, and every key that it looked at denies a client."},
		{"weir_memory_snapshot_timestamp_seconds", "Shows how old the counters would be after a crash."},
		{"weir_memory_snapshot_saved_keys", "Shows how many keys would survive a crash."},
		{"weir_memory_snapshot_loaded_keys", "Shows how many keys survived the last restart."},
		{"weir_memory_snapshot_failures_total", "If it grows, a restart resets counters."},
	}},
	{"Rules", "", []struct{ name, use string }{
		{"weir_rules", "Compare it between replicas that behave differently."},
		{"weir_rules_info", "Count the versions if replicas behave differently. Receipts and log lines name the version too."},
		{"weir_rules_loads_total", "If a change has no effect, the result `error` shows that it has faults."},
		{"weir_rules_loaded_timestamp_seconds", "Shows whether a change has arrived."},
		{"weir_xds_connected", "Exists, like the next metric, only with `CONFIG_TYPE=GRPC_XDS_SOTW`."},
		{"weir_xds_pushes_total", "Shows whether Weir applies the rules that the control plane sends."},
	}},
	{"Leases and reservations", "", []struct{ name, use string }{
		{"weir_lease_ends_total", "A rule with fewer ends than allowed hits loses releases, so its slots are missing."},
		{"weir_leases_given_up_total", ""},
		{"weir_lease_ends_pending", "Grows while Redis fails. So many leases end when Redis answers again."},
		{"weir_lease_ends_repeated_total", "Shows how many leases ended late, because of an outage of Redis."},
		{"weir_lease_ends_lost_total", "Grows if Redis fails for long. These slots stay held until their TTL."},
		{"weir_too_many_leases_total", "Grows if settles are lost, or if one key has the reservations of many clients."},
		{"weir_bad_lease_ids_total", "Grows if Envoy sends no lease id, or one that is too long."},
	}},
	{"Shadow file", "These metrics exist only with `SHADOW_CONFIG`.", []struct{ name, use string }{
		{"weir_shadow_requests_total", "Shows how many requests the candidate would newly deny or allow."},
		{"weir_shadow_denials_total", "Shows which limits make the difference."},
		{"weir_shadow_running", "At 0 the counts do not grow."},
		{"weir_shadow_loads_total", "If a change has no effect, the result `error` shows that the file is missing or has faults."},
		{"weir_shadow_dropped_requests_total", "Trust the counts only if it is small beside the requests."},
		{"weir_shadow_undecided_requests_total", ""},
		{"weir_shadow_evictions_total", "If it grows, the candidate denies too little."},
		{"weir_shadow_panics_total", ""},
		{"weir_shadow_keys", ""},
		{"weir_shadow_key_bytes", "Compare it with `SHADOW_MAX_BYTES`."},
	}},
	{"Recording", "These metrics exist only with `RECORD_PATH`.", []struct{ name, use string }{
		{"weir_recording_lines_total", ""},
		{"weir_recording_bytes_total", "zstd makes the files some ten times smaller."},
		{"weir_recording_dropped_lines_total", "If it grows, a replay of the recording allows more than the server did."},
		{"weir_recording_failing", "At 1 the log has the reason."},
	}},
	{"Admin API", "This metric exists only with `ADMIN_ADDR`.", []struct{ name, use string }{
		{"weir_admin_requests_total", "Code 401 grows if a token was replaced, or in an attack."},
	}},
	{"Metrics about metrics", "", []struct{ name, use string }{
		{"weir_metrics_series", "Look here if memory grows or Prometheus is slow."},
		{"weir_metrics_overflow_total", "If it grows, rules are missing in the `ratelimit_service` series."},
		{"weir_statsd_up", "Look here if metrics are missing in statsd."},
		{"weir_statsd_sent_lines_total", ""},
		{"weir_statsd_dropped_lines_total", ""},
	}},
	{"Metrics of envoyproxy/ratelimit", "Dashboards for envoyproxy/ratelimit work with these metrics; [switching.md](switching.md#metrics) has the differences.\n" +
		"If a limit has no effect, look at `ratelimit_service_rate_limit_domain_not_found`: Envoy may send another domain.", []struct{ name, use string }{
		{"ratelimit_service_rate_limit_total_hits", ""},
		{"ratelimit_service_rate_limit_over_limit", ""},
		{"ratelimit_service_rate_limit_near_limit", ""},
		{"ratelimit_service_rate_limit_within_limit", ""},
		{"ratelimit_service_rate_limit_shadow_mode", ""},
		{"ratelimit_service_rate_limit_over_limit_with_local_cache", ""},
		{"ratelimit_service_rate_limit_total_negative_hits", ""},
		{"ratelimit_service_rate_limit_domain_not_found", ""},
		{"ratelimit_service_global_shadow_mode", ""},
		{"ratelimit_service_config_load_success", ""},
		{"ratelimit_service_config_load_error", ""},
		{"ratelimit_service_should_rate_limit_error", ""},
		{"ratelimit_service_total_requests", ""},
		{"ratelimit_service_response_time_seconds", ""},
	}},
}

// labels explains every label of these metrics, in the order of the page.
var labels = []struct{ name, meaning, example, bound string }{
	{"domain", "the domain of the request", "`mall`", "the domains of the rules; 100 in `ratelimit_service_rate_limit_domain_not_found`"},
	{"rule", "the path of the rule: keys with their values, joined by dots; empty for a limit in the request", "`user_id.action=reply`", "the rules"},
	{"limit", "the name of the limit, or its index in the rule from 0; `override` for a limit in the request; absent from `weir_hits_total` for a rule with one limit", "`burst`, `0`", "the limits of the rules"},
	{"enforced", "`false` if shadow mode or quota mode let the request pass", "`true`", "2"},
	{"verdict", "the verdict on the hits of a descriptor: `allowed`, `denied` or `error`", "`denied`", "3"},
	{"code", "the gRPC code of the response; the HTTP status code for calls of the admin API", "`OK`, `Unavailable`, `401`", "the codes of gRPC, and of HTTP"},
	{"route", "the path of a route of the admin API, or `other`", "`/v1/keys/peek`", "the routes"},
	{"overall", "the answer to the whole request: `ok` or `over_limit`; empty unless the code is OK", "`over_limit`", "3"},
	{"outcome", "the outcome under the candidate of `SHADOW_CONFIG`, compared with the rules in force: `allowed`, `denied`, `newly_denied`, `newly_allowed`; `shadowed` for denials in shadow mode", "`newly_denied`", "5"},
	{"reason", "the reason why the recording lacks a line: `queue_full`, `rate`, `too_long`, `unwritten`", "`rate`", "4"},
	{"result", "the result of a load of rules or of a push by xDS", "`ok`, `error`, `rejected`", "5"},
	{"mode", "what decides: `store`, or a value of `on_store_error`", "`local`", "5"},
	{"redis", "the prefix of the settings of this Redis", "`REDIS`, `REDIS_PERSECOND`", "2"},
	{"version", "the version of Weir, or of the rules in `weir_rules_info`", "`v0.1.0`, `6f1ed002ab559585`", "1"},
	{"protocol", "the protocol of a request: `grpc` or `json`", "`grpc`", "2"},
	{"keyN", "entry N of the descriptor, in the metrics of envoyproxy/ratelimit", "`key1=\"user_id\"`", "10,000 series"},
	{"err_type", "`redis_error` if the store failed, else `service_error`", "`redis_error`", "2"},
	{"grpc_method", "the method that a client called", "`ShouldRateLimit`", "the methods of the server"},
}

var preamble = strings.ReplaceAll(`# Metrics

This page is for operators who build dashboards and alerts, or who look at Weir in an incident. The first table leads from a question to the metrics that
answer it. The other tables list every metric with its labels and its meaning, and [Labels](#labels) explains the labels. For the alerts on
these metrics, see [runbooks.md](runbooks.md).

| question | metric |
|---|---|
| Do requests pass, or do they fail? | ~weir_requests_total~ |
| Which limit denies? | ~weir_denials_total~ |
| Why does a limit have no effect? | ~weir_unmatched_descriptors_total~, ~ratelimit_service_rate_limit_domain_not_found~ |
| Is the store slow? | ~weir_store_duration_seconds~ |
| Is the store down, and what decides instead? | ~weir_domain_mode~, ~weir_fallback_hits_total~, ~weir_redis_broken_hits_total~ |
| Are there too few replicas? | ~weir_refused_requests_total~, ~weir_requests_in_flight~ |
| Which rules are in force? | ~weir_rules_info~, ~weir_rules_loads_total~ |

Prometheus scrapes ~/metrics~ on the HTTP port, or ~PROMETHEUS_ADDR~. At most four scrapes run at once, and others get 503. The metrics of the Go
runtime (~go_*~) and of the process (~process_*~) are there too. statsd gets only the metrics of envoyproxy/ratelimit, under the names that they
have there.

In a healthy system, no counter with ~refused~, ~left~, ~lost~, ~dropped~, ~broken~, ~bad~, ~failures~ or ~panics~ in its name grows.

This page is generated from the code: ~go test ./internal/telemetry -run TestMetricsReferenceIsCurrent -update~ writes it.
`, "~", "`")

func TestMetricsReferenceIsCurrent(t *testing.T) {
	all := allMetrics(t)
	families := maps.Clone(all)
	var page bytes.Buffer
	page.WriteString(preamble)
	for _, s := range sections {
		fmt.Fprintf(&page, "\n## %s\n\n", s.title)
		if s.intro != "" {
			fmt.Fprintf(&page, "%s\n\n", s.intro)
		}
		uses := slices.ContainsFunc(s.metrics, func(m struct{ name, use string }) bool { return m.use != "" })
		if uses {
			page.WriteString("| metric | type | labels | meaning | use |\n|---|---|---|---|---|\n")
		} else {
			page.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
		}
		for _, m := range s.metrics {
			f := families[m.name]
			if f == nil {
				t.Errorf("no server exports %s: remove it from sections", m.name)
				continue
			}
			delete(families, m.name)
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |", m.name, strings.ToLower(f.GetType().String()),
				labelsOf(f), strings.ReplaceAll(f.GetHelp(), "|", `\|`))
			if uses {
				fmt.Fprintf(&page, " %s |", m.use)
			}
			page.WriteString("\n")
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "weir_") || strings.HasPrefix(name, "ratelimit_") {
			t.Errorf("%s is in no section: add it, and say what an operator does with it", name)
		}
	}
	writeLabels(t, &page, all)
	const path = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, page.Bytes()) {
		t.Errorf("docs/metrics.md is not what the code says: run this test with -update")
	}
}

// writeLabels writes the table of labels. It fails the test unless the table has exactly the labels of the families.
func writeLabels(t *testing.T, page *bytes.Buffer, families map[string]*dto.MetricFamily) {
	used := map[string]bool{}
	for name, f := range families {
		if strings.HasPrefix(name, "weir_") || strings.HasPrefix(name, "ratelimit_") {
			for label := range strings.SplitSeq(labelsOf(f), ", ") {
				used[strings.Trim(label, "`")] = true
			}
		}
	}
	delete(used, "") // of families without labels
	page.WriteString("\n## Labels\n\nLabels come from the rules, so the rules bound the number of series. The exception is `keyN`: with `detailed_metric` or\n" +
		"`value_to_metric` it contains values of requests, so at most 10,000 series exist, and further ones count as `other`.\n\n| label | meaning | example | bound on its values |\n|---|---|---|---|\n")
	for _, l := range labels {
		if !used[l.name] {
			t.Errorf("no metric has the label %s: remove it from labels", l.name)
		}
		delete(used, l.name)
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", l.name, l.meaning, l.example, l.bound)
	}
	for name := range used {
		t.Errorf("the label %s is not in labels: add its meaning, an example and its bound", name)
	}
}

// labelsOf returns the labels of a family. The labels key1, key2 and so on are one.
func labelsOf(f *dto.MetricFamily) string {
	var names []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			name := "`" + l.GetName() + "`"
			if strings.HasPrefix(l.GetName(), "key") {
				name = "`keyN`"
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}

// allMetrics returns every metric that a server can export, by name. It registers all of them and counts one of each kind.
func allMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	rules, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: []byte(
		"domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 10}}, " +
			"{key: two, rate_limits: [{unit: day, requests_per_unit: 10}, {unit: hour, requests_per_unit: 10}]}]")})
	if err != nil {
		t.Fatal(err)
	}
	m := telemetry.NewMetrics("v0.0.0")
	m.Memory(func() telemetry.MemoryStats { return telemetry.MemoryStats{} })
	m.Redis("REDIS", func() telemetry.RedisStats { return telemetry.RedisStats{} })
	m.DenyCache(func() guard.DenyStats { return guard.DenyStats{} })
	m.Ends(func() guard.EndStats { return guard.EndStats{} })
	m.Observer(func() observe.Stats { return observe.Stats{} })
	m.Recording(func() telemetry.RecordingStats {
		return telemetry.RecordingStats{Dropped: map[string]int64{"rate": 1}}
	})
	m.Load(func() admission.Stats { return admission.Stats{} })
	m.Admin()("/v1/status", 200)
	m.Shadow(func() telemetry.ShadowStats {
		return telemetry.ShadowStats{Limits: []admin.ShadowLimit{{Domain: "d", Rule: "k", Limit: "0", NewlyDenied: 1}}}
	})
	m.Snapshot(func() telemetry.SnapshotStats { return telemetry.SnapshotStats{} })
	m.Fallback(func() guard.FallbackStats { return guard.FallbackStats{} }, func() *descriptors.Rules { return rules })
	telemetry.NewXDS(m.Registry)
	stats := ratelimitstats.New(m.Registry, ratelimitstats.Options{NearLimitRatio: .8})
	statsd.New(statsd.Destination{Network: "udp"}, stats, m.Registry, zap.NewNop())
	m.Loaded(rules, time.Now(), nil)
	stats.Loaded(rules, nil)

	entries := []descriptors.Entry{{Key: "k", Value: "v"}}
	rule := rules.Match("d", entries)
	decision := func(hits int64, v limiters.Verdict) decide.Decision {
		return decide.Decision{
			Domain: "d", Rule: rule, Entries: entries, Hits: hits, Limits: rule.Limits, Verdicts: []limiters.Verdict{v}, Shadow: hits == 2,
		}
	}
	two := decision(1, limiters.Verdict{})
	two.Rule = rules.Match("d", []descriptors.Entry{{Key: "two", Value: "v"}})
	two.Limits, two.Verdicts = two.Rule.Limits, make([]limiters.Verdict, 2)
	for _, o := range []*rls.Observation{
		{Result: decide.Result{Domain: "d", Decisions: []decide.Decision{
			decision(1, limiters.Verdict{Allowed: true, Used: 10}), decision(2, limiters.Verdict{Used: 20}),
			decision(1, limiters.Verdict{Used: 20, By: limiters.ByCache}), decision(0, limiters.Verdict{Penalized: true, PenaltyBegan: true}), decision(-1, limiters.Verdict{Allowed: true}),
			{Domain: "d", Reason: decide.NoRule}, two,
			{Domain: "d", Rule: rule, Reason: decide.Released, End: true}, {Domain: "d", Rule: rule, Reason: decide.BadLeaseID},
			{Domain: "d", Rule: rule, Reason: decide.TooManyLeases},
		}}},
		{Result: decide.Result{Domain: "x", DomainNotFound: true}},
		{Code: codes.Unavailable},
	} {
		m.Answered(o)
		stats.Answered(o)
	}
	if _, err := stats.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/Check"},
		func(context.Context, any) (any, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}
