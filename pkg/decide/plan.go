package decide

import (
	"cmp"
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// plan matches each descriptor of r to its limits and lists the hits to charge. A domain without rules limits nothing,
// overrides included.
func (d *Decider) plan(rules *descriptors.Rules, r *Request, result *Result) *Error {
	result.Decisions = resize(result.Decisions, len(r.Descriptors))
	domain := rules.Domain(r.Domain)
	result.DomainNotFound = domain == nil
	replaces := false
	for i := range r.Descriptors {
		descriptor, decision := &r.Descriptors[i], &result.Decisions[i]
		decision.Domain, decision.Entries, decision.Hits = r.Domain, descriptor.Entries, capHits(descriptor.Hits)
		if domain == nil {
			decision.Reason = UnknownDomain
			continue
		}
		decision.Domain = domain.Name()
		if err := d.match(domain, descriptor, decision); err != nil {
			return invalid("descriptors[%d]: limit: %v", i, err)
		}
		replaces = replaces || decision.replaces()
	}
	if domain == nil {
		return nil
	}
	// The rules' own text of the name: the request's would keep the memory of the request.
	result.Domain = domain.Name()
	if replaces {
		dropReplaced(result.Decisions)
	}
	return d.charge(domain, result)
}

// resize returns a slice of n zero elements, in the memory of s if there is enough. The elements of s past its length
// must be zero.
func resize[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

// match finds the rule and the limits of one descriptor.
func (d *Decider) match(domain *descriptors.Domain, descriptor *Descriptor, decision *Decision) error {
	if len(descriptor.Entries) == 0 {
		return nil
	}
	decision.Rule, decision.Reason = domain.Match(descriptor.Entries), NoRule
	if descriptor.Override != nil {
		limits, err := d.overrides.limit(decision.Rule, *descriptor.Override)
		decision.Override, decision.Limits = true, limits
		return err
	}
	if rule := decision.Rule; rule != nil {
		decision.Limits, decision.Shadow = rule.Limits, rule.ShadowMode
		if rule.Unlimited {
			decision.Reason, decision.Remaining = Unlimited, limiters.MaxHits
		}
	}
	return nil
}

func (d *Decision) replaces() bool { return d.Rule != nil && !d.Override && d.Rule.IsReplacing() }

// dropReplaced drops the limits of rules that another matched rule replaces by name, whether or not that rule is replaced
// itself. An unlimited rule replaces others and is never replaced.
func dropReplaced(decisions []Decision) {
	var names []string
	for i := range decisions {
		if d := &decisions[i]; d.replaces() {
			names = append(names, d.Rule.Replaces...)
		}
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Rule != nil && !d.Override && d.Reason != Unlimited && slices.ContainsFunc(names, d.Rule.HasName) {
			d.Limits, d.Reason = nil, Replaced
		}
	}
}

// charge sets the modes of the decisions and lists the hits of their limits. The limits of one descriptor are a group: either
// all are charged or none.
func (d *Decider) charge(domain *descriptors.Domain, result *Result) *Error {
	quotas, limits := 0, 0
	for i := range result.Decisions {
		decision := &result.Decisions[i]
		if limits += len(decision.Limits); limits > MaxLimits {
			return invalid("descriptors[%d]: the descriptors are under more than %d limits together", i, MaxLimits)
		}
		inQuotaRule := len(decision.Limits) > 0 && decision.Rule != nil && !decision.Override && decision.Rule.QuotaMode
		decision.Quota = d.options.QuotaMode || inQuotaRule
		if decision.Quota && decision.Reason != Unlimited {
			quotas++
		}
	}
	result.hits = slices.Grow(result.hits, limits) // the groups are slices of it, so it must not move
	d.addGroups(domain, result, quotas)
	result.verdicts = resize(result.verdicts, len(result.hits))
	return nil
}

// addGroups adds a group for each descriptor. Under [Options.AllOrNothing] the descriptors that can deny the request share
// one group, at the position of the first of them.
func (d *Decider) addGroups(domain *descriptors.Domain, result *Result, quotas int) {
	shared := false
	for i := range result.Decisions {
		first := len(result.hits)
		switch decision := &result.Decisions[i]; {
		case len(decision.Limits) == 0:
			continue
		case !d.inRequestGroup(decision, quotas):
			result.addHits(decision, domain)
		case shared:
			continue
		default:
			shared = true
			for j := i; j < len(result.Decisions); j++ {
				if other := &result.Decisions[j]; len(other.Limits) > 0 && d.inRequestGroup(other, quotas) {
					result.addHits(other, domain)
				}
			}
		}
		result.groups = append(result.groups, result.hits[first:len(result.hits):len(result.hits)])
	}
}

// inRequestGroup reports whether a descriptor is charged together with the others of its request. It must be able to deny the
// request by itself. A rule in shadow mode that is over its limit would otherwise let everything pass, and the other limits
// would not be charged.
func (d *Decider) inRequestGroup(decision *Decision, quotas int) bool {
	return d.options.AllOrNothing && !d.options.ShadowMode && !decision.Shadow && (!decision.Quota || quotas == 1)
}

// addHits appends the hits of one descriptor.
func (r *Result) addHits(decision *Decision, domain *descriptors.Domain) {
	decision.first = len(r.hits)
	r.key = decision.appendKey(r.key[:0])
	key := string(r.key)
	for i := range decision.Limits {
		l := &decision.Limits[i]
		r.hits = append(r.hits, limiters.Hit{
			Key: key, Limit: l.Limit, N: decision.Hits, OnError: cmp.Or(l.OnError, domain.OnError()),
		})
	}
}

func (d *Decision) appendKey(dst []byte) []byte {
	if d.Override {
		return descriptors.AppendOverrideKey(dst, d.Domain, d.Rule, d.Entries)
	}
	return descriptors.AppendKey(dst, d.Domain, d.Rule, d.Entries)
}
