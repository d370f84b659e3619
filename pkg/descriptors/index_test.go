package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A described is a descriptor of a file.
type described struct {
	key, value string
	limited    bool
	below      []described
}

// write writes descriptors as YAML.
func write(b *strings.Builder, all []described, pad string) {
	if len(all) == 0 {
		return
	}
	b.WriteString(pad + "descriptors:\n")
	for _, d := range all {
		fmt.Fprintf(b, "%s- key: '%s'\n%s  value: '%s'\n", pad, d.key, pad, d.value)
		if d.limited {
			b.WriteString(pad + "  rate_limit: {unit: day, requests_per_unit: 1}\n")
		}
		write(b, d.below, pad+"  ")
	}
}

// match returns the name of the rule for entries, by a search of one descriptor after the other.
func match(all []described, entries []descriptors.Entry) string {
	e, rest := entries[0], entries[1:]
	var chosen *described
	for i := range all {
		d := &all[i]
		if d.key == e.Key && d.value == e.Value && e.Value != "" {
			chosen = d
		}
	}
	fits := func(pattern, text string) bool { ok, _ := path.Match(pattern, text); return ok }
	for i := range all {
		d := &all[i]
		if chosen == nil && strings.Contains(d.key+d.value, "*") && fits(d.key, e.Key) && (d.value == "" || fits(d.value, e.Value)) {
			chosen = d
		}
	}
	for i := range all {
		if d := &all[i]; chosen == nil && d.key == e.Key && d.value == "" {
			chosen = d
		}
	}
	if chosen == nil {
		return ""
	}
	step := chosen.key
	if chosen.value != "" {
		step += "=" + chosen.value
	}
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

// Random trees and requests: the index finds the same rule as a search of one descriptor after the other.
func TestMatchAgreesWithLinearSearch(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	keys, values := []string{"a", "b", "a*"}, []string{"", "1", "2", "1*", "*", "12", "21", "3"}
	var grow func(depth int) []described
	grow = func(depth int) (all []described) {
		taken := map[descriptors.Entry]bool{}
		for range random.IntN(6) {
			d := described{key: keys[random.IntN(len(keys))], value: values[random.IntN(len(values))], limited: random.IntN(2) == 0}
			if taken[descriptors.Entry{Key: d.key, Value: d.value}] {
				continue
			}
			taken[descriptors.Entry{Key: d.key, Value: d.value}] = true
			if depth > 1 {
				d.below = grow(depth - 1)
			}
			all = append(all, d)
		}
		return all
	}
	found := 0
	for range 300 {
		all, b := grow(4), &strings.Builder{}
		b.WriteString("domain: d\n")
		write(b, all, "")
		rules := parse(t, b.String())
		for range 300 {
			request := make([]descriptors.Entry, 1+random.IntN(4))
			for i := range request {
				request[i] = descriptors.Entry{Key: []string{"a", "b", "ab", "c", "a*"}[random.IntN(5)], Value: values[random.IntN(len(values))]}
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
