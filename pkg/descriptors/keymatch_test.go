package descriptors_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func TestEntryMatcherFindsKeysByAnEntry(t *testing.T) {
	rules := rulesfiletest.Parse(t, `
domain: d
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: reply, rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: action, value: s*, rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1}}
  - {key: kind, value: a*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, values: [pro, team], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: net, cidr: [10.0.0.0/8], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: ip, cidr: [10.0.0.0/8], rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: k, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	long := strings.Repeat("x", 129)
	hashed := fmt.Sprintf("#%x", sha256.Sum256([]byte(long)))
	for _, tt := range []struct {
		domain, entry, of string
		want              bool
	}{
		{"d", "user_id=42", "user_id=42 action=reply", true},
		{"d", "action=reply", "user_id=42 action=reply", true},
		{"d", "action=search", "user_id=42 action=search", true},
		{"d", "action=42", "user_id=42 action=reply", false},
		{"d", "user_id=42", "user_id=42 lease=id", true},
		{"d", "user_id=4", "user_id=42 action=reply", false},
		{"d", "user_id=42", "user_id=421 action=reply", false},
		{"d", "user=42", "user_id=42 action=reply", false},
		{"e", "user_id=42", "user_id=42 action=reply", false},
		{"d", "kind=abc", "kind=abc", false},
		{"d", "kind=a*", "kind=abc", false},
		{"d", "plan=pro", "plan=pro", false}, // the key has the smallest value of the list
		{"d", "plan=pro", "plan=team", false},
		{"d", "net=10.0.0.0/8", "net=10.1.2.3", false},
		{"d", "ip=::ffff:10.1.2.3", "ip=10.1.2.3", true},
		{"d", "ip=10.1.2.3", "ip=::ffff:10.1.2.3", true},
		{"d", "ip=10.1.2.4", "ip=10.1.2.3", false},
		{"d", "k=" + long, "k=" + long, true},
		{"d", "k=" + long, "k=x" + long, false},
		{"d", "user_id=42", "k=1|7:user_id*2:42", false}, // a value that imitates another entry
		{"d", "lease=", "user_id=42 lease=id", false},
		{"d", "lease=id", "user_id=42 lease=id", false},
		{"d", "k=" + long, "k=" + hashed, false}, // a value that imitates the hash of another
		{"d", "k=" + hashed, "k=" + long, false},
		{"d", "k=" + hashed, "k=" + hashed, true},
		{"d", "k=::ffff:10.0.0.1", "k=10.0.0.1", false}, // the rule does not read values as addresses
		{"d", "none=x", "none=x", true},                 // the key of a limit in the request
	} {
		entries := entries(tt.of)
		key := descriptors.Key("d", rules.Match("d", entries), entries)
		name, value, _ := strings.Cut(tt.entry, "=")
		if got := descriptors.EntryMatcher(tt.domain, descriptors.Entry{Key: name, Value: value})(key); got != tt.want {
			t.Errorf("%s %s: %s is %v, want %v", tt.domain, tt.entry, key, got, tt.want)
		}
	}
}

// A key contains each entry that it was made of, and no entry with another value.
func FuzzEntryMatcher(f *testing.F) {
	f.Add("d", "user_id", "42", "action", "reply")
	f.Add("d", "k", "1|7:user_id*2:42", "#", strings.Repeat("x", 129))
	f.Fuzz(func(t *testing.T, domain, k1, v1, k2, v2 string) {
		key := descriptors.Key(domain, nil, []descriptors.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}})
		for _, e := range []descriptors.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}} {
			if !descriptors.EntryMatcher(domain, e)(key) {
				t.Errorf("%q does not contain %q", key, e)
			}
			e.Value += "."
			if other := e.Key == k1 && e.Value == v1 || e.Key == k2 && e.Value == v2; !other && descriptors.EntryMatcher(domain, e)(key) {
				t.Errorf("%q contains %q", key, e)
			}
		}
	})
}
