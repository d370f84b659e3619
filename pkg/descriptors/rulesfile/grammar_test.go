package rulesfile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Weir rejects the files that envoyproxy/ratelimit rejects. A "|" separates two files.
func TestFilesThatRatelimitRejectsAreRejected(t *testing.T) {
	limit := func(s string) string {
		return "domain: test-domain\ndescriptors:\n- key: key1\n  value: value1\n" +
			"  descriptors:\n  - key: subkey1\n    rate_limit: {" + s + "}\n"
	}
	descriptor := func(s string) string {
		return "domain: test-domain\ndescriptors:\n- {" + s + ", rate_limit: {unit: day, requests_per_unit: 1}}\n"
	}
	for _, tt := range []struct{ text, want string }{
		{"'''\n", "''' is not closed"},
		{limit("unit: day, requests_per_unit: -1"), "'requests_per_unit' is -1"},
		{"0.25: test-domain\ndomain: d\n", "the key 0.25 is not a text"},
		{"domain: d\ndescriptors: [{key: k, ratelimit: {unit: day}}]", "unknown key 'ratelimit' in a descriptor"},
		{limit("unit: day, requestsperunit: 5"), "unknown key 'requestsperunit' in a rate_limit"},
		{"domain: d\ndescriptors: [a]\n", "an item of 'descriptors' is the text 'a', not a map"},
		{limit("unit: day, replaces: [a]"), "an item of 'replaces' is the text 'a', not a map"},
		{descriptor("key: k, value: 1.5"), "'value' is the number 1.5, not a text"},
		{descriptor("key: k, shadow_mode: 1.5"), "'shadow_mode' is 1.5"},
		{limit("unit: day, requests_per_unit: 18446744073709551615"), "'requests_per_unit' is 18446744073709551615"},
		{limit("unit: day, requests_per_unit: 5.5"), "'requests_per_unit' is 5.5"},
		{descriptor("key: k, quota_mode: maybe"), "'quota_mode' is the text 'maybe'"},
		{descriptor("key: k, detailed_metric: 'true'"), "'detailed_metric' is the text 'true'"},
		{"descriptors:\n", "config file cannot have empty domain"},
		{"domain: d\n|domain: d\ndescriptors:\n", "duplicate domain 'd' in config file"},
		{"domain: test-domain\ndescriptors: [{value: value1}]", "descriptor has empty key"},
		{"domain: test-domain\ndescriptors: [{key: key1, value: value1}, {key: key1, value: value1}]",
			"duplicate descriptor composite key 'test-domain.key1_value1'"},
		{"domain: domain\ndescriptors: [{key: k, value: v, descriptors: [{key: k2}, {key: k2}]}]",
			"duplicate descriptor composite key 'domain.k_v.k2'"},
		{limit("unit: foo, requests_per_unit: 5"), "invalid rate limit unit 'foo'"},
		{limit("unit: unknown, requests_per_unit: 5"), "invalid rate limit unit 'unknown'"},
		{limit("requests_per_unit: 5"), "invalid rate limit unit ''"},
		{limit("unlimited: false"), "invalid rate limit unit ''"},
		{limit("unlimited: true, unit: Day, requests_per_unit: 25"), "should not specify rate limit unit when unlimited"},
		{limit("name: self, replaces: [{name: }], unit: second"), "should not have an empty replaces entry"},
		{limit("replaces: [{}], unit: second"), "should not have an empty replaces entry"},
		{limit("name: self, replaces: [{name: self}], unit: second"), "replaces should not contain name of same descriptor"},
		{descriptor("key: k, value: v, share_threshold: true"),
			"share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'"},
		{descriptor("key: k, share_threshold: yes"),
			"share_threshold can only be used with wildcard values (containing '*'), but found key 'k'"},
		{descriptor("key: k, metadata: {a: .inf}"), "Envoy cannot receive the number .inf"},
		{descriptor("key: k, metadata: {a: [.nan]}"), "Envoy cannot receive the number .nan"},
		{descriptor("key: k, metadata: {a: !!binary /w==}"), "Envoy cannot receive binary data"},
		{descriptor("key: k, metadata: {[a]: b}"), "a key of 'metadata' is a list"},
		{descriptor("key: k, metadata: 7"), "'metadata' is 7, not a map"},
		// The value of a key without effect is checked too.
		{"domain: d\nrate_limit: {limits: 5}\n", "unknown key 'limits'"},
		{"domain: d\nkey: [a]\n", "an item of a list is the text 'a', not a map"},
		{"domain: d\nname: [{unit: 1.5}]\n", "1.5 is not a whole number"},
		{"domain: d\nunit: {1: x}\n", "the key 1 is not a text"},
		{"domain: d\nunit: {capacity: 1}\n", "unknown key 'capacity'"},
	} {
		_, err := rulesfile.Parse(files(strings.Split(tt.text, "|")...)...)
		var faults rulesfile.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(faults[0].Message, tt.want) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// TestWeirKeysAreStrict checks faults that concern keys of Weir's own.
func TestWeirKeysAreStrict(t *testing.T) {
	const two = "rate_limits: [{unit: day, requests_per_unit: 1}, "
	for _, tt := range []struct{ descriptor, want string }{
		{two + "{unit: hour, unlimited: true}]", "'unlimited' is not allowed inside 'rate_limits'"},
		{two + "{unit: hour, replaces: []}]", "'replaces' is not allowed inside 'rate_limits'"},
		{two + "{unit: hour, shadow_mode: true}]", "unknown key 'shadow_mode' in a limit of rate_limits"},
		{"rate_limit: {unlimited: true, algorithm: funnel}", "'algorithm' has no meaning when unlimited"},
		{"rate_limit: {unlimited: true, count_denied: true}", "'count_denied' has no meaning when unlimited"},
		{"rate_limit: {unlimited: true, unit_multiplier: 2}", "'unit_multiplier' has no meaning when unlimited"},
		{"algorithm: {unit: 1}", "key 'algorithm' does not belong in a descriptor"},
		{"rate_limit: {unit: day, rate_limits: []}", "key 'rate_limits' does not belong in a rate_limit"},
	} {
		_, err := rulesfile.Parse(files("domain: d\ndescriptors: [{key: k, " + tt.descriptor + "}]\n")...)
		var faults rulesfile.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(faults[0].Message, tt.want) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.descriptor, err, tt.want)
		}
	}
}

// Each file loads with exactly one warning, or without any if the text is '-'.
func TestDescriptorWarningsNameLineAndRemedy(t *testing.T) {
	limit := func(s string) string { return "[{key: k, rate_limit: {" + s + "}}]" }
	const day = "rate_limit: {unit: day, requests_per_unit: 1}"
	for _, tt := range []struct{ descriptors, want string }{
		{limit("unlimited: true"), "-"},
		{limit("unlimited: on, unit: unknown, requests_per_unit: 0"), "-"},
		{limit("unlimited: true, unit: fortnight"), "2:54: 'fortnight' is not a unit, and has no effect when unlimited: remove it"},
		{limit("unlimited: true, requests_per_unit: 5"), "2:54: 'requests_per_unit' has no effect when unlimited"},
		{limit("unit: day, requests_per_unit: ~"), "2:48: 'requests_per_unit' is missing, so the limit is 0 and denies every request: set it"},
		{limit("unit: day, requests_per_unit: 1, unlimited: ~"), "2:70: key 'unlimited' has no value and no effect"},
		{limit("unit: day, requests_per_unit: 1, name: n, replaces: [{name: m}]"),
			"2:97: no limit of the domain 'd' has the name 'm'"},
		{"[{key: k, rate_limit: {unlimited: true, name: n}}, {key: l, rate_limit: {unlimited: true, replaces: [{name: n}]}}]",
			"-"},
		{"[{key: k, rate_limit: {unlimited: true, name: n}}, {key: l, rate_limit: {unlimited: true, name: n}}]",
			"2:104: the limit at a.yaml:2 has the name 'n' too, and 'replaces' replaces both: rename one"},
		{"[{key: a, " + day + ", shadow_mode: true, quota_mode: yes, detailed_metric: on, value_to_metric: y}]", "-"},
		{"[{key: a, shadow_mode: true, descriptors: [{key: b, " + day + "}]}]",
			"2:24: 'shadow_mode' has no effect without a 'rate_limit' beside it"},
		{"[{key: a, quota_mode: true, descriptors: [{key: b, " + day + "}]}]", "2:24: 'quota_mode' has no effect without"},
		{"[{key: a, detailed_metric: true, descriptors: [{key: b, " + day + "}]}]",
			"2:24: 'detailed_metric' has no effect without"},
		{"[{key: a, metadata: {x: y}, descriptors: [{key: b, " + day + "}]}]", "2:24: 'metadata' has no effect without"},
		{"[{key: a, shadow_mode: off, descriptors: [{key: b, " + day + "}]}]", "-"},
		{"[{key: a, value: b}]", "2:15: the descriptor has neither a limit nor descriptors, and exempts nothing"},
		{"[{key: a, descriptors: []}]", "2:15: the descriptor has neither a limit nor descriptors, and exempts nothing"},
		{"[{key: a, value: b}, {key: a, " + day + "}]", "-"},
		{"[{key: a, value: b}, {key: a, value: '*', " + day + "}]", "-"},
		{"[{key: a, value: b}, {key: b, " + day + "}]", "2:15: the descriptor has neither"},
		{"[{key: a, values: [b]}, {key: b, " + day + "}]", "2:15: the descriptor has neither"},
		{"[{key: a, values: [b]}, {key: a, " + day + "}]", "-"},
		{"[{key: a, values: [b, c]}, {key: a, value: 'c*', " + day + "}]", "-"},
		{"[{key: a, cidr: [10.0.0.0/8]}, {key: b, cidr: [10.0.0.0/8], " + day + "}]", "2:15: the descriptor has neither"},
		{"[{key: a, cidr: [10.0.0.0/8]}, {key: a, " + day + "}]", "-"},
		{"[{key: a, cidr: [10.0.0.0/8]}, {key: '*', " + day + "}]", "-"},
		{"[{key: a, cidr: [10.1.0.0/16]}, {key: a, cidr: [10.0.0.0/8], " + day + "}]", "-"},
		{"[{key: a, value: 10.1.0.0}, {key: a, cidr: [10.0.0.0/8], " + day + "}]", "-"},
		{"[{key: a_b, " + day + "}, {key: a, values: [b], " + day + "}]", "-"},
		{"[{key: a_b, " + day + "}, {key: a, value: b, " + day + "}]",
			"2:75: envoyproxy/ratelimit rejects this as a duplicate of line 2"},
		{"[{key: generic_key_login, " + day + "}]", "2:16: a key that begins with 'generic_key_' does not match the key " +
			"'generic_key' with a value, as it does in envoyproxy/ratelimit: write 'key: generic_key' and 'value: login'"},
		{"[{key: remote_address_match, " + day + "}]", "-"},
		{"[{key: remote_address_match, values: [office, vpn], " + day + "}]", "-"},
		{"[{key: remote_address_match_office, " + day + "}]", "2:16: a key that begins with 'remote_address_match_' does not match the key " +
			"'remote_address_match' with a value, as it does in envoyproxy/ratelimit: write 'key: remote_address_match' and 'value: office'"},
		{"[{key: 'a*b', " + day + "}]", "2:16: the pattern 'a*b' is matched against the key alone"},
		{"[{key: 'a*', value: 'b', share_threshold: true, " + day + "}]", "-"},
		{"[{key: a, " + day + ", metadata: {1: x}}]", "2:82: the key 1 of 'metadata' is not a text, and is read as '1'"},
		{"[{key: a, " + day + ", metadata: {x: 1, x: 2}}]", "2:88: key 'x' is given twice in one map, and only the last counts"},
		{"[{key: a, " + day + ", name: {metadata: [1.5], unit: 1}}]", "2:71: key 'name' has no effect in a descriptor"},
	} {
		_, w, err := rulesfile.ParseWith(rulesfile.Options{}, files("domain: d\ndescriptors: "+tt.descriptors+"\n")...)
		if err != nil {
			t.Errorf("parse %s: %v", tt.descriptors, err)
			continue
		}
		if tt.want == "-" && len(w) == 0 {
			continue
		}
		if len(w) != 1 || !strings.HasPrefix(w[0].String(), "a.yaml:"+tt.want) {
			t.Errorf("%s\ngot  %v\nwant a.yaml:%s", tt.descriptors, w, tt.want)
		}
	}
}

func TestModifiersAreParsed(t *testing.T) {
	rules, w := parseWarned(t, `domain: d
descriptors:
- key: a
  shadow_mode: true
  rate_limit: {unit: WEEK, requests_per_unit: 3, name: one, replaces: [{name: two}, {name: 3}]}
- key: b
  quota_mode: true
  rate_limit: {unlimited: true, name: two}
- key: c
  detailed_metric: true
  rate_limits: [{unit: hour, requests_per_unit: 1}, {unit: day, requests_per_unit: 2, name: 3}]
- key: e
  rate_limit: {unlimited: false, unit: day, requests_per_unit: 1}
`)
	got := map[string]string{}
	for r := range rules.All() {
		got[r.Name] = fmt.Sprintln(len(r.Limits), r.Unlimited, r.ShadowMode, r.QuotaMode, r.Replaces, r.LimitName)
		for _, l := range r.Limits {
			got[r.Name] += "[" + l.Name + "]"
		}
	}
	want := map[string]string{
		"a": "1 false true false [two 3] one\n[one]",
		"b": "0 true false true [] two\n",
		"c": "2 false false false [] 3\n[][3]",
		"e": "1 false false false [] \n[]",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if d, n := rules.Counts(); d != 1 || n != 4 {
		t.Errorf("counts %d, %d", d, n)
	}
	if len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	rule := rules.Match("d", entries("c=1"))
	if !rule.HasLimitNamed("3") || rule.HasLimitNamed("") || rule.HasLimitNamed("one") {
		t.Error(`HasLimitNamed: want true for "3" only, not for "" or "one"`)
	}
	unlimited := rules.Match("d", entries("b=1"))
	if unlimited == nil || !unlimited.HasLimitNamed("two") {
		t.Fatalf("%+v, want the rule named two", unlimited)
	}
	l, err := unlimited.OverrideBase(false).Limit(5, descriptors.Minute, 0)
	if err != nil || sprint(l) != "{fixed_window 5 1m0s  true}" {
		t.Errorf("limit %v %v, want 5 per minute that count denied hits", l, err)
	}
}

func TestMetadataKeepsYAMLTypes(t *testing.T) {
	rules := parse(t, `domain: d
descriptors:
- key: a
  rate_limit: {unlimited: true}
  metadata: &m
    text: x
    number: 0x10
    large: 18446744073709551615
    float: 1.5
    yes: no
    none: ~
    date: 2020-01-01
    binary: !!binary aGk=
    list: [1, {k: [v]}]
    map: {<<: {a: 1, b: 2}, b: 3}
- key: b
  rate_limit: {unlimited: true}
  metadata: {<<: [*m, {text: y, more: z}], map: {}}
- key: c
  rate_limit: {unlimited: true}
`)
	for _, tt := range []struct{ entry, want string }{
		{"a=1", `{"binary":"hi","date":"2020-01-01","float":1.5,"large":18446744073709552000,"list":[1,{"k":["v"]}],` +
			`"map":{"a":1,"b":3},"none":null,"number":16,"text":"x","yes":false}`},
		{"b=1", `{"binary":"hi","date":"2020-01-01","float":1.5,"large":18446744073709552000,"list":[1,{"k":["v"]}],` +
			`"map":{},"more":"z","none":null,"number":16,"text":"x","yes":false}`},
		{"c=1", "null"},
	} {
		rule := rules.Match("d", entries(tt.entry))
		got, err := json.Marshal(rule.Metadata)
		if err != nil || string(got) != tt.want || !plain(rule.Metadata) {
			t.Errorf("%s: got %s, %v", tt.entry, got, err)
		}
	}
}

// plain reports whether google.protobuf.Struct can hold v.
func plain(v any) bool {
	switch v := v.(type) {
	case nil, string, float64, bool:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(v any) bool { return !plain(v) })
	case map[string]any:
		for _, v := range v {
			if !plain(v) {
				return false
			}
		}
		return true
	}
	return false
}

func TestMergeDomainsJoinsFiles(t *testing.T) {
	const rest = ", rate_limit: {unit: day, requests_per_unit: 1}}\n"
	merge := rulesfile.Options{MergeDomains: true}
	a := "domain: d\ndescriptors:\n- {key: k, value: 'a*'" + rest + "- {key: x, value: y" + rest
	b := "domain: d\ndescriptors:\n- {key: k, value: '*b'" + rest
	for name, tt := range map[string]struct {
		files []string
		want  string // the rule that matches k=ab
	}{
		"one after the other":            {[]string{a, b}, "k=a*"},
		"with another domain in between": {[]string{b, "domain: e\n", a}, "k=*b"},
	} {
		t.Run(name, func(t *testing.T) {
			rules, _, err := rulesfile.ParseWith(merge, files(tt.files...)...)
			must.Succeed(t, err)
			if got := rules.Match("d", entries("k=ab")).Name; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if rules.Match("d", entries("x=y")) == nil || rules.Match("d", entries("k=b")) == nil {
				t.Error("a rule is lost")
			}
			if _, n := rules.Counts(); n != 3 {
				t.Errorf("%d rules, want 3", n)
			}
		})
	}
	_, _, err := rulesfile.ParseWith(merge, files(a, b, "domain: d\ndescriptors:\n- {key: x, value: y"+rest)...)
	golden(t, err,
		"c.yaml:3:4: duplicate descriptor composite key 'd.x_y': a.yaml:4 has it too: merge them")
	_, _, err = rulesfile.ParseWith(merge, files("descriptors: []\n", "domain: ''\n")...)
	golden(t, err, "a.yaml:1:1: config file cannot have empty domain: write 'domain: <name>' at the top\n"+
		"b.yaml:1:9: config file cannot have empty domain: write 'domain: <name>' at the top")

	// A name counts in all files of its domain.
	_, warnings, err := rulesfile.ParseWith(merge, files(
		"domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, replaces: [{name: n}]}}]\n",
		"domain: d\ndescriptors: [{key: b, rate_limit: {unlimited: true, name: n}}]\n",
		"domain: e\ndescriptors: [{key: b, rate_limit: {unlimited: true, name: n}}]\n")...)
	if err != nil || len(warnings) > 0 {
		t.Errorf("%v %v, want no error and no warning", err, warnings)
	}
}

// TestManyWildcardsLoadWithoutWarnings would be slow if each descriptor were compared with all
// others.
func TestManyWildcardsLoadWithoutWarnings(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "- {key: k, value: '*:%d'}\n", i)
	}
	if _, w := parseWarned(t, b.String()); len(w) > 0 {
		t.Errorf("%d warnings", len(w))
	}
}
