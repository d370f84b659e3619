package conform

import (
	"fmt"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

func semanticsChecks() []check {
	return []check{
		{"semantics.counts", "Does each request charge one hit, and is a request over the limit denied?", checkCounts},
		{"semantics.hits_addend", "Does a request charge its hits_addend (0 counts as 1), unless a descriptor has its own?", checkHitsAddend},
		{"semantics.limit_echo", "Does a status have the limit, the unit and the name of its rule?", checkLimitEcho},
		{"semantics.matching", "Does an exact value win over a wildcard, and a wildcard over the key alone?", checkMatching},
		{"semantics.depth", "Does a limit apply only to descriptors of its own depth?", checkDepth},
		{"semantics.branches", "Does a descriptor go back to the general branch if the special branch has no rule?", checkBranches},
		{"semantics.pairs", "Are keys and values compared as pairs, and not as joined strings?", checkPairs},
		{"semantics.counters", "Do descriptors with different entries have different counters?", checkCounters},
		{"semantics.limit_zero", "Does a limit of 0 deny every hit?", checkLimitZero},
		{"semantics.unlimited", "Is an unlimited rule without a limit?", checkUnlimitedRule},
		{"semantics.shadow_mode", "Does a rule in shadow mode deny nothing?", checkShadowMode},
		{"semantics.replaces", "Does a limit turn off those that it replaces?", checkReplacement},
		{"semantics.override", "Does the limit of a descriptor override that of its rule?", checkOverride},
		{"semantics.larger_override", "Does a larger override apply to a key that a smaller one denied?", checkLargerOverride},
		{"semantics.overall_code", "Is a request denied if one of its limits denies it?", checkOverallCode},
		{"semantics.group", "Does a denied request charge its other limits?", checkGroup},
		{"semantics.peek", "Does a request of 0 hits charge nothing?", checkPeek},
		{"semantics.peek_at_limit", "Does a key that is exactly at its limit allow a request of 0 hits?", checkPeekAtLimit},
		{"semantics.denied_hits", "Do denied hits count?", checkDeniedHits},
		{"semantics.refund", "Does is_negative_hits refund, and never below 0?", checkRefunds},
		{"semantics.reset", "Is duration_until_reset within the window, and does it fall as time passes?", checkResets},
		{"semantics.reset_alignment", "Do the windows of a minute, an hour and a day begin together?", checkAlignment},
	}
}

func checkCounts(t *trial) {
	d := t.key("day_5")
	for remaining := int64(4); remaining >= 0; remaining-- {
		t.expectAllowed(d, remaining)
	}
	t.expectDenied(d)
	t.expect(newRequest(d), "OVER_LIMIT with remaining 0", func(a answer) bool { return a.isOverLimit() && a.remaining() == 0 })
}

func checkHitsAddend(t *trial) {
	d := t.key("day_100")
	for _, c := range []struct {
		requestHits, descriptorHits int // -1: none
		remaining                   int64
	}{{0, -1, 99}, {7, -1, 92}, {7, 2, 90}, {0, 5, 85}, {7, 0, 85}, {1, -1, 84}} {
		r := newRequest(d)
		if c.descriptorHits >= 0 {
			r = newRequest(withHits(d, uint64(c.descriptorHits)))
		}
		r.HitsAddend = uint32(c.requestHits)
		t.expect(r, fmt.Sprintf("OK with remaining %d", c.remaining), func(a answer) bool { return a.isOK() && a.remaining() == c.remaining })
	}
}

func checkLimitEcho(t *trial) {
	for _, c := range []struct {
		rule string
		n    uint32
		unit string
		name string
	}{
		{"second_10", 10, "SECOND", ""}, {"minute_100", 100, "MINUTE", ""}, {"hour_100", 100, "HOUR", ""}, {"day_5", 5, "DAY", ""},
		{"wide", 41, "DAY", "wide"},
	} {
		t.expect(newRequest(t.key(c.rule)), fmt.Sprintf("a limit of %d/%s with the name %q", c.n, c.unit, c.name), func(a answer) bool {
			l := a.limit(0)
			return l.GetRequestsPerUnit() == c.n && l.GetUnit().String() == c.unit && l.GetName() == c.name
		})
	}
}

func checkMatching(t *trial) {
	for value, n := range map[string]uint32{
		"exact": 11, "pre": 12, "pre1": 12, "prefix1": 12, "preexact": 15, "other": 14, "": 14, "exact2": 14,
	} {
		t.expectLimit(newDescriptor("run", t.uniqueName(), "match", value), n)
	}
	t.expectUnlimited(newDescriptor("run", t.uniqueName(), "match", "exempt"))
	one := t.uniqueName()
	t.expectAllowed(newDescriptor("run", one, "match", "pre1"), 11)
	t.expectAllowed(newDescriptor("run", one, "match", "pre2"), 11)
	t.expectAllowed(newDescriptor("run", one, "match", "pre1"), 10)
}

func checkDepth(t *trial) {
	one := t.uniqueName()
	t.expectLimit(newDescriptor("run", one, "depth", "v"), 21)
	t.expectLimit(newDescriptor("run", one, "depth", "v", "below", "v"), 22)
	t.expectUnlimited(newDescriptor("run", one))
	t.expectUnlimited(newDescriptor("run", one, "depth", "v", "below", "v", "deeper", "v"))
	t.expectUnlimited(newDescriptor("run", one, "depth", "v", "other", "v"))
	t.expectUnlimited(newDescriptor("depth", "v"))
}

func checkBranches(t *trial) {
	t.expectLimit(newDescriptor("run", t.uniqueName(), "branch", "special", "below", "v"), 31)
	t.expectLimit(newDescriptor("run", t.uniqueName(), "branch", "any", "other", "v"), 32)
	r := newRequest(newDescriptor("run", t.uniqueName(), "branch", "special", "other", "v"))
	switch a := t.answered(r); a.limit(0).GetRequestsPerUnit() {
	case 0:
		t.observe("no: the special branch hides the general one, as in envoyproxy/ratelimit")
	case 32:
		t.observe("yes")
	default:
		t.wrong(r, a, "the limit is of neither branch", "no limit, or a limit of 32")
	}
}

func checkPairs(t *trial) {
	t.expectLimit(newDescriptor("run", t.uniqueName(), "pair", "b_c"), 43)
	t.expectUnlimited(newDescriptor("run", t.uniqueName(), "pair_b", "c"))
}

func checkCounters(t *trial) {
	one := t.uniqueName()
	t.expectAllowed(newDescriptor("run", one, "joined", "1_below_2"), 43)
	t.expectAllowed(newDescriptor("run", one, "joined", "1", "below", "2"), 44)
	t.expectAllowed(newDescriptor("run", one, "joined", "1"), 43)
	t.expectAllowed(newDescriptor("run", one, "day_5", "a"), 4)
	t.expectAllowed(newDescriptor("run", one, "day_5", "A"), 4)
	t.expectAllowed(newDescriptor("run", one, "day_5", "a "), 4)
	t.expectAllowed(newDescriptor("run", one, "day_5", "{a}"), 4)
	t.expectAllowed(newDescriptor("run", one, "day_5", "{a}b"), 4)
	t.expectAllowed(newDescriptor("run", one, "day_5", "a\x00"), 4)
}

func checkLimitZero(t *trial) {
	d := t.key("zero")
	t.expectDenied(d)
	t.expectDenied(withHits(d, 3))
}

func checkUnlimitedRule(t *trial) {
	d := t.key("unlimited")
	for range 3 {
		t.expectUnlimited(withHits(d, 1000))
	}
}

func checkShadowMode(t *trial) {
	d := t.key("shadow")
	for range 6 {
		t.expect(newRequest(d), "OK with a limit of 3", func(a answer) bool { return a.isOK() && a.limit(0).GetRequestsPerUnit() == 3 })
	}
}

func checkReplacement(t *trial) {
	wide, narrow := t.key("wide"), t.key("narrow")
	r := newRequest(wide, narrow)
	t.expect(r, "no limit for the first descriptor, and 42 for the second",
		func(a answer) bool { return a.isOK() && a.limit(0) == nil && a.limit(1).GetRequestsPerUnit() == 42 })
	t.expectAllowed(wide, 40)
}

func checkOverride(t *trial) {
	d := t.key("day_100")
	t.expect(newRequest(withLimit(d, 3, typev3.RateLimitUnit_DAY)), "OK with a limit of 3/DAY and remaining 2", func(a answer) bool {
		return a.isOK() && a.limit(0).GetRequestsPerUnit() == 3 && a.limit(0).GetUnit().String() == "DAY" && a.remaining() == 2
	})
	free := newDescriptor("no_such_rule", t.uniqueName())
	t.expectAllowed(withLimit(free, 3, typev3.RateLimitUnit_DAY), 2)
	t.expectDenied(withLimit(withHits(free, 3), 3, typev3.RateLimitUnit_DAY))
}

func checkLargerOverride(t *trial) {
	d := t.key("day_100")
	for range 3 {
		t.answered(newRequest(withLimit(d, 1, typev3.RateLimitUnit_DAY)))
	}
	t.expectDenied(withLimit(d, 1, typev3.RateLimitUnit_DAY))
	t.expect(newRequest(withLimit(d, 50, typev3.RateLimitUnit_DAY)), "OK: at most 5 of 50 are used", answer.isOK)
}

func checkOverallCode(t *trial) {
	full := t.key("day_5")
	t.answered(newRequest(withHits(full, 5)))
	for _, r := range []*request{
		newRequest(full, t.key("day_100")), newRequest(t.key("day_100"), full), newRequest(newDescriptor("no_such_rule", "v"), full),
	} {
		t.expect(r, "OVER_LIMIT, in the status of the full limit too", func(a answer) bool {
			over := 0
			for _, s := range a.GetStatuses() {
				if s.GetCode() == codeOver {
					over++
				}
			}
			return a.isOverLimit() && over == 1
		})
	}
}

func checkGroup(t *trial) {
	full, open := t.key("day_5"), t.key("day_100")
	t.answered(newRequest(withHits(full, 5)))
	t.expect(newRequest(full, open), "OVER_LIMIT", answer.isOverLimit)
	r := newRequest(open)
	switch a := t.answered(r); a.remaining() {
	case 99:
		t.observe("no: a request is charged to all of its limits or to none")
	case 98:
		t.observe("yes: a denied request is charged to the limits that allow it")
	default:
		t.wrong(r, a, "the remaining hits fit neither choice", "remaining 99 or 98")
	}
}

func checkPeek(t *trial) {
	d := t.key("day_5")
	for range 7 {
		t.expectAllowed(withHits(d, 0), 5)
	}
	t.expectAllowed(withHits(d, 2), 3)
	t.expectAllowed(withHits(d, 0), 3)
	t.expectAllowed(d, 2)
}

func checkPeekAtLimit(t *trial) {
	if t.choices(algorithms[0]).peekOver {
		t.observe("yes: a request of 0 hits is denied only over the limit. A check before each charge then admits one hit too many")
	} else {
		t.observe("no: a request of 0 hits is denied if one more hit would not fit")
	}
}

func checkDeniedHits(t *trial) {
	if t.choices(algorithms[0]).countDenied {
		t.observe("yes: a denied request uses up the limit. One charge that is larger than the rest ends the window")
	} else {
		t.observe("no: a denied request charges nothing")
	}
}

func checkRefunds(t *trial) {
	d := t.key("day_5")
	t.expectAllowed(withHits(d, 4), 1)
	r := newRequest(asRefund(d, 3))
	a := t.answered(r)
	if !a.isOK() || a.remaining() != 4 {
		t.wrong(r, a, "is_negative_hits does not refund", "OK with remaining 4")
		return
	}
	t.expectAllowed(d, 3)
	t.expectAllowed(asRefund(d, 50), 5)
	t.expectAllowed(d, 4)
	unused := t.key("day_5")
	t.expectAllowed(asRefund(unused, 3), 5)
	t.expectAllowed(withHits(unused, 5), 0)
	t.expectDenied(unused)
}

func checkResets(t *trial) {
	for rule, unit := range map[string]time.Duration{
		"second_10": time.Second, "minute_100": time.Minute, "hour_100": time.Hour, "day_100": day,
	} {
		t.expect(newRequest(t.key(rule)), fmt.Sprintf("a reset of more than 0 and at most %s", unit),
			func(a answer) bool {
				return a.reset() >= 0 && a.reset() <= unit && (a.reset() > 0 || unit == time.Second)
			})
	}
	d := t.key("hour_100")
	first := t.callOne(d)
	if !sleep(t.ctx, 2500*time.Millisecond) {
		return
	}
	r := newRequest(d)
	second := t.answered(r)
	if second.reset() > first.reset() && first.reset() <= 10*time.Second {
		return // the window ended
	}
	minimum, maximum := second.call-first.ret-time.Second-t.Skew, second.ret-first.call+time.Second+t.Skew
	if passed := first.reset() - second.reset(); passed < minimum || passed > maximum {
		t.wrong(r, second, fmt.Sprintf("the reset fell by %s while %s passed", passed, (second.ret-first.call).Round(time.Millisecond)),
			fmt.Sprintf("a reset of about %s", (first.reset()-second.ret+first.call).Round(time.Second)))
	}
}

// checkAlignment compares the resets of one request. Windows by the clock begin at multiples of
// their length, so their resets must be consistent.
func checkAlignment(t *trial) {
	all := []*descriptor{t.key("minute_100"), t.key("hour_100"), t.key("day_100")}
	r := newRequest(all...)
	for range 3 { // a window may end during a request
		a := t.answered(r)
		if len(a.GetStatuses()) != len(all) {
			t.wrong(r, a, "the statuses do not match the descriptors", "3 statuses")
			return
		}
		reset := func(i int) int64 { return int64(a.GetStatuses()[i].GetDurationUntilReset().AsDuration().Seconds()) }
		near := func(a, b, window int64) bool { return ((a-b+1)%window+window)%window <= 2 }
		if near(reset(1), reset(0), 60) && near(reset(2), reset(1), 3600) {
			t.offset(reset(2))
			return
		}
		t.Evidence = nil
		t.wrong(r, a, "the resets do not belong to windows that begin at multiples of their length",
			"resets with the same rest, in seconds of a minute and of an hour")
	}
}

// offset observes a service whose clock differs from the clock of this machine.
func (t *trial) offset(reset int64) {
	t.Evidence = nil
	ours := 86400 - time.Now().Unix()%86400
	if d := ours - reset; d < -2 || d > 2 {
		t.observe("the service's day ends %d s earlier than by the clock of this machine", d)
	}
}
