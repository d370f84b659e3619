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
		{Options{}, "full", "over: over(0/0)"},
		{Options{}, "free unknown", "ok: ok(99/100 free) ok"},
		// Shadow mode: counted, and allowed.
		{Options{}, "shadowed", "ok: ok(0/0)"},
		{Options{}, "shadowed full", "over: ok(0/0) over(0/0)"},
		{Options{ShadowMode: true}, "full free", "ok: over(0/0) ok(99/100 free)"},
		// Quota mode: the request is denied only if all its descriptors in quota mode are over
		// their limits.
		{Options{}, "quota_full", "over: over(0/0)"},
		{Options{}, "quota_full quota_free", "ok: over(0/0) ok(99/100)"},
		{Options{}, "quota_full free", "over: over(0/0) ok(99/100 free)"},
		{Options{}, "quota_full quota_free full", "over: over(0/0) ok(99/100) over(0/0)"},
		// A quota in shadow mode is never over.
		{Options{}, "quota_full quota_shadowed", "ok: over(0/0) ok(0/0)"},
		{Options{QuotaMode: true}, "full free", "ok: over(0/0) ok(99/100 free)"},
		{Options{QuotaMode: true}, "full quota_full", "over: over(0/0) over(0/0)"},
		{Options{QuotaMode: true}, "full unknown", "ok: over(0/0) ok"},
		{Options{QuotaMode: true}, "full unlimited", "over: over(0/0) ok(unlimited)"},
		// Unlimited: the descriptor has no current limit.
		{Options{}, "unlimited", "ok: ok(unlimited)"},
		{Options{}, "unlimited full", "over: ok(unlimited) over(0/0)"},
		// Replaces: a rule replaces others by name, even if it is replaced itself. An unlimited
		// rule replaces, but is never replaced.
		{Options{}, "named", "over: over(0/0 small)"},
		{Options{}, "named replacing", "ok: ok ok(49/50 big)"},
		{Options{}, "named replacing replacing_replacing", "ok: ok ok ok(9/10)"},
		{Options{}, "named unlimited_replacing", "ok: ok ok(unlimited)"},
		{Options{}, "named shadowed_replacing", "ok: ok ok(0/0)"}, // as in envoyproxy/ratelimit
		// An override carries no name and no mode.
		{Options{}, "shadowed!", "over: over(0/0)"},
		{Options{}, "quota_full! quota_free", "over: over(0/0) ok(99/100)"},
		{Options{}, "named! replacing", "over: over(0/0) ok(49/50 big)"},
		{Options{}, "unlimited!", "over: over(0/0)"},
	} {
		if got := decideKeys(t, newDecider(t, modes, c.options), c.keys); got != c.want {
			t.Errorf("%+v %s:\n got %s\nwant %s", c.options, c.keys, got, c.want)
		}
	}
}

func TestAllOrNothingChargesNoLimitOfADeniedRequest(t *testing.T) {
	for allOrNothing, want := range map[bool]string{false: "over: ok(98/100 free) over(0/0)", true: "over: ok(100/100 free) over(0/0)"} {
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
		{Options{}, "free shadowed", "ok: ok(98/100 free) ok(0/0)"},
		{Options{}, "free shadowed full", "over: ok(100/100 free) ok(0/0) over(0/0)"},
		{Options{}, "quota_full quota_free free", "ok: over(0/0) ok(98/100) ok(98/100 free)"},
		{Options{}, "quota_free full free", "over: ok(100/100) over(0/0) ok(100/100 free)"},
		{Options{}, "quota_full free", "over: over(0/0) ok(100/100 free)"},
		{Options{}, "quota_full quota_free full free", "over: over(0/0) ok(98/100) over(0/0) ok(100/100 free)"},
		{Options{ShadowMode: true}, "full free", "ok: over(0/0) ok(98/100 free)"},
		{Options{QuotaMode: true}, "full free", "ok: over(0/0) ok(98/100 free)"},
	} {
		c.options.AllOrNothing = true
		d := newDecider(t, modes, c.options)
		decideKeys(t, d, c.keys)
		if got := decideKeys(t, d, c.keys); got != c.want {
			t.Errorf("%+v %s:\n got %s\nwant %s", c.options, c.keys, got, c.want)
		}
	}
}
