package descriptors_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
)

func TestParseKeyReturnsTheEntries(t *testing.T) {
	rules := rulesfiletest.Parse(t, `
domain: d
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: reply, rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: action, value: s*, rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1}}
  - {key: kind, value: a*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: tier, values: [gold, silver], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: from, cidr: [10.0.0.0/8], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: ip, cidr: [10.0.0.0/8], rate_limit: {unit: day, requests_per_unit: 1}}
`)
	long := strings.Repeat("x", 129)
	for _, tt := range []struct{ entries, want []descriptors.Entry }{
		{entries("user_id=alice action=reply"), nil},
		{entries("user_id=alice action=search"), nil},
		{entries("user_id=|7:a*1 action=s="), nil},
		{entries("other="), nil},
		{nil, nil},
		{entries("user_id=alice lease=id"), entries("user_id=alice lease=")},
		{entries("kind=abc"), entries("kind=a*")},
		{entries("tier=silver"), entries("tier=gold")},
		{entries("from=10.1.2.3"), entries("from=10.0.0.0/8")},
		{entries("ip=::ffff:10.1.2.3"), entries("ip=10.1.2.3")},
		{entries("k=" + long), entries("k=#0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd")},
	} {
		want := tt.want
		if want == nil {
			want = tt.entries
		}
		key := descriptors.Key("d", rules.Match("d", tt.entries), tt.entries)
		domain, got, ok := descriptors.ParseKey(key)
		if !ok || domain != "d" || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v %v, want %v", key, domain, got, ok, want)
		}
	}
}

// ParseKey never panics.
func FuzzParseKey(f *testing.F) {
	for _, key := range []string{"1:d|7:user_id*5:alice|6:action~6:action=2:s*=6:search", "1:d|1:k!", "1:d|1:k^1:k=2:a*", "#", "3:", "1:d|", "1:d|1:k", "1:d|1:k~1:k"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if domain, entries, ok := descriptors.ParseKey(key); !ok && (domain != "" || entries != nil) {
			t.Errorf("%q: %q %v without ok", key, domain, entries)
		}
	})
}

// The hash of a key must never change, because receipts and log lines from before an upgrade
// contain it.
func TestKeyHashIsStable(t *testing.T) {
	const key = "3:ugc|7:user_id*5:alice"
	if got := descriptors.KeyHash(nil, key); got != "2de2641123bb8c2d" {
		t.Errorf("hash %s: it must never change, want 2de2641123bb8c2d", got)
	}
	if got := descriptors.KeyHash([]byte("a secret of 16 bytes"), key); got != "85b92723856283cb" {
		t.Errorf("hash with a secret %s: it must never change, want 85b92723856283cb", got)
	}
}
