package rulesfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Each mistake that people make in rules has exactly one error or warning. The test compares its whole text.
func TestMistakesHaveOneErrorWithRemedy(t *testing.T) {
	limit := func(s string) string {
		return "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {" + s + "}\n"
	}
	const day = "unit: day, requests_per_unit: 1"
	for _, tt := range []struct{ name, text, want string }{
		{"a misspelled key of a descriptor", "domain: d\ndescriptors:\n  - key: user\n    rate_limt: {" + day + "}\n",
			"4:5: unknown key 'rate_limt' in a descriptor: did you mean 'rate_limit'?"},
		{"a misspelled key of a limit", limit(day + ", algoritm: funnel"),
			"4:51: unknown key 'algoritm' in a rate_limit: did you mean 'algorithm'?"},
		{"a key in capitals", "domain: d\ndescriptors:\n  - Key: user\n    rate_limit: {" + day + "}\n",
			"3:5: unknown key 'Key' in a descriptor: did you mean 'key'?"},
		{"a key in camel case", limit("unit: day, requestsPerUnit: 1"),
			"4:29: unknown key 'requestsPerUnit' in a rate_limit: did you mean 'requests_per_unit'?"},
		{"a misspelled domain", "domian: d\ndescriptors: []\n", "1:1: unknown key 'domian' in the file: did you mean 'domain'?"},
		{"a misspelled key in the wrong map", "domain: d\ndescriptors:\n  - {key: user, requests_per_unt: 1}\n",
			"3:17: unknown key 'requests_per_unt' in a descriptor: did you mean 'requests_per_unit'? It belongs in a rate_limit"},
		{"burst", limit(day + ", burst: 10"),
			"4:51: unknown key 'burst' in a rate_limit: write 'capacity' with 'algorithm: funnel'"},
		{"window", limit("window: 60s, requests_per_unit: 1"),
			"4:18: unknown key 'window' in a rate_limit: write 'unit', and 'unit_multiplier' for several units"},
		{"an unknown key", limit(day + ", colour: red"),
			"4:51: unknown key 'colour' in a rate_limit: write one of unit, requests_per_unit, name, unit_multiplier, unlimited, replaces, " +
				"algorithm, window_start, capacity, count_denied, on_store_error"},
		{"a misspelled algorithm beside a capacity", limit(day + ", algoritm: funnel, capacity: 3"),
			"4:51: unknown key 'algoritm' in a rate_limit: did you mean 'algorithm'?"},
		{"a misspelled unit key", limit("unti: day, requests_per_unit: 1"),
			"4:18: unknown key 'unti' in a rate_limit: did you mean 'unit'?"},

		{"minutes", limit("unit: minutes, requests_per_unit: 1"), "4:24: invalid rate limit unit 'minutes': write 'unit: minute'"},
		{"10s", limit("unit: 10s, requests_per_unit: 1"),
			"4:24: invalid rate limit unit '10s': write 'unit: second' and 'unit_multiplier: 10'"},
		{"15 minutes", limit("unit: 15 minutes, requests_per_unit: 1"),
			"4:24: invalid rate limit unit '15 minutes': write 'unit: minute' and 'unit_multiplier: 15'"},
		{"hourly", limit("unit: hourly, requests_per_unit: 1"), "4:24: invalid rate limit unit 'hourly': write 'unit: hour'"},
		{"a misspelled unit", limit("unit: secnd, requests_per_unit: 1"), "4:24: invalid rate limit unit 'secnd': write 'unit: second'"},
		{"an unknown unit", limit("unit: decade, requests_per_unit: 1"),
			"4:24: invalid rate limit unit 'decade': write one of second, minute, hour, day, week, month, year"},

		{"token_bucket", limit(day + ", algorithm: token_bucket"), "4:62: unknown algorithm 'token_bucket': write 'funnel'"},
		{"a misspelled algorithm", limit(day + ", algorithm: sliding-log"),
			"4:62: unknown algorithm 'sliding-log': did you mean 'sliding_log'?"},

		{"a negative number", limit("unit: day, requests_per_unit: -5"),
			"4:48: requests_per_unit is -5: write a whole number from 0 to 4294967295"},
		{"a quoted number", limit(`unit: day, requests_per_unit: "5"`),
			"4:48: requests_per_unit is the text '5': remove the quotes: 'requests_per_unit: 5'"},
		{"a list under rate_limit", "domain: d\ndescriptors:\n  - key: user\n    rate_limit:\n      - {" + day + "}\n",
			"5:7: rate_limit is a list: use rate_limits for several limits"},
		{"a map under descriptors", "domain: d\ndescriptors:\n  key: user\n  rate_limit: {" + day + "}\n",
			"3:3: descriptors is a map, not a list: begin each item with '- '"},
		{"no requests_per_unit", limit("unit: day"),
			"warning 4:17: requests_per_unit is missing, so the limit is 0 and denies every request: set it"},
		{"a second document", "domain: d\n---\ndomain: e\n",
			"warning 2:1: only the first YAML document of a file is read, and this one is not: put each document in a file of its own"},
		{"a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rules}\ndata:\n  rules.yaml: |\n    domain: d\n",
			"1:1: this is a Kubernetes manifest of the kind ConfigMap, not a rules file: put the text of the key under data in a file of its own"},
		{"a Deployment", "apiVersion: apps/v1\nkind: Deployment\n",
			"1:1: this is a Kubernetes manifest of the kind Deployment, not a rules file: write a file that begins with 'domain: <name>'"},

		{"a tab", "domain: d\ndescriptors:\n\t- key: user\n", "3:1: a tab indents this line: use spaces"},
		{"a tab after spaces", "domain: d\ndescriptors:\n  - key: user\n  \tvalue: x\n", "4:3: a tab indents this line: use spaces"},
		{"bad indentation", "domain: d\ndescriptors:\n  - key: user\n   value: x\n",
			"4:4: the indentation does not fit the lines above: align the line with the keys or the '-' of its level"},
		{"too much indentation", "domain: d\ndescriptors:\n  - key: user\n     value: x\n",
			"4:6: the indentation does not fit the lines above: align the line with the keys or the '-' of its level"},
		{"an unclosed brace", "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {" + day + "\n  - key: tenant\n",
			"4:17: '{' is not closed: add '}'"},
		{"an unclosed bracket after a closed one", "domain: d\ndescriptors:\n  - {key: user,\n     value: x}\n  - key: [a, [b]\n",
			"5:10: '[' is not closed: add ']'"},
		{"an unclosed quote", "domain: d\ndescriptors:\n  - key: \"user\n    value: x\n", "3:10: '\"' is not closed: add '\"'"},
		{"value: *", "domain: d\ndescriptors:\n  - key: user\n    value: *\n", "4:12: a value cannot begin with '*': quote it: '*'"},
		{"value: @me", "domain: d\ndescriptors:\n  - key: user\n    value: @me\n", "4:12: a value cannot begin with '@': quote it: '@me'"},
		{"value: *.css", "domain: d\ndescriptors:\n  - key: user\n    value: *.css\n",
			"4:12: a value cannot begin with '*': quote it: '*.css'"},
		{"value: *css", "domain: d\ndescriptors:\n  - key: user\n    value: *css\n",
			"4:12: the alias '*css' has no anchor '&css': quote it if it is text: '*css'"},
		{"two colons", "domain: d\ndescriptors:\n  - key: user: admin\n", "3:3: a value contains ': ': quote the value, or begin a new line"},
		{"no colon", "domain: d\ndescriptors\n", "2:1: this line has no ': ': write 'key: value'"},
		{"no space after a colon", "domain: d\ndescriptors:\n  - key:user\n",
			"3:5: an item of descriptors is the text 'key:user', not a map: write a space after ':'"},
		{"no space in braces", limit("unit:day, requests_per_unit: 1"),
			"4:18: unknown key 'unit:day' in a rate_limit: write a space after ':'"},
		{"an item without its dash", "domain: d\ndescriptors:\n  - key: user\n  value: x\n",
			"4:3: the indentation does not fit the lines above: align the line with the keys or the '-' of its level"},
		{"an indented top key", "domain: d\n descriptors: []\n",
			"2:2: the indentation does not fit the lines above: align the line with the keys or the '-' of its level"},
		{"Windows line ends", "domain: d\r\ndescriptors:\r\n\t- key: user\r\n", "3:1: a tab indents this line: use spaces"},
		{"not UTF-8", "domain: d\ndescriptors:\n  - key: caf\xe9\n", "3:13: this is not UTF-8 text: save the file as UTF-8"},
	} {
		got := "nothing"
		_, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "rules.yaml", Data: []byte(tt.text)})
		switch {
		case err != nil:
			got = err.Error()
		case len(warnings) == 1:
			got = "warning " + warnings[0].String()
		}
		if got = strings.Replace(got, "rules.yaml:", "", 1); got != tt.want {
			t.Errorf("%s:\n%s\ngot  %s\nwant %s", tt.name, tt.text, got, tt.want)
		}
	}
}

// A mistake in a large file is found in bounded time, and its line is right or near.
func TestErrorLineInLargeFile(t *testing.T) {
	const good = "  - {key: user, value: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	for _, lines := range []int{100, 3_000, 20_000} {
		text := "domain: d\ndescriptors:\n" + strings.Repeat(good, lines) + "   - key: x\n" + strings.Repeat(good, lines)
		_, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: []byte(text)})
		var faults rulesfile.Faults
		if !errors.As(err, &faults) || len(faults) != 1 {
			t.Fatalf("%d lines: %v", lines, err)
		}
		if want := lines + 3; lines < 20_000 && faults[0].Line != want {
			t.Errorf("%d lines: line %d, want %d", lines, faults[0].Line, want)
		}
	}
}
