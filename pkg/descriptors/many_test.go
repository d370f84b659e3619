package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

// manyRules returns n rules with different values, like the rules that a gateway generates for its
// routes.
func manyRules(tb testing.TB, n int) *descriptors.Rules {
	tb.Helper()
	const perFile = 20_000
	var files []rulesfile.File
	for first := 0; first < n; first += perFile {
		var text strings.Builder
		text.WriteString("domain: many\ndescriptors:\n")
		for i := first; i < min(first+perFile, n); i++ {
			fmt.Fprintf(&text, "- {key: route, value: httproute/ns/%06d, rate_limit: {unit: hour, requests_per_unit: 9}}\n", i)
		}
		files = append(files, rulesfile.File{Name: fmt.Sprintf("many-%d.yaml", first), Data: []byte(text.String())})
	}
	rules, _, err := rulesfile.ParseWith(rulesfile.Options{MergeDomains: true}, files...)
	must.Succeed(tb, err)
	return rules
}

// Requests hit the rules at random, so the processor's caches hold few of many rules. The text of a
// request is made for each call and is cached, as in a server that has just read it.
func BenchmarkMatchAmong(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		domain := manyRules(b, n).Domain("many")
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			random := rand.New(rand.NewPCG(3, 4))
			text := []byte("httproute/ns/000000")
			entries, key := []descriptors.Entry{{Key: "route"}}, []byte(nil)
			b.ReportAllocs()
			for b.Loop() {
				for i, rest := len(text)-1, random.IntN(n); i >= len(text)-6; i, rest = i-1, rest/10 {
					text[i] = '0' + byte(rest%10)
				}
				entries[0].Value = string(text)
				rule := domain.Match(entries)
				if rule == nil || rule.Limits[0].Limit == nil {
					b.Fatal("no rule")
				}
				key = descriptors.AppendKey(key[:0], "many", rule, entries)
			}
		})
	}
}

func TestEqualLimitsAreShared(t *testing.T) {
	rules := rulesfiletest.Parse(t, `
domain: d
descriptors:
  - {key: a, value: one, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, value: two, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, value: named, rate_limit: {unit: day, requests_per_unit: 1, name: n}}
  - {key: a, value: more, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: a, value: both, rate_limits: [{unit: day, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1}]}
`)
	of := func(value string) []descriptors.RateLimit {
		return rules.Match("d", []descriptors.Entry{{Key: "a", Value: value}}).Limits
	}
	if &of("one")[0] != &of("two")[0] {
		t.Error("two rules with equal lists of limits have two lists")
	}
	for _, value := range []string{"named", "both"} {
		if of("one")[0].Limit != of(value)[0].Limit {
			t.Errorf("the equal limits of one and %s are two", value)
		}
	}
	if of("one")[0].Name != "" || of("named")[0].Name != "n" || of("more")[0].RequestsPerUnit != 2 || len(of("both")) != 2 {
		t.Errorf("limits that differ are one: %v %v %v %v", of("one"), of("named"), of("more"), of("both"))
	}
}
