package rulesfile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// limits reads the limits of a descriptor into rule, and tells whether there are any, or none on purpose.
func (p *parser) limits(f fields, at location, rule *descriptors.Rule) bool {
	one, many := f["rate_limit"], f["rate_limits"]
	if one.key != nil && many.key != nil {
		p.fault(many.key, "rate_limits stands in place of rate_limit: put that limit in the list too")
	}
	some := !p.empty(one) && p.single(one.value, at, rule)
	if many.key == nil {
		return some
	}
	if n, ok := p.visit(many.value); ok && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		p.fault(n, "rate_limits is empty: want at least one limit")
	}
	return p.list(many, at, rule) || some
}

// single reads a rate_limit.
func (p *parser) single(n *yaml.Node, at location, rule *descriptors.Rule) bool {
	f, ok := p.fields(n, inRateLimit)
	if !ok {
		return false
	}
	rule.LimitName = p.name(f["name"], at.domain)
	rule.Replaces = p.replaces(f["replaces"], at.domain, rule.LimitName)
	if rule.Unlimited = p.flag(f["unlimited"]); rule.Unlimited {
		return p.unlimited(f)
	}
	l, ok := p.limit(n, f, p.overlay(at))
	if l.Name = rule.LimitName; ok {
		rule.Limits = append(rule.Limits, l)
	}
	return ok
}

// unlimited tells what has no place beside it.
func (p *parser) unlimited(f fields) bool {
	before := p.found
	if unit, _ := p.text(f["unit"]); descriptors.ParseUnit(unit) != descriptors.UnitUnknown {
		p.fault(f["unit"].key, "should not specify rate limit unit when unlimited: remove the one or the other")
	} else if unit != "" && !strings.EqualFold(unit, descriptors.UnitUnknown.String()) {
		p.warn(f["unit"].key, "unit '%s' is none, and has no effect when unlimited", short(unit))
	}
	if !p.null(f["requests_per_unit"]) && p.number(f["requests_per_unit"], 0, anyUint32, 0) > 0 {
		p.warn(f["requests_per_unit"].key, "requests_per_unit has no effect when unlimited")
	}
	for _, k := range inRateLimit.keys {
		if key := f[k.name].key; key != nil && k.new {
			p.fault(key, "%s has no meaning when unlimited: remove the one or the other", k.name)
		}
	}
	return p.found == before
}

// list reads limits that are one group: no two may share a counter.
func (p *parser) list(f field, at location, rule *descriptors.Rule) bool {
	ids := map[string]bool{}
	for _, n := range p.maps(f) {
		f, ok := p.fields(n, inRateLimits)
		if !ok {
			continue
		}
		name := p.name(f["name"], at.domain)
		l, ok := p.limit(n, f, nil)
		if !ok {
			continue
		}
		if ids[l.Limit.ID()] {
			p.fault(n, "duplicate limit in rate_limits: it would share a counter with one above of the same algorithm and "+
				"window; keep the lower, or change the unit or the unit_multiplier")
		}
		ids[l.Limit.ID()] = true
		if l.Name = name; rule.LimitName == "" {
			rule.LimitName = name
		}
		rule.Limits = append(rule.Limits, l)
	}
	return len(rule.Limits) > 0
}

// limit reads a limit of its map n with the fields f. What it leaves open, the overlay may say.
func (p *parser) limit(n *yaml.Node, f fields, overlay *policy) (descriptors.RateLimit, bool) {
	before := p.found
	unit := p.unit(n, f["unit"])
	multiplier := uint32(p.number(f["unit_multiplier"], 1, anyUint32, 1))
	requests := uint32(0)
	if where := f["requests_per_unit"].key; p.null(f["requests_per_unit"]) {
		if where == nil {
			where = n
		}
		p.warn(where, "requests_per_unit is missing: it is 0, which denies every hit")
	} else {
		requests = uint32(p.number(f["requests_per_unit"], 0, anyUint32, 0))
	}
	own := p.policy(n, f)
	sum, borrowed := own.over(overlay)
	from := blame(overlay, borrowed)
	for key, problem := range sum.strays() {
		where := own.settings[key].key
		if where == nil {
			where = n
		}
		p.fault(where, "%s%s", problem, from)
	}
	if p.found > before || p.stopped {
		return descriptors.RateLimit{}, false
	}
	l, err := descriptors.NewRateLimit(sum.spec(), requests, unit, multiplier)
	if err != nil {
		p.fault(n, "%v%s", err, from)
		return l, false
	}
	l.OnError = limiters.OnErrorOf(sum.settings["on_store_error"].value)
	return l, true
}

func (p *parser) unit(limit *yaml.Node, f field) descriptors.Unit {
	text, ok := p.text(f)
	unit := descriptors.ParseUnit(text)
	if ok && unit == descriptors.UnitUnknown {
		if f.value != nil {
			limit = f.value
		}
		p.fault(limit, "invalid rate limit unit '%s': want one of %s", short(text), strings.Join(descriptors.UnitNames(), ", "))
	}
	return unit
}

// name reads the name of a limit. Two limits with one name are replaced together, which is seldom meant.
func (p *parser) name(f field, domain string) string {
	name, _ := p.text(f)
	if name == "" {
		return ""
	}
	here, in := p.spot(f.key), nameIn{domain, name}
	first, taken := p.names[in]
	switch {
	case !taken:
		p.names[in] = here
	case first != here: // the same behind an alias is on purpose
		p.warn(f.key, "name '%s' is that of another limit too, at %v: what replaces it replaces both", short(name), first)
	}
	return name
}

// replaces reads the names of the limits that the limit named own replaces.
func (p *parser) replaces(f field, domain, own string) []string {
	if p.empty(f) {
		return nil
	}
	var names []string
	for _, n := range p.maps(f) {
		f, ok := p.fields(n, inReplaces)
		if !ok {
			continue
		}
		where := n
		if f["name"].value != nil {
			where = f["name"].value
		}
		name, ok := p.text(f["name"])
		switch {
		case !ok:
		case name == "":
			p.fault(where, "should not have an empty replaces entry: want '- name: <the name of another limit>'")
		case name == own:
			p.fault(where, "replaces should not contain name of same descriptor: '%s' is its own", short(name))
		default:
			names = append(names, name)
			p.later(func() {
				if _, known := p.names[nameIn{domain, name}]; !known {
					p.warn(where, "replaces names '%s', which no limit of the domain '%s' has", short(name), short(domain))
				}
			})
		}
	}
	return names
}

// overlay returns what the overlay says of the rule at a location; nil for nothing.
func (p *parser) overlay(at location) *policy {
	o := p.options.Overlay.match(at.domain, at.path)
	if o != nil {
		p.applied[o] = true
	}
	return o
}
