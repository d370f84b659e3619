package decide

import (
	"slices"

	"github.com/weir-rls/weir/internal/memo"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A PlannedRequest holds the plans of a request before the store call. The zero PlannedRequest is
// ready for [Planner.Plan].
type PlannedRequest struct {
	Domain        string             // the domain of the request; empty if the request is invalid
	Rules         *descriptors.Rules // rules that decide; nil if the request is invalid or no rules are loaded
	UnknownDomain bool               // no rules have the domain, so nothing is limited
	// Plans holds one element for each descriptor, in request order. It is empty if the request is
	// invalid.
	Plans []Plan

	ops    []limiters.Op    // the operations under the limits of all plans
	groups []limiters.Group // slices of ops, for one store call
}

// A Plan is the part of the rules that applies to one descriptor: its limits and its modes.
type Plan struct {
	Domain  string
	Entries []descriptors.Entry     // the entries of the descriptor; a last entry that only ends a lease is left out
	Rule    *descriptors.Rule       // nil: no rule matches
	Limits  []descriptors.RateLimit // the limits to charge; for the end of a lease, those with leases
	Key     string                  // the key of Limits, see [descriptors.Key]; "" without limits. It may be retained
	Kind    PlanKind
	// Hits is the number of hits to charge. If Kind is Charge, 0 peeks. If it is Refund, Hits is
	// not positive. If it is EndLease, Hits is the actual cost of a reservation.
	Hits int64

	HasOverride bool // the limit came with the request
	ShadowMode  bool // the rule is in shadow mode, so its denials leave the outcome Allowed
	// QuotaMode marks a rule in quota mode, see [Result.CausesDenial]. It is false for an unlimited
	// rule and the end of a lease.
	QuotaMode bool
	// PlannedReason explains the plan. It is the Reason of the decision unless a limit denies the
	// hits or the store fails.
	PlannedReason Reason

	firstOp        int  // index of the first operation in the store call
	inRequestGroup bool // the operations are in the group that descriptors share under [Options.AllOrNothing]
}

// A PlanKind is the effect of a descriptor on its limits.
type PlanKind uint8

// The kinds.
const (
	Charge   PlanKind = iota // charges hits, or peeks (checks without charging) if there are none
	Refund                   // refunds hits, and is never denied
	EndLease                 // ends a lease, and is never denied
)

// EndsLease reports whether the descriptor ends a lease.
func (p *Plan) EndsLease() bool { return p.Kind == EndLease }

// clear clears planned and keeps its memory.
func (planned *PlannedRequest) clear() {
	clear(planned.Plans)
	clear(planned.ops)
	clear(planned.groups)
	*planned = PlannedRequest{Plans: planned.Plans[:0], ops: planned.ops[:0], groups: planned.groups[:0]}
}

// A Planner matches requests to their limits, as [Decider.Decide] does before the store call. It is
// safe for concurrent use.
type Planner struct {
	rules   func() *descriptors.Rules
	options Options
	// overrides holds one limit for each overrideKey, in a slice of length 1 that must not be
	// modified. Without it, a store would keep a new limit for each client's key.
	overrides memo.Cache[overrideKey, []descriptors.RateLimit]
}

// An overrideKey identifies the limit of an override.
type overrideKey struct {
	base     descriptors.OverrideBase
	override Override
}

// NewPlanner returns a Planner. It calls rules once for each request; nil rules mean that none are
// loaded yet.
func NewPlanner(rules func() *descriptors.Rules, o Options) *Planner {
	return &Planner{rules: rules, options: o}
}

// Plan validates r and writes the plan of each descriptor to planned, which it clears first. Its
// error is that of [Decider.Decide] for an invalid request or missing rules.
func (p *Planner) Plan(r *Request, planned *PlannedRequest) error {
	planned.clear()
	if err := r.validate(); err != nil {
		return err
	}
	planned.Domain = r.Domain
	planned.Rules = p.rules()
	if planned.Rules == nil {
		return &Error{Kind: NoRules, text: "no rate limit configuration loaded"} // as envoyproxy/ratelimit says
	}
	if err := p.planDescriptors(r, planned); err != nil {
		planned.clear()
		return err
	}
	return nil
}

// planDescriptors matches each descriptor of r to its limits and adds its operations. Without
// rules for the domain, there are no limits, not even overrides.
func (p *Planner) planDescriptors(r *Request, planned *PlannedRequest) error {
	planned.Plans = resized(planned.Plans, len(r.Descriptors))
	domain := planned.Rules.Domain(r.Domain)
	planned.UnknownDomain = domain == nil
	if domain != nil {
		planned.Domain = domain.Name() // the rules' copy does not retain the memory of the request
	}
	replaces := false
	for i := range r.Descriptors {
		descriptor, plan := &r.Descriptors[i], &planned.Plans[i]
		plan.Domain, plan.Entries, plan.Hits = planned.Domain, descriptor.Entries, limiters.ClampHits(descriptor.Hits)
		if descriptor.Refund || descriptor.Hits < 0 {
			plan.Kind = Refund
		}
		if domain == nil {
			plan.PlannedReason = UnknownDomain
			continue
		}
		if err := p.planDescriptor(domain, descriptor, plan); err != nil {
			return invalidRequest("descriptors[%d]: limit: %v", i, err)
		}
		replaces = replaces || plan.replaces()
	}
	if domain == nil {
		return nil
	}
	if replaces {
		removeReplaced(planned.Plans)
	}
	p.setModes(planned.Plans)
	return p.addOps(planned, domain)
}

// resized returns s with n zero elements, in its memory if they fit. All of this memory must be
// zero, as clear leaves it.
func resized[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

// planDescriptor sets the rule and the limits of a descriptor.
func (p *Planner) planDescriptor(domain *descriptors.Domain, descriptor *Descriptor, plan *Plan) error {
	if len(descriptor.Entries) == 0 {
		plan.PlannedReason = NoEntries
		return nil
	}
	plan.Rule, plan.PlannedReason = domain.Match(descriptor.Entries), WithinLimit
	if plan.Rule == nil {
		plan.matchEnd(domain)
	}
	rule := plan.Rule
	switch {
	case descriptor.Override != nil:
		base, override := rule.OverrideBase(p.options.CalendarMonths), *descriptor.Override
		limits, err := p.overrides.Get(overrideKey{base, override}, func() ([]descriptors.RateLimit, error) {
			limit, err := base.Limit(override.RequestsPerUnit, override.Unit, override.UnitMultiplier)
			return []descriptors.RateLimit{limit}, err
		})
		if err != nil {
			return err
		}
		plan.HasOverride, plan.Limits = true, limits
	case rule == nil:
		plan.PlannedReason = NoRule
	default:
		plan.Limits, plan.ShadowMode = rule.Limits, rule.ShadowMode
		if rule.Unlimited {
			plan.PlannedReason = Unlimited
		}
	}
	if rule != nil && rule.UsesLeases() {
		plan.applyLeaseRules()
	}
	if plan.Kind == Refund && plan.Hits == 0 {
		plan.Limits = nil // it changes nothing, and the store would decide it as a peek
	}
	return nil
}

// Unlimited reports whether the rule is unlimited and the request carries no limit.
func (p *Plan) Unlimited() bool { return p.Rule != nil && p.Rule.Unlimited && !p.HasOverride }

// UsesRule reports whether the limits to charge or refund are those of the rule.
func (p *Plan) UsesRule() bool { return p.Rule != nil && !p.HasOverride && !p.EndsLease() }

func (p *Plan) replaces() bool { return p.UsesRule() && len(p.Rule.Replaces) > 0 }

// removeReplaced removes the limits of rules that another matched rule replaces by name, even if
// that rule is itself replaced. An unlimited rule may replace others and is never replaced.
// Descriptors that end a lease do not take part.
func removeReplaced(plans []Plan) {
	var names []string
	for i := range plans {
		if p := &plans[i]; p.replaces() {
			names = append(names, p.Rule.Replaces...)
		}
	}
	for i := range plans {
		p := &plans[i]
		if p.UsesRule() && !p.Rule.Unlimited && slices.ContainsFunc(names, p.Rule.HasLimitNamed) {
			p.Limits, p.PlannedReason = nil, Replaced
		}
	}
}

// setModes sets QuotaMode of the plans, and which of them share the request's group.
func (p *Planner) setModes(plans []Plan) {
	quotas := 0
	for i := range plans {
		plan := &plans[i]
		limited := len(plan.Limits) > 0 || plan.hasBadLeaseID()
		inQuotaRule := limited && plan.UsesRule() && plan.Rule.QuotaMode
		plan.QuotaMode = !plan.EndsLease() && !plan.Unlimited() && (p.options.QuotaMode || inQuotaRule)
		if plan.QuotaMode {
			quotas++
		}
	}
	if !p.options.AllOrNothing || p.options.ShadowMode {
		return
	}
	for i := range plans {
		// Only a descriptor that can deny the request by itself may prevent the charge of the
		// others.
		plan := &plans[i]
		plan.inRequestGroup = !plan.EndsLease() && !plan.ShadowMode && (!plan.QuotaMode || quotas == 1)
	}
}

// OverrideName is the name of a limit that came with the request, in metrics, headers and logs.
const OverrideName = "override"

// LimitLabel returns the name of limit i, its index in the rule if it has none, or [OverrideName]
// if it came with the request.
func (p *Plan) LimitLabel(i int) string {
	if p.HasOverride {
		return OverrideName
	}
	return p.Limits[i].Label(p.IndexInRule(i))
}

// IndexInRule returns the index in Rule.Limits of limit i, or i if it came with the request. It may
// differ from i for the end of a lease.
func (p *Plan) IndexInRule(i int) int {
	if p.HasOverride || !p.EndsLease() {
		return i
	}
	return slices.IndexFunc(p.Rule.Limits, func(l descriptors.RateLimit) bool { return l.Limit == p.Limits[i].Limit })
}

// RuleName returns the name of the rule; "" without a rule.
func (p *Plan) RuleName() string {
	if p.Rule == nil {
		return ""
	}
	return p.Rule.Name
}
