package ratelimitstats

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/decide"
)

// The replacements of envoyproxy/ratelimit, written as it writes them.
var addresses = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

func envoyRatelimitName(s string) string {
	s = strings.NewReplacer(":", "_", "|", "_").Replace(s)
	return addresses.ReplaceAllStringFunc(s, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}

func TestCleanNameMatchesEnvoyRatelimit(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                                 "plain",
		"a:b|c":                                 "a_b_c",
		"www.example.com":                       "www.example.com",
		"masked_remote_address_0.0.0.0/0":       "masked_remote_address_0_0_0_0/0",
		"x_invert:192.0.2.0/24":                 "x_invert_192_0_2_0/24",
		"1.2.3":                                 "1.2.3",
		"1234.1.1.1":                            "1234_1_1_1",
		"1.2.3.4.5.6.7.8.9":                     "1_2_3_4.5_6_7_8.9",
		"1.2.3.45678.9.1.2":                     "1_2_3_45678_9_1_2",
		"1.2.3.4567":                            "1_2_3_4567",
		"a\nratelimit.service.evil:1|c\x00\x7f": "a_ratelimit.service.evil_1_c__",
		"key_route_api/*":                       "key_route_api/*",
		"ключ":                                  "ключ",
	} {
		if got := string(appendClean(nil, in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzCleanNameMatchesEnvoyRatelimit(f *testing.F) {
	f.Add("1.22.333.4444")
	f.Add("0.0.0.0.0.0.0.0..1.1.1.1")
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range s {
			if c < ' ' || c == 0x7f {
				t.Skip("only Weir replaces control characters")
			}
		}
		if got, want := string(appendClean(nil, s)), envoyRatelimitName(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	})
}

func TestSeriesNameIsBounded(t *testing.T) {
	long := strings.Repeat("x", 2*maxPartBytes)
	if name := appendName(nil, long, []string{long}); len(name) > 2*maxPartBytes+1 {
		t.Errorf("%d bytes", len(name))
	}
	parts := slices.Repeat([]string{long}, decide.MaxEntries)
	before := string(appendName(nil, "d", parts))
	if len(before) > 1+len(parts)+maxNameBytes {
		t.Errorf("%d bytes for %d parts", len(before), len(parts))
	}
	parts[len(parts)-1] += "y"
	if string(appendName(nil, "d", parts)) == before {
		t.Error("two lists of parts have one name")
	}
	parts = append(slices.Repeat([]string{"short"}, decide.MaxEntries-1), long[:maxPartBytes])
	if !strings.HasSuffix(string(appendName(nil, "d", parts)), long[:maxPartBytes]) {
		t.Error("a part was truncated although all parts together are short")
	}
}
