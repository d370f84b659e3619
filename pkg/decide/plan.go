package decide

import (
	"slices"

	"github.com/weir-rls/weir/internal/memo"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Plan holds what the rules say about one descriptor: its limits and how they apply.
type Plan struct {
	Domain  string
	Entries []descriptors.Entry     // the entries of the descriptor, without a last entry that only ends a lease
	Rule    *descriptors.Rule       // nil: no rule matches
	Limits  []descriptors.RateLimit // the limits to charge
	Hits    int64                   // > 0 charged, 0 peeked, < 0 refunded; with EndsLease the actual cost

	HasOverride bool // the limit came with the request
	Refund      bool // a refund, even of 0 hits
	// EndsLease marks a descriptor that ends a lease or settles a reservation. It denies nothing,
	// and its Limits are only those with leases.
	EndsLease bool
	// ShadowMode marks a rule in shadow mode, whose denials leave the outcome Allowed.
	ShadowMode bool
	// QuotaMode marks a rule in quota mode, see [Result.CausesDenial]. It is false for an unlimited
	// rule and with EndsLease.
	QuotaMode bool
	// PlannedReason explains the plan. It is the Reason of the decision unless a limit denies the
	// hits or the store fails.
	PlannedReason Reason

	badLeaseID     bool // denied without a store call: the lease id is empty or too long
	firstOp        int  // index of the first operation in the store call
	inRequestGroup bool // the operations are in the group that descriptors share under [Options.AllOrNothing]
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

// Plan validates r and writes the plan of each descriptor to result, which it clears first. Its
// error is that of [Decider.Decide] for an invalid request or missing rules.
func (p *Planner) Plan(r *Request, result *Result) error {
	result.Clear()
	if err := r.validate(); err != nil {
		return err
	}
	result.Domain = r.Domain
	rules := p.rules()
	if rules == nil {
		return &Error{Kind: NoRules, text: "no rate limit configuration loaded"} // as envoyproxy/ratelimit says
	}
	result.Rules = rules
	if err := p.planDescriptors(rules, r, result); err != nil {
		result.clearDecisions()
		return err
	}
	return nil
}

// planDescriptors matches each descriptor of r to its limits and lists the operations of the store
// call. Without rules for the domain, there are no limits, not even overrides.
func (p *Planner) planDescriptors(rules *descriptors.Rules, r *Request, result *Result) error {
	result.Decisions = zeroed(result.Decisions, len(r.Descriptors))
	domain := rules.Domain(r.Domain)
	result.UnknownDomain = domain == nil
	replaces := false
	for i := range r.Descriptors {
		descriptor, plan := &r.Descriptors[i], &result.Decisions[i].Plan
		plan.Domain, plan.Entries, plan.Hits = r.Domain, descriptor.Entries, limiters.ClampHits(descriptor.Hits)
		plan.Refund = descriptor.Refund
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
	result.Domain = domain.Name()
	if replaces {
		removeReplaced(result.Decisions)
	}
	p.setModes(result.Decisions)
	return p.listOps(domain, result)
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
	if descriptor.Refund && plan.Hits == 0 && !plan.EndsLease && len(plan.Limits) > 0 {
		// It changes nothing, and a refund is never denied. The store would decide it as a peek.
		plan.Limits = nil
	}
	return nil
}

// Unlimited reports whether the rule is unlimited and the request carries no limit.
func (p *Plan) Unlimited() bool { return p.Rule != nil && p.Rule.Unlimited && !p.HasOverride }

func (p *Plan) replaces() bool {
	return p.Rule != nil && !p.HasOverride && !p.EndsLease && len(p.Rule.Replaces) > 0
}

// removeReplaced removes the limits of rules that another matched rule replaces by name, even if
// that rule is itself replaced. An unlimited rule may replace others and is never replaced.
// Descriptors that end a lease do not take part.
func removeReplaced(decisions []Decision) {
	var names []string
	for i := range decisions {
		if d := &decisions[i]; d.replaces() {
			names = append(names, d.Rule.Replaces...)
		}
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Rule != nil && !d.HasOverride && !d.EndsLease && !d.Rule.Unlimited && slices.ContainsFunc(names, d.Rule.HasLimitNamed) {
			d.Limits, d.PlannedReason = nil, Replaced
		}
	}
}

// setModes sets QuotaMode of the decisions, and which of them share the request's group.
func (p *Planner) setModes(decisions []Decision) {
	quotas := 0
	for i := range decisions {
		plan := &decisions[i].Plan
		limited := len(plan.Limits) > 0 || plan.badLeaseID
		inQuotaRule := limited && plan.Rule != nil && !plan.HasOverride && plan.Rule.QuotaMode
		plan.QuotaMode = !plan.EndsLease && !plan.Unlimited() && (p.options.QuotaMode || inQuotaRule)
		if plan.QuotaMode {
			quotas++
		}
	}
	if !p.options.AllOrNothing || p.options.ShadowMode {
		return
	}
	for i := range decisions {
		// Only a descriptor that can deny the request by itself may prevent the charge of the
		// others.
		plan := &decisions[i].Plan
		plan.inRequestGroup = !plan.EndsLease && !plan.ShadowMode && (!plan.QuotaMode || quotas == 1)
	}
}

// listOps lists the operations under all limits, with a group for each descriptor.
func (p *Planner) listOps(domain *descriptors.Domain, result *Result) error {
	limits := 0
	for i := range result.Decisions {
		limits += len(result.Decisions[i].Limits)
		if limits > MaxLimits {
			return invalidRequest("descriptors[%d]: the descriptors are under more than %d limits together", i, MaxLimits)
		}
	}
	call := &result.call
	// The groups are slices of ops, so ops must not be reallocated. The additional one is for
	// addRequestOps.
	call.ops = slices.Grow(call.ops, limits+1)
	p.addGroups(call, result.Decisions, domain)
	call.verdicts = zeroed(call.verdicts, len(call.ops))
	return nil
}

// addGroups adds a group for each descriptor. With [Options.AllOrNothing], descriptors that can
// deny the request share one group, at the position of the first of them. An operation that ends a
// lease is ungrouped.
func (p *Planner) addGroups(call *storeCall, decisions []Decision, domain *descriptors.Domain) {
	addedShared := false
	for i := range decisions {
		switch plan := &decisions[i].Plan; {
		case len(plan.Limits) == 0:
		case plan.EndsLease:
			call.groups = append(call.groups, limiters.Singles(p.addOps(call, plan, domain)...)...)
		case !plan.inRequestGroup:
			call.groups = append(call.groups, p.addOps(call, plan, domain))
		case !addedShared:
			addedShared = true
			call.groups = append(call.groups, p.addRequestOps(call, decisions, domain))
		}
	}
}

// addRequestOps appends the operations of all descriptors that can deny the request, and returns
// their group. A bad lease id adds an operation that denies the group.
func (p *Planner) addRequestOps(call *storeCall, decisions []Decision, domain *descriptors.Domain) limiters.Group {
	first, denied := len(call.ops), false
	for i := range decisions {
		if plan := &decisions[i].Plan; plan.inRequestGroup {
			p.addOps(call, plan, domain)
			denied = denied || plan.badLeaseID // no rule of this group is in shadow mode
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
	key := string(call.key)
	kind := limiters.OpCharge
	if plan.EndsLease {
		kind = limiters.OpEnd
	}
	var lease limiters.LeaseID
	if plan.Rule != nil && plan.Rule.UsesLeases() {
		lease, call.hasLeases = limiters.NewLeaseID(p.options.LeaseSecret, plan.leaseID()), true
	}
	for i := range plan.Limits {
		l := &plan.Limits[i]
		op := limiters.Op{Key: key, Limit: l.Limit, Kind: kind, N: plan.Hits, OnError: domain.OnError(l)}
		if l.UsesLeases() {
			op.Lease = lease
		}
		call.ops = append(call.ops, op)
	}
	return call.groupSince(plan.firstOp)
}

func (p *Plan) appendKey(dst []byte) []byte {
	if p.HasOverride {
		return descriptors.AppendOverrideKey(dst, p.Domain, p.Rule, p.Entries)
	}
	return descriptors.AppendKey(dst, p.Domain, p.Rule, p.Entries)
}
