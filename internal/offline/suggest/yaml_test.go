package suggest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/suggest"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/recording"
)

const everyDescriptor = `
domain: "shop: 1"
descriptors:
  - key: plan
    values: [free, "a, b", "true", "0x1"]
    share_threshold: true
    rate_limit: {unit: day, window_start: calendar, time_zone: Europe/Berlin, requests_per_unit: 9, name: "daily: #1"}
  - key: ip
    cidr: [10.0.0.0/8, "2001:db8::/32"]
    rate_limit: {algorithm: sliding_log, unit: minute, unit_multiplier: 15, peek: over, requests_per_unit: 9}
  - key: path
    value: "/api/*"
    share_threshold: true
    rate_limit: {algorithm: funnel, unit: second, count_denied: true, requests_per_unit: 9}
  - key: "a \"key\"\n"
    value: "- x: {"
    descriptors:
      - key: user_id
        rate_limits:
          - {unit: hour, window_start: first_hit, requests_per_unit: 9, name: one}
          - {unit: hour, algorithm: funnel, requests_per_unit: 9, count_denied: true, name: two}
`

// The YAML has the descriptors, the windows and the settings of the rules that it comes from, and
// other numbers.
func TestYAMLHasTheRulesOfTheReport(t *testing.T) {
	rules := rulesfiletest.Parse(t, everyDescriptor)
	var lines []recording.Line
	for _, entries := range [][]descriptors.Entry{
		{{Key: "plan", Value: "a, b"}}, {{Key: "ip", Value: "2001:db8::1"}}, {{Key: "path", Value: "/api/x"}},
		{{Key: "a \"key\"\n", Value: "- x: {"}, {Key: "user_id", Value: "1"}},
	} {
		lines = append(lines, recording.Line{At: start, Request: decide.Request{
			Domain: "shop: 1", Descriptors: []decide.Descriptor{{Entries: entries, Hits: 400}},
		}})
	}
	r := report(t, suggest.Options{Rules: rules, Headroom: 0.2}, lines)
	text, err := r.YAML()
	must.Succeed(t, err)
	got, want := described(rulesfiletest.Parse(t, text)), described(rules)
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], " 9 ", " 480 ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q\n%s", got, want, text)
	}
}

func described(rules *descriptors.Rules) (all []string) {
	for rule := range rules.All() {
		for _, l := range rule.Limits {
			all = append(all, fmt.Sprintf("%+v %s %d %+v %t", rule.Path(), l.StateID(), l.RequestsPerUnit, l.Spec().Params, l.Spec().CountDenied)+l.Name)
		}
	}
	return all
}

// Neither output hides that a limit of a rule has no recommendation.
func TestYAMLNamesTheLimitsThatItLeavesOut(t *testing.T) {
	rules := rulesfiletest.Parse(t, "domain: ugc\ndescriptors:\n  - key: user_id\n    rate_limits:\n"+
		"      - {requests_per_unit: 5, unit: minute, algorithm: sliding_log}\n      - {requests_per_unit: 50, unit: hour, algorithm: sliding_log}\n"+
		"      - {requests_per_unit: 20000000000, unit: hour}\n")
	r := report(t, suggest.Options{Rules: rules, Headroom: 0.2}, []recording.Line{line(0, "a", 3_000_000_000)})
	yaml, err := r.YAML()
	must.Succeed(t, err)
	text, err := r.Text()
	must.Succeed(t, err)
	for _, want := range []string{"no sliding_log limit per minute", "no sliding_log limit per hour"} {
		if !strings.Contains(yaml, want) || !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s\nand in\n%s", want, yaml, text)
		}
	}
	rulesfiletest.Parse(t, yaml)
}

func TestYAMLOfSeveralDomainsIsAnError(t *testing.T) {
	var paths []suggest.Path
	for _, domain := range []string{"ugc", "shop"} {
		paths = append(paths, suggest.Path{Domain: domain, Nodes: []descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "user_id"}}}})
	}
	lines := []recording.Line{line(0, "a", 1), line(0, "a", 1)}
	lines[1].Request.Domain = "shop"
	r := report(t, suggest.Options{Paths: paths}, lines)
	if _, err := r.YAML(); !errors.Is(err, suggest.ErrNoYAML) || !strings.Contains(err.Error(), `["ugc" "shop"]`) {
		t.Errorf("error %v, want suggest.ErrNoYAML with both domains", err)
	}
	if text, err := r.Text(); err != nil || strings.Count(text, "\ndomain: ") != 2 {
		t.Errorf("%s\nwant the rules of both domains", text)
	}
}
