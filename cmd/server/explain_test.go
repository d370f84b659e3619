package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// The commands of docs/explain.md print what the page shows. The flag -update writes their output.
func TestExplainPageShowsTheOutput(t *testing.T) { testPage(t, "explain.md", 0, 1, 0) }

func TestExplainCommandExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	good, bad, two := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "two")
	write(t, good, "domain: shop\ndescriptors: [{key: user_id, value: 'a,b', rate_limit: {unit: month, requests_per_unit: 5}}, {key: free, rate_limit: {unlimited: true}}]\n")
	write(t, bad, faultyRules)
	must.Succeed(t, os.Mkdir(two, 0o755))
	write(t, filepath.Join(two, "shop.yaml"), "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	write(t, filepath.Join(two, "more.yaml"), "domain: more\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	overlay, sent, empty := filepath.Join(dir, "overlay.yaml"), filepath.Join(dir, "request.json"), filepath.Join(dir, "empty")
	write(t, overlay, "domain: shop\ndescriptors: [{key: user_id, value: '*', rate_limit: {algorithm: funnel}}]\n")
	write(t, sent, `{"domain": "shop", "descriptors": [{"entries": [{"key": "user_id", "value": "a,b"}], "limit": {"requests_per_unit": 7, "unit": "HOUR"}}]}`)
	must.Succeed(t, os.Mkdir(empty, 0o755))
	for _, c := range []commandTest{
		{`explain --config ` + good + ` user_id=a\,b free=1`, 0, []string{"LIMIT 5 per month", "UNLIMITED"}, nil},
		{`explain --config ` + good + ` --domain shop user_id=a\,b user_id=c`, 1, []string{"LIMIT 5 per month", "NO LIMIT"}, nil},
		{`explain --config ` + good + ` --domain shpo free=1`, 1, []string{"did you mean shop?"}, nil},
		{`explain --config ` + good + ` --overlay ` + overlay + ` user_id=a\,b`, 0, []string{"funnel", overlay + ":2\n"}, nil},
		{`explain --config ` + good + ` --use-calendar-month-rate-limit -o json user_id=a\,b`, 0, []string{`"window_start": "calendar"`, `"rules_version": "`}, nil},
		{`explain --config ` + good + ` --request ` + sent, 0, []string{"7 per hour", "from the request"}, nil},
		{`explain --config ` + two + ` --domain more b=1`, 0, []string{"LIMIT 1 per day"}, nil},
		{`explain --config ` + two + ` b=1`, 2, nil, []string{"the rules have several domains: set --domain"}},
		{`explain --config ` + good + ` --domain more --request ` + sent, 2, nil, []string{`the request has the domain "shop", and --domain is "more"`}},
		{`explain --config ` + bad + ` a=1`, 2, nil, []string{bad + ":1:9: config file cannot have empty domain", bad + ":5:5: "}},
		{`explain --config ` + filepath.Join(dir, "none") + ` a=1`, 2, nil, []string{"none: no such file"}},
		{`explain --config ` + empty + ` a=1`, 2, nil, []string{"no rules file"}},
		{`explain --config ` + good + ` --overlay ` + bad + ` a=1`, 2, nil, []string{bad + ":"}},
		{`explain --config ` + good + ` --request ` + filepath.Join(dir, "none"), 2, nil, []string{"none: no such file"}},
		{`explain --config ` + good + ` --request ` + good, 2, nil, []string{good + ": not a RateLimitRequest: syntax error (line 1:1): "}},
		{`explain --config ` + good + ` a`, 2, nil, []string{`descriptor "a": entry 1, "a", has no '=': want key=value`}},
		{`explain --config ` + good + ` ` + strings.Repeat("a=1 ", 101), 2, nil, []string{"too many descriptors: want at most 100"}},
		{`explain --config ` + good, 2, nil, []string{"explain needs a descriptor, for example: weir explain"}},
		{`explain a=1`, 2, nil, []string{"explain needs --config with the rules, or --live"}},
		{`explain --config ` + good + ` --request ` + sent + ` a=1`, 2, nil, []string{"--request cannot be used with descriptors"}},
		{`explain --config ` + good + ` --live http://h a=1`, 2, nil, []string{"--config cannot be used with --live"}},
		{`explain --config - --request -`, 2, nil, []string{"cannot both be standard input"}},
		{`explain --config ` + good + ` -o yaml a=1`, 2, nil, []string{"--output"}},
		{`explain --live ftp://h --domain d a=1`, 2, nil, []string{`--live: "ftp://h" is not the URL of an admin API`}},
	} {
		c.test(t)
	}
}

func TestExplainEnvoyCommand(t *testing.T) {
	dir := t.TempDir()
	rules, envoy, bad := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "bad.yaml")
	write(t, rules, "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 9}}, {key: plan, rate_limit: {unit: day, requests_per_unit: 9}}]\n")
	write(t, envoy, `domains: ["*"]
name: v
typed_per_filter_config:
  envoy.filters.http.ratelimit:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
    rate_limits:
      - {actions: [{request_headers: {header_name: x-user, descriptor_key: user_id}}], hits_addend: {number: 0}}
      - {actions: [{metadata: {descriptor_key: plan, metadata_key: {key: app, path: [{key: plan}]}}}], apply_on_stream_done: true, limit: {rate_limit: {requests_per_unit: 7, unit: HOUR}}}
routes:
  - {match: {prefix: /own}, route: {cluster: c, rate_limits: [{actions: [{generic_key: {descriptor_value: a}}], hits_addend: {number: 2}}]}}
  - {match: {prefix: /}, direct_response: {status: 200}}
`)
	write(t, bad, "match: {prefix: /}\nroute: {cluster: c, rate_limits: [{actions: [{foo: {}}]}]}\n")
	explain := "explain --config " + rules + " --envoy " + envoy + " "
	for _, c := range []commandTest{
		{explain + "--path /own --header X-User:42", 0, []string{
			envoy + ":10 (virtual", envoy + ":7: descriptor", "LIMIT 9 per day", envoy + ":8: no descriptor", "app:plan", "because RateLimitPerRoute",
		}, nil},
		{explain + "--path /own --header X-User:a\xff", 0, []string{"user_id=a\uFFFDff: matched"}, nil},
		{explain + "--path /own --metadata app:plan=gold", 0, []string{"plan=gold,", "at the end of the stream", "7 per hour", "no header x-user"}, nil},
		{explain + "--path /own --metadata app:plan=gold -o json", 0, []string{`"rate_limits": [`, `"at_end": true`, `"skipped": true`, `"ignored": []`}, nil},
		{explain + "--path /own", 1, []string{"Envoy sends no descriptor"}, nil},
		{explain + "--header x-user:42", 1, []string{"a route that answers by itself"}, nil},
		{explain + "--path own", 2, nil, []string{`--path "own": want a path that begins with /`}},
		{explain + "--header :path", 2, nil, []string{`--header ":path": want 'name: value'`}},
		{explain + "--metadata plan=gold", 2, nil, []string{"write namespace:key.path=value"}},
		{explain + "--remote-address a", 2, nil, []string{`--remote-address "a": want an IP address`}},
		{explain + "user_id=42", 2, nil, []string{"--envoy cannot be used with descriptors"}},
		{"explain --config " + rules + " --path / user_id=42", 2, nil, []string{"need --envoy"}},
		{"explain --live http://h --envoy " + envoy, 2, nil, []string{"--envoy cannot be used with --live"}},
		{"explain --config " + rules + " --envoy " + rules, 2, nil, []string{rules + ":1: neither a bootstrap"}},
		{"explain --config " + rules + " --envoy " + bad, 2, nil, []string{"action 1 of rate_limits: " + bad + ":2: ", `unknown field "foo"`}},
		{"explain --config " + rules + " --envoy " + filepath.Join(dir, "none"), 2, nil, []string{"no such file"}},
	} {
		c.test(t)
	}
}

func TestExplainHashesKeysUnderASecret(t *testing.T) {
	t.Setenv("KEY_HASH_SECRET", "0123456789abcdef")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "r.yaml"), "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 5}}]\n")
	_, out := runWeir("explain", "--config", dir, "-o", "json", "user_id=42")
	key := regexp.MustCompile(`"key": "([^"]*)",\s*"key_hash": "([^"]*)"`).FindStringSubmatch(out)
	if len(key) < 3 || key[1] != key[2] || !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(key[1]) {
		t.Errorf("key %q in\n%s", key, out)
	}
}

// A running server explains as weir explain does with its rules, and adds what the store holds.
func TestExplainLiveEqualsExplain(t *testing.T) {
	t.Parallel()
	rules, token := rulesFile(t), tokenFile(t)
	s := startServer(t, "CONFIG_PATH="+rules, "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+token)
	s.remaining("alice")
	request := []string{"user_id=alice", "nothing=1"} // both use the only domain of the rules
	code, want := runWeir(append([]string{"explain", "--config", rules}, request...)...)
	liveCode, got := runWeir(append([]string{"explain", "--live", "http://" + s.address("admin"), "--token-file", token}, request...)...)
	state := regexp.MustCompile(`(?m)^    now  used 1, remaining \d+, retry after .*\n`)
	if !state.MatchString(got) {
		t.Errorf("no state of the key in\n%s", got)
	}
	if state.ReplaceAllString(got, "") != want || code != liveCode {
		t.Errorf("exit code %d, live\n%s\nexit code %d, without a server\n%s", liveCode, got, code, want)
	}
	s.stop()
}
