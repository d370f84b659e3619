package descriptors_test

import (
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

const example = `domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: reply, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}}
      - {key: action, value: post, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 30, capacity: 15}}
`

var entries = rulesfiletest.Entries

// tree writes rules from lines of "k=v k=v", with a level for each entry. A '!' after an entry adds
// a limit.
func tree(lines string) string {
	var b strings.Builder
	b.WriteString("domain: d\n")
	last := -1
	for line := range strings.Lines(lines) {
		trimmed := strings.TrimLeft(strings.TrimRight(line, "\n"), " ")
		if trimmed == "" {
			continue
		}
		depth := (len(strings.TrimRight(line, "\n")) - len(trimmed)) / 2
		pad := strings.Repeat("    ", depth)
		if depth > last {
			b.WriteString(pad + "descriptors:\n")
		}
		last = depth
		entry, limited := strings.CutSuffix(trimmed, "!")
		k, v, _ := strings.Cut(entry, "=")
		b.WriteString(pad + "  - key: '" + k + "'\n" + pad + "    value: '" + v + "'\n")
		if limited {
			b.WriteString(pad + "    rate_limit: {unit: day, requests_per_unit: 1}\n")
		}
	}
	return b.String()
}

func TestMatchPrefersExactThenWildcardThenKeyOnly(t *testing.T) {
	for _, tt := range []struct {
		name, rules string
		want        map[string]string // the rule's name by entries; "" if no rule matches
	}{
		{"exact before wildcard before key only", "k!\nk=v*!\nk=vw!", map[string]string{
			"k=vw": "k=vw", "k=vx": "k=v*", "k=v": "k=v*", "k=x": "k", "k=": "k", "x=vw": "", "": "",
		}},
		{"wildcards in file order, not the most specific", "k=a*!\nk=ab*!\nk=*c!", map[string]string{
			"k=abc": "k=a*", "k=ab": "k=a*", "k=xc": "k=*c", "k=x": "",
		}},
		{"a wildcard's own text is a value like any other", "k=*!\nk=a*!", map[string]string{
			"k=a*": "k=a*", "k=ab": "k=*", "k=*": "k=*", "k=": "k=*",
		}},
		{"stars anywhere, each zero or more", "k=/api/*/users/*!\nk=*x*y*!\nk=a**b!", map[string]string{
			"k=/api/v1/users/7": "k=/api/*/users/*", "k=/api//users/": "k=/api/*/users/*", "k=/api/users/": "",
			"k=xy": "k=*x*y*", "k=1x2y3": "k=*x*y*", "k=yx": "", "k=ab": "k=a**b", "k=a_b": "k=a**b", "k=a": "",
		}},
		{"prefix and suffix do not overlap", "k=aba*aba!", map[string]string{
			"k=aba": "", "k=ababa": "", "k=abaaba": "k=aba*aba",
		}},
		{"a wildcard in the key", "x-*!\nx-*=on!\nx-a!", map[string]string{
			"x-a=on": "x-*", "x-b=off": "x-*", "x-=": "x-*", "y=on": "",
		}},
		{"a wildcard in the key with a value", "x-*=on!\nx-a!", map[string]string{
			"x-a=on": "x-*=on", "x-a=off": "x-a", "x-b=off": "", "x-*=on": "x-*=on",
		}},
		{"the last entry must reach the rule", "a!\n  b!\n    c\n      d!", map[string]string{
			"a=1": "a", "a=1 b=2": "a.b", "a=1 b=2 c=3": "", "a=1 b=2 c=3 d=4": "a.b.c.d",
			"a=1 b=2 c=3 d=4 e=5": "", "b=2": "", "a=1 a=1": "",
		}},
		{"no way back from a choice", "k=v\n  x!\nk\n  y!", map[string]string{
			"k=v x=1": "k=v.x", "k=v y=1": "", "k=w y=1": "k.y", "k=v": "",
		}},
		{"pairs, not joined text", "a=b_c!\na_b=c!\na_b!\nq=*!", map[string]string{
			"a=b_c": "a=b_c", "a_b=c": "a_b=c", "a_b=d": "a_b", "a_b_c=": "", "q_x=y": "", "q=": "q=*",
		}},
		{"a value does not hide in the key", "path=/a!", map[string]string{"path_/a=": "", "path=/a": "path=/a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := rulesfiletest.Parse(t, tree(tt.rules))
			for es, want := range tt.want {
				got := ""
				if r := rules.Match("d", entries(es)); r != nil {
					got = r.Name
				}
				if got != want {
					t.Errorf("%q: rule %q, want %q", es, got, want)
				}
				if rules.Match("e", entries(es)) != nil {
					t.Errorf("%q matches in another domain", es)
				}
			}
		})
	}
}

func TestNilRulesMatchNothing(t *testing.T) {
	for _, rules := range []*descriptors.Rules{nil, {}} {
		for r := range rules.All() {
			t.Errorf("a rule: %+v", r)
		}
		if rules.Match("d", nil) != nil || rules.Domain("") != nil {
			t.Error("empty rules have a match or a domain, want none")
		}
		if d, n := rules.Counts(); d+n > 0 {
			t.Errorf("counts %d, %d", d, n)
		}
	}
}

func TestNameIsBounded(t *testing.T) {
	long := strings.Repeat("é", 300)
	rules := rulesfiletest.Parse(t, tree("k="+long+"1!\nk="+long+"2!"))
	names := map[string]bool{}
	for r := range rules.All() {
		names[r.Name] = true
		if len(r.Name) > 200 || strings.ToValidUTF8(r.Name, "") != r.Name {
			t.Errorf("%d bytes: %q", len(r.Name), r.Name)
		}
	}
	if len(names) != 2 {
		t.Errorf("names %v, want two", names)
	}
}

func TestOverrideReplacesTheLimit(t *testing.T) {
	limits := map[string]string{
		"none":     "",
		"fixed":    "{unit: day, requests_per_unit: 1, window_start: first_hit, count_denied: false}",
		"log":      "{unit: day, requests_per_unit: 1, algorithm: sliding_log, count_denied: true}",
		"funnel":   "{unit: day, requests_per_unit: 9, algorithm: funnel, capacity: 3}",
		"default":  "{unit: day, requests_per_unit: 9, algorithm: funnel}",
		"calendar": "{unit: day, requests_per_unit: 9, window_start: calendar, time_zone: Europe/Berlin}",
	}
	for _, tt := range []struct {
		rule       string
		requests   uint32
		unit       descriptors.Unit
		multiplier uint32
		want       string // the spec, or the error
	}{
		{"none", 5, descriptors.Minute, 0, "{fixed_window 5 1m0s  true}"},
		{"none", 5, descriptors.Month, 121, "{fixed_window 5 87120h0m0s  true}"},
		{"none", 5, descriptors.Month, 122, "a unit_multiplier of 122 is too large for the unit month: want at most 121"},
		{"none", 5, descriptors.Year, 1<<32 - 1, "a unit_multiplier of 4294967295 is too large"},
		{"none", 5, descriptors.UnitUnknown, 1, "invalid rate limit unit 'unknown': want one of second, minute"},
		{"none", 5, 200, 1, "invalid rate limit unit 'unknown'"},
		{"fixed", 5, descriptors.Second, 3, "{fixed_window 5 3s window_start=first_hit false}"},
		{"log", 5, descriptors.Week, 1, "{sliding_log 5 168h0m0s  true}"},
		{"log", 2_000_000, descriptors.Week, 1, "a sliding log of 2000000 hits is too large"},
		{"funnel", 5, descriptors.Hour, 1, "{funnel 5 1h0m0s capacity=3 false}"},
		{"funnel", 0, descriptors.Hour, 1, "{funnel 0 1h0m0s  false}"},
		{"default", 5, descriptors.Hour, 1, "{funnel 5 1h0m0s  false}"},
		{"calendar", 5, descriptors.Week, 2, "{fixed_window 5 336h0m0s window_start=calendar calendar_unit=week time_zone=Europe/Berlin true}"},
		{"calendar", 5, descriptors.Day, 1, "{fixed_window 5 24h0m0s window_start=calendar time_zone=Europe/Berlin true}"},
		{"calendar", 5, descriptors.Hour, 1, "{fixed_window 5 1h0m0s  true}"},
	} {
		var rule *descriptors.Rule
		if text := limits[tt.rule]; text != "" {
			rule = rulesfiletest.Parse(t, "domain: d\ndescriptors: [{key: k, rate_limit: "+text+"}]").Match("d", entries("k=v"))
		}
		l, err := rule.OverrideBase(false).Limit(tt.requests, tt.unit, tt.multiplier)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = sprint(l)
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

// Under USE_CALENDAR_MONTH_RATE_LIMIT, a limit in a request has calendar months too, unless its
// rule sets window_start.
func TestOverrideHasCalendarMonths(t *testing.T) {
	for _, tt := range []struct {
		rule, want string
		unit       descriptors.Unit
	}{
		{"", "{fixed_window 5 720h0m0s window_start=calendar calendar_unit=month true}", descriptors.Month},
		{"", "{fixed_window 5 24h0m0s  true}", descriptors.Day},
		{"unit: month", "{fixed_window 5 720h0m0s window_start=calendar calendar_unit=month true}", descriptors.Month},
		{"unit: month", "{fixed_window 5 8760h0m0s  true}", descriptors.Year},
		{"unit: day, window_start: first_hit", "{fixed_window 5 720h0m0s window_start=first_hit true}", descriptors.Month},
		{"unit: month, window_start: clock", "{fixed_window 5 720h0m0s  true}", descriptors.Month},
		{"unit: day, window_start: clock", "{fixed_window 5 720h0m0s  true}", descriptors.Month},
		{"unit: day, algorithm: funnel", "{funnel 5 720h0m0s  false}", descriptors.Month},
	} {
		var rule *descriptors.Rule
		if tt.rule != "" {
			text := "domain: d\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 1, " + tt.rule + "}}]"
			rules, _, err := rulesfile.ParseWith(rulesfile.Options{CalendarMonths: true}, rulesfile.File{Name: "f", Data: []byte(text)})
			must.Succeed(t, err)
			rule = rules.Match("d", entries("k=v"))
		}
		l, err := rule.OverrideBase(true).Limit(5, tt.unit, 1)
		if got := sprint(l); err != nil || got != tt.want {
			t.Errorf("%v under %q: %s, %v, want %s", tt.unit, tt.rule, got, err, tt.want)
		}
	}
}

// A cache of overrides finds its entries again after a reload of the same rules.
func TestOverrideIsEqualAfterReload(t *testing.T) {
	const text = "domain: d\ndescriptors:\n" +
		"- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}\n" +
		"- {key: c, rate_limit: {unit: day, requests_per_unit: 1, algorithm: funnel}}\n" +
		"- {key: d, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: allow}}\n"
	of := func(key string) descriptors.OverrideBase {
		return rulesfiletest.Parse(t, text).Match("d", entries(key+"=1")).OverrideBase(false)
	}
	if again := of("a"); of("a") != again || of("a") != of("b") || of("a") != (*descriptors.Rule)(nil).OverrideBase(false) {
		t.Error("equal settings differ")
	}
	if of("a") == of("c") || of("a") == of("d") || of("c") == of("d") {
		t.Error("different settings are equal")
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	rules := rulesfiletest.Parse(t, example+"      - {key: action, value: 'a*b*c', rate_limit: {unit: day, requests_per_unit: 1}}\n")
	for _, action := range []string{"reply", "axxbxxc", "none"} {
		request := entries("user_id=alice action=" + action)
		if n := testing.AllocsPerRun(100, func() { rules.Match("ugc", request) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", action, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	rules, request := rulesfiletest.Parse(b, example), entries("user_id=alice action=reply")
	b.ReportAllocs()
	for b.Loop() {
		rules.Match("ugc", request)
	}
}
