package decide

import (
	_ "embed"
	"testing"
)

//go:embed testdata/modes.yaml
var modes string

func TestModesAndReplacesDecideOverallCode(t *testing.T) {
	for _, c := range []struct {
		options    Options
		keys, want string
	}{
		{Options{}, "full", "denied: denied(0/0)"},
		{Options{}, "free unknown", "allowed: allowed(99/100 free) allowed"},
		// Shadow mode: counted, and allowed.
		{Options{}, "shadowed", "allowed: allowed(0/0)"},
		{Options{}, "shadowed full", "denied: allowed(0/0) denied(0/0)"},
		{Options{ShadowMode: true}, "full free", "shadowed: denied(0/0) allowed(99/100 free)"},
		// Quota mode: the request is denied only if all its descriptors in quota mode are over
		// their limits.
		{Options{}, "quota_full", "denied: denied(0/0)"},
		{Options{}, "quota_full quota_free", "allowed: denied(0/0) allowed(99/100)"},
		{Options{}, "quota_full free", "denied: denied(0/0) allowed(99/100 free)"},
		{Options{}, "quota_full quota_free full", "denied: denied(0/0) allowed(99/100) denied(0/0)"},
		// A quota in shadow mode never denies.
		{Options{}, "quota_full quota_shadowed", "allowed: denied(0/0) allowed(0/0)"},
		{Options{QuotaMode: true}, "full free", "allowed: denied(0/0) allowed(99/100 free)"},
		{Options{QuotaMode: true}, "full quota_full", "denied: denied(0/0) denied(0/0)"},
		{Options{QuotaMode: true}, "full unknown", "allowed: denied(0/0) allowed"},
		{Options{QuotaMode: true}, "full unlimited", "denied: denied(0/0) allowed(unlimited)"},
		// Unlimited: the descriptor has no current limit.
		{Options{}, "unlimited", "allowed: allowed(unlimited)"},
		{Options{}, "unlimited full", "denied: allowed(unlimited) denied(0/0)"},
		// Replaces: a rule replaces others by name, even if it is replaced itself. An unlimited
		// rule replaces, but is never replaced.
		{Options{}, "named", "denied: denied(0/0 small)"},
		{Options{}, "named replacing", "allowed: allowed allowed(49/50 big)"},
		{Options{}, "named replacing replacing_replacing", "allowed: allowed allowed allowed(9/10)"},
		{Options{}, "named unlimited_replacing", "allowed: allowed allowed(unlimited)"},
		{Options{}, "named shadowed_replacing", "allowed: allowed allowed(0/0)"}, // as in envoyproxy/ratelimit
		// An override carries no name and no mode.
		{Options{}, "shadowed!", "denied: denied(0/0)"},
		{Options{}, "quota_full! quota_free", "denied: denied(0/0) allowed(99/100)"},
		{Options{}, "named! replacing", "denied: denied(0/0) allowed(49/50 big)"},
		{Options{}, "unlimited!", "denied: denied(0/0)"},
	} {
		if got := decideKeys(t, newDecider(t, modes, c.options), c.keys); got != c.want {
			t.Errorf("%+v %s:\n got %s\nwant %s", c.options, c.keys, got, c.want)
		}
	}
}

func TestAllOrNothingChargesNoLimitOfADeniedRequest(t *testing.T) {
	for allOrNothing, want := range map[bool]string{false: "denied: allowed(98/100 free) denied(0/0)", true: "denied: allowed(100/100 free) denied(0/0)"} {
		d := newDecider(t, modes, Options{AllOrNothing: allOrNothing})
		decideKeys(t, d, "free full")
		if got := decideKeys(t, d, "free full"); got != want {
			t.Errorf("%v: %s, want %s", allOrNothing, got, want)
		}
	}
}

// A rule that never denies is in no group. Otherwise nothing would be charged to the other limits
// while it is over its limit.
func TestAllOrNothingExcludesLimitsThatCannotDeny(t *testing.T) {
	for _, c := range []struct {
		options    Options
		keys, want string // want is the result of the second of two equal requests
	}{
		{Options{}, "free shadowed", "allowed: allowed(98/100 free) allowed(0/0)"},
		{Options{}, "free shadowed full", "denied: allowed(100/100 free) allowed(0/0) denied(0/0)"},
		{Options{}, "quota_full quota_free free", "allowed: denied(0/0) allowed(98/100) allowed(98/100 free)"},
		{Options{}, "quota_free full free", "denied: allowed(100/100) denied(0/0) allowed(100/100 free)"},
		{Options{}, "quota_full free", "denied: denied(0/0) allowed(100/100 free)"},
		{Options{}, "quota_full quota_free full free", "denied: denied(0/0) allowed(98/100) denied(0/0) allowed(100/100 free)"},
		{Options{ShadowMode: true}, "full free", "shadowed: denied(0/0) allowed(98/100 free)"},
		{Options{QuotaMode: true}, "full free", "allowed: denied(0/0) allowed(98/100 free)"},
	} {
		c.options.AllOrNothing = true
		d := newDecider(t, modes, c.options)
		decideKeys(t, d, c.keys)
		if got := decideKeys(t, d, c.keys); got != c.want {
			t.Errorf("%+v %s:\n got %s\nwant %s", c.options, c.keys, got, c.want)
		}
	}
}
