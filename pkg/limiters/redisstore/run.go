package redisstore

import (
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// runFrom returns the longest run whose first operation has the index first.
func (b *batch) runFrom(first int) redisscripts.Run {
	if size := b.ops[first].groupSize; size > 1 {
		return redisscripts.Run{Kind: groupKind(b.ops[first : first+size]), OpCount: size}
	}
	r := b.runOf(first)
	for i := first + 1; i < len(b.ops) && b.ops[i].groupSize == 1 && r.OpCount < redisscripts.MaxRunOps && extends(&r, b.runOf(i)); i++ {
		r.OpCount++
	}
	return r
}

// groupKind returns the kind of the run of a group.
func groupKind(group []batchOp) redisscripts.RunKind {
	for _, op := range group {
		if op.Kind == limiters.OpInspect || op.Limit.UsesExtraState() {
			return redisscripts.KindExtra
		}
	}
	return redisscripts.KindGrouped
}

// runOf returns the run of an ungrouped operation alone.
func (b *batch) runOf(i int) redisscripts.Run {
	op := &b.ops[i]
	return redisscripts.Run{
		Kind: b.runKind(op), OpCount: 1, KeyIndex: op.keyIndex, LimitIndex: op.limitIndex,
		Hits: limiters.ClampHits(op.Hits), CountDenied: op.Kind == limiters.OpCountDenied,
	}
}

// extends reports whether the operation of next, which follows those of r, belongs to r.
func extends(r *redisscripts.Run, next redisscripts.Run) bool {
	if next.Kind != r.Kind || next.CountDenied != r.CountDenied {
		return false
	}
	switch r.Kind {
	case redisscripts.KindAlone:
		return next.KeyIndex == r.KeyIndex+r.OpCount // the script derives the keys from the first
	case redisscripts.KindConcurrency, redisscripts.KindReservations:
		return true
	case redisscripts.KindSameKey:
		return next.KeyIndex == r.KeyIndex && next.LimitIndex == r.LimitIndex && next.Hits == r.Hits
	default: // a KindExtra run has one group
		return false
	}
}

// runKind returns the kind of a run of op, which is ungrouped.
func (b *batch) runKind(op *batchOp) redisscripts.RunKind {
	switch {
	case op.Kind == limiters.OpInspect:
		return redisscripts.KindExtra
	case op.Limit.IsConcurrency():
		return redisscripts.KindConcurrency
	case op.Limit.Reserves() && !op.Limit.HasPenalty():
		return redisscripts.KindReservations
	case op.Limit.UsesExtraState():
		return redisscripts.KindExtra
	case b.opsOnKey[op.keyIndex] == 1:
		return redisscripts.KindAlone
	default:
		return redisscripts.KindSameKey
	}
}

// appendRun appends r, whose first operation has the index first.
func (b *batch) appendRun(first int, r *redisscripts.Run) {
	buf := redisscripts.AppendRun(b.runs, r)
	for i := first; i < first+r.OpCount; i++ {
		switch op := &b.ops[i]; r.Kind {
		case redisscripts.KindAlone:
			buf = redisscripts.AppendAlone(buf, op.Op, op.limitIndex)
		case redisscripts.KindGrouped:
			buf = redisscripts.AppendGrouped(buf, op.Op, op.keyIndex, op.limitIndex)
		case redisscripts.KindConcurrency:
			buf = redisscripts.AppendConcurrency(buf, op.Op, op.keyIndex, op.limitIndex)
		case redisscripts.KindReservations, redisscripts.KindExtra:
			buf = redisscripts.AppendExtra(buf, op.Op, op.keyIndex, op.limitIndex, b.addExtraKey(op, reservationsKey), b.addExtraKey(op, penaltyKey))
		}
	}
	b.runs = buf
}

// addExtraKey is addKey for an extra key of op. It returns NoIndex if the limit has no key of the
// kind.
func (b *batch) addExtraKey(op *batchOp, kind keyKind) int {
	if kind == reservationsKey && op.Limit.Reserves() || kind == penaltyKey && op.Limit.HasPenalty() {
		return b.addKey(b.keys[op.keyIndex] + keySuffixes[kind])
	}
	return redisscripts.NoIndex
}
