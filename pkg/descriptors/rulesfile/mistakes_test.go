package rulesfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Each mistake that people make in rules has exactly one error or warning. The test compares its
// whole text.
func TestMistakesHaveOneErrorWithRemedy(t *testing.T) {
	limit := func(s string) string {
		return "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {" + s + "}\n"
	}
	const day = "unit: day, requests_per_unit: 1"
	descriptor := func(s string) string {
		return "domain: d\ndescriptors:\n  - {key: user, " + s + ", rate_limit: {" + day + "}}\n"
	}
	const slots = "algorithm: concurrency, concurrent_requests: 5"
	lease := func(s string) string {
		return "domain: d\ndescriptors:\n  - {key: user, " + s + ", rate_limit: {" + slots + "}}\n"
	}
	notPrefix := func(at, shape string) string {
		return at + ": an item of 'cidr' is " + shape + ", not a prefix: want an address and a length, such as 10.0.0.0/8 or 2001:db8::/32"
	}
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
		{"tests in place of rules", "tests: []\ndomain: d\n", "1:1: unknown key 'tests' in the file: these are tests of rules: weir test runs them"},
		{"burst", limit(day + ", burst: 10"),
			"4:51: unknown key 'burst' in a rate_limit: write 'capacity' with 'algorithm: funnel'"},
		{"window", limit("window: 60s, requests_per_unit: 1"),
			"4:18: unknown key 'window' in a rate_limit: write 'unit', and 'unit_multiplier' for several units"},
		{"an unknown key", limit(day + ", colour: red"),
			"4:51: unknown key 'colour' in a rate_limit: want one of unit, requests_per_unit, name, unit_multiplier, concurrent_requests, unlimited, replaces, " +
				"algorithm, window_start, time_zone, peek, penalty, reserve, capacity, lease_ttl, count_denied, on_store_error, on_deny"},
		{"a misspelled algorithm beside a capacity", limit(day + ", algoritm: funnel, capacity: 3"),
			"4:51: unknown key 'algoritm' in a rate_limit: did you mean 'algorithm'?"},
		{"a misspelled unit key", limit("unti: day, requests_per_unit: 1"),
			"4:18: unknown key 'unti' in a rate_limit: did you mean 'unit'?"},

		{"a penalty without for", limit(day + ", penalty: {after: 20, within: 1m}"),
			"4:51: 'penalty' needs 'for': set 'for': the length of the first penalty"},
		{"a misspelled key of a penalty", limit(day + ", penalty: {after: 20, withn: 1m, for: 10m}"),
			"4:72: unknown key 'withn' in a penalty: did you mean 'within'?"},
		{"a penalty without a value", limit(day + ", penalty: "),
			"4:60: a penalty is empty, not a map: want a map with the keys after, within, for, factor, max, forget"},
		{"a penalty that is not a map", limit(day + ", penalty: true"),
			"4:60: a penalty is true, not a map: want a map with the keys after, within, for, factor, max, forget"},
		{"a penalty that is a number of seconds", limit(day + ", penalty: {after: 20, within: 1m, for: 600}"),
			"4:89: 'for' is 600: want a duration from 1ms to 87600h, such as 90s or 1h30m"},
		{"a penalty after no request", limit(day + ", penalty: {after: 0, within: 1m, for: 10m}"),
			"4:68: 'after' is 0: want a whole number from 1 to 1000000"},
		{"a penalty whose factor is a fraction", limit(day + ", penalty: {after: 1, within: 1m, for: 10m, factor: 1.5}"),
			"4:101: 'factor' is 1.5: want a whole number from 1 to 1000"},
		{"a penalty longer than its max", limit(day + ", penalty: {after: 1, within: 1m, for: 48h}"),
			"4:17: a penalty of 48h0m0s is longer than its 'max' of 24h0m0s: set a longer 'max' or a shorter 'for'"},
		{"an unlimited that is no boolean", limit("unlimited: maybe"), "4:29: 'unlimited' is the text 'maybe': want true or false"},
		{"a penalty beside unlimited", limit("unlimited: true, penalty: {after: 1, within: 1m, for: 10m}"),
			"4:35: 'penalty' has no meaning when unlimited: remove one of them"},
		{"a penalty in a descriptor", "domain: d\ndescriptors:\n  - {key: user, penalty: {after: 1}, rate_limit: {" + day + "}}\n",
			"3:17: key 'penalty' does not belong in a descriptor: move it into a rate_limit"},
		{"a key of a penalty beside it", limit(day + ", after: 20"),
			"4:51: unknown key 'after' in a rate_limit: want one of unit, requests_per_unit, name, unit_multiplier, concurrent_requests, unlimited, replaces, " +
				"algorithm, window_start, time_zone, peek, penalty, reserve, capacity, lease_ttl, count_denied, on_store_error, on_deny"},

		{"concurrency without its number", limit("algorithm: concurrency"),
			"4:17: a limit of concurrency has no 'concurrent_requests': set 'concurrent_requests': how many requests may run at a time"},
		{"concurrency with a unit", limit("algorithm: concurrency, concurrent_requests: 5, unit: second"),
			"4:66: 'unit' has no meaning for the algorithm concurrency: remove it"},
		{"concurrency with requests_per_unit", limit("algorithm: concurrency, requests_per_unit: 5"),
			"4:42: 'requests_per_unit' has no meaning for the algorithm concurrency: write 'concurrent_requests' instead"},
		{"concurrent_requests without the algorithm", limit("concurrent_requests: 5"),
			"4:18: 'concurrent_requests' has no meaning for the algorithm fixed_window: write 'requests_per_unit', or set 'algorithm: concurrency'"},
		{"more slots than a key has leases", limit("algorithm: concurrency, concurrent_requests: 10001"),
			"4:63: 'concurrent_requests' is 10001: want a whole number from 0 to 10000"},
		{"a lease_ttl of 0", limit(slots + ", lease_ttl: 0s"),
			"4:77: 'lease_ttl' is the text '0s': want a duration from 1ms to 24h, such as 90s or 1h30m"},
		{"a lease_ttl of two days", limit(slots + ", lease_ttl: 48h"),
			"4:77: 'lease_ttl' is the text '48h': want a duration from 1ms to 24h, such as 90s or 1h30m"},
		{"a penalty under concurrency", limit(slots + ", penalty: {after: 20, within: 1m, for: 10m}"),
			"4:66: 'penalty' has no meaning for the algorithm concurrency: remove it, or set 'algorithm: fixed_window' or 'algorithm: sliding_log' or 'algorithm: funnel'"},
		{"count_denied under concurrency", limit(slots + ", count_denied: true"),
			"4:17: denied hits hold no slots: remove 'count_denied'"},
		{"lease_ttl under a window", limit(day + ", lease_ttl: 5s"),
			"4:51: 'lease_ttl' has no meaning for the algorithm fixed_window: remove it, or set 'algorithm: concurrency'"},
		{"a reserve without a ttl", limit(day + ", reserve: {unsettled: charge}"),
			"4:51: 'reserve' needs 'ttl': set 'ttl': the time that a reservation waits for its actual cost. It must be longer than any request"},
		{"a reserve whose ttl is over a day", limit(day + ", reserve: {ttl: 25h}"),
			"4:66: 'ttl' is the text '25h': want a duration from 1ms to 24h, such as 90s or 1h30m"},
		{"a reserve that refunds", limit(day + ", reserve: {ttl: 2m, unsettled: refund}"),
			"4:81: unknown unsettled 'refund': want one of charge, release"},
		{"a reserve that counts denied hits", limit(day + ", reserve: {ttl: 2m}, count_denied: true"),
			"4:17: a limit that reserves does not count denied hits: set 'count_denied: false', or remove 'reserve'"},
		{"a reserve with peek: over", limit(day + ", reserve: {ttl: 2m}, peek: over"),
			"4:17: a limit that reserves allows no request at its limit: remove 'peek: over' or 'reserve'"},
		{"a reserve under concurrency", limit(slots + ", reserve: {ttl: 2m}"),
			"4:66: 'reserve' has no meaning for the algorithm concurrency: remove it, or set 'algorithm: fixed_window' or 'algorithm: sliding_log' or 'algorithm: funnel'"},
		{"an id with a value", lease("value: a"),
			"3:17: the value of 'user' is the id of a request, so its descriptor cannot have 'value': remove it, because every request has another id"},
		{"an id with values", lease("values: [a]"),
			"3:17: the value of 'user' is the id of a request, so its descriptor cannot have 'values': remove it, because every request has another id"},
		{"an id with prefixes", lease("cidr: [10.0.0.0/8]"),
			"3:17: the value of 'user' is the id of a request, so its descriptor cannot have 'cidr': remove it, because every request has another id"},
		{"an id whose key is a wildcard", "domain: d\ndescriptors:\n  - {key: 'id-*', rate_limit: {" + slots + "}}\n",
			"3:11: the value of 'id-*' is the id of a request, so its key cannot have a '*': write the whole key"},
		{"an id in metrics", lease("value_to_metric: true"),
			"3:17: the value of 'user' is the id of a request, so its descriptor cannot have 'value_to_metric': remove it, because each id would make a series"},
		{"an id in detailed metrics", lease("detailed_metric: true"),
			"3:17: the value of 'user' is the id of a request, so its descriptor cannot have 'detailed_metric': remove it, or set 'value_to_metric' at the other levels"},
		{"descriptors below an id", lease("descriptors: [{key: a, rate_limit: {" + day + "}}]"),
			"3:17: the value of 'user' is the id of a request, so its descriptor cannot have 'descriptors': move them to a descriptor without such a limit"},
		{"an id that a client may choose", "domain: d\ndescriptors:\n  - {key: x_request_id, rate_limit: {" + slots + "}}\n",
			"warning 3:11: the value of 'x_request_id' is the id of a request, and a client can choose its own x-request-id: " +
				"send an id that Envoy makes, such as %UNIQUE_ID% in a header of its own"},

		{"slots at the entry of a client", limit(slots),
			"warning 3:10: the value of 'user' is the id of a request, and no entry is before it, so all requests share the limit: " +
				"write the limit below this descriptor, under a key of its own such as 'lease'"},
		{"a reserve at the entry of a client", limit(day + ", reserve: {ttl: 2m}"),
			"warning 3:10: the value of 'user' is the id of a request, and no entry is before it, so all requests share the limit: " +
				"write the limit below this descriptor, under a key of its own such as 'lease'"},
		{"a misspelled concurrency", limit("algorithm: concurency, concurrent_requests: 5"),
			"4:29: unknown algorithm 'concurency': did you mean 'concurrency'?"},
		{"a misspelled algorithm beside concurrent_requests", limit("algoritm: concurrency, concurrent_requests: 5"),
			"4:18: unknown key 'algoritm' in a rate_limit: did you mean 'algorithm'?"},
		{"a prefix as a value", descriptor("value: 10.0.0.0/8"),
			"warning 3:24: the value '10.0.0.0/8' is compared as text, and matches no address of this prefix: write 'cidr: [10.0.0.0/8]'"},
		{"a prefix among values", descriptor("values: [bot, '2001:db8::/32']"),
			"warning 3:31: the value '2001:db8::/32' is compared as text, and matches no address of this prefix: write 'cidr: [2001:db8::/32]'"},

		{"minutes", limit("unit: minutes, requests_per_unit: 1"), "4:24: invalid rate limit unit 'minutes': write 'unit: minute'"},
		{"10s", limit("unit: 10s, requests_per_unit: 1"),
			"4:24: invalid rate limit unit '10s': write 'unit: second' and 'unit_multiplier: 10'"},
		{"15 minutes", limit("unit: 15 minutes, requests_per_unit: 1"),
			"4:24: invalid rate limit unit '15 minutes': write 'unit: minute' and 'unit_multiplier: 15'"},
		{"hourly", limit("unit: hourly, requests_per_unit: 1"), "4:24: invalid rate limit unit 'hourly': write 'unit: hour'"},
		{"a misspelled unit", limit("unit: secnd, requests_per_unit: 1"), "4:24: invalid rate limit unit 'secnd': write 'unit: second'"},
		{"an unknown unit", limit("unit: decade, requests_per_unit: 1"),
			"4:24: invalid rate limit unit 'decade': want one of second, minute, hour, day, week, month, year"},

		{"a zone in lower case", limit(day + ", window_start: calendar, time_zone: europe/berlin"),
			"4:86: unknown time_zone 'europe/berlin': did you mean 'Europe/Berlin'?"},
		{"a misspelled zone", limit(day + ", window_start: calendar, time_zone: America/New_Yrok"),
			"4:86: unknown time_zone 'America/New_Yrok': did you mean 'America/New_York'?"},
		{"a zone without its continent", limit(day + ", window_start: calendar, time_zone: Berlin"),
			"4:86: unknown time_zone 'Berlin': did you mean 'Europe/Berlin'?"},
		{"a zone by its offset", limit(day + ", window_start: calendar, time_zone: UTC+02:00"),
			"4:86: unknown time_zone 'UTC+02:00': want a name of the IANA time zone database, such as Europe/Berlin"},
		{"the zone of the system", limit(day + ", window_start: calendar, time_zone: Local"),
			"4:86: unknown time_zone 'Local': want a name of the IANA time zone database, such as Europe/Berlin"},
		{"a zone that is a number", limit(day + ", window_start: calendar, time_zone: 2"),
			"4:86: 'time_zone' is 2: want the name of a time zone, such as Europe/Berlin"},
		{"a zone without a calendar", limit(day + ", time_zone: Europe/Berlin"),
			"4:17: 'time_zone' has no meaning without a calendar: remove it, or set 'window_start: calendar'"},
		{"a calendar of hours", limit("unit: hour, requests_per_unit: 1, window_start: calendar"),
			"4:17: a calendar window is too short with the unit hour: set 'unit' to day, week, month or year, or remove 'window_start'"},
		{"a key of the core alone", limit(day + ", calendar_unit: day"),
			"4:51: unknown key 'calendar_unit' in a rate_limit: want one of unit, requests_per_unit, name, unit_multiplier, concurrent_requests, unlimited, replaces, " +
				"algorithm, window_start, time_zone, peek, penalty, reserve, capacity, lease_ttl, count_denied, on_store_error, on_deny"},
		{"a calendar of a log", limit(day + ", algorithm: sliding_log, window_start: calendar"),
			"4:75: 'window_start' has no meaning for the algorithm sliding_log: remove it, or set 'algorithm: fixed_window'"},
		{"a misspelled peek", limit(day + ", peek: would-fit"), "4:57: unknown peek 'would-fit': did you mean 'would_fit'?"},
		{"a peek that is never denied", limit(day + ", algorithm: sliding_log, peek: over"),
			"warning 4:17: a peek is never denied: 'peek' is over, and denied hits of a sliding_log do not count: set 'count_denied: true' or 'peek: would_fit'"},
		{"token_bucket", limit(day + ", algorithm: token_bucket"), "4:62: unknown algorithm 'token_bucket': write 'funnel'"},
		{"a misspelled algorithm", limit(day + ", algorithm: sliding-log"),
			"4:62: unknown algorithm 'sliding-log': did you mean 'sliding_log'?"},

		{"a negative number", limit("unit: day, requests_per_unit: -5"),
			"4:48: 'requests_per_unit' is -5: want a whole number from 0 to 4503599627370495"},
		{"a tag without a value", limit("unit: day, requests_per_unit: !a "),
			"4:48: 'requests_per_unit' is a value with the tag !a: want a whole number from 0 to 4503599627370495"},
		{"a tag in place of the file", "!a\n",
			"1:1: the file is a value with the tag !a, not a map: begin with 'domain: <name>' and 'descriptors:'"},
		{"a quoted number", limit(`unit: day, requests_per_unit: "5"`),
			"4:48: 'requests_per_unit' is the text '5': remove the quotes: 'requests_per_unit: 5'"},
		{"a list under rate_limit", "domain: d\ndescriptors:\n  - key: user\n    rate_limit:\n      - {" + day + "}\n",
			"5:7: 'rate_limit' is a list: use 'rate_limits' for several limits"},
		{"a map under descriptors", "domain: d\ndescriptors:\n  key: user\n  rate_limit: {" + day + "}\n",
			"3:3: 'descriptors' is a map, not a list: begin each item with '- '"},
		{"no requests_per_unit", limit("unit: day"),
			"warning 4:17: 'requests_per_unit' is missing, so the limit is 0 and denies every request: set it"},
		{"a second document", "domain: d\n---\ndomain: e\n",
			"warning 2:1: only the first YAML document of a file is read, and this one is not: put each document in a file of its own"},
		{"a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rules}\ndata:\n  rules.yaml: |\n    domain: d\n",
			"1:1: this is a Kubernetes manifest of the kind ConfigMap, not a rules file: put the text of the key under data in a file of its own"},
		{"a Deployment", "apiVersion: apps/v1\nkind: Deployment\n",
			"1:1: this is a Kubernetes manifest of the kind Deployment, not a rules file: want a file that begins with 'domain: <name>'"},

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
		{"YAML 1.2", "%YAML 1.2\n---\ndomain: d\n", "1:1: Weir does not know the directive '%YAML 1.2': remove this line"},
		{"value: *", "domain: d\ndescriptors:\n  - key: user\n    value: *\n", "4:12: a value cannot begin with '*': quote it: '*'"},
		{"a wildcard after wide characters", "domain: d\ndescriptors:\n  - {key: 日本, value: * }\n", "3:22: a value cannot begin with '*': quote it: '* }'"},
		{"value: @me", "domain: d\ndescriptors:\n  - key: user\n    value: @me\n", "4:12: a value cannot begin with '@': quote it: '@me'"},
		{"value: *.css", "domain: d\ndescriptors:\n  - key: user\n    value: *.css\n",
			"4:12: a value cannot begin with '*': quote it: '*.css'"},
		{"value: *css", "domain: d\ndescriptors:\n  - key: user\n    value: *css\n",
			"4:12: the alias '*css' has no anchor '&css': quote it if it is text: '*css'"},
		{"two colons", "domain: d\ndescriptors:\n  - key: user: admin\n", "3:3: a value contains ': ': quote the value, or begin a new line"},
		{"no colon", "domain: d\ndescriptors\n", "2:1: this line has no ': ': write 'key: value'"},
		{"no space after a colon", "domain: d\ndescriptors:\n  - key:user\n",
			"3:5: an item of 'descriptors' is the text 'key:user', not a map: write a space after ':'"},
		{"no space in braces", limit("unit:day, requests_per_unit: 1"),
			"4:18: unknown key 'unit:day' in a rate_limit: write a space after ':'"},
		{"an item without its dash", "domain: d\ndescriptors:\n  - key: user\n  value: x\n",
			"4:3: the indentation does not fit the lines above: align the line with the keys or the '-' of its level"},
		{"an indented top key", "domain: d\n descriptors: []\n",
			"2:2: the indentation does not fit the lines above: align the line with the keys or the '-' of its level"},
		{"Windows line ends", "domain: d\r\ndescriptors:\r\n\t- key: user\r\n", "3:1: a tab indents this line: use spaces"},
		{"not UTF-8", "domain: d\ndescriptors:\n  - key: caf\xe9\n", "3:13: this is not UTF-8 text: save the file as UTF-8"},

		{"an empty list of values", descriptor("values: []"), "3:25: 'values' is empty: add a value"},
		{"values without a value", descriptor("values: ~"), "3:25: 'values' is empty: add a value"},
		{"values that are not a list", descriptor("values: free"), "3:25: 'values' is the text 'free', not a list: write 'values: [free]'"},
		{"values that are a map", descriptor("values: {a: b}"), "3:25: 'values' is a map, not a list: begin each item with '- '"},
		{"an empty value in a list", descriptor("values: [a, '']"), "3:29: an item of 'values' is empty: write a value, or remove the item"},
		{"a number in a list of values", descriptor("values: [1, 1.5]"),
			"3:29: an item of 'values' is the number 1.5, not a text: quote it: '1.5'"},
		{"a map in a list of values", descriptor("values: [{a: b}]"), "3:26: an item of 'values' is a map, not a text: want a text"},
		{"a wildcard in a list of values", descriptor("values: ['a*']"),
			"3:26: the item 'a*' of 'values' has a '*', and values are compared as they are: write 'value: \"a*\"' in a descriptor of its own"},
		{"a value twice in a list", descriptor("values: [a, b, a]"),
			"3:32: duplicate descriptor composite key 'd.user_a': line 3 has it too: remove one"},
		{"a value in two lists", descriptor("values: [a, b]") + "  - {key: user, values: [c, b]}\n",
			"4:29: duplicate descriptor composite key 'd.user_b': line 3 has it too: remove one"},
		{"a listed value beside the value", descriptor("values: [a, b]") + "  - {key: user, value: a}\n",
			"4:6: duplicate descriptor composite key 'd.user_a': line 3 has it too: merge them"},
		{"value and values", descriptor("value: a, values: [b]"),
			"3:27: 'value' and 'values' are both given: keep one, or write a descriptor for each"},
		{"values and cidr", descriptor("values: [b], cidr: [10.0.0.0/8]"),
			"3:30: 'values' and 'cidr' are both given: keep one, or write a descriptor for each"},
		{"values of a wildcard", "domain: d\ndescriptors:\n  - {key: 'user*', values: [a], rate_limit: {" + day + "}}\n",
			"3:11: a key with a '*' cannot have 'values': write a descriptor for each key"},
		{"value for values", descriptor("value: [a, b]"), "3:24: 'value' is a list, not a text: write 'values' for a list"},
		{"cidr in a rate_limit", limit(day + ", cidr: [10.0.0.0/8]"),
			"4:51: key 'cidr' does not belong in a rate_limit: move it into a descriptor"},
		{"share_threshold of one value", descriptor("value: a, share_threshold: true"),
			"3:27: share_threshold can only be used with wildcard values (containing '*'), but found key 'user_a': " +
				"remove it, or write a '*' in the value, or use 'values' or 'cidr'"},

		{"an IPv6 prefix that needs quotes", descriptor("cidr: [10.0.0.0/8, ::/0]"), "3:36: a value cannot begin with ':': quote it: '::/0'"},
		{"an empty list of prefixes", descriptor("cidr: []"), "3:23: 'cidr' is empty: add a prefix"},
		{"a prefix that is not a list", descriptor("cidr: 10.0.0.0/8"),
			"3:23: 'cidr' is the text '10.0.0.0/8', not a list: write 'cidr: [10.0.0.0/8]'"},
		{"an address for a prefix", descriptor("cidr: [10.0.0.1]"), "3:24: the address 10.0.0.1 has no prefix length: write '10.0.0.1/32'"},
		{"an IPv6 address for a prefix", descriptor("cidr: ['2001:DB8::1']"),
			"3:24: the address 2001:DB8::1 has no prefix length: write '2001:db8::1/128'"},
		{"host bits", descriptor("cidr: [10.1.2.3/8]"),
			"3:24: the prefix 10.1.2.3/8 has address bits beyond its length: write '10.0.0.0/8' for the network, or '10.1.2.3/32' for the address"},
		{"host bits of an IPv4-mapped prefix", descriptor("cidr: ['::ffff:10.1.2.3/104']"),
			"3:24: the prefix ::ffff:10.1.2.3/104 has address bits beyond its length: write '10.0.0.0/8' for the network, or '10.1.2.3/32' for the address"},
		{"a prefix that is too long", descriptor("cidr: [10.0.0.0/33]"), notPrefix("3:24", "the text '10.0.0.0/33'")},
		{"a prefix with a zero before its length", descriptor("cidr: [10.0.0.0/08]"), notPrefix("3:24", "the text '10.0.0.0/08'")},
		{"a range for a prefix", descriptor("cidr: [10.0.0.0-10.0.0.255]"), notPrefix("3:24", "the text '10.0.0.0-10.0.0.255'")},
		{"a prefix with a zone", descriptor("cidr: ['fe80::%eth0/10']"), notPrefix("3:24", "the text 'fe80::%eth0/10'")},
		{"a number for a prefix", descriptor("cidr: [10]"), notPrefix("3:24", "10")},
		{"a list for a prefix", descriptor("cidr: [[10.0.0.0/8]]"), notPrefix("3:24", "a list")},
		{"an empty prefix", descriptor("cidr: [~]"), notPrefix("3:24", "empty")},
		{"a prefix twice in a list", descriptor("cidr: [10.0.0.0/8, 10.0.0.0/8]"),
			"3:36: duplicate descriptor composite key 'd.user_10.0.0.0/8': line 3 has it too: remove one"},
		{"a prefix in two lists", descriptor("cidr: [10.0.0.0/8]") + "  - {key: user, cidr: ['::ffff:10.0.0.0/104']}\n",
			"4:24: duplicate descriptor composite key 'd.user_10.0.0.0/8': line 3 has it too: remove one"},
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

// A mistake in a large file is found in bounded time. The reported line is the right line, or near
// it.
func TestErrorLineInLargeFile(t *testing.T) {
	const good = "  - {key: user, value: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	for _, lines := range []int{100, 500, 8_000} {
		text := "domain: d\ndescriptors:\n" + strings.Repeat(good, lines) + "   - key: x\n" + strings.Repeat(good, lines)
		_, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: []byte(text)})
		var faults rulesfile.Faults
		if !errors.As(err, &faults) || len(faults) != 1 {
			t.Fatalf("%d lines: %v", lines, err)
		}
		if want := lines + 3; lines < 8_000 && faults[0].Line != want {
			t.Errorf("%d lines: line %d, want %d", lines, faults[0].Line, want)
		}
	}
}

func TestObjectReportsEachMissingKey(t *testing.T) {
	_, err := rulesfile.Parse(files("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, penalty: {factor: 2}}}]\n")...)
	golden(t, err, "a.yaml:2:70: 'penalty' needs 'after': set 'after': the number of denied requests that begins a penalty\n"+
		"a.yaml:2:70: 'penalty' needs 'for': set 'for': the length of the first penalty\n"+
		"a.yaml:2:70: 'penalty' needs 'within': set 'within': the window in which denied requests are counted, from the first of them")
}
