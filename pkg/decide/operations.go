package decide

import (
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// addOps adds the operations under all limits to planned, in groups.
func (p *Planner) addOps(planned *PlannedRequest, domain *descriptors.Domain) error {
	limits := 0
	for i := range planned.Plans {
		limits += len(planned.Plans[i].Limits)
		if limits > MaxLimits {
			return invalidRequest("descriptors[%d]: the descriptors are under more than %d limits together", i, MaxLimits)
		}
	}
	planned.ops = slices.Grow(planned.ops, limits)
	p.addGroups(planned, domain)
	return nil
}

// groupSince returns the group of the operations from first on.
func (planned *PlannedRequest) groupSince(first int) limiters.Group {
	return planned.ops[first:len(planned.ops):len(planned.ops)]
}

// addGroups adds a group for each descriptor. With [Options.AllOrNothing], descriptors that can
// deny the request share one group, at the position of the first of them. An operation that ends a
// lease is ungrouped.
func (p *Planner) addGroups(planned *PlannedRequest, domain *descriptors.Domain) {
	addedRequestGroup := false
	for i := range planned.Plans {
		switch plan := &planned.Plans[i]; {
		case len(plan.Limits) == 0:
		case plan.EndsLease():
			p.appendOps(planned, plan, domain)
			planned.groups = append(planned.groups, limiters.Singles(planned.groupSince(plan.firstOp)...)...)
		case !plan.inRequestGroup:
			p.appendOps(planned, plan, domain)
			planned.groups = append(planned.groups, planned.groupSince(plan.firstOp))
		case !addedRequestGroup:
			addedRequestGroup = true
			first := len(planned.ops)
			p.appendOpsOfRequestGroup(planned, domain)
			planned.groups = append(planned.groups, planned.groupSince(first))
		}
	}
}

// appendOpsOfRequestGroup appends the operations of all descriptors that can deny the request. At
// least one of these has a limit. If a lease id is bad, the last operation denies the group, and
// belongs to no plan.
func (p *Planner) appendOpsOfRequestGroup(planned *PlannedRequest, domain *descriptors.Domain) {
	denied := false
	for i := range planned.Plans {
		if plan := &planned.Plans[i]; plan.inRequestGroup {
			p.appendOps(planned, plan, domain)
			denied = denied || plan.hasBadLeaseID() // no rule of this group is in shadow mode
		}
	}
	if denied {
		planned.ops = append(planned.ops, limiters.DenyingOp(planned.ops[len(planned.ops)-1].Key))
	}
}

// appendOps appends the operations of a descriptor.
func (p *Planner) appendOps(planned *PlannedRequest, plan *Plan, domain *descriptors.Domain) {
	plan.firstOp = len(planned.ops)
	if len(plan.Limits) == 0 {
		return
	}
	var stack [256]byte // a longer key allocates twice
	plan.Key = string(plan.appendKey(stack[:0]))
	kind := limiters.OpAddHits
	if plan.EndsLease() {
		kind = limiters.OpEnd
	}
	var lease limiters.LeaseID
	if plan.Rule != nil && plan.Rule.UsesLeases() {
		lease = limiters.NewLeaseID(p.options.LeaseSecret, plan.leaseID())
	}
	for i := range plan.Limits {
		l := &plan.Limits[i]
		op := limiters.Op{Key: plan.Key, Limit: l.Limit, Kind: kind, Hits: plan.Hits}
		op.OnStoreError = domain.OnStoreError(l)
		if l.UsesLeases() {
			op.Lease = lease
		}
		planned.ops = append(planned.ops, op)
	}
}

func (p *Plan) appendKey(dst []byte) []byte {
	if p.HasOverride {
		return descriptors.AppendOverrideKey(dst, p.Domain, p.Rule, p.Entries)
	}
	return descriptors.AppendKey(dst, p.Domain, p.Rule, p.Entries)
}
