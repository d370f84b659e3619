package rulesdiff_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulesdiff"
	"github.com/weir-rls/weir/internal/randomrules"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

var start = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// request returns a line some milliseconds after start. Each descriptor is a list of keys and
// values.
func request(ms int, descriptor ...[]string) *recording.Line {
	line := &recording.Line{At: start.Add(time.Duration(ms) * time.Millisecond), Request: decide.Request{Domain: "d"}}
	for _, pairs := range descriptor {
		d := decide.Descriptor{Hits: 1}
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, descriptors.Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		line.Request.Descriptors = append(line.Request.Descriptors, d)
	}
	return line
}

func compare(t testing.TB, old, now string, o rulesdiff.Options, lines ...*recording.Line) *rulesdiff.Report {
	t.Helper()
	c := rulesdiff.New(rulesfiletest.Parse(t, old), rulesfiletest.Parse(t, now), o)
	for _, line := range lines {
		must.Succeed(t, c.Add(line))
	}
	return c.Report()
}

// times returns n requests of a user, one a millisecond.
func times(n int, user string) (all []*recording.Line) {
	for range n {
		all = append(all, request(0, []string{"user_id", user}))
	}
	return all
}

const perUser = "domain: d\ndescriptors:\n- {key: user_id, rate_limit: {unit: hour, requests_per_unit: %d, name: n}}\n"

func TestNewlyDeniedKeysWereNeverDeniedBefore(t *testing.T) {
	lines := slices.Concat(times(12, "a"), times(8, "b"), times(3, "c"))
	r := compare(t, fmt.Sprintf(perUser, 10), fmt.Sprintf(perUser, 5), rulesdiff.Options{}, lines...)
	want := rulesdiff.Counts{NewlyDeniedRequests: 8, NewlyDeniedKeys: 1, KeysWithNewlyDenied: 2}
	if r.Counts != want || r.Requests != 23 || r.Keys != 3 || !r.KeysExact || !r.Differs() {
		t.Errorf("%+v, want %+v in 23 requests of exactly 3 keys", r, want)
	}
	if r.Old.Denied != 2 || r.New.Denied != 10 || r.New.Allowed != 13 || r.Old.Unmatched != 0 {
		t.Errorf("old %+v, new %+v", r.Old, r.New)
	}
	l := r.Limits[0]
	if len(r.Limits) != 1 || l.Counts != want || l.Status != rulesdiff.Changed || l.Old != "10 per hour, fixed_window" || l.New != "5 per hour, fixed_window" || l.Requests != 23 || l.Keys != 3 {
		t.Errorf("limits %+v, want one, changed from 10 to 5 per hour, with %+v", r.Limits, want)
	}
	if worst := []rulesdiff.Key{{"user_id=a", 12, 5, false}, {"user_id=b", 8, 3, true}}; !reflect.DeepEqual(l.WorstDenied, worst) {
		t.Errorf("%+v, want %+v", l.WorstDenied, worst)
	}

	r = compare(t, fmt.Sprintf(perUser, 5), fmt.Sprintf(perUser, 10), rulesdiff.Options{Worst: -1}, lines...)
	if want := (rulesdiff.Counts{NewlyAllowedRequests: 8, NewlyAllowedKeys: 1, KeysWithNewlyAllowed: 2}); r.Counts != want || r.Limits[0].Counts != want || len(r.Limits[0].WorstAllowed) > 0 {
		t.Errorf("the other way round: %+v", r)
	}
}

// Two limits deny one request: it counts for both, and once in the sum.
func TestARequestThatSeveralLimitsDenyCountsForEach(t *testing.T) {
	now := `domain: d
descriptors:
- {key: user_id, rate_limits: [{unit: hour, requests_per_unit: 2, name: hour}, {unit: day, requests_per_unit: 2, name: day}]}
- {key: ip, rate_limit: {unit: hour, requests_per_unit: 1}}
`
	var lines []*recording.Line
	for range 4 {
		lines = append(lines, request(0, []string{"user_id", "a"}, []string{"ip", "b"}, []string{"user_id", "a"}))
	}
	r := compare(t, "domain: d\n", now, rulesdiff.Options{}, lines...)
	if want := (rulesdiff.Counts{NewlyDeniedRequests: 3, NewlyDeniedKeys: 2, KeysWithNewlyDenied: 2}); r.Counts != want {
		t.Errorf("counts %+v, want %+v", r.Counts, want)
	}
	got := map[string]int64{}
	for _, l := range r.Limits {
		got[l.Path+" "+l.Name] = l.NewlyDeniedRequests
		if l.Status != rulesdiff.Added || l.NewlyDeniedKeys != 1 || l.WorstDenied[0].Changed != l.NewlyDeniedRequests || l.WorstDenied[0].Requests != 4 {
			t.Errorf("%+v, want an added limit that denies one key of 4 requests", l)
		}
	}
	if want := map[string]int64{"user_id hour": 3, "user_id day": 3, "ip ": 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if r.Old.Unmatched != 4 || r.New.Unmatched != 0 {
		t.Errorf("%+v, want 4 requests without a rule, and none with the new rules", r)
	}
}

func TestRulesThatDifferOnlyInTextAreNoChange(t *testing.T) {
	old := "domain: d\ndescriptors:\n- {key: user_id, rate_limit: {unit: minute, requests_per_unit: 2}}\n- {key: ip, rate_limit: {unit: day, requests_per_unit: 9}}\n"
	now := "# the same\ndescriptors:\n- key: ip\n  rate_limit: {requests_per_unit: 9, unit: DAY}\n- key: user_id\n  rate_limit:\n    requests_per_unit: 2\n    unit: minute\ndomain: d\n"
	r := compare(t, old, now, rulesdiff.Options{}, times(5, "a")...)
	if r.Differs() || len(r.Limits) > 0 || r.Rules != (rulesdiff.Changes{}) || r.Old != r.New || r.Old.Denied != 3 {
		t.Errorf("%+v, want no difference and 3 denials by either", r)
	}
	if text := r.Text(); !strings.HasPrefix(text, "no change\n") {
		t.Errorf("%s\nwant first: no change", text)
	}
	// Another text and other rules, with the same verdicts.
	now = strings.Replace(now, "requests_per_unit: 9", "requests_per_unit: 8", 1)
	r = compare(t, old, now, rulesdiff.Options{}, times(5, "a")...)
	if r.Differs() || len(r.Limits) != 1 || r.Limits[0].Status != rulesdiff.Changed || r.Rules.Modified != 1 {
		t.Errorf("%+v, want one changed limit without an effect", r)
	}
}

func TestNewRulesOnHashedValuesAreNamed(t *testing.T) {
	old := `domain: d
descriptors:
- {key: user_id, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: user_id, value: bigco, rate_limit: {unit: day, requests_per_unit: 99}}
- {key: ip, rate_limit: {unit: day, requests_per_unit: 9}}
- key: path
  value: /a
  descriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 9}}]
`
	added := func(text string) string { return old + text }
	limit := "rate_limit: {unit: day, requests_per_unit: 9}"
	lines := []*recording.Line{
		request(0, []string{"user_id", "hmac:0123"}), request(0, []string{"user_id", "bigco"}), request(0, []string{"ip", "hmac:77"}),
		request(0, []string{"path", "/a", "user_id", "hmac:0123"}), request(0, []string{"plan", "free"}),
	}
	for _, c := range []struct{ name, now, want string }{
		{"nothing new", old, ""},
		{"an exact value", added("- {key: user_id, value: acme, " + limit + "}\n"), "user_id=acme user_id"},
		{"a list with a new value", strings.Replace(old, "value: bigco", "values: [bigco, acme]", 1), "user_id=bigco,acme user_id"},
		{"a list of known values", strings.Replace(old, "value: bigco", "values: [bigco]", 1), ""},
		{"a wildcard", added("- {key: user_id, value: 'a*', " + limit + "}\n"), "user_id=a* user_id"},
		{"a wildcard for every value", added("- {key: user_id, value: '*', " + limit + "}\n"), ""},
		{"a prefix", added("- {key: ip, cidr: [10.0.0.0/8], " + limit + "}\n"), "ip=10.0.0.0/8 ip"},
		{"a plain value", added("- {key: plan, value: free, " + limit + "}\n"), ""},
		{"a value that no request has", added("- {key: tenant, value: x, " + limit + "}\n"), ""},
		{"below a value that differs", added("- {key: path, value: /b, descriptors: [{key: user_id, value: acme, " + limit + "}]}\n"), ""},
		{"below a value that is equal", strings.Replace(old, "[{key: user_id, ", "[{key: user_id, value: acme, ", 1), "path=/a.user_id=acme user_id"},
		{"the key alone", added("- {key: path, value: /c, descriptors: [{key: user_id, " + limit + "}]}\n"), ""},
	} {
		r := compare(t, old, c.now, rulesdiff.Options{}, lines...)
		var got []string
		for _, m := range r.CannotMatch {
			got = append(got, m.Path+" "+m.Key)
			if !strings.HasPrefix(m.Source, "rules.yaml:") || m.Domain != "d" {
				t.Errorf("%s: got %+v, want a source in rules.yaml and the domain d", c.name, m)
			}
		}
		if strings.Join(got, ";") != c.want || r.Differs() != (c.want != "") {
			t.Errorf("%s: %q, differs %t, want %q", c.name, got, r.Differs(), c.want)
		}
	}
}

func TestKeysBeyondTheBoundAreReported(t *testing.T) {
	var lines []*recording.Line
	for i := range 20 {
		lines = append(lines, times(3, fmt.Sprint(i))...)
	}
	r := compare(t, fmt.Sprintf(perUser, 9), fmt.Sprintf(perUser, 2), rulesdiff.Options{MaxKeys: 15}, lines...)
	if r.KeysExact || r.NewlyDeniedKeys != 15 || r.NewlyDeniedRequests != 20 || r.Limits[0].NewlyDeniedRequests != 20 {
		t.Errorf("%+v, want 15 keys, not exact, and all 20 denied requests", r)
	}
	r = compare(t, fmt.Sprintf(perUser, 9), fmt.Sprintf(perUser, 2), rulesdiff.Options{MaxKeys: 20}, lines...)
	if !r.KeysExact || r.NewlyDeniedKeys != 20 {
		t.Errorf("%+v, want exactly 20 keys", r)
	}
	r = compare(t, fmt.Sprintf(perUser, 9), fmt.Sprintf(perUser, 2), rulesdiff.Options{Replay: replay.Options{MaxKeys: 5}}, lines...)
	if r.New.EvictedKeys == 0 {
		t.Errorf("%+v, want evicted keys", r.New)
	}
}

func TestLinesOutOfOrderAreNotCounted(t *testing.T) {
	c := rulesdiff.New(rulesfiletest.Parse(t, fmt.Sprintf(perUser, 1)), rulesfiletest.Parse(t, fmt.Sprintf(perUser, 1)), rulesdiff.Options{})
	must.Succeed(t, errors.Join(c.Add(request(5, []string{"user_id", "a"})), c.Add(request(5, []string{"user_id", "b"}))))
	if err := c.Add(request(4, []string{"user_id", "a"})); !errors.Is(err, replay.ErrEarlier) {
		t.Errorf("an earlier request: %v, want replay.ErrEarlier", err)
	}
	if r := c.Report(); r.Requests != 2 || r.Old.Allowed != 2 || !r.To.Equal(start.Add(5*time.Millisecond)) {
		t.Errorf("%+v, want the first 2 requests alone", r)
	}
	if err := c.Add(&recording.Line{At: start.Add(time.Second)}); err != nil {
		t.Errorf("a request without a domain: %v", err)
	}
	if r := c.Report(); r.Old.Invalid != 1 || r.New.Invalid != 1 || r.Differs() {
		t.Errorf("%+v, want one invalid request for either, and no difference", r)
	}
}

// A naive comparison: each set of rules decides all requests before the next, and every answer is
// kept.
type answer struct {
	denied bool
	keys   map[string]bool // the request's keys
	by     map[string]bool // hash of a limit and the key that it denies
	limits map[string]bool // hashes of the limits that deny
}

func answers(t *testing.T, rules *descriptors.Rules, lines []*recording.Line) (all []answer) {
	r := replay.New(rules, replay.Options{})
	for _, line := range lines {
		var result decide.Result
		must.Succeed(t, r.Decide(line.At, &line.Request, &result))
		a := answer{denied: result.Denied, keys: map[string]bool{}, by: map[string]bool{}, limits: map[string]bool{}}
		quotas, full := 0, 0
		for _, d := range result.Decisions {
			if d.QuotaMode && d.Reason != decide.Unlimited && !d.EndsLease() {
				quotas++
				if d.Outcome == decide.Denied {
					full++
				}
			}
		}
		for i, d := range result.Decisions {
			if len(d.Limits) == 0 || d.EndsLease() {
				continue
			}
			key := descriptors.Key("d", d.Rule, line.Request.Descriptors[i].Entries)
			a.keys[key] = true
			for j, v := range d.Verdicts {
				if d.Outcome == decide.Denied && (!d.QuotaMode || quotas == full) && !v.Allowed {
					hash := fmt.Sprint(d.Rule.LimitHash(j))
					a.by[hash+" "+key], a.limits[hash] = true, true
				}
			}
		}
		all = append(all, a)
	}
	return all
}

// naive returns the requests and keys that only the first answers deny, in all and by limit.
// Touched are all keys of such requests.
func naive(these, others []answer) (requests, keys, touched int64, byLimit map[string][2]int64) {
	otherDenies, hit, pairs := map[string]bool{}, map[string]bool{}, map[string]bool{}
	byLimit = map[string][2]int64{}
	for i, a := range these {
		for key := range a.keys {
			otherDenies[key] = otherDenies[key] || others[i].denied
		}
		if !a.denied || others[i].denied {
			continue
		}
		requests++
		for limit := range a.limits {
			byLimit[limit] = [2]int64{byLimit[limit][0] + 1, byLimit[limit][1]}
		}
		for pair := range a.by {
			_, key, _ := strings.Cut(pair, " ")
			hit[key], pairs[pair] = true, true
		}
	}
	for key := range hit {
		if !otherDenies[key] {
			keys++
		}
	}
	for pair := range pairs {
		if limit, key, _ := strings.Cut(pair, " "); !otherDenies[key] {
			byLimit[limit] = [2]int64{byLimit[limit][0], byLimit[limit][1] + 1}
		}
	}
	return requests, keys, int64(len(hit)), byLimit
}

func TestCountsEqualTwoReplays(t *testing.T) {
	t.Parallel()
	changed, comparisons := 0, limiterstest.Sequences(80)
	for seed := range comparisons {
		random := rand.New(rand.NewPCG(seed, 7))
		oldText, newText := randomrules.New(random), randomrules.New(random)
		old, now := rulesfiletest.Parse(t, oldText.Text), rulesfiletest.Parse(t, newText.Text)
		if seed%3 == 0 { // the same rules with other numbers
			now = rulesfiletest.Parse(t, strings.NewReplacer("requests_per_unit: 4", "requests_per_unit: 2", "requests_per_unit: 1", "requests_per_unit: 3").Replace(oldText.Text))
		}
		var lines []*recording.Line
		at := 0
		for range 400 {
			at += random.IntN(3000)
			line := &recording.Line{At: start.Add(time.Duration(at) * time.Millisecond), Request: decide.Request{Domain: "d"}}
			for range 1 + random.IntN(3) {
				from := oldText
				if random.IntN(2) == 0 && seed%3 > 0 {
					from = newText
				}
				hits := int64(1 + random.IntN(2))
				line.Request.Descriptors = append(line.Request.Descriptors, decide.Descriptor{Entries: from.Entries(), Hits: hits})
			}
			lines = append(lines, line)
		}
		c := rulesdiff.New(old, now, rulesdiff.Options{})
		for _, line := range lines {
			must.Succeed(t, c.Add(line))
		}
		r := c.Report()
		was, is := answers(t, old, lines), answers(t, now, lines)
		var want rulesdiff.Counts
		var denied, allowed map[string][2]int64
		want.NewlyDeniedRequests, want.NewlyDeniedKeys, want.KeysWithNewlyDenied, denied = naive(is, was)
		want.NewlyAllowedRequests, want.NewlyAllowedKeys, want.KeysWithNewlyAllowed, allowed = naive(was, is)
		if r.Counts != want {
			t.Fatalf("seed %d: %+v, want %+v", seed, r.Counts, want)
		}
		if r.Differs() {
			changed++
		}
		sums := func(by map[string][2]int64) (requests, keys int64) {
			for _, n := range by {
				requests, keys = requests+n[0], keys+n[1]
			}
			return requests, keys
		}
		var got rulesdiff.Counts
		for _, l := range r.Limits {
			got.NewlyDeniedRequests += l.NewlyDeniedRequests
			got.NewlyDeniedKeys += l.NewlyDeniedKeys
			got.NewlyAllowedRequests += l.NewlyAllowedRequests
			got.NewlyAllowedKeys += l.NewlyAllowedKeys
		}
		want.KeysWithNewlyDenied, want.KeysWithNewlyAllowed = 0, 0
		want.NewlyDeniedRequests, want.NewlyDeniedKeys = sums(denied)
		want.NewlyAllowedRequests, want.NewlyAllowedKeys = sums(allowed)
		if got != want {
			t.Fatalf("seed %d: by limit %+v, want %+v", seed, got, want)
		}
	}
	if changed < int(comparisons)/3 {
		t.Errorf("only %d of %d comparisons have a change", changed, comparisons)
	}
}

// Of two quotas, one is full. Another limit denies the request.
func TestAFullQuotaIsNotBlamedIfAnotherHasRoom(t *testing.T) {
	now := `domain: d
descriptors:
- {key: tokens, rate_limit: {unit: hour, requests_per_unit: 0}, quota_mode: true}
- {key: credits, rate_limit: {unit: hour, requests_per_unit: %d}, quota_mode: true}
- {key: user_id, rate_limit: {unit: hour, requests_per_unit: 0}}
`
	line := request(0, []string{"tokens", "a"}, []string{"credits", "a"}, []string{"user_id", "a"})
	for credits, want := range []int64{3, 1} {
		r := compare(t, "domain: d\n", fmt.Sprintf(now, credits), rulesdiff.Options{}, line)
		var denied int64
		for _, l := range r.Limits {
			denied += l.NewlyDeniedRequests
		}
		if r.NewlyDeniedRequests != 1 || denied != want || r.NewlyDeniedKeys != want {
			t.Errorf("%d credits: %d limits deny, and %d keys are denied, want %d", credits, denied, r.NewlyDeniedKeys, want)
		}
	}
}

// An override is a limit of the request, so its denials count for the requests and for no limit or
// key of the rules.
func TestOverridesAreNotDiffed(t *testing.T) {
	var lines []*recording.Line
	for range 3 {
		line := request(0, []string{"user_id", "a"}, []string{"none", "b"})
		for i := range line.Request.Descriptors {
			line.Request.Descriptors[i].Override = &decide.Override{RequestsPerUnit: 1, Unit: descriptors.Hour}
		}
		lines = append(lines, line)
	}
	r := compare(t, "domain: other\n", fmt.Sprintf(perUser, 9), rulesdiff.Options{}, lines...)
	if want := (rulesdiff.Counts{NewlyDeniedRequests: 2}); r.Counts != want || r.Keys != 0 {
		t.Errorf("%+v, want %+v without keys", r, want)
	}
}
