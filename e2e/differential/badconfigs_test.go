package differential

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

const (
	loads = "" // the wanted text of a file without faults
	begin = "domain: d\ndescriptors:\n"
	plain = "plain words, with the remedy"
)

// configs are rules files, most of them with a fault. want is the error text of
// envoyproxy/ratelimit, which Weir's text must contain. If the two differ, ours or theirs is set,
// and why gives the reason.
var configs = []struct {
	name, text   string
	want         string
	ours, theirs string // "" means want; "loads" means that the file loads
	why          string
	env          string
	more         string // another file
}{
	{name: "broken YAML", text: "domain: d\ndescriptors: [", want: "error loading config file: yaml: line ", ours: "2:14: '[' is not closed: add ']'", why: plain},
	{name: "a list at the top", text: "- a\n", want: "error loading config file: ", ours: "1:1: the file is a list, not a map: begin with", why: plain},
	{name: "negative requests", text: begin + "  - {key: k, rate_limit: {unit: day, requests_per_unit: -1}}\n",
		want: "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!int `-1` into uint32", ours: "'requests_per_unit' is -1: want a whole number", why: plain},
	{name: "requests above 52 bits", // Weir takes more than 32
		text: begin + "  - {key: k, rate_limit: {unit: day, requests_per_unit: 4503599627370496}}\n",
		want: "error loading config file: yaml: unmarshal errors:\n" +
			"  line 3: cannot unmarshal !!int `4503599...` into uint32", ours: "'requests_per_unit' is 4503599627370496: want a whole number", why: plain},
	{name: "requests in words", text: begin + "  - {key: k, rate_limit: {unit: day, requests_per_unit: many}}\n",
		want: "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `many` into uint32", ours: "'requests_per_unit' is the text 'many': want a whole number", why: plain},
	{name: "a number as key", text: "domain: d\n0.25: x\n", want: "config error, key is not of type string: 0.25", ours: "the key 0.25 is not a text", why: plain},
	{name: "an unknown key",
		text: begin + "  - {key: k, ratelimit: {unit: day}}\n", want: "config error, unknown key 'ratelimit'", ours: "unknown key 'ratelimit' in a descriptor: did you mean 'rate_limit'?", why: plain},
	{name: "an anchor's own key", text: "x-anchors: 1\n" + begin, want: "config error, unknown key 'x-anchors'", ours: "unknown key 'x-anchors' in the file", why: plain},
	{name: "a list of text", text: "domain: d\ndescriptors: [a]\n",
		want: "config error, yaml file contains list of type other than map: a", ours: "an item of 'descriptors' is the text 'a', not a map", why: plain},
	{name: "a fraction as value", text: begin + "  - {key: k, value: 1.5}\n", want: "error checking config", ours: "'value' is the number 1.5, not a text: quote it: '1.5'", why: plain},
	{name: "no domain", text: "descriptors: [{key: k}]\n", want: "config file cannot have empty domain"},
	{name: "an empty file", text: "", want: "config file cannot have empty domain"},
	{name: "an empty domain", text: "domain: ''\n", want: "config file cannot have empty domain"},
	{name: "a domain twice", text: "domain: d\n", more: "domain: d\n", want: "duplicate domain 'd' in config file"},
	{name: "no key", text: begin + "  - {value: v}\n", want: "descriptor has empty key"},
	{name: "an empty key", text: begin + "  - {key: '', value: v}\n", want: "descriptor has empty key"},
	{name: "a key twice",
		text: begin + "  - {key: k}\n  - {key: k}\n", want: "duplicate descriptor composite key 'd.k'"},
	{name: "a value twice", text: begin + "  - {key: k, value: v}\n  - {key: k, value: v}\n",
		want: "duplicate descriptor composite key 'd.k_v'"},
	{name: "a value twice, deeper",
		text: begin + "  - {key: k, value: v, descriptors: [{key: x, value: '1'}, {key: x, value: '1'}]}\n",
		want: "duplicate descriptor composite key 'd.k_v.x_1'"},
	{name: "the same text from other pairs", text: begin + "  - {key: a, value: b}\n  - {key: a_b}\n",
		want: "duplicate descriptor composite key 'd.a_b'", ours: "loads", why: "Weir matches keys and values, not joined text"},
	{name: "no unit",
		text: begin + "  - {key: k, rate_limit: {requests_per_unit: 1}}\n", want: "invalid rate limit unit ''"},
	{name: "a bad unit", text: begin + "  - {key: k, rate_limit: {unit: foo, requests_per_unit: 1}}\n",
		want: "invalid rate limit unit 'foo'"},
	{name: "the unknown unit", text: begin + "  - {key: k, rate_limit: {unit: unknown, requests_per_unit: 1}}\n",
		want: "invalid rate limit unit 'unknown'"},
	{name: "unlimited with a unit",
		text: begin + "  - {key: k, rate_limit: {unlimited: true, unit: day}}\n",
		want: "should not specify rate limit unit when unlimited"},
	{name: "an empty replaces",
		text: begin + "  - {key: k, rate_limit: {unit: day, replaces: [{name: ''}]}}\n",
		want: "should not have an empty replaces entry"},
	{name: "replaces itself",
		text: begin + "  - {key: k, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}\n",
		want: "replaces should not contain name of same descriptor"},
	{name: "share_threshold without a star",
		text:   begin + "  - {key: k, value: v, share_threshold: true}\n",
		want:   "share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'",
		theirs: "share_threshold can only be used with wildcard values (ending with '*'), but found key 'k_v'",
		why:    "July's text"},
	{name: "share_threshold with a star inside",
		text:   begin + "  - {key: k, value: v*w, share_threshold: true}\n",
		want:   loads,
		theirs: "share_threshold can only be used with wildcard values (ending with '*'), but found key 'k_v*w'",
		why:    "July: wildcards anywhere"},
	{name: "metadata",
		text: begin + "  - {key: k, rate_limit: {unit: day}, metadata: {a: {b: [1, x]}}}\n",
		want: loads, theirs: "config error, unknown key 'metadata'", why: "July has metadata"},
	{name: "a key twice in merged domains",
		text: begin + "  - {key: k}\n", more: begin + "  - {key: k}\n",
		env: "MERGE_DOMAIN_CONFIG=true", want: "duplicate descriptor composite key 'd.k'"},

	{name: "a domain twice, merged", text: begin + "  - {key: k}\n", more: begin + "  - {key: l}\n",
		env: "MERGE_DOMAIN_CONFIG=true", want: loads},
	{name: "a key of a map twice", text: begin + "  - {key: k, value: a, value: b}\n", want: loads},
	{name: "keys in strange places", text: "domain: d\nunit: day\ndescriptors: [{key: k, domain: x}]\n", want: loads},
	{name: "a second document", text: begin + "  - {key: k}\n---\ndomain: [\n", want: loads},
	{name: "a header and anchors",
		text: "---\n" + begin + "  - &a {key: k, rate_limit: &l {unit: day}}\n  - {<<: *a, key: m}\n", want: loads},
	{name: "numbers and truths as values",
		text: begin + "  - {key: k, value: 1}\n  - {key: k, value: true}\n", want: loads},
	{name: "nothing in it", text: "domain: d\ndescriptors:\n", want: loads},
	{name: "units in capitals",
		text: begin + "  - {key: k, rate_limit: {unit: WeeK, requests_per_unit: 0}}\n", want: loads},
	{name: "unlimited with no real unit",
		text: begin + "  - {key: k, rate_limit: {unlimited: true, unit: foo, requests_per_unit: 3}}\n", want: loads},
	{name: "replaces nobody",
		text: begin + "  - {key: k, rate_limit: {unit: day, replaces: [{name: nobody}]}}\n", want: loads},
	{name: "modes without a limit",
		text: begin + "  - {key: k, shadow_mode: true, quota_mode: true, detailed_metric: true}\n",
		want: loads},
	{name: "unlimited with children",
		text: begin + "  - {key: k, rate_limit: {unlimited: true}, descriptors: [{key: l}]}\n",
		want: loads},
	{name: "null where a limit stands", text: begin + "  - {key: k, value: null, rate_limit: null}\n", want: loads},
}

// `weir check` and envoyproxy/ratelimit must give the texts in configs, and Weir must load every
// file that envoyproxy/ratelimit loads.
func TestRulesFileErrorsMatchRatelimit(t *testing.T) {
	t.Parallel()
	binary := weirBinary(t)
	for _, c := range configs {
		files := []file{{"a.yaml", c.text}}
		if c.more != "" {
			files = append(files, file{"b.yaml", c.more})
		}
		t.Run("weir/"+c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range files {
				must.Write(t, filepath.Join(dir, f.name), f.text)
			}
			cmd := exec.Command(binary, "check", dir)
			cmd.Env = append(os.Environ(), c.env)
			out, err := cmd.CombinedOutput()
			// The text output has the remedy on a line of its own, below an excerpt.
			said := regexp.MustCompile(`fault: (.*) \[.*\](?:\n .*\|.*)*\n +=`).ReplaceAllString(string(out), "$1:")
			judge(t, expected(c.want, c.ours), said, err == nil)
		})
		t.Run("envoyproxy-ratelimit/"+c.name, func(t *testing.T) {
			t.Parallel()
			said := firstLoad(t, harness.MustFindRatelimit(t), files, c.env)
			judge(t, expected(c.want, c.theirs), said, strings.Contains(said, loaded))
		})
	}
}

func expected(want, own string) string {
	switch own {
	case "":
		return want
	case "loads":
		return loads
	default:
		return own
	}
}

func judge(t *testing.T, want, said string, loaded bool) {
	t.Helper()
	switch {
	case want == loads && !loaded:
		t.Errorf("it does not load: %s", said)
	case want != loads && loaded:
		t.Errorf("it loads, want %s", want)
	case !strings.Contains(said, want):
		t.Errorf("said %s\nwant %s", said, want)
	}
}

const loaded = "Successfully loaded new configuration"

// firstLoad returns the log of envoyproxy/ratelimit after its first attempt to load files.
func firstLoad(t *testing.T, binary string, files []file, env string) string {
	t.Helper()
	s := startSide(t, binary, files, "LOG_LEVEL=info", env)
	log := ""
	must.Until(t, "envoyproxy/ratelimit logs a load or an error", func() bool {
		log = s.Log()
		return strings.Contains(log, loaded) || strings.Contains(log, "Error loading new configuration")
	})
	return unquoted.Replace(log) // the log quotes texts
}

var unquoted = strings.NewReplacer(`\n`, "\n", `\"`, `"`, "\\`", "`")
