package envoygen

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/envoyactions"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

// optionsOf returns options with arguments such as "--from user=method".
func optionsOf(arguments ...string) Options {
	o := Options{Service: "127.0.0.1:8081", Upstream: "shop.example:8080"}
	for _, a := range arguments {
		flag, value, _ := strings.Cut(a, " ")
		switch flag {
		case "--from":
			o.From = append(o.From, value)
		case "--hits":
			o.Hits = append(o.Hits, value)
		case "--cost":
			o.Cost = append(o.Cost, value)
		case "--route":
			o.Routes = append(o.Routes, value)
		case "--domain":
			o.Domain = value
		}
	}
	return o
}

// oneDescriptor returns rules of one descriptor.
func oneDescriptor(descriptor string) string {
	return "domain: d\ndescriptors:\n  - " + descriptor + "\n    rate_limit: {unit: minute, requests_per_unit: 5}\n"
}

// A rule that Envoy cannot be configured for is named with its line, the cause and the remedy.
func TestProblemsNameRuleAndRemedy(t *testing.T) {
	lease := "domain: d\ndescriptors:\n  - key: user\n    descriptors:\n      - key: lease\n        rate_limit: "
	reserve := lease + "{unit: day, requests_per_unit: 9, reserve: {ttl: 60s}}\n"
	slots := lease + "{algorithm: concurrency, concurrent_requests: 2}\n"
	replaced := "domain: d\ndescriptors:\n  - key: tenant\n    rate_limit: {name: std, unit: day, requests_per_unit: 9}\n" +
		"  - key: job\n    value: batch\n    rate_limit: {replaces: [{name: std}], "
	batch := replaced + "unit: day, requests_per_unit: 9}\n"
	const notAtEnd = "rules.yaml:5: this rule replaces that of rules.yaml:3, which Envoy charges at the end of a request, and Envoy does not send job then: " +
		"set --cost 'job=...' too"
	sliding := "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {algorithm: sliding_log, unit: day, requests_per_unit: 9}\n"
	for _, c := range []struct {
		rules string
		o     Options
		want  string
	}{
		{oneDescriptor("key: 'pa*'"), optionsOf(), `rules.yaml:3: the key "pa*" has a wildcard`},
		{oneDescriptor("key: header_match\n    value: a"), optionsOf(), "rules.yaml:3: the rules do not say when Envoy sends the key header_match: set --from 'header_match=match:VALUE"},
		{oneDescriptor("key: a/b"), optionsOf(), `the key "a/b" is not the name of a header: set --from`},
		{oneDescriptor("key: generic_key"), optionsOf(), "no route sends generic_key=VALUE: add it to --route"},
		{oneDescriptor("key: generic_key\n    value: a\n    rate_limit: {unit: day, requests_per_unit: 9}\n  - key: generic_key\n    value: b"), optionsOf(), "generic_key has the values a, b, and the rules do not say which route"},
		{oneDescriptor("key: generic_key\n    value: a"), optionsOf("--route /x:generic_key=b"), "rules.yaml:3: no route sends generic_key=a"},
		{oneDescriptor("key: k\n    values: [a, b]\n    share_threshold: true"), optionsOf("--from k=constant"), "Envoy sends k with the values a and b for each request, and share_threshold counts both"},
		{oneDescriptor("key: remote_address\n    value: localhost"), optionsOf(), `never "localhost"`},
		{oneDescriptor("key: masked_remote_address\n    cidr: [10.0.0.0/8]"), optionsOf(), "cidr matches only addresses: write the key remote_address"},
		{oneDescriptor("key: masked_remote_address\n    values: [10.0.0.0/8, 10.1.0.0/16]"), optionsOf(), "envoy sends one prefix of an address, of length 8, and a rule has 10.1.0.0/16"},
		{oneDescriptor("key: masked_remote_address\n    value: 10.0.0.0/8\n    rate_limit: {unit: day, requests_per_unit: 9}\n  - key: masked_remote_address\n    value: 10.1.0.0/16"), optionsOf(), "envoy sends one prefix of an address, of length 8, and a rule has 10.1.0.0/16"},
		{oneDescriptor("key: masked_remote_address\n    value: 10.0.0.0/8\n  - key: masked_remote_address\n    value: 10.1.0.0/16"), optionsOf(), "envoy sends one prefix of an address, of length"},
		{oneDescriptor("key: masked_remote_address\n    cidr: [10.0.0.0/8]\n  - key: masked_remote_address"), optionsOf(), "cidr matches only addresses: write the key remote_address"},
		{oneDescriptor("key: Masked_Remote_Address"), optionsOf(), "rules.yaml:3: envoy sends the masked_remote_address only under the key masked_remote_address"},
		{oneDescriptor("key: SOURCE_CLUSTER"), optionsOf(), "rules.yaml:3: envoy sends the source_cluster only under the key source_cluster"},
		{oneDescriptor("key: user"), optionsOf("--from user=masked_remote_address:24/64"), "envoy sends the masked_remote_address only under the key masked_remote_address: use that key in the rule, or another source"},
		{oneDescriptor("key: path\n    value: /a?b=c"), optionsOf(), `never "/a?b=c"`},
		{oneDescriptor("key: path\n    value: /a//b"), optionsOf(), `never "/a//b"`},
		{oneDescriptor("key: path\n    value: /a%2Fb"), optionsOf(), `never "/a%2Fb"`},
		{oneDescriptor("key: path\n    value: /café"), optionsOf(), `never "/café"`},
		{oneDescriptor("key: path\n    value: //"), optionsOf(), `never "//"`},
		{oneDescriptor("key: path\n    value: /%7Ejoe"), optionsOf(), `never "/%7Ejoe"`},
		{oneDescriptor("key: path\n    value: /a%2eb"), optionsOf(), `never "/a%2eb"`},
		{oneDescriptor("key: path\n    value: /%61"), optionsOf(), `never "/%61"`},
		{oneDescriptor("key: generic_key\n    value: \"a\\u0085b\""), optionsOf(), "rules.yaml:3: Envoy reads the character U+0085 in its configuration as an invalid byte: remove it from generic_key"},
		{oneDescriptor("key: \"a\\u0085\""), optionsOf("--from a\u0085=method"), "Envoy reads the character U+0085"},
		{oneDescriptor("key: path\n    value: /a/../b/"), optionsOf(), `never "/a/../b/"`},
		{oneDescriptor("key: k"), optionsOf("--from k=status:401"), "the rule names no exact value"},
		{oneDescriptor("key: k\n    value: a"), optionsOf("--from k=match:b=x-k:1"), `--from does not say when k is "a"`},
		{reserve, optionsOf(), "rules.yaml:5: reserve needs the estimate and the actual cost, which the rules do not have: set --hits 'user.lease=100' and --cost"},
		{reserve, optionsOf("--hits user.lease=5"), "reserve needs the estimate and the actual cost"},
		{reserve, optionsOf("--hits user.lease=5", "--cost user.lease=%BYTES_SENT%", "--from user=status:200"), "names no exact value"},
		{batch, optionsOf("--cost tenant=%BYTES_SENT%"), notAtEnd},
		{replaced + "unlimited: true}\n", optionsOf("--cost tenant=%BYTES_SENT%"), notAtEnd},
		{strings.ReplaceAll(replaced, "    value: batch\n", "") + "algorithm: concurrency, concurrent_requests: 2}\n", optionsOf("--cost tenant=%BYTES_SENT%"),
			"and at the end a rule with leases replaces nothing: move replaces to a rule without leases"},
		{slots, optionsOf("--cost user.lease=5"), "concurrency has no cost at the end"},
		{slots, optionsOf("--from lease=method"), "it comes from a header, and not from method: write --from 'lease=header:NAME'"},
		{sliding, optionsOf("--cost user=%BYTES_SENT%"), "this limit does not count a cost that exceeds it"},
		{oneDescriptor("key: user"), optionsOf("--cost user=%BYTES_SENT%", "--hits user=3"), "remove --hits 'user=3'"},
		{oneDescriptor("key: user"), optionsOf("--cost usr=%BYTES_SENT%"), "no rule has the keys usr, which --cost names; did you mean user?"},
		{oneDescriptor("key: a.b"), optionsOf("--from a.b=method", "--cost a.b=%BYTES_SENT%"), `no rule has the keys a.b, which --cost names; did you mean a\.b?`},
		{oneDescriptor("key: user"), optionsOf("--from usr=method"), "no rule has the key usr, which --from or --route names; did you mean user?"},
		{oneDescriptor("key: user"), optionsOf("--domain e"), "--domain e: the rules have no such domain"},
		{oneDescriptor("key: user"), optionsOf("--from user"), "write KEY=SOURCE"},
		{oneDescriptor("key: user"), optionsOf("--from user=headr:x"), "write header:NAME, path, method"},
		{oneDescriptor("key: 'a b'"), optionsOf(), `the key "a b" is not the name of a header: set --from 'a b=SOURCE'`},
		{oneDescriptor("key: user"), optionsOf("--from user=header:a b"), `"a b" is not the name of a header: write header:NAME, such as header:x-user-id`},
		{oneDescriptor("key: user"), optionsOf("--from user=query:"), "query needs a text after the colon: write query:TEXT"},
		{oneDescriptor("key: user"), optionsOf("--from user=metadata:a"), "write metadata:NAMESPACE:KEY.PATH"},
		{oneDescriptor("key: user"), optionsOf("--from user=metadata:a:b..c"), "write metadata:NAMESPACE:KEY.PATH"},
		{oneDescriptor("key: user"), optionsOf("--from masked_remote_address=masked_remote_address:40/1"), "write masked_remote_address:V4/V6"},
		{oneDescriptor("key: user"), optionsOf("--from user=method:x"), "method takes no text after a colon: write method"},
		{oneDescriptor("key: masked_remote_address\n    value: x"), optionsOf(), `which is never "x": write such a prefix`},
		{oneDescriptor("key: user"), optionsOf("--from user=source_cluster"), "only under the key source_cluster: use that key in the rule, or another source"},
		{oneDescriptor("key: user"), optionsOf("--from user=match:a"), "write match:VALUE=HEADER:TEXT"},
		{oneDescriptor("key: user"), optionsOf("--from user=status:600"), "write status:CODES"},
		{oneDescriptor("key: user"), optionsOf("--from user=method", "--from user=path"), "--from names the key user twice: remove one"},
		{oneDescriptor("key: user"), optionsOf("--from user=status:a=401", "--from user=status:a=403"), `the value "a" is given twice: remove one`},
		{oneDescriptor("key: user"), optionsOf("--from user=status:a=5xx", "--from user=status:b=401,503"), "an earlier --from of this key has the status 503 too: remove it from one of them"},
		{oneDescriptor("key: user"), optionsOf("--from user=status:503", "--from user=status:b=499-505"), "an earlier --from of this key has the status 503 too"},
		{oneDescriptor("key: user"), optionsOf("--from user=status:404-400"), "write status:CODES"},
		{oneDescriptor("key: user"), optionsOf("--hits user=-1"), "want a number of at most 1000000000, or one command"},
		{oneDescriptor("key: user"), optionsOf("--cost user=%A% %B%"), "or one command"},
		{oneDescriptor("key: user"), optionsOf("--cost user=2000000000"), "want a number of at most"},
		{oneDescriptor("key: user"), optionsOf("--hits user"), "write KEYS=HITS"},
		{oneDescriptor("key: user"), optionsOf("--hits user=1", "--hits user=2"), "--hits names user twice: remove one"},
		{oneDescriptor("key: user"), optionsOf("--route /x"), "write PREFIX:KEY=VALUE"},
		{oneDescriptor("key: user"), optionsOf("--route /x:user"), "write KEY=VALUE after the colon"},
		{oneDescriptor("key: user"), optionsOf("--route /x:user=1", "--route /x:user=2"), "the route is given twice: give it once, with its pairs joined by commas"},
		{oneDescriptor("key: user"), optionsOf("--route /x:user=1,user=2"), "the key user is given twice: remove one, because a route sends one value"},
		{oneDescriptor("key: user"), optionsOf("--from user=method", "--route /x:user=1"), "--from has another source of the key user: remove that --from"},
		{oneDescriptor("key: user"), Options{Service: "weir"}, `--service "weir": want host:port`},
		{oneDescriptor("key: user"), Options{Service: "weir:1", Upstream: "a:0"}, `--upstream "a:0": want host:port`},
		{oneDescriptor("key: user"), Options{Service: "weir:080"}, `--service "weir:080": want the port without leading zeros, such as 80`},
		{"domain: d\ndescriptors: []\n", optionsOf(), "the domain d has no rule: add descriptors with limits"},
		{slots + "  - key: user\n    value: x\n    descriptors:\n      - key: lease\n        rate_limit: {unit: day, requests_per_unit: 1}\n", optionsOf(), "only one of them has leases: give them different keys"},
	} {
		_, err := New(rulesfiletest.Parse(t, c.rules), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%+v\ngives %v, want %q", c.rules, c.o, err, c.want)
		}
	}
}

// A rule may replace the limits of another one if Envoy sends both or neither at the end of a
// request.
func TestRuleReplacesLimitsAtTheEndOfARequest(t *testing.T) {
	rules := rulesfiletest.Parse(t, "domain: d\ndescriptors:\n  - key: tenant\n    rate_limit: {name: std, unit: day, requests_per_unit: 9}\n"+
		"  - key: job\n    value: batch\n    rate_limit: {replaces: [{name: std}], unlimited: true}\n")
	for _, arguments := range [][]string{nil, {"--cost job=5"}, {"--cost tenant=%BYTES_SENT%", "--cost job=0"}} {
		if _, err := New(rules, optionsOf(arguments...)); err != nil {
			t.Errorf("%v: %v", arguments, err)
		}
	}
}

// Every assumption that the output rests on is a note.
func TestNotesNameAssumptions(t *testing.T) {
	for _, c := range []struct {
		rules string
		o     Options
		want  string
	}{
		{oneDescriptor("key: user"), optionsOf(), "user: the header x-user, because no --from names a source"},
		{oneDescriptor("key: peer\n    cidr: [10.0.0.0/8]"), optionsOf(), "rules.yaml:3: peer: the address of the client, because a rule has prefixes"},
		{oneDescriptor("key: user"), optionsOf("--from user=method", "--cost user=%BYTES_SENT%"), "rules.yaml:3: requests are denied once the usage exceeds 5; write peek: would_fit"},
		{"domain: d\ndescriptors:\n  - key: user\n    descriptors:\n      - key: lease\n        rate_limit: {algorithm: concurrency, concurrent_requests: 2}\n",
			optionsOf("--from user=method", "--from lease=header:x-id"), "no client may choose it"},
		{oneDescriptor("key: host\n    value: shop.example"), optionsOf(), "rules.yaml:3: host: a client chooses the case of the host and may add a port"},
		{oneDescriptor("key: user"), optionsOf("--from user=cel:request.method +"), "user: only Envoy checks the CEL expression"},
	} {
		config, err := New(rulesfiletest.Parse(t, c.rules), c.o)
		if err != nil {
			t.Errorf("%s: New: %v", c.rules, err)
			continue
		}
		if notes := Problems(config.Notes()).Error(); !strings.Contains(notes, c.want) {
			t.Errorf("%s: notes %q, want %q", c.rules, notes, c.want)
		}
	}
	config, err := New(rulesfiletest.Parse(t, oneDescriptor("key: method\n    value: GET")), optionsOf())
	if err != nil || len(config.Notes()) > 0 {
		t.Errorf("a method that Envoy sends: got notes %v, error %v, want neither", config.Notes(), err)
	}
}

// A dot in a key is escaped where a flag names keys, because the descriptor (a, b) has other hits
// than (a.b).
func TestKeysOfFlagsAreUnambiguous(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n  - key: a.b\n    rate_limit: {unit: day, requests_per_unit: 9}\n" +
		"  - key: a\n    descriptors:\n      - key: b\n        rate_limit: {unit: day, requests_per_unit: 9}\n"
	config, err := New(rulesfiletest.Parse(t, rules), optionsOf("--from a.b=method", "--hits a.b=2", `--hits a\.b=3`))
	must.Succeed(t, err)
	part, err := config.Part("route")
	must.Succeed(t, err)
	one, two := strings.Index(string(part), "number: 3"), strings.Index(string(part), "number: 2")
	if one < 0 || two < one || strings.Count(string(part), "hits_addend:") != 2 {
		t.Errorf("want 3 hits for (a.b) and then 2 for (a, b):\n%s", part)
	}
}

// examples returns the rules of the documentation and of the examples.
func examples(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	pages, err := filepath.Glob("../../../docs/recipes/*.md")
	must.Succeed(t, err)
	for _, path := range append(pages, "../../../docs/rules.md", "../../../docs/tutorial.md") {
		text := must.Read(t, path)
		for i, b := range regexp.MustCompile("(?ms)^```yaml(?: rules.yaml)?\n(domain:.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			all[fmt.Sprintf("%s %d", filepath.Base(path), i+1)] = b[1]
		}
	}
	for _, path := range []string{"../../../envoy/rules.yaml", "../../../deploy/k8s/base/rules.yaml"} {
		text := must.Read(t, path)
		all[path] = string(text)
	}
	return all
}

// Every rule of the documentation is met by a request through the output, or is a problem with a
// sentence.
func TestRequestsThroughOutputMeetEveryRule(t *testing.T) {
	all := examples(t)
	met, problems := 0, 0
	for name, text := range all {
		rules, err := rulesfile.Parse(rulesfile.File{Name: name, Data: []byte(text)})
		if err != nil {
			continue // an example of a mistake
		}
		config, err := New(rules, exampleOptions(text))
		var named Problems
		switch {
		case errors.As(err, &named):
			problems++
			t.Logf("%s: %v", name, err)
			continue
		case err != nil:
			t.Errorf("%s: got error %v, want none or named problems", name, err)
			continue
		}
		met += checkDescriptors(t, name, rules, config)
	}
	if met < 60 || problems > 4 {
		t.Errorf("%d rules met, %d files with problems", met, problems)
	}
}

// exampleOptions returns the arguments that an example needs beside its rules.
func exampleOptions(text string) Options {
	switch {
	case strings.Contains(text, "domain: soft_tokens\n"):
		return optionsOf("--from soft_limit=constant", "--hits soft_limit=0", "--hits tenant.lease=100", "--hits soft_tenant.lease=100",
			"--cost tenant.lease=%RESP(x-cost)%", "--cost soft_tenant.lease=%RESP(x-cost)%")
	case strings.Contains(text, "domain: tokens\n"), strings.Contains(text, "domain: llm\n"):
		return optionsOf("--hits tenant.lease=100", "--cost tenant.lease=%RESP(x-cost)%")
	case strings.Contains(text, "domain: login\n"):
		return optionsOf("--from outcome=status:401,403")
	}
	return optionsOf()
}

// checkDescriptors sends a request for each rule of each descriptor through the bootstrap, and
// returns their number.
func checkDescriptors(t *testing.T, name string, rules *descriptors.Rules, config *Config) (met int) {
	t.Helper()
	text, err := config.Bootstrap()
	if err != nil {
		t.Fatalf("%s: Bootstrap: %v", name, err)
	}
	envoy, err := envoyactions.Parse(name, text)
	if err != nil {
		t.Fatalf("%s: parse the bootstrap: %v\n%s", name, err, text)
	}
	for _, r := range config.routes {
		for _, d := range r.descriptors {
			for _, rule := range d.rules {
				request, want := requestFor(r, d, rule)
				derived, err := envoy.Derive(request)
				if err != nil {
					t.Fatalf("%s: derive: %v", name, err)
				}
				sent := slices.ContainsFunc(derived.RateLimits, func(l envoyactions.RateLimit) bool { return slices.Equal(l.Entries, entries(want)) })
				if got := rules.Match(config.domain, entries(want)); !sent || got != rule {
					t.Errorf("%s: %v meets %v, and the request %+v sends %+v", rule.Source(), want, got.Source(), request, derived.RateLimits)
				}
				met++
			}
		}
	}
	return met
}

func entries(all [][2]string) []descriptors.Entry {
	var out []descriptors.Entry
	for _, e := range all {
		out = append(out, descriptors.Entry{Key: e[0], Value: e[1]})
	}
	return out
}

// requestFor returns a request that meets a rule, and the entries of its descriptor.
func requestFor(r *route, d *descriptor, rule *descriptors.Rule) (*envoyactions.Request, [][2]string) {
	request := &envoyactions.Request{Method: "GET", Path: "/" + strings.TrimPrefix(r.match, "/"), RemoteAddress: netip.MustParseAddr("192.0.2.1"), Metadata: map[string]string{}}
	var want [][2]string
	for i, n := range rule.Path() {
		value := valueOf(&n, d.entries[i].source)
		if d.entries[i].value != "" {
			value = d.entries[i].value
		}
		switch source := d.entries[i].source; source.kind {
		case fromHeader, fromRequestID:
			request.Headers = append(request.Headers, envoyactions.Header{Name: source.arg, Value: value})
		case fromPath:
			request.Path = value + "?query=1"
		case fromMethod:
			request.Method = value
		case fromHost:
			request.Host = value
		case fromQuery:
			request.Path += "?" + source.arg + "=" + value
		case fromMetadata:
			request.Metadata[source.arg] = value
		case fromAddress:
			request.RemoteAddress = netip.MustParseAddr(value)
		case fromMasked:
			request.RemoteAddress = netip.MustParsePrefix(value).Addr()
		case fromMatch:
			when := source.conditions[value]
			request.Headers = append(request.Headers, envoyactions.Header{Name: when.header, Value: when.text})
		case fromDestination:
			value = "backend"
		}
		want = append(want, [2]string{n.Key, value})
	}
	return request, want
}

// valueOf returns a value that a node matches.
func valueOf(n *descriptors.NodeSpec, s *source) string {
	switch {
	case len(n.Prefixes) > 0:
		return n.Prefixes[0].Addr().Next().String()
	case len(n.Values) > 0:
		return n.Values[0]
	case n.Value != "":
		return strings.ReplaceAll(n.Value, "*", "any")
	case s.kind == fromAddress:
		return "198.18.0.1"
	case s.kind == fromMasked:
		return "2001:db8::/64"
	case s.kind == fromPath:
		return "/any"
	}
	return "any"
}

// Every source makes the action that sends the key, and its value as the rules have it.
func TestEverySourceSendsItsKey(t *testing.T) {
	for _, c := range []struct{ descriptor, from string }{
		{"key: user", "--from user=header:x-name"}, {"key: k\n    value: /a", "--from k=path"}, {"key: k", "--from k=method"},
		{"key: k\n    value: shop.example", "--from k=host"}, {"key: k", "--from k=query:q"}, {"key: k", "--from k=metadata:a.b:c.d"},
		{"key: k", "--from k=remote_address"}, {"key: remote_address", "--from remote_address=remote_address"},
		{"key: masked_remote_address\n    value: 10.0.0.0/8", "--from masked_remote_address=masked_remote_address"},
		{"key: masked_remote_address\n    value: 0.0.0.0/0", ""}, {"key: masked_remote_address\n    value: 0.0.0.0/0", "--from masked_remote_address=masked_remote_address:0/0"},
		{"key: masked_remote_address\n    rate_limit: {unit: day, requests_per_unit: 9}\n  - key: masked_remote_address\n    value: 10.0.0.0/8", ""},
		{"key: peer\n    rate_limit: {unit: day, requests_per_unit: 9}\n  - key: peer\n    cidr: [10.0.0.0/8]", ""},
		{"key: k\n    values: [a]\n    share_threshold: true\n    descriptors:\n      - key: j\n        values: [b]\n        share_threshold: true\n        rate_limit: {unit: day, requests_per_unit: 9}\n  - key: l", "--route :k=a,j=b"},
		{"key: k\n    values: [a, b]", "--from k=constant"}, {"key: k\n    value: a", "--from k=match:a=x-k:1"},
		{"key: k\n    value: a", "--from k=status:failed=5xx,400-404"}, {"key: destination_cluster\n    value: backend", "--from destination_cluster=destination_cluster"},
		{"key: k\n    value: a", "--route /p:k=a"}, {"key: k", "--route /p:k=a"},
	} {
		o := optionsOf(c.from)
		if strings.Contains(c.from, "failed") {
			o = optionsOf("--from k=status:a=5xx,400-404")
		}
		rules := rulesfiletest.Parse(t, oneDescriptor(c.descriptor))
		config, err := New(rules, o)
		if err != nil {
			t.Errorf("from %s: New: %v", c.from, err)
			continue
		}
		if checkDescriptors(t, c.from, rules, config) == 0 {
			t.Errorf("%s: no descriptor", c.from)
		}
	}
}

// The outcome of a response is one expression, with a value that no rule has for every other
// status.
func TestStatusIsOneExpressionAtTheEnd(t *testing.T) {
	rules := rulesfiletest.Parse(t, "domain: d\ndescriptors:\n  - key: k\n    values: [bad, other]\n    rate_limit: {unit: day, requests_per_unit: 9}\n")
	config, err := New(rules, optionsOf("--from k=status:bad=5xx,404", "--from k=status:other=401-403"))
	must.Succeed(t, err)
	text, err := config.Part("route")
	must.Succeed(t, err)
	const want = `response.code >= 500 && response.code <= 599 || response.code == 404 ? "bad" : response.code >= 401 && response.code <= 403 ? "other" : "other_"`
	if got := strings.Count(string(text), want); got != 1 || strings.Count(string(text), "number: 0") != 2 {
		t.Errorf("%d expressions in\n%s", got, text)
	}
}

// part returns a part of the output without comments.
func part(t *testing.T, name, rules string, o Options) string {
	t.Helper()
	config, err := New(rulesfiletest.Parse(t, rules), o)
	must.Succeed(t, err)
	text, err := config.Bootstrap()
	if name != "" {
		text, err = config.Part(name)
	}
	must.Succeed(t, err)
	return regexp.MustCompile(`(?m)^ *#.*\n`).ReplaceAllString(string(text), "")
}

// A limit with leases takes a slot under an id that a client cannot choose, and releases it at the
// end of the request. A reservation is settled to the cost. A cost without a reservation is a peek
// first.
func TestCallsAtTheEndOfARequest(t *testing.T) {
	lease := "domain: d\ndescriptors:\n  - key: method\n    descriptors:\n      - key: lease\n        rate_limit: "
	const entries = `          - actions:
              - request_headers: {header_name: ':method', descriptor_key: method}
`
	const id = "              - request_headers: {header_name: x-weir-lease, descriptor_key: lease}\n"
	for _, c := range []struct {
		name, rules, want string
		o                 Options
	}{
		{"concurrency", lease + "{algorithm: concurrency, concurrent_requests: 2}\n",
			entries + id + entries + id + "              - generic_key: {descriptor_value: \"1\", descriptor_key: release}\n            apply_on_stream_done: true\n", optionsOf()},
		{"reserve", lease + "{unit: day, requests_per_unit: 9, reserve: {ttl: 60s}}\n",
			entries + id + "            hits_addend: {number: 7}\n" + entries + id + "              - generic_key: {descriptor_value: \"1\", descriptor_key: settle}\n" +
				"            hits_addend: {format: '%RESP(x-cost)%'}\n            apply_on_stream_done: true\n",
			optionsOf("--hits method.lease=7", "--cost method.lease=%RESP(x-cost)%")},
		{"cost", oneDescriptor("key: method"), entries + "            hits_addend: {number: 0}\n" + entries + "            hits_addend: {format: '%BYTES_SENT%'}\n            apply_on_stream_done: true\n",
			optionsOf("--cost method=%BYTES_SENT%")},
		{"hits", oneDescriptor("key: method"), entries + "            hits_addend: {number: 10}\n", optionsOf("--hits method=10")},
	} {
		if got := part(t, "route", c.rules, c.o); !strings.HasSuffix(got, "rate_limits:\n"+c.want) {
			t.Errorf("%s:\n%s\nwant the end\n%s", c.name, got, c.want)
		}
	}
	slots := lease + "{algorithm: concurrency, concurrent_requests: 2, lease_ttl: 60s}\n"
	for _, want := range []string{"max_stream_duration: 50s", `header: {key: x-weir-lease, value: "%UNIQUE_ID%"}`, "OVERWRITE_IF_EXISTS_OR_ADD"} {
		if got := part(t, "", slots, optionsOf()); !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if got := part(t, "filter", slots, optionsOf("--from lease=header:x-id")); strings.Contains(got, "header_mutation") {
		t.Errorf("a filter makes an id that no action sends:\n%s", got)
	}
}

// The settings that a source needs are in the bootstrap.
func TestBootstrapHasTheSettingsOfSources(t *testing.T) {
	o := optionsOf()
	o.TrustedHops = 2
	if got := part(t, "", oneDescriptor("key: ip"), o); !strings.Contains(got, "use_remote_address: true") || !strings.Contains(got, "xff_num_trusted_hops: 2") {
		t.Error(got)
	}
	if got := part(t, "", oneDescriptor("key: path"), optionsOf()); !strings.Contains(got, "normalize_path: true") || strings.Contains(got, "use_remote_address") {
		t.Error(got)
	}
	if got := part(t, "route", oneDescriptor("key: masked_remote_address\n    values: [10.0.0.0/8, '2001:db8::/48']"), optionsOf()); !strings.Contains(got, "{v4_prefix_mask_len: 8, v6_prefix_mask_len: 48}") {
		t.Error(got)
	}
}

// A text in the arguments or the rules stays one value in the output.
func TestArgumentsAndRulesAreQuoted(t *testing.T) {
	rules := rulesfiletest.Parse(t, "domain: \"a: b # {c}\\nd\"\ndescriptors:\n  - key: generic_key\n    value: \"x: %REQ(a)% # y\\n- z\"\n    rate_limit: {unit: day, requests_per_unit: 1}\n")
	config, err := New(rules, optionsOf())
	must.Succeed(t, err)
	checkDescriptors(t, "quoted", rules, config)
	text, err := config.EnvoyFilter()
	must.Succeed(t, err)
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Errorf("the EnvoyFilter is no YAML: %v\n%s", err, text)
	}
}

// Envoy and Istio read YAML 1.1, in which these words are booleans: Envoy rejects a configuration
// with one of them where it wants a text.
func TestWordsThatAreBooleansInEnvoyAreQuoted(t *testing.T) {
	for _, word := range []string{"y", "N", "yes", "No", "ON", "off", "true", "False", "null", "~", "010", "0x1f", "1e3"} {
		rules := rulesfiletest.Parse(t, fmt.Sprintf("domain: d\ndescriptors:\n  - {key: generic_key, value: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", word))
		config, err := New(rules, optionsOf())
		must.Succeed(t, err)
		text, err := config.Part("route")
		must.Succeed(t, err)
		if want := fmt.Sprintf("descriptor_value: %q", word); !strings.Contains(string(text), want) {
			t.Errorf("want %s in\n%s", want, text)
		}
	}
}

// An exemption without a limit is not a rule, but its prefixes decide the source of its key too.
func TestExemptionsDecideTheSourceOfTheirKey(t *testing.T) {
	for descriptor, want := range map[string]string{
		"key: peer\n    cidr: [10.0.0.0/8]\n  - key: peer":                                                    "remote_address_match",
		"key: peer\n    rate_limit: {unit: day, requests_per_unit: 9}\n  - key: peer\n    cidr: [10.0.0.0/8]": "remote_address_match",
		"key: masked_remote_address\n    value: 10.0.0.0/8\n  - key: masked_remote_address":                   "masked_remote_address: {v4_prefix_mask_len: 8, v6_prefix_mask_len: 64}",
	} {
		if got := part(t, "route", oneDescriptor(descriptor), optionsOf()); !strings.Contains(got, want) {
			t.Errorf("%s: no %s in\n%s", descriptor, want, got)
		}
	}
}

// Envoy keeps an escape of any other character than those that need none.
func TestPathsWithOtherEscapesAreAccepted(t *testing.T) {
	for _, path := range []string{"/", "/a/", "/a%20b", "/%C3%A9", "/~joe", "/a.b", "/%40", "/%5B", "/%60", "/%7B", "/%3A"} {
		if _, err := New(rulesfiletest.Parse(t, oneDescriptor("key: path\n    value: "+path)), optionsOf()); err != nil {
			t.Errorf("%s: %v, want no problem", path, err)
		}
	}
}

// YAML has more line breaks and fewer characters than JSON, and Envoy reads only some of the line
// breaks.
func TestOddCharactersAreEscaped(t *testing.T) {
	for _, text := range []string{"a\u2028b", "a\u2029 b", "a\x7fb", "\u009f", "\ufffe", "\ufeff", strings.Repeat("x", 200) + "\u2028y"} {
		rules := rulesfiletest.Parse(t, fmt.Sprintf("domain: d\ndescriptors:\n  - {key: generic_key, value: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", text))
		config, err := New(rules, optionsOf())
		must.Succeed(t, err)
		out, err := config.Part("route")
		if err != nil || strings.ContainsFunc(string(out), func(r rune) bool { return r > 0x7e }) {
			t.Errorf("value %q: got error %v, want ASCII, got\n%q", text, err, out)
			continue
		}
		checkDescriptors(t, "odd", rules, config)
	}
}

// The line breaks at the end of a text are a part of it, also if it is too long for braces and ends
// the list of actions.
func TestLineBreaksAtTheEndOfALongKeyAreKept(t *testing.T) {
	key := strings.Repeat("a", 120) + "\n\n"
	rules := rulesfiletest.Parse(t, fmt.Sprintf("domain: d\ndescriptors:\n  - {key: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", key))
	config, err := New(rules, optionsOf("--from "+key+"=header:x-a"))
	must.Succeed(t, err)
	checkDescriptors(t, "long", rules, config)
}

// Envoy reads a duration only without an exponent, and 0s as unlimited.
func TestDurationsHaveNoExponent(t *testing.T) {
	for timeout, want := range map[time.Duration]string{50 * time.Microsecond: "timeout: 0.00005s\n", 300 * time.Hour: "timeout: 1080000s\n"} {
		o := optionsOf()
		o.Timeout = timeout
		if got := part(t, "filter", oneDescriptor("key: user"), o); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	slots := "domain: d\ndescriptors:\n  - key: user\n    descriptors:\n      - key: lease\n        rate_limit: {algorithm: concurrency, concurrent_requests: 2, lease_ttl: 1ms}\n"
	if got := part(t, "", slots, optionsOf()); !strings.Contains(got, "max_stream_duration: 0.001s") {
		t.Error(got)
	}
}

// Envoy compares the prefix of a route with a path, which begins with a slash and has no query.
func TestRouteIsAPrefixOfAPath(t *testing.T) {
	rules := rulesfiletest.Parse(t, oneDescriptor("key: k\n    value: a"))
	for _, prefix := range []string{"login", "/login?a"} {
		config, err := New(rules, optionsOf("--route "+prefix+":k=a"))
		must.Succeed(t, err)
		if _, err = config.Bootstrap(); err == nil || !strings.Contains(err.Error(), "write a prefix of a path, such as /login") {
			t.Errorf("route %s: got error %v, want: write a prefix of a path, such as /login", prefix, err)
		}
		if _, err = config.EnvoyFilter(); err != nil {
			t.Errorf("%s is the name of a route: %v", prefix, err)
		}
	}
	if got := part(t, "", oneDescriptor("key: k\n    value: a"), optionsOf("--route /login:k=a")); !strings.Contains(got, "merge_slashes: true") {
		t.Errorf("//login avoids the limit of /login:\n%s", got)
	}
}

// A selector is one label with a value.
func TestSelectorIsALabel(t *testing.T) {
	for _, selector := range []string{"istio", "istio=", "=x", "app=a,b=c"} {
		o := optionsOf()
		o.Selector = selector
		if _, err := New(rulesfiletest.Parse(t, oneDescriptor("key: user")), o); err == nil || !strings.Contains(err.Error(), "write LABEL=VALUE") {
			t.Errorf("selector %s: got error %v, want: write LABEL=VALUE", selector, err)
		}
	}
}

// The work grows with the rules, and not with their square. Allocations measure it on a busy
// machine too.
func TestWorkGrowsWithTheRules(t *testing.T) {
	allocations := func(n int) float64 {
		text := "domain: d\ndescriptors:\n"
		for i := range n {
			text += fmt.Sprintf("- {key: masked_remote_address, value: 10.%d.%d.0/24, rate_limit: {unit: day, requests_per_unit: %d}}\n", i/256, i%256, i+1)
		}
		rules := rulesfiletest.Parse(t, text)
		return testing.AllocsPerRun(1, func() {
			if _, err := New(rules, optionsOf()); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocations(200), allocations(800); many > 6*few {
		t.Errorf("%.0f allocations for 200 rules, %.0f for four times as many", few, many)
	}
}
