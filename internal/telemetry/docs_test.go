package telemetry_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/decisionstream"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/recorder"
	"github.com/weir-rls/weir/pkg/rls"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// sections orders docs/metrics.md. use is the conclusion that an operator draws from a metric,
// beyond its help, or empty.
var sections = []struct {
	title, intro string
	metrics      []struct{ name, use string }
}{
	{"Requests", "", []struct{ name, use string }{
		{"weir_requests_total", "In an incident, look here first."},
		{"weir_request_duration_seconds", "Keep it below the `timeout` of Envoy's filter."},
		{"weir_requests_in_flight", "At `MAX_IN_FLIGHT`, Weir begins to shed requests."},
		{"weir_refused_requests_total", "If it grows, add replicas, or find out why the store is slow."},
		{"weir_undecodable_requests_total", "Find the client that sends these messages, because Envoy may let its requests pass."},
		{"weir_panics_total", "Report the bug with its log line, which contains the stack."},
		{"weir_build_info", "Use it to count the replicas of each version during a rollout."},
	}},
	{"Limits", "The last three metrics exist only with `ADMIN_ADDR` or `DENIAL_LOG`.", []struct{ name, use string }{
		{"weir_denials_total", "If a client gets a 429, this metric shows which limit denies. A 429 for an invalid lease id is only in `weir_bad_lease_ids_total`."},
		{"weir_denied_peeks_total", "Envoy and gateways may send a peek before they charge."},
		{"weir_hits_total", "Compare the denied hits of a rule with its allowed hits."},
		{"weir_unmatched_descriptors_total", "If a limit has no effect, compare these descriptors with the rules."},
		{"weir_penalties_total", ""},
		{"weir_penalty_denials_total", ""},
		{"weir_denial_log_suppressed_total", "To log every selected denial, raise `DENIAL_LOG_PER_SECOND`, or lower the fraction in `DENIAL_LOG`."},
		{"weir_decision_subscribers", ""},
		{"weir_decisions_dropped_total", "To miss none, choose a smaller sample in `weir tail`."},
	}},
	{"Store", "", []struct{ name, use string }{
		{"weir_store_duration_seconds", "If it rises together with `weir_request_duration_seconds`, the store makes Weir slow. While `weir_redis_broken_hits_total` rises, quick rejections lower its quantiles."},
		{"weir_domain_mode", "A 1 for a mode other than `store` means that the store fails."},
		{"weir_fallback_hits_total", ""},
	}},
	{"Redis", "", []struct{ name, use string }{
		{"weir_redis_calls_total", ""},
		{"weir_redis_hits_total", "Divide it by `weir_redis_calls_total` to get the mean size of a batch. A larger batch costs less CPU for each operation."},
		{"weir_redis_refused_hits_total", "If it grows, Redis is too slow for the load."},
		{"weir_redis_left_hits_total", "If it grows, Redis is slower than `STORE_TIMEOUT`, or clients have shorter timeouts."},
		{"weir_redis_broken_hits_total", "If it grows, Redis is unreachable, and the breaker spares these requests the wait for a timeout."},
		{"weir_redis_panics_total", "Report the bug."},
	}},
	{"Deny cache", "", []struct{ name, use string }{
		{"weir_deny_cache_asked_total", ""},
		{"weir_deny_cache_answered_total", "Divide it by `weir_deny_cache_asked_total` to get the hit rate of the cache."},
		{"weir_deny_cache_entries", ""},
		{"weir_deny_cache_bytes", "Compare it with the bound, `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_refused_total", "If it grows, raise `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_sent_hits_total", ""},
		{"weir_deny_cache_lost_hits_total", "After an outage, the usage in Redis may be too low by this number."},
	}},
	{"Memory", "", []struct{ name, use string }{
		{"weir_memory_keys", "Compare it with the bound, `MEMORY_MAX_KEYS`."},
		{"weir_memory_bytes", "Compare it with the bound, `MEMORY_MAX_BYTES`."},
		{"weir_memory_dropped_keys_total", "If it grows, raise the bound of the memory, because the usage of each evicted key restarts at 0."},
		{"weir_memory_refused_hits_total", "If it grows, raise the bound of the memory."},
		{"weir_memory_snapshot_timestamp_seconds", "A crash loses the charges since this time."},
		{"weir_memory_snapshot_saved_keys", ""},
		{"weir_memory_snapshot_loaded_keys", ""},
		{"weir_memory_snapshot_failures_total", "The log states the reason. If Weir restarts, it loses the charges since the last snapshot."},
	}},
	{"Rules", "The last two metrics exist only with `CONFIG_TYPE=GRPC_XDS_SOTW`.", []struct{ name, use string }{
		{"weir_rules", ""},
		{"weir_rules_info", "If replicas behave differently, compare their versions. Receipts and log lines contain the version too."},
		{"weir_rules_loads_total", "If a change has no effect, look for the result `error`."},
		{"weir_rules_last_load_successful", "If it is 0, the log states the faults."},
		{"weir_rules_loaded_timestamp_seconds", "It shows whether a change has arrived."},
		{"weir_xds_connected", ""},
		{"weir_xds_pushes_total", "If a change has no effect, look for the result `rejected`."},
	}},
	{"Leases and reservations", "", []struct{ name, use string }{
		{"weir_lease_ends_total", "If a rule has fewer ends than allowed hits, releases are lost, and their slots stay held until their TTL."},
		{"weir_leases_given_up_total", ""},
		{"weir_lease_ends_pending", "When Redis answers again, Weir ends these leases and reservations."},
		{"weir_lease_ends_repeated_total", "Because of a Redis outage, these leases and reservations ended late."},
		{"weir_lease_ends_lost_total", "Redis failed for too long, so slots stay held until their TTL."},
		{"weir_too_many_leases_total", "If it grows, settlements are lost, or one key has the reservations of many clients."},
		{"weir_bad_lease_ids_total", "In Envoy, correct the last entry of the descriptor, which is the lease id."},
	}},
	{"Shadow file", "These metrics exist only with `SHADOW_CONFIG`.", []struct{ name, use string }{
		{"weir_shadow_requests_total", "Compare `newly_denied` and `newly_allowed` with the sum of all outcomes to see how much the candidate would change."},
		{"weir_shadow_denials_total", "It shows which limits cause a difference."},
		{"weir_shadow_running", ""},
		{"weir_shadow_loads_total", "If a change to the file has no effect, look for the result `error`."},
		{"weir_shadow_dropped_requests_total", "Trust the comparison only if this counter grows much more slowly than `weir_shadow_requests_total`. It never restarts from 0."},
		{"weir_shadow_undecided_requests_total", ""},
		{"weir_shadow_evictions_total", "If it grows, raise `SHADOW_MAX_BYTES`, because without these keys the candidate denies too little."},
		{"weir_shadow_panics_total", "Report the bug."},
		{"weir_shadow_keys", ""},
		{"weir_shadow_key_bytes", "Compare it with the bound, `SHADOW_MAX_BYTES`."},
	}},
	{"Recording", "These metrics exist only with `RECORD_PATH`.", []struct{ name, use string }{
		{"weir_recording_lines_total", ""},
		{"weir_recording_bytes_total", "The compressed files are about ten times smaller."},
		{"weir_recording_dropped_lines_total", "A replay of a recording with gaps allows more than the server did."},
		{"weir_recording_failing", "The log states the reason."},
	}},
	{"Admin API", "This metric exists only with `ADMIN_ADDR`.", []struct{ name, use string }{
		{"weir_admin_requests_total", "If 401 grows, a caller has an old token, or somebody guesses tokens."},
	}},
	{"Metrics about metrics", "", []struct{ name, use string }{
		{"weir_metrics_series", "Many series take memory, and slow Prometheus down."},
		{"weir_metrics_overflow_total", "If it grows, some rules have no `ratelimit_service` series of their own."},
		{"weir_statsd_up", "If it is 0, the log states the reason."},
		{"weir_statsd_sent_lines_total", ""},
		{"weir_statsd_dropped_lines_total", "`weir_statsd_up` shows whether the last send succeeded."},
	}},
	{"Metrics of envoyproxy/ratelimit", "Dashboards for envoyproxy/ratelimit work with these metrics; [switching.md](switching.md#metrics) lists the differences. If a limit has no effect,\n" +
		"look at `ratelimit_service_rate_limit_domain_not_found`, because Envoy may send another domain.", []struct{ name, use string }{
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
	{"domain", "The domain of the request.", "`mall`", "the domains of the rules, or 100 in `ratelimit_service_rate_limit_domain_not_found`"},
	{"rule", "The path of the rule, which is its keys with their values, joined by dots. It is empty for an override.", "`user_id.action=reply`", "the rules"},
	{"limit", "The name of the limit, or its index in the rule from 0, or `override` for an override. `weir_hits_total` has it only for denied hits of a rule with several limits.", "`burst`, `0`", "the limits of the rules"},
	{"enforced", "`false` if shadow mode or quota mode let the request pass, else `true`.", "`true`", "2"},
	{"verdict", "The verdict on the hits of a descriptor: `allowed`, `denied` or `error`.", "`denied`", "3"},
	{"code", "The gRPC code of the request. For a call to the admin API, it is the HTTP status code.", "`OK`, `Unavailable`, `401`", "the codes of gRPC, and of HTTP"},
	{"route", "The path of a route of the admin API, or `other`.", "`/v1/keys/peek`", "the routes"},
	{"overall", "The answer to the whole request: `ok` or `over_limit`. It is empty unless the code is OK.", "`over_limit`", "3"},
	{"outcome", "The outcome under the candidate of `SHADOW_CONFIG`, compared with the rules in force: `allowed`, `denied`, `newly_denied`, `newly_allowed`, or `shadowed` for a denial in shadow mode.", "`newly_denied`", "5"},
	{"reason", "The reason why the recording lacks a line: `queue_full`, `rate`, `too_long` or `unwritten`.", "`rate`", "4"},
	{"result", "The result of a load of rules, of a push over xDS, or of the end of a lease or a reservation.", "`ok`, `error`, `rejected`", "5"},
	{"mode", "The source of the decision: `store`, or a value of `on_store_error`.", "`local`", "5"},
	{"redis", "The prefix of the settings of this Redis.", "`REDIS`, `REDIS_PERSECOND`", "2"},
	{"version", "The version of Weir, or in `weir_rules_info` the version of the rules.", "`v0.1.0`, `6f1ed002ab559585`", "1"},
	{"protocol", "The protocol of a request: `grpc` or `json`.", "`grpc`", "2"},
	{"keyN", "Entry N of the descriptor, in the metrics of envoyproxy/ratelimit.", "`key1=\"user_id\"`", "10,000 series"},
	{"err_type", "`redis_error` if the store failed, else `service_error`.", "`redis_error`", "2"},
	{"grpc_method", "The method that a client called.", "`ShouldRateLimit`", "the methods of the server"},
}

var preamble = strings.ReplaceAll(`# Metrics

<!-- Generated from the code by go test ./internal/telemetry -run MetricsReference -update -->

This page is for operators who build dashboards or look at Weir in an incident. It lists every metric and what it counts. These queries answer the
usual questions:

| question | query |
|---|---|
| Do requests pass, or do they fail? | ~sum by (code, overall) (rate(weir_requests_total[5m]))~ |
| Which limits deny most? | ~topk(10, sum by (domain, rule, limit) (rate(weir_denials_total{enforced="true"}[5m])))~ |
| Why does a limit have no effect? | ~sum by (domain) (rate(weir_unmatched_descriptors_total[5m]))~, ~sum by (domain) (rate(ratelimit_service_rate_limit_domain_not_found[5m]))~ |
| Is Weir slow? | ~histogram_quantile(0.99, sum by (le) (rate(weir_request_duration_seconds_bucket[5m])))~ |
| Is the store slow? | ~histogram_quantile(0.99, sum by (le) (rate(weir_store_duration_seconds_bucket[5m])))~ |
| Is the store down, and what decides instead? | ~weir_domain_mode{mode!="store"} == 1~, ~sum by (mode) (rate(weir_fallback_hits_total[5m]))~ |
| Are there too few replicas? | ~sum(rate(weir_refused_requests_total[5m]))~ |
| Do all replicas have the same rules? | ~count by (version) (weir_rules_info)~ |

Let Prometheus scrape ~/metrics~ on the HTTP port, or with ~USE_PROMETHEUS=true~ on ~PROMETHEUS_ADDR~. ~/metrics~ also contains the metrics of the Go
runtime (~go_*~) and of the process (~process_*~). Weir serves at most four scrapes at the same time, and answers others with 503. statsd receives
only the [metrics of envoyproxy/ratelimit](#metrics-of-envoyproxyratelimit), under their names there.

**A counter of failures should stay constant.** Its name contains ~refused~, ~left~, ~lost~, ~dropped~, ~broken~, ~bad~, ~failures~, ~panics~,
~overflow~, ~undecodable~ or ~too_many~. If an [alert](runbooks.md) watches a metric, its row names the alert.
`, "~", "`")

// codeInHelp matches the names of settings, metrics and labels in the help of a metric.
var codeInHelp = regexp.MustCompile(`\b\w+_\w+(=\w+)?`)

// labelWords lists the words of a help that are names and values of labels, where the same word may
// occur with another meaning.
var labelWords = map[string]string{
	"weir_requests_total":                "overall|ok",
	"weir_build_info":                    "version",
	"weir_domain_mode":                   "store|error|allow|deny|local",
	"weir_rules_info":                    "version",
	"weir_rules_loads_total":             "ok|error",
	"weir_xds_pushes_total":              "accepted|unchanged|rejected",
	"weir_lease_ends_total":              "error",
	"weir_leases_given_up_total":         "error",
	"weir_memory_keys":                   "local",
	"weir_shadow_requests_total":         "allowed|denied",
	"weir_shadow_denials_total":          "denied|shadowed",
	"weir_shadow_loads_total":            "ok|error",
	"weir_recording_dropped_lines_total": "rate|unwritten",
}

// codeOf returns the help of a metric with the names of settings, metrics and labels, and the
// values of labels, as code.
func codeOf(metric, help string) string {
	help = codeInHelp.ReplaceAllString(help, "`$0`")
	words := labelWords[metric]
	if words == "" {
		return help
	}
	return regexp.MustCompile("(label |outcome |is |or |, |: )("+words+")\\b").ReplaceAllString(help, "$1`$2`")
}

// alertsOn returns the names of the alerts whose expressions contain a metric.
func alertsOn(t *testing.T, metric string) (names []string) {
	t.Helper()
	alerts := must.Read(t, "../../deploy/k8s/components/monitoring/alerts.yaml")
	uses := regexp.MustCompile(`\b` + metric + `(_bucket)?\b`)
	for _, alert := range strings.Split(string(alerts), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(alert, "\n")
		if expression, _, _ := strings.Cut(rest, "labels: {"); uses.MatchString(expression) {
			names = append(names, fmt.Sprintf("[%s](runbooks.md#%s)", name, strings.ToLower(name)))
		}
	}
	return names
}

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
		page.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
		for _, m := range s.metrics {
			f := families[m.name]
			if f == nil {
				t.Errorf("no server exports %s: remove it from sections", m.name)
				continue
			}
			delete(families, m.name)
			meaning := strings.TrimSpace(codeOf(m.name, f.GetHelp()) + " " + m.use)
			switch alerts := alertsOn(t, m.name); len(alerts) {
			case 0:
			case 1:
				meaning += " The alert " + alerts[0] + " watches it."
			default:
				meaning += " These alerts watch it: " + strings.Join(alerts, ", ") + "."
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", m.name, strings.ToLower(f.GetType().String()),
				cmp.Or(labelsOf(f), "none"), strings.ReplaceAll(meaning, "|", `\|`))
		}
	}
	for _, name := range regexp.MustCompile(`\b(?:weir|ratelimit_service)_[a-z_]+`).FindAllString(preamble, -1) {
		if all[strings.TrimSuffix(name, "_bucket")] == nil {
			t.Errorf("no server exports %s, which a query of the page contains", name)
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
		must.Succeed(t, os.WriteFile(path, page.Bytes(), 0o644))
	}
	have := must.Read(t, path)
	if !bytes.Equal(have, page.Bytes()) {
		t.Errorf("docs/metrics.md is not what the code says: run this test with -update")
	}
}

// writeLabels writes the table of labels. It fails the test unless the table has exactly the labels
// of the families.
func writeLabels(t *testing.T, page *bytes.Buffer, families map[string]*dto.MetricFamily) {
	used := map[string]bool{}
	for name, f := range families {
		if strings.HasPrefix(name, "weir_") || strings.HasPrefix(name, "ratelimit_") {
			for label := range strings.SplitSeq(labelsOf(f), ", ") {
				used[strings.Trim(label, "`")] = true
			}
		}
	}
	delete(used, "") // families without labels
	page.WriteString("\n## Labels\n\nThe rules determine the labels, and so the number of series. Two labels may contain values of requests: `keyN` with `detailed_metric` or\n" +
		"`value_to_metric`, and `domain` for domains without rules. Once such a label has as many values as its bound, Weir counts further ones as `other`.\n\n| label | meaning | example | bound on its values |\n|---|---|---|---|\n")
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

// allMetrics returns every metric that a server can export, by name. It registers all of them and
// counts one of each kind.
func allMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	rules := rulesfiletest.Parse(t,
		"domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 10}}, "+
			"{key: two, rate_limits: [{unit: day, requests_per_unit: 10}, {unit: hour, requests_per_unit: 10}]}]")
	m := telemetry.NewMetrics("v0.0.0")
	m.RegisterMemory(func() telemetry.MemoryStats { return telemetry.MemoryStats{} })
	m.RegisterRedis("REDIS", func() telemetry.RedisStats { return telemetry.RedisStats{} })
	m.RegisterDenyCache(func() guard.DenyCacheStats { return guard.DenyCacheStats{} })
	m.RegisterEndRetrier(func() guard.EndRetrierStats { return guard.EndRetrierStats{} })
	m.RegisterDecisionStream(func() decisionstream.Stats { return decisionstream.Stats{} })
	m.RegisterRecording(func() recorder.Stats { return recorder.Stats{} })
	m.RegisterShedding(func() admission.Stats { return admission.Stats{} })
	m.RegisterAdmin()("/v1/status", 200)
	m.RegisterShadow(func() telemetry.ShadowStats {
		return telemetry.ShadowStats{Report: api.ShadowReport{Limits: []api.LimitDiff{{Domain: "d", Rule: "k", Limit: "0", NewlyDenied: 1}}}}
	})
	m.RegisterSnapshot(func() telemetry.SnapshotStats { return telemetry.SnapshotStats{} })
	m.RegisterFallback(func() guard.FallbackStats { return guard.FallbackStats{} }, func() *descriptors.Rules { return rules })
	m.RegisterXDS()
	stats := ratelimitstats.New(m.Registry, ratelimitstats.Options{NearLimitRatio: .8})
	statsd.New(statsd.Destination{Network: "udp"}, stats, m.Registry, zap.NewNop())
	m.Loaded(rules, time.Now(), nil)
	stats.Loaded(rules, nil)

	entries := []descriptors.Entry{{Key: "k", Value: "v"}}
	rule := rules.Match("d", entries)
	decision := func(hits int64, v limiters.Verdict) decide.Decision {
		return decide.Decision{Plan: &decide.Plan{Domain: "d", Rule: rule, Entries: entries, Hits: hits, Limits: rule.Limits, ShadowMode: hits == 2}, Verdicts: []limiters.Verdict{v}}
	}
	two := decision(1, limiters.Verdict{})
	two.Rule = rules.Match("d", []descriptors.Entry{{Key: "two", Value: "v"}})
	two.Limits, two.Verdicts = two.Rule.Limits, make([]limiters.Verdict, 2)
	for _, o := range []*rls.Observation{
		{Result: decide.Result{PlannedRequest: decide.PlannedRequest{Domain: "d"}, Decisions: []decide.Decision{
			decision(1, limiters.Verdict{Allowed: true, Used: 10}), decision(2, limiters.Verdict{Used: 20}),
			decision(1, limiters.Verdict{Used: 20, By: limiters.ByCache}), decision(0, limiters.Verdict{Penalized: true, PenaltyBegan: true}), decision(-1, limiters.Verdict{Allowed: true}),
			{Plan: &decide.Plan{Domain: "d"}, Reason: decide.NoRule}, two,
			{Plan: &decide.Plan{Domain: "d", Rule: rule, Kind: decide.EndLease}, Reason: decide.Released}, {Plan: &decide.Plan{Domain: "d", Rule: rule}, Reason: decide.BadLeaseID},
			{Plan: &decide.Plan{Domain: "d", Rule: rule}, Reason: decide.TooManyLeases},
		}}},
		{Result: decide.Result{PlannedRequest: decide.PlannedRequest{Domain: "x", UnknownDomain: true}}},
		{Code: codes.Unavailable},
	} {
		m.Observe(o)
		stats.Observe(o)
	}
	if _, err := stats.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/Check"},
		func(context.Context, any) (any, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	families, err := m.Registry.Gather()
	must.Succeed(t, err)
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}
