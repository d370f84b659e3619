package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

// A fileRule is a rule in a file.
type fileRule struct {
	key, value   string
	values, cidr []string
	limited      bool
	below        []fileRule
}

// claims returns the identities of d. Two rules at one level must not share any of them.
func (d fileRule) claims() []string {
	var all []string
	for _, prefix := range d.cidr {
		all = append(all, d.key+" in "+prefix)
	}
	for _, value := range d.values {
		all = append(all, d.key+"="+value)
	}
	if len(all) == 0 {
		all = append(all, d.key+"="+d.value)
	}
	return all
}

// name returns the text for d in the name of a rule.
func (d fileRule) name() string {
	switch value := d.value + strings.Join(d.values, ",") + strings.Join(d.cidr, ","); value {
	case "":
		return d.key
	default:
		return d.key + "=" + value
	}
}

// write writes rules as YAML.
func write(b *strings.Builder, all []fileRule, pad string) {
	if len(all) == 0 {
		return
	}
	b.WriteString(pad + "descriptors:\n")
	for _, d := range all {
		fmt.Fprintf(b, "%s- key: '%s'\n", pad, d.key)
		switch {
		case d.values != nil:
			fmt.Fprintf(b, "%s  values: ['%s']\n", pad, strings.Join(d.values, "', '"))
		case d.cidr != nil:
			fmt.Fprintf(b, "%s  cidr: ['%s']\n", pad, strings.Join(d.cidr, "', '"))
		default:
			fmt.Fprintf(b, "%s  value: '%s'\n", pad, d.value)
		}
		if d.limited {
			b.WriteString(pad + "  rate_limit: {unit: day, requests_per_unit: 1}\n")
		}
		write(b, d.below, pad+"  ")
	}
}

// match returns the name of the rule for entries, by a search of one rule after the other.
func match(all []fileRule, entries []descriptors.Entry) string {
	e, rest := entries[0], entries[1:]
	var chosen *fileRule
	for i := range all {
		d := &all[i]
		if d.key == e.Key && e.Value != "" && (d.value == e.Value || slices.Contains(d.values, e.Value)) {
			chosen = d
		}
	}
	longest := -1
	for i := range all {
		for _, prefix := range all[i].cidr {
			p, exact := netip.MustParsePrefix(prefix), chosen != nil && longest < 0
			if !exact && all[i].key == e.Key && p.Bits() > longest && p.Contains(naiveAddress(e.Value)) {
				chosen, longest = &all[i], p.Bits()
			}
		}
	}
	fits := func(wildcard, text string) bool { ok, _ := path.Match(wildcard, text); return ok }
	for i := range all {
		d := &all[i]
		if chosen == nil && d.values == nil && d.cidr == nil && strings.Contains(d.key+d.value, "*") && fits(d.key, e.Key) && (d.value == "" || fits(d.value, e.Value)) {
			chosen = d
		}
	}
	for i := range all {
		if d := &all[i]; chosen == nil && d.key == e.Key && d.name() == d.key {
			chosen = d
		}
	}
	if chosen == nil {
		return ""
	}
	step := chosen.name()
	if len(rest) == 0 {
		if chosen.limited {
			return step
		}
		return ""
	}
	if found := match(chosen.below, rest); found != "" {
		return step + "." + found
	}
	return ""
}

// naiveAddress returns the address that a prefix must contain. For text that is not an address, it
// returns the zero Addr, which no prefix contains.
func naiveAddress(text string) netip.Addr {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return address.WithZone("").Unmap()
}

// For random trees and requests, the index finds the same rule as a search of one rule after the
// other.
func TestMatchAgreesWithLinearSearch(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	keys, values := []string{"a", "b", "a*"}, []string{"", "1", "2", "1*", "*", "12", "21", "3"}
	prefixes := []string{"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "::/0", "2001:db8::/32", "2001:db8::1/128"}
	requestValues := slices.Concat(values, []string{
		"10.1.2.3", "10.1.2.4", "10.2.0.1", "11.0.0.1", "::ffff:10.1.2.3", "::FFFF:0a01:0203", "2001:db8::1", "2001:DB8:0::1", "2001:db8::2",
		"fe80::1%eth0", "fe80::1%", "10.1.2.3%eth0", "::ffff:10.1.2.3%1", "10.1.2.256", "10.1.2.03", "10.1.2", "10.1.2.3:80", "[2001:db8::1]", ":", "",
	})
	some := func(of []string) []string {
		list := slices.Clone(of)
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list[:1+random.IntN(3)]
	}
	var grow func(depth int) []fileRule
	grow = func(depth int) (all []fileRule) {
		taken := map[string]bool{}
		for range random.IntN(6) {
			d := fileRule{key: keys[random.IntN(len(keys))], value: values[random.IntN(len(values))], limited: random.IntN(2) == 0}
			switch kind := random.IntN(3); {
			case d.key == "a*":
			case kind == 1:
				d.value, d.values = "", some([]string{"1", "2", "12", "21", "3", "10.1.2.3"})
			case kind == 2:
				d.value, d.cidr = "", some(prefixes)
			}
			if slices.ContainsFunc(d.claims(), func(claim string) bool { return taken[claim] }) {
				continue
			}
			for _, claim := range d.claims() {
				taken[claim] = true
			}
			if depth > 1 {
				d.below = grow(depth - 1)
			}
			all = append(all, d)
		}
		return all
	}
	found := 0
	for range 120 {
		all, b := grow(4), &strings.Builder{}
		b.WriteString("domain: d\n")
		write(b, all, "")
		rules := rulesfiletest.Parse(t, b.String())
		for range 300 {
			request := make([]descriptors.Entry, 1+random.IntN(4))
			for i := range request {
				request[i] = descriptors.Entry{Key: []string{"a", "b", "ab", "c", "a*"}[random.IntN(5)], Value: requestValues[random.IntN(len(requestValues))]}
			}
			want, got := match(all, request), ""
			if r := rules.Match("d", request); r != nil {
				got = r.Name
				found++
			}
			if got != want {
				t.Fatalf("%v: rule %q, want %q, of\n%s", request, got, want, b)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d requests found a rule", found)
	}
}
