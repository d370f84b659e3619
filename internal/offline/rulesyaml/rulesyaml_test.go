package rulesyaml_test

import (
	"net/netip"
	"testing"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

// Each text needs another style of YAML.
var texts = []string{
	"plain", "true", "0x1", "- a: {b}", "a, b", "#", `"`, "'", "\n", "a\nb\n", " ", "\u0085", "\u2028 \u2029", "[", "*a", "~",
	"\n[", "\n1_000", "\n\ta", "\u2028%a%\n\"", "\ufeff\n", "a\r\n b ", "\u2029\t#",
}

// The rules that are written have the same versions as the rules that are read from YAML by hand.
func TestWrittenRulesAreRead(t *testing.T) {
	counted := true
	root := rulesyaml.Draft{}
	leaf := root.At([]descriptors.NodeSpec{
		{Entry: descriptors.Entry{Key: "plan"}, Values: []string{"free", "a, b"}, ShareThreshold: true},
		{Entry: descriptors.Entry{Key: "ip"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}},
	})
	leaf.ShadowMode, leaf.Comment = true, "not enforced yet"
	leaf.Limits = []rulesyaml.DraftLimit{
		{Comment: "two\nlines", Name: "daily: #1", Unit: "day", UnitMultiplier: 2, RequestsPerUnit: 0, CountDenied: &counted},
		{Algorithm: "funnel", Unit: "second", UnitMultiplier: 1, RequestsPerUnit: 5, Capacity: 9},
	}
	root.At([]descriptors.NodeSpec{{Entry: descriptors.Entry{Key: "slots"}}}).Limits = []rulesyaml.DraftLimit{
		{Algorithm: "concurrency", ConcurrentRequests: 3, Parameters: map[string]any{"lease_ttl": "2s"}},
	}
	const byHand = `
domain: "shop: 1"
on_store_error: deny
descriptors:
  - key: plan
    values: [free, "a, b"]
    share_threshold: true
    descriptors:
      - key: ip
        cidr: ["2001:db8::/32"]
        shadow_mode: true
        rate_limits:
          - {name: "daily: #1", unit: day, unit_multiplier: 2, requests_per_unit: 0, count_denied: true}
          - {algorithm: funnel, unit: second, requests_per_unit: 5, capacity: 9}
  - key: slots
    rate_limit: {algorithm: concurrency, concurrent_requests: 3, lease_ttl: 2s}
`
	text := string(root.YAML("shop: 1", "deny"))
	got, want := rulesfiletest.Parse(t, text), rulesfiletest.Parse(t, byHand)
	if got.Version() != want.Version() {
		t.Errorf("the version differs from that of the rules by hand:\n%s", text)
	}
}

func TestScalarsAreQuoted(t *testing.T) {
	for _, text := range texts {
		var root rulesyaml.Draft
		root.At([]descriptors.NodeSpec{{Entry: descriptors.Entry{Key: text, Value: text}}}).Limits = []rulesyaml.DraftLimit{
			{Unit: "day", RequestsPerUnit: 1},
		}
		byHand := "{domain: " + rulesyaml.Quoted(text) + ", descriptors: [{key: " + rulesyaml.Quoted(text) + ", value: " + rulesyaml.Quoted(text) +
			", rate_limit: {unit: day, requests_per_unit: 1}}]}"
		got, want := rulesfiletest.Parse(t, string(root.YAML(text, ""))), rulesfiletest.Parse(t, byHand)
		if got.Version() != want.Version() || got.Domain(text) == nil {
			t.Errorf("%q is read as another text, as %q", text, got.DomainNames())
		}
	}
}
