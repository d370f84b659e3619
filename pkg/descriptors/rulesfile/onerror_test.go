package rulesfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
)

const whenLost = `domain: d
on_store_error: allow
descriptors:
- {key: unset, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: set, rate_limit: {unit: minute, requests_per_unit: 5, on_store_error: local}}
- {key: free, rate_limit: {unlimited: true}}
- key: many
  rate_limits:
  - {unit: minute, requests_per_unit: 5, on_store_error: deny}
  - {unit: hour, requests_per_unit: 5}
`

func modes(rules *descriptors.Rules) string {
	var all []string
	for d := range rules.Domains() {
		all = append(all, fmt.Sprint(d.Name(), " ", d.OnStoreError(&descriptors.RateLimit{}), " ", d.OnStoreErrors()))
	}
	return strings.Join(all, "; ")
}

func TestOnStoreErrorIsInherited(t *testing.T) {
	rules, err := rulesfile.Parse(files(whenLost, "domain: e\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n", "domain: none\n")...)
	must.Succeed(t, err)
	if got, want := modes(rules), "d allow [allow deny local]; e error [error]; none error []"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for request, want := range map[string][]limiters.OnStoreError{
		"unset=1": {limiters.OnStoreErrorUnset}, "set=1": {limiters.OnStoreErrorLocal},
		"many=1": {limiters.OnStoreErrorDeny, limiters.OnStoreErrorUnset},
	} {
		for i, l := range rules.Match("d", entries(request)).Limits {
			if l.OnStoreError != want[i] {
				t.Errorf("%s: got %q, want %q", request, l.OnStoreError, want[i])
			}
		}
	}
	for request, want := range map[string]limiters.OnStoreError{
		"unset=1": limiters.OnStoreErrorUnset, "set=1": limiters.OnStoreErrorLocal, "free=1": limiters.OnStoreErrorUnset,
		"many=1": limiters.OnStoreErrorDeny, "nobody=1": limiters.OnStoreErrorUnset,
	} {
		if l, err := rules.Match("d", entries(request)).OverrideBase(false).Limit(7, descriptors.Hour, 1); err != nil || l.OnStoreError != want {
			t.Errorf("an override of %s: got %q, %v, want %q", request, l.OnStoreError, err, want)
		}
	}
}

func TestConflictingOnStoreErrorIsAnError(t *testing.T) {
	const more = "domain: d\non_store_error: %s\ndescriptors: [{key: other, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	merge := rulesfile.Options{MergeDomains: true}
	rules, _, err := rulesfile.ParseWith(merge, files("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
		fmt.Sprintf(more, "deny"))...)
	if err != nil || modes(rules) != "d deny [deny]" {
		t.Errorf("set in the second file: %q, %v, want %q", modes(rules), err, "d deny [deny]")
	}
	if _, _, err = rulesfile.ParseWith(merge, files(whenLost, fmt.Sprintf(more, "allow"))...); err != nil {
		t.Errorf("set twice and the same: %v", err)
	}
	_, _, err = rulesfile.ParseWith(merge, files(whenLost, fmt.Sprintf(more, "deny"))...)
	if err == nil || !strings.HasPrefix(err.Error(), "b.yaml:2:1: 'on_store_error' is 'deny' here and 'allow' in a.yaml:2: set it once") {
		t.Errorf("got %v", err)
	}
}

func TestOverlaySetsOnStoreError(t *testing.T) {
	rules, err := overlaid(`domain: d
on_store_error: deny
descriptors:
- {key: k, value: v, rate_limit: {on_store_error: local}}
- {key: own, rate_limit: {on_store_error: allow}}
`, arriving)
	must.Succeed(t, err)
	if got, want := modes(rules), "d deny [allow deny local]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if l := rules.Match("d", entries("k=v")).Limits[0]; l.OnStoreError != limiters.OnStoreErrorLocal {
		t.Errorf("got %q", l.OnStoreError)
	}
	rules, err = overlaid("domain: d\non_store_error: deny\n", whenLost)
	if err != nil || rules.Domain("d").OnStoreError(&descriptors.RateLimit{}) != limiters.OnStoreErrorAllow {
		t.Errorf("what the rules say does not stand: %q, %v", modes(rules), err)
	}
}
