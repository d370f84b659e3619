package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/explain"
)

func TestEveryStepHasAReason(t *testing.T) {
	rules := rulesfiletest.ParseFile(t, "../descriptors/testdata/walked.yaml")
	for text, want := range map[string]string{
		"user_id=7 action=login": "user_id rules.yaml:3 the key matches any value | action=login rules.yaml:5 key and value are equal",
		"user_id=bigco action=login": "user_id=bigco rules.yaml:9 key and value are equal; this hides user_id (rules.yaml:3), which would have led to " +
			"user_id.action=login (rules.yaml:5) |   user_id=bigco has no rules below it",
		"user_id=vip": "user_id=vip,vvip rules.yaml:10 the value is in the list",
		"user_id=7 action=post": "user_id rules.yaml:3 the key matches any value |   the value differs: " +
			"the values of action are login, reply",
		"user_id=7 Action=login":  "user_id rules.yaml:3 the key matches any value |   no rule below user_id matches the key Action: the keys are action, lease; did you mean action?",
		"user-id=7":               "  no rule at the top level matches the key user-id: the keys are ip, path, user_id, x-*; did you mean user_id?",
		"ip=10.1.9.9":             "ip=10.1.0.0/16,10.0.0.0/8 rules.yaml:11 the address is in 10.1.0.0/16",
		"ip=10.1.2.3":             "ip=10.1.2.0/24 rules.yaml:12 the address is in 10.1.2.0/24; this hides ip=10.1.0.0/16,10.0.0.0/8 (rules.yaml:11)",
		"ip=11.0.0.1":             "  the address is in no prefix: the values of ip are 10.0.0.0/8, 10.1.0.0/16, 10.1.2.0/24",
		"ip=localhost":            "  the value is not an address: the values of ip are 10.0.0.0/8, 10.1.0.0/16, 10.1.2.0/24",
		"path=/abc":               "path=/a* rules.yaml:13 the wildcard fits",
		"path=/c":                 "  no wildcard fits: the values of path are /a*, /b",
		"x-plan=free":             "x-* rules.yaml:15 the wildcard fits",
		"user_id=7 lease=1 more=": "user_id rules.yaml:3 the key matches any value | lease rules.yaml:7 the key matches any value |   lease has no rules below it",
	} {
		var got []string
		for _, s := range explain.ForRequest(explain.Options{}, rules, request("d: "+text)).Descriptors[0].Walk {
			got = append(got, fmt.Sprintf("%s %s %s", s.Descriptor, s.Source, s.Reason))
		}
		if got := strings.Join(got, " | "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"user_id=7":   "the rule has no limit, and the descriptor has no further entry: the keys below are action, lease",
		"user_id=vip": "the rule has neither a limit nor rules below it, which exempts the request",
	} {
		if got := explain.ForRequest(explain.Options{}, rules, request("d: "+text)).Descriptors[0].Reason; got != want {
			t.Errorf("%s: reason %q, want %q", text, got, want)
		}
	}
}

// A reason lists at most five of many values, and suggests the value that was probably intended.
func TestReasonBoundsSuggestions(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 30 {
		fmt.Fprintf(&text, "- {key: plan, value: 'plan-number-%02d', rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	const want = "the value differs: the values of plan are plan-number-00, plan-number-01, plan-number-02, plan-number-03, plan-number-04 and 25 more; " +
		"did you mean plan-number-17?"
	if got := explain.ForRequest(explain.Options{}, rulesfiletest.Parse(t, text.String()), request("d: plan=plan-numbr-17")).Descriptors[0].Reason; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}
