package rulesfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// overlaid parses an overlay and rules, each in a file.
func overlaid(overlay, rules string) (*descriptors.Rules, error) {
	parsed, _, err := overlaidWarned(overlay, rules)
	return parsed, err
}

func overlaidWarned(overlay, rules string) (*descriptors.Rules, []rulesfile.Diagnostic, error) {
	o, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o.yaml", Data: []byte(overlay)})
	if err != nil {
		return nil, nil, err
	}
	return rulesfile.ParseWith(rulesfile.Options{Overlay: o}, files(rules)...)
}

const arriving = `domain: d
descriptors:
- {key: k, value: v, rate_limit: &l {unit: minute, requests_per_unit: 5}}
- {key: k, value: 'vw', rate_limit: *l}
- {key: k, value: 'x', rate_limit: *l}
- {key: k, value: 'p*', rate_limit: *l}
- key: k
  rate_limit: *l
  descriptors:
  - {key: deep, rate_limit: *l}
- {key: own, rate_limit: {unit: minute, requests_per_unit: 5, algorithm: funnel, count_denied: true}}
- key: penalized
  rate_limit: {unit: minute, requests_per_unit: 5, penalty: {after: 3, within: 1m, for: 1h}}
- {key: none, rate_limit: {unlimited: true}}
- {key: many, rate_limits: [*l]}
`

func TestOverlaySetsAlgorithmAndParameters(t *testing.T) {
	rules, warnings, err := overlaidWarned(`domain: d
descriptors:
- {key: k, value: v, rate_limit: {algorithm: sliding_log}}
- {key: k, value: 'v*', rate_limit: {algorithm: funnel, capacity: 3}}
- {key: 'k*', value: 'p*', rate_limit: {window_start: first_hit}}
- key: k
  rate_limit: {count_denied: false}
  descriptors:
  - {key: '*', rate_limit: {algorithm: sliding_log, count_denied: true}}
- {key: own, rate_limit: {capacity: 2, count_denied: false, penalty: {after: 9, for: 90s, within: 1h, factor: 4}}}
- {key: penalized, rate_limit: {algorithm: sliding_log, penalty: {after: 9, within: 2h, for: 90s, factor: 4}}}
- {key: none, rate_limit: {algorithm: funnel}}
- {key: many, rate_limit: {algorithm: funnel}}
- {key: nobody, rate_limit: {algorithm: funnel}}
`, arriving)
	must.Succeed(t, err)
	for request, want := range map[string]string{
		"k=v":        "{sliding_log 5 1m0s  false}",
		"k=vw":       "{funnel 5 1m0s capacity=3 false}",
		"k=x":        "{fixed_window 5 1m0s  false}",
		"k=p1":       "{fixed_window 5 1m0s window_start=first_hit true}",
		"k=1":        "{fixed_window 5 1m0s  false}",
		"k=1 deep=1": "{sliding_log 5 1m0s  true}",
		// Settings of the rule take precedence over the overlay. A penalty is one setting.
		"own=1":       "{funnel 5 1m0s capacity=2 penalty.after=9 penalty.within=1h0m0s penalty.for=1m30s penalty.factor=4 true}",
		"penalized=1": "{sliding_log 5 1m0s penalty.after=3 penalty.within=1m0s penalty.for=1h0m0s false}",
		"many=1":      "{fixed_window 5 1m0s  true}",
	} {
		if got := sprint(rules.Match("d", entries(request)).Limits[0]); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	const effect = "the overlay has no effect here, because it matches no rate_limit of the rules: correct its keys and values, " +
		"or remove it"
	want := "o.yaml:12:27: " + effect + "\no.yaml:13:27: " + effect + "\no.yaml:14:29: " + effect
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestOverlayMatchesAsRequestsDo checks the order of matching: the exact value, wildcards in the
// order of the file, the key alone. As for requests, the first match is final.
func TestOverlayMatchesAsRequestsDo(t *testing.T) {
	for _, tt := range []struct{ overlay, want string }{
		{"[{key: k, rate_limit: {algorithm: funnel}}, {key: k, value: v, rate_limit: {algorithm: sliding_log}}]",
			"sliding_log"},
		{"[{key: k, value: '*', rate_limit: {algorithm: funnel}}, {key: k, value: v*, rate_limit: {algorithm: sliding_log}}]",
			"funnel"},
		{"[{key: k, rate_limit: {algorithm: funnel}}, {key: k, value: x*, rate_limit: {algorithm: sliding_log}}]", "funnel"},
		{"[{key: k, rate_limit: {algorithm: funnel}}, {key: k, value: v*}]", "fixed_window"},
		{"[]", "fixed_window"},
		{"[{key: k, values: [u, v], rate_limit: {algorithm: funnel}}, {key: k, value: '*', rate_limit: {algorithm: sliding_log}}]", "funnel"},
		{"[{key: k, values: [u, w], rate_limit: {algorithm: funnel}}]", "fixed_window"},
	} {
		rules, err := overlaid("domain: d\ndescriptors: "+tt.overlay+"\n",
			"domain: d\ndescriptors: [{key: k, value: v, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
		if err != nil {
			t.Errorf("overlay %s: %v", tt.overlay, err)
			continue
		}
		if got := rules.Match("d", entries("k=v")).Limits[0].Algorithm(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.overlay, got, tt.want)
		}
	}
}

// An overlay's prefixes match rules whose value is an address. A rule with a list is found by its
// key alone.
func TestOverlayMatchesListsByKey(t *testing.T) {
	rules, warnings, err := overlaidWarned(`domain: d
descriptors:
- {key: ip, cidr: [10.0.0.0/8], rate_limit: {algorithm: funnel}}
- {key: ip, cidr: [10.1.0.0/16], rate_limit: {algorithm: sliding_log}}
- {key: plan, values: [a], rate_limit: {algorithm: funnel}}
- {key: plan, rate_limit: {algorithm: sliding_log}}
`, `domain: d
descriptors:
- {key: ip, value: 10.0.0.1, rate_limit: &l {unit: day, requests_per_unit: 1}}
- {key: ip, value: 10.1.0.1, rate_limit: *l}
- {key: ip, cidr: [10.0.0.0/8], rate_limit: *l}
- {key: plan, values: [a, b], rate_limit: *l}
`)
	must.Succeed(t, err)
	for request, want := range map[string]string{
		"ip=10.0.0.1": "funnel", "ip=10.1.0.1": "sliding_log", "ip=10.2.0.1": "fixed_window", "plan=a": "sliding_log",
	} {
		if got := rules.Match("d", entries(request)).Limits[0].Algorithm(); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
	if len(warnings) != 1 || warnings[0].Line != 5 {
		t.Errorf("warnings %v, want one, on line 5", warnings)
	}
}

func TestErrorNamesTheOverlay(t *testing.T) {
	for _, tt := range []struct{ overlay, limit, want string }{
		{"{algorithm: sliding_log}", "requests_per_unit: 5000000",
			"a.yaml:2:36: a sliding log of 5000000 hits is too large: want at most 1000000, or the algorithm funnel, " +
				"which needs no memory per hit (the overlay sets 'algorithm', at o.yaml:2:37)"},
		{"{capacity: 5}", "requests_per_unit: 1",
			"a.yaml:2:36: 'capacity' has no meaning for the algorithm fixed_window: remove it, or set 'algorithm: funnel' " +
				"(the overlay sets 'capacity', at o.yaml:2:37)"},
		{"{algorithm: funnel, count_denied: true}", "requests_per_unit: 1, window_start: clock",
			"a.yaml:2:70: 'window_start' has no meaning for the algorithm funnel: remove it, or set 'algorithm: fixed_window' " +
				"(the overlay sets 'algorithm', 'count_denied', at o.yaml:2:37)"},
		{"{penalty: {after: 1, within: 1m, for: 10m, max: 5m}}", "requests_per_unit: 1",
			"a.yaml:2:36: a penalty of 10m0s is longer than its 'max' of 5m0s: set a longer 'max' or a shorter 'for' " +
				"(the overlay sets 'penalty', at o.yaml:2:37)"},
		{"{algorithm: funnel}", "requests_per_unit: -1",
			"a.yaml:2:67: 'requests_per_unit' is -1: want a whole number from 0 to 4503599627370495"},
	} {
		_, err := overlaid("domain: d\ndescriptors: [{key: k, rate_limit: "+tt.overlay+"}]\n",
			"domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, "+tt.limit+"}}]\n")
		golden(t, err, tt.want)
	}
}

func TestOverlayErrorsNameLineAndRemedy(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "a.yaml:1:1: config file cannot have empty domain"},
		{"domain: d\n|domain: e\n|domain: d\n", "c.yaml:1:9: duplicate domain 'd' in overlay: a.yaml has it too"},
		{"domain: d\nunit: day\n", "a.yaml:2:1: unknown key 'unit' in an overlay: want one of domain"},
		{"domain: d\ndescriptors: [{key: k, shadow_mode: true}]",
			"a.yaml:2:24: unknown key 'shadow_mode' in a descriptor of an overlay: want one of key, value"},
		{"domain: d\ndescriptors: [{key: k, rate_limit: {unit: day}}]",
			"a.yaml:2:37: unknown key 'unit' in a rate_limit of an overlay: want one of algorithm, window_start"},
		{"domain: d\ndescriptors: [{key: k, rate_limits: []}]", "a.yaml:2:24: unknown key 'rate_limits'"},
		{"domain: d\ndescriptors: [{value: k}]", "a.yaml:2:15: descriptor has empty key"},
		{"domain: d\ndescriptors: [{key: k}, {key: k}]", "a.yaml:2:26: duplicate descriptor 'k': line 2 has it too"},
		{"domain: d\ndescriptors: [{key: k, values: [a]}, {key: k, values: [b, a]}]",
			"a.yaml:2:59: duplicate descriptor 'k_a': line 2 has it too: remove one"},
		{"domain: d\ndescriptors: [{key: k, value: a, cidr: [10.0.0.0/8]}]", "a.yaml:2:34: 'value' and 'cidr' are both given"},
		{"domain: d\ndescriptors: [{key: k, cidr: []}]", "a.yaml:2:30: 'cidr' is empty: add a prefix"},
		{"domain: d\ndescriptors: [{key: k, rate_limit: {algorithm: x}}]", "a.yaml:2:48: unknown algorithm 'x'"},
		{"domain: d\ndescriptors: [{key: k, rate_limit: {algorithm: sliding_log, capacity: 3}}]",
			"a.yaml:2:61: 'capacity' has no meaning for the algorithm sliding_log"},
		{"domain: d\ndescriptors: [{key: k, rate_limit: {capacity: 0}}]", "a.yaml:2:47: 'capacity' is 0"},
		{"domain: d\ndescriptors: [{key: k, rate_limit: {count_denied: yes}}]", "a.yaml:2:51: 'count_denied' is the text 'yes'"},
		{"domain: d\ndescriptors: &a [{key: k, descriptors: *a}]", "a.yaml:2:19: nested too deeply"},
		{": [\n", "a.yaml:1:3: '[' is not closed: add ']'"},
	} {
		o, err := rulesfile.ParseOverlay(files(strings.Split(tt.text, "|")...)...)
		var faults rulesfile.Faults
		if o != nil || !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].String(), tt.want) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// xDS has 32 bits for requests_per_unit, and an overlay more.
func TestOverlaySetsRequestsPerUnit(t *testing.T) {
	rules, warnings, err := overlaidWarned(`domain: d
descriptors:
- {key: k, value: v, rate_limit: {requests_per_unit: 4503599627370495}}
- {key: k, value: x, rate_limit: {requests_per_unit: 0}} # weir:ignore zero-limit
- {key: missing, rate_limit: {requests_per_unit: 7}}
`, arriving+"- {key: missing, rate_limit: {unit: minute}}\n")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	for request, want := range map[string]int64{"k=v": 1<<52 - 1, "k=x": 0, "k=1": 5, "missing=1": 7} {
		l := rules.Match("d", entries(request)).Limits[0]
		if l.RequestsPerUnit != want || l.Spec().Max != want {
			t.Errorf("%s: %d per unit, and a maximum of %d, want %d", request, l.RequestsPerUnit, l.Spec().Max, want)
		}
	}
	for _, tt := range []struct{ overlay, want string }{
		{"{requests_per_unit: 4503599627370496}", "o.yaml:2:56: 'requests_per_unit' is 4503599627370496: want a whole number from 0 to 4503599627370495"},
		{"{requests_per_unit: 4294967296}", "a.yaml:2:36: a funnel of 4294967296 hits is too large: want a 'capacity' of at most 4294967295 " +
			"(the overlay sets 'requests_per_unit', at o.yaml:2:37)"},
	} {
		_, err := overlaid("domain: d\ndescriptors: [{key: k, rate_limit: "+tt.overlay+"}]\n",
			"domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, algorithm: funnel}}]\n")
		golden(t, err, tt.want)
	}
}

func TestOverlaySetsACalendar(t *testing.T) {
	rules, err := overlaid("domain: d\ndescriptors: [{key: k, rate_limit: {window_start: calendar, time_zone: Asia/Tokyo}}]\n",
		"domain: d\ndescriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 5, unit_multiplier: 3}}]\n")
	must.Succeed(t, err)
	const want = "{fixed_window 5 2160h0m0s window_start=calendar calendar_unit=month time_zone=Asia/Tokyo true}"
	if got := sprint(rules.Match("d", entries("k=v")).Limits[0]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = overlaid("domain: d\ndescriptors: [{key: k, rate_limit: {window_start: calendar}}]\n",
		"domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 5}}]\n")
	golden(t, err, "a.yaml:2:36: a calendar window is too short with the unit minute: set 'unit' to day, week, month or year, "+
		"or remove 'window_start' (the overlay sets 'window_start', at o.yaml:2:37)")
}

// With CalendarMonths, only the months of fixed windows that set no window_start change.
func TestCalendarMonthsAreParsed(t *testing.T) {
	const text = `domain: d
descriptors:
- {key: month, rate_limit: {unit: month, requests_per_unit: 5}}
- {key: two, rate_limit: {unit: month, requests_per_unit: 5, unit_multiplier: 2}}
- {key: clock, rate_limit: {unit: month, requests_per_unit: 5, window_start: clock}}
- {key: zone, rate_limit: {unit: month, requests_per_unit: 5, window_start: calendar, time_zone: Asia/Tokyo}}
- {key: day, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: funnel, rate_limit: {unit: month, requests_per_unit: 5, algorithm: funnel}}
- {key: many, rate_limits: [{unit: month, requests_per_unit: 5}]}
`
	rules, _, err := rulesfile.ParseWith(rulesfile.Options{CalendarMonths: true}, files(text)...)
	must.Succeed(t, err)
	for key, want := range map[string]string{
		"month":  "{fixed_window 5 720h0m0s window_start=calendar calendar_unit=month true}",
		"two":    "{fixed_window 5 1440h0m0s window_start=calendar calendar_unit=month true}",
		"clock":  "{fixed_window 5 720h0m0s  true}",
		"zone":   "{fixed_window 5 720h0m0s window_start=calendar calendar_unit=month time_zone=Asia/Tokyo true}",
		"day":    "{fixed_window 5 24h0m0s  true}",
		"funnel": "{funnel 5 720h0m0s  false}",
		"many":   "{fixed_window 5 720h0m0s window_start=calendar calendar_unit=month true}",
	} {
		if got := sprint(rules.Match("d", entries(key+"=1")).Limits[0]); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

func FuzzOverlay(f *testing.F) {
	f.Add([]byte("domain: d\ndescriptors: [{key: 'k*', value: '*', rate_limit: {algorithm: funnel, capacity: 2}}]\n"),
		[]byte(arriving))
	f.Add([]byte("domain: d\ndescriptors: &a [{key: k, rate_limit: &l {count_denied: false}, "+
		"descriptors: [{key: x, rate_limit: *l}]}]"),
		[]byte(arriving))
	f.Add([]byte("domain: d\ndescriptors: [{key: k, values: [v, x], rate_limit: {algorithm: funnel}}, "+
		"{key: k, cidr: [10.0.0.0/8], rate_limit: {algorithm: funnel}}]"),
		[]byte(arriving))
	f.Fuzz(func(t *testing.T, overlay, text []byte) {
		o, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o", Data: overlay})
		if err != nil {
			return
		}
		rules, _, err := rulesfile.ParseWith(rulesfile.Options{Overlay: o}, files(string(text))...)
		if err == nil {
			usable(t, rules)
		}
	})
}
