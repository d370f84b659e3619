package redisstore

import (
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// encodeRuns appends the runs of all operations.
func (b *batch) encodeRuns() {
	for first := 0; first < len(b.ops); {
		r := b.runFrom(first)
		b.appendRun(first, &r)
		first += r.Ops
	}
}

// runFrom returns the run whose first operation has the index first. It is as long as possible.
func (b *batch) runFrom(first int) redisscripts.Run {
	r := b.runOf(first)
	for i := first + 1; i < len(b.ops) && extends(&r, b.runOf(i)); i++ {
		r.Ops++
	}
	return r
}

// runOf returns the run of operation i alone.
func (b *batch) runOf(i int) redisscripts.Run {
	op := b.ops[i]
	return redisscripts.Run{
		Kind: b.runKind(i), Ops: 1, Key: b.keyOf[i], Limit: b.limitOf[i], Group: b.groupOf[i],
		N: limiters.ClampHits(op.N), CountDenied: op.Kind == limiters.OpCountDenied,
	}
}

// extends reports whether the operation of next, which follows those of r, belongs to r.
func extends(r *redisscripts.Run, next redisscripts.Run) bool {
	if next.Kind != r.Kind || next.CountDenied != r.CountDenied {
		return false
	}
	switch r.Kind {
	case redisscripts.KindAlone, redisscripts.KindConcurrency, redisscripts.KindReservations:
		return true
	case redisscripts.KindSameKey:
		return next.Key == r.Key && next.Limit == r.Limit && next.N == r.N
	default: // a run of any other kind has one operation
		return false
	}
}

// runKind returns the kind of a run of operation i.
func (b *batch) runKind(i int) redisscripts.RunKind {
	op, ungrouped := b.ops[i], b.groupOf[i] == 0
	switch {
	case op.Kind == limiters.OpInspect:
		return redisscripts.KindExtra
	case ungrouped && op.Limit.IsConcurrency():
		return redisscripts.KindConcurrency
	case ungrouped && op.Limit.Reserves() && !op.Limit.HasPenalty():
		return redisscripts.KindReservations
	case op.Limit.UsesExtraState():
		return redisscripts.KindExtra
	case ungrouped && b.opsOnKey[b.keyOf[i]] == 1:
		return redisscripts.KindAlone
	case ungrouped:
		return redisscripts.KindSameKey
	default:
		return redisscripts.KindGrouped
	}
}

// appendRun appends r, whose first operation has the index first.
func (b *batch) appendRun(first int, r *redisscripts.Run) {
	buf := redisscripts.AppendRun(b.runs, r)
	for i := first; i < first+r.Ops; i++ {
		switch op := b.ops[i]; r.Kind {
		case redisscripts.KindAlone:
			buf = redisscripts.AppendAlone(buf, op, b.limitOf[i])
		case redisscripts.KindConcurrency:
			buf = redisscripts.AppendConcurrency(buf, op, b.keyOf[i], b.limitOf[i])
		case redisscripts.KindReservations:
			buf = redisscripts.AppendReservations(buf, op, b.keyOf[i], b.limitOf[i], b.extraKey(i, reservationsKey))
		case redisscripts.KindExtra:
			buf = redisscripts.AppendExtra(buf, op, b.extraKey(i, reservationsKey), b.extraKey(i, penaltyKey))
		}
	}
	b.runs = buf
}

// extraKey returns the index of an extra key of operation i, adding it if it is new. It returns
// NoIndex if the limit has no key of the kind.
func (b *batch) extraKey(i int, kind keyKind) int {
	l := b.ops[i].Limit
	if kind == reservationsKey && l.Reserves() || kind == penaltyKey && l.HasPenalty() {
		return b.keyIndex(b.keys[i] + keySuffixes[kind])
	}
	return redisscripts.NoIndex
}
