package decide

import (
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A storeCall is the store call of a request.
type storeCall struct {
	ops       []limiters.Op
	groups    []limiters.Group // slices of ops
	hasLeases bool             // an operation has a lease
}

// groupSince returns the group of the operations from first on.
func (c *storeCall) groupSince(first int) limiters.Group {
	return c.ops[first:len(c.ops):len(c.ops)]
}

// buildCall builds the store call of planned: the operations under all limits, in groups.
func (p *Planner) buildCall(domain *descriptors.Domain, planned *PlannedRequest) error {
	limits := 0
	for i := range planned.Plans {
		limits += len(planned.Plans[i].Limits)
		if limits > MaxLimits {
			return invalidRequest("descriptors[%d]: the descriptors are under more than %d limits together", i, MaxLimits)
		}
	}
	planned.call.ops = slices.Grow(planned.call.ops, limits)
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
			call.groups = append(call.groups, limiters.Singles(p.addDescriptorOps(call, plan, domain)...)...)
		case !plan.inRequestGroup:
			call.groups = append(call.groups, p.addDescriptorOps(call, plan, domain))
		case !addedShared:
			addedShared = true
			call.groups = append(call.groups, p.addRequestGroup(call, plans, domain))
		}
	}
}

// addRequestGroup appends the operations of all descriptors that can deny the request, and returns
// their group. A bad lease id adds an operation that denies the group.
func (p *Planner) addRequestGroup(call *storeCall, plans []Plan, domain *descriptors.Domain) limiters.Group {
	first, denied := len(call.ops), false
	for i := range plans {
		if plan := &plans[i]; plan.inRequestGroup {
			p.addDescriptorOps(call, plan, domain)
			denied = denied || plan.hasBadLeaseID() // no rule of this group is in shadow mode
		}
	}
	if denied {
		// The operation belongs to no plan. The plan for which addGroups calls addRequestGroup has
		// limits, so there is a first operation.
		call.ops = append(call.ops, limiters.DenyingOp(call.ops[first].Key))
	}
	return call.groupSince(first)
}

// addDescriptorOps appends the operations of a descriptor, and returns their group.
func (p *Planner) addDescriptorOps(call *storeCall, plan *Plan, domain *descriptors.Domain) limiters.Group {
	plan.firstOp = len(call.ops)
	if len(plan.Limits) == 0 {
		return nil
	}
	var stack [256]byte // a longer key allocates twice
	plan.Key = string(plan.appendKey(stack[:0]))
	kind := limiters.OpAddHits
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

func (p *Plan) appendKey(dst []byte) []byte {
	if p.HasOverride {
		return descriptors.AppendOverrideKey(dst, p.Domain, p.Rule, p.Entries)
	}
	return descriptors.AppendKey(dst, p.Domain, p.Rule, p.Entries)
}
