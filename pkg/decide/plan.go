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

	call storeCall
}

// A Plan holds what the rules say about one descriptor: its limits and how they apply.
type Plan struct {
	Domain  string
	Entries []descriptors.Entry     // the entries of the descriptor, without a last entry that only ends a lease
	Rule    *descriptors.Rule       // nil: no rule matches
	Limits  []descriptors.RateLimit // the limits to charge; for the end of a lease, those with leases
	Key     string                  // the key of Limits, see [descriptors.Key]; "" without limits
	Kind    Kind
	Hits    int64 // of a charge, 0 peeks; of a refund, 0 or less; of the end of a lease, the actual cost

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

// A Kind is the effect of a descriptor on its limits.
type Kind uint8

// The kinds.
const (
	Charge   Kind = iota // charges hits, or peeks (checks without charging) if there are none
	Refund               // refunds hits, and is never denied
	EndLease             // ends a lease or settles a reservation, and is never denied
)

// EndsLease reports whether the descriptor ends a lease or settles a reservation.
func (p *Plan) EndsLease() bool { return p.Kind == EndLease }

// A storeCall is the store call of a request.
type storeCall struct {
	ops       []limiters.Op
	groups    []limiters.Group // slices of ops
	hasLeases bool             // an operation has a lease
	key       []byte           // scratch space for building keys
}

// groupSince returns the group of the operations from first on.
func (c *storeCall) groupSince(first int) limiters.Group {
	return c.ops[first:len(c.ops):len(c.ops)]
}

// clear clears r and keeps its memory.
func (r *PlannedRequest) clear() {
	clear(r.Plans)
	clear(r.call.ops)
	clear(r.call.groups)
	*r = PlannedRequest{Plans: r.Plans[:0], call: storeCall{ops: r.call.ops[:0], groups: r.call.groups[:0], key: r.call.key}}
}

// A Planner matches requests to their limits, as [Decider.Decide] does before the store call. It is
// safe for concurrent use.
type Planner struct {
	rules   func() *descriptors.Rules
	options Options
	// overrides has one limit for each key, in a slice of length 1 that must not be modified.
	// Without it, stores would keep a copy of the limit for each key of a client.
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
		clear(planned.Plans)
		planned.Plans = planned.Plans[:0]
		return err
	}
	return nil
}

// planDescriptors matches each descriptor of r to its limits and lists the operations of the store
// call. Without rules for the domain, there are no limits, not even overrides.
func (p *Planner) planDescriptors(r *Request, planned *PlannedRequest) error {
	planned.Plans = zeroed(planned.Plans, len(r.Descriptors))
	domain := planned.Rules.Domain(r.Domain)
	planned.UnknownDomain = domain == nil
	replaces := false
	for i := range r.Descriptors {
		descriptor, plan := &r.Descriptors[i], &planned.Plans[i]
		plan.Domain, plan.Entries, plan.Hits = r.Domain, descriptor.Entries, limiters.ClampHits(descriptor.Hits)
		if descriptor.Refund || descriptor.Hits < 0 {
			plan.Kind = Refund
		}
		if domain == nil {
			plan.PlannedReason = UnknownDomain
			continue
		}
		plan.Domain = domain.Name()
		if err := p.planDescriptor(domain, descriptor, plan); err != nil {
			return invalidRequest("descriptors[%d]: limit: %v", i, err)
		}
		replaces = replaces || plan.replaces()
	}
	if domain == nil {
		return nil
	}
	// The rules' copy of the name does not retain the memory of the request.
	planned.Domain = domain.Name()
	if replaces {
		removeReplaced(planned.Plans)
	}
	p.setModes(planned.Plans)
	return p.listOps(domain, planned)
}

// zeroed returns a slice of n zero elements, in the memory of s if they fit. s must be empty, and
// its memory must be zero.
func zeroed[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

// planDescriptor sets the rule and the limits of a descriptor.
func (p *Planner) planDescriptor(domain *descriptors.Domain, descriptor *Descriptor, plan *Plan) error {
	if len(descriptor.Entries) == 0 {
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
		plan.setLease()
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

// listOps lists the operations under all limits, with a group for each descriptor.
func (p *Planner) listOps(domain *descriptors.Domain, planned *PlannedRequest) error {
	limits := 0
	for i := range planned.Plans {
		limits += len(planned.Plans[i].Limits)
		if limits > MaxLimits {
			return invalidRequest("descriptors[%d]: the descriptors are under more than %d limits together", i, MaxLimits)
		}
	}
	// The groups are slices of ops, so ops must not be reallocated. The additional one is for
	// addRequestOps.
	planned.call.ops = slices.Grow(planned.call.ops, limits+1)
	p.addGroups(&planned.call, planned.Plans, domain)
	return nil
}

// addGroups adds a group for each descriptor. With [Options.AllOrNothing], descriptors that can
// deny the request share one group, at the position of the first of them. An operation that ends a
// lease is ungrouped.
func (p *Planner) addGroups(call *storeCall, plans []Plan, domain *descriptors.Domain) {
	addedShared := false
	for i := range plans {
		switch plan := &plans[i]; {
		case len(plan.Limits) == 0:
		case plan.EndsLease():
			call.groups = append(call.groups, limiters.Singles(p.addOps(call, plan, domain)...)...)
		case !plan.inRequestGroup:
			call.groups = append(call.groups, p.addOps(call, plan, domain))
		case !addedShared:
			addedShared = true
			call.groups = append(call.groups, p.addRequestOps(call, plans, domain))
		}
	}
}

// addRequestOps appends the operations of all descriptors that can deny the request, and returns
// their group. A bad lease id adds an operation that denies the group.
func (p *Planner) addRequestOps(call *storeCall, plans []Plan, domain *descriptors.Domain) limiters.Group {
	first, denied := len(call.ops), false
	for i := range plans {
		if plan := &plans[i]; plan.inRequestGroup {
			p.addOps(call, plan, domain)
			denied = denied || plan.hasBadLeaseID() // no rule of this group is in shadow mode
		}
	}
	if denied {
		call.ops = append(call.ops, limiters.DenyingOp(call.ops[first].Key)) // it has no plan
	}
	return call.groupSince(first)
}

// addOps appends the operations of a descriptor, and returns their group.
func (p *Planner) addOps(call *storeCall, plan *Plan, domain *descriptors.Domain) limiters.Group {
	plan.firstOp = len(call.ops)
	if len(plan.Limits) == 0 {
		return nil
	}
	call.key = plan.appendKey(call.key[:0])
	plan.Key = string(call.key)
	kind := limiters.OpCharge
	if plan.EndsLease() {
		kind = limiters.OpEnd
	}
	var lease limiters.LeaseID
	if plan.Rule != nil && plan.Rule.UsesLeases() {
		lease, call.hasLeases = limiters.NewLeaseID(p.options.LeaseSecret, plan.leaseID()), true
	}
	for i := range plan.Limits {
		l := &plan.Limits[i]
		op := limiters.Op{Key: plan.Key, Limit: l.Limit, Kind: kind, N: plan.Hits, OnError: domain.OnError(l)}
		if l.UsesLeases() {
			op.Lease = lease
		}
		call.ops = append(call.ops, op)
	}
	return call.groupSince(plan.firstOp)
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

// IndexInRule returns the index in Rule.Limits of limit i. It may differ from i for the end of a
// lease.
func (p *Plan) IndexInRule(i int) int {
	if !p.EndsLease() {
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

func (p *Plan) appendKey(dst []byte) []byte {
	if p.HasOverride {
		return descriptors.AppendOverrideKey(dst, p.Domain, p.Rule, p.Entries)
	}
	return descriptors.AppendKey(dst, p.Domain, p.Rule, p.Entries)
}
