package rulesfile_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

func parseRules(t *testing.T, o rulesfile.Options, text string) *descriptors.Rules {
	t.Helper()
	rules, warnings, err := rulesfile.ParseWith(o, rulesfile.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return rules
}

func onDenyOf(rules *descriptors.Rules, key string, i int) *descriptors.OnDeny {
	return rules.Match("d", []descriptors.Entry{{Key: key, Value: "v"}}).Limits[i].OnDeny
}

const denials = `
domain: d
on_deny: {body: "too many", headers: {X-Support: https://example.com}}
descriptors:
  - {key: none, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: page, rate_limit: {unit: day, requests_per_unit: 1, on_deny: &page {body: <p>Wait.</p>, content_type: text/html}}}
  - {key: same, rate_limit: {unit: day, requests_per_unit: 1, on_deny: *page}}
  - key: several
    rate_limits:
      - {unit: day, requests_per_unit: 1}
      - {unit: week, requests_per_unit: 1, on_deny: {problem: true, headers: {x-b: 1, x-a: yes}}}
`

func TestOnDenyIsParsed(t *testing.T) {
	rules := parseRules(t, rulesfile.Options{}, denials)
	page := &descriptors.OnDeny{Body: "<p>Wait.</p>", ContentType: "text/html"}
	for _, c := range []struct {
		name string
		got  *descriptors.OnDeny
		want *descriptors.OnDeny
	}{
		{"the domain", rules.Domain("d").OnDeny(), &descriptors.OnDeny{
			Body: "too many", ContentType: "text/plain; charset=utf-8", Headers: []descriptors.Header{{Name: "x-support", Value: "https://example.com"}},
		}},
		{"a limit without one", onDenyOf(rules, "none", 0), nil},
		{"a limit", onDenyOf(rules, "page", 0), page},
		{"an alias", onDenyOf(rules, "same", 0), page},
		{"the first of several", onDenyOf(rules, "several", 0), nil},
		{"the second of several", onDenyOf(rules, "several", 1), &descriptors.OnDeny{
			Problem: true, Headers: []descriptors.Header{{Name: "x-a", Value: "yes"}, {Name: "x-b", Value: "1"}},
		}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	if onDenyOf(rules, "page", 0) != onDenyOf(rules, "same", 0) {
		t.Error("an alias has a copy of its own: many rules with one body would hold it many times")
	}
}

// An overlay adds responses to rules that arrive over xDS. The rule's own response takes
// precedence.
func TestOverlaySetsOnDeny(t *testing.T) {
	overlay, err := rulesfile.ParseOverlay(rulesfile.File{Name: "overlay.yaml", Data: []byte(`
domain: d
on_deny: {problem: true}
descriptors:
  - {key: none, rate_limit: {on_deny: {body: from the overlay}}}
  - {key: page, rate_limit: {on_deny: {body: from the overlay}}}
`)})
	must.Succeed(t, err)
	rules := parseRules(t, rulesfile.Options{Overlay: overlay}, denials)
	if got := onDenyOf(rules, "none", 0); got == nil || got.Body != "from the overlay" {
		t.Errorf("a limit without on_deny has %+v", got)
	}
	if got := onDenyOf(rules, "page", 0); got.Body != "<p>Wait.</p>" || rules.Domain("d").OnDeny().Problem {
		t.Errorf("the overlay replaces the rules: %+v, domain %+v", got, rules.Domain("d").OnDeny())
	}
	rules = parseRules(t, rulesfile.Options{Overlay: overlay}, strings.Replace(denials, "\non_deny", "\n# on_deny", 1))
	if got := rules.Domain("d").OnDeny(); got == nil || !got.Problem {
		t.Errorf("the domain has %+v, want that of the overlay", got)
	}
}

func TestDiffReportsChangedOnDeny(t *testing.T) {
	old := parseRules(t, rulesfile.Options{}, denials)
	if c := descriptors.Diff(old, parseRules(t, rulesfile.Options{}, denials)); c.Any() {
		t.Errorf("the same rules differ: %+v", c)
	}
	for change, want := range map[string]int{"too many": 2, "<p>Wait.</p>": 2, "x-a: yes": 1} {
		now := parseRules(t, rulesfile.Options{}, strings.Replace(denials, change, change+"s", 1))
		if c := descriptors.Diff(old, now); c != (descriptors.Changes{RulesModified: want}) {
			t.Errorf("with another %q: %+v, want %d rules modified", change, c, want)
		}
	}
}

func TestOnDenyFaultsNameLineAndRemedy(t *testing.T) {
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf("x-%d: v", i)
	}
	for onDeny, want := range map[string]string{
		"{}":                       "5:16: 'on_deny' is empty: set 'body', 'headers' or 'problem: true'",
		"":                         "5:15: an on_deny is empty, not a map: want a map with the keys body, content_type, headers, problem",
		"problem":                  "5:16: an on_deny is the text 'problem', not a map: want a map with the keys body, content_type, headers, problem",
		"{boddy: x}":               "5:17: unknown key 'boddy' in an on_deny: did you mean 'body'?",
		"{status: 503}":            "5:17: unknown key 'status' in an on_deny: write 'rate_limited_status' in Envoy's filter",
		"{problem: yes, body: x}":  "5:26: 'problem' is the text 'yes': want true or false",
		"{problem: true, body: x}": "5:32: 'problem: true' has a body of its own: remove one of them",
		"{problem: true, content_type: text/plain}":             "5:32: the content type with 'problem: true' is application/problem+json: remove it",
		"{content_type: text/plain}":                            "5:17: 'content_type' has no meaning without 'body': write 'body', or remove 'content_type'",
		"{body: x, content_type: \"a\\nb\"}":                    "5:40: 'content_type' contains a control character: want a type such as text/html",
		"{body: [x]}":                                           "5:23: 'body' is a list, not a text: want a text",
		"{body: '" + strings.Repeat("x", 16385) + "'}":          "5:23: 'body' has 16385 bytes, and at most 16384 are allowed: shorten it, or send a redirect to the page in 'headers'",
		"{headers: [x]}":                                        "5:26: 'headers' is a list, not a map: want a map such as {x-support: https://example.com}",
		"{headers: {value: [x]}}":                               "5:34: 'value' is a list, not a text: want a text",
		"{headers: {}}":                                         "5:26: 'headers' has 0 headers: want 1 to 16 headers",
		"{headers: {" + strings.Join(many, ", ") + "}}":         "5:26: 'headers' has 17 headers: want 1 to 16 headers",
		"{headers: {':status': 200}}":                           "5:27: :status is not the name of a header: remove it: Envoy sets the status by rate_limited_status of its filter",
		"{headers: {'x y': 1}}":                                 "5:27: x y is not the name of a header: want a name of letters, digits and '-'",
		"{headers: {Content-Length: 1}}":                        "5:27: header 'content-length' is not allowed: remove it: Envoy sets it",
		"{headers: {content-type: text/plain}}":                 "5:27: header 'content-type' is not allowed: write 'content_type' instead",
		"{headers: {retry-after: 60}}":                          "5:27: header 'retry-after' is not allowed: remove it: RESPONSE_HEADERS_STANDARD=draft-11 sends the wait of the limit",
		"{headers: {x-a: 1, X-A: 2}}":                           "5:35: header 'x-a' is given twice: remove one",
		"{headers: {x-a: ''}}":                                  "5:32: header 'x-a' has no value: write a value, or remove the header",
		"{headers: {x-a: \"a\\r\\nset-cookie: b\"}}":            "5:32: header 'x-a' contains a control character: write it on one line",
		"{headers: {x-a: '" + strings.Repeat("x", 4097) + "'}}": "5:32: header 'x-a' has 4097 bytes, and at most 4096 are allowed: shorten it",
	} {
		const start = "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n"
		text := start + "      on_deny: " + onDeny + "\n      unit: day\n      requests_per_unit: 1\n"
		_, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: []byte(text)})
		if bySchema := validate(t, text); bySchema == nil && !strings.Contains(want, "twice") && !strings.Contains(want, "control character") &&
			!strings.Contains(want, "not allowed") && !strings.Contains(want, "longer") && !strings.Contains(want, "'on_deny' is empty") {
			t.Errorf("%s: the schema accepts it", onDeny)
		}
		if err == nil || err.Error() != "f:"+want {
			t.Errorf("%s:\n got %v\nwant f:%s", onDeny, err, want)
		}
	}
}

// Two files of a domain cannot each have an on_deny.
func TestOnDenyIsGivenOncePerDomain(t *testing.T) {
	file := func(name, key string) rulesfile.File {
		return rulesfile.File{Name: name, Data: []byte("domain: d\non_deny: {problem: true}\ndescriptors: [{key: " + key + ", rate_limit: {unit: day, requests_per_unit: 1}}]\n")}
	}
	_, _, err := rulesfile.ParseWith(rulesfile.Options{MergeDomains: true}, file("a.yaml", "a"), file("b.yaml", "b"))
	if want := "b.yaml:2:1: the domain has an 'on_deny' already, in a.yaml:2: set it once"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
