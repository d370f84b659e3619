package rulesfile

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// readLimits reads the limits of a descriptor into rule.
func (p *parser) readLimits(f fields, at *branch, rule *descriptors.Rule) {
	one, many := f.get("rate_limit"), f.get("rate_limits")
	if one.key != nil && many.key != nil {
		p.fault(many.key, "'rate_limits' replaces 'rate_limit', and both are given", "move that limit into the list")
	}
	if !p.warnIfEmpty(one) {
		p.readSingleLimit(one.value, at, rule)
	}
	if many.key == nil {
		return
	}
	if n, ok := p.valueOf(many); ok && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		p.fault(n, "'rate_limits' is empty", "add a limit")
	}
	p.readLimitList(many, at, rule)
}

// readSingleLimit reads a rate_limit, the only limit of its rule.
func (p *parser) readSingleLimit(n *yaml.Node, at *branch, rule *descriptors.Rule) {
	f, ok := p.readFields(n, rateLimitSchema)
	if !ok {
		return
	}
	rule.LimitName = p.readName(f.get("name"), at.domain)
	rule.Replaces = p.readReplaces(f.get("replaces"), at.domain, rule.LimitName)
	rule.Unlimited = p.readLenientBool(f.get("unlimited"))
	if rule.Unlimited {
		p.checkUnlimited(f)
		return
	}
	overlay := p.overlayAt(at)
	if overlay != nil {
		p.build.applied[overlay] = true
		at.node.SetOverlay(fmt.Sprintf("%s:%d", overlay.file, overlay.at.Line))
	}
	l, fromOverlay, ok := p.readLimit(f, overlay, rule)
	if ok {
		l.Name, at.fromOverlay = rule.LimitName, fromOverlay
		rule.Limits = append(rule.Limits, l)
	}
}

// warnZeroLimit warns that a limit is 0 and so denies every request. A missing number has its own
// warning.
func (p *parser) warnZeroLimit(f fields, overlay *limitSettings) {
	const message, remedy = "the limit is 0 and denies every request", "write a number of at least 1, or '# weir:ignore zero-limit'"
	if overlay != nil && overlay.settings["requests_per_unit"].key != nil {
		key := overlay.settings["requests_per_unit"].key
		p.warnings = append(p.warnings, Diagnostic{overlay.file, key.Line, key.Column, zeroLimit, message, remedy})
		return
	}
	for _, name := range []string{"requests_per_unit", "concurrent_requests"} {
		if !p.isUnset(f.get(name)) && !p.generated {
			p.warn(zeroLimit, f.key(name), message, remedy)
		}
	}
}

// checkUnlimited validates the keys of an unlimited rate_limit.
func (p *parser) checkUnlimited(f fields) {
	if unit, _ := p.readText(f.get("unit")); descriptors.ParseUnit(unit) != descriptors.UnitUnknown {
		p.fault(f.key("unit"), "should not specify rate limit unit when unlimited", "remove one of them")
	} else if unit != "" && !strings.EqualFold(unit, descriptors.UnitUnknown.String()) {
		p.warn(besideUnlimited, f.key("unit"), fmt.Sprintf("'%s' is not a unit, and has no effect when unlimited", excerpt(unit)),
			"remove it")
	}
	if !p.isUnset(f.get("requests_per_unit")) && p.readNumber(f.get("requests_per_unit"), 0, limiters.LargestMax, 0) > 0 {
		p.warn(besideUnlimited, f.key("requests_per_unit"), "'requests_per_unit' has no effect when unlimited", "remove it")
	}
	for _, name := range rateLimitSchema.Keys {
		if key := f.key(name); key != nil && isWeirs(name) {
			p.fault(key, fmt.Sprintf("'%s' has no meaning when unlimited", name), "remove one of them")
		}
	}
}

// readLimitList reads rate_limits, the limits of one group. They must not share a counter.
func (p *parser) readLimitList(list field, at *branch, rule *descriptors.Rule) {
	ids, counting, reserves := map[string]bool{}, []*yaml.Node(nil), false
	for _, n := range p.readMaps(list) {
		f, ok := p.readFields(n, rateLimitsSchema)
		if !ok {
			continue
		}
		name := p.readName(f.get("name"), at.domain)
		l, _, ok := p.readLimit(f, nil, rule)
		if !ok {
			continue
		}
		if ids[l.StateID()] {
			p.fault(n, "duplicate limit in 'rate_limits': it would share its counter with an earlier one of the same algorithm and window",
				"keep the lower one, or change 'unit' or 'unit_multiplier'")
		}
		ids[l.StateID()] = true
		l.Name = name
		rule.LimitName = cmp.Or(rule.LimitName, name)
		rule.Limits = append(rule.Limits, l)
		reserves = reserves || f.has("reserve")
		if l.Spec().CountDenied {
			counting = append(counting, cmp.Or(f.key("count_denied"), n))
		}
	}
	if !reserves {
		return
	}
	for _, n := range counting {
		p.warn(costCountsDenied, n,
			"this limit counts denied hits, and its hits are costs because of the 'reserve' beside it: one denied request can use up the limit",
			"set 'count_denied: false'")
	}
}

// readLimit reads a limit of rule. A non-nil overlay sets the keys that the limit omits;
// fromOverlay lists them. ok is false after a fault.
func (p *parser) readLimit(f fields, overlay *limitSettings, rule *descriptors.Rule) (l descriptors.RateLimit, fromOverlay []string, ok bool) {
	own := p.readLimitSettings(f)
	merged, fromOverlay := own.completedBy(overlay)
	note := overlayNote(overlay, fromOverlay)
	rate := p.readRate(own, merged, f)
	if !own.faulty {
		p.checkApplicable(own, merged, note)
	}
	if p.faulty(f) || p.stopped {
		return l, nil, false
	}
	l, err := merged.newLimit(rate)
	if err != nil {
		invalid, ok := errors.AsType[*limiters.SpecError](err)
		if !ok {
			invalid = &limiters.SpecError{Problem: err.Error()}
		}
		p.fault(f.at, invalid.Problem, invalid.Remedy+note)
		return l, nil, false
	}
	if spec := l.Spec(); spec.Max > 0 && l.PeeksOver() && !spec.CountDenied {
		p.warn(peekNeverDenied, f.at,
			fmt.Sprintf("a peek is never denied: 'peek' is over, and denied hits of a %s do not count", spec.Algorithm),
			"set 'count_denied: true' or 'peek: would_fit'"+note)
	}
	if l.RequestsPerUnit == 0 && !rule.ShadowMode {
		p.warnZeroLimit(f, overlay)
	}
	return l, fromOverlay, true
}

// readRate reads the rate of a limit with the settings own, which an overlay has completed to
// merged. Under concurrency, its number is that of the slots. An overlay may replace the number.
func (p *parser) readRate(own, merged *limitSettings, f fields) descriptors.Rate {
	overlayRequests := merged.settings["requests_per_unit"]
	r := descriptors.Rate{Multiplier: 1, CalendarMonth: p.build.options.CalendarMonths}
	switch slots := f.get("concurrent_requests"); {
	case own.algorithm() == concurrency:
		r.Requests = p.readSlots(own, f)
	case slots.key != nil:
		if own.algorithm() != "" && !own.faulty {
			p.fault(slots.key, fmt.Sprintf("'concurrent_requests' has no meaning for the algorithm %s", own.algorithm()),
				"write 'requests_per_unit', or set 'algorithm: concurrency'")
		}
	default:
		if !own.faulty || f.has("unit") {
			r.Unit = p.readUnit(f)
		}
		r.Multiplier = uint32(p.readNumber(f.get("unit_multiplier"), 1, anyUint32, 1))
		r.Requests = p.readRequests(f, overlayRequests.key != nil)
	}
	if overlayRequests.key != nil {
		r.Requests, _ = strconv.ParseInt(overlayRequests.value, 10, 64) // ParseOverlay has validated it
	}
	return r
}

// readRequests reads requests_per_unit of a limit. It warns if both the limit and the overlay lack
// it.
func (p *parser) readRequests(f fields, overlaySets bool) int64 {
	if n := f.get("requests_per_unit"); !p.isUnset(n) {
		return p.readNumber(n, 0, limiters.LargestMax, 0)
	}
	if !overlaySets {
		p.warn(missingRequests, cmp.Or(f.key("requests_per_unit"), f.at),
			"'requests_per_unit' is missing, so the limit is 0 and denies every request", "set it")
	}
	return 0
}

func (p *parser) readUnit(f fields) descriptors.Unit {
	text, ok := p.readText(f.get("unit"))
	unit := descriptors.ParseUnit(text)
	if ok && unit == descriptors.UnitUnknown {
		p.fault(cmp.Or(f.value("unit"), f.at), fmt.Sprintf("invalid rate limit unit '%s'", excerpt(text)), suggestUnit(text))
	}
	return unit
}

// readName reads the name of a limit. It warns about a repeated name, because replaces disables all
// limits of a name.
func (p *parser) readName(f field, domain string) string {
	name, _ := p.readText(f)
	if name == "" {
		return ""
	}
	here, in := p.positionOf(f.key), nameIn{domain, name}
	first, taken := p.build.names[in]
	switch {
	case !taken:
		p.build.names[in] = here
	case first != here: // an alias repeats a name on purpose
		p.warn(duplicateName, f.key,
			fmt.Sprintf("the limit at %v has the name '%s' too, and 'replaces' replaces both", first, excerpt(name)),
			"rename one")
	}
	return name
}

// readReplaces reads the names of the limits that this limit, named limitName, replaces.
func (p *parser) readReplaces(list field, domain, limitName string) []string {
	if p.warnIfEmpty(list) {
		return nil
	}
	var names []string
	for _, n := range p.readMaps(list) {
		f, ok := p.readFields(n, replacesSchema)
		if !ok {
			continue
		}
		where := cmp.Or(f.value("name"), n)
		name, ok := p.readText(f.get("name"))
		switch {
		case !ok:
		case name == "":
			p.fault(where, "should not have an empty replaces entry", "write '- name: <the name of another limit>'")
		case name == limitName:
			p.fault(where, fmt.Sprintf("replaces should not contain name of same descriptor: '%s' is its own", excerpt(name)), "remove it")
		default:
			names = append(names, name)
			p.deferCheck(func() {
				if _, known := p.build.names[nameIn{domain, name}]; !known {
					p.warn(unknownReplaces, where,
						fmt.Sprintf("no limit of the domain '%s' has the name '%s'", excerpt(domain), excerpt(name)),
						"give that limit the name, or remove it")
				}
			})
		}
	}
	return names
}

// overlayAt returns the overlay's settings for the rule at a descriptor; nil if there is none. The
// overlay matches the rule's keys and values as if they were a request.
func (p *parser) overlayAt(at *branch) *limitSettings {
	o := p.build.options.Overlay
	return o.limits[o.rules.Match(at.domain, at.path)]
}
