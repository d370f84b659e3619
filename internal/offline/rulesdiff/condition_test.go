package rulesdiff_test

import (
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulesdiff"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func TestFailIfConditionsAreDecided(t *testing.T) {
	r := &rulesdiff.Report{KeysExact: true, Requests: 1000, Keys: 200, Counts: rulesdiff.Counts{NewlyDeniedKeys: 10, NewlyDeniedRequests: 5, NewlyAllowedKeys: 1}}
	for text, want := range map[string]bool{
		"newly_denied_keys > 10": false, "newly_denied_keys>=10": true, "newly_denied_keys == 10": true, "newly_denied_keys != 10": false,
		"newly_denied_keys < 10": false, "newly_denied_keys <= 10": true, "newly_denied_requests > 4": true, "newly_allowed_requests > 0": false,
		"newly_denied_keys_percent >= 5": true, "newly_denied_requests_percent > 0.5": false, "newly_denied_requests_percent >= 0.5": true,
		"newly_denied_keys > 1 and newly_allowed_keys > 1": false, " newly_denied_keys > 1  and\tnewly_allowed_keys > 0 ": true, "cannot_match > 0": false,
	} {
		c, err := rulesdiff.ParseCondition(text)
		if holds, decided := c.Holds(r); err != nil || holds != want || !decided {
			t.Errorf("%s: %v, holds %t, want %t, decided %t", text, err, holds, want, decided)
		}
	}
	// Beyond the bound of keys, a count of keys may be larger.
	r.KeysExact = false
	for text, want := range map[string]struct{ holds, decided bool }{
		"newly_denied_keys > 9": {true, true}, "newly_denied_keys > 10": {}, "newly_denied_keys >= 10": {true, true}, "newly_denied_keys >= 11": {},
		"newly_denied_keys < 11": {}, "newly_denied_keys < 10": {false, true}, "newly_denied_keys <= 10": {}, "newly_denied_keys <= 9": {false, true},
		"newly_denied_keys == 10": {}, "newly_denied_keys == 9": {false, true}, "newly_denied_keys != 10": {}, "newly_denied_keys != 9": {true, true},
		"newly_denied_keys_percent >= 5": {}, "newly_denied_keys_percent < 5": {}, "newly_denied_keys_percent > 100": {false, true},
		"newly_denied_requests > 4": {true, true}, "newly_denied_requests > 5 and newly_denied_keys > 10": {false, true},
	} {
		c, err := rulesdiff.ParseCondition(text)
		if holds, decided := c.Holds(r); err != nil || holds != want.holds || decided != want.decided {
			t.Errorf("%s: %v, holds %t, decided %t, want %+v", text, err, holds, decided, want)
		}
	}
	for text, want := range map[string]string{
		"":                                       `"" is not a comparison: want a name`,
		"newly_denied_keys":                      "is not a comparison",
		"newly_denied_key > 1":                   `unknown name "newly_denied_key" (did you mean newly_denied_keys?). Write for example`,
		"x > 1":                                  `unknown name "x". Write for example 'newly_denied_keys > 10'. The names are newly_denied_keys, newly_denied_requests, `,
		"newly_denied_keys > many":               `"many" is not a number of at least 0`,
		"newly_denied_keys > -1":                 `"-1" is not a number of at least 0. Write for example 'newly_denied_keys > 10'. The names are newly_denied_keys`,
		"newly_denied_keys > NaN":                `"NaN" is not a number of at least 0`,
		"newly_denied_keys > ":                   `"" is not a number`,
		"newly_denied_keys =! 1":                 "has no known operator",
		"newly_denied_keys = 1":                  "has no known operator: the operators are >= <= == != > <",
		"newly_denied_keys > 1 and ":             "is not a comparison",
		"newly_denied_keys > 1 or cannot_match>": "is not a number",
	} {
		if _, err := rulesdiff.ParseCondition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The text of a client cannot form a link, a mention or HTML in a comment, and fits into one cell
// of a table.
func TestMarkdownOfHostileKeys(t *testing.T) {
	hostile := "a|b`<script>@all\n| x [y](http://z)"
	r := compare(t, "domain: d\n", "domain: d\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 0}}]\n", rulesdiff.Options{},
		append(times(2, hostile), times(3, strings.Repeat("x", 5000))...)...)
	text := r.Markdown()
	want := "| `user_id` |  | newly denied | `user_id=a\\|b'<script>@all\\n\\| x [y](http://z)` | 2 | 2 |\n"
	if !strings.Contains(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	for line := range strings.Lines(text) {
		if len(line) > 400 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if text := r.Text(); !strings.Contains(text, `user_id=a|b`+"`"+`<script>@all\n| x`) {
		t.Errorf("%s\nwant the control characters of the key as escapes", text)
	}
}

func TestMarkdownIsBounded(t *testing.T) {
	rules := "domain: d\ndescriptors:\n"
	var all []string
	for i := range 300 {
		name := strings.Repeat("k", 60) + string(rune('a'+i%26)) + strings.Repeat("v", i)
		rules += "- {key: " + name + ", rate_limit: {unit: day, requests_per_unit: 0}}\n"
		all = append(all, name)
	}
	c := rulesdiff.New(rulesfiletest.Parse(t, "domain: d\n"), rulesfiletest.Parse(t, rules), rulesdiff.Options{})
	for _, name := range all {
		for _, value := range []string{"1", "2", "3", "4", "5"} {
			must.Succeed(t, c.Add(request(0, []string{name, value})))
		}
	}
	r := c.Report()
	if text := r.Markdown(); len(text) > 65_536 || !strings.Contains(text, "more limits.") {
		t.Errorf("%d bytes", len(text))
	}
	if len(r.Limits) != 300 || r.NewlyDeniedRequests != 1500 {
		t.Errorf("%d limits, %+v", len(r.Limits), r.Counts)
	}
}
