package ratelimitstats

import (
	"slices"
	"testing"

	"github.com/weir-rls/weir/pkg/rls"
)

// Each row is a rule, a request, and the labels of its series.
func TestLabelsMatchEnvoyRatelimit(t *testing.T) {
	const limit = "rate_limit: {unit: day, requests_per_unit: 1}"
	for _, c := range []struct {
		descriptors string
		ask         []string
		want        []string
	}{
		{"[{key: a, value: b, " + limit + "}]", []string{"a=b"}, []string{"a_b"}},
		{"[{key: a, " + limit + "}]", []string{"a=b"}, []string{"a"}},
		{"[{key: a, value_to_metric: true, " + limit + "}]", []string{"a=b"}, []string{"a_b"}},
		{"[{key: a, value_to_metric: true, " + limit + "}]", []string{"a="}, []string{"a"}},
		{"[{key: a, value: b*, " + limit + "}]", []string{"a=bc"}, []string{"a_b*"}},
		{"[{key: a, value: b*, value_to_metric: true, " + limit + "}]", []string{"a=bc"}, []string{"a_bc"}},
		{"[{key: a, value: b*, share_threshold: true, " + limit + "}]", []string{"a=bc"}, []string{"a_b*"}},
		{"[{key: a, detailed_metric: true, " + limit + "}]", []string{"a=1.2.3.4"}, []string{"a_1_2_3_4"}},
		{"[{key: a, detailed_metric: true, " + limit + "}]", []string{"a="}, []string{"a_"}},
		{"[{key: a, descriptors: [{key: b, detailed_metric: true, " + limit + "}]}]", []string{"a=x", "b=y"},
			[]string{"a_x", "b_y"}},
		{"[{key: a, descriptors: [{key: b, value: c, descriptors: [{key: d, " + limit + "}]}]}]",
			[]string{"a=x", "b=c", "d=z"}, []string{"a", "b_c", "d"}},
	} {
		m := newStats(Options{})
		rules := loaded(t, "domain: my.domain\ndescriptors: "+c.descriptors)
		for range 2 {
			m.Observe(hit(rules, "my.domain", c.ask...))
		}
		if all := m.byDescriptor.all(); len(all) != 1 {
			t.Errorf("%s: %d series, want 1", c.descriptors, len(all))
		} else if want := append([]string{"my.domain"}, c.want...); !slices.Equal(all[0].labels, want) {
			t.Errorf("%s: %q, want %q", c.descriptors, all[0].labels, want)
		} else if n := all[0].counts[totalHits].Load(); n != 2 {
			t.Errorf("%s: %d hits, want 2", c.descriptors, n)
		}
	}
}

// A limit in the request uses the names of the request, even if a rule matches.
func TestOverrideUsesNamesOfRequest(t *testing.T) {
	m := newStats(Options{})
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
	a := hit(rules, "d", "a=b", "c=")
	if a.Decisions[0].Rule = rules.Match("d", entriesOf("a=b")); a.Decisions[0].Rule == nil {
		t.Fatal("no rule")
	}
	m.Observe(a)
	if got := total(m, "d", "a_b", "c"); got != 1 {
		t.Errorf("%d, want 1", got)
	}
}

func TestRuntimeValuesHaveTheirOwnSeries(t *testing.T) {
	m := newStats(Options{})
	rules := loaded(t,
		"domain: d\ndescriptors: [{key: a, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]")
	m.Loaded(rules, nil)
	for _, value := range []string{"1", "2", "1", "3", "2", "1"} {
		m.Observe(hit(rules, "d", "a="+value))
	}
	if a, b, c := total(m, "d", "a_1"), total(m, "d", "a_2"), total(m, "d", "a_3"); a != 3 || b != 2 || c != 1 {
		t.Errorf("%d, %d and %d, want 3, 2 and 1", a, b, c)
	}
}

func TestCountingAPlainRuleAllocatesNothing(t *testing.T) {
	m := newStats(Options{})
	rules := loaded(t, "domain: d\ndescriptors: "+
		"[{key: a, descriptors: [{key: b, value: c, rate_limit: {unit: day, requests_per_unit: 1}}]}]")
	a := hit(rules, "d", "a=x", "b=c")
	if n := testing.AllocsPerRun(100, func() { m.Observe(a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	m.Observe(&rls.Observation{})
}
