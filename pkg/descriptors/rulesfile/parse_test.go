package rulesfile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func parse(t testing.TB, texts ...string) *descriptors.Rules {
	t.Helper()
	rules, _ := parseWarned(t, texts...)
	return rules
}

func parseWarned(t testing.TB, texts ...string) (*descriptors.Rules, []rulesfile.Diagnostic) {
	t.Helper()
	rules, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, files(texts...)...)
	must.Succeed(t, err)
	return rules, warnings
}

func sprint(l descriptors.RateLimit) string { return fmt.Sprint(l.Spec()) }

var entries = rulesfiletest.Entries

// files are named a.yaml, b.yaml, ...
func files(texts ...string) []rulesfile.File {
	fs := make([]rulesfile.File, len(texts))
	for i, text := range texts {
		fs[i] = rulesfile.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)}
	}
	return fs
}

func TestEveryAlgorithmIsParsed(t *testing.T) {
	rules, w := parseWarned(t, design)
	var got []string
	for r := range rules.All() {
		line := r.Domain + " " + r.Name
		for _, l := range r.Limits {
			line += fmt.Sprintf(" [%d per %d %v: %+v]", l.RequestsPerUnit, l.UnitMultiplier, l.Unit, l.Spec())
		}
		got = append(got, line)
	}
	want := []string{
		"ugc user_id.action=reply [5 per 1 minute: " +
			"{Algorithm:sliding_log Max:5 Window:1m0s Params: CountDenied:false}]",
		"ugc user_id.action=post [30 per 1 minute: " +
			"{Algorithm:funnel Max:30 Window:1m0s Params:capacity=15 CountDenied:false}]",
		"ugc user_id.action=search [5 per 1 second: " +
			"{Algorithm:fixed_window Max:5 Window:1s Params: CountDenied:true}] [1000 per 6 hour: " +
			"{Algorithm:fixed_window Max:1000 Window:6h0m0s Params: CountDenied:true}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	if d, n := rules.Counts(); d != 1 || n != 3 {
		t.Errorf("counts %d, %d", d, n)
	}
}

const design = `domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - key: action
        value: reply
        rate_limit:
          algorithm: sliding_log        # fixed_window (default) | sliding_log | funnel
          unit: minute
          requests_per_unit: 5
      - key: action
        value: post
        rate_limit:
          algorithm: funnel
          unit: minute
          requests_per_unit: 30         # leaks 30 a minute
          capacity: 15                  # and holds 15
      - key: action
        value: search
        rate_limits:                    # several at once
          - {unit: second, requests_per_unit: 5}
          - {unit: hour, unit_multiplier: 6, requests_per_unit: 1000}    # 1000 in six hours
`

func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	_, err := rulesfile.Parse(files(`domain: d
limits: []
descriptors:
  - key: a
    ratelimit: {}
  - value: b
  - key: ""
  - key: c
    value: 1.5
  - key: x
    descriptors:
      - {key: k, value: v}
      - {key: k, value: v}
  - key: d
    rate_limit: {unit: fortnight, requests_per_unit: -1}
  - key: e
    rate_limit: {unit: day, requests_per_unit: 5000000, algorithm: sliding_log}
  - key: f
    rate_limit: {unit: day, requests_per_unit: 1, capacity: 2, window_start: noon}
  - key: g
    algorithm: funnel
    rate_limits:
      - {unit: hour, requests_per_unit: 1}
      - {unit: minute, unit_multiplier: 60, requests_per_unit: 2}
      - second
`, "domain: d\n", "", "domain: [\n")...)
	golden(t, err, `
a.yaml:2:1: unknown key 'limits' in the file: want one of domain, descriptors, on_store_error, on_deny
a.yaml:5:5: unknown key 'ratelimit' in a descriptor: did you mean 'rate_limit'?
a.yaml:6:5: descriptor has empty key: write 'key: <name>'
a.yaml:7:10: descriptor has empty key: write 'key: <name>'
a.yaml:9:12: 'value' is the number 1.5, not a text: quote it: '1.5'
a.yaml:13:10: duplicate descriptor composite key 'd.x.k_v': line 12 has it too: merge them
a.yaml:15:24: invalid rate limit unit 'fortnight': want one of second, minute, hour, day, week, month, year
a.yaml:15:54: 'requests_per_unit' is -1: want a whole number from 0 to 4503599627370495
a.yaml:17:17: a sliding log of 5000000 hits is too large: want at most 1000000, or the algorithm funnel, `+
		`which needs no memory per hit
a.yaml:19:51: 'capacity' has no meaning for the algorithm fixed_window: remove it, or set 'algorithm: funnel'
a.yaml:19:78: unknown window_start 'noon': want one of clock, first_hit, calendar
a.yaml:21:5: key 'algorithm' does not belong in a descriptor: move it into a rate_limit
a.yaml:24:9: duplicate limit in 'rate_limits': it would share its counter with an earlier one of the `+
		`same algorithm and window: keep the lower one, or change 'unit' or 'unit_multiplier'
a.yaml:25:9: an item of 'rate_limits' is the text 'second', not a map: write a map after each '- '
b.yaml:1:9: duplicate domain 'd' in config file: a.yaml has it too: put all its descriptors in one file, `+
		`or set MERGE_DOMAIN_CONFIG
c.yaml:1:1: config file cannot have empty domain: write 'domain: <name>' at the top
d.yaml:1:9: '[' is not closed: add ']'
`)
}

func golden(t *testing.T, err error, want string) {
	t.Helper()
	if want = strings.TrimSpace(want); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Each file has one error: in a rate_limit, in a descriptor or at the top.
func TestErrorsNameLineAndRemedy(t *testing.T) {
	limit := func(s string) string {
		return "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, " + s + "}}]\n"
	}
	descriptor := func(s string) string { return "domain: d\ndescriptors: [{key: a, " + s + "}]\n" }
	for _, tt := range []struct{ text, want string }{
		{limit("requests_per_unit: 1.5"), "2:67: 'requests_per_unit' is 1.5: want a whole number from 0"},
		{limit("requests_per_unit: 99999999999999999999"), "2:67: 'requests_per_unit' is 99999999999999999999: want"},
		{limit("requests_per_unit: 1e3"), "2:67: 'requests_per_unit' is 1e3"},
		{limit("requests_per_unit: 4503599627370496"), "2:67: 'requests_per_unit' is 4503599627370496"},
		{limit("requests_per_unit: 18446744073709551616"), "2:67: 'requests_per_unit' is 18446744073709551616"},
		{limit("requests_per_unit: 4294967296, algorithm: funnel"), "2:36: a funnel of 4294967296 hits is too large: want a 'capacity' of at most 4294967295"},
		{limit("requests_per_unit: 4294967311, algorithm: funnel, capacity: 9"), "2:36: a funnel cannot count 4294967311 hits in 24h0m0s exactly"},
		{limit("requests_per_unit: 1000001, algorithm: sliding_log"), "2:36: a sliding log of 1000001 hits is too large"},
		{limit("requests_per_unit: x"), "2:67: 'requests_per_unit' is the text 'x': want a whole number"},
		{limit("requests_per_unit: '5'"), "2:67: 'requests_per_unit' is the text '5': remove the quotes: 'requests_per_unit: 5'"},
		{limit("unit_multiplier: ~"), "2:65: 'unit_multiplier' is empty: want a whole number"},
		{limit("requests_per_unit: [1]"), "2:67: 'requests_per_unit' is a list"},
		{limit("unit_multiplier: 0"), "2:65: 'unit_multiplier' is 0: want a whole number from 1"},
		{limit("unit_multiplier: 3651"), "2:36: a unit_multiplier of 3651 is too large for the unit day: want at most 3650"},
		{limit("algorithm: sliding_window"),
			"2:59: unknown algorithm 'sliding_window': write 'sliding_log'"},
		{limit("algorithm: ~"), "2:59: 'algorithm' is empty: want one of fixed_window"},
		{limit("algorithm: funnel, window_start: clock"), "2:67: 'window_start' has no meaning for the algorithm funnel"},
		{limit("algorithm: funnel, capacity: 0"), "2:77: 'capacity' is 0: want a whole number from 1"},
		{limit("algorithm: funnel, capacity: 2"), "2:36: 'capacity' has no meaning for a maximum of 0, which denies every hit: remove 'capacity'"},
		{limit("count_denied: yes"), "2:62: 'count_denied' is the text 'yes': want true or false"},
		{limit("on_store_error: retry"), "2:64: unknown on_store_error 'retry': want one of error, allow, deny, local"},
		{descriptor("rate_limit: {unlimited: true, on_store_error: deny}"), "2:54: 'on_store_error' has no meaning when unlimited"},
		{descriptor("on_store_error: deny"), "2:24: key 'on_store_error' does not belong in a descriptor: move it into a rate_limit"},
		{"domain: d\non_store_error:\n", "2:16: 'on_store_error' is empty: want one of error"},
		{limit("<<: 3"), "2:52: a rate_limit is 3, not a map"},
		{descriptor("rate_limit: {requests_per_unit: 1}"), "2:36: invalid rate limit unit ''"},
		{descriptor("rate_limit: {unit: unknown}"), "2:43: invalid rate limit unit 'unknown'"},
		{descriptor("rate_limit: 5"), "2:36: a rate_limit is 5, not a map: want a map with the keys unit,"},
		{descriptor("rate_limit: [{unit: day}]"), "2:36: 'rate_limit' is a list: use 'rate_limits' for several limits"},
		{descriptor("rate_limits: []"), "2:37: 'rate_limits' is empty: add a limit"},
		{descriptor("rate_limits: ~"), "2:37: 'rate_limits' is empty, not a list: begin each item with '- '"},
		{descriptor("rate_limit: {unit: day, requests_per_unit: 1}, rate_limits: [{unit: hour, requests_per_unit: 1}]"),
			"2:71: 'rate_limits' replaces 'rate_limit', and both are given: move that limit into the list"},
		{descriptor("value: [x]"), "2:31: 'value' is a list, not a text"},
		{descriptor("value: !!binary aGk="), "2:31: 'value' is binary data, not a text"},
		{descriptor("0.25: x"), "2:24: the key 0.25 is not a text"},
		{descriptor("? [x] : y"), "2:26: the key a list is not a text"},
		{descriptor(`"a\nb": x`), "2:24: unknown key 'a\uFFFDb'"},
		{descriptor("descriptors: {key: b}"), "2:37: 'descriptors' is a map, not a list: begin each item with '- '"},
		{descriptor("descriptors: [~]"), "2:38: an item of 'descriptors' is empty, not a map"},
		{"x-anchors: 1\ndomain: d\n", "1:1: unknown key 'x-anchors'"},
		{"just text", "1:1: the file is the text 'just text', not a map: begin with"},
		{"domain: ''\n", "1:9: config file cannot have empty domain"},
		{"descriptors: []\n", "1:1: config file cannot have empty domain"},
		{"# nothing\n", "1:1: config file cannot have empty domain"},
		{"--- ~\n", "1:5: config file cannot have empty domain"},
		{"domain: d\n\tx: 1\n", "2:1: a tab indents this line: use spaces"},
		{"domain: *nope\n", "1:9: the alias '*nope' has no anchor '&nope': quote it if it is text: '*nope'"},
		{"domain: d\ndescriptors: &a [{key: k, descriptors: *a}]\n", "2:19: nested too deeply"},
		{"domain: d\n<<: &a {<<: *a}\n", "2:9: nested too deeply"},
		{bomb(), "4:15: the file is too large"},
	} {
		_, err := rulesfile.Parse(files(tt.text)...)
		var faults rulesfile.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].String(), "a.yaml:"+tt.want) {
			t.Errorf("%s\ngot  %v\nwant a.yaml:%s", tt.text, err, tt.want)
		}
	}
}

// bomb returns a file with a billion maps behind aliases.
func bomb() string {
	text := "domain: d\ndescriptors:\n- key: a\n  rate_limit: &l0 {unit: day, requests_per_unit: 1}\n"
	for i := range 9 {
		aliases := strings.Repeat(fmt.Sprintf(", *l%d", i), 10)
		text += fmt.Sprintf("- {key: k%d, rate_limit: &l%d {<<: [%s]}}\n", i, i+1, aliases[2:])
	}
	return text
}

// Each node counts once, at up to three levels of descriptors. A rule here has 11 nodes, and the
// levels above have 14.
func TestAFileOfAMillionNodesLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on one goroutine for long: not with -short")
	}
	text := []byte("domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n    descriptors:\n")
	const most = (1_000_000 - 14) / 11
	for i := range most + 1 {
		text = fmt.Appendf(text, "    - {key: k, value: v%d, rate_limit: {unit: minute, requests_per_unit: 5}}\n", i)
		if i == most-1 {
			if _, err := rulesfile.Parse(rulesfile.File{Name: "a.yaml", Data: text}); err != nil {
				t.Errorf("%d rules: %v", most, err)
			}
		}
	}
	_, err := rulesfile.Parse(rulesfile.File{Name: "a.yaml", Data: text})
	want := fmt.Sprintf("a.yaml:%d:", 6+most+1)
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "more than 1000000 nodes") {
		t.Errorf("%d rules: %v, want a fault at %s", most+1, err, want)
	}
}

func TestWarningsNameLineAndRemedy(t *testing.T) {
	rules, warnings := parseWarned(t, `domain: d
unit: day
descriptors:
  - key: a
    key: b
    unit: second
    rate_limit: {unit: day, unit: hour}
  - key: c
    rate_limit:
    descriptors: ~
---
domain: [
`, "domain: e\n--- 7\n")
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"a.yaml:2:1: key 'unit' has no effect in the file: move it into a rate_limit",
		"a.yaml:5:5: key 'key' is given twice in one map, and only the last counts: remove one",
		"a.yaml:6:5: key 'unit' has no effect in a descriptor: move it into a rate_limit",
		"a.yaml:7:17: 'requests_per_unit' is missing, so the limit is 0 and denies every request: set it",
		"a.yaml:7:29: key 'unit' is given twice in one map, and only the last counts: remove one",
		"a.yaml:8:5: the descriptor has neither a limit nor descriptors, and exempts nothing at its level: " +
			"add a 'rate_limit', or remove it",
		"a.yaml:9:5: key 'rate_limit' has no value and no effect: remove it, or give it a value",
		"a.yaml:10:5: key 'descriptors' has no value and no effect: remove it, or give it a value",
		"b.yaml:2:1: only the first YAML document of a file is read, and this one is not: put each document in a file of its own",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r := rules.Match("d", entries("b=x")); r == nil || r.Limits[0].Unit != descriptors.Hour {
		t.Errorf("the last of two does not count: %+v", r)
	}
}

// A value that envoyproxy/ratelimit reads as text is text to Weir too.
func TestScalarsAreReadAsText(t *testing.T) {
	for text, want := range map[string]string{
		"123": "123", "true": "true", "'1.5'": "1.5", "2020-01-01": "2020-01-01", "yes": "yes", "0x10": "0x10",
		"!!str 1.5": "1.5", "'<<'": "<<", `""`: "", "~": "", "": "", "null": "",
	} {
		rules := parse(t, "domain: d\ndescriptors:\n- key: k\n  value: "+text+
			"\n  rate_limit: {unit: DAY, requests_per_unit: 0x10}\n")
		wantName := "k=" + want
		if want == "" {
			wantName = "k"
		}
		for r := range rules.All() {
			if r.Name != wantName || r.Limits[0].RequestsPerUnit != 16 {
				t.Errorf("%q: %+v, want %s", text, r, wantName)
			}
		}
	}
}

func TestYAMLMergeKeysAreApplied(t *testing.T) {
	rules := parse(t, `domain: d
descriptors:
  - &first {key: a, value: b, rate_limit: &limit {unit: day, requests_per_unit: 1}}
  - <<: *first
    key: c
    rate_limit: {<<: [*limit, {unit: year, unit_multiplier: 2}], requests_per_unit: 3}
`)
	r := rules.Match("d", entries("c=b"))
	if r == nil {
		t.Fatal("no rule")
	}
	if l := r.Limits[0]; l.Unit != descriptors.Day || l.UnitMultiplier != 2 || l.RequestsPerUnit != 3 {
		t.Errorf("%+v, want 3 per 2 days", l)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(design), []byte("domain: x\n"))
	f.Add([]byte("domain: d\ndescriptors: [{key: a, <<: &b {rate_limits: [{unit: day, capacity: 1}]}}, *b]\n"),
		[]byte{0xff})
	f.Add([]byte("domain: d\ndescriptors: &a [{key: k*, <<: {value: '*'}, descriptors: *a}]\n"),
		[]byte("--- !!x\n? [*a]\n"))
	f.Add([]byte("domain: d\ndescriptors: [{key: k, value: '*', share_threshold: on, quota_mode: n, "+
		"rate_limit: {unlimited: y, name: a, replaces: [{name: b}]}, "+
		"metadata: {a: [1, .5, ~, !!binary aGk=, {<<: {true: &c x}}], 2: *c}}]\n"),
		[]byte("domain: d\nunit: {metadata: [1.5], name: [{unit: 1}]}\ndescriptors: [{key: k, value: b*}]\n"))
	f.Add([]byte("domain: d\ndescriptors: [{key: k, values: &v [a, 1, true], share_threshold: on, rate_limit: &l {unit: day}}, "+
		"{key: k, cidr: [10.0.0.0/8, '::ffff:10.1.0.0/112', '::/0'], rate_limit: *l}, {key: j, values: *v}]\n"),
		[]byte("domain: e\ndescriptors: [{key: 'k*', values: ['*', ~, 1.5], cidr: [10.1.2.3/8, 10.0.0.1, x, ~, []]}, {key: k, cidr: {}}]\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		o := rulesfile.Options{MergeDomains: len(a)%2 == 0}
		rules, _, err := rulesfile.ParseWith(o, files(string(a), string(b))...)
		if err != nil {
			var faults rulesfile.Faults
			if !errors.As(err, &faults) || len(faults) == 0 || rules != nil {
				t.Fatalf("got %T (%v) and rules %v, want Faults, and no rules", err, err, rules)
			}
			for _, fault := range faults {
				message := fault.Message + fault.Remedy
				if fault.Line < 1 || fault.Column < 1 || strings.Contains(message, "\n") {
					t.Fatalf("%+v, want a position and a message of one line", fault)
				}
			}
			return
		}
		usable(t, rules)
	})
}

func usable(t *testing.T, rules *descriptors.Rules) {
	n := 0
	for r := range rules.All() {
		n++
		var path []descriptors.Entry
		exact := true
		if (len(r.Limits) == 0) != r.Unlimited || rules.Domain(r.Domain) == nil || r.Name == "" || len(r.Name) > 200 {
			t.Fatalf("%+v, want limits unless it is unlimited, a known domain, and a name of at most 200 bytes", r)
		}
		if names := r.AppendMetricNames(nil, entries("a=b c")); len(names) != 2 {
			t.Fatalf("%+v: metric names %q", r, names)
		}
		for _, l := range r.Path() {
			e := l.Entry
			if len(l.Values) > 0 {
				e.Value = l.Values[len(l.Values)-1]
			} else if len(l.Prefixes) > 0 {
				e.Value = l.Prefixes[len(l.Prefixes)-1].Addr().String()
			}
			path, exact = append(path, e), exact && e.Value != "" && len(l.Prefixes) == 0
		}
		matching := rules.Match(r.Domain, path)
		if matching != r && exact {
			t.Fatalf("%+v: does not match %v", r, path)
		}
		if key := descriptors.Key(r.Domain, matching, path); key == "" {
			t.Fatalf("%+v: no key of %v", r, path)
		}
		if !plain(r.Metadata) {
			t.Fatalf("metadata %#v", r.Metadata)
		}
		for _, l := range r.Limits {
			if l.Limit == nil || l.Unit.Duration() == 0 || l.UnitMultiplier == 0 {
				t.Fatalf("%+v, want a compiled limit with a unit and a multiplier", l)
			}
		}
	}
	if _, counted := rules.Counts(); counted != n {
		t.Fatalf("counts %d of %d", counted, n)
	}
}

func TestGeneratedTextHasNoLines(t *testing.T) {
	for generated, want := range map[bool]string{false: "resource:2", true: "resource"} {
		rules, err := rulesfile.Parse(rulesfile.File{
			Name: "resource", Generated: generated,
			Data: []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]"),
		})
		must.Succeed(t, err)
		if got := rules.Match("d", entries("k=v")).Source(); got != want {
			t.Errorf("generated %t: source %q, want %q", generated, got, want)
		}
	}
}
