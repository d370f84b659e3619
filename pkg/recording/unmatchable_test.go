package recording_test

import (
	"testing"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/recording"
)

// Of rules by value that meet hashes, those are named that the recorder did not know. Package
// rulesdiff tests more cases.
func TestHashedNamesRulesUnknownToTheRecorder(t *testing.T) {
	const known = "domain: d\ndescriptors:\n- {key: user_id, value: bigco, rate_limit: {unit: day, requests_per_unit: 9}}\n"
	rules := rulesfiletest.Parse(t, known+"- {key: user_id, value: acme, rate_limit: {unit: day, requests_per_unit: 9}}\n")
	names := func(known *descriptors.Rules, matched func(*descriptors.Rule) bool) (all []string) {
		h := recording.NewUnmatchableFinder(rules, known)
		for range 2 {
			h.Add(&decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: []descriptors.Entry{{Key: "user_id", Value: "hmac:01"}}}}})
		}
		for _, m := range h.List(matched) {
			if all = append(all, m.Path); m.Key != "user_id" || m.Descriptors != 2 {
				t.Errorf("%+v, want 2 descriptors with the key user_id", m)
			}
		}
		return all
	}
	if got := names(rulesfiletest.Parse(t, known), nil); len(got) != 1 || got[0] != "user_id=acme" {
		t.Errorf("rules %q, want user_id=acme alone", got)
	}
	if got := names(nil, nil); len(got) != 2 {
		t.Errorf("without known rules: %q", got)
	}
	if got := names(nil, func(rule *descriptors.Rule) bool { return rule.Name == "user_id=acme" }); len(got) != 1 || got[0] != "user_id=bigco" {
		t.Errorf("with a rule that matches a request: %q", got)
	}
}

// A recorder leaves a value plain only in a descriptor that a rule matches as a whole.
func TestHashedComparesWholeRules(t *testing.T) {
	const limit = "rate_limit: {unit: day, requests_per_unit: 9}"
	const other = "{key: other, " + limit + "}"
	const ofPlan = "{key: plan, value: free, descriptors: [{key: user_id, value: bigco, " + limit + "}]}"
	const ofPlans = "{key: plan, values: [free, trial], descriptors: [{key: user_id, value: bigco, " + limit + "}]}"
	for _, c := range []struct {
		name, known, added string
		entries            []descriptors.Entry
		want               string // the path of the rule that the recording cannot judge
	}{
		{"the known rule is longer", "{key: plan, value: free, descriptors: [{key: user_id, " + limit + "}]}",
			"{key: plan, value: free, " + limit + "}", []descriptors.Entry{{Key: "plan", Value: "hmac:01"}}, "plan=free"},
		{"the known rule has another value before", "{key: user_id, value: bigco, descriptors: [{key: action, value: login, " + limit + "}]}",
			"{key: user_id, descriptors: [{key: action, value: login, " + limit + "}]}",
			[]descriptors.Entry{{Key: "user_id", Value: "hmac:01"}, {Key: "action", Value: "hmac:02"}}, "user_id.action=login"},
		{"the known rule has any value before", "{key: user_id, descriptors: [{key: action, value: login, " + limit + "}]}",
			"{key: user_id, value: bigco, descriptors: [{key: action, value: login, " + limit + "}]}",
			[]descriptors.Entry{{Key: "user_id", Value: "bigco"}, {Key: "action", Value: "hmac:02"}}, ""},
		{"a plain value that the rule has", other, ofPlan, []descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "user_id", Value: "hmac:01"}}, "plan=free.user_id=bigco"},
		{"a plain value that the rule lacks", other, ofPlan, []descriptors.Entry{{Key: "plan", Value: "paid"}, {Key: "user_id", Value: "hmac:01"}}, ""},
		{"a plain value of the rule's list", other, ofPlans, []descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "user_id", Value: "hmac:01"}}, "plan=free,trial.user_id=bigco"},
		{"a plain value outside of the rule's list", other, ofPlans, []descriptors.Entry{{Key: "plan", Value: "paid"}, {Key: "user_id", Value: "hmac:01"}}, ""},
		{"a hash where the recorder knows the rule's value", "{key: action, value: login, descriptors: [{key: user_id, " + limit + "}]}",
			"{key: action, value: login, descriptors: [{key: user_id, value: bigco, " + limit + "}]}",
			[]descriptors.Entry{{Key: "action", Value: "hmac:01"}, {Key: "user_id", Value: "hmac:02"}}, ""},
	} {
		known, added := "domain: d\ndescriptors:\n- "+c.known+"\n", "domain: d\ndescriptors:\n- "+c.added+"\n"
		h := recording.NewUnmatchableFinder(rulesfiletest.Parse(t, added), rulesfiletest.Parse(t, known))
		h.Add(&decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: c.entries}}})
		got := ""
		for _, m := range h.List(nil) {
			got += m.Path
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
