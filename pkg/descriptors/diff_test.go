package descriptors_test

import (
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func TestDiffNamesAddedChangedAndRemovedRules(t *testing.T) {
	const old = `domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, value: x*, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, value: "*", rate_limit: {unit: day, requests_per_unit: 1}, metadata: {m: [1]}}
`
	b := strings.SplitAfter(old, "\n")
	for _, c := range []struct {
		name, now string
		want      descriptors.Changes
	}{
		{"nothing", old + "# a comment\n", descriptors.Changes{}},
		{"a limit", strings.Replace(old, "unit: 1}", "unit: 2}", 2), descriptors.Changes{RulesModified: 2}},
		{"an algorithm", strings.Replace(old, "{unit", "{algorithm: funnel, unit", 1), descriptors.Changes{RulesModified: 1}},
		{"metadata", strings.Replace(old, "[1]", "[2]", 1), descriptors.Changes{RulesModified: 1}},
		{"share_threshold", strings.Replace(old, "x*,", "x*, share_threshold: true,", 1), descriptors.Changes{RulesModified: 1}},
		{"the policy of the domain", old + "on_store_error: deny\n", descriptors.Changes{RulesModified: 3}},
		{"the default policy, written out", old + "on_store_error: error\n", descriptors.Changes{}},
		{"a rule more", old + "  - {key: c, rate_limit: {unit: day, requests_per_unit: 1}}\n", descriptors.Changes{RulesAdded: 1}},
		{"a rule less", b[0] + b[1] + b[2] + b[4], descriptors.Changes{RulesRemoved: 1}},
		{"another order", b[0] + b[1] + b[2] + b[4] + b[3], descriptors.Changes{Reordered: true}},
		{"another domain", strings.Replace(old, "domain: d", "domain: e", 1),
			descriptors.Changes{DomainsAdded: 1, DomainsRemoved: 1, RulesAdded: 3, RulesRemoved: 3}},
	} {
		got := descriptors.Diff(rulesfiletest.Parse(t, old), rulesfiletest.Parse(t, c.now))
		if got != c.want || got.Any() != (c.want != descriptors.Changes{}) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := descriptors.Diff(nil, rulesfiletest.Parse(t, old)); got.RulesAdded != 3 || got.DomainsAdded != 1 {
		t.Errorf("from no rules: %+v", got)
	}
}
