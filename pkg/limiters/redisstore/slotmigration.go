package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// decideKeyByKey repeats calls that got TRYAGAIN, because a call over several keys fails while
// their slot moves. It charges a group key by key, and refunds it if one of its operations is
// denied or fails, see ADR 5. A group with both charges and refunds keeps the error, because
// refunds cannot be undone. An operation with a penalty or a reservation has extra keys; it keeps
// the error unless one node has all of them, see ADR 16.
func (n *node) decideKeyByKey(ctx context.Context, calls []*slotCall) {
	start := time.Now()
	charges, refunds := make([]keyCalls, len(calls)), make([]keyCalls, len(calls))
	for i, sc := range calls {
		charges[i] = chargesOf(sc)
	}
	n.makeCalls(ctx, allCalls(charges))
	for i, sc := range calls {
		charges[i].scatter(sc.Verdicts) // an operation that is not in charges keeps its error
		refunds[i] = refundsOf(sc, start)
	}
	// The charges may have used up the time of the call, so it may take twice the timeout.
	refunding, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cluster.timeout)
	defer cancel()
	n.makeCalls(refunding, allCalls(refunds))
	for i, sc := range calls {
		refunds[i].scatterRefunds(sc.Verdicts)
		sc.err = errorOfVerdicts(sc.Verdicts)
	}
}

// chargesOf returns a call for each key. Operations on one key keep their order and group.
func chargesOf(sc *slotCall) keyCalls {
	charges := newKeyCalls(sc.batch.notAfter, sc.batch.now)
	for first, g := range limiters.EachGroup(sc.Groups) {
		keys := sc.batch.keys[first : first+len(g)]
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
			charges.add(key, own, indices...)
		}
	}
	return charges
}

// refundsOf returns refunds of the operations that were charged, after start, in groups that were
// denied. The refunds do not have the deadline of the charges, because a charge must be refunded
// even if its client has left.
func refundsOf(sc *slotCall, start time.Time) keyCalls {
	refunds := newKeyCalls(time.Time{}, sc.batch.now)
	for first, g := range limiters.EachGroup(sc.Groups) {
		keys := sc.batch.keys[first : first+len(g)]
		notAllowed := func(i int) bool { return sc.Verdicts[first+i].Err != nil || !sc.Verdicts[first+i].Allowed }
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
			undo, needed := undoOf(op)
			if !needed || slices.Contains(notAllowedKeys, keys[i]) {
				continue
			}
			refund := refunds.add(keys[i], limiters.Group{undo}, first+i)
			if sc.batch.now.IsZero() && undo.Kind != limiters.OpEnd {
				// In the next fixed window, the refund would admit a hit too many.
				refund.batch.notAfter = start.Add(sc.Verdicts[first+i].ResetAfter)
			}
		}
	}
	return refunds
}

// undoOf returns the operation that undoes an allowed operation: the end of its lease, or a refund.
// It returns false if op has changed nothing.
func undoOf(op limiters.Op) (undo limiters.Op, needed bool) {
	undo = op
	if op.Limit.UsesLeases() {
		undo.N, undo.Kind = 0, limiters.OpEnd
	} else {
		undo.N = -op.N
	}
	return undo, op.N > 0 || op.MayOpenLease() // a reservation may have an estimate of 0
}

func spansKeys(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return key != keys[0] })
}

// isMixed reports whether a group has both refunds and other operations.
func isMixed(g limiters.Group) bool {
	refunds := func(op limiters.Op) bool { return op.N < 0 }
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

// keyCalls groups operations by key, with one call for each key.
type keyCalls struct {
	notAfter, now time.Time // the times of the batch, see batch
	byKey         map[string]*slotCall
	calls         []*slotCall
}

func newKeyCalls(notAfter, now time.Time) keyCalls {
	return keyCalls{notAfter: notAfter, now: now, byKey: map[string]*slotCall{}}
}

// add adds a group of operations on key to the call of the key, and returns the call. See
// [split.Subset.AddOps].
func (k *keyCalls) add(key string, g limiters.Group, indices ...int) *slotCall {
	sc := k.byKey[key]
	if sc == nil {
		sc = &slotCall{batch: newBatch(k.notAfter, k.now)}
		k.byKey[key] = sc
		k.calls = append(k.calls, sc)
	}
	sc.AddOps(g, indices...)
	sc.batch.keys = append(sc.batch.keys, slices.Repeat([]string{key}, len(g))...)
	return sc
}

func allCalls(all []keyCalls) (calls []*slotCall) {
	for _, k := range all {
		calls = append(calls, k.calls...)
	}
	return calls
}

func (k keyCalls) scatter(out []limiters.Verdict) {
	for _, sc := range k.calls {
		sc.Scatter(out)
	}
}

// scatterRefunds replaces the verdicts of operations that were allowed and then refunded. If the
// refund was late, its window has ended, and the verdict of the charge stays. If it failed, the
// operation gets an error that is not [limiters.Uncharged], so that nothing charges it again.
func (k keyCalls) scatterRefunds(out []limiters.Verdict) {
	for _, sc := range k.calls {
		if errors.Is(sc.err, errLate) {
			continue
		}
		if sc.err != nil {
			// It does not wrap sc.err, which may be Uncharged.
			limiters.FailAll(sc.Verdicts, errors.New("a charge of a denied or failed group was not refunded: "+sc.err.Error()))
		}
		sc.Scatter(out)
	}
}
