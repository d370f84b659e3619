package descriptors_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func parseWith(t *testing.T, o rulesfile.Options, texts ...string) *descriptors.Rules {
	t.Helper()
	files := make([]rulesfile.File, len(texts))
	for i, text := range texts {
		files[i] = rulesfile.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)}
	}
	rules, _, err := rulesfile.ParseWith(o, files...)
	must.Succeed(t, err)
	return rules
}

const versioned = `domain: d
descriptors:
- key: user_id
  rate_limit: {unit: month, requests_per_unit: 5, name: n}
  descriptors:
  - {key: action, value: login, rate_limit: {unit: minute, requests_per_unit: 5, penalty: {after: 3, within: 1m, for: 1h}}}
  - {key: action, values: [a, b], rate_limits: [{unit: minute, requests_per_unit: 5}, {unit: day, requests_per_unit: 50}]}
- {key: ip, cidr: [10.0.0.0/8], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1, algorithm: funnel}, metadata: {a: {b: 1, c: 2}}}
- {key: path, value: /a*, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: /b*, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: path, value: /b/exempt}
- {key: other, rate_limit: {unlimited: true}}
`

func TestVersionIgnoresChangesWithoutEffect(t *testing.T) {
	want := parseWith(t, rulesfile.Options{}, versioned).Version()
	if !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(want) {
		t.Fatalf("version %q", want)
	}
	head, lines, _ := strings.Cut(versioned, "descriptors:\n")
	var parts []string // the descriptors at the top
	for line := range strings.Lines(lines) {
		if strings.HasPrefix(line, "- ") {
			parts = append(parts, "")
		}
		parts[len(parts)-1] += line
	}
	merge := rulesfile.Options{MergeDomains: true}
	file := func(parts ...string) string { return head + "descriptors:\n" + strings.Join(parts, "") }
	for name, rules := range map[string]*descriptors.Rules{
		"again":             parseWith(t, rulesfile.Options{}, versioned),
		"merged by option":  parseWith(t, merge, versioned),
		"comments":          parseWith(t, rulesfile.Options{}, "# why\n\n"+strings.ReplaceAll(versioned, "\n", " # x\n\n")),
		"two files":         parseWith(t, merge, file(parts[:3]...), file(parts[3:]...)),
		"order of exact":    parseWith(t, rulesfile.Options{}, file(parts[5], parts[1], parts[2], parts[3], parts[4], parts[0])),
		"flags at defaults": parseWith(t, rulesfile.Options{}, strings.Replace(versioned, "unit: month", "unit_multiplier: 1, unit: MONTH", 1)),
		"default policy":    parseWith(t, rulesfile.Options{}, strings.Replace(versioned, "domain: d\n", "domain: d\non_store_error: error\n", 1)),
	} {
		if got := rules.Version(); got != want {
			t.Errorf("%s: version %s, want %s", name, got, want)
		}
	}
	const other = "domain: e\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]"
	if a, b := parseWith(t, rulesfile.Options{}, versioned, other), parseWith(t, rulesfile.Options{}, other, versioned); a.Version() != b.Version() {
		t.Errorf("the order of files changes the version: %s, %s", a.Version(), b.Version())
	}
	if (*descriptors.Rules)(nil).Version() != "" {
		t.Error("nil rules have a version")
	}
}

// Any two of these rules decide at least one request differently.
func TestVersionChangesWithMeaning(t *testing.T) {
	seen := map[string]string{}
	note := func(name string, rules *descriptors.Rules) {
		t.Helper()
		if other, twice := seen[rules.Version()]; twice {
			t.Errorf("%q and %q have the version %s", name, other, rules.Version())
		}
		seen[rules.Version()] = name
	}
	note("", parseWith(t, rulesfile.Options{}, versioned))
	note("calendar months", parseWith(t, rulesfile.Options{CalendarMonths: true}, versioned))
	overlay, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o.yaml", Data: []byte(
		"domain: d\ndescriptors: [{key: user_id, rate_limit: {algorithm: sliding_log}}]")})
	must.Succeed(t, err)
	// Only a limit in a request can get the domain's response, because the rule has its own.
	for _, status := range []string{"a", "b"} {
		note("on_deny of the domain: "+status, parseWith(t, rulesfile.Options{}, "domain: d\non_deny: {body: "+status+"}\n"+
			"descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, on_deny: {body: own}}}]"))
	}
	note("overlay", parseWith(t, rulesfile.Options{Overlay: overlay}, versioned))
	for _, change := range []string{
		"domain: d > domain: e", "domain: d > domain: d\non_store_error: allow", "key: user_id > key: user", "value: login > value: log_in",
		"value: login > value: log*", "values: [a, b] > values: [a, b, c]", "values: [a, b] > values: [b, a]", "10.0.0.0/8 > 10.0.0.0/9",
		"share_threshold: true > share_threshold: false", "share_threshold: true > value_to_metric: true, share_threshold: true",
		"share_threshold: true > shadow_mode: true, share_threshold: true", "share_threshold: true > quota_mode: true, share_threshold: true",
		"share_threshold: true > detailed_metric: true, share_threshold: true", "c: 2 > c: 3", "c: 2 > c: '2'", "unit: month > unit: year",
		"unit: month > unit_multiplier: 2, unit: month", "name: n > name: m", "name: n > replaces: [{name: x}], name: n", "for: 1h > for: 2h",
		"requests_per_unit: 50 > requests_per_unit: 51", "algorithm: funnel > algorithm: funnel, capacity: 3",
		"algorithm: funnel > algorithm: sliding_log", "algorithm: funnel > algorithm: funnel, count_denied: true",
		"algorithm: funnel > algorithm: funnel, on_store_error: deny", "value: /a* > value: /c*",
		"unlimited: true > unit: day, requests_per_unit: 1", "/b/exempt > /b/free", "- {key: path, value: /b/exempt}\n > ",
		"action, value: login > action, values: [login]", "domain: d > domain: d\non_deny: {problem: true}",
		"algorithm: funnel > algorithm: funnel, on_deny: {body: x}", "algorithm: funnel > algorithm: funnel, on_deny: {body: y}",
		"algorithm: funnel > algorithm: funnel, on_deny: {body: x, content_type: text/html}",
		"algorithm: funnel > algorithm: funnel, on_deny: {headers: {a: x}}", "algorithm: funnel > algorithm: funnel, on_deny: {headers: {a: y}}",
	} {
		from, to, _ := strings.Cut(change, " > ")
		if !strings.Contains(versioned, from) {
			t.Fatalf("%q is not in the rules", from)
		}
		note(change, parseWith(t, rulesfile.Options{}, strings.Replace(versioned, from, to, 1)))
	}
	a, b := "- {key: path, value: /a*, rate_limit: {unit: day, requests_per_unit: 1}}\n", "- {key: path, value: /b*, rate_limit: {unit: day, requests_per_unit: 2}}\n"
	note("order of wildcards", parseWith(t, rulesfile.Options{}, strings.Replace(versioned, a+b, b+a, 1)))
}

// Receipts and logs outlive a process, so the hash of a limit and the version of rules stay the
// same in later versions of Weir.
func TestHashAndVersionAreStable(t *testing.T) {
	rules := parseWith(t, rulesfile.Options{}, versioned)
	if got, want := rules.Version(), "f321465f135e4772"; got != want {
		t.Errorf("version %s, want %s", got, want)
	}
	if got, want := rules.Match("d", entries("user_id=1 action=a")).LimitHash(1), uint64(0x233773d9648e66dd); got != want {
		t.Errorf("hash %016x, want %016x", got, want)
	}
}

func TestHashIdentifiesLimit(t *testing.T) {
	rules := parseWith(t, rulesfile.Options{}, versioned, strings.Replace(versioned, "domain: d", "domain: e", 1))
	seen := map[uint64]bool{}
	for r := range rules.All() {
		for i := range max(1, len(r.Limits)) {
			hash := r.LimitHash(i)
			if seen[hash] {
				t.Errorf("%s of %s: two limits have the hash %016x", r.Name, r.Domain, hash)
			}
			seen[hash] = true
			if found, j := rules.LimitByHash(hash); found != r || j != i {
				t.Errorf("%016x: found limit %d of %v, want %d of %s", hash, j, found, i, r.Name)
			}
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d limits, want 16", len(seen))
	}
	if r, i := rules.LimitByHash(1); r != nil || i != 0 {
		t.Errorf("found %s for an unknown hash", r.Name)
	}
	hash := func(text, request string, i int) uint64 {
		return rulesfiletest.Parse(t, text).Match("d", entries(request)).LimitHash(i)
	}
	for _, tt := range []struct {
		name, from, to, request string
		same                    bool
	}{
		{"numbers", "requests_per_unit: 5,", "requests_per_unit: 6,", "user_id=1 action=login", true},
		{"algorithm", "algorithm: funnel", "algorithm: sliding_log", "ip=10.0.0.1", true},
		{"position", "descriptors:\n-", "descriptors:\n- {key: new, rate_limit: {unlimited: true}}\n-", "user_id=1", true},
		{"name", "name: n", "name: m", "user_id=1", false},
		{"domain", "domain: d", "domain: d\non_store_error: allow", "user_id=1", true},
		{"matching", "value: login", "value: login*", "user_id=1 action=login", false},
	} {
		changed := strings.Replace(versioned, tt.from, tt.to, 1)
		if changed == versioned {
			t.Fatalf("%q is not in the rules", tt.from)
		}
		if a, b := hash(versioned, tt.request, 0), hash(changed, tt.request, 0); (a == b) != tt.same {
			t.Errorf("a change of %s: hashes %016x and %016x", tt.name, a, b)
		}
	}
	const twins = "domain: d\ndescriptors: [{key: k, rate_limits: [{unit: day, requests_per_unit: 1, name: n}, {unit: hour, requests_per_unit: 1, name: n}]}]"
	if hash(twins, "k=1", 0) == hash(twins, "k=1", 1) {
		t.Error("two limits of one name have one hash")
	}
}

func TestRuleSourceNamesFileAndLine(t *testing.T) {
	overlay, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o.yaml", Data: []byte(
		"domain: d\ndescriptors:\n- key: k\n  rate_limit: {algorithm: funnel}\n")})
	must.Succeed(t, err)
	rules := parseWith(t, rulesfile.Options{Overlay: overlay, MergeDomains: true}, `# a comment
domain: d
descriptors:

- key: k
  rate_limit: {unit: day, requests_per_unit: 1}
  descriptors: &below
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
- key: l
  descriptors: *below
`, "domain: d\ndescriptors: [{key: m, rate_limit: {unlimited: true}}]")
	for request, want := range map[string]string{"k=1": "a.yaml:5 o.yaml:4", "k=1 a=1": "a.yaml:8 ", "l=1 a=1": "a.yaml:8 ", "m=1": "b.yaml:2 ", "x=1": " "} {
		r := rules.Match("d", entries(request))
		if got := r.Source() + " " + r.OverlaySource(); got != want {
			t.Errorf("%s: source %q, want %q", request, got, want)
		}
	}
	if r := new(descriptors.Rule); r.Source() != "" || r.OverlaySource() != "" {
		t.Error("a rule from nowhere has a source")
	}
}
