package descriptors_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func sprint(l descriptors.RateLimit) string { return fmt.Sprint(l.Spec()) }

func TestKeyEncodesDomainAndMatch(t *testing.T) {
	rules := rulesfiletest.Parse(t, tree("user_id\n  action=reply!\n  action=s*!\n  x-*!\n  a*=b!"))
	hash := "#" + strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct {
		entries []descriptors.Entry
		want    string
	}{
		{entries("user_id=alice action=reply"), "1:d|7:user_id*5:alice|6:action=5:reply"},
		{entries("user_id=alice action=search"), "1:d|7:user_id*5:alice|6:action~6:action=2:s*=6:search"},
		{entries("user_id=alice action=s*"), "1:d|7:user_id*5:alice|6:action~6:action=2:s*=2:s*"},
		{entries("user_id= x-y=}{"), "1:d|7:user_id*0:|3:x-y~3:x-*=0:=2:}{"},
		{entries("user_id=1 ab=b"), "1:d|7:user_id*1:1|2:ab~2:a*=1:b=1:b"},
		{entries("other=alice"), "1:d|5:other?5:alice"},
		{nil, "1:d"},
		{entries("k=" + hash), "1:d|1:k?65:" + hash},
		{entries("k=" + strings.Repeat("x", 129)),
			"1:d|1:k?#0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd"},
	} {
		if got := descriptors.Key("d", rules.Match("d", tt.entries), tt.entries); got != tt.want {
			t.Errorf("%v\ngot  %s\nwant %s", tt.entries, got, tt.want)
		}
	}
}

// A rule names a value if it matches the value exactly, or by a wildcard with more than *. It does
// not if it is key only, or if the entry is below the rule.
func TestMatchesValueReportsHowAValueMatched(t *testing.T) {
	rules := rulesfiletest.Parse(t, tree("user_id\n  action=reply!\n  action=s*!\n  any=*!\n  plan!"))
	for _, tt := range []struct {
		request string
		want    []bool
	}{
		{"user_id=alice action=reply", []bool{false, true, false}},
		{"user_id=alice action=search", []bool{false, true, false}},
		{"user_id=alice any=x", []bool{false, false, false}},
		{"user_id=alice plan=gold", []bool{false, false, false}},
	} {
		rule := rules.Match("d", entries(tt.request))
		for i, want := range tt.want {
			if got := rule.MatchesValue(i); got != want {
				t.Errorf("%s, entry %d: %t, want %t", tt.request, i, got, want)
			}
		}
	}
}

// The key does not contain the lease id, so all requests of a client share a counter. No other rule
// has this counter.
func TestKeyOfLeasesHasNoID(t *testing.T) {
	b := descriptors.NewBuilder()
	user := b.Domain("d").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "user_id"}})
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 1})
	minute := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Minute})
	user.SetRule(descriptors.Rule{Limits: []descriptors.RateLimit{{Limit: minute}}})
	user.Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "lease"}}).SetRule(descriptors.Rule{
		Limits: []descriptors.RateLimit{{Limit: minute}, {Limit: limit}},
	})
	rules := b.Build()
	for _, tt := range []struct {
		request   string
		want      string
		hasLeases bool
	}{
		{"user_id=alice", "1:d|7:user_id*5:alice", false},
		{"user_id=alice lease=1", "1:d|7:user_id*5:alice|5:lease!", true},
		{"user_id=alice lease=2", "1:d|7:user_id*5:alice|5:lease!", true},
		{"user_id=bob lease=2", "1:d|7:user_id*3:bob|5:lease!", true},
	} {
		rule := rules.Match("d", entries(tt.request))
		if got := descriptors.Key("d", rule, entries(tt.request)); got != tt.want || rule.UsesLeases() != tt.hasLeases {
			t.Errorf("%s: %s, leases: %t, want %s", tt.request, got, rule.UsesLeases(), tt.want)
		}
		if got := string(descriptors.AppendOverrideKey(nil, "d", rule, entries(tt.request))); got != tt.want {
			t.Errorf("%s, with a limit of its own: %s, want %s", tt.request, got, tt.want)
		}
	}
}

func TestDomainOfKeyIsItsPrefix(t *testing.T) {
	for _, domain := range []string{"ugc", "", "a|b", "3:d", "12", "#", strings.Repeat("x", 128), strings.Repeat("x|:", 99)} {
		whole := descriptors.Key(domain, nil, nil)
		if got := descriptors.DomainOf(descriptors.Key(domain, nil, entries("k=v action=reply"))); got != whole {
			t.Errorf("%q of %q, want %q", got, domain, whole)
		}
	}
	for _, key := range []string{"", ":", "|", "k", "9:short", "-9:d", "9223372036854775807:d", "a|b"} { // invalid keys
		if got := descriptors.DomainOf(key); !strings.HasPrefix(key, got) {
			t.Errorf("%q of %q", got, key)
		}
	}
}

func TestKeyIsStableOverReloads(t *testing.T) {
	request := entries("a=1 b=2")
	before := rulesfiletest.Parse(t, tree("a\n  b!"))
	after := rulesfiletest.Parse(t, tree("z=*!\na\n  c=*!\n  b!\n  d!"))
	k1 := descriptors.Key("d", before.Match("d", request), request)
	k2 := descriptors.Key("d", after.Match("d", request), request)
	if k1 != k2 {
		t.Errorf("%s became %s", k1, k2)
	}
}

func TestKeyIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<18)
	rules := rulesfiletest.Parse(t, tree("k="+long+"*!"))
	es := []descriptors.Entry{{Key: "k", Value: long + "y"}}
	if k := descriptors.Key(long, rules.Match("d", es), es); len(k) > 250 {
		t.Errorf("%d bytes", len(k))
	}
}

func TestKeyAllocatesOnlyItsResult(t *testing.T) {
	rules, request := rulesfiletest.Parse(t, example), entries("user_id=alice action=reply")
	rule := rules.Match("ugc", request)
	if n := testing.AllocsPerRun(100, func() { _ = descriptors.Key("ugc", rule, request) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// A part is a level of a key, as decoded.
type part struct {
	how                byte
	key, value         string
	ruleKey, ruleValue string
}

// decode parses a key by its documented grammar.
func decode(t *testing.T, key string) (domain string, parts []part, hashed bool) {
	text := func() string {
		if rest, ok := strings.CutPrefix(key, "#"); ok {
			hashed = true
			key = rest[64:]
			return "#" + rest[:64]
		}
		digits, rest, ok := strings.Cut(key, ":")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n > len(rest) || n > 128 {
			t.Fatalf("not a text: %q", key)
		}
		key = rest[n:]
		return rest[:n]
	}
	take := func() byte {
		if key == "" {
			t.Fatal("the key ends before a whole entry")
		}
		c := key[0]
		key = key[1:]
		return c
	}
	domain = text()
	for key != "" {
		if take() != '|' {
			t.Fatalf("not a level: %q", key)
		}
		p := part{key: text(), how: take()}
		if p.how == '~' {
			p.ruleKey, _ = text(), take()
			p.ruleValue, _ = text(), take()
		}
		if !strings.ContainsRune("=,/*~?", rune(p.how)) {
			t.Fatalf("unknown matching %q", p.how)
		}
		p.value = text()
		parts = append(parts, p)
	}
	return domain, parts, hashed
}

// FuzzKey looks for two requests with the same key, and for keys that do not decode to their
// request.
func FuzzKey(f *testing.F) {
	f.Add("d", "a", "b", "a", "b", "d", "a", "b", "a|1:b", "")
	f.Add("d", "k*", "", "kx", "v", "d", "k", "v*", "k", "vw")
	f.Add("}", "#", ":", "=", "~", "", "*", "*", strings.Repeat("x", 200), "#"+strings.Repeat("0", 64))
	f.Add("d", "k", ",a,b", "k", "a", "d", "k", "a", "k", "a")
	f.Add("d", "k", "/10.0.0.0/8", "k", "::ffff:10.1.2.3", "d", "k", "/10.1.0.0/16", "k", "10.1.2.3")
	f.Add("d", "k", "/2001:db8::/32,::/0", "k", "2001:DB8::1%a", "d", "k", "2001:db8::1", "k", "2001:db8::1")
	f.Fuzz(func(t *testing.T, d1, rk1, rv1, k1, v1, d2, rk2, rv2, k2, v2 string) {
		a, b := newSubject(d1, rk1, rv1, k1, v1), newSubject(d2, rk2, rv2, k2, v2)
		a.check(t)
		b.check(t)
		if (a.key() == b.key()) != a.same(b) {
			t.Fatalf("%q\n%q\nfrom\n%+v\n%+v", a.key(), b.key(), a, b)
		}
	})
}

// A subject is a request under a file with one rule, which may match both its entries, or neither.
// A rule whose value begins with ',' has a list of values, and with '/' prefixes.
type subject struct {
	domain   string
	rule     descriptors.Entry
	entries  []descriptors.Entry
	matching *descriptors.Rule
}

func newSubject(domain, ruleKey, ruleValue, key, value string) *subject {
	s := &subject{domain, descriptors.Entry{Key: ruleKey, Value: ruleValue},
		[]descriptors.Entry{{Key: key, Value: value}, {Key: value, Value: key}}, nil}
	matching := "value: " + strconv.Quote(ruleValue)
	if kind, listed := map[byte]string{',': "values: ", '/': "cidr: "}[(ruleValue + " ")[0]]; listed {
		matching = kind + strings.ReplaceAll(fmt.Sprintf("[%q]", ruleValue[1:]), ",", `","`)
	}
	text := fmt.Sprintf("domain: d\ndescriptors: [{key: %s, descriptors: [{key: %s, %s, rate_limit: {unit: day, "+
		"requests_per_unit: 1}}]}]", strconv.Quote(key), strconv.Quote(ruleKey), matching)
	if !utf8.ValidString(key + ruleKey + ruleValue) {
		return s // not YAML
	}
	if rules, err := rulesfile.Parse(rulesfile.File{Data: []byte(text)}); err == nil {
		s.matching = rules.Match("d", s.entries)
	}
	return s
}

func (s *subject) key() string { return descriptors.Key(s.domain, s.matching, s.entries) }

// same reports whether two subjects must have the same key.
func (s *subject) same(o *subject) bool {
	return s.domain == o.domain && s.identity() == o.identity() && slices.Equal(s.canonical(), o.canonical())
}

// identity returns the part of the rule that a key contains.
func (s *subject) identity() descriptors.Entry {
	switch {
	case s.matching == nil:
		return descriptors.Entry{Value: "no rule"}
	case strings.HasPrefix(s.rule.Value, ","), strings.HasPrefix(s.rule.Value, "/"):
		return descriptors.Entry{Key: s.rule.Key, Value: s.rule.Value[:1]}
	}
	return s.rule
}

// canonical returns the entries, with the canonical address if the rule has prefixes.
func (s *subject) canonical() []descriptors.Entry {
	all := slices.Clone(s.entries)
	if s.matching != nil && strings.HasPrefix(s.rule.Value, "/") {
		all[1].Value = naiveAddress(all[1].Value).String()
	}
	return all
}

func (s *subject) check(t *testing.T) {
	key := s.key()
	if c := key[0]; c != '#' && (c < '0' || c > '9') {
		t.Fatalf("%q begins with %q", key, c)
	}
	if got, want := descriptors.DomainOf(key), descriptors.Key(s.domain, nil, nil); got != want {
		t.Fatalf("%q begins with %q, want %q", key, got, want)
	}
	domain, parts, hashed := decode(t, key)
	if hashed {
		return
	}
	if domain != s.domain || len(parts) != len(s.entries) {
		t.Fatalf("%q decodes to %q, %v", key, domain, parts)
	}
	canonical := s.canonical()
	for i, p := range parts {
		if p.key != canonical[i].Key || p.value != canonical[i].Value || (p.how == '?') != (s.matching == nil) {
			t.Fatalf("%q decodes to %q, %+v", key, domain, parts)
		}
	}
	if p := parts[1]; p.how == '~' && (p.ruleKey != s.rule.Key || p.ruleValue != s.rule.Value) {
		t.Fatalf("%q decodes to %q, %+v", key, domain, parts)
	}
}

func BenchmarkKey(b *testing.B) {
	rules, request := rulesfiletest.Parse(b, example), entries("user_id=alice action=reply")
	rule := rules.Match("ugc", request)
	b.ReportAllocs()
	for b.Loop() {
		_ = descriptors.Key("ugc", rule, request)
	}
}
