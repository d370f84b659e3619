package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/randomrules"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

// Every walk ends at the rule that Match returns, and every kind of step occurs.
func TestWalkAgreesWithMatch(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	seen, matched, hidden := map[descriptors.StepResult]int{}, 0, 0
	for range 100 {
		made := randomrules.New(random)
		overlay, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o.yaml", Data: []byte(made.Overlay)})
		must.Succeed(t, err)
		rules, _, err := rulesfile.ParseWith(rulesfile.Options{Overlay: overlay}, rulesfile.File{Name: "r.yaml", Data: []byte(made.Text)})
		if err != nil {
			t.Fatalf("%v in\n%s", err, made.Text)
		}
		domain := rules.Domain("d")
		for range 100 {
			request := made.Entries()
			steps, want := domain.Walker().Walk(request), domain.Match(request)
			last := &steps[len(steps)-1]
			got := last.Rule
			if len(steps) < len(request) || !last.Result.Matched() {
				got = nil
			}
			if got != want {
				t.Fatalf("%v: the walk ends at %v, Match at %v, of\n%s", request, got, want, made.Text)
			}
			if want != nil {
				matched++
			}
			for i := range steps {
				seen[steps[i].Result]++
				if problem := check(&steps[i], request, i, want == nil); problem != "" {
					t.Fatalf("%v: level %d: %s: %+v, of\n%s", request, i+1, problem, steps[i], made.Text)
				}
				if steps[i].Hides != nil {
					hidden++
				}
			}
		}
	}
	t.Logf("%d requests match, %d are hidden, %v", matched, hidden, seen)
	for r := descriptors.MatchedExact; r <= descriptors.NoAddress; r++ {
		if seen[r] < 10 {
			t.Errorf("%v occurs in %d steps only", r, seen[r])
		}
	}
	if matched < 2000 || hidden < 50 {
		t.Errorf("%d requests match, %d are hidden", matched, hidden)
	}
}

// check returns the fault of a step, or "".
func check(s *descriptors.Step, request []descriptors.Entry, i int, unmatched bool) string {
	switch {
	case s.Position != i+1 || s.Entry != request[i]:
		return "the position or the entry is another"
	case s.Result.Matched() != (s.Node != "") || s.Result.Matched() != (s.Source != ""):
		return "a selection without a rule and its source, or the other way round"
	case !s.Result.Matched() && s.Rule != nil:
		return "no selection"
	case s.Hides != nil && (!unmatched || s.Hides.Rule == nil || s.Hides.Node == s.Node):
		return "hides no other rule"
	}
	return ""
}

func TestWalkReportsEachKindOfStep(t *testing.T) {
	rules := rulesfiletest.ParseFile(t, "testdata/walked.yaml")
	for request, want := range map[string]string{
		"user_id=7 action=login":     "user_id rules.yaml:3 key | action=login rules.yaml:5 value",
		"user_id=bigco action=login": "user_id=bigco rules.yaml:9 value hides user_id rules.yaml:3 user_id.action=login |   no_child below user_id=bigco",
		"user_id=vip":                "user_id=vip,vvip rules.yaml:10 list",
		"user_id=7":                  "user_id rules.yaml:3 key of action,lease",
		"user_id=7 action=post":      "user_id rules.yaml:3 key |   no_value below user_id of login,reply",
		"user_id=7 Action=login":     "user_id rules.yaml:3 key |   no_key below user_id of action,lease",
		"user-id=7":                  "  no_key of ip,path,user_id,x-*",
		"ip=10.1.9.9":                "ip=10.1.0.0/16,10.0.0.0/8 rules.yaml:11 prefix 10.1.0.0/16",
		"ip=10.1.2.3":                "ip=10.1.2.0/24 rules.yaml:12 prefix 10.1.2.0/24 hides ip=10.1.0.0/16,10.0.0.0/8 rules.yaml:11 ip=10.1.0.0/16,10.0.0.0/8",
		"ip=11.0.0.1":                "  no_prefix of 10.0.0.0/8,10.1.0.0/16,10.1.2.0/24",
		"ip=localhost":               "  no_address of 10.0.0.0/8,10.1.0.0/16,10.1.2.0/24",
		"path=/abc":                  "path=/a* rules.yaml:13 wildcard",
		"path=/c":                    "  no_wildcard of /a*,/b",
		"x-plan=free":                "x-* rules.yaml:15 wildcard",
	} {
		var got []string
		for _, s := range rules.Domain("d").Walker().Walk(entries(request)) {
			got = append(got, factsOf(&s))
		}
		if text := strings.Join(got, " | "); text != want {
			t.Errorf("%s:\n got %s\nwant %s", request, text, want)
		}
	}
	if steps := rules.Domain("e").Walker().Walk(entries("a=1")); steps != nil {
		t.Errorf("an unknown domain has steps %v", steps)
	}
	if steps := rules.Domain("d").Walker().Walk(nil); steps != nil {
		t.Errorf("no entries have steps %v", steps)
	}
}

// Below a=1, the selection of b=1 hides the rule of b. Beside a=1, a would lead to a rule too.
func TestWalkReportsTheLastSelectionThatHidesARule(t *testing.T) {
	rules := rulesfiletest.Parse(t, `
domain: d
descriptors:
  - key: a
    value: "1"
    descriptors:
      - {key: b, value: "1"}
      - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}
`)
	steps := rules.Domain("d").Walker().Walk(entries("a=1 b=1"))
	if steps[0].Hides != nil || steps[1].Hides == nil {
		t.Errorf("%+v, want only the second entry to hide a rule", steps)
	}
}

func factsOf(s *descriptors.Step) string {
	text := fmt.Sprintf("%s %s %s", s.Node, s.Source, s.Result)
	if s.Prefix.IsValid() {
		text += " " + s.Prefix.String()
	}
	if !s.Result.Matched() && s.Above != "" {
		text += " below " + s.Above
	}
	if len(s.Alternatives) > 0 {
		text += " of " + strings.Join(s.Alternatives, ",")
	}
	if h := s.Hides; h != nil {
		text += fmt.Sprintf(" hides %s %s %s", h.Node, h.Source, h.Rule.Name)
	}
	return text
}

// Nodes without a limit count, at every depth and in every list.
func TestPrefixesAndValuesOfAKey(t *testing.T) {
	t.Parallel()
	d := rulesfiletest.Parse(t, `
domain: d
descriptors:
  - {key: a, value: x}
  - {key: a, values: [z, y]}
  - {key: a, value: "w*"}
  - key: b
    descriptors:
      - {key: c, cidr: [10.0.0.0/8]}
      - {key: c, value: 10.0.0.1}
      - {key: a, value: x, rate_limit: {unit: day, requests_per_unit: 1}}
`).Domain("d")
	if got := fmt.Sprint(d.PrefixKeys(), d.ExactValues("a"), d.ExactValues("b"), d.ExactValues("c")); got != "map[c:true] [x y z] [] [10.0.0.1]" {
		t.Error(got)
	}
	var none *descriptors.Domain
	if len(none.PrefixKeys()) > 0 || none.ExactValues("a") != nil {
		t.Error("a missing domain has nodes")
	}
}
