package rulesfile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/randomrules"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// lint returns the warnings about rules.yaml without its name, each with its id.
func lint(t *testing.T, o rulesfile.Options, text string) (all []string) {
	t.Helper()
	_, warnings, err := rulesfile.ParseWith(o, rulesfile.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, text)
	}
	for _, w := range warnings {
		all = append(all, strings.TrimPrefix(w.String(), "rules.yaml:")+" ["+w.ID+"]")
	}
	return all
}

func wantLint(t *testing.T, o rulesfile.Options, text string, want ...string) {
	t.Helper()
	if got := lint(t, o, text); !slices.Equal(got, want) {
		t.Errorf("%s\ngot\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Three mistakes that load, and then admit requests without limit.
func TestLintFindsRulesThatFailOpen(t *testing.T) {
	wantLint(t, rulesfile.Options{}, `domain: traps
descriptors:
  - key: user_id
    value: bigco
    descriptors:
      - key: action
        value: reply
        rate_limit: {unit: minute, requests_per_unit: 1000}
  - key: user_id
    descriptors:
      - key: action
        value: reply
        rate_limit: {unit: minute, requests_per_unit: 10}
      - key: action
        value: login
        rate_limit: {unit: minute, requests_per_unit: 5}
`, "3:5: 'user_id: bigco' hides the rule on line 9, which limits 'action: login' on line 14: below this rule, these requests have no limit: "+
		"repeat 'action: login' below this rule [hidden-branch]")
	wantLint(t, rulesfile.Options{}, `domain: traps
descriptors:
  - key: path
    value: "*"
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: path
    value: /login*
    rate_limit: {unit: minute, requests_per_unit: 1}
`, "6:5: unreachable, shadowed by line 3: 'path: *' comes first and matches everything that this rule matches: "+
		"move this rule before line 3 [unreachable-rule]")
	wantLint(t, rulesfile.Options{}, `domain: traps
descriptors:
  - key: path
    value: "^/api/.*"
    rate_limit: {unit: minute, requests_per_unit: 10}
`, `4:12: the value '^/api/.*' looks like a regular expression, but only '*' has a meaning in it: write value: "/api/*" [regex-value]`)
}

// rulesOf returns a file with these descriptors, one to a line from line 3. The text L is a limit.
func rulesOf(lines ...string) string {
	text := "domain: d\ndescriptors:\n" + strings.Join(lines, "\n") + "\n"
	return strings.NewReplacer("L}", "rate_limit: {unit: day, requests_per_unit: 1}}").Replace(text)
}

func TestLintFindsHiddenBranches(t *testing.T) {
	hidden := func(at int, what string, general int, limit, remedy string, line int) string {
		return fmt.Sprintf("%d:6: %s hides the rule on line %d, which limits %s on line %d: below this rule, these requests have no limit: "+
			"repeat %s below this rule", at, what, general, limit, line, remedy)
	}
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"an exact value hides a wildcard", []string{
			"  - {key: u, value: ab, descriptors: [{key: a, value: x, L}]}",
			"  - {key: u, value: a*, descriptors: [{key: a, value: y, L}]}",
		}, []string{hidden(3, "'u: ab'", 4, "'a: y'", "'a: y'", 4) + " [hidden-branch]"}},
		{"a list hides the key alone", []string{
			"  - {key: u, values: [a, b], descriptors: [{key: a, value: x, L}]}",
			"  - {key: u, descriptors: [{key: a, L}]}",
		}, []string{hidden(3, "'u: [a, b]'", 4, "'a'", "'a'", 4) + " [hidden-branch]"}},
		{"a wildcard hides a later one", []string{
			"  - {key: u, value: ab*, descriptors: [{key: a, value: x, L}]}",
			"  - {key: u, value: a*, descriptors: [{key: a, value: x*, L}]}",
		}, []string{hidden(3, "'u: ab*'", 4, "'a: x*'", "'a: x*'", 4) + " [hidden-branch]"}},
		{"an address hides a prefix", []string{
			"  - {key: u, value: 10.1.1.1, descriptors: [{key: a, value: x, L}]}",
			"  - {key: u, cidr: [10.0.0.0/8], descriptors: [{key: a, values: [x, y], L}]}",
		}, []string{hidden(3, "'u: 10.1.1.1'", 4, "'a: [x, y]'", "'a: [x, y]'", 4) + " [hidden-branch]"}},
		{"an address in no prefix hides a wildcard", []string{
			"  - {key: u, value: 10.1.1.1, descriptors: [{key: a, value: x, L}]}",
			"  - {key: u, value: 10.*, descriptors: [{key: a, value: y, L}]}",
			"  - {key: u, cidr: [192.168.0.0/16], descriptors: [{key: a, L}]}",
		}, []string{hidden(3, "'u: 10.1.1.1'", 4, "'a: y'", "'a: y'", 4) + " [hidden-branch]"}},
		{"a prefix hides a shorter one", []string{
			"  - {key: u, cidr: [10.1.0.0/16], descriptors: [{key: a, value: x, L}]}",
			"  - {key: u, cidr: [10.0.0.0/8], descriptors: [{key: b, L}]}",
		}, []string{hidden(3, "'u: [10.1.0.0/16]'", 4, "'b'", "'b'", 4) + " [overlapping-cidr]"}},
		{"a limit at the second level below", []string{
			"  - {key: u, value: b, descriptors: [{key: a, descriptors: [{key: p, L}]}]}",
			"  - {key: u, descriptors: [{key: a, descriptors: [{key: q, L}]}]}",
		}, []string{hidden(3, "'u: b'", 4, "'a', 'q'", "'a', 'q'", 4) + " [hidden-branch]"}},
		{"a branch without the limit itself", []string{
			"  - {key: u, value: b, descriptors: [{key: a, descriptors: [{key: p, L}]}]}",
			"  - {key: u, descriptors: [{key: a, descriptors: [{key: p, L}], L}]}",
		}, []string{hidden(3, "'u: b'", 4, "'a'", "'a'", 4) + " [hidden-branch]"}},

		{"a wildcard that reads like an address with a zone", []string{
			"  - {key: u, value: 'fe80::1%*', descriptors: [{key: a, L}]}",
			"  - {key: u, cidr: ['fe80::/10'], descriptors: [{key: b, L}]}",
		}, nil},
		{"the same branches", []string{
			"  - {key: u, value: b, descriptors: [{key: a, value: x, L}, {key: a, value: y, L}]}",
			"  - {key: u, descriptors: [{key: a, value: x, L}, {key: a, value: y, L}]}",
		}, nil},
		{"a key alone in place of values", []string{
			"  - {key: u, value: b, descriptors: [{key: a, L}]}",
			"  - {key: u, descriptors: [{key: a, value: x, L}, {key: a, values: [y, z], L}, {key: a, value: p*, L}, {key: a, cidr: [10.0.0.0/8], L}]}",
		}, nil},
		{"an exemption", []string{
			"  - {key: u, value: b}",
			"  - {key: u, descriptors: [{key: a, L}]}",
		}, nil},
		{"a limit without descriptors", []string{
			"  - {key: u, value: b, L}",
			"  - {key: u, descriptors: [{key: a, L}]}",
		}, []string{hidden(3, "'u: b'", 4, "'a'", "'a'", 4) + " [hidden-branch]"}},
		{"a wildcard with a limit and without descriptors", []string{
			"  - {key: p, value: '/login*', L}",
			"  - {key: p, value: '*', descriptors: [{key: ip, L}]}",
		}, []string{hidden(3, "'p: /login*'", 4, "'ip'", "'ip'", 4) + " [hidden-branch]"}},
		{"a limit without descriptors in place of a limit with some", []string{
			"  - {key: u, value: b, L}",
			"  - {key: u, descriptors: [{key: a, L}], L}",
		}, nil},
		{"a limit without descriptors at the second level", []string{
			"  - {key: u, value: b, descriptors: [{key: a, L}]}",
			"  - {key: u, descriptors: [{key: a, descriptors: [{key: p, L}]}]}",
		}, []string{hidden(3, "'u: b'", 4, "'a', 'p'", "'a', 'p'", 4) + " [hidden-branch]"}},
		{"an unlimited rule", []string{
			"  - {key: u, value: b, rate_limit: {unlimited: true}}",
			"  - {key: u, descriptors: [{key: a, L}]}",
		}, nil},
		{"an unlimited rule at the second level", []string{
			"  - {key: u, value: b, descriptors: [{key: a, rate_limit: {unlimited: true}}]}",
			"  - {key: u, descriptors: [{key: a, descriptors: [{key: p, L}]}]}",
		}, nil},
		{"a general branch without limits", []string{
			"  - {key: u, value: b, descriptors: [{key: a, L}]}",
			"  - {key: u, descriptors: [{key: c, rate_limit: {unlimited: true}}]}",
		}, nil},
		{"an exemption below the general branch", []string{
			"  - {key: u, value: b, descriptors: [{key: a, L}]}",
			"  - {key: u, descriptors: [{key: a, L}, {key: c, rate_limit: {unlimited: true}}]}",
		}, nil},
		{"another key", []string{
			"  - {key: u, value: b, descriptors: [{key: a, L}]}",
			"  - {key: v, descriptors: [{key: c, L}]}",
		}, nil},
		{"an address outside the prefix", []string{
			"  - {key: u, value: 11.1.1.1, descriptors: [{key: a, L}]}",
			"  - {key: u, cidr: [10.0.0.0/8], descriptors: [{key: b, L}]}",
		}, nil},
		{"nested prefixes with the same branches", []string{
			"  - {key: u, cidr: [10.1.0.0/16], descriptors: [{key: a, L}]}",
			"  - {key: u, cidr: [10.0.0.0/8], descriptors: [{key: a, L}]}",
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { wantLint(t, rulesfile.Options{}, rulesOf(tt.lines...), tt.want...) })
	}
}

func TestLintFindsUnreachableRules(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string // beginnings
	}{
		{"a wildcard behind an equal one of another key", []string{"  - {key: 'u*', L}", "  - {key: 'us*', value: 'a*', L}"},
			[]string{"4:6: unreachable, shadowed by line 3: 'u*' comes first"}},
		{"a key alone beside a wildcard for every value", []string{"  - {key: u, L}", "  - {key: u, value: '*', L}"},
			[]string{"3:6: unreachable, shadowed by line 4: 'u: *' matches every value"}},
		{"a wildcard between two stars", []string{"  - {key: u, value: '*a*b*', L}", "  - {key: u, value: 'xa*yb', L}"},
			[]string{"4:6: unreachable, shadowed by line 3: 'u: *a*b*' comes first"}},
		{"two halves of a prefix", []string{"  - {key: u, cidr: [10.0.0.0/8], L}", "  - {key: u, cidr: [10.0.0.0/9], L}", "  - {key: u, cidr: [10.128.0.0/9], L}"},
			[]string{"3:21: the prefix 10.0.0.0/8 can never match, because longer prefixes cover all its addresses: line 4, line 5"}},

		{"the longer wildcard first", []string{"  - {key: u, value: '/login*', L}", "  - {key: u, value: '*', L}"}, nil},
		{"wildcards that overlap", []string{"  - {key: u, value: 'a*', L}", "  - {key: u, value: '*b', L}"}, nil},
		{"a wildcard that needs more characters", []string{"  - {key: u, value: 'ab*ba', L}", "  - {key: u, value: 'ab*a', L}"}, nil},
		{"an exact value behind a wildcard", []string{"  - {key: u, value: '*', L}", "  - {key: u, value: a, L}"}, nil},
		{"a wildcard at another level", []string{"  - {key: u, value: '*', descriptors: [{key: u, L}]}"}, nil},
		{"half of a prefix", []string{"  - {key: u, cidr: [10.0.0.0/8], L}", "  - {key: u, cidr: [10.0.0.0/9, 10.128.0.0/10], L}"}, nil},
		{"a list that repeats itself", []string{"  - {key: u, cidr: [10.0.0.0/8, 10.0.0.0/9, 10.128.0.0/9], L}"}, nil},
		{"a prefix of one address", []string{"  - {key: u, cidr: [10.0.0.1/32, 10.0.0.0/32], L}"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := lint(t, rulesfile.Options{}, rulesOf(tt.lines...))
			if len(got) != len(tt.want) || len(got) == 1 && !strings.HasPrefix(got[0], tt.want[0]) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The linter has the order of precedence of [descriptors.Domain.Match]: no request selects a
// descriptor that the linter calls unreachable.
func TestUnreachableRulesNeverMatch(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	unreachable := 0
	for range 100 {
		made := randomrules.New(random)
		rules, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "r.yaml", Data: []byte(made.Text)})
		must.Succeed(t, err)
		lines := map[string]bool{}
		for _, w := range warnings {
			if w.ID == "unreachable-rule" {
				lines[fmt.Sprintf("r.yaml:%d", w.Line)] = true
			}
		}
		unreachable += len(lines)
		for range 100 {
			request := made.Entries()
			for _, step := range rules.Domain("d").Walker().Walk(request) {
				if lines[step.Source] {
					t.Fatalf("%v selects %s at %s, which is unreachable in\n%s", request, step.Node, step.Source, made.Text)
				}
			}
		}
	}
	if unreachable < 30 {
		t.Errorf("only %d unreachable rules", unreachable)
	}
}

func TestLintFindsTemplates(t *testing.T) {
	limit := "rate_limit: {unit: day, requests_per_unit: 1}"
	for _, tt := range []struct{ key, value, remedy string }{
		{"user_id", "%REQ(x-user-id)%", "remove the value"},
		{"user_id", "%DOWNSTREAM_REMOTE_ADDRESS%", "remove the value"},
		{"user_id", "%REQ(x-id):12%", "remove the value"},
		{"user_id", "${USER}", "write the value itself"},
		{"user_id", "{{ .Values.user }}", "write the value itself"},
		{"path", "/user/{id}", `write value: "/user/*"`},
		{":path", "/user/:id/mail", `write value: "/user/*/mail"`},
		{"Path", "/v1/{a}/{b}", `write value: "/v1/*/*"`},

		{"route", "/user/{id}", ""}, {"path", "/user/*", ""}, {"path", "/a:b", ""}, {"path", "/v1/projects/x:undelete", ""}, {"path", "/time/12:30", ""},
		{"user_id", "100%", ""}, {"user_id", "%41", ""}, {"user_id", "a$b", ""}, {"user_id", "%", ""}, {"user_id", "%%", ""},
	} {
		got := lint(t, rulesfile.Options{}, fmt.Sprintf("domain: d\ndescriptors:\n  - {key: %q, value: %q, %s}\n", tt.key, tt.value, limit))
		if len(got) > 1 || tt.remedy == "" && len(got) > 0 || tt.remedy != "" && (len(got) == 0 || !strings.Contains(got[0], tt.remedy) || !strings.HasSuffix(got[0], "[template-value]")) {
			t.Errorf("%s: %q: %q, want %q", tt.key, tt.value, got, tt.remedy)
		}
	}
}

func TestLintKnowsTheFormOfAddresses(t *testing.T) {
	for value, want := range map[string]string{
		"2001:DB8::1": "write '2001:db8::1', or 'cidr: [2001:db8::1/128]'", "2001:db8:0:0::1": "write '2001:db8::1'", "::FFFF:10.0.0.1": "write '::ffff:10.0.0.1'",
		"2001:db8::1": "", "10.0.0.1": "", "::1": "", "fe80::1%eth0": "", "10.0.0.01": "", "2001:DB8::g": "", "abc": "",
	} {
		got := lint(t, rulesfile.Options{}, fmt.Sprintf("domain: d\ndescriptors:\n  - {key: k, value: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", value))
		if len(got) > 1 || want == "" && len(got) > 0 || want != "" && (len(got) == 0 || !strings.Contains(got[0], want) || !strings.HasSuffix(got[0], "[address-form]")) {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

func TestLintFindsSpacesAroundTexts(t *testing.T) {
	for text, want := range map[string]string{
		"domain: 'd '\ndescriptors: [{key: k, L}]\n":                   "1:9: the domain \"d \" begins or ends with a space",
		"domain: d\ndescriptors: [{key: ' k', L}]\n":                   "2:16: the key \" k\" begins or ends with a space",
		"domain: d\ndescriptors: [{key: k, value: \"a\\u200b\", L}]\n": `2:31: the value "a\u200b" begins or ends with a space, which requests hardly have: write 'a'`,
		"domain: d\ndescriptors: [{key: k, values: [a, 'b\t'], L}]\n":  `2:36: the value "b\t" begins or ends with a space`,
		"domain: d\ndescriptors: [{key: k, value: 'a b', L}]\n":        "",
	} {
		got := lint(t, rulesfile.Options{}, strings.ReplaceAll(text, "L}", "rate_limit: {unit: day, requests_per_unit: 1}}"))
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLintFindsRegularExpressions(t *testing.T) {
	ids := func(value string) string {
		return strings.Join(lint(t, rulesfile.Options{}, "domain: d\ndescriptors:\n  - {key: k, value: '"+value+"', rate_limit: {unit: day, requests_per_unit: 1}}\n"), "\n")
	}
	for value, remedy := range map[string]string{
		"^/api/.*": `"/api/*"`, "^/api": `"/api*"`, "^/api$": `"/api"`, "/api/.*": `"/api/*"`, ".*": `"*"`, `.*\.css`: `"*.css"`, "/login$": `"/login"`,
		`/v\d+/x`: "a rule for each value", "[a-z]+": "a rule for each value", "(a|b)": "a rule for each value", "(?i)bot": "a rule for each value",
		"/user/[0-9]{4}": "a rule for each value", "a.+": `"a*"`, `\/api`: `"/api"`,
	} {
		if got := ids(value); !strings.Contains(got, "[regex-value]") || !strings.Contains(got, remedy) {
			t.Errorf("%s: %q, want the remedy %s", value, got, remedy)
		}
	}
	for _, value := range []string{
		"/api/*", "*", "*.css", "index.*", "/a.b/c", "US$", "$count", "C++", "[abc]", "(x)", "a|b", "a?b=c&d", "application/vnd.api+json", "{id}",
		`C:\temp`, "user@example.org", "1.2.3.4", "rule-0-match--1", "invert:10.0.0.0/8", "GET", "", "~", "#", "a^b",
	} {
		if got := ids(value); strings.Contains(got, "regex-value") {
			t.Errorf("value %s: got %s, want no warning regex-value", value, got)
		}
	}
}

// Envoy Gateway sets shadow_mode at each level above a limit, where it has no effect.
func TestLintFindsModifierAboveLimitsThatHaveIt(t *testing.T) {
	const text = "domain: d\ndescriptors:\n  - key: a\n    shadow_mode: true\n    descriptors:\n" +
		"      - {key: b, shadow_mode: true, descriptors: [{key: c, shadow_mode: true, rate_limit: &l {unit: day, requests_per_unit: 1}}]}\n"
	wantLint(t, rulesfile.Options{}, text)
	const said = ": 'shadow_mode' has no effect without a 'rate_limit' beside it: move it beside the 'rate_limit', descriptors do not inherit it [modifier-without-limit]"
	wantLint(t, rulesfile.Options{}, text+"      - {key: c, rate_limit: *l}\n", "4:5"+said)
}

func TestLintComparesKeysOfOneLevel(t *testing.T) {
	wantLint(t, rulesfile.Options{}, rulesOf("  - {key: user_id, L}", "  - {key: User-ID, L}", "  - {key: User-ID, value: a, L}", "  - {key: userid, L}",
		"  - {key: x, descriptors: [{key: USER_ID, L}]}", "  - {key: ns/a_b, L}", "  - {key: ns/a-b, L}"),
		"4:6: the key 'User-ID' differs from 'user_id' on line 3 only in case or in '-' and '_', and matches other requests: "+
			"write the key that Envoy sends in both rules [similar-key]")
}

func TestLintFindsZeroLimits(t *testing.T) {
	wantLint(t, rulesfile.Options{}, `domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: b, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - key: c
    rate_limits: [{unit: day, requests_per_unit: 0}, {unit: hour, requests_per_unit: 1}]
  - {key: d, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 0}}]}
`,
		"3:38: the limit is 0 and denies every request: write a number of at least 1, or '# weir:ignore zero-limit' [zero-limit]",
		"6:31: the limit is 0 and denies every request: write a number of at least 1, or '# weir:ignore zero-limit' [zero-limit]",
		"7:78: the limit is 0 and denies every request: write a number of at least 1, or '# weir:ignore zero-limit' [zero-limit]")
}

// YAML 1.1 reads a number with a leading 0 as octal, and YAML 1.2 as decimal.
func TestOctalNumbersAreReported(t *testing.T) {
	wantLint(t, rulesfile.Options{}, `domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 010}}
  - {key: b, rate_limit: {unit: minute, unit_multiplier: 0_17, requests_per_unit: 07}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 0o10}}
  - {key: e, rate_limit: {unit: minute, requests_per_unit: 1_000}}
  - {key: f, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 0x10}}]}
`,
		"3:60: the leading 0 makes 010 octal: Weir reads 8, as YAML 1.1 does, but YAML 1.2 reads 10: write 'requests_per_unit: 8' or 'requests_per_unit: 10' [octal-number]",
		"4:58: the leading 0 makes 0_17 octal: Weir reads 15, as YAML 1.1 does, but YAML 1.2 reads 17: write 'unit_multiplier: 15' or 'unit_multiplier: 17' [octal-number]")
}

func TestLintFindsCostsWithCountDenied(t *testing.T) {
	const text = `domain: d
descriptors:
  - key: tenant
    descriptors:
      - key: lease
        rate_limits:
          - {unit: day, requests_per_unit: 1000, reserve: {ttl: 2m}}
          - {unit: hour, requests_per_unit: 100%s}
`
	const said = ": this limit counts denied hits, and its hits are costs because of the 'reserve' beside it: one denied request can use up the limit: " +
		"set 'count_denied: false' [cost-counts-denied]"
	wantLint(t, rulesfile.Options{}, fmt.Sprintf(text, ", count_denied: true"), "8:50"+said)
	wantLint(t, rulesfile.Options{}, fmt.Sprintf(text, ""), "8:13"+said)
	wantLint(t, rulesfile.Options{}, fmt.Sprintf(text, ", count_denied: false"))
	wantLint(t, rulesfile.Options{}, fmt.Sprintf(text, ", algorithm: funnel"))
	wantLint(t, rulesfile.Options{}, strings.Replace(fmt.Sprintf(text, ""), ", reserve: {ttl: 2m}", "", 1))
}

func TestLintFindsLocalWithoutReplicas(t *testing.T) {
	const text = "domain: d\non_store_error: local\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: local}}\n"
	wantLint(t, rulesfile.Options{}, text)
	wantLint(t, rulesfile.Options{ReplicasUnknown: true}, text, "2:1: 'on_store_error: local' without a number of replicas: while Redis is down, "+
		"each replica admits the whole limit: set REPLICAS or REPLICAS_DNS of the server, and pass --replicas to weir check [local-without-replicas]")
	wantLint(t, rulesfile.Options{ReplicasUnknown: true}, strings.ReplaceAll(text, "local", "deny"))
	// If the check does not run, the comment is reported neither as unused nor as unknown.
	silent := strings.Replace(text, "local\n", "local # weir:ignore local-without-replicas\n", 1)
	wantLint(t, rulesfile.Options{}, silent)
	wantLint(t, rulesfile.Options{ReplicasUnknown: true}, silent)
}

func TestOverlayWarningsNameItsFile(t *testing.T) {
	overlay, err := rulesfile.ParseOverlay(rulesfile.File{Name: "overlay.yaml", Data: []byte(`domain: d
descriptors:
  - {key: a, rate_limit: {requests_per_unit: 0, on_store_error: local}}
  - {key: b, rate_limit: {algorithm: funnel}}
  - {key: c, rate_limit: {algorithm: funnel}} # weir:ignore overlay-without-effect
  - {key: a, value: x, rate_limit: {requests_per_unit: 0}} # weir:ignore zero-limit
`)})
	must.Succeed(t, err)
	_, warnings, err := rulesfile.ParseWith(rulesfile.Options{Overlay: overlay, ReplicasUnknown: true}, rulesfile.File{Name: "rules.yaml", Data: []byte(
		rulesOf("  - {key: a, L}", "  - {key: a, value: x, L}"))})
	must.Succeed(t, err)
	var got []string
	for _, w := range warnings {
		got = append(got, fmt.Sprintf("%s:%d:%d %s", w.File, w.Line, w.Column, w.ID))
	}
	want := []string{"overlay.yaml:3:27 zero-limit", "overlay.yaml:3:49 local-without-replicas", "overlay.yaml:4:26 overlay-without-effect"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestIgnoreCommentsSilenceWarnings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string // line, column and id
	}{
		{"on the line", []string{"  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}} # weir:ignore zero-limit"}, nil},
		{"on the line above", []string{"  # weir:ignore zero-limit", "  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}}"}, nil},
		{"above other comments", []string{"  #weir:ignore zero-limit -- a crawler", "", "  # blocked", "  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}}"}, nil},
		{"for a value", []string{"  - key: k", "    value: ^a # weir:ignore regex-value", "    rate_limit: {unit: day, requests_per_unit: 1}"}, nil},
		{"two ids", []string{"  # weir:ignore regex-value, zero-limit", "  - {key: k, value: ^a, rate_limit: {unit: day, requests_per_unit: 0}}"}, nil},
		{"two comments", []string{"  # weir:ignore regex-value", "  # weir:ignore zero-limit", "  - {key: k, value: ^a, rate_limit: {unit: day, requests_per_unit: 0}}"}, nil},
		{"after a hash in a text", []string{"  - {key: 'a # b', rate_limit: {unit: day, requests_per_unit: 0}} # weir:ignore zero-limit"}, nil},
		{"after its own text", []string{"  - {key: 'a # weir:ignore b', rate_limit: {unit: day, requests_per_unit: 0}} # weir:ignore zero-limit"}, nil},
		{"in a comment", []string{"  - {key: a, L} # b # weir:ignore zero-limit"}, nil},
		{"another line", []string{"  - {key: a, L} # weir:ignore zero-limit", "  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}}"},
			[]string{"3:75 unused-ignore", "4:38 zero-limit"}},
		{"another id", []string{"  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}} # weir:ignore regex-value"},
			[]string{"3:38 zero-limit", "3:75 unused-ignore"}},
		{"an unknown id", []string{"  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}} # weir:ignore zero-limt"},
			[]string{"3:38 zero-limit", "3:75 unknown-ignore"}},
		{"an unknown id beside a known one", []string{"  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}} # weir:ignore zero-limit all"},
			[]string{"3:86 unknown-ignore"}},
		{"no id", []string{"  - {key: k, L} # weir:ignore"}, []string{"3:63 unknown-ignore"}},
		{"the end of the file", []string{"  - {key: k, L}", "# weir:ignore zero-limit"}, []string{"4:15 unused-ignore"}},
		{"a folded text", []string{"  - key: k", "    rate_limit:", "      unit: day", "      requests_per_unit: 1", "      on_deny:", "        body: >", "          one",
			"          two", "          three", "          # weir:ignore zero-limit"}, nil},
		{"a text over several lines in quotes", []string{"  - key: k", "    rate_limit:", "      unit: day", "      requests_per_unit: 1", "      on_deny:",
			"        body: \"one", "          two", "          \\\"three\\\"", "          four", "          # weir:ignore zero-limit\""}, nil},
		{"below a text of escapes", []string{`  - {key: j, rate_limit: {unit: day, requests_per_unit: 1, on_deny: {body: "weir:ignore \\\\\\\\\\\\\\\\\\\\"}}}`,
			"  # weir:ignore zero-limit", "  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}}"}, nil},
		{"below a folded text", []string{"  - key: j", "    rate_limit:", "      unit: day", "      requests_per_unit: 1", "      on_deny:", "        body: >",
			"          # weir:ignore zero-limit", "          two", "  # weir:ignore zero-limit", "  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}}"}, nil},
		{"a text in quotes", []string{`  - {key: k, value: "a # weir:ignore zero-limit", L}`}, nil},
		{"a text of several lines", []string{"  - key: k", "    metadata:", "      help: |", "        # weir:ignore zero-limit", "    L}"}, nil},
		{"another word", []string{"  - {key: k, L} # see weir:ignore"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(rulesOf(tt.lines...), "    rate_limit: {unit: day, requests_per_unit: 1}}\n", "    rate_limit: {unit: day, requests_per_unit: 1}\n", 1)
			utf16LE := "\xff\xfe" + strings.ReplaceAll(text, "", "\x00")[1:] // text is ASCII
			for _, data := range []string{text, utf16LE} {
				_, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "f", Data: []byte(data)})
				must.Succeed(t, err)
				var got []string
				for _, w := range warnings {
					got = append(got, fmt.Sprintf("%d:%d %s", w.Line, w.Column, w.ID))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%q\ngot %q, want %q", data, got, tt.want)
				}
			}
		})
	}
}

// A file of garbage has a bounded number of faults and of warnings.
func TestFaultsAndWarningsOfAFileAreBounded(t *testing.T) {
	var garbage, zeros strings.Builder
	garbage.WriteString("domain: d\n")
	zeros.WriteString("domain: d\ndescriptors:\n")
	for i := range 12_000 {
		fmt.Fprintf(&garbage, "k%d: 1\n", i)
		fmt.Fprintf(&zeros, "- {key: k%d, rate_limit: {unit: day, requests_per_unit: 0}}\n", i)
	}
	file := func(text string) rulesfile.File { return rulesfile.File{Name: "f", Data: []byte(text)} }
	_, _, err := rulesfile.ParseWith(rulesfile.Options{}, file(garbage.String()), file(garbage.String()))
	var faults rulesfile.Faults
	if !errors.As(err, &faults) || len(faults) != 1000 {
		t.Errorf("%d faults, want 1000", len(faults))
	}
	if _, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, file(zeros.String())); err != nil || len(warnings) != 10_000 {
		t.Errorf("%d warnings, want 10000; %v", len(warnings), err)
	}
}

// The shapes are those that Envoy Gateway generates. Each file contains the resources of one push,
// each a document.
func TestLintIsSilentOnEnvoyGateway(t *testing.T) {
	paths, err := filepath.Glob("testdata/envoygateway/*.yaml")
	if err != nil || len(paths) < 26 {
		t.Fatalf("%d shapes, %v", len(paths), err)
	}
	for _, path := range paths {
		data := must.Read(t, path)
		var push []rulesfile.File
		for i, document := range strings.Split(string(data), "\n---\n") {
			push = append(push, rulesfile.File{Name: fmt.Sprintf("%s.%d", path, i), Data: []byte(document)})
		}
		if _, warnings, err := rulesfile.ParseWith(rulesfile.Options{ReplicasUnknown: true}, push...); err != nil || len(warnings) > 0 {
			t.Errorf("%v %v, want no error and no warning", err, warnings)
		}
	}
}
