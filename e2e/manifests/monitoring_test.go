package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	corev1 "k8s.io/api/core/v1"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// A query is a PromQL expression and its location.
type query struct{ where, expr string }

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  *struct{ Type, UID string }
	Targets     []struct {
		Expr, LegendFormat string
		Datasource         struct{ UID string }
	}
}

type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	maps := named[*corev1.ConfigMap](build(t, k8s+"/overlays/monitoring"), "weir-dashboard")
	if maps.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the label for Grafana's sidecar is missing: %v", maps.Labels)
	}
	var d dashboard
	must.Succeed(t, json.Unmarshal([]byte(maps.Data["weir.json"]), &d))
	return d
}

func theAlerts(t *testing.T) []monitoringv1.Rule {
	t.Helper()
	var all []monitoringv1.Rule
	for _, r := range of[*monitoringv1.PrometheusRule](build(t, k8s+"/overlays/monitoring")) {
		for _, g := range r.Spec.Groups {
			all = append(all, g.Rules...)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d alerts: this test checks too little", len(all))
	}
	return all
}

// variables replaces the variables of the dashboard, as Grafana does.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$namespace", ".*", "$job", ".*", "$domain", ".*")

func queries(t *testing.T) []query {
	t.Helper()
	var all []query
	for _, p := range theDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, query{"panel " + p.Title, variables.Replace(target.Expr)})
		}
	}
	if len(all) < 30 {
		t.Fatalf("%d queries of panels: this test checks too little", len(all))
	}
	for _, a := range theAlerts(t) {
		all = append(all, query{"alert " + a.Alert, a.Expr.String()})
	}
	for _, b := range blocks(t, "promql") {
		for expr := range strings.SplitSeq(b.text, "\n\n") {
			all = append(all, query{b.page, expr})
		}
	}
	return all
}

// seen holds the label values of each metric that servers have exported, under the names that
// Prometheus stores.
type seen map[string]map[string]map[string]bool

func (s seen) add(name string, pairs []*dto.LabelPair) {
	if s[name] == nil {
		s[name] = map[string]map[string]bool{}
	}
	for _, p := range pairs {
		if s[name][p.GetName()] == nil {
			s[name][p.GetName()] = map[string]bool{}
		}
		s[name][p.GetName()][p.GetValue()] = true
	}
}

// scrape adds the metrics of a pod.
func (s seen) scrape(t *testing.T, p *pod) {
	t.Helper()
	_, text := p.get("metrics", "/metrics")
	exposition := expfmt.NewTextParser(model.LegacyValidation)
	families, err := exposition.TextToMetricFamilies(strings.NewReader(text))
	must.Succeed(t, err)
	le := model.BucketLabel
	for name, f := range families {
		for _, m := range f.Metric {
			if f.GetType() != dto.MetricType_HISTOGRAM && f.GetType() != dto.MetricType_SUMMARY {
				s.add(name, m.Label)
				continue
			}
			s.add(name+"_sum", m.Label)
			s.add(name+"_count", m.Label)
			for _, b := range m.GetHistogram().GetBucket() {
				value := fmt.Sprint(b.GetUpperBound())
				s.add(name+"_bucket", append(slices.Clone(m.Label), &dto.LabelPair{Name: &le, Value: &value}))
			}
		}
	}
}

// drive makes servers on Redis, in memory and with xDS export every kind of metric, and returns the
// metrics.
func drive(t *testing.T) seen {
	t.Helper()
	all := seen{}
	overlay := build(t, k8s+"/overlays/redis")
	redis := redistest.Start(t)
	p := run(t, overlay, map[string]string{"REDIS_URL": redis.Addr, "STORE_TIMEOUT": "5s"})
	p.countAllowed(9, "weir", "user_id=alice", "action=login")
	_, _ = p.ask("weir", "user_id=alice", "action=reply")
	_, _ = p.ask("weir", "unknown=x")
	_, _ = p.ask("elsewhere", "user_id=alice")
	_, _ = p.ask("weir", "=a key that is empty")
	redis.Stop()
	_, _ = p.ask("weir", "user_id=alice", "action=reply")
	p.mount("/etc/weir/rules", map[string]string{"rules.yaml": "domain: weir\ndescriptors: 7\n"})
	must.Until(t, "rules with a fault", func() bool { return strings.Contains(p.Log(), "rules not loaded") })
	all.scrape(t, p)

	p = run(t, build(t, k8s+"/overlays/memory"), nil)
	p.countAllowed(9, "weir", "user_id=alice", "action=login")
	all.scrape(t, p)

	p = run(t, build(t, k8s+"/overlays/memory"), map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "127.0.0.1:1", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"SHADOW_MODE": "true",
	})
	all.scrape(t, p)
	return all
}

// ofTheTarget lists the labels that Prometheus adds to all metrics of a target.
var ofTheTarget = []string{"job", "namespace", "pod", "instance", "service", "container", "endpoint"}

// Every metric, label and label value in a query of the dashboard, the alerts and the runbooks
// exists. The label key3 exists only for rules with three levels.
func TestQueriesUseExistingMetrics(t *testing.T) {
	there := drive(t)
	for _, q := range queries(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %v in %s", q.where, err, q.expr)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
			switch n := n.(type) {
			case *parser.VectorSelector:
				there.checkSelector(t, q, n)
			case *parser.AggregateExpr:
				there.checkGrouping(t, q, n)
			}
			return nil
		})
	}
}

func (s seen) checkSelector(t *testing.T, q query, v *parser.VectorSelector) {
	t.Helper()
	if v.Name == "up" { // Prometheus' own
		return
	}
	labelsOf, found := s[v.Name]
	if !found {
		t.Errorf("%s: no server exports %s", q.where, v.Name)
		return
	}
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel || slices.Contains(ofTheTarget, m.Name) {
			continue
		}
		values, found := labelsOf[m.Name]
		switch {
		case !found:
			t.Errorf("%s: %s has no label %s, only %v", q.where, v.Name, m.Name, slices.Sorted(maps.Keys(labelsOf)))
		case m.Type == labels.MatchEqual && !values[m.Value]:
			t.Errorf("%s: %s has no %s=%q, only %v", q.where, v.Name, m.Name, m.Value, slices.Sorted(maps.Keys(values)))
		}
	}
}

// checkGrouping fails the test if no metric of an aggregation has a label that it groups by.
func (s seen) checkGrouping(t *testing.T, q query, a *parser.AggregateExpr) {
	t.Helper()
	for _, label := range a.Grouping {
		found := slices.Contains(ofTheTarget, label) || label == "key3"
		parser.Inspect(a.Expr, func(n parser.Node, _ []parser.Node) error {
			if v, is := n.(*parser.VectorSelector); is {
				found = found || s[v.Name][label] != nil
			}
			return nil
		})
		if !found {
			t.Errorf("%s: no metric has the label %s in %s", q.where, label, a)
		}
	}
}

func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	d := theDashboard(t)
	declared := map[string]bool{"__rate_interval": true, "__range": true}
	for _, v := range d.Templating.List {
		declared[v.Name] = true
	}
	used := regexp.MustCompile(`\$\{?(\w+)`)
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, found := ids[p.ID]; found {
			t.Errorf("%q and %q have one id", p.Title, other)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("%q is at %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, found := cells[[2]int{x, y}]; found {
					t.Fatalf("%q overlaps %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource == nil) {
			t.Errorf("%q has no queries", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%q uses the data source %q instead of the variable", p.Title, target.Datasource.UID)
			}
			for _, v := range used.FindAllStringSubmatch(target.Expr, -1) {
				if !declared[v[1]] {
					t.Errorf("%q: no variable %s", p.Title, v[1])
				}
			}
		}
	}
}

// calm holds the series of a healthy server, one value a minute.
const calm = `
	up{job="weir", namespace="weir", pod="a"} 1x60
	weir_requests_total{namespace="weir", pod="a", code="OK", overall="ok"} 0+6000x60
	weir_requests_total{namespace="weir", pod="a", code="Unavailable"} 0x60
	weir_requests_total{namespace="weir", pod="a", code="InvalidArgument"} 0x60
	weir_rules{namespace="weir", pod="a"} 3x60
	weir_rules{namespace="weir", pod="b"} 3x60
	weir_rules_last_load_successful{namespace="weir", pod="a"} 1x60
	weir_rules_info{namespace="weir", pod="a", version="6f1ed002ab559585"} 1x60
	weir_rules_info{namespace="weir", pod="b", version="6f1ed002ab559585"} 1x60
	weir_panics_total{namespace="weir", pod="a"} 0x60
	weir_request_duration_seconds_bucket{namespace="weir", pod="a", le="0.001"} 0+6000x60
	weir_request_duration_seconds_bucket{namespace="weir", pod="a", le="0.05"} 0+6000x60
	weir_request_duration_seconds_bucket{namespace="weir", pod="a", le="+Inf"} 0+6000x60
	weir_store_duration_seconds_bucket{namespace="weir", pod="a", le="0.001"} 0+6000x60
	weir_store_duration_seconds_bucket{namespace="weir", pod="a", le="0.05"} 0+6000x60
	weir_store_duration_seconds_bucket{namespace="weir", pod="a", le="+Inf"} 0+6000x60
	weir_redis_refused_hits_total{namespace="weir", pod="a", redis="main"} 0x60
	weir_redis_left_hits_total{namespace="weir", pod="a", redis="main"} 0x60
	weir_memory_dropped_keys_total{namespace="weir", pod="a"} 0x60
	weir_memory_refused_hits_total{namespace="weir", pod="a"} 0x60
	process_resident_memory_bytes{job="weir", namespace="weir", pod="a"} 50000000x60
	go_gc_gomemlimit_bytes{job="weir", namespace="weir", pod="a"} 480000000x60
	process_open_fds{job="weir", namespace="weir", pod="a"} 100x60
	process_max_fds{job="weir", namespace="weir", pod="a"} 1024x60
	weir_rules_loads_total{namespace="weir", pod="a", result="error"} 1x60
	weir_memory_snapshot_failures_total{namespace="weir", pod="a"} 0x60
	weir_hits_total{namespace="weir", pod="a", domain="weir", rule="r", verdict="allowed"} 0+6000x60
	weir_hits_total{namespace="weir", pod="a", domain="weir", rule="r", verdict="denied"} 0+60x60
	weir_metrics_overflow_total{namespace="weir", pod="a"} 0x60
	weir_fallback_hits_total{namespace="weir", pod="a", mode="local"} 0x60
	weir_fallback_hits_total{namespace="weir", pod="a", mode="error"} 0+1x60
	weir_refused_requests_total{namespace="weir", pod="a"} 0x60
	weir_xds_connected{namespace="weir", pod="a"} 1x60
`

// raised holds, for each alert, a series that replaces one of calm and makes the alert fire.
var raised = map[string]string{
	"WeirDown":            `up{job="weir", namespace="weir", pod="a"} 0x60`,
	"WeirReplicasDown":    `up{job="weir", namespace="weir", pod="b"} 0x60`,
	"WeirStoreFails":      `weir_requests_total{namespace="weir", pod="a", code="Unavailable"} 0+120x60`,
	"WeirNoRules":         `weir_rules{namespace="weir", pod="b"} 0x60`,
	"WeirPanics":          `weir_panics_total{namespace="weir", pod="a"} 0x55 1x5`,
	"WeirSlow":            `weir_request_duration_seconds_bucket{namespace="weir", pod="a", le="0.001"} 0+5000x60`,
	"WeirStoreSlow":       `weir_store_duration_seconds_bucket{namespace="weir", pod="a", le="0.001"} 0+5000x60`,
	"WeirQueueFull":       `weir_redis_left_hits_total{namespace="weir", pod="a", redis="main"} 0+2x60`,
	"WeirMemoryFull":      `weir_memory_refused_hits_total{namespace="weir", pod="a"} 0+2x60`,
	"WeirMemoryTight":     `process_resident_memory_bytes{job="weir", namespace="weir", pod="a"} 470000000x60`,
	"WeirFilesShort":      `process_open_fds{job="weir", namespace="weir", pod="a"} 1000x60`,
	"WeirRulesRejected":   `weir_rules_loads_total{namespace="weir", pod="a", result="error"} 0x40 1x20`,
	"WeirRulesDiffer":     `weir_rules_info{namespace="weir", pod="b", version="75959bacfb3f641b"} 1x60`,
	"WeirDomainUnknown":   `ratelimit_service_rate_limit_domain_not_found{namespace="weir", pod="a", domain="x"} 0+1x60`,
	"WeirTooLate":         `weir_requests_total{namespace="weir", pod="a", code="Canceled"} 0+120x60`,
	"WeirRequestsInvalid": `weir_requests_total{namespace="weir", pod="a", code="InvalidArgument"} 0+120x60`,
	"WeirSnapshotFails":   `weir_memory_snapshot_failures_total{namespace="weir", pod="a"} 0x55 1x5`,
	"WeirDeniesMost":      `weir_hits_total{namespace="weir", pod="a", domain="weir", rule="r", verdict="denied"} 0+9000x60`,
	"WeirFallback":        `weir_fallback_hits_total{namespace="weir", pod="a", mode="local"} 0+2x60`,
	"WeirOverloaded":      `weir_refused_requests_total{namespace="weir", pod="a"} 0+2x60`,
	"WeirXDSDisconnected": `weir_xds_connected{namespace="weir", pod="a"} 0x60`,
	"WeirSeriesFull":      `weir_metrics_overflow_total{namespace="weir", pod="a"} 0+1x60`,
}

// Each alert fires for its own series and for no other. Prometheus' engine evaluates the
// expressions.
func TestAlertsFire(t *testing.T) {
	alerts := theAlerts(t)
	if got := firing(t, alerts, calm); len(got) > 0 {
		t.Errorf("a healthy server raises %v", got)
	}
	for _, a := range alerts {
		series, found := raised[a.Alert]
		if !found {
			t.Errorf("%s: raised has no series for it", a.Alert)
			continue
		}
		name, _, _ := strings.Cut(series, "}")
		var lines []string
		for line := range strings.Lines(calm) {
			if !strings.HasPrefix(strings.TrimSpace(line), name+"}") {
				lines = append(lines, line)
			}
		}
		got := firing(t, alerts, strings.Join(lines, "")+"\t"+series+"\n")
		if !slices.Contains(got, a.Alert) {
			t.Errorf("%s does not fire for %s", a.Alert, series)
		}
		got = slices.DeleteFunc(got, func(other string) bool { return other == a.Alert })
		if len(got) > 0 {
			t.Errorf("%s also raises %v", series, got)
		}
	}
}

// Rules that had faults more than an hour ago still have them.
func TestWeirRulesRejectedLastsAsLongAsTheFault(t *testing.T) {
	const loaded = `weir_rules_last_load_successful{namespace="weir", pod="a"} `
	got := firing(t, theAlerts(t), strings.Replace(calm, loaded+"1x60", loaded+"0x60", 1))
	if !slices.Equal(got, []string{"WeirRulesRejected"}) {
		t.Errorf("alerts %v, want only WeirRulesRejected", got)
	}
}

// The alerts of an installation fire although another installation is healthy, in another namespace
// or in the same one. Installations may have different rules.
func TestAlertsSeeEachInstallation(t *testing.T) {
	healthy := calm
	for _, pod := range []string{"b", "c", "d", "e", "f"} {
		healthy += fmt.Sprintf("\tup{job=\"weir\", namespace=\"weir\", service=\"weir\", pod=%q} 1x60\n", pod)
	}
	for _, test := range []struct{ series, want string }{
		{`
	up{job="weir", namespace="edge", service="weir", pod="a"} 0x60
	up{job="weir", namespace="edge", service="weir", pod="b"} 0x60
`, "WeirDown"},
		{`
	up{job="weir", namespace="weir", service="other-weir", pod="x"} 0x60
`, "WeirDown"},
		{`
	up{job="weir", namespace="weir", service="other-weir", pod="x"} 1x60
	up{job="weir", namespace="weir", service="other-weir", pod="y"} 0x60
`, "WeirReplicasDown"},
		{`
	weir_requests_total{namespace="weir", service="other-weir", pod="x", code="Unavailable"} 0+30x60
`, "WeirStoreFails"},
		{`
	weir_rules_info{namespace="weir", service="other-weir", pod="x", version="6f1ed002ab559585"} 1x60
	weir_rules_info{namespace="weir", service="other-weir", pod="y", version="75959bacfb3f641b"} 1x60
`, "WeirRulesDiffer"},
		{`
	weir_rules_info{namespace="weir", service="other-weir", pod="x", version="75959bacfb3f641b"} 1x60
`, ""},
	} {
		if got := strings.Join(firing(t, theAlerts(t), healthy+test.series), " "); got != test.want {
			t.Errorf("alerts %q fire, want %q, for%s", got, test.want, test.series)
		}
	}
}

// A rule denies by one of two limits. The hits that the other limit would allow do not hide the
// denials.
func TestAlertSeesDenialsByOneOfTwoLimits(t *testing.T) {
	p := run(t, build(t, k8s+"/overlays/memory"), nil)
	p.mount("/etc/weir/rules", map[string]string{"rules.yaml": `domain: weir
descriptors:
  - key: user_id
    rate_limits:
      - {algorithm: sliding_log, unit: day, requests_per_unit: 0}
      - {algorithm: sliding_log, unit: hour, requests_per_unit: 1000}
`})
	must.Until(t, "a denial", func() bool {
		code, err := p.ask("weir", "user_id=alice")
		return err == nil && code == rlsv3.RateLimitResponse_OVER_LIMIT
	})
	_, text := p.get("metrics", "/metrics")
	var series string
	for _, line := range regexp.MustCompile(`(?m)^weir_hits_total\{(.*)\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		series += fmt.Sprintf("\tweir_hits_total{namespace=\"weir\", %s} 0+%s00x60\n", line[1], line[2])
	}
	if got := firing(t, theAlerts(t), "\tup{job=\"weir\", namespace=\"weir\"} 1x60\n"+series); !slices.Equal(got, []string{"WeirDeniesMost"}) {
		t.Errorf("alerts %v fire for\n%s", got, series)
	}
}

// The query of WeirFallback returns only domains that the store does not decide, on each replica.
func TestRunbookQueryFindsDomainsInFallback(t *testing.T) {
	var query string
	_, section, _ := strings.Cut(readFile(t, root+"/docs/runbooks.md"), "\n## WeirFallback\n")
	if found := fence.FindStringSubmatch(section); found != nil && found[2] == "promql" {
		query = found[3]
	}
	const normal = `
	weir_domain_mode{namespace="weir", pod="a", domain="weir", mode="store"} 1x60
	weir_domain_mode{namespace="weir", pod="a", domain="weir", mode="local"} 0x60
	weir_domain_mode{namespace="weir", pod="b", domain="shop", mode="store"} 1x60
	weir_domain_mode{namespace="weir", pod="b", domain="shop", mode="error"} 0x60
`
	for series, want := range map[string][]string{
		normal + "\tweir_domain_mode{namespace=\"weir\", pod=\"b\", domain=\"weir\", mode=\"local\"} 0x60\n": nil,
		normal + "\tweir_domain_mode{namespace=\"weir\", pod=\"b\", domain=\"weir\", mode=\"local\"} 1x60\n": {`{domain="weir", mode="local", pod="b"}`},
	} {
		if got := evaluate(t, query, series); !slices.Equal(got, want) {
			t.Errorf("%s returns %v, want %v, of%s", query, got, want, series)
		}
	}
}

// promqlEngine evaluates expressions as Prometheus does.
var promqlEngine = promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: 100 * time.Second, Parser: parser.NewParser(parser.Options{})})

// evaluate returns the labels of the series that a query returns after one hour.
func evaluate(t *testing.T, query, series string) (found []string) {
	t.Helper()
	instant, err := promqlEngine.NewInstantQuery(t.Context(), load(t, series), nil, query, time.Unix(3600, 0))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer instant.Close()
	vector, err := instant.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	for _, sample := range vector {
		found = append(found, sample.Metric.String())
	}
	return found
}

// firing returns the alerts whose expression holds after one hour of these series.
func firing(t *testing.T, alerts []monitoringv1.Rule, series string) (names []string) {
	t.Helper()
	for _, a := range alerts {
		if len(evaluate(t, a.Expr.String(), series)) > 0 {
			names = append(names, a.Alert)
		}
	}
	return names
}

// load returns series with one value per minute, such as `up{job="weir"} 1x60`, from 1970 on.
// Prometheus' own storage would triple the time to compile this module, because it imports the
// clients of several clouds.
func load(t *testing.T, text string) storage.Queryable {
	t.Helper()
	var all []promql.Series
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		series := promql.Series{Metric: metric}
		for minute, v := range values {
			if !v.Omitted {
				series.Floats = append(series.Floats, promql.FPoint{T: int64(minute) * time.Minute.Milliseconds(), F: v.Value})
			}
		}
		all = append(all, series)
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := &seriesSet{SeriesSet: storage.EmptySeriesSet(), at: -1}
			for _, s := range all {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
					found.series = append(found.series, promql.NewStorageSeries(s))
				}
			}
			return found
		},
	}}
}

// A seriesSet is a storage.SeriesSet in memory.
type seriesSet struct {
	storage.SeriesSet // empty: no errors and no warnings
	series            []*promql.StorageSeries
	at                int
}

func (s *seriesSet) Next() bool         { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series { return s.series[s.at] }

// Each alert has a section in docs/runbooks.md with its severity. The section's meaning ends with
// the alert's description, apart from Markdown: alerts.yaml is the source.
func TestEveryAlertHasARunbook(t *testing.T) {
	runbooks := readFile(t, root+"/docs/runbooks.md")
	type section struct{ severity, meaning string }
	sections := map[string]section{} // by title
	markdown := regexp.MustCompile("`|\\[|\\]\\([^)]*\\)")
	for _, m := range regexp.MustCompile(`(?ms)^## (\w+)\n\n\*\*Severity:\*\* (\w+)\. \*\*Meaning:\*\* (.*?)\n\n`).FindAllStringSubmatch(runbooks, -1) {
		sections[m[1]] = section{m[2], strings.ReplaceAll(markdown.ReplaceAllString(m[3], ""), "\n", " ")}
	}
	for _, a := range theAlerts(t) {
		description := a.Annotations["description"]
		if found := sections[a.Alert]; found.severity == "" || found.severity != a.Labels["severity"] {
			t.Errorf("docs/runbooks.md has no section %s of severity %s", a.Alert, a.Labels["severity"])
		} else if !strings.HasSuffix(found.meaning, " "+description) {
			t.Errorf("docs/runbooks.md, %s: %q, want the description at the end: %q", a.Alert, found.meaning, description)
		}
		delete(sections, a.Alert)
		if url := a.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/runbooks.md#"+strings.ToLower(a.Alert)) {
			t.Errorf("%s: %s", a.Alert, url)
		}
		if a.Annotations["summary"] == "" || description == "" || a.Labels["severity"] == "" {
			t.Errorf("%s: %v, %v", a.Alert, a.Annotations, a.Labels)
		}
	}
	for left := range sections {
		t.Errorf("docs/runbooks.md has a section for %s, which is not an alert", left)
	}
}
