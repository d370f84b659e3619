package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

const listRules = `domain: d
descriptors:
- {key: plan, values: [free, pro], rate_limit: &l {unit: day, requests_per_unit: 1}}
- {key: plan, values: [team, org], share_threshold: true, rate_limit: *l}
- {key: plan, value: 'p*', rate_limit: *l}
- {key: plan, rate_limit: *l}
- {key: ip, value: 10.9.9.9, rate_limit: *l}
- {key: ip, cidr: [10.0.0.0/8, '2001:db8::/32'], rate_limit: *l}
- {key: ip, cidr: [10.1.0.0/16, '::ffff:10.2.0.0/112'], share_threshold: true, rate_limit: *l}
- {key: ip, cidr: [10.1.7.0/24]}
- {key: ip, value: '10.*', rate_limit: *l}
- key: tenant
  values: [a, b]
  descriptors:
  - {key: user, values: [x], rate_limit: *l}
  - {key: user, rate_limit: *l}
- key: client
  values: [only]
  descriptors: [{key: user, rate_limit: *l}]
`

func TestListsMatchBeforeWildcards(t *testing.T) {
	rules := rulesfiletest.Parse(t, listRules)
	for request, want := range map[string]string{
		"plan=free": "plan=free,pro", "plan=pro": "plan=free,pro", "plan=org": "plan=team,org", "plan=prox": "plan=p*", "plan=other": "plan",
		"plan=free,pro": "plan", "plan=": "plan",
		"ip=10.9.9.9": "ip=10.9.9.9", "ip=::ffff:10.9.9.9": "ip=10.0.0.0/8,2001:db8::/32", "ip=10.200.0.1": "ip=10.0.0.0/8,2001:db8::/32",
		"ip=2001:db8::1%eth0": "ip=10.0.0.0/8,2001:db8::/32", "ip=10.1.2.3": "ip=10.1.0.0/16,10.2.0.0/16", "ip=10.2.2.3": "ip=10.1.0.0/16,10.2.0.0/16",
		"ip=10.1.7.1": "", "ip=10.1.2.300": "ip=10.*", "ip=10.1.2.3:80": "ip=10.*", "ip=192.0.2.1": "", "ip=": "", "ip=x": "",
		"tenant=a user=x": "tenant=a,b.user=x", "tenant=b user=x": "tenant=a,b.user=x", "tenant=b user=y": "tenant=a,b.user", "tenant=c user=y": "",
		"tenant=a": "", "client=only user=1": "client=only.user", "client=other user=1": "",
	} {
		got := ""
		if r := rules.Match("d", entries(request)); r != nil {
			got = r.Name
		}
		if got != want {
			t.Errorf("%s: rule %q, want %q", request, got, want)
		}
	}
}

func TestKeysOfListsAreDistinct(t *testing.T) {
	rules := rulesfiletest.Parse(t, listRules)
	for request, want := range map[string]string{
		"plan=free": "1:d|4:plan,4:free", "plan=pro": "1:d|4:plan,3:pro",
		"plan=team": "1:d|4:plan;3:org", "plan=org": "1:d|4:plan;3:org",
		"ip=10.9.9.9":         "1:d|2:ip=8:10.9.9.9",
		"ip=10.200.0.1":       "1:d|2:ip/10:10.200.0.1",
		"ip=::ffff:10.9.9.9":  "1:d|2:ip/8:10.9.9.9",
		"ip=::ffff:ac8:1":     "1:d|2:ip/10:10.200.0.1",
		"ip=2001:DB8:0:0::01": "1:d|2:ip/11:2001:db8::1",
		"ip=2001:db8::1%eth0": "1:d|2:ip/11:2001:db8::1",
		"ip=10.1.2.3":         "1:d|2:ip%11:10.1.0.0/16",
		"ip=::ffff:10.1.9.9":  "1:d|2:ip%11:10.1.0.0/16",
		"ip=10.2.2.3":         "1:d|2:ip%11:10.2.0.0/16",
		"tenant=b user=x":     "1:d|6:tenant,1:b|4:user,1:x",
		"tenant=b user=y":     "1:d|6:tenant,1:b|4:user*1:y",
	} {
		es := entries(request)
		rule := rules.Match("d", es)
		if rule == nil {
			t.Errorf("%s: no rule", request)
			continue
		}
		if got := descriptors.Key("d", rule, es); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { _ = descriptors.Key("d", rule, es) }); n > 1 {
			t.Errorf("%s: %v allocations", request, n)
		}
	}
	for request, want := range map[string]string{"plan=org": "1:d|4:plan,3:org", "ip=::ffff:10.1.2.3": "1:d|2:ip/8:10.1.2.3"} {
		es := entries(request)
		if got := string(descriptors.AppendOverrideKey(nil, "d", rules.Match("d", es), es)); got != want {
			t.Errorf("an override of %s: %s, want %s", request, got, want)
		}
	}
}

// New values, another order of them, and new prefixes keep the counters.
func TestKeysSurviveChangeOfList(t *testing.T) {
	const text = `domain: d
descriptors:
- {key: plan, values: [a, b], share_threshold: true, rate_limit: &l {unit: day, requests_per_unit: 1}}
- {key: ip, cidr: [10.0.0.0/8], share_threshold: true, rate_limit: *l}
`
	changed := strings.NewReplacer("[a, b]", "[b, c, a]", "[10.0.0.0/8]", "[192.0.2.0/24, 10.0.0.0/8]").Replace(text)
	before, after := rulesfiletest.Parse(t, text), rulesfiletest.Parse(t, changed)
	for _, request := range []string{"plan=b", "ip=10.0.0.1"} {
		es := entries(request)
		was, now := descriptors.Key("d", before.Match("d", es), es), descriptors.Key("d", after.Match("d", es), es)
		if was != now {
			t.Errorf("%s became %s", was, now)
		}
	}
	if got := descriptors.Diff(before, after); got != (descriptors.Changes{RulesModified: 1, RulesAdded: 1, RulesRemoved: 1}) {
		t.Errorf("%+v, want one rule modified, one added and one removed", got) // the first prefix identifies the rule
	}
}

func TestMatchOfListAllocatesNothing(t *testing.T) {
	rules := rulesfiletest.Parse(t, listRules)
	for _, request := range []string{
		"plan=pro", "plan=org", "ip=10.200.0.1", "ip=::ffff:10.200.0.1", "ip=2001:db8::1%eth0", "ip=10.1.2.3", "ip=name", "ip=", "ip=12345", "ip=" + strings.Repeat("1.", 99), "tenant=b user=x",
	} {
		es := entries(request)
		if n := testing.AllocsPerRun(100, func() { rules.Match("d", es) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", request, n)
		}
	}
}

func TestNameOfLongListIsCut(t *testing.T) {
	values := make([]string, 100)
	for i := range values {
		values[i] = fmt.Sprintf("value-%02d", i)
	}
	rule := func(values []string) *descriptors.Rule {
		b := descriptors.NewBuilder()
		return b.Domain("d").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "k"}, Values: values}).SetRule(descriptors.Rule{Unlimited: true})
	}
	const want = "value-00,value-01,value-02,value-03,value-04,value-05,value-06,..."
	r := rule(values)
	if got := r.AppendMetricNames(nil, entries("k=value-99")); r.Name != "k="+want || !slices.Equal(got, []string{"k_" + want}) || !r.HasFixedMetricNames() {
		t.Errorf("got name %s, metric names %q, fixed %t, want k=%s, k_%[4]s, true", r.Name, got, r.HasFixedMetricNames(), want)
	}
	if again := rule(values[:99]); again.Name != r.Name {
		t.Errorf("%s became %s", r.Name, again.Name)
	}
	if l := r.Path(); len(l) != 1 || l[0].Key != "k" || l[0].Value != "" || !slices.Equal(l[0].Values, values) {
		t.Errorf("levels %+v, want one with the key k and all values", l)
	}
	long := strings.Repeat("x", 300)
	if r := rule([]string{long, "b"}); len(r.Name) > 200 {
		t.Errorf("%d bytes", len(r.Name))
	}
}

func TestMetricNamesOfListsFollowModifiers(t *testing.T) {
	rules := rulesfiletest.Parse(t, `domain: d
descriptors:
- {key: plan, values: [free, pro], rate_limit: &l {unit: day, requests_per_unit: 1}}
- {key: plan, values: [team, org], value_to_metric: true, rate_limit: *l}
- {key: plan, values: [x, y], share_threshold: true, detailed_metric: true, rate_limit: *l}
- {key: ip, cidr: [10.0.0.0/8, 192.0.2.0/24], rate_limit: *l}
- {key: ip, cidr: ['2001:db8::/32'], detailed_metric: true, rate_limit: *l}
- {key: ip, cidr: ['2001:db9::/32'], share_threshold: true, value_to_metric: true, rate_limit: *l}
`)
	for request, want := range map[string]string{
		"plan=pro": "plan_free,pro", "plan=org": "plan_org", "plan=y": "plan_x,y",
		"ip=10.0.0.1": "ip_10.0.0.0/8,192.0.2.0/24", "ip=2001:db8::1": "ip_2001:db8::1", "ip=2001:db9::1": "ip_2001:db9::/32",
	} {
		es := entries(request)
		rule := rules.Match("d", es)
		if got := rule.AppendMetricNames(nil, es); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
}

// randomPrefixes returns n different prefixes, of which many contain others.
func randomPrefixes(random *rand.Rand, n int) []netip.Prefix {
	taken := map[netip.Prefix]bool{}
	var all []netip.Prefix
	for len(all) < n {
		p, _ := randomAddress(random).Prefix(random.IntN(33))
		if p.Addr().Is6() {
			p, _ = randomAddress6(random).Prefix(32 + random.IntN(97))
		}
		if !taken[p] {
			taken[p] = true
			all = append(all, p)
		}
	}
	return all
}

// randomAddress returns an address from the small range that the prefixes cover.
func randomAddress(random *rand.Rand) netip.Addr {
	if random.IntN(4) == 0 {
		return randomAddress6(random)
	}
	return netip.AddrFrom4([4]byte{10, byte(random.IntN(4)), byte(random.IntN(4)), byte(random.IntN(256))})
}

func randomAddress6(random *rand.Rand) netip.Addr {
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	a[4+random.IntN(12)] = byte(random.IntN(256))
	return netip.AddrFrom16(a)
}

func TestLongestPrefixAgreesWithLinearSearch(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		all := randomPrefixes(random, 200)
		b := descriptors.NewBuilder()
		rules := map[*descriptors.Rule][]netip.Prefix{}
		for rest := all; len(rest) > 0; {
			n := min(1+random.IntN(5), len(rest))
			l := descriptors.NodeSpec{Entry: descriptors.Entry{Key: "ip"}, Prefixes: rest[:n], ShareThreshold: true}
			rules[b.Domain("d").Add(l).SetRule(descriptors.Rule{Unlimited: true})], rest = rest[:n], rest[n:]
		}
		built := b.Build()
		for range 500 {
			address := randomAddress(random)
			var want netip.Prefix
			for _, p := range all {
				if p.Contains(address) && (!want.IsValid() || p.Bits() > want.Bits()) {
					want = p
				}
			}
			es := []descriptors.Entry{{Key: "ip", Value: address.String()}}
			rule := built.Match("d", es)
			if want.IsValid() != (rule != nil) || rule != nil && !slices.Contains(rules[rule], want) {
				t.Fatalf("%v: rule %v, want that of %v", address, rules[rule], want)
			}
			if rule == nil {
				continue
			}
			text := want.String()
			if got := descriptors.Key("d", rule, es); got != fmt.Sprintf("1:d|2:ip%%%d:%s", len(text), text) {
				t.Fatalf("%v: %s, want %v", address, got, text)
			}
		}
	}
}

// manyPrefixes returns rules of n prefixes below one key, and an address in each.
func manyPrefixes(n int, perRule int) (*descriptors.Rules, []string) {
	random := rand.New(rand.NewPCG(7, 8))
	b := descriptors.NewBuilder()
	taken := map[netip.Prefix]bool{}
	var prefixes []netip.Prefix
	var addresses []string
	for len(prefixes) < n {
		v := random.Uint32()
		address := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		p, _ := address.Prefix(16 + random.IntN(17))
		if !taken[p] {
			taken[p] = true
			prefixes, addresses = append(prefixes, p), append(addresses, address.String())
		}
	}
	for chunk := range slices.Chunk(prefixes, perRule) {
		b.Domain("many").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "ip"}, Prefixes: chunk}).SetRule(descriptors.Rule{Unlimited: true})
	}
	random.Shuffle(n, func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] }) // so that requests do not follow the order of memory
	return b.Build(), addresses
}

// manyAddresses returns rules of an exact value for each address.
func manyAddresses(addresses []string) *descriptors.Rules {
	taken := map[descriptors.Entry]bool{}
	b := descriptors.NewBuilder()
	for _, address := range addresses {
		if e := (descriptors.Entry{Key: "ip", Value: address}); !taken[e] {
			taken[e] = true
			b.Domain("many").Add(descriptors.NodeSpec{Entry: e}).SetRule(descriptors.Rule{Unlimited: true})
		}
	}
	return b.Build()
}

// BenchmarkMatchPrefix finds the rules of random addresses among 100,000 prefixes, and among as
// many exact values.
func BenchmarkMatchPrefix(b *testing.B) {
	for _, perRule := range []int{1, 100_000} {
		rules, addresses := manyPrefixes(100_000, perRule)
		b.Run(fmt.Sprintf("prefixes/%d_per_rule", perRule), func(b *testing.B) { matchAll(b, rules, addresses) })
		if perRule == 1 {
			exact := manyAddresses(addresses)
			b.Run("values", func(b *testing.B) { matchAll(b, exact, addresses) })
		}
	}
}

func matchAll(b *testing.B, rules *descriptors.Rules, addresses []string) {
	es, at := []descriptors.Entry{{Key: "ip"}}, 0
	b.ReportAllocs()
	for b.Loop() {
		es[0].Value = addresses[at]
		if rules.Match("many", es) == nil {
			b.Fatal("no rule")
		}
		if at++; at == len(addresses) {
			at = 0
		}
	}
}
