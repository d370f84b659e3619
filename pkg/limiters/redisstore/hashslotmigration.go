package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// repeatKeyByKey repeats calls that got TRYAGAIN, because a call over several keys fails while
// their hash slot moves, see ADR 5. It charges a group key by key, and refunds it if one of its
// operations is denied or fails. A group with both charges and refunds keeps the error, because
// refunds cannot be undone. An operation with a penalty or a reservation has extra keys; it keeps
// the error unless one node has all of them.
func (n *node) repeatKeyByKey(ctx context.Context, calls []*hashSlotCall) {
	start := time.Now()
	charges, refunds := make([][]*hashSlotCall, len(calls)), make([][]*hashSlotCall, len(calls))
	for i, call := range calls {
		charges[i] = chargesOf(call)
	}
	n.makeCalls(ctx, slices.Concat(charges...))
	for i, call := range calls {
		for _, charge := range charges[i] {
			charge.Scatter(call.Verdicts) // an operation that is not in charges keeps its error
		}
		refunds[i] = refundsOf(call, start)
	}
	// The charges may have used up the time of the call, so it may take twice the timeout.
	refunding, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cluster.store.queues.timeout)
	defer cancel()
	n.makeCalls(refunding, slices.Concat(refunds...))
	for i, call := range calls {
		scatterRefunds(refunds[i], call.Verdicts)
		call.err = errorOfVerdicts(call.Verdicts)
	}
}

// chargesOf returns a call for each key. Operations on one key keep their order and group.
func chargesOf(call *hashSlotCall) []*hashSlotCall {
	charges := callSet[string]{notAfter: call.notAfter}
	for first, g := range limiters.EachGroup(call.Groups) {
		keys := call.keys[first : first+len(g)]
		if isMixed(g) && spansKeys(keys) {
			continue
		}
		for i, key := range keys {
			if slices.Index(keys, key) < i {
				continue // added with the first operation on this key
			}
			var own limiters.Group
			var indices []int
			for j, op := range g[i:] {
				if keys[i+j] == key {
					own, indices = append(own, op), append(indices, first+i+j)
				}
			}
			charge := charges.of(key)
			charge.AddOps(own, indices...)
			charge.keys = append(charge.keys, slices.Repeat([]string{key}, len(own))...)
		}
	}
	return charges.calls
}

// refundsOf returns refunds of the operations that were charged, after start, in groups that were
// denied. The refunds do not have the deadline of the charges, because a charge must be refunded
// even if its client has left.
func refundsOf(call *hashSlotCall, start time.Time) []*hashSlotCall {
	var refunds callSet[string]
	for first, g := range limiters.EachGroup(call.Groups) {
		keys := call.keys[first : first+len(g)]
		notAllowed := func(i int) bool { return call.Verdicts[first+i].Err != nil || !call.Verdicts[first+i].Allowed }
		var notAllowedKeys []string
		for i := range g {
			if notAllowed(i) {
				notAllowedKeys = append(notAllowedKeys, keys[i])
			}
		}
		if len(notAllowedKeys) == 0 || !spansKeys(keys) {
			continue
		}
		for i, op := range g {
			undo, needed := op.Undo(&call.Verdicts[first+i])
			if !needed || slices.Contains(notAllowedKeys, keys[i]) {
				continue
			}
			refund := refunds.of(keys[i])
			refund.AddOps(limiters.Group{undo}, first+i)
			refund.keys = append(refund.keys, keys[i])
			if undo.Kind != limiters.OpEnd {
				// In the next fixed window, the refund would admit a hit too many.
				refund.notAfter = start.Add(call.Verdicts[first+i].ResetAfter)
			}
		}
	}
	return refunds.calls
}

func spansKeys(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return key != keys[0] })
}

// isMixed reports whether a group contains both refunds and other operations.
func isMixed(g limiters.Group) bool {
	refunds := func(op limiters.Op) bool { return op.IsRefund() }
	return slices.ContainsFunc(g, refunds) && slices.ContainsFunc(g, func(op limiters.Op) bool { return !refunds(op) })
}

// errorOfVerdicts is [split.ErrorOfAll] for the errors of verdicts.
func errorOfVerdicts(verdicts []limiters.Verdict) error {
	errs := make([]error, len(verdicts))
	for i := range verdicts {
		errs[i] = verdicts[i].Err
	}
	return split.ErrorOfAll(errs)
}

// scatterRefunds replaces the verdicts of operations that were allowed and then refunded. If the
// refund was late, its window has ended, and the verdict of the charge stays. If it failed, the
// operation gets an error that is not [limiters.Uncharged], so that nothing charges it again.
func scatterRefunds(refunds []*hashSlotCall, out []limiters.Verdict) {
	for _, call := range refunds {
		if errors.Is(call.err, errLate) {
			continue
		}
		if call.err != nil {
			// It does not wrap call.err, which may be Uncharged.
			limiters.FailAll(call.Verdicts, errors.New("a charge of a denied or failed group may not have been refunded: "+call.err.Error()))
		}
		call.Scatter(out)
	}
}
