package descriptors_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

const metricRules = `domain: d
descriptors:
- {key: k, value: v, value_to_metric: true, rate_limit: &l {unit: day, requests_per_unit: 1}}
- {key: k, rate_limit: *l}
- {key: m, value_to_metric: true, rate_limit: *l}
- {key: w, value: 'a*', rate_limit: *l}
- {key: w, value: 'b*', value_to_metric: true, rate_limit: *l}
- {key: w, value: 'c*', share_threshold: true, value_to_metric: true, detailed_metric: true, rate_limit: *l}
- {key: w, value: '*', value_to_metric: true, rate_limit: *l}
- {key: 'x-*', rate_limit: *l}
- {key: 'y-*', value: 'on', rate_limit: *l}
- {key: 'z-*', value: 'on', share_threshold: true, rate_limit: *l}
- {key: e, value: v, detailed_metric: true, rate_limit: *l}
- key: e
  detailed_metric: true
  rate_limit: *l
  descriptors:
  - {key: plain, rate_limit: *l}
  - {key: 'deep', detailed_metric: true, rate_limit: *l}
- key: path
  value: p/*
  share_threshold: true
  descriptors:
  - key: file
    value: f/*
    descriptors:
    - {key: type, rate_limit: *l}
    - {key: detail, detailed_metric: true, rate_limit: *l}
`

// The metric names of a rule follow its nodes, their modifiers and the request.
func TestMetricNamesFollowMatchedRule(t *testing.T) {
	rules := rulesfiletest.Parse(t, metricRules)
	for _, tt := range []struct{ name, request, want string }{
		{"an explicit value", "k=v", "k_v"},
		{"key only", "k=1", "k"},
		{"key only, no value", "k=", "k"},
		{"key only, value_to_metric", "m=1", "m_1"},
		{"key only, value_to_metric, no value", "m=", "m"},
		{"a wildcard", "w=a1", "w_a*"},
		{"a wildcard's own text", "w=a*", "w_a*"},
		{"a wildcard, value_to_metric", "w=b1", "w_b1"},
		{"a wildcard, value_to_metric, no value", "w=", "w"},
		{"a wildcard, share_threshold beats both", "w=c1", "w_c*"},
		{"a wildcard in the key", "x-1=on", "x-1_x-*"},
		{"a wildcard in the key, with a value", "y-1=on", "y-1_y-*_on"},
		{"a wildcard in the key, its own text", "y-*=on", "y-*_on"},
		{"a wildcard in the key, share_threshold", "z-1=on", "z-1_z-*_on"},
		{"detailed_metric", "e=1", "e_1"},
		{"detailed_metric of an explicit value", "e=v", "e_v"},
		{"detailed_metric, no value", "e=", "e_"},
		{"detailed_metric is that of the leaf", "e=1 plain=2", "e plain"},
		{"detailed_metric is for all levels", "e=1 deep=", "e_1 deep_"},
		{"share_threshold above", "path=p/1 file=f/2 type=3", "path_p/* file_f/* type"},
		{"share_threshold above, detailed_metric", "path=p/1 file=f/2 detail=3", "path_p/* file_f/2 detail_3"},
		{"share_threshold above, detailed_metric, no value", "path=p/1 file=f/2 detail=", "path_p/* file_f/2 detail"},
	} {
		request := entries(tt.request)
		rule := rules.Match("d", request)
		if rule == nil {
			t.Errorf("%s: no rule", tt.name)
			continue
		}
		got := rule.AppendMetricNames([]string{"first"}, request)
		if want := append([]string{"first"}, strings.Fields(tt.want)...); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, want)
		}
		// If no value of a request is in the metric names, the names are known when the rules load.
		fixed := slices.Contains([]string{"k_v", "k", "w_a*", "e plain", "path_p/* file_f/* type"}, tt.want)
		if got := rule.HasFixedMetricNames(); got != fixed {
			t.Errorf("%s: fixed %v, want %v", tt.name, got, fixed)
		}
	}
}

func TestOverrideMetricNamesUseRequestNames(t *testing.T) {
	request, want := entries("k=v m="), []string{"k_v", "m"}
	if got := descriptors.AppendOverrideMetricNames(nil, nil, request); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestMetricNamesWithoutValuesAllocateNothing(t *testing.T) {
	rules := rulesfiletest.Parse(t, metricRules)
	names := make([]string, 0, 8)
	for _, text := range []string{"k=v", "k=1", "w=a1", "w=c1", "path=p/1 file=f/2 type=3"} {
		request := entries(text)
		rule := rules.Match("d", request)
		if n := testing.AllocsPerRun(100, func() { _ = rule.AppendMetricNames(names, request) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", text, n)
		}
	}
}

// share_threshold makes some requests share a counter.
func TestShareThresholdSharesCounters(t *testing.T) {
	rules := rulesfiletest.Parse(t, metricRules)
	key := func(request string) string {
		es := entries(request)
		return descriptors.Key("d", rules.Match("d", es), es)
	}
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"w=c1", "w=c2", true},
		{"w=c1", "w=c*", true},
		{"w=a1", "w=a2", false},
		{"w=c1", "w=a1", false},
		{"path=p/1 file=f/2 type=3", "path=p/9 file=f/2 type=3", true},
		{"path=p/1 file=f/2 type=3", "path=p/1 file=f/9 type=3", false},
		{"path=p/1 file=f/2 type=3", "path=p/1 file=f/2 type=9", false},
		{"z-1=on", "z-2=on", false}, // the key of the request stays
	} {
		if (key(tt.a) == key(tt.b)) != tt.same {
			t.Errorf("%s\n%s\nshare %t, want %t", key(tt.a), key(tt.b), !tt.same, tt.same)
		}
	}
	if got := key("w=c1"); got != "1:d|1:w^1:w=2:c*" {
		t.Errorf("got %s", got)
	}
	one, other := entries("w=c1"), entries("w=c2")
	rule := rules.Match("d", one)
	k := string(descriptors.AppendOverrideKey(nil, "d", rule, one))
	if k == string(descriptors.AppendOverrideKey(nil, "d", rule, other)) || k != "1:d|1:w~1:w=2:c*=2:c1" {
		t.Errorf("an override shares: %s", k)
	}
	if n := testing.AllocsPerRun(100, func() { _ = descriptors.Key("d", rule, one) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
