package guard

import (
	"context"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// This file charges the rest of a group of which the store failed a part. A group takes effect as a
// whole, so if the store fails one of its operations, it charges none. Suppose that it fails A and
// would allow B:
//
//	on_store_error of A   A                 B
//	error                 undecided         not charged
//	deny                  denied            not charged
//	allow                 allowed           sent again without A
//	local                 by the share      sent again without A, if the share allows A
//
// If the store fails B too, the on_store_error of B decides it, and the rest of the group without A
// and B is sent again. If one of the operations is not allowed in the end, neither is the group,
// and what the share has charged for the others is undone.

// chargeRest sends operations again that the store allowed but did not charge, because another
// operation of their group failed. Otherwise one failing limit would let a client pass uncharged
// under the others.
func (f *Fallback) chargeRest(ctx context.Context, t takeResult) {
	var retried split.Subset
	var retriedGroups []retriedGroup
	for first, g := range limiters.EachGroup(t.groups) {
		verdicts := t.out[first : first+len(g)]
		if addUncharged(&retried, first, g, verdicts) {
			retriedGroups = append(retriedGroups, retriedGroup{verdicts, reversal(first, g, verdicts)})
		}
	}
	if len(retriedGroups) == 0 {
		return
	}
	err := retried.Take(ctx, f.store)
	if ctx.Err() == nil {
		rest := takeResult{retried.Groups, retried.Verdicts}
		f.noteOutage(err, rest)
		f.decideFailed(ctx, rest)
		f.chargeRest(ctx, rest) // ends, because each rest has fewer operations than its group
	}
	retried.Scatter(t.out)
	for _, g := range retriedGroups {
		if slices.ContainsFunc(g.verdicts, isNotAllowed) {
			f.local.undo(ctx, g.reversal, t)
		}
	}
}

// A retriedGroup is a group of which chargeRest sends a part again.
type retriedGroup struct {
	verdicts []limiters.Verdict // of the whole group
	reversal split.Subset       // undoes the charges of the other part
}

// addUncharged adds the operations of g that the store allowed to retried, if on_store_error
// allowed the others. It reports whether it has added some.
func addUncharged(retried *split.Subset, first int, g limiters.Group, verdicts []limiters.Verdict) bool {
	if slices.ContainsFunc(verdicts, isNotAllowed) {
		return false
	}
	var allowed limiters.Group
	var indices []int
	for i := range g {
		if isByStore(verdicts[i]) {
			allowed, indices = append(allowed, g[i]), append(indices, first+i)
		}
	}
	if len(allowed) == 0 || len(allowed) == len(g) {
		return false
	}
	retried.AddOps(allowed, indices...)
	return true
}

// reversal returns the operations that undo what the share has charged for g.
func reversal(first int, g limiters.Group, verdicts []limiters.Verdict) (s split.Subset) {
	for i, op := range g {
		v := &verdicts[i]
		if undo, needed := op.Undo(v); needed && v.By == limiters.ByShare {
			s.AddOps(limiters.Group{undo}, first+i)
		}
	}
	return s
}

// undo executes the reversal of a group of t, in which another operation has not been allowed.
func (l *localFallback) undo(ctx context.Context, reversal split.Subset, t takeResult) {
	if reversal.Len() == 0 {
		return
	}
	_ = reversal.Take(ctx, localUndoer{l}) // the local store does not fail refunds and ends
	for i := range reversal.Verdicts {
		if v := &t.out[reversal.Index(i)]; v.LeaseAt == limiters.LeaseOnlyInShare {
			v.LeaseAt = limiters.LeaseNowhere
		}
	}
}
