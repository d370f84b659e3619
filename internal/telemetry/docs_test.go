package telemetry_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/statsd"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// sections orders docs/metrics.md. when says in which situation an operator looks at a metric.
var sections = []struct {
	title   string
	metrics []struct{ name, when string }
}{
	{"Requests", []struct{ name, when string }{
		{"weir_requests_total", "First, in every incident: it shows whether requests pass, are denied or fail."},
		{"weir_request_duration_seconds", "Envoy reports timeouts, or responses are slow."},
		{"weir_requests_in_flight", "Weir sheds requests. Compare it with `MAX_IN_FLIGHT`."},
		{"weir_refused_requests_total", "It should be 0. If not, the store is slow or replicas are too few."},
		{"weir_undecodable_requests_total", "It should be 0. If not, a client speaks another protocol, or its requests are too large. Envoy may let them pass."},
		{"weir_panics_total", "It should be 0."},
		{"weir_build_info", "During a rollout, or in a bug report."},
	}},
	{"Limits", []struct{ name, when string }{
		{"weir_denials_total", "A client gets 429 and you need to know which limit denied it. Peeks are in no other metric by rule."},
		{"weir_denied_peeks_total", "Envoy or a gateway peeks before it charges, and you need to know how many peeks it answers with 429."},
		{"weir_penalties_total", "A rule has a penalty and you want to know how many clients get it."},
		{"weir_penalty_denials_total", "You want to know how many denials come from penalties."},
		{"weir_decision_subscribers", "You want to know who streams decisions. The metric exists only if something reports decisions."},
		{"weir_decisions_dropped_total", "`weir tail` misses decisions: choose a smaller sample."},
		{"weir_denial_log_suppressed_total", "The denial log misses denials: raise `DENIAL_LOG_PER_SECOND`, or choose a smaller share."},
		{"weir_hits_total", "You want to see how much of its traffic a rule allows and denies."},
		{"weir_unmatched_descriptors_total", "A limit has no effect: Envoy's descriptors may not match the rules."},
	}},
	{"Leases and reservations", []struct{ name, when string }{
		{"weir_lease_ends_total", "Slots are missing: compare it with the allowed hits of the rule. A rule that ends fewer loses releases."},
		{"weir_leases_given_up_total", "Requests are denied or cancelled after they took a slot. The result error should be 0."},
		{"weir_lease_ends_pending", "Redis fails: so many leases end when it answers again."},
		{"weir_lease_ends_repeated_total", "After an outage of Redis: so many leases ended late."},
		{"weir_lease_ends_lost_total", "It should be 0. If not, slots stay held until their TTL."},
		{"weir_too_many_leases_total", "It should be 0. If not, settles are lost, or one key has the reservations of many clients."},
		{"weir_bad_lease_ids_total", "It should be 0. If not, Envoy sends no lease id, or one that is too long."},
	}},
	{"Rules", []struct{ name, when string }{
		{"weir_rules", "Replicas behave differently, or nothing is limited."},
		{"weir_rules_info", "Replicas behave differently: count the versions. Receipts and log lines name the version too."},
		{"weir_rules_loads_total", "A change of rules has no effect."},
		{"weir_rules_loaded_timestamp_seconds", "You want to know whether a change of rules has arrived."},
		{"weir_xds_connected", "Rules come by xDS and a change has no effect. The metric exists only with `CONFIG_TYPE=GRPC_XDS_SOTW`."},
		{"weir_xds_pushes_total", "The control plane has sent rules and Weir does not apply them."},
	}},
	{"Store", []struct{ name, when string }{
		{"weir_store_duration_seconds", "`weir_request_duration_seconds` rises: it shows whether the store is the cause."},
		{"weir_domain_mode", "The store fails and you need to know what decides instead."},
		{"weir_fallback_hits_total", "The store fails and you need to know how much was decided without it."},
	}},
	{"Redis", []struct{ name, when string }{
		{"weir_redis_calls_total", "You size Redis, or compare replicas."},
		{"weir_redis_hits_total", "You size Redis. A larger batch costs less CPU for each hit."},
		{"weir_redis_refused_hits_total", "It should be 0. If not, Redis is slower than the requests arrive."},
		{"weir_redis_left_hits_total", "It should be 0. If not, Redis is slower than `STORE_TIMEOUT` allows."},
		{"weir_redis_broken_hits_total", "Redis is unreachable: the breaker spares callers the wait."},
		{"weir_redis_panics_total", "It should be 0."},
	}},
	{"Deny cache", []struct{ name, when string }{
		{"weir_deny_cache_asked_total", "You want the hit rate of the deny cache."},
		{"weir_deny_cache_answered_total", "You want to know how many calls to Redis the deny cache saves."},
		{"weir_deny_cache_entries", "You size `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_bytes", "You size `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_refused_total", "It grows: raise `LOCAL_CACHE_SIZE_IN_BYTES`."},
		{"weir_deny_cache_sent_hits_total", "You compare the usage in Redis with the requests."},
		{"weir_deny_cache_lost_hits_total", "The usage in Redis is lower than expected after an outage."},
	}},
	{"Memory", []struct{ name, when string }{
		{"weir_memory_keys", "You size `MEMORY_MAX_KEYS`, or memory grows."},
		{"weir_memory_bytes", "You size `MEMORY_MAX_BYTES`, or memory grows."},
		{"weir_memory_dropped_keys_total", "It should be 0. If not, some counters were reset to make room."},
		{"weir_memory_refused_hits_total", "It should be 0. If not, requests failed because memory was full."},
		{"weir_memory_snapshot_timestamp_seconds", "Before a restart: it shows how old the counters would be."},
		{"weir_memory_snapshot_saved_keys", "Before a restart: it shows how many keys would survive."},
		{"weir_memory_snapshot_loaded_keys", "After a restart: it shows how many keys survived."},
		{"weir_memory_snapshot_failures_total", "It should be 0. If not, a restart resets counters."},
	}},
	{"Shadow file", []struct{ name, when string }{
		{"weir_shadow_requests_total", "You want to know how many requests the candidate would newly deny or allow. These metrics exist only with `SHADOW_CONFIG`."},
		{"weir_shadow_denials_total", "You want to know which limits make the difference."},
		{"weir_shadow_running", "The counts do not grow: 0 means that there is no candidate."},
		{"weir_shadow_loads_total", "A change of the shadow file has no effect."},
		{"weir_shadow_dropped_requests_total", "Before you trust the counts: it should be 0, or small beside the requests."},
		{"weir_shadow_undecided_requests_total", "The store failed: so many requests were not compared."},
		{"weir_shadow_evictions_total", "It should be 0. If not, the candidate denies too little: raise `SHADOW_MAX_BYTES`."},
		{"weir_shadow_panics_total", "It should be 0."},
		{"weir_shadow_keys", "You size `SHADOW_MAX_BYTES`."},
		{"weir_shadow_key_bytes", "You size `SHADOW_MAX_BYTES`."},
	}},
	{"Recording", []struct{ name, when string }{
		{"weir_recording_lines_total", "A recording is smaller than expected. These metrics exist only with `RECORD_PATH`."},
		{"weir_recording_bytes_total", "You size `RECORD_MAX_BYTES`. zstd makes the files some ten times smaller."},
		{"weir_recording_dropped_lines_total", "Before you trust a recording: it should be 0. Dropped lines make a replay allow more."},
		{"weir_recording_failing", "It should be 0. If not, the log has the reason."},
	}},
	{"Admin API", []struct{ name, when string }{
		{"weir_admin_requests_total", "Calls with code 401 may be an attack, or a token that was replaced. The metric exists only with `ADMIN_ADDR`."},
	}},
	{"Metrics about metrics", []struct{ name, when string }{
		{"weir_metrics_series", "Memory grows, or Prometheus is slow."},
		{"weir_metrics_overflow_total", "A rule is missing in `ratelimit_service` metrics."},
		{"weir_statsd_up", "Metrics are missing in statsd."},
		{"weir_statsd_sent_lines_total", "Metrics are missing in statsd."},
		{"weir_statsd_dropped_lines_total", "Metrics are missing in statsd."},
	}},
	{"Metrics of envoyproxy/ratelimit", []struct{ name, when string }{
		{"ratelimit_service_rate_limit_total_hits", "Your dashboards were made for envoyproxy/ratelimit."},
		{"ratelimit_service_rate_limit_over_limit", "Your dashboards use it."},
		{"ratelimit_service_rate_limit_near_limit", "You want to see limits that are almost reached."},
		{"ratelimit_service_rate_limit_within_limit", "Your dashboards use it."},
		{"ratelimit_service_rate_limit_shadow_mode", "You test a limit in shadow mode."},
		{"ratelimit_service_rate_limit_over_limit_with_local_cache", "Your dashboards use it."},
		{"ratelimit_service_rate_limit_total_negative_hits", "Envoy refunds hits."},
		{"ratelimit_service_rate_limit_domain_not_found", "A limit has no effect: Envoy may send another domain."},
		{"ratelimit_service_global_shadow_mode", "You run with `SHADOW_MODE=true`."},
		{"ratelimit_service_config_load_success", "Your dashboards use it."},
		{"ratelimit_service_config_load_error", "Your dashboards use it."},
		{"ratelimit_service_should_rate_limit_error", "Your dashboards use it."},
		{"ratelimit_service_total_requests", "Your dashboards use it."},
		{"ratelimit_service_response_time_seconds", "Your dashboards use it."},
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

const preamble = `# Metrics

This page is for operators. It lists every metric of Weir with its labels, its meaning, and when to look at it.
Prometheus scrapes the metrics from ` + "`/metrics`" + ` on the HTTP port, or from ` + "`PROMETHEUS_ADDR`" + `. At most four scrapes run at once; others get 503.
statsd gets only the metrics of envoyproxy/ratelimit, under the names that it uses there.

Labels come from the rules, so the rules bound the number of series. The exception is the label ` + "`keyN`" + ` of the metrics of
envoyproxy/ratelimit: with ` + "`detailed_metric`" + ` or ` + "`value_to_metric`" + ` it contains values of requests, and at most 10,000 series exist.
Weir also exports the metrics of the Go runtime (` + "`go_*`" + `) and of the process (` + "`process_*`" + `).

The alerts on these metrics are in [runbooks.md](runbooks.md). This page is generated from the code:
` + "`go test ./internal/telemetry -run TestMetricsReferenceIsCurrent -update`" + ` writes it.
`

func TestMetricsReferenceIsCurrent(t *testing.T) {
	families := allMetrics(t)
	var page bytes.Buffer
	page.WriteString(preamble)
	writeLabels(t, &page, families)
	for _, s := range sections {
		fmt.Fprintf(&page, "\n## %s\n\n| metric | type | labels | meaning | look at it when |\n|---|---|---|---|---|\n", s.title)
		for _, m := range s.metrics {
			f := families[m.name]
			if f == nil {
				t.Errorf("no server exports %s: remove it from sections", m.name)
				continue
			}
			delete(families, m.name)
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", m.name, strings.ToLower(f.GetType().String()),
				labelsOf(f), strings.ReplaceAll(f.GetHelp(), "|", `\|`), m.when)
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "weir_") || strings.HasPrefix(name, "ratelimit_") {
			t.Errorf("%s is in no section: add it, and say when to look at it", name)
		}
	}
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
	page.WriteString("\n## Labels\n\n| label | meaning | example | bound on its values |\n|---|---|---|---|\n")
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
	m.DenyCache(func() telemetry.DenyCacheStats { return telemetry.DenyCacheStats{} })
	m.Ends(func() telemetry.EndStats { return telemetry.EndStats{} })
	m.Observer(func() telemetry.ObserverStats { return telemetry.ObserverStats{} })
	m.Recording(func() telemetry.RecordingStats {
		return telemetry.RecordingStats{Dropped: map[string]int64{"rate": 1}}
	})
	m.Load(func() telemetry.LoadStats { return telemetry.LoadStats{} })
	m.Admin()("/v1/status", 200)
	m.Shadow(func() telemetry.ShadowStats {
		return telemetry.ShadowStats{Limits: []telemetry.ShadowLimit{{Domain: "d", Rule: "k", Limit: "0", NewlyDenied: 1}}}
	})
	m.Snapshot(func() telemetry.SnapshotStats { return telemetry.SnapshotStats{} })
	m.Fallback(func() telemetry.FallbackStats { return telemetry.FallbackStats{} }, func() *descriptors.Rules { return rules })
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
