package descriptors_test

import (
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func TestPerRuleKeepsOnlyRulesOfTheLastReset(t *testing.T) {
	const text = "domain: d\ndescriptors:\n" +
		"- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	before, after := rulesfiletest.Parse(t, text), rulesfiletest.Parse(t, text)
	find := func(rules *descriptors.Rules, key string) *descriptors.Rule {
		return rules.Match("d", entries(key+"=1"))
	}
	var cache descriptors.PerRule[string]
	if cache.Of(find(before, "a")) != nil {
		t.Error("a pointer before the first Reset")
	}
	cache.Reset(before)
	for _, key := range []string{"a", "b"} {
		cache.Of(find(before, key)).Store(&key)
	}
	if a, b := cache.Of(find(before, "a")).Load(), cache.Of(find(before, "b")).Load(); *a != "a" || *b != "b" {
		t.Errorf("got %s and %s, want a and b", *a, *b)
	}
	if cache.Of(find(after, "a")) != nil {
		t.Error("a pointer of rules that are not in force")
	}
	cache.Reset(after)
	if cache.Of(find(before, "a")) != nil || cache.Of(find(after, "a")).Load() != nil {
		t.Error("a pointer survived a Reset")
	}
	cache.Reset(nil)
	if cache.Of(find(after, "a")) != nil {
		t.Error("a pointer without rules")
	}
}
